"""Disaggregation: prefill and decode on GPUs of their own, K and V sent between, against the same GPUs together."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from math import inf, isfinite, isinf
from typing import TYPE_CHECKING, NamedTuple

from rooflinekit import units
from rooflinekit.errors import InvalidInputError
from rooflinekit.phases.deployment import Deployment
from rooflinekit.serving.engine import EngineProfile, load_engine
from rooflinekit.serving.kv_link import Link, link_between
from rooflinekit.serving.pools import DecodeWorker, PrefillWorker
from rooflinekit.serving.serve import serve
from rooflinekit.specs.precision import one_of
from rooflinekit.specs.step import checked

if TYPE_CHECKING:
    import pandas as pd

#: What the two are compared by: argument -> field of :class:`Delivered`.
COMPARED = {"end_to_end": "end_to_end_s", "ttft": "time_to_first_token_s", "tpot": "time_per_output_token_s"}
#: Link speeds that are searched, and how finely loads are looked through for a first crossing.
_SLOWEST, _FASTEST = 1e6, 1e15
_LOADS, _NARROW = 24, 1.0001
_LEAST_LOAD, _MOST_LOAD = 1e-3, 0.98


class Delivered(NamedTuple):
    """Mean latencies of one arrangement, its longest regular gap, and the rate that it carries; infinite if it is over.

    Times to the first token of a split include the transfer: engines let the decode side answer the client.
    """

    arrangement: str
    time_to_first_token_s: float
    time_per_output_token_s: float
    end_to_end_s: float
    worst_gap_s: float
    most_requests_per_s: float


class BreakEven(NamedTuple):
    """From which value on the split is no worse; infinity, "never", comes with the reason, and so does 0, "always"."""

    value: float
    reason: str


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
        return _Question.of(self).link_break_even(self)

    @cached_property
    def load_break_even(self) -> BreakEven:
        """Rate from which the split is no slower than the GPUs together, over this link. [request/s]"""
        return _Question.of(self).load_break_even(self)

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
    engine: str | EngineProfile = "vllm",
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
    20% where prompts are short). Decode steps carry no prompts: their batch is what came while an answer ran. A link is
    shared by the prompts of its prefill worker, which queue for it. The GPUs together are :func:`~rooflinekit.serve`.

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
    work = _Work.of(deployment, decode, load_engine(engine), (prompt_tokens, output_tokens, cached_tokens))
    link = link_between(deployment, gpus, bytes_per_s=link_bytes_per_s, latency_s=link_latency_s, overlap=overlap)
    question = _Question(work, _replicas(deployment, decode, gpus), link)
    each = deployment.layout.devices
    readers = question.best if prefill_gpus is None else _readers(prefill_gpus, each, question.replicas)
    return Disaggregation(
        prefill=work.prefill, decode=work.decode, rate_per_s=rate_per_s, gpus=gpus, prefill_gpus=readers * each,
        decode_gpus=(question.replicas - readers) * each, balance=work.balance, kv_bytes=work.kv_bytes,
        transfer_s=link.transfer_s(work.kv_bytes, rate_per_s / readers), link=link,
        split=question.split(rate_per_s, readers, link), together=question.together(rate_per_s),
        compared_by=compared_by,
    )  # fmt: skip


# ---- one question


class _Work(NamedTuple):
    """A prefill worker, a decode worker, and what goes between them."""

    prefill: PrefillWorker
    decode: DecodeWorker
    cached_tokens: float

    @classmethod
    def of(
        cls,
        deployment: Deployment,
        decode: Deployment | None,
        engine: EngineProfile,
        lengths: tuple[float, float, float],
    ) -> "_Work":
        """Check the lengths, and make the two workers."""
        prompt, output, cached = lengths
        checked("prompt_tokens", prompt, minimum=1.0)
        checked("output_tokens", output, minimum=1.0)
        checked("cached_tokens", cached)
        if cached >= prompt:
            message = f"cached_tokens={cached!r}: expected fewer than prompt_tokens={prompt!r}"
            raise InvalidInputError(message)
        reads, writes = (one.with_(memory_check=False) for one in (deployment, decode or deployment))
        return cls(PrefillWorker(reads, engine, prompt, cached), DecodeWorker(writes, engine, prompt, output), cached)

    @property
    def balance(self) -> float:
        """Prefill workers to one decode worker at which both are full."""
        return self.decode.most_requests_per_s / self.prefill.most_requests_per_s

    @property
    def kv_bytes(self) -> float:
        """Give what one GPU sends of a prompt: all that its cache holds, less a prefix that is there already."""
        cache = self.prefill.deployment
        return float(cache.kv_cache_bytes(self.prefill.prompt_tokens)) - (
            float(cache.kv_cache_bytes(self.cached_tokens)) if self.cached_tokens else 0.0
        )


class _Question:
    """Both arrangements of so many replicas at any rate and link."""

    def __init__(self, work: _Work, replicas: int, link: Link) -> None:
        self.work, self.replicas, self.link = work, replicas, link

    @classmethod
    def of(cls, found: Disaggregation) -> "_Question":
        """Take a question up again."""
        work = _Work(found.prefill, found.decode, found.prefill.cached_tokens)
        return cls(work, found.gpus // found.prefill.deployment.layout.devices, found.link)

    def carries(self, readers: int, link: Link) -> float:
        """Give the requests per second that the split takes: its prefill, its decode or its links."""
        work, writers = self.work, self.replicas - readers
        wire = work.kv_bytes / link.bytes_per_s
        most = work.prefill.most_requests_per_s, 1.0 / wire if wire else inf
        return min(readers * min(most), writers * work.decode.most_requests_per_s)

    @property
    def best(self) -> int:
        """Prefill workers of the split that carries most."""
        return max(range(1, self.replicas), key=lambda readers: self.carries(readers, self.link))

    def split(self, rate_per_s: float, readers: int, link: Link) -> Delivered:
        """Give what a split delivers."""
        work, writers = self.work, self.replicas - readers
        each = rate_per_s / readers
        first = work.prefill.first_token_s(each) + link.transfer_s(work.kv_bytes, each)
        batch = work.decode.batch(rate_per_s / writers)
        most = self.carries(readers, link)
        if not isfinite(first) or not isfinite(batch):
            return Delivered("split", inf, inf, inf, inf, most)
        step = work.decode.step_s(batch)
        steps = max(work.decode.output_tokens - 1.0, 0.0)
        return Delivered("split", first, step, first + steps * step, step, most)

    def together(self, rate_per_s: float) -> Delivered:
        """Give what the replicas deliver that do both, each with its share of the requests."""
        work = self.work
        found = serve(
            work.prefill.deployment, prompt_tokens=work.prefill.prompt_tokens, output_tokens=work.decode.output_tokens,
            rate_per_s=rate_per_s / self.replicas, engine=work.prefill.engine, cached_tokens=work.cached_tokens,
            method="closed form",
        )  # fmt: skip
        means = (found.time_to_first_token_s.mean, found.time_per_output_token_s.mean, found.end_to_end_s.mean)
        most = self.replicas * found.most_requests_per_s
        return Delivered("together", *means, found.worst_gap_s, most)

    # ---- break-evens

    def link_break_even(self, found: Disaggregation) -> BreakEven:
        """Bisect the logarithm of the link speed."""
        readers, field = found.prefill_gpus // found.prefill.deployment.layout.devices, COMPARED[found.compared_by]
        limit = getattr(found.together, field)

        def gain(speed: float) -> float:
            return float(limit - getattr(self.split(found.rate_per_s, readers, self._with(speed)), field))

        if isinf(limit):
            return BreakEven(inf, f"the GPUs together carry {found.together.most_requests_per_s:.3g} requests/s")
        best = self.split(found.rate_per_s, readers, self._with(_FASTEST))
        if gain(_FASTEST) < 0.0:
            return BreakEven(inf, _why_never(best, limit, field, found.rate_per_s))
        slow = gain(_SLOWEST) >= 0.0
        return BreakEven(0.0, "over any link") if slow else BreakEven(_bisect(gain, _SLOWEST, _FASTEST), "")

    def _with(self, bytes_per_s: float) -> Link:
        return self.link._replace(bytes_per_s=bytes_per_s)

    def load_break_even(self, found: Disaggregation) -> BreakEven:
        """Look through the loads for the first at which the split is no slower, and bisect before it."""
        readers, field = found.prefill_gpus // found.prefill.deployment.layout.devices, COMPARED[found.compared_by]
        most = _MOST_LOAD * min(self.carries(readers, self.link), found.together.most_requests_per_s)

        def gain(rate: float) -> float:
            sides = self.split(rate, readers, self.link), self.together(rate)
            return float(getattr(sides[1], field) - getattr(sides[0], field))

        loads = [most * (index + 1) / _LOADS for index in range(_LOADS)]
        at = next((index for index, rate in enumerate(loads) if gain(rate) >= 0.0), None)
        if at is None:
            over = self.carries(readers, self.link)
            what = f"slower at every load up to {most:.3g} requests/s; the split carries {over:.3g} at most"
            return BreakEven(inf, what)
        low = loads[at - 1] if at else _LEAST_LOAD * most
        return BreakEven(0.0, "at every load") if gain(low) >= 0.0 else BreakEven(_bisect(gain, low, loads[at]), "")


def _why_never(best: Delivered, limit: float, field: str, rate_per_s: float) -> str:
    if isinf(best.end_to_end_s):
        return f"the split carries {best.most_requests_per_s:.3g} requests/s over any link, {rate_per_s:.3g} come"
    ours = units.duration(getattr(best, field))
    return f"without any transfer the split takes {ours}, the GPUs together {units.duration(limit)}"


def _bisect(gain: Callable[[float], float], low: float, high: float) -> float:
    """Find where a gain turns positive, in the logarithm: negative at the low end, positive at the high one."""
    while high / low > _NARROW:
        middle = (low * high) ** 0.5
        low, high = (low, middle) if gain(middle) >= 0.0 else (middle, high)
    return high


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
