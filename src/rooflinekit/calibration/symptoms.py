"""Symptoms: what a run's records say of each phase, beside what the deployment is predicted to show."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from rooflinekit.calibration.case import Case
from rooflinekit.calibration.compare import Unreadable, running_batch
from rooflinekit.calibration.served_run import Arrivals, arrivals_of, engine_of, hostless, is_named, served_run
from rooflinekit.errors import InvalidInputError
from rooflinekit.measurements import Measurement
from rooflinekit.phases.deployment import Deployment

#: Tokens in a pass, where nobody says: what vLLM serves with below 70 GiB.
_BUDGET = 2048.0
_ORDER = ("median", "single", "mean")
#: Symptom -> what it is called, and the unit of its figures.
WORDS: Mapping[str, tuple[str, str]] = {
    "prefill_s": ("prefill", "s"), "ttft_s": ("time to first token", "s"), "step_s": ("decode step", "s"),
    "gap_p99_s": ("p99 gap between tokens", "s"), "request_s": ("whole request", "s"),
    "queue_s": ("wait before prefill", "s"), "tokens_per_s": ("output rate", "token/s"),
    "requests_per_s": ("completed requests", "request/s"),
    "running": ("requests running", "1"), "waiting": ("requests waiting", "1"),
    "usage": ("KV cache in use", "fraction"),
    "hit_rate": ("prefix found in cache", "fraction"), "preemptions": ("preemptions", "1"),
    "kv_tokens": ("tokens in the KV cache", "token"), "concurrency": ("longest requests held", "request"),
    "kv_pool": ("KV cache of a GPU", "byte"),
}  # fmt: skip


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
    return next(readings(records, deployment, token_budget=token_budget))


def readings(
    records: Sequence[Measurement], deployment: Deployment, *, token_budget: float | None = None
) -> Iterator[tuple[Case, ...]]:
    """
    Read the symptoms of runs, in each way that their records leave open.

    Yields
    ------
    cases : tuple of Case
        As the engine that answered serves such requests, with the host times of its profile and then with none: they
        are those of other machines. Where nobody names an engine, or how requests came, by passes alone first.
    """
    runs = _runs(records)
    bare = [(run, case) for run in runs if (case := _case(run, deployment, token_budget)) is not None]
    if not bare and any(True for run in runs for _ in _observed(run)):
        message = "no record says how long its prompt was: give prompt_tokens (--prompt)"
        raise InvalidInputError(message)
    told: list[tuple[Case, ...]] = []
    for host in _hosts(records, deployment):
        cases = tuple(case if host is None else _as_served(case, run, token_budget, host=host) for run, case in bare)
        if cases not in told:
            told.append(cases)
            yield cases


def _hosts(records: Sequence[Measurement], deployment: Deployment) -> tuple[bool | None, ...]:
    """Say in which order a run is read: by passes alone (None), with the host times of its engine, without them."""
    known = is_named(records, deployment) and arrivals_of(records) is not None
    return (True, False) if known else (None, True, False)


def _runs(records: Sequence[Measurement]) -> list[list[Measurement]]:
    """Tell runs apart; what names no workload joins the first."""
    records = [one for one in records if one.quantity != "max_concurrency"]  # its length is the longest, no workload
    groups: dict[tuple[float | None, ...], list[Measurement]] = {}
    stateless = [one for one in records if _workload(one) == _NO_WORKLOAD]
    for one in records:
        if _workload(one) != _NO_WORKLOAD:
            groups.setdefault(_workload(one), []).append(one)
    first, *rest = groups.values() or ([],)
    return [[*first, *stateless], *rest]


def _workload(one: Measurement) -> tuple[float | None, ...]:
    """Tell runs apart: by what is in flight, how fast it comes, and how long prompts are."""
    length = one.prompt_tokens if one.prompt_tokens is not None else one.context_tokens
    return one.concurrency or one.batch, one.request_rate, length


_NO_WORKLOAD = (None, None, None)


#: What is of a prompt: tokens in the cache beside these lie before it.
_OF_PROMPTS = ("prefill_time_s", "prompt_tokens_per_s", "time_to_first_token_s")


def _case(records: Sequence[Measurement], deployment: Deployment, token_budget: float | None) -> Case | None:
    before = _first(one.context_tokens for one in records if one.prompt_tokens and one.quantity in _OF_PROMPTS) or 0.0
    new = _first(one.prompt_tokens for one in records)
    prompt = _first(one.context_tokens for one in records) if new is None else before + new
    counted = (one.count + 1.0 for one in records if one.quantity == "decode_time_s" and one.count)
    output = _first(one.output_tokens for one in records) or _first(counted) or 2.0
    seen = dict(_observed(records))
    if prompt is None or not seen:
        return None
    return Case(
        deployment, prompt, output, _batch(records), any(map(_is_served, records)),
        {name: value for name, (value, _) in seen.items()}, token_budget or _BUDGET,
        cached_tokens=min(before + (_first(one.cached_tokens for one in records) or 0.0), prompt - 1.0),
        pool_tokens=_first(one.value for one in records if one.quantity == "kv_cache_tokens"),
        told_by={name: (one.quantity, one.statistic) for name, (_, one) in seen.items()},
        request_rate=_first(one.request_rate for one in records), requests=_first(one.requests for one in records),
    )  # fmt: skip


def _as_served(case: Case, records: Sequence[Measurement], token_budget: float | None, *, host: bool) -> Case:
    """Read a run as its engine serves it; the same case where nobody says what came, or the server cannot carry it."""
    arrivals = arrivals_of(records)
    if arrivals is None and is_named(records, case.deployment) and not any(one.request_rate for one in records):
        arrivals = Arrivals(None, max(round(case.batch), 1), None)  # a window of a server at work
    profile = engine_of(records, case.deployment)
    if not case.served or arrivals is None or profile is None:
        return case
    profile = profile.with_(max_num_batched_tokens=None if token_budget is None else max(round(token_budget), 1))
    lengths = case.prompt_tokens, case.output_tokens
    run = served_run(case.deployment, profile if host else hostless(profile), arrivals, lengths, case.cached_tokens)
    if run is None:
        return case
    return replace(case, deployment=run.deployment, batch=run.in_flight, token_budget=run.token_budget, run=run)


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


def _observed(records: Sequence[Measurement]) -> Iterable[tuple[str, tuple[float, Measurement]]]:
    by_quantity: dict[str, list[Measurement]] = {}
    for one in records:
        by_quantity.setdefault(one.quantity, []).append(one)
    seen: set[str] = set()
    for name, (quantities, read) in _SYMPTOMS.items():
        found = [one for quantity in quantities for one in by_quantity.get(quantity, ())]
        least = 0.0 if name in _MAY_BE_NONE else _LEAST
        told = [(value, one) for one in _central(found) if (value := read(one)) is not None and value >= least]
        if told and not (name == "request_s" and seen):  # it holds what the others say, and more
            seen.add(name)
            yield name, max(told, key=lambda pair: pair[0]) if name in _MOST else told[0]
    gaps = by_quantity.get("inter_token_latency_s", ())
    tails = [(one.value, one) for one in gaps if one.statistic == "p99" and one.value >= _LEAST]
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


def _completed_rate(one: Measurement) -> float | None:
    """Read the rate of a client that sends at one, over its whole run."""
    if not one.requests or not one.request_rate or one.concurrency or not np.isfinite(one.request_rate):
        return None
    return one.value if one.quantity == "requests_per_s" else one.requests / one.value


def unmeasured(records: Iterable[Measurement]) -> dict[str, int]:
    """
    Count the times and rates that measured nothing: noughts.

    Examples
    --------
    >>> seen = [("decode_step_s", 0.0), ("decode_step_s", 0.0), ("decode_step_s", 0.02), ("requests_waiting", 0.0)]
    >>> unmeasured([Measurement(quantity=name, value=value) for name, value in seen])
    {'decode_step_s': 2}
    """
    may_be_none = {quantity for name in _MAY_BE_NONE for quantity in _SYMPTOMS[name][0]}
    told = {quantity for quantities, _ in _SYMPTOMS.values() for quantity in quantities} - may_be_none
    kept = (one for one in records if one.statistic in (*_ORDER, "p99") and one.quantity in told)
    return dict(Counter(one.quantity for one in kept if one.value < _LEAST))


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
    "requests_per_s": (("requests_per_s", "run_time_s"), _completed_rate),
}
