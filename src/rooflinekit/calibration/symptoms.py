"""Symptoms: what a run's records say of each phase, beside what the deployment is predicted to show."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from rooflinekit.calibration.compare import Unreadable, running_batch
from rooflinekit.errors import InvalidInputError, NotCalibratedError
from rooflinekit.measurements import Measurement
from rooflinekit.phases.deployment import Deployment
from rooflinekit.phases.estimate import Estimate

Values = NDArray[np.float64]
#: What repeated runs differ by, where nothing else does.
NOISE = 0.05
#: What a prediction without a measured spread is taken to be off by.
_UNKNOWN_SPREAD = 0.2
#: Of memory, where engines put weights and cache.
_POOL = 0.9
#: Tokens in a pass, where nobody says: what vLLM serves with below 70 GiB.
_BUDGET = 2048.0
#: Share of mixed steps from which the p99 of the gaps is one of them.
_TAIL = 0.01
_ORDER = ("median", "single", "mean")
#: Symptom -> what it is called, and the unit of its figures.
WORDS: Mapping[str, tuple[str, str]] = {
    "prefill_s": ("prefill", "s"), "ttft_s": ("time to first token", "s"), "step_s": ("decode step", "s"),
    "gap_p99_s": ("p99 gap between tokens", "s"), "request_s": ("whole request", "s"),
    "queue_s": ("wait before prefill", "s"), "tokens_per_s": ("output rate", "token/s"),
    "running": ("requests running", "1"), "waiting": ("requests waiting", "1"),
    "usage": ("KV cache in use", "fraction"),
    "hit_rate": ("prefix found in cache", "fraction"), "preemptions": ("preemptions", "1"),
    "kv_tokens": ("tokens in the KV cache", "token"), "concurrency": ("longest requests held", "request"),
    "kv_pool": ("KV cache of a GPU", "byte"),
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Case:
    """
    One run: its workload, what was seen, and what the deployment should show.

    ``observed`` holds of each symptom what the records say: ``prefill_s`` (the pass alone), ``ttft_s`` (as a client
    sees it), ``step_s``, ``gap_p99_s``, ``request_s`` (where nothing else was timed), ``tokens_per_s``, ``running``,
    ``queue_s``, ``waiting``, ``usage``, ``hit_rate``, ``preemptions``. ``served`` is a run in which requests come and
    go; ``cached_tokens`` of each prompt are known to lie in the cache, and ``pool_tokens`` is what its engine holds.
    """

    deployment: Deployment
    prompt_tokens: float
    output_tokens: float
    batch: float
    served: bool
    observed: Mapping[str, float]
    token_budget: float
    cached_tokens: float = 0.0
    pool_tokens: float | None = None

    # ---- passes, for any number of severities at once

    def prefill_s(self, cached_tokens: Values | float = 0.0) -> Values:
        """Seconds of the prompt's prefill; of all prompts of a fixed batch."""
        held = np.maximum(cached_tokens, self.cached_tokens)
        return np.asarray(self._roomy.prefill(self.prompt_tokens, cached_tokens=held, batch=self.prompts).time_s)

    def step_s(self, batch: Values | float) -> Values:
        """Seconds of a decode step in the middle of the answers."""
        return np.asarray(self._roomy.decode(self.context_tokens, batch=batch).time_s)

    def mixed(self, batch: Values | float) -> Estimate:
        """Step that carries a chunk of a prompt beside the other decoding sequences."""
        chunk = min(self.token_budget, self.prompt_tokens)
        others = np.maximum(np.asarray(batch) - 1.0, 1.0)
        return self._roomy.step((chunk, 0.0, 1.0), (1.0, self.context_tokens, others))

    @cached_property
    def longest_chunk(self) -> float:
        """How much longer a step is that carries a full budget of a longer prompt; 1 where prompts are of one length.

        The mean of equal lengths is a whole number.
        """
        if float(self.prompt_tokens).is_integer() or not self.served:
            return 1.0
        decoding = (1.0, self.context_tokens, max(self.batch - 1.0, 1.0))
        full = self._roomy.step((max(self.token_budget, self.prompt_tokens), 0.0, 1.0), decoding).time_s
        return max(float(full / self.mixed(self.batch).time_s), 1.0)

    def mixed_share(self, batch: Values | float) -> Values:
        """Share of steps that carry a chunk because the workload says so: prompts that come per output token."""
        chunks = np.ceil(self.prompt_tokens / self.token_budget) if self.served else 0.0
        return np.clip((np.asarray(batch) - 1.0) * chunks / self.output_tokens, 0.0, 1.0)

    @cached_property
    def prefill(self) -> Estimate:
        """The prompt's prefill."""
        return self._roomy.prefill(self.prompt_tokens, cached_tokens=self.cached_tokens, batch=self.prompts)

    @cached_property
    def step(self) -> Estimate:
        """The decode step at the batch."""
        return self._roomy.decode(self.context_tokens, batch=self.batch)

    @cached_property
    def _roomy(self) -> Deployment:
        return self.deployment.with_(memory_check=False)

    @property
    def prompts(self) -> float:
        """Prompts that a prefill reads: one where requests come and go, all of a fixed batch."""
        return 1.0 if self.served else self.batch

    @property
    def context_tokens(self) -> float:
        """Tokens in the cache in the middle of an answer."""
        return self.prompt_tokens + (self.output_tokens - 1.0) / 2.0

    @cached_property
    def pool_sequences(self) -> float:
        """Sequences whose caches fit: by the engine's own figure, else beside the weights; infinity where not known."""
        if self.pool_tokens is not None:
            return self.pool_tokens / self.context_tokens
        memory = self.deployment.device.memory_bytes
        if memory is None:
            return float("inf")
        room = _POOL * memory - self.deployment.weights_bytes
        return max(float(room / self.deployment.kv_cache_bytes(tokens=self.context_tokens)), 0.0)

    # ---- what a run shows

    def shown(
        self,
        batch: Values | float,
        *,
        alone_s: Values | float | None = None,
        mixed_s: Values | float | None = None,
        share: Values | float | None = None,
        prefill_s: Values | float | None = None,
        wait_s: Values | float = 0.0,
    ) -> dict[str, Values]:
        """Give what a run shows at a batch; what is left out is as predicted.

        The mean step is one alone, or now and then one that carries a chunk of another request's prompt.
        """
        alone = self.step_s(batch) if alone_s is None else np.asarray(alone_s)
        mixed = np.asarray(self.mixed(batch).time_s if mixed_s is None else mixed_s)
        carried = self.mixed_share(batch) if share is None else np.asarray(share)
        prefill = self.prefill_s() if prefill_s is None else np.asarray(prefill_s)
        step = alone + carried * np.maximum(mixed - alone, 0.0)
        first = prefill + (step / 2.0 if self.served and self.batch > 1.0 else 0.0)
        answer = first + (self.output_tokens - 1.0) * step
        return {
            "prefill_s": prefill,
            "ttft_s": np.asarray(first + wait_s),
            "step_s": step,
            "gap_p99_s": np.where(carried > _TAIL, np.maximum(mixed, step), step),
            "longest_gap_s": np.where(carried > _TAIL, np.maximum(mixed * self.longest_chunk, step), step),
            "other_gap_s": np.where((carried > _TAIL) ^ _uncertain(carried), np.maximum(mixed, step), step),
            "request_s": np.asarray(answer + wait_s),
            "tokens_per_s": np.asarray(batch * self.output_tokens / answer),
            "running": np.asarray(batch, dtype=np.float64),
            "usage": np.minimum(np.divide(batch, self.pool_sequences), 1.0),
        }

    @cached_property
    def clean(self) -> dict[str, Values]:
        """Give what a run without fault shows."""
        return self.shown(self.batch)

    # ---- how far a prediction may be off

    @cached_property
    def spread(self) -> dict[str, float]:
        """Standard deviation of the logarithm of each symptom over its prediction: the run's noise and the model's."""
        prefill, step = _spread(self.prefill), _spread(self.step)
        wide = 0.15 if self.served else 0.0  # a client's clock, arrivals within a step
        return {
            "prefill_s": np.hypot(NOISE, prefill), "ttft_s": np.hypot(np.hypot(NOISE, prefill), wide),
            "step_s": np.hypot(NOISE, step), "gap_p99_s": np.hypot(np.hypot(NOISE, step), wide),
            "request_s": np.hypot(NOISE, max(prefill, step)), "tokens_per_s": np.hypot(NOISE, step), "running": NOISE,
        }  # fmt: skip


