"""Diagnosis: causes ranked by how well each explains a run's symptoms, the evidence, one change, one measurement."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from rooflinekit import units
from rooflinekit.calibration.case import Case, Values
from rooflinekit.calibration.causes import ABOVE, CAUSES, FOLLOWING, Cause, is_full
from rooflinekit.calibration.deviations import STATES, Shown, Symptom, deviations, symptoms_of, tell
from rooflinekit.calibration.symptoms import readings, unmeasured
from rooflinekit.errors import InvalidInputError
from rooflinekit.measurements import Measurement
from rooflinekit.phases.deployment import Deployment
from rooflinekit.specs.step import checked

#: Log-odds that a cause must gain over "no fault" before it is named, and over the next cause to stand alone.
NAMED, ALONE = 4.0, 1.5
#: Severities looked at between two of a cause's own.
_FINER = 33
#: Price of each free figure of a cause.
_PRICE = 1.0
#: Deviations up to which a misfit grows as a square, then as a logarithm: of two faults neither hides the other.
_MOST = 5.0
#: Log-odds of a state that a cause does not lead one to expect: requests waiting, preemptions.
_UNEXPECTED = 3.0
#: Standard deviations from which a symptom without a cause is worth a word.
_ODD = 3.0
#: Part of a floor below which no noise leads.
_BELOW = 0.95
#: Part of the misfit from which one cause is taken for the whole of it.
_MOSTLY = 0.75
#: A factor from which a figure is not called usual, though the model's own spread allows it.
_FAR = 1.5
#: What is to be changed and measured where nothing is off.
NOTHING = "none needed"


@dataclass(frozen=True)
class Finding:
    """One cause with its most likely severity; ``explains`` is the part of the misfit that it takes away."""

    cause: str
    severity: tuple[float, ...]
    told: str
    explains: float
    log_odds: float
    change: str
    measurement: str


@dataclass(frozen=True)
class Diagnosis:
    """
    What a run's numbers say.

    ``verdict`` is one sentence; ``findings`` ranks the causes, the likeliest first; ``symptoms`` is the arithmetic
    behind them. ``cause`` is None for a healthy run and where the numbers cannot tell.
    """

    verdict: str
    cause: str | None
    findings: tuple[Finding, ...]
    symptoms: tuple[Symptom, ...]
    change: str
    measurement: str

    @property
    def healthy(self) -> bool:
        """Whether nothing is off."""
        return self.change == NOTHING


def diagnose(records: Sequence[Measurement], deployment: Deployment, *, token_budget: float | None = None) -> Diagnosis:
    """
    Find what makes a run slower (or faster) than it should be.

    Parameters
    ----------
    records : sequence of Measurement
        Of one run, from as little as Ollama's four counters to a full scrape.
    deployment : Deployment
        What should have run.
    token_budget : float, optional
        Most tokens in a pass (vLLM: ``max_num_batched_tokens``). [token]

    Returns
    -------
    diagnosis : Diagnosis

    Raises
    ------
    InvalidInputError
        There is no record, none says how long a prompt was, or the budget is not above 0.

    Notes
    -----
    Each cause says what it makes a run show, as a function of one severity. The severity that fits best is found, and
    causes are ranked by the log-likelihood of what was seen: errors log-normal, as wide as the noise of a run and the
    measured spread of the model together. A cause is named where the odds against "no fault" exceed 50 to 1, and alone
    where they exceed those of the next by 4 to 1. Where records say how requests came, what a run without fault shows
    is that run, simulated with its engine's scheduler and host times. What is not said is read both ways (host times
    are those of other machines; nobody may name the engine): a run is sound if it is under any reading, unless a
    fault under another has the odds to be named; otherwise the likeliest reading counts.

    Examples
    --------
    >>> import rooflinekit as rk
    >>> d = rk.Deployment("qwen3-8b", "gb10")
    >>> seen = dict(prompt_tokens=2048, output_tokens=65, batch=1)
    >>> healthy = [rk.Measurement(quantity="prefill_time_s", value=0.412, **seen),
    ...            rk.Measurement(quantity="decode_step_s", value=0.0744, **seen)]
    >>> rk.diagnose(healthy, d).verdict
    'nothing unusual: every figure is within what the model and the noise of a run allow'
    """
    if not records:
        message = "records: expected at least one measurement, none was given: read a file, or make a Measurement"
        raise InvalidInputError(message)
    if token_budget is not None:
        checked("token_budget", token_budget, positive=True)
    judged: list[_Judged] = []
    for cases in readings(records, deployment, token_budget=token_budget):
        if not cases:
            return _nothing_timed(records)
        judged.append(_judged(cases))
        if judged[-1].diagnosis.healthy or _late(cases, judged[-1].diagnosis):
            break
    return not_judged(_likeliest_reading(judged), unmeasured(records))


def not_judged(found: Diagnosis, nothing: Mapping[str, int]) -> Diagnosis:
    """
    Say which figures measured nothing, beside what the others show.

    Examples
    --------
    >>> found = Diagnosis("nothing unusual", None, (), (), NOTHING, NOTHING)
    >>> told = not_judged(found, {"time_per_output_token_s": 2})
    >>> print(told.verdict, told.change, told.measurement, sep=chr(10))
    nothing unusual; not judged, since it measured nothing (0 or less): time_per_output_token_s (2 figures)
    none needed in the rest
    time_per_output_token_s again
    """
    if not nothing:
        return found
    names = ", ".join(f"{name} ({count} figure{'s' * (count > 1)})" for name, count in nothing.items())
    verdict = f"{found.verdict}; not judged, since it measured nothing (0 or less): {names}"
    if not found.healthy:
        return replace(found, verdict=verdict)
    return replace(found, verdict=verdict, change=f"{NOTHING} in the rest", measurement=f"{', '.join(nothing)} again")


def _likeliest_reading(judged: "list[_Judged]") -> Diagnosis:
    """Take a reading under which the runs are sound, unless a fault under another one has the odds to be named."""
    sound = min((one for one in judged if one.diagnosis.healthy), key=lambda one: one.score, default=None)
    fault = min((one for one in judged if not one.diagnosis.healthy), key=lambda one: one.blamed, default=None)
    if sound is None or (fault is not None and sound.score - fault.blamed >= NAMED):
        return (fault or judged[0]).diagnosis
    return sound.diagnosis


def _late(cases: tuple[Case, ...], diagnosis: Diagnosis) -> bool:
    """Tell whether first tokens are late and something is odd: no host faster than the engine's explains it."""
    symptoms = diagnosis.symptoms
    first = any(one.name == "ttft_s" and one.deviations > 1.0 for one in symptoms)
    return first and all(case.run for case in cases) and any(one.deviations > _ODD for one in symptoms)


