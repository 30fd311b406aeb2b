"""Observations: measured seconds, and the plan and steps from which any laws predict them."""

from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rooflinekit.operators.cost import Feature, Matrix, Plan
from rooflinekit.operators.forward import features
from rooflinekit.roofline.laws import Laws
from rooflinekit.roofline.timing import PARTS, Floor, Rates, compile_timing
from rooflinekit.specs.device import Device
from rooflinekit.specs.step import Group

Seconds = NDArray[np.float64]
Whole = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Observations:
    """
    Measured seconds that one plan on one device predicts.

    Every measured value is a weighted sum of points, each a step of `groups`: ``owner`` says whose a point is,
    ``weight`` how often it counts. Where ``row`` is set, a point is the time of that row of the plan alone: a table of
    kernels is a plan with one row a shape. ``facts`` has one line a measured value: by whom, of what, how.
    """

    facts: pd.DataFrame
    seconds: Seconds
    device: Device
    plan: Plan
    rates: Rates
    groups: tuple[Group, ...]
    owner: Whole
    weight: Seconds
    floor_plan: Plan
    row: Whole | None = None
    busy_s: float = 0.0

    def __post_init__(self) -> None:
        """Remember the features of each tile that was asked for: a fit asks a thousand times."""
        object.__setattr__(self, "_features", cache(self._evaluate))

    def _evaluate(self, wanted: tuple[Feature, ...]) -> Matrix:
        return features(wanted, self.groups)

    def predicted_s(self, laws: Laws) -> Seconds:
        """Predict every measured value under some laws."""
        timing = compile_timing(self.plan, self.rates, laws)
        x: Matrix = self._features(timing.plan.features)  # type: ignore[attr-defined]
        if self.row is None:
            return self._summed(timing.total_s(x, self.busy_s))
        return self._summed(timing.rows_s(x)[self.row, np.arange(len(self.row))])

    def _of_point(self, rows: Matrix) -> Matrix:
        """Keep, of every row at every point, the rows that a point is of."""
        if self.row is None:
            return rows
        mine: Matrix = np.zeros_like(rows)
        points = np.arange(len(self.row))
        mine[self.row, points] = rows[self.row, points]
        return mine

    def bounds(self, laws: Laws) -> list[str]:
        """Name what takes most of each value: compute, memory, overhead or communication."""
        timing = compile_timing(self.plan, self.rates, laws)
        x: Matrix = self._features(timing.plan.features)  # type: ignore[attr-defined]
        parts = timing.parts_s(x, self.busy_s)
        sums = np.array([self._summed(self._of_point(part).sum(axis=0)) for part in parts])
        return [PARTS[i] for i in sums.argmax(axis=0)]

    @property
    def floor_s(self) -> Seconds:
        """Seconds that nothing can beat, for every measured value."""
        floor, x = Floor(self.floor_plan, self.rates), features(self.floor_plan.features, self.groups)
        if self.row is None:
            return self._summed(floor.seconds(x))
        return self._summed(floor.rows_s(x)[self.row, np.arange(len(self.row))])

    def _summed(self, points: Seconds) -> Seconds:
        return np.asarray(np.bincount(self.owner, weights=self.weight * points, minlength=len(self)), dtype=np.float64)

    def __len__(self) -> int:
        """Count the measured values."""
        return len(self.seconds)

    def take(self, chosen: NDArray[np.bool_]) -> "Observations":
        """Keep some of the measured values."""
        place = np.cumsum(chosen) - 1
        points = chosen[self.owner]
        return replace(
            self,
            facts=self.facts[chosen].reset_index(drop=True),
            seconds=self.seconds[chosen],
            groups=tuple(Group(*(np.asarray(values)[points] for values in group)) for group in self.groups),
            owner=place[self.owner[points]],
            weight=self.weight[points],
            row=None if self.row is None else self.row[points],
        )
