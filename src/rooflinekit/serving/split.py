"""A split server and the same GPUs together, at any rate and over any link, and from which values the split pays."""

from collections.abc import Callable
from math import inf, isfinite, isinf
from typing import NamedTuple

from rooflinekit import units
from rooflinekit.errors import InvalidInputError
from rooflinekit.phases.deployment import Deployment
from rooflinekit.serving.capacity import refuse_longer
from rooflinekit.serving.dial import gaps
from rooflinekit.serving.engine import EngineProfile
from rooflinekit.serving.kv_link import Link
from rooflinekit.serving.pools import DecodeWorker, PrefillWorker
from rooflinekit.serving.serve import MOST_UTILISATION, serve
from rooflinekit.specs.step import checked

#: What the two are compared by: argument -> field of :class:`Delivered`.
COMPARED = {"end_to_end": "end_to_end_s", "ttft": "time_to_first_token_s", "tpot": "time_per_output_token_s"}
#: Link speeds that are searched, and how finely loads are looked through for a first crossing.
_SLOWEST, _FASTEST = 1e6, 1e15
_LOADS, _NARROW = 16, 1.0001
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
    """From which value on the split is no slower, and up to which; a value of infinity, "never", has its reason."""

    value: float
    reason: str = ""
    until: float = inf


class Work(NamedTuple):
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
    ) -> "Work":
        """Check the lengths, and make the two workers."""
        prompt, output, cached = lengths
        checked("prompt_tokens", prompt, minimum=1.0)
        checked("output_tokens", output, minimum=1.0)
        checked("cached_tokens", cached)
        if cached >= prompt:
            message = f"cached_tokens={cached!r}: expected fewer than prompt_tokens={prompt!r}"
            raise InvalidInputError(message)
        reads, writes = (one.with_(memory_check=False) for one in (deployment, decode or deployment))
        for one in (reads, writes):
            refuse_longer(one, engine, prompt + output)
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


class Question:
    """Both arrangements of so many replicas at any rate and link."""

    def __init__(self, work: Work, replicas: int, link: Link) -> None:
        self.work, self.replicas, self.link = work, replicas, link

    def lanes(self, readers: int) -> int:
        """Count the links that prompts share: those of the side that has fewer workers."""
        return min(readers, self.replicas - readers)

    def carries(self, readers: int, link: Link) -> float:
        """Give the requests per second that the split takes: its prefill, its decode or its links."""
        work, wire = self.work, self.work.kv_bytes / link.bytes_per_s
        return min(
            readers * work.prefill.most_requests_per_s,
            (self.replicas - readers) * work.decode.most_requests_per_s,
            self.lanes(readers) / wire if wire else inf,
        )

    @property
    def best(self) -> int:
        """Prefill workers of the split that carries most."""
        return max(range(1, self.replicas), key=lambda readers: self.carries(readers, self.link))

    def split(self, rate_per_s: float, readers: int, link: Link) -> Delivered:
        """Give what a split delivers."""
        work, writers = self.work, self.replicas - readers
        sent_s = link.transfer_s(work.kv_bytes, rate_per_s / self.lanes(readers))
        first = work.prefill.first_token_s(rate_per_s / readers) + sent_s
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
        longest = gaps(
            work.prefill.deployment, work.prefill.engine, work.prefill.prompt_tokens, work.decode.output_tokens,
            batch=found.running, held=work.cached_tokens,
        )  # fmt: skip
        worst = inf if found.overloaded else max(longest.chunked_s, found.worst_gap_s)
        return Delivered("together", *means, worst, self.replicas * found.most_requests_per_s)

    # ---- break-evens

    def link_break_even(self, rate_per_s: float, readers: int, compared_by: str) -> BreakEven:
        """Bisect the logarithm of the link speed."""
        together, field = self.together(rate_per_s), COMPARED[compared_by]
        limit = getattr(together, field)

        def gain(speed: float) -> float:
            return _gain(limit, getattr(self.split(rate_per_s, readers, self._with(speed)), field))

        if gain(_FASTEST) < 0.0:
            best = self.split(rate_per_s, readers, self._with(_FASTEST))
            return BreakEven(inf, _why_never(best, limit, field, rate_per_s))
        if gain(_SLOWEST) >= 0.0:
            return BreakEven(0.0)
        return BreakEven(_bisect(gain, _SLOWEST, _FASTEST))

    def _with(self, bytes_per_s: float) -> Link:
        return self.link._replace(bytes_per_s=bytes_per_s)

    def load_break_even(self, readers: int, compared_by: str) -> BreakEven:
        """Look through the loads for those at which the split is no slower, and bisect at their ends."""
        field, carried = COMPARED[compared_by], self.together(_LEAST_LOAD).most_requests_per_s
        own = self.carries(readers, self.link)
        most = _MOST_LOAD * min(own, carried)

        def gain(rate: float) -> float:
            return _gain(getattr(self.together(rate), field), getattr(self.split(rate, readers, self.link), field))

        loads = [_LEAST_LOAD * most, *(most * (index + 1) / _LOADS for index in range(_LOADS))]
        pays = [gain(rate) >= 0.0 for rate in loads]
        if not any(pays):
            what = f"slower at every load up to {most:.3g} requests/s"
            return BreakEven(inf, f"{what}; the split carries {own:.3g} at most")
        first = pays.index(True)
        rate = _bisect(gain, loads[first - 1], loads[first]) if first else 0.0
        if all(pays[first:]):
            if own < carried:  # up to what it carries, while the GPUs together would take more
                return BreakEven(rate, _how_sure(own / carried), own)
            return BreakEven(rate, _how_sure(rate / carried))
        last = pays.index(False, first)
        until = _bisect(lambda load: -gain(load), loads[last - 1], loads[last])
        return BreakEven(rate, _how_sure(until / carried), until)


def _gain(together: float, split: float) -> float:
    """Give by how much the split is quicker; one that cannot carry the load is not, whatever the other does."""
    return together - split if isfinite(split) else -inf


def _why_never(best: Delivered, limit: float, field: str, rate_per_s: float) -> str:
    if isinf(best.end_to_end_s):
        return f"the split carries {best.most_requests_per_s:.3g} requests/s over any link, {rate_per_s:.3g} come"
    ours = units.duration(getattr(best, field))
    return f"without any transfer the split takes {ours}, the GPUs together {units.duration(limit)}"


def _how_sure(utilisation: float) -> str:
    """Say where the GPUs together are beyond what their closed form is valid for."""
    if utilisation <= MOST_UTILISATION:
        return ""
    return f"the GPUs together are at {utilisation:.0%} of what they carry there, where their closed form extrapolates"


def _bisect(gain: Callable[[float], float], low: float, high: float) -> float:
    """Find where a gain turns positive, in the logarithm: negative at the low end, positive at the high one."""
    while high / low > _NARROW:
        middle = (low * high) ** 0.5
        low, high = (low, middle) if gain(middle) >= 0.0 else (middle, high)
    return high
