"""Estimate: the time of one pass or of many, kept with every part so that any total can be taken apart."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rooflinekit import units
from rooflinekit.errors import InvalidInputError, MissingFigureError
from rooflinekit.operators.cost import TOKENS, Matrix
from rooflinekit.operators.forward import features
from rooflinekit.phases.row import OperatorEstimate, Value, ratio
from rooflinekit.roofline.timing import PARTS, Timing
from rooflinekit.specs.step import Group

if TYPE_CHECKING:
    import pandas as pd

    from rooflinekit.phases.deployment import Deployment
    from rooflinekit.phases.explain import Term
    from rooflinekit.phases.uncertainty import ErrorBudget


@dataclass(frozen=True, eq=False)
class Estimate:
    """
    The expected time of a step, with its floor, its bound and every operator behind it.

    Made by a :class:`~rooflinekit.Deployment`. ``time_s`` and all counts are Python floats for one point and arrays for
    a sweep. A time that needs a missing peak raises when it is asked for; counts, ``memory_time_s`` and ``floor_s``
    never do.

    Examples
    --------
    >>> import rooflinekit as rk
    >>> step = rk.Deployment("qwen3-8b", "gb10").decode(context_tokens=2048)
    >>> print(f"{step.weight_bytes:.4g} {step.kv_bytes:.4g} {step.bound}")
    1.514e+10 3.021e+08 memory
    """

    deployment: "Deployment"
    label: str
    timing: Timing
    x: Matrix
    shape: tuple[int, ...]
    busy_s: float | Matrix = 0.0
    passes: NDArray[np.int64] | None = None
    labels: tuple[str, ...] = ()
    groups: tuple[Group, ...] = ()
    floor_columns: Matrix | None = None

    # ---- from points to values

    def collect(self, values: Matrix) -> Value:
        """Turn a value per pass into a value per point: summed over the passes of each, a float where there is one."""
        if self.passes is not None:
            edges = np.concatenate([[0], np.cumsum(self.passes)])
            running = np.concatenate([[0.0], np.cumsum(values)])
            values = running[edges[1:]] - running[edges[:-1]] if self.passes.size > 1 else np.array([values.sum()])
        if self.shape == ():
            return float(values[0])
        swept = values.reshape(self.shape)
        swept.flags.writeable = False  # an estimate does not change, so neither may what it hands out
        return swept

    def _total(self, matrix: Matrix) -> Value:
        return self.collect(matrix.sum(axis=0) @ self.x)

    # ---- counts

    @property
    def flops(self) -> Value:
        """Floating-point operations. [FLOP]"""
        return self._total(self.timing.plan.flops)

    @property
    def weight_bytes(self) -> Value:
        """Bytes of weights read. [byte]"""
        return self._total(self.timing.plan.weight_bytes)

    @property
    def activation_bytes(self) -> Value:
        """Bytes of activations read and written, and of new K and V written. [byte]"""
        return self._total(self.timing.plan.activation_bytes)

    @property
    def kv_bytes(self) -> Value:
        """Bytes of K and V read: those of the context and of the new tokens. [byte]"""
        return self._total(self.timing.plan.kv_bytes)

    @property
    def state_bytes(self) -> Value:
        """Bytes of recurrent states, read and written back. [byte]"""
        return self._total(self.timing.plan.state_bytes)

    @property
    def bytes(self) -> Value:
        """All bytes moved. [byte]"""
        return self._total(self.timing.plan.bytes)

    @property
    def message_bytes(self) -> Value:
        """Bytes of the messages between devices, as benchmarks count them: the buffers of one rank. [byte]"""
        return self._total(self.timing.plan.message_bytes)

    @property
    def intensity(self) -> Value:
        """Arithmetic intensity. [FLOP/byte]"""
        return ratio(self.flops, self.bytes)

    @property
    def tokens(self) -> Value:
        """New tokens."""
        return self.collect(self.x[self.timing.plan.column(TOKENS)])

    # ---- times

    @cached_property
    def time_s(self) -> Value:
        """Expected time. [s]"""
        self.timing.require_peaks()
        return self.collect(self.timing.total_s(self.x, self.busy_s))

    @property
    def tokens_per_s(self) -> Value:
        """New tokens over expected time. [token/s]"""
        return self.tokens / self.time_s

    @property
    def floor_s(self) -> Value:
        """Time that nothing can beat; of memory alone where the device has no arithmetic peak. [s]"""
        return self.collect(self.deployment.floor.seconds(self._floor_x))

    @cached_property
    def _floor_x(self) -> Matrix:
        """Features of the least work: a plan of its own, since its forms of attention and its experts differ."""
        if self.floor_columns is not None:
            return self.floor_columns
        wanted = self.deployment.floor.plan.features
        if self.x.shape[1] == 0:
            return np.zeros((len(wanted), 0))
        return features(wanted, self.groups)

    @property
    def memory_time_s(self) -> Value:
        """Memory traffic alone at the rates reached: less than `time_s`, and it needs no arithmetic peak. [s]"""
        return self.collect(self.timing.memory_only_s(self.x))

    @cached_property
    def rows_s(self) -> Matrix:
        """Seconds of every row of every pass."""
        self.timing.require_peaks()
        return self.timing.rows_s(self.x, self.busy_s)

    @cached_property
    def stretch(self) -> float | Matrix:
        """Factor by which the power limit slows compute work."""
        return self.timing.stretch(self.x, self.busy_s)

    @cached_property
    def parts_s(self) -> NDArray[np.float64]:
        """Seconds by compute, memory, overhead and communication, row and pass."""
        self.timing.require_peaks()
        return self.timing.parts_s(self.x, self.busy_s)

    @property
    def parts(self) -> dict[str, Value]:
        """
        Expected time by what it is spent on: ``compute``, ``memory``, ``overhead`` and ``communication``. [s]

        Examples
        --------
        >>> import rooflinekit as rk
        >>> parts = rk.Deployment("qwen3-8b", "h200-sxm", tensor_parallel=2).decode(context_tokens=2048).parts
        >>> parts["memory"] > parts["communication"] > 0
        True
        """
        sums = (self.collect(part.sum(axis=0)) for part in self.parts_s)
        return dict(zip(PARTS, sums, strict=True))

    @property
    def communication_share(self) -> Value:
        """Part of the expected time that messages between devices take."""
        return self.parts["communication"] / self.time_s

    def name_bounds(self, parts: NDArray[np.float64]) -> Value:
        """Name the largest of the parts, summed over rows and passes."""
        sums = np.array([np.atleast_1d(self.collect(part.sum(axis=0))).reshape(-1) for part in parts])
        names = np.array(PARTS)[sums.argmax(axis=0)]
        return str(names[0]) if self.shape == () else names.reshape(self.shape)

    @property
    def bound(self) -> Value:
        """What takes most of the time: ``compute``, ``memory``, ``overhead`` (launches) or ``communication``."""
        return self.name_bounds(self.parts_s)

    def interval(self, level: float = 0.8) -> tuple[Value, Value]:
        """
        Bounds that hold the measured time with this probability.

        Parameters
        ----------
        level : float
            Probability, between 0 and 1.

        Returns
        -------
        low, high : float or array
            [s] The lower one is never below the floor.

        Raises
        ------
        NotCalibratedError
            The entry carries no measured spread: a roofline, or an efficiency handed in without one.
        InvalidInputError
            The level is no probability.

        Notes
        -----
        Log-normal: spreads of kernel classes and of whole passes on data that were not fitted, and the covariance of
        the fitted constants. :meth:`error_budget` lists them.

        Examples
        --------
        >>> import rooflinekit as rk
        >>> step = rk.Deployment("qwen3-8b", "h200-sxm").decode(context_tokens=2048)
        >>> low, high = step.interval(level=0.8)
        >>> low < step.time_s < high
        True
        """
        from rooflinekit.phases.uncertainty import interval_factors  # noqa: PLC0415 - it reads estimates

        below, above = (self._shaped(factor) for factor in interval_factors(self, level))
        return np.maximum(self.time_s * below, self.floor_s) if self.shape else max(
            self.time_s * below, self.floor_s
        ), self.time_s * above

    def _shaped(self, values: Matrix) -> Value:
        return float(values[0]) if self.shape == () else values.reshape(self.shape)

    def error_budget(self) -> "ErrorBudget":
        """List what contributes how much to the interval, and which single measurement would shrink it most."""
        from rooflinekit.phases.uncertainty import error_budget  # noqa: PLC0415 - as above

        return error_budget(self)

    # ---- parts

    @cached_property
    def operators(self) -> tuple[OperatorEstimate, ...]:
        """One row an operator, in the order of the pass."""
        return tuple(OperatorEstimate(self, index) for index in range(len(self.timing.plan.rows)))

    def operator(self, name: str) -> OperatorEstimate:
        """Return one row by name."""
        for row in self.operators:
            if row.name == name:
                return row
        message = f"no operator {name!r}: this pass has {', '.join(row.name for row in self.operators)}"
        raise InvalidInputError(message)

    @cached_property
    def steps(self) -> tuple["Estimate", ...]:
        """One estimate a pass, where this is a sum over passes of one point; else itself."""
        if self.passes is None or self.shape != ():
            return (self,)
        busy = np.broadcast_to(self.busy_s, self.x.shape[1])
        labels = self.labels or tuple(f"pass {i + 1} of {self.label}" for i in range(self.x.shape[1]))
        return tuple(
            replace(
                self,
                label=label,
                x=self.x[:, [i]],
                busy_s=float(busy[i]),
                passes=None,
                labels=(),
                floor_columns=self._floor_x[:, [i]],
            )
            for i, label in enumerate(labels)
        )

    @property
    def basis(self) -> str:
        """Name of the efficiency entry behind the time, and how near it is to this deployment."""
        return self.timing.laws.basis

    @property
    def notes(self) -> tuple[str, ...]:
        """What was chosen for the user, and what the estimate leaves out."""
        return self.deployment.notes

    def table(self) -> "pd.DataFrame":
        """Give the operators as a tidy DataFrame, one row an operator (and point, for a sweep)."""
        from rooflinekit.phases.frames import operator_table  # noqa: PLC0415 - pandas loads on first use

        return operator_table(self)

    def explain(self) -> "Term":
        """Give the tree of every term, its inputs and sources; its printed arithmetic re-evaluates to the values."""
        from rooflinekit.phases.explain import explain  # noqa: PLC0415 - it renders estimates, so it comes after them

        return explain(self)

    def sources(self) -> tuple[str, ...]:
        """List where the figures behind this estimate come from."""
        from rooflinekit.phases.sources import estimate_sources  # noqa: PLC0415 - as above

        return estimate_sources(self)

    # ---- for eyes

    def __repr__(self) -> str:
        """Give one line: what, how long, what bounds it, on which basis."""
        if self.shape != ():
            return f"{self.label}: {self.x.shape[1]:,} points ({self.basis})"
        try:
            return f"{self.label}: {units.duration(self.time_s)}, {self.bound}-bound ({self.basis})"
        except MissingFigureError:
            return f"{self.label}: at least {units.duration(self.floor_s)} by memory alone (no arithmetic peak)"

    def _repr_html_(self) -> str:
        """Give the line and the operator table, for notebooks."""
        from rooflinekit.phases.frames import operator_html  # noqa: PLC0415 - pandas loads on first use

        return operator_html(self)
