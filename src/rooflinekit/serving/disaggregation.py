"""Disaggregation: prefill and decode on GPUs of their own, K and V sent between, against the same GPUs together."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from rooflinekit import units
from rooflinekit.errors import InvalidInputError
from rooflinekit.phases.deployment import Deployment
from rooflinekit.serving.engine import EngineProfile
from rooflinekit.serving.host import profile_for, served_by
from rooflinekit.serving.kv_link import Link, link_between
from rooflinekit.serving.pools import DecodeWorker, PrefillWorker
from rooflinekit.serving.split import COMPARED, BreakEven, Delivered, Question, Work
from rooflinekit.specs.precision import one_of
from rooflinekit.specs.step import checked

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Disaggregation:
    """
    A split server beside the same GPUs together.

    Attributes
    ----------
    prefill_gpus, decode_gpus : int
        Of the split.
    balance : float
        GPUs for prefill to one for decode at which both are full at once. [1]
    kv_bytes : float
        K and V of a prompt that one GPU sends. [byte]
    transfer_s : float
        What is seen of sending them: latency, wire and queue, less what overlaps. [s]
    split, together : Delivered
        What each arrangement delivers.
    """

    prefill: PrefillWorker
    decode: DecodeWorker
    rate_per_s: float
    gpus: int
    prefill_gpus: int
    decode_gpus: int
    balance: float
    kv_bytes: float
    transfer_s: float
    link: Link
    split: Delivered
    together: Delivered
    compared_by: str

    @property
    def better(self) -> bool:
        """Whether the split is the quicker one."""
        field = COMPARED[self.compared_by]
        return bool(getattr(self.split, field) < getattr(self.together, field))

    @cached_property
    def link_break_even(self) -> BreakEven:
        """Link speed from which the split is no slower than the GPUs together, at this rate. [byte/s]"""
        return self._question.link_break_even(self.rate_per_s, self._readers, self.compared_by)

    @cached_property
    def load_break_even(self) -> BreakEven:
        """Rate from which the split is no slower than the GPUs together, over this link. [request/s]"""
        return self._question.load_break_even(self._readers, self.compared_by)

    @property
    def _each(self) -> int:
        """GPUs of a replica."""
        return self.prefill.deployment.layout.devices

    @property
    def _readers(self) -> int:
        return self.prefill_gpus // self._each

    @property
    def _question(self) -> Question:
        work = Work(self.prefill, self.decode, self.prefill.cached_tokens)
        return Question(work, self.gpus // self._each, self.link)

    def table(self) -> "pd.DataFrame":
        """Give a row an arrangement."""
        import pandas as pd  # noqa: PLC0415 - loads on first use

        return pd.DataFrame([self.together._asdict(), self.split._asdict()])

    def __repr__(self) -> str:
        """Give one line."""
        gpus = f"{self.prefill_gpus} prefill + {self.decode_gpus} decode GPUs"
        times = (
            f"TTFT {units.duration(one.time_to_first_token_s)}, TPOT {units.duration(one.time_per_output_token_s)}"
            for one in (self.split, self.together)
        )
        return f"{gpus}: {' against '.join(times)} together ({self.prefill.deployment.timing.laws.basis})"


def disaggregate(
    deployment: Deployment,
    *,
    prompt_tokens: float,
    output_tokens: float,
    rate_per_s: float,
    gpus: int = 2,
    prefill_gpus: int | None = None,
    decode: Deployment | None = None,
    engine: str | EngineProfile | None = None,
    cached_tokens: float = 0.0,
    link_bytes_per_s: float | None = None,
    link_latency_s: float | None = None,
    overlap: float = 0.0,
    compared_by: str = "end_to_end",
) -> Disaggregation:
    """
    Compare GPUs of their own for prefill and decode with the same number of GPUs that do both.

    Parameters
    ----------
    deployment : Deployment
        One replica: what a prefill worker is, and what the GPUs together hold as often as they can.
    prompt_tokens, output_tokens, cached_tokens : float
        Of each request; a cached prefix is neither computed nor sent. [token]
    rate_per_s : float
        Requests of all GPUs together. [request/s]
    gpus : int
        In all; a multiple of a replica's.
    prefill_gpus : int, optional
        Of them; the split that carries most if not given.
    decode : Deployment, optional
        Another replica for decode: another device, format or layout of as many GPUs.
    engine : str or EngineProfile
        Whose scheduler and pool.
    link_bytes_per_s, link_latency_s : float, optional
        Between a GPU of either side, one way; the device's own interconnect if not given. [byte/s], [s]
    overlap : float
        Part of the transfer that runs while the prompt is still being read, layer by layer: 0 to 1.
    compared_by : {"end_to_end", "ttft", "tpot"}
        What the break-evens compare.

    Returns
    -------
    disaggregation : Disaggregation
        ``.link_break_even`` and ``.load_break_even`` are found when asked for.

    Raises
    ------
    InvalidInputError
        A size is wrong, or the GPUs make no two replicas.
    MissingFigureError
        The device file says no link: give ``link_bytes_per_s``.

    Notes
    -----
    Prompts queue for prefill workers at random (:mod:`~rooflinekit.serving.pools`: some 12% of the mean up to 70% load,
    20% where prompts are short). Decode steps carry no prompts: their batch is what came while an answer ran. Prompts
    queue for the links of the side that has fewer workers. The GPUs together are the closed form of
    :func:`~rooflinekit.serve`, an extrapolation above 80% of what they carry.

    Examples
    --------
    >>> import rooflinekit as rk
    >>> found = disaggregate(
    ...     rk.Deployment("llama-3.1-8b", "h100-sxm"), prompt_tokens=4000, output_tokens=200, rate_per_s=16, gpus=4
    ... )
    >>> found.prefill_gpus + found.decode_gpus, found.kv_bytes == 4000 * 131072
    (4, True)
    """
    for name, value in (("rate_per_s", rate_per_s), ("link_bytes_per_s", link_bytes_per_s)):
        checked(name, 1.0 if value is None else value, positive=True)
    checked("link_latency_s", link_latency_s or 0.0)
    _checked_choice(compared_by, overlap)
    profile = profile_for(deployment, engine)
    deployment = served_by(deployment, profile)
    work = Work.of(deployment, decode, profile, (prompt_tokens, output_tokens, cached_tokens))
    link = link_between(deployment, gpus, bytes_per_s=link_bytes_per_s, latency_s=link_latency_s, overlap=overlap)
    question = Question(work, _replicas(deployment, decode, gpus), link)
    each = deployment.layout.devices
    readers = question.best if prefill_gpus is None else _readers(prefill_gpus, each, question.replicas)
    return Disaggregation(
        prefill=work.prefill, decode=work.decode, rate_per_s=rate_per_s, gpus=gpus, prefill_gpus=readers * each,
        decode_gpus=(question.replicas - readers) * each, balance=work.balance, kv_bytes=work.kv_bytes,
        transfer_s=link.transfer_s(work.kv_bytes, rate_per_s / question.lanes(readers)), link=link,
        split=question.split(rate_per_s, readers, link), together=question.together(rate_per_s),
        compared_by=compared_by,
    )  # fmt: skip


# ---- what was asked


def _checked_choice(compared_by: str, overlap: float) -> None:
    checked("overlap", overlap)
    if overlap > 1.0:
        message = f"overlap={overlap!r}: expected a part from 0 to 1"
        raise InvalidInputError(message)
    one_of("compared_by", compared_by, tuple(COMPARED))


def _replicas(deployment: Deployment, decode: Deployment | None, gpus: int) -> int:
    """Count the replicas that the GPUs make: two or more, all of one size."""
    each = deployment.layout.devices
    checked("gpus", gpus, minimum=1, whole=True)
    if gpus % each or gpus < 2 * each:
        message = f"gpus={gpus}: expected a multiple of {each}, one replica's, and at least two of them: {2 * each}"
        raise InvalidInputError(message)
    if decode is not None and decode.layout.devices != each:
        message = f"decode= has {decode.layout.devices} GPUs a replica: expected {each}, as for prefill"
        raise InvalidInputError(message)
    return gpus // each


def _readers(prefill_gpus: int, each: int, replicas: int) -> int:
    checked("prefill_gpus", prefill_gpus, minimum=1, whole=True)
    readers = prefill_gpus // each
    if prefill_gpus % each or readers >= replicas:
        message = f"prefill_gpus={prefill_gpus}: expected a multiple of {each} that leaves GPUs for decode"
        raise InvalidInputError(message)
    return readers
