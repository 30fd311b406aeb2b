"""OperatorEstimate: one row of an estimate, all launches of one operator together."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rooflinekit import units
from rooflinekit.errors import MissingFigureError
from rooflinekit.operators.cost import Matrix

if TYPE_CHECKING:
    from rooflinekit.phases.estimate import Estimate

#: A Python float for one point, an array for a sweep.
Value = Any


@dataclass(frozen=True)
class OperatorEstimate:
    """
    One row of an estimate: all launches of one operator together.

    Attributes are computed on access: ``launches``, ``flops``, ``weight_bytes``, ``activation_bytes``, ``kv_bytes``,
    ``state_bytes``, ``message_bytes``, ``bytes``, ``intensity`` [FLOP/byte], ``compute_time_s``, ``memory_time_s``,
    ``launch_time_s``, ``serial_time_s`` and ``time_s``. ``kv_bytes`` are K and V read by attention; what ``kv_write``
    writes is part of its activations.
    """

    estimate: "Estimate"
    index: int

    @property
    def name(self) -> str:
        """Name of the operator, as engineers know it."""
        return self.estimate.timing.plan.rows[self.index].name

    @property
    def op_class(self) -> str:
        """Class whose law times it."""
        return self.estimate.timing.plan.rows[self.index].op_class

    @property
    def dtype(self) -> str:
        """Dtype it computes in."""
        return self.estimate.timing.plan.rows[self.index].dtype

    def _count(self, matrix: Matrix) -> Value:
        return self.estimate.collect(matrix[self.index] @ self.estimate.x)

    @property
    def launches(self) -> Value:
        """Kernel launches."""
        return self._count(self.estimate.timing.plan.launches)

    @property
    def flops(self) -> Value:
        """Floating-point operations of products and of attention. [FLOP]"""
        return self._count(self.estimate.timing.plan.flops)

    @property
    def weight_bytes(self) -> Value:
        """Bytes of weights, once a pass. [byte]"""
        return self._count(self.estimate.timing.plan.weight_bytes)

    @property
    def activation_bytes(self) -> Value:
        """Bytes of inputs and outputs. [byte]"""
        return self._count(self.estimate.timing.plan.activation_bytes)

    @property
    def state_bytes(self) -> Value:
        """Bytes of recurrent states, read and written back. [byte]"""
        return self._count(self.estimate.timing.plan.state_bytes)

    @property
    def kv_bytes(self) -> Value:
        """Bytes of K and V read. [byte]"""
        return self._count(self.estimate.timing.plan.kv_bytes)

    @property
    def message_bytes(self) -> Value:
        """Bytes of messages to other devices: the buffers of one rank. [byte]"""
        return self._count(self.estimate.timing.plan.message_bytes)

    @property
    def bytes(self) -> Value:
        """All bytes. [byte]"""
        return self._count(self.estimate.timing.plan.bytes)

    @property
    def intensity(self) -> Value:
        """Arithmetic intensity. [FLOP/byte]"""
        return ratio(self.flops, self.bytes)

    @property
    def compute_time_s(self) -> Value:
        """FLOPs over the arithmetic rate reached. [s]"""
        estimate = self.estimate
        needed = self.estimate.timing.plan.flops[self.index].any()
        if needed:
            estimate.timing.require_peaks()
        return estimate.collect(estimate.stretch * (estimate.timing.compute[self.index] @ estimate.x))

    @property
    def memory_time_s(self) -> Value:
        """Bytes over the memory rate reached; needs no arithmetic peak. [s]"""
        return self._count(self.estimate.timing.memory)

    @property
    def launch_time_s(self) -> Value:
        """Fixed time of the launches. [s]"""
        return self._count(self.estimate.timing.launch)

    @property
    def serial_time_s(self) -> Value:
        """What overlaps with nothing: attention's queries and outputs, the quantisation of a product's input. [s]"""
        return self._count(self.estimate.timing.serial)

    @property
    def time_s(self) -> Value:
        """Expected time. [s]"""
        return self.estimate.collect(self.estimate.rows_s[self.index])

    @property
    def bound(self) -> Value:
        """What takes most of its time: ``compute``, ``memory``, ``overhead`` or ``communication``."""
        return self.estimate.name_bounds(self.estimate.parts_s[:, [self.index]])

    def __repr__(self) -> str:
        """Give the row in one line where it is a single point."""
        if isinstance(self.flops, float):
            work = f"{units.si(self.flops, 'FLOP')}, {units.si(self.bytes, 'B')}"
            work = f"{units.si(self.message_bytes, 'B')} sent" if self.op_class == "collective" else work
            return f"{self.name}: {units.count(self.launches)} launches, {work}, {_say(lambda: self.time_s)}"
        return f"{self.name}: {np.size(self.flops)} points"


def ratio(above: Value, below: Value) -> Value:
    """Divide, with 0 where there is nothing to divide by."""
    if isinstance(below, float):
        return above / below if below else 0.0
    return np.divide(above, below, out=np.zeros_like(above), where=below > 0)


def _say(value: Callable[[], Value]) -> str:
    try:
        return units.duration(value())
    except MissingFigureError:
        return "no arithmetic peak"
