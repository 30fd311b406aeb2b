"""Fit the constants of an Efficiency: robust least squares on log time, each constant held to what is physical.

Needs scipy: ``pip install 'rooflinekit[calibrate]'``.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rooflinekit.calibration.identify import RESIDUAL, Weakness, weaknesses
from rooflinekit.calibration.observations import Observations
from rooflinekit.errors import CalibrationError, InvalidInputError
from rooflinekit.roofline.laws import Laws
from rooflinekit.specs.catalog import load_generation
from rooflinekit.specs.device import Device
from rooflinekit.specs.efficiency import Covariance, Efficiency

#: Constant -> the fields of an Efficiency that it sets; several share one where rows cannot tell them apart.
Free = Mapping[str, Sequence[str]]
#: Log error beyond which a measured value counts less and less: a kernel switch, a cold start.
ROBUST = 0.15
#: A fraction may be tried up to here, so that one above 1 is seen and refused rather than clipped.
TRIED = 1.3
#: Log by which a fraction may be above 1 at most, where its uncertainty is as large: it is then held at 1.
SLACK = 0.03
#: Log error that a prior weighs against: as if each constant were measured once, to the prior's spread.
NOISE = 0.05
#: Constants below this are nought.
NOUGHT = 1e-6
#: Parts of the best direct measurement that a fitted ceiling may be: beyond them it is a fault, not a result.
ABOVE, BELOW = 1.1, 0.4


Fallbacks = Callable[[Device], tuple[Efficiency, ...]]


def shipped_fallbacks(device: Device) -> tuple[Efficiency, ...]:
    """Give the shipped entries of a device's generation, if there is one, and the universal ones."""
    found = (load_generation(name) for name in (device.generation, "universal") if name)
    return tuple(entry for entry in found if entry is not None)


class Fit(NamedTuple):
    """What a fit found.

    ``constants`` are the free ones, ``residuals`` what each measured value leaves over, ln(predicted / measured), in
    the order of the observations, ``weak`` what the data cannot tell apart.
    """

    efficiency: Efficiency
    constants: Mapping[str, float]
    residuals: NDArray[np.float64]
    weak: tuple[Weakness, ...]

    @property
    def residual(self) -> float:
        """Median absolute log residual."""
        return float(np.median(np.abs(self.residuals)))