class _Judged(NamedTuple):
    """A reading of the runs: what it leads to, how badly it fits without fault, and with the likeliest one."""

    diagnosis: Diagnosis
    score: float
    blamed: float


def _judged(cases: tuple[Case, ...]) -> _Judged:
    healthy = sum(float(_score(case, case.clean)[0]) for case in cases)
    fitted = [(cause, _finding(cause, cases, healthy)) for cause in CAUSES if _may_be(cause, cases)]
    found = [one for cause, one in fitted if one.explains >= cause.at_least]
    ranked = _each_once(sorted(found, key=lambda one: -one.log_odds))
    most = max((one.log_odds for one in ranked), default=0.0)
    free = any(case.run.host_free for case in cases if case.run)  # excuses, explains nothing: a fault could be it
    return _Judged(_concluded(cases, ranked), healthy, np.inf if free else healthy - max(most, 0.0))


def _may_be(cause: Cause, cases: Sequence[Case]) -> bool:
    """Tell whether a cause can be: one of the load in every run, one of the machine if any run can show it."""
    return (any if cause.of_machine else all)(len(cause.severities(one)) for one in cases)


def _each_once(ranked: Sequence[Finding]) -> tuple[Finding, ...]:
    """Keep of a cause that has two forms the likelier one."""
    likelier: dict[str, Finding] = {}
    for one in ranked:
        likelier.setdefault(one.cause, one)
    return tuple(likelier.values())


