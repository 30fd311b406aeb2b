"""Embedding and reranking: models that only read. Passes over whole texts, nothing sampled and nothing kept."""

from dataclasses import dataclass

import numpy as np

from rooflinekit import units
from rooflinekit.errors import InvalidInputError
from rooflinekit.phases.deployment import Deployment
from rooflinekit.serving.capacity import refuse_longer
from rooflinekit.serving.cost import Price, price_of
from rooflinekit.serving.engine import EngineProfile
from rooflinekit.serving.host import basis_of, loaded_step_s, profile_for, served_by
from rooflinekit.specs.step import Group, checked


@dataclass(frozen=True)
class Embedding:
    """
    What a server of an embedding or reranking model delivers.

    Attributes
    ----------
    tokens : float
        Of each text.
    texts : float
        In one pass.
    pass_s : float
        Of the passes of so many texts, host time included.
    alone_s : float
        Of one text alone, from its arrival to its vector.
    price : Price or None
        Of an hour of one GPU.
    """

    deployment: Deployment
    engine: EngineProfile
    tokens: float
    texts: float
    pass_s: float
    alone_s: float
    price: Price | None

    @property
    def texts_per_s(self) -> float:
        """Texts of a server that never waits for one."""
        return self.texts / self.pass_s

    @property
    def tokens_per_s(self) -> float:
        """Tokens of the same."""
        return self.texts_per_s * self.tokens

    @property
    def usd_per_million(self) -> float | None:
        """Dollars for a million tokens; None without a price."""
        if self.price is None:
            return None
        return self._gpu_s * self.price.usd_per_hour / units.HOUR * units.MEGA

    @property
    def energy_j(self) -> float | None:
        """Energy of a token at the power limit all the time: an upper bound; None where no limit is known. [J]"""
        watts = self.deployment.device.datasheet.tdp_w
        return None if watts is None else self._gpu_s * watts

    @property
    def _gpu_s(self) -> float:
        """GPU-seconds of a token."""
        return self.deployment.layout.devices / self.tokens_per_s

    @property
    def basis(self) -> str:
        """Whose constants and profile."""
        return basis_of(self.deployment, self.engine)

    def __repr__(self) -> str:
        """Give one line."""
        rate = f"{self.tokens_per_s:,.0f} tokens/s, {self.texts_per_s:.3g} texts/s"
        return f"{rate}, {self.texts:g} in a pass of {units.duration(self.pass_s)} ({self.basis})"


def embed(
    deployment: Deployment,
    tokens: float,
    *,
    engine: str | EngineProfile | None = None,
    usd_per_hour: float | None = None,
) -> Embedding:
    """
    Estimate the throughput of a model that only reads: prefill passes packed to the token budget.

    Parameters
    ----------
    deployment : Deployment
        What reads.
    tokens : float
        Of each text; of query and document together where pairs are ranked. [token]
    engine : str or EngineProfile
        Whose token budget, sequences and host times.
    usd_per_hour : float, optional
        Of one GPU.

    Returns
    -------
    read : Embedding

    Raises
    ------
    InvalidInputError
        A text is longer than the engine takes (``max_model_len``), or than a pass of one that does not cut prompts, or
        the price is no number above 0.
    DoesNotFitError
        Weights and the texts of one pass exceed the memory.

    Notes
    -----
    No output layer and no decode; K and V of a text live for its passes alone, so that no pool limits how many come. A
    text beyond the budget is read in chunks. Attention is causal, as decoders have it that embed; an encoder that looks
    both ways does twice as much in its attention and the same elsewhere.

    References
    ----------
    "Prefill and decode", section "Which phase owns which number": an embedding model has no decode at all.

    Examples
    --------
    Sixteen texts of 512 tokens fill a pass of 8,192; the weights are read once for all of them:

    >>> import rooflinekit as rk
    >>> read = rk.embed(rk.Deployment("qwen3-8b", "h100-sxm"), 512)
    >>> read.texts, read.texts_per_s > 1 / read.alone_s
    (16.0, True)
    """
    length = float(checked("tokens", tokens, minimum=1.0))  # type: ignore[arg-type]
    profile = profile_for(deployment, engine)
    deployment = served_by(deployment, profile)
    refuse_longer(deployment, profile, length)
    budget, most = profile.token_budget(deployment.device), profile.sequences(deployment.device)
    if length > budget and not profile.enable_chunked_prefill:
        message = (
            f"tokens={length:g}: {profile.id} takes {budget:,} in a pass and does not cut texts: "
            "shorter ones, or a larger max_num_batched_tokens (--chunk)"
        )
        raise InvalidInputError(message)
    price = price_of(deployment, usd_per_hour)
    texts = float(max(min(budget // length, most or budget), 1))
    together, alone = (_passes_s(deployment, profile, (length, float(budget), many)) for many in (texts, 1.0))
    return Embedding(deployment, profile, length, texts, together, alone + profile.request_host_s, price)


def _passes_s(deployment: Deployment, profile: EngineProfile, sizes: tuple[float, float, float]) -> float:
    """Time the passes over texts: one, or the chunks of a text beyond the budget."""
    length, budget, texts = sizes
    starts = np.arange(0.0, length, budget)
    chunks = Group(np.minimum(length - starts, budget), starts, texts, 0.0)
    return float(np.sum(loaded_step_s(deployment, profile, chunks=chunks)))
