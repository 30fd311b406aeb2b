"""Deviations: how far each figure of a run is off what a run without fault shows, and what that is made of."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from rooflinekit import units
from rooflinekit.calibration.case import Case, Values
from rooflinekit.calibration.symptoms import WORDS
from rooflinekit.phases.estimate import Estimate

Shown = Mapping[str, Values]
#: Counts above this are shown to the last token, and none is so large.
_WHOLE, _ABSURD = 10_000, 1e15
#: What is or is not, and has no size.
STATES = ("waiting", "preemptions")


class Symptom(NamedTuple):
    """
    One thing seen, beside what a run without fault shows and the least that is possible.

    ``basis`` says what the expectation is made of; ``floor`` is 0 where nothing bounds it.
    """

    name: str
    observed: float
    expected: float
    floor: float
    deviations: float
    basis: str


def deviations(case: Case, name: str, observed: float, shown: Shown) -> Values:
    """Give how many standard deviations lie between what was seen and what is shown."""
    if name in ("usage", "hit_rate"):
        return np.asarray((observed - shown.get(name, 0.0)) / 0.08)
    if name == "queue_s":
        waits = np.asarray(shown.get(name, 0.0))
        return np.asarray((observed - waits) / (0.15 * waits + 0.1 * case.clean["ttft_s"] + 0.002))
    expected = shown[name]
    if name == "gap_p99_s":  # where prompts differ in length, any of them may be in that step
        expected = np.clip(observed, shown["shortest_gap_s"], np.maximum(shown["longest_gap_s"], expected))
    off = np.asarray(np.log(observed / expected) / case.spread[name])
    if name == "gap_p99_s":  # at the edge it is a step of either kind
        other = np.asarray(np.log(observed / shown["other_gap_s"]) / case.spread[name])
        return np.where(np.abs(other) < np.abs(off), other, off)
    return off


def symptoms_of(case: Case) -> list[Symptom]:
    """Lay out what was seen of a run, beside what it shows without fault and what that is made of."""
    found = []
    for name, observed in case.observed.items():
        expected = _expected(case, name, observed)
        off = 0.0 if name in STATES else float(deviations(case, name, observed, case.clean))
        found.append(Symptom(name, observed, expected, case.floors_s.get(name, 0.0), off, _basis(case, name)))
    return found


def _expected(case: Case, name: str, observed: float) -> float:
    """Give what a run without fault shows; of a p99 at the edge between two kinds of steps, the kind that is nearer."""
    if name != "gap_p99_s":
        return float(case.clean.get(name, np.zeros(())))
    kinds = (float(case.clean[one]) for one in ("gap_p99_s", "other_gap_s"))
    return min(kinds, key=lambda one: abs(np.log(observed / one)))


def _basis(case: Case, name: str) -> str:
    """Say what an expectation is made of."""
    share = float(case.mixed_share(case.batch))
    chunk = f"; {share:.0%} of them with a prompt's chunk, {units.duration(float(case.mixed_s(case.batch)))} each"
    held = f" after {case.cached_tokens:,.0f} cached" if case.cached_tokens else ""
    prompts = f" x {case.prompts:g}" if case.prompts > 1.0 else ""
    prefill = f"prefill of {case.prompt_tokens:,.0f} token{'s' * (case.prompt_tokens > 1)}{held}{prompts}"
    prefill = f"{prefill}: {_work(case.prefill)}"
    step = f"{case.batch:.3g} sequence{'s' * (case.batch > 1)} at {case.context_tokens:,.0f} tokens: {_work(case.step)}"
    mixed = f"{step}{chunk}" if share else step
    longest = f", more for a longer prompt (x {case.longest_chunk:.2g})" if case.longest_chunk > 1.0 else ""
    return {
        "prefill_s": prefill,
        "ttft_s": f"{prefill}; {_before_it(case)}" if case.served and case.batch > 1.0 else prefill,
        "step_s": f"step of {mixed}",
        "gap_p99_s": f"step of {mixed}{longest}",
        "request_s": f"{prefill}; then {case.output_tokens - 1.0:,.0f} steps of {mixed}",
        "tokens_per_s": f"{case.batch:.3g} x {case.output_tokens:,.0f} tokens over a request's time",
        "running": "as set, all in flight, or rate x time per token",
        "usage": f"{case.batch:.3g} of {case.pool_sequences:,.0f} sequences that fit",
        "requests_per_s": _sending(case),
        "queue_s": "other prompts of this run" if case.run else "none without a fault",
    }.get(name, "none without a fault")


def _before_it(case: Case) -> str:
    """Say what a first token waits for besides its own prefill."""
    if case.run is None:
        return "and half a step"
    run = case.run
    host = "a host that takes no time" if run.host_free else f"host ({units.duration(run.profile.request_host_s)})"
    return f"{host} and waits, as {run.profile.id} serves {run.arrivals.told}"


def _sending(case: Case) -> str:
    """Say how long a client sends, and what its last request takes."""
    requests, rate = case.requests or 0.0, case.request_rate or np.inf
    last = units.duration(case.last_request_s)
    return f"{requests:,.0f} requests sent at {rate:.3g}/s, and {last} for the last answer"


def _work(estimate: Estimate) -> str:
    """Give the work that bounds a pass: its arithmetic or its bytes."""
    if estimate.bound == "compute":
        return f"{units.si(float(estimate.flops), 'FLOP')}, compute-bound"
    return f"{units.si(float(estimate.bytes), 'B')}, {estimate.bound}-bound"


def tell(symptom: Symptom) -> str:
    """Say a symptom in words, with its arithmetic."""
    name, unit = WORDS.get(symptom.name, (symptom.name, ""))
    if unit == "s":
        return f"{name} {units.duration(symptom.observed)} where {units.duration(symptom.expected)} is expected"
    if unit == "byte":
        seen, expected = units.binary_bytes(symptom.observed), units.binary_bytes(symptom.expected)
        return f"{name} {seen} where {expected} are expected"
    seen, expected = (_counted(one) for one in (symptom.observed, symptom.expected))
    return f"{name} {seen} where {expected} is expected"


def _counted(value: float) -> str:
    return f"{value:,.0f}" if _WHOLE < value < _ABSURD else f"{value:.3g}"
