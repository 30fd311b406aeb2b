"""Capacity: what one GPU's memory leaves for K and V, term by term, and how many requests that holds at once."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from rooflinekit import units
from rooflinekit.errors import DoesNotFitError, InvalidInputError
from rooflinekit.operators.kv_cache import kv_cache_bytes
from rooflinekit.phases.deployment import Deployment
from rooflinekit.phases.row import Value
from rooflinekit.serving.engine import EngineProfile
from rooflinekit.serving.host import profile_for
from rooflinekit.serving.pages import Pages, lay_out
from rooflinekit.serving.pool import Limits, Term, size_pool
from rooflinekit.serving.share import AS_THE_MODEL, Share, StateFormat, gpu_share
from rooflinekit.specs.step import Real, amount, checked

#: What else makes room, by how the pool is sized.
_REMEDY = {
    "utilisation": "a higher `gpu_memory_utilization=` or a smaller `max_num_batched_tokens=`",
    "context": "a shorter context (`max_model_len=`)",
}


class Asked(NamedTuple):
    """What the user says besides the engine's settings; None is not said."""

    graph_bytes: float | None = None
    weight_bytes: float | None = None
    kv_bytes: float | None = None
    states: StateFormat = AS_THE_MODEL


@dataclass(frozen=True)
class Capacity:
    """
    What a server holds at once: the terms of one GPU's KV pool, its pages, and requests at a length.

    Attributes
    ----------
    deployment, engine
        What is served, by which profile.
    share : Share
        Weights, layers and widths of one GPU.
    limits : Limits
        Token budget, sequences and longest request that hold here.
    terms : tuple of Term
        Name, bytes (what is taken is negative) and reason; their sum is the pool.
    pages : Pages
        Blocks and groups of layers.
    asked : Asked
        What the user said besides.
    """

    deployment: Deployment
    engine: EngineProfile
    share: Share
    limits: Limits
    terms: tuple[Term, ...]
    pages: Pages
    asked: Asked = field(repr=False)

    @property
    def pool_bytes(self) -> float:
        """Memory of one GPU for K, V and states."""
        return sum(term.bytes for term in self.terms)

    @property
    def blocks(self) -> int:
        """Blocks of the pool, each over the layers of one group."""
        return self.pages.blocks(self.pool_bytes)

    @property
    def kv_tokens(self) -> int:
        """
        Tokens that the engine's log prints for the pool, all GPUs of a group together.

        Notes
        -----
        Uniform layers: blocks x block. Others: blocks over groups x block, or since vLLM 0.24 the concurrency at the
        longest request times its length, which then says nothing of the bytes of a token.

        Examples
        --------
        >>> import rooflinekit as rk
        >>> capacity(rk.Deployment("llama-3.1-8b", "rtx-3090"), engine="vllm-0.12", kv_bytes=3.81 * 2**30).kv_tokens
        31200
        """
        longest = self.limits.max_model_len
        if self.engine.pool == "context":
            return (longest or 0) * (1 if self.engine.shared_context else self.limits.max_num_seqs or 1)
        if self.engine.printed_tokens == "concurrency" and longest:
            return int(self.blocks / self._taken(float(longest)) * longest)
        return self.blocks // len(self.pages.groups) * self.pages.block_tokens

    @property
    def bytes_per_token(self) -> float:
        """Bytes that one more token takes on one GPU, over all layers."""
        return self.share.kv_bytes_per_token

    @property
    def state_bytes(self) -> float:
        """Bytes that a request takes on one GPU whatever its length."""
        return self.share.state_bytes

    @property
    def max_concurrency(self) -> float | None:
        """Requests of the longest length that the pool holds: the log's "maximum concurrency"."""
        longest = self.limits.max_model_len
        return None if longest is None else float(self.requests(longest)) / self.share.engines

    def requests(self, tokens: Real) -> Value:
        """
        Count the requests of so many tokens that fit at once; pages round up, a part of a request counts as a part.

        Parameters
        ----------
        tokens : Real
            Length of each request with its answer, or an array of lengths. [token]

        Returns
        -------
        requests : float or array
            What the pools of all groups of GPUs hold; the engine may run fewer (``limits.max_num_seqs``).

        Examples
        --------
        >>> import rooflinekit as rk
        >>> held = capacity(rk.Deployment("llama-3.1-8b", "h100-sxm"), engine="vllm-0.12")
        >>> [int(requests) for requests in held.requests([2048, 8192])]
        [219, 54]
        """
        lengths = amount(checked("tokens", tokens, positive=True))
        if self.engine.pool == "context":
            return self._slots(lengths)
        return self.share.engines * self.blocks / self._taken(lengths)

    def mean_requests(self, lengths: Sequence[float]) -> float:
        """
        Count the requests that the pool holds at once where their lengths are drawn from these.

        Examples
        --------
        >>> import rooflinekit as rk
        >>> held = capacity(rk.Deployment("llama-3.1-8b", "h100-sxm"), engine="vllm-0.12")
        >>> held.mean_requests([1024, 3072]) == held.requests(2048)
        True
        """
        drawn = np.asarray(checked("lengths", lengths, positive=True), dtype=np.float64)
        if self.engine.pool == "context":
            return float(self.limits.max_num_seqs or 1)
        return self.share.engines * self.blocks / float(np.mean(self._taken(drawn)))

    def reserved_bytes(self, tokens: Real) -> Value:
        """Bytes of one GPU that the engine sets aside for a request of so many tokens."""
        return self._taken(amount(checked("tokens", tokens))) * self.pages.block_bytes

    def read_bytes(self, tokens: Real) -> Value:
        """
        Bytes of one GPU that a decode step of such a request reads: a window at most, and the states.

        Examples
        --------
        Sliding layers of gpt-oss hold pages for a whole budget of tokens, and read 128 of them:

        >>> import rooflinekit as rk
        >>> held = capacity(rk.Deployment("gpt-oss-20b", "h100-sxm"), engine="vllm-0.12")
        >>> held.reserved_bytes(8192) > 1.9 * held.read_bytes(8192)
        True
        """
        length = amount(checked("tokens", tokens))
        read: Value = self.state_bytes
        for kind in self.share.kinds:
            read = read + kv_cache_bytes(kind.layers * kind.bytes_per_token, length, 1.0, kind.window)
        return read

    def _taken(self, tokens: Value) -> Value:
        in_flight = self.engine.in_flight_batches * self.limits.max_num_batched_tokens
        return self.pages.blocks_per_request(tokens, in_flight)

    def _slots(self, tokens: Value) -> Value:
        """Give the slots of a context that was reserved at the start; none where a request is longer than it."""
        longest, slots = float(self.limits.max_model_len or np.inf), float(self.limits.max_num_seqs or 1)
        shared = longest / tokens if self.engine.shared_context else slots
        held = np.where(np.asarray(tokens) <= longest, np.minimum(shared, slots), 0.0)
        return held if np.ndim(tokens) else float(held)

    def __repr__(self) -> str:
        """Give one line: pool, tokens, requests of the longest length."""
        pool = units.binary_bytes(self.pool_bytes)
        return f"{self.deployment.model.id} on {self.deployment.device.id}: {pool} a GPU, {self.kv_tokens:,} tokens"