def _finding(cause: Cause, cases: Sequence[Case], healthy: float) -> Finding:
    """Fit a cause: one severity for all runs where it is the machine's, one a run where it is the load's."""
    fits = [_likeliest(cause, runs) for runs in ([cases] if cause.of_machine else [[case] for case in cases])]
    best, score = fits[0][0], sum(fit[1] for fit in fits)
    price = _PRICE * len(best) * len(fits)
    explains = max(1.0 - score / healthy, 0.0) if healthy > 0 else 0.0
    severity = tuple(map(float, best))
    told = cause.told(cases[0], *severity)
    return Finding(cause.name, severity, told, explains, healthy - score - price, cause.change, cause.measurement)


def _likeliest(cause: Cause, cases: Sequence[Case]) -> tuple[Values, float]:
    """Find the severity that fits some runs best, and its score; a single figure is looked for more finely."""
    rows = max(map(cause.severities, cases), key=len)
    index, score = _best(cause, cases, rows)
    if rows.shape[1] == 1:
        rows = np.linspace(rows[max(index - 1, 0)], rows[min(index + 1, len(rows) - 1)], _FINER)
        index, score = _best(cause, cases, rows)
    return rows[index], score


def _best(cause: Cause, cases: Sequence[Case], rows: Values) -> tuple[int, float]:
    scores = np.sum([_fitted(cause, case, rows) for case in cases], axis=0)
    return int(np.argmin(scores)), float(scores.min())


def _fitted(cause: Cause, case: Case, rows: Values) -> Values:
    return _score(case, {**case.clean, **cause.shows(case, *rows.T)}, len(rows))


def _score(case: Case, shown: Shown, count: int = 1) -> Values:
    """Sum the negative log-likelihood of all that was seen, for each severity."""
    total = np.zeros(count)
    for name, observed in case.observed.items():
        total += np.broadcast_to(_misfit(case, name, observed, shown), count)
    return total


def _misfit(case: Case, name: str, observed: float, shown: Shown) -> Values:
    if name in STATES:
        expected = shown.get(name, np.zeros(()))
        return np.where((observed > 0) == (expected > 0), 0.0, _UNEXPECTED)
    size = np.abs(deviations(case, name, observed, shown))
    return np.asarray(0.5 * np.minimum(size, _MOST) ** 2 + _MOST * np.log(np.maximum(size / _MOST, 1.0)))


# ---- the conclusion


def _nothing_timed(records: Sequence[Measurement]) -> Diagnosis:
    """Say why nothing can be told: memory figures, or rates that mix the phases."""
    mixed = [one for one in records if one.quantity == "total_tokens_per_s"]
    held = ", ".join(dict.fromkeys(one.quantity for one in records))
    why = "prompt and output tokens are in one rate" if mixed else "nothing in it is a time or a state of a phase"
    more = "; where all requests ran together, --batch, --prompt and --output make a time of it" if mixed else ""
    said = f"cannot tell: {why} ({held}){more}"
    measurement = "time to first token and time per output token of requests of one length"
    return Diagnosis(said, None, (), (), "none yet", measurement)


def _concluded(cases: Sequence[Case], findings: tuple[Finding, ...]) -> Diagnosis:
    symptoms = tuple(symptom for case in cases for symptom in symptoms_of(case))
    named = _without_what_follows([one for one in findings if one.log_odds >= NAMED], full=any(map(is_full, cases)))
    if not named:
        return _unnamed(findings, symptoms)
    first, *rest = named
    close = [one for one in rest if first.log_odds - one.log_odds < ALONE]
    if close:
        return Diagnosis(_tied(first, close), None, findings, symptoms, first.change, close[0].measurement)
    said = f"{first.cause}: {first.told}{_of_two(first, rest)}"
    return Diagnosis(said, first.cause, findings, symptoms, first.change, first.measurement)