def _uncertain(share: Values) -> NDArray[np.bool_]:
    """Tell where so few steps carry a chunk, yet not too few, that the p99 of the gaps may be one of either kind."""
    return np.asarray((share > _TAIL / 4.0) & (share < _TAIL * 4.0))


def _spread(estimate: Estimate) -> float:
    reach = NormalDist().inv_cdf(0.9)
    try:
        low, high = estimate.interval(0.8)
    except NotCalibratedError:
        return _UNKNOWN_SPREAD
    return float(np.log(high / low) / 2.0 / reach)


# ---- from records


def read_cases(
    records: Sequence[Measurement], deployment: Deployment, *, token_budget: float | None = None
) -> tuple[Case, ...]:
    """
    Read the symptoms of runs from their records: one case a workload.

    Parameters
    ----------
    records : sequence of Measurement
        Of one file, or of several about the same machine. What names no workload (a scrape) joins the first.
    deployment : Deployment
        What should have run.
    token_budget : float, optional
        Most tokens in a pass; 2,048 unless given. [token]

    Returns
    -------
    cases : tuple of Case
        None where no record holds a time or a state that a phase shows.

    Raises
    ------
    InvalidInputError
        There is one, and no record says how long a prompt was.
    """
    records = [one for one in records if one.quantity != "max_concurrency"]  # its length is the longest, no workload
    groups: dict[tuple[float | None, ...], list[Measurement]] = {}
    stateless = [one for one in records if _workload(one) == _NO_WORKLOAD]
    for one in records:
        if _workload(one) != _NO_WORKLOAD:
            groups.setdefault(_workload(one), []).append(one)
    first, *rest = groups.values() or ([],)
    runs = [[*first, *stateless], *rest]
    cases = [case for run in runs if (case := _case(run, deployment, token_budget or _BUDGET)) is not None]
    if not cases and any(True for run in runs for _ in _observed(run)):
        message = "no record says how long its prompt was: give prompt_tokens (--prompt)"
        raise InvalidInputError(message)
    return tuple(cases)