def capacity(
    deployment: Deployment,
    *,
    engine: str | EngineProfile | None = None,
    gpu_memory_utilization: float | None = None,
    max_num_batched_tokens: int | None = None,
    max_model_len: int | None = None,
    max_num_seqs: int | None = None,
    tensor_parallel: int | None = None,
    graph_bytes: float | None = None,
    weight_bytes: float | None = None,
    kv_bytes: float | None = None,
    state_value_bytes: float | None = None,
    speculative_tokens: int = 0,
) -> Capacity:
    """
    Find what a server holds at once: the KV pool of one GPU, its tokens, and requests at a length.

    Parameters
    ----------
    deployment : Deployment
        Model, device and formats.
    engine : str or EngineProfile
        Whose rules: ``"vllm"``, ``"vllm-0.12"``, ``"sglang"``, ...
    gpu_memory_utilization, max_num_batched_tokens, max_model_len, max_num_seqs
        Settings of the engine; None is its default for this device, or for the length that of the model.
    tensor_parallel : int, optional
        GPUs that share every layer, where that is not said by the deployment.
    graph_bytes, weight_bytes, kv_bytes : float, optional
        What a log says of captured graphs, of weights, of the whole pool, of one GPU. [byte]
    state_value_bytes : float, optional
        Bytes of a value of recurrent states; None is the model's own.
    speculative_tokens : int
        Tokens that the model's own prediction module drafts.

    Returns
    -------
    capacity : Capacity

    Raises
    ------
    DoesNotFitError
        The memory does not hold weights and the peak of a pass; the terms are listed.
    UnknownNameError, SpecError, InvalidInputError
        A name or setting is wrong.

    Notes
    -----
    Everything is per GPU, since every GPU holds its own part: pool = utilisation x memory - weights - activation peak
    - graphs - other. The peak grows with the token budget, so the pool is less than "0.9 x memory - weights".

    References
    ----------
    vLLM's startup logs (``references/serving/kvlog.csv``); the rules by version are in ``serving/profiles``.

    Examples
    --------
    A log of this set-up says 6.95 GiB and 56,880 tokens:

    >>> import rooflinekit as rk
    >>> d = rk.Deployment("llama-3.1-8b", "rtx-3090")
    >>> capacity(d, engine="vllm-0.12", gpu_memory_utilization=0.95, max_num_seqs=64)
    llama-3.1-8b on rtx-3090: 6.92 GiB a GPU, 56,656 tokens
    """
    profile = profile_for(deployment, engine).with_(
        gpu_memory_utilization=gpu_memory_utilization,
        max_num_batched_tokens=max_num_batched_tokens,
        max_model_len=max_model_len,
        max_num_seqs=max_num_seqs,
    )
    states = StateFormat(state_value_bytes, speculative_tokens)
    asked = Asked(_given("graph_bytes", graph_bytes), weight_bytes, kv_bytes, states)
    divided = deployment if tensor_parallel is None else deployment.with_(tensor_parallel=tensor_parallel)
    return size(divided, profile, asked)


