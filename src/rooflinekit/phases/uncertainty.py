r"""How sure a time is, and why not: spreads of classes and passes, and what the fit of each constant left open.

.. math:: \sigma^2 = \sum_r \left(\frac{t_r}{t}\,\sigma_{c(r)}\right)^2 + \sigma_p^2 + g^T C\,g,
   \quad g_k = \frac{\partial \ln t}{\partial \ln \theta_k}

A row's share of the pass times the spread of its class, the spread that whole passes of its phase share, and the
covariance of the constants through the slopes of the time. All are of logarithms.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rooflinekit.errors import InvalidInputError, NotCalibratedError
from rooflinekit.operators.cost import SEQUENCES, TOKENS, Row
from rooflinekit.roofline.laws import Laws, spread_name
from rooflinekit.roofline.timing import compile_timing
from rooflinekit.specs.efficiency import Efficiency

if TYPE_CHECKING:
    from rooflinekit.phases.estimate import Estimate

#: Step of a logarithm by which a slope is taken.
_STEP = 0.01
#: Log error of one careful measurement.
_NOISE = 0.02
#: Contributions below this part of the variance are summed up in the last line of a budget.
_NAMED = 0.01


class Cause(NamedTuple):
    """One source of error: what it is, and how far it alone lets the logarithm of the time stray, at each point."""

    name: str
    kind: str
    log_std: NDArray[np.float64]


@dataclass(frozen=True)
class ErrorBudget:
    """What an interval is made of: causes by their share of the variance, and the measurement that would help most."""

    causes: tuple[Cause, ...]
    measurement: str
    log_std: float
    log_std_after: float

    def lines(self) -> Iterator[str]:
        """Yield the budget line by line."""
        total = self.log_std**2
        yield f"{_half(self.log_std)} at 80%:"
        for cause in self.causes:
            yield f"  {float(cause.log_std[0]) ** 2 / total:>4.0%}  {_half(float(cause.log_std[0])):>7}  {cause.name}"
        after = _half(self.log_std_after)
        yield f"one measurement would help most: {self.measurement} ({_half(self.log_std)} -> {after})"

    def __str__(self) -> str:
        """Render the budget."""
        return "\n".join(self.lines())

    __repr__ = __str__


def _half(log_std: float) -> str:
    return f"+-{np.expm1(NormalDist().inv_cdf(0.9) * log_std):.1%}"


def interval_factors(estimate: "Estimate", level: float) -> tuple[Any, Any]:
    """Give the factors below and above the expected time that hold the measured one with probability `level`."""
    if not 0.0 < level < 1.0:
        message = f"level={level!r}: expected a probability between 0 and 1, as 0.8"
        raise InvalidInputError(message)
    reach = NormalDist().inv_cdf(0.5 + level / 2.0) * log_spread(estimate)
    return np.exp(-reach), np.exp(reach)


def log_spread(estimate: "Estimate") -> NDArray[np.float64]:
    """Give the standard deviation of the logarithm of the time, at each point."""
    variance = sum((cause.log_std**2 for cause in causes(estimate)), start=np.zeros(1))
    return np.asarray(np.sqrt(variance), dtype=np.float64)


def causes(estimate: "Estimate") -> tuple[Cause, ...]:
    """
    List every source of error of an estimate.

    Raises
    ------
    NotCalibratedError
        The entries behind it carry no measured spread: a roofline, or an efficiency handed in without one.
    """
    laws = estimate.timing.laws
    if laws.spread("decode") is None:
        message = (
            f"no interval: {laws.basis} carries no measured spread of its residuals; calibrate the device to get one"
        )
        raise NotCalibratedError(message)
    found = [Cause(_kernels(row), "class", share * spread) for row, share, spread in _classes(estimate)]
    found.append(Cause(f"whole {_phase(estimate)} passes: what their rows share", "pass", _passes(estimate)))
    found += list(_constants(estimate))
    return tuple(found)


def _kernels(row: Row) -> str:
    return f"{row.name}: spread of {row.op_class} kernels"


def _classes(estimate: "Estimate") -> Iterator[tuple[Row, NDArray[np.float64], NDArray[np.float64]]]:
    """Yield every row with its share of the time and the spread of its class in the phase of each point."""
    laws, prefill = estimate.timing.laws, _is_prefill(estimate)
    for row, share in zip(estimate.timing.plan.rows, _shares(estimate), strict=True):
        both = (laws.spread(spread_name(row.op_class, phase)) or 0.0 for phase in ("prefill", "decode"))
        yield row, share, np.where(prefill, *both)


def _shares(estimate: "Estimate") -> NDArray[np.float64]:
    """Part of every row in the time, (rows, points)."""
    rows = np.array([np.atleast_1d(estimate.collect(row)).reshape(-1) for row in estimate.rows_s])
    return np.asarray(rows / np.maximum(rows.sum(axis=0), np.finfo(np.float64).tiny))


def _phase(estimate: "Estimate") -> str:
    return "prefill" if _is_prefill(estimate).any() else "decode"


def _is_prefill(estimate: "Estimate") -> NDArray[np.bool_]:
    """Tell the points that bring more tokens than sequences."""
    plan = estimate.timing.plan
    tokens, sequences = (np.atleast_1d(estimate.collect(estimate.x[plan.column(one)])) for one in (TOKENS, SEQUENCES))
    return np.asarray((tokens > sequences).reshape(-1))


def _passes(estimate: "Estimate") -> NDArray[np.float64]:
    laws = estimate.timing.laws
    prefill, decode = (laws.spread(name) or 0.0 for name in ("prefill", "decode"))
    return np.where(_is_prefill(estimate), prefill, decode)


def _constants(estimate: "Estimate") -> Iterator[Cause]:
    """Yield what the fit of each entry left open: its constants' covariance through the slopes of the time."""
    for entry in estimate.timing.laws.chain:
        if entry.covariance is None:
            continue
        slopes = np.array([_slope(estimate, entry, fields) for fields in entry.covariance.constants])
        spread = np.array(entry.covariance.log) @ slopes
        for fields, slope, one in zip(entry.covariance.constants, slopes, spread, strict=True):
            # a constant's part of the variance, its share of the covariances included; a negative one lowers others
            yield Cause(f"{entry.name} {fields[0]}", "constant", np.sqrt(np.maximum(slope * one, 0.0)))