def _without_what_follows(named: list[Finding], *, full: bool) -> list[Finding]:
    """Leave out what follows from the likeliest cause, or from a cache that is full beside it."""
    first = [one.cause for one in named if one.cause == "cache full" and full] or [one.cause for one in named[:1]]
    follows = {name for cause in first for name in FOLLOWING.get(cause, ())}
    return [one for one in named if one.cause not in follows]


def _tied(first: Finding, close: Sequence[Finding]) -> str:
    """Name the causes that explain the numbers alike; where none explains them, say that there may be several."""
    names = " or ".join(one.cause for one in (first, *close))
    most = max(one.explains for one in (first, *close))
    if most > _MOSTLY:
        return f"cannot tell which: {names}; the first would be: {first.told}"
    said = f"cannot tell which: {names}; none of them explains more than {most:.0%} of what is off"
    return f"{said}, so there may be several"


def _unnamed(findings: tuple[Finding, ...], symptoms: tuple[Symptom, ...]) -> Diagnosis:
    """Conclude where no cause gains enough: nothing is off, a time is impossible, or what is off has no cause here."""
    odd = [one for one in symptoms if abs(one.deviations) > _ODD]
    if any(one.observed < _BELOW * one.floor for one in symptoms):
        return _above(findings, symptoms)
    far = [one for one in symptoms if abs(one.deviations) > 1.0 and _ratio(one) > _FAR]
    if not odd and far:
        said = f"cannot tell: {'; '.join(map(_within_spread, far))}"
        return Diagnosis(said, None, findings, symptoms, "none yet", "kernels or passes of this machine: calibrate")
    if not odd:
        said = "nothing unusual: every figure is within what the model and the noise of a run allow"
        return Diagnosis(said, None, findings, symptoms, NOTHING, NOTHING)
    said = f"cannot tell: {', '.join(map(tell, odd))}, and no cause known here explains it"
    return Diagnosis(said, None, findings, symptoms, "none yet", "each phase apart: prefill time and step time")


def _ratio(one: Symptom) -> float:
    """Give the factor between what was seen and what is expected; 1 for a state, which has none."""
    if one.observed <= 0 or one.expected <= 0:
        return 1.0
    return max(one.observed / one.expected, one.expected / one.observed)


def _within_spread(one: Symptom) -> str:
    """Say what is far off and yet no more than predictions of its kind are."""
    ratio = _ratio(one)
    spread = float(np.exp(np.log(ratio) / abs(one.deviations)))
    times = f"{ratio:.1f} times" if one.observed > one.expected else f"1/{ratio:.1f}"
    return f"{tell(one)}, {times}, and predictions on this basis are off by a factor of {spread:.1f} as a rule"


def _above(findings: tuple[Finding, ...], symptoms: tuple[Symptom, ...]) -> Diagnosis:
    """Call a time below its floor what it is, though others contradict it or the model's spread would allow it."""
    cause = next(one for one in CAUSES if one.name == ABOVE)
    below = [
        f"{tell(one)}, and {units.duration(one.floor)} is the floor" for one in symptoms if one.observed < one.floor
    ]
    return Diagnosis(f"{ABOVE}: {'; '.join(below)}", ABOVE, findings, symptoms, cause.change, cause.measurement)


def _of_two(first: Finding, rest: Sequence[Finding]) -> str:
    """Say where one cause leaves so much that there may be a second."""
    if first.explains > _MOSTLY or not rest:
        return ""
    return f"; that explains {first.explains:.0%} of what is off, so a second cause is likely: {rest[0].cause}?"