def size(deployment: Deployment, profile: EngineProfile, asked: Asked) -> Capacity:
    """Size the pool of a deployment under a profile, or raise the error that lists its terms."""
    served = _with_cache(deployment, profile)
    share = gpu_share(served, asked.states)
    if _given("weight_bytes", asked.weight_bytes) is not None:
        share = share._replace(weight_bytes=float(asked.weight_bytes or 0.0))
    pages = lay_out(share.kinds, profile.block_size, profile.state_blocks + asked.states.speculative_tokens)
    limits = limits_of(profile, served)
    logged = _given("kv_bytes", asked.kv_bytes)
    terms = size_pool(served.device, profile, share, limits, asked.graph_bytes) if logged is None else _logged(logged)
    found = Capacity(served, profile, share, limits, terms, pages, asked)
    if found.pool_bytes < pages.block_bytes:
        raise DoesNotFitError(_no_room(found))
    return found


def limits_of(profile: EngineProfile, deployment: Deployment) -> Limits:
    """Settle budget, sequences and longest request: the user's, the engine's for this device, the model's."""
    device, own = deployment.device, deployment.model.max_context_tokens
    longest = profile.longest(device)
    known = [length for length in (longest, own) if length is not None]
    longest = profile.max_model_len or (min(known) if known else None)
    return Limits(profile.token_budget(device), profile.sequences(device), longest)


def refuse_longer(deployment: Deployment, profile: EngineProfile, tokens: float) -> None:
    """Refuse a request that the engine refuses: one of more tokens, prompt and answer together, than it takes."""
    longest = limits_of(profile, deployment).max_model_len
    if longest is not None and tokens > longest:
        message = (
            f"a request of {units.count(tokens)} tokens is longer than the {longest:,} that {profile.id} takes of "
            f"{deployment.model.id} on {deployment.device.id} (max_model_len): expected prompt and answer within them"
        )
        raise InvalidInputError(message)


def _with_cache(deployment: Deployment, profile: EngineProfile) -> Deployment:
    """Take the engine's cache format where the user named none."""
    if profile.kv_cache_dtype is None or deployment.kv_cache is not None:
        return deployment
    return deployment.with_(kv_cache=profile.kv_cache_dtype)


def _given(name: str, value: float | None) -> float | None:
    """Check a number of bytes that the user gives."""
    if value is not None:
        checked(name, value)
    return value


def _logged(kv_bytes: float) -> tuple[Term, ...]:
    return (Term("KV pool", float(kv_bytes), "as given"),)


def _no_room(found: Capacity) -> str:
    """Say what is missing, term by term."""
    parts = ", ".join(f"{term.name} {_signed(term.bytes)}" for term in found.terms)
    deployment, missing = found.deployment, found.pages.block_bytes - found.pool_bytes
    return (
        f"{deployment.model.id} leaves no room for K and V on {deployment.device.id} under {found.engine.id}: "
        f"{parts}; {units.binary_bytes(missing)} are missing. Use more GPUs (`tensor_parallel=`), smaller weights "
        f"(`weights=`) or {_REMEDY.get(found.engine.pool, _REMEDY['utilisation'])}"
    )


def _signed(size: float) -> str:
    return f"-{units.binary_bytes(-size)}" if size < 0 else units.binary_bytes(size)