def _workload(one: Measurement) -> tuple[float | None, ...]:
    """Tell runs apart: by what is in flight, how fast it comes, and how long prompts are."""
    length = one.prompt_tokens if one.prompt_tokens is not None else one.context_tokens
    return one.concurrency or one.batch, one.request_rate, length


_NO_WORKLOAD = (None, None, None)


def _case(records: Sequence[Measurement], deployment: Deployment, token_budget: float) -> Case | None:
    prompt = _first(one.prompt_tokens for one in records) or _first(one.context_tokens for one in records)
    counted = (one.count + 1.0 for one in records if one.quantity == "decode_time_s" and one.count)
    output = _first(one.output_tokens for one in records) or _first(counted) or 2.0
    observed = dict(_observed(records))
    if prompt is None or not observed:
        return None
    return Case(
        deployment, prompt, output, _batch(records), any(map(_is_served, records)), observed, token_budget,
        cached_tokens=min(_first(one.cached_tokens for one in records) or 0.0, prompt - 1.0),
        pool_tokens=_first(one.value for one in records if one.quantity == "kv_cache_tokens"),
    )  # fmt: skip


def _is_served(one: Measurement) -> bool:
    """Tell whether requests come and go: totals of a run count requests that may all have started together."""
    counted = one.requests is not None and one.quantity not in _TOTALS
    return one.concurrency is not None or counted or one.quantity in _STATES


def _first(values: Iterable[float | None]) -> float | None:
    return next((value for value in values if value), None)


def _batch(records: Sequence[Measurement]) -> float:
    """Take the batch that the user thinks of: as set, all in flight, or rate x time per token."""
    said = _first(one.batch for one in records) or _first(one.concurrency for one in records)
    if said:
        return said
    for one in records:
        if one.quantity in ("time_per_output_token_s", "inter_token_latency_s"):
            try:
                return running_batch(one, records)[0]
            except Unreadable:
                continue
    return max((one.value for one in records if one.quantity == "requests_running"), default=0.0) or 1.0