def _slope(estimate: "Estimate", entry: Efficiency, fields: Sequence[str]) -> NDArray[np.float64]:
    """Change of the log of the time with that of a constant, at each point."""
    moved = replace(estimate, timing=_retimed(estimate, entry, fields))
    times = [np.atleast_1d(one.time_s).reshape(-1) for one in (moved, estimate)]
    return np.asarray(np.log(times[0] / times[1]) / _STEP)


def _retimed(estimate: "Estimate", entry: Efficiency, fields: Sequence[str]) -> Any:  # noqa: ANN401 - a Timing
    timing = estimate.timing
    chain = tuple(_moved(one, fields) if one is entry else one for one in timing.laws.chain)
    return compile_timing(timing.plan, timing.rates, Laws(chain, timing.laws.tier))


def _moved(entry: Efficiency, fields: Sequence[str]) -> Efficiency:
    """Return the entry with the constants a step higher."""
    for field in fields:
        entry = _set(entry, field.split("."))
    return entry


def _set(spec: Any, path: Sequence[str]) -> Any:  # noqa: ANN401 - entries and laws alike
    value = getattr(spec, path[0])
    if value is None:
        return spec
    changed = value * float(np.exp(_STEP)) if len(path) == 1 else _set(value, path[1:])
    return spec.model_copy(update={path[0]: changed})


# ---- the budget of one estimate


def error_budget(estimate: "Estimate") -> ErrorBudget:
    """List what contributes how much to the interval of one point, and the single measurement that shrinks it most."""
    if estimate.shape != ():
        message = f"error_budget() takes one point, not {estimate.shape}: ask for the one you mean"
        raise InvalidInputError(message)
    found = causes(estimate)
    total = float(log_spread(estimate)[0])
    ordered = sorted(found, key=lambda cause: -float(cause.log_std[0]))
    named = [cause for cause in ordered if float(cause.log_std[0]) ** 2 >= _NAMED * total**2]
    rest = np.sqrt(sum((cause.log_std**2 for cause in ordered[len(named) :]), start=np.zeros(1)))
    measurement, after = _best(estimate, found, total)
    return ErrorBudget((*named, Cause("all others together", "rest", rest)), measurement, total, after)


def _best(estimate: "Estimate", found: Sequence[Cause], total: float) -> tuple[str, float]:
    """Weigh measurements that share causes with the estimate: what each leaves of the variance."""
    target = {cause.name: float(cause.log_std[0]) for cause in found}
    tried = [(label, _left(target, known, total)) for label, known in _candidates(estimate, target)]
    label, left = min(tried, key=lambda one: one[1])
    return label, left


def _left(target: dict[str, float], known: dict[str, float], total: float) -> float:
    shared = sum(target[name] * known[name] for name in target.keys() & known.keys())
    seen = sum(value**2 for value in known.values()) + _NOISE**2
    return float(np.sqrt(max(total**2 - shared**2 / seen, 0.0)))


def _candidates(estimate: "Estimate", target: dict[str, float]) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield measurements: the largest operators' kernels alone, and a short pass of each phase."""
    where = f"of {estimate.deployment.model.id} on {estimate.deployment.device.id}"
    for row, _, spread in sorted(_classes(estimate), key=lambda one: -float(one[1][0]))[:3]:
        yield f"the kernel of {row.name} in this pass, timed alone, {where}", {_kernels(row): float(spread[0])}
    quiet = estimate.deployment.with_(memory_check=False)
    for label, other in (
        ("a decode step at 1,024 tokens", quiet.decode(1024)),
        ("a prefill of 1,024 tokens", quiet.prefill(1024)),
    ):
        known = {cause.name: float(cause.log_std[0]) for cause in causes(other)}
        yield f"{label} {where}", {name: value for name, value in known.items() if value or name in target}
