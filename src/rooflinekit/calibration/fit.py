"""Fit the constants that kernel rows determine: least squares on log time, each constant held to its physical range.

Needs scipy: ``pip install 'rooflinekit[calibrate]'``.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from rooflinekit.errors import InvalidInputError
from rooflinekit.phases.deployment import Deployment
from rooflinekit.phases.estimate import Estimate
from rooflinekit.specs.efficiency import Efficiency
from rooflinekit.specs.spec import Count, Fraction, Positive, Spec
from rooflinekit.specs.yamlfile import check, read_mapping

#: Constant -> the fields of an Efficiency that it sets; several share one where rows cannot tell them apart.
Free = Mapping[str, Sequence[str]]


class KernelRow(Spec):
    """Seconds that one class of kernels took: `share` of the launches of some operators, over `steps` passes."""

    name: str
    phase: Literal["prefill", "decode"]
    prompt_tokens: Positive | None = None
    context_tokens: Positive | None = None
    batch: Count = 1
    steps: Count = 1
    operators: tuple[str, ...] = Field(min_length=1)
    share: Fraction = 1.0
    seconds: Positive

    @model_validator(mode="after")
    def _sized(self) -> "KernelRow":
        size = "prompt_tokens" if self.phase == "prefill" else "context_tokens"
        if getattr(self, size) is None:
            message = f"a {self.phase} row needs {size}"
            raise ValueError(message)
        return self

    def step(self, deployment: Deployment) -> Estimate:
        """Estimate the pass that the row was measured in."""
        if self.phase == "prefill":
            return deployment.prefill(self.prompt_tokens or 0, batch=self.batch)
        return deployment.decode(self.context_tokens or 0, batch=self.batch)

    def predicted_s(self, deployment: Deployment) -> float:
        """Predict what was measured."""
        step = self.step(deployment)
        return self.steps * self.share * sum(float(step.operator(name).time_s) for name in self.operators)


class KernelTable(Spec):
    """A file of kernel rows: one model on one device."""

    source: str
    model: str
    device: str
    rows: tuple[KernelRow, ...]


class Fit(NamedTuple):
    """What a fit found: the efficiency, its free constants, and what each row leaves over, ln(predicted / measured)."""

    efficiency: Efficiency
    constants: Mapping[str, float]
    residuals: Mapping[str, float]


def load_kernels(path: Path) -> KernelTable:
    """Read a file of kernel rows."""
    return check(KernelTable, read_mapping(path), str(path))


def fit_efficiency(deployment: Deployment, rows: Sequence[KernelRow], start: Efficiency, free: Free) -> Fit:
    r"""
    Fit some constants of an efficiency to kernel rows; all others stay as `start` has them.

    .. math:: \min \sum_i w_i \left(\ln \hat t_i - \ln t_i\right)^2

    Parameters
    ----------
    deployment : Deployment
        Model and device of the rows.
    rows : sequence of KernelRow
        Measured classes of kernels. Each weighs by its share of its phase's measured time: a class that takes little
        of a pass may miss by more.
    start : Efficiency
        Starting values, and the constants that stay.
    free : mapping
        Name of a constant -> the fields it sets, as ``"products.bf16.memory"``.

    Returns
    -------
    fit : Fit

    Raises
    ------
    InvalidInputError
        Fewer rows than free constants.

    Notes
    -----
    Fractions stay within (0, 1] and launches at or above 0: a fit that presses against 1 says counting or data fault.
    """
    from scipy.optimize import least_squares  # noqa: PLC0415 - an extra, and nothing else here needs it

    if len(rows) < len(free):
        message = f"{len(rows)} rows cannot determine {len(free)} constants: add rows, or free fewer"
        raise InvalidInputError(message)
    names, begin = list(free), [_get(start, fields[0]) for fields in free.values()]
    weights = np.sqrt(_weights(rows))

    def misfit(values: NDArray[np.float64]) -> NDArray[np.float64]:
        tried = deployment.with_(efficiency=_with(start, free, values))
        left = np.array([np.log(row.predicted_s(tried) / row.seconds) for row in rows], dtype=np.float64)
        return np.multiply(weights, left)

    high = [np.inf if fields[0].endswith("launch_us") else 1.0 for fields in free.values()]
    found = least_squares(misfit, begin, bounds=([1e-6] * len(begin), high), x_scale=begin)
    residuals = misfit(found.x) / weights
    return Fit(
        _with(start, free, found.x),
        dict(zip(names, found.x.tolist(), strict=True)),
        {f"{row.phase} {row.name}": float(left) for row, left in zip(rows, residuals, strict=True)},
    )


def _weights(rows: Sequence[KernelRow]) -> NDArray[np.float64]:
    """Share of each row in the measured time of its phase."""
    sums = {phase: sum(row.seconds for row in rows if row.phase == phase) for phase in ("prefill", "decode")}
    return np.array([row.seconds / sums[row.phase] for row in rows])


def _get(efficiency: Efficiency, field: str) -> float:
    value: Any = efficiency
    for part in field.split("."):
        value = getattr(value, part, None)
        if value is None:
            message = f"{field}: {efficiency.name} has no such constant to free; give `start` one"
            raise InvalidInputError(message)
    return float(value)


def _with(efficiency: Efficiency, free: Free, values: Sequence[float] | NDArray[np.float64]) -> Efficiency:
    data = efficiency.model_dump()
    for fields, value in zip(free.values(), values, strict=True):
        for field in fields:
            *path, last = field.split(".")
            place = data
            for part in path:
                place = place[part]
            place[last] = float(value)
    return Efficiency.model_validate(data)