@dataclass(frozen=True)
class Problem:
    """Observations, starting values and what may move: the misfit of any values."""

    observations: tuple[Observations, ...]
    start: Efficiency
    free: Free
    fallbacks: Fallbacks
    weights: NDArray[np.float64]
    begin: NDArray[np.float64]
    prior: float | None

    def residuals(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Log of predicted over measured, for every value in turn."""
        entry = with_constants(self.start, self.free, values)
        parts = [
            np.log(one.predicted_s(Laws((entry, *self.fallbacks(one.device)), "own")) / one.seconds)
            for one in self.observations
        ]
        return np.concatenate(parts)

    def misfit(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Weighted residuals, and how far each constant left where it began: what least squares sees."""
        left = self.weights * self.residuals(values)
        if self.prior is None:
            return left
        moved = np.log(np.maximum(values, 1e-9) / np.maximum(self.begin, 1e-9)) * (NOISE / self.prior)
        return np.concatenate([left, moved])


def fit(
    observations: Sequence[Observations],
    start: Efficiency,
    free: Free,
    *,
    fallbacks: Fallbacks | None = None,
    weights: NDArray[np.float64] | None = None,
    prior: float | None = None,
    robust: bool = True,
    checked: bool = True,
) -> Fit:
    r"""
    Fit some constants of an efficiency to measured seconds; all others stay as `start` has them.

    .. math:: \min \sum_i \rho\left(w_i \left(\ln \hat t_i - \ln t_i\right)\right)

    Parameters
    ----------
    observations : sequence of Observations
        Kernels, whole steps, single-stream rates, in any mixture.
    start : Efficiency
        Starting values, and the constants that stay.
    free : mapping
        Name of a constant -> the fields it sets, as ``"products.bf16.memory"``.
    fallbacks : callable, optional
        Device -> entries where constants come from that `start` lacks; the shipped generation's and universal ones.
    weights : array, optional
        Weight of each measured value; all 1 by default.
    prior : float, optional
        Spread of the logarithm of each constant around its start, where the start is knowledge (a shared entry).
    robust : bool
        Whether a large misfit counts less: not where it is known to be real, as one kernel's choice among two.
    checked : bool
        Whether a constant that is not physical raises; if not, fractions are held at 1, and at 1.1 of the best direct
        measurement of the one device that all rows are of.

    Returns
    -------
    fit : Fit
        The efficiency carries the covariance of the free constants' logarithms.

    Raises
    ------
    InvalidInputError
        Fewer values than free constants, or a constant that `start` lacks.
    CalibrationError
        A fraction above 1 (beyond its uncertainty, or by 3%), or a ceiling above or far below its direct
        measurements: a counting or data fault.

    Notes
    -----
    :math:`\rho` is SciPy's soft L1: squares near zero, absolute values beyond 15%.

    Examples
    --------
    >>> from rooflinekit.calibration import gb10_trace
    >>> trace = gb10_trace()
    >>> found = fit([trace], trace.device.efficiency[0], {"silu": ["activation.memory"]})
    >>> print(f"{found.constants['silu']:.3f}")
    0.924
    """
    from scipy.optimize import least_squares  # noqa: PLC0415 - an extra, and nothing else here needs it

    count = sum(len(one) for one in observations)
    if count < len(free) and prior is None:
        message = f"{count} rows cannot determine {len(free)} constants: add rows, or free fewer"
        raise InvalidInputError(message)
    weighed = np.ones(count) if weights is None else weights
    begin = np.array([constant(start, fields[0]) for fields in free.values()])
    problem = Problem(tuple(observations), start, free, fallbacks or shipped_fallbacks, weighed, begin, prior)
    limits = [TRIED if checked else _limit(fields[0], observations) for fields in free.values()]
    low, high = zip(
        *(_range(fields[0], limit) for (fields, limit) in zip(free.values(), limits, strict=True)), strict=True
    )
    inside = np.clip(begin, np.array(low) * 1.01, np.array(high) * 0.99)
    found = least_squares(
        problem.misfit,
        inside,
        bounds=(low, high),
        loss="soft_l1" if robust else "linear",
        f_scale=ROBUST,
        x_scale=np.maximum(inside, 1e-3),
    )
    result = _result(problem, found.x, np.asarray(found.jac))
    if checked and _at_its_peak(result, free, observations[0].device):
        return fit(  # held at 1
            observations,
            start,
            free,
            fallbacks=fallbacks,
            weights=weights,
            prior=prior,
            robust=robust,
            checked=False,
        )
    return result


def _at_its_peak(result: Fit, free: Free, device: Device) -> bool:
    """Refuse what is not physical; tell whether a fraction is above 1 by no more than its uncertainty."""
    covariance = result.efficiency.covariance
    spreads = np.sqrt(np.diag(covariance.log)) if covariance else np.zeros(len(free))
    for fields, value, spread in zip(free.values(), result.constants.values(), spreads, strict=True):
        check_physical(fields[0], value, device, slack=min(2.0 * float(spread), SLACK))
    fractions = [result.constants[name] for name, fields in free.items() if _is_fraction(fields[0])]
    return max(fractions, default=0.0) > 1.0


def _result(problem: Problem, values: NDArray[np.float64], jacobian: NDArray[np.float64]) -> Fit:
    names, residuals = list(problem.free), problem.residuals(values)
    slopes = jacobian[: len(residuals)] * values  # by the logarithm of each constant
    covariance = _covariance(slopes, residuals, problem.prior)
    efficiency = with_constants(problem.start, problem.free, values)
    held = Covariance(constants=tuple(map(tuple, problem.free.values())), log=tuple(map(tuple, covariance.tolist())))
    return Fit(
        efficiency.model_copy(update={"covariance": held}),
        dict(zip(names, values.tolist(), strict=True)),
        residuals,
        _open(names, slopes, values, residuals),
    )


def _open(
    names: Sequence[str],
    slopes: NDArray[np.float64],
    values: NDArray[np.float64],
    residuals: NDArray[np.float64],
) -> tuple[Weakness, ...]:
    """List what the data leave open; a constant that came out at nought has no logarithm to be open."""
    seen = values > NOUGHT
    error = max(RESIDUAL, float(np.median(np.abs(residuals))))
    return weaknesses([name for name, one in zip(names, seen, strict=True) if one], slopes[:, seen], error)


def _covariance(
    slopes: NDArray[np.float64], residuals: NDArray[np.float64], prior: float | None
) -> NDArray[np.float64]:
    """Covariance of the constants' logarithms; a direction that the data do not see is held to its prior."""
    spread = max(1.4826 * float(np.median(np.abs(residuals))), 1e-6)
    information = slopes.T @ slopes / spread**2
    known = np.eye(len(information)) / (prior or np.log(2.0)) ** 2
    return np.asarray(np.linalg.inv(information + known), dtype=np.float64)


def most(field: str, device: Device) -> float:
    """Give the largest value that a constant may have: the datasheet's peak, or 1.1 of its direct measurement."""
    if not _is_fraction(field):
        return np.inf
    direct = direct_fraction(field, device)
    return 1.0 if direct is None else min(1.0, ABOVE * direct)


def _limit(field: str, observations: Sequence[Observations]) -> float:
    """Give where a fraction is held: what was measured directly counts where all rows are of one device."""
    devices = {one.device.id: one.device for one in observations}
    return most(field, *devices.values()) if len(devices) == 1 else 1.0


def _range(field: str, highest: float) -> tuple[float, float]:
    """Give the range in which a constant is tried."""
    name = field.rsplit(".", 1)[-1]
    ranges = {
        "compute": (1e-4, highest),
        "memory": (1e-4, highest),
        "activation": (1e-4, highest),
        "sustained": (0.2, 1.0),
        "exponent": (1.0, 8.0),
    }
    return ranges.get(name, (0.0, np.inf))


def _is_fraction(field: str) -> bool:
    return field.rsplit(".", 1)[-1] in {"compute", "memory", "activation"}


def check_physical(field: str, value: float, device: Device, *, slack: float = 0.0) -> None:
    """
    Refuse a constant that no device can have; `slack` is the logarithm by which it may be above 1.

    Raises
    ------
    CalibrationError
        A fraction of a peak above 1, or a ceiling above or far below what was measured directly on the device.
    """
    if not _is_fraction(field):
        return
    advice = "a counting or data fault: check dtype, units, shapes, and whether the data lay in a cache"
    if value > np.exp(slack):
        message = f"{device.id} {field}: fitted at {value:.3f} of the datasheet peak, above 1: {advice}"
        raise CalibrationError(message)
    direct = direct_fraction(field, device)
    if direct is not None and not BELOW * direct <= value <= ABOVE * direct:
        way = "above every" if value > direct else "far below every"
        message = (
            f"{device.id} {field}: fitted at {value:.3f} of the peak, {way} direct measurement ({direct:.3f}): {advice}"
        )
        raise CalibrationError(message)


def direct_fraction(field: str, device: Device) -> float | None:
    """Give the best direct measurement of a ceiling as a part of the datasheet peak: products' arithmetic, reads."""
    family, *path = field.split(".")
    if family == "products" and path[-1:] == ["compute"]:
        unit = "tops" if path[0].startswith("int") else "tflops"
        peak = getattr(device.datasheet.peak_dense_tflops, path[0], None)
        return _best(device, f"gemm_{path[0]}_{unit}", peak)
    if path[-1:] == ["memory"] and family in {"products", "mixtures", "attention"}:
        return _best(device, "memory_read_gb_per_s", device.datasheet.bandwidth_gb_per_s)
    return None


def _best(device: Device, quantity: str, peak: float | None) -> float | None:
    values = [row.value for row in device.measured if row.quantity == quantity]
    return max(values) / peak if values and peak else None


def constant(efficiency: Efficiency, field: str) -> float:
    """Read a constant by its dotted name, as ``"products.bf16.memory"``."""
    value: Any = efficiency
    for part in field.split("."):
        value = getattr(value, part, None)
        if value is None:
            message = f"{field}: {efficiency.name} has no such constant to free; give `start` one"
            raise InvalidInputError(message)
    return float(value)


def with_constants(efficiency: Efficiency, free: Free, values: Sequence[float] | NDArray[np.float64]) -> Efficiency:
    """Return a copy with some constants set; not validated, so that a fit may try what no device has."""
    tree: dict[str, Any] = {}
    for fields, value in zip(free.values(), values, strict=True):
        for field in fields:
            *path, last = field.split(".")
            place = tree
            for part in path:
                place = place.setdefault(part, {})
            place[last] = float(value)
    changed: Efficiency = _updated(efficiency, tree)
    return changed


def _updated(spec: Any, tree: Mapping[str, Any]) -> Any:  # noqa: ANN401 - laws and entries alike
    changes = {
        name: _updated(getattr(spec, name), value) if isinstance(value, dict) else value for name, value in tree.items()
    }
    return spec.model_copy(update=changes)