def _observed(records: Sequence[Measurement]) -> Iterable[tuple[str, float]]:
    by_quantity: dict[str, list[Measurement]] = {}
    for one in records:
        by_quantity.setdefault(one.quantity, []).append(one)
    seen: set[str] = set()
    for name, (quantities, read) in _SYMPTOMS.items():
        found = [one for quantity in quantities for one in by_quantity.get(quantity, ())]
        least = 0.0 if name in _MAY_BE_NONE else _LEAST
        values = [value for one in _central(found) if (value := read(one)) is not None and value >= least]
        if values and not (name == "request_s" and seen):  # it holds what the others say, and more
            seen.add(name)
            yield name, max(values) if name in _MOST else values[0]
    gaps = by_quantity.get("inter_token_latency_s", ())
    tails = [one.value for one in gaps if one.statistic == "p99" and one.value >= _LEAST]
    if tails:
        yield "gap_p99_s", tails[0]


def _central(records: Sequence[Measurement]) -> list[Measurement]:
    """Keep the middle of each distribution, the median first: a mean holds the stragglers."""
    kept = [one for one in records if one.statistic in _ORDER]
    return sorted(kept, key=lambda one: _ORDER.index(one.statistic))


def _prefill_seconds(one: Measurement) -> float | None:
    if one.quantity == "prompt_tokens_per_s":
        known = one.phase == "prefill" and one.prompt_tokens
        return (one.prompt_tokens or 0.0) * (one.batch or 1.0) / one.value if known and one.value else None
    return one.value


def _step_seconds(one: Measurement) -> float | None:
    if one.quantity == "decode_time_s":
        return one.value / one.count if one.count else None
    if one.quantity == "output_tokens_per_s":
        return one.batch / one.value if one.phase == "decode" and one.batch and one.value else None
    return one.value


def _request_seconds(one: Measurement) -> float | None:
    """Read a fixed batch, a client's request, or a run of so many batches; loading a model is none of a phase."""
    if one.quantity == "run_time_s":
        fixed = one.batch and one.requests and one.request_rate is None
        return one.value * (one.batch or 0.0) / (one.requests or 1.0) if fixed else None
    return None if "loading" in one.includes else one.value


def _served_rate(one: Measurement) -> float | None:
    """Keep the output rate of a closed run: an open one's is the rate at which requests were sent."""
    return one.value if one.phase != "decode" and one.concurrency and one.request_rate is None else None


#: States of a server.
_STATES = frozenset({"requests_running", "requests_waiting", "kv_cache_usage"})
#: Totals of a run.
_TOTALS = frozenset(
    {
        "run_time_s",
        "requests_per_s",
        "total_tokens_per_s",
        "output_tokens_per_s",
        "requests_completed",
        "requests_failed",
    }
)
#: What may be 0; a time or a rate may not, and nothing is done in less than this.
_MAY_BE_NONE, _LEAST = ("queue_s", "waiting", "usage", "hit_rate", "preemptions"), 1e-9
#: States of which the most in any window of a log counts: others are idle, or ramp up.
_MOST = ("running", "waiting", "usage")
#: Symptom -> the quantities that tell it, the cleanest first, and how each is read.
_SYMPTOMS = {
    "prefill_s": (("prefill_time_s", "prompt_tokens_per_s"), _prefill_seconds),
    "ttft_s": (("time_to_first_token_s",), lambda one: one.value),
    "step_s": (
        ("decode_step_s", "decode_time_s", "time_per_output_token_s", "inter_token_latency_s", "output_tokens_per_s"),
        _step_seconds,
    ),
    "request_s": (("batch_latency_s", "end_to_end_s", "run_time_s"), _request_seconds),
    "tokens_per_s": (("output_tokens_per_s",), _served_rate),
    "queue_s": (("queue_time_s",), lambda one: one.value),
    "running": (("requests_running",), lambda one: one.value),
    "waiting": (("requests_waiting",), lambda one: one.value),
    "usage": (("kv_cache_usage",), lambda one: one.value),
    "hit_rate": (("prefix_cache_hit_rate",), lambda one: one.value),
    "preemptions": (("preemptions",), lambda one: one.value),
}
