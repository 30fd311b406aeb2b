"""Plan, device rates and laws become a Timing: matrices that turn the features of a step into seconds."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from rooflinekit import units
from rooflinekit.errors import MissingFigureError
from rooflinekit.operators.cost import ONE, Matrix, Plan, Row
from rooflinekit.roofline.communication import CollectiveLaw, Links, collective_law
from rooflinekit.roofline.law import floor_time, joined_time, power_limit_stretch
from rooflinekit.roofline.laws import Laws
from rooflinekit.specs.efficiency import AttentionLaw, MixtureLaw, ProductLaw

#: What a second may be spent on.
PARTS = ("compute", "memory", "overhead", "communication")
#: Points timed at once, so that the intermediate rows stay in the processor's cache.
BLOCK = 4096


@dataclass(frozen=True)
class Rates:
    """The peaks that a timing runs against, the limits behind its floor, and the links to other devices."""

    name: str
    bytes_per_s: float
    flops_per_s: Mapping[str, float]
    floor_bytes_per_s: float
    floor_flops_per_s: Mapping[str, float]
    cache_bytes: float
    described: str
    vector_flops_per_s: float = float("inf")
    links: Links | None = None

    def flops(self, dtype: str) -> float:
        """Return the peak in this dtype, or not-a-number where the file holds none."""
        return self.flops_per_s.get(dtype, float("nan"))


@dataclass(frozen=True)
class RowLaw:
    """One row's constants, kept apart for `explain()`: parts of which peak, launch time, what else is paid."""

    compute: float
    peak_flops_per_s: float
    memory: float
    peak_bytes_per_s: float
    launch_s: float
    exponent: float
    basis: str
    softmax_flops_per_score: float = 0.0
    tile_tokens: float = 0.0
    activation: float | None = None
    quantisation_ps_per_element: float = 0.0
    inner_ns_per_element: float = 0.0
    unpack_flops_per_weight: float = 0.0
    vector_flops_per_flop: float = 0.0
    collective: CollectiveLaw | None = None

    @property
    def flops_per_s(self) -> float:
        """Arithmetic rate reached."""
        return self.compute * self.peak_flops_per_s

    @property
    def bytes_per_s(self) -> float:
        """Memory rate reached."""
        return self.memory * self.peak_bytes_per_s


@dataclass(frozen=True, eq=False)
class Timing:
    """A plan under rates and laws: per row the seconds of compute, memory, launches and serial extras, by feature."""

    plan: Plan
    rates: Rates
    laws: Laws
    row_laws: tuple[RowLaw, ...]
    compute: Matrix
    memory: Matrix
    launch: Matrix
    serial: Matrix
    missing: tuple[str, ...]

    @cached_property
    def exponents(self) -> NDArray[np.float64]:
        """Exponent of each row's law."""
        return np.array([law.exponent for law in self.row_laws])

    @cached_property
    def _curved(self) -> NDArray[np.bool_]:
        """Rows that are not linear: compute and memory time that do not just add up, or that a power limit bends."""
        added = (self.exponents == 1.0) & (self.laws.power_limit is None)
        curved: NDArray[np.bool_] = self.compute.any(axis=1) & ~added
        return curved

    @cached_property
    def _joined(self) -> tuple[tuple[float, Matrix, Matrix], ...]:
        """Rows whose compute and memory time are joined, by exponent; all others are linear in the features."""
        exponents = sorted(set(self.exponents[self._curved]))
        chosen = [self._curved & (self.exponents == exponent) for exponent in exponents]
        return tuple((p, self.compute[rows], self.memory[rows]) for p, rows in zip(exponents, chosen, strict=True))

    @cached_property
    def collectives(self) -> tuple[tuple[int, CollectiveLaw], ...]:
        """Rows that are messages between devices, with their laws; they follow the root of what they send."""
        return tuple((i, law.collective) for i, law in enumerate(self.row_laws) if law.collective is not None)

    def _sent(self, row: int, law: CollectiveLaw, x: Matrix) -> Matrix:
        """Seconds of one row of messages."""
        return law.seconds(self.plan.launches[row] @ x, self.plan.message_bytes[row] @ x)

    @cached_property
    def _linear(self) -> NDArray[np.float64]:
        added = (self.compute + self.memory)[~self._curved]
        total: NDArray[np.float64] = (self.launch + self.serial).sum(axis=0) + added.sum(axis=0)
        return total

    def require_peaks(self) -> None:
        """Raise the error that names the missing peak, if a time would need one."""
        if self.missing:
            have = ", ".join(self.rates.flops_per_s) or "none"
            needed = " and ".join(self.missing)
            message = (
                f"{self.rates.name} has no {self.rates.described} peak for {needed} (it has: {have}): a time needs it. "
                "Choose another `compute=`, or add the peak to the device file; counts and memory times need none"
            )
            raise MissingFigureError(message)

    @cached_property
    def _limit(self) -> tuple[float, float, NDArray[np.float64]] | None:
        """Burst budget in seconds, sustained part of the burst rate, and the seconds of all compute work by feature."""
        limit = self.laws.power_limit
        return None if limit is None else (limit[0] * units.MILLI, limit[1], self.compute.sum(axis=0))

    def stretch(self, x: Matrix, busy_s: float | Matrix) -> float | Matrix:
        """Return the factor by which the power limit slows the compute terms of each pass."""
        if self._limit is None:
            return 1.0
        budget_s, sustained, work = self._limit
        return power_limit_stretch(work @ x, busy_s, budget_s, sustained)

    def total_s(self, x: Matrix, busy_s: float | Matrix = 0.0) -> NDArray[np.float64]:
        """Seconds of each pass: (features, points) to (points,). The inner call of curves and simulators."""
        points = x.shape[1]
        if points <= BLOCK:
            return self._block(x, busy_s)
        busy = np.broadcast_to(busy_s, points)
        starts = range(0, points, BLOCK)
        return np.concatenate([self._block(x[:, i : i + BLOCK], busy[i : i + BLOCK]) for i in starts])

    def _block(self, x: Matrix, busy_s: float | Matrix) -> NDArray[np.float64]:
        total: NDArray[np.float64] = self._linear @ x
        stretch = self.stretch(x, busy_s)
        limited = bool(np.any(stretch != 1.0))  # a sweep of decode steps stays below the limit
        moving = None if limited or x.shape[1] <= 1 else _moving(x)
        for exponent, compute, memory in self._joined:
            if moving is None:
                total += _sum_joined(stretch * (compute @ x), memory @ x, exponent)
                continue
            rows = ((compute + memory) @ moving) > 0.0
            # the other rows are the same at every point: a sweep over context leaves the products as they are
            total += _sum_joined(compute[~rows] @ x[:, :1], memory[~rows] @ x[:, :1], exponent)
            total += _sum_joined(compute[rows] @ x, memory[rows] @ x, exponent)
        for row, law in self.collectives:
            total += self._sent(row, law, x)
        return total

    def rows_s(self, x: Matrix, busy_s: float | Matrix = 0.0) -> Matrix:
        """Seconds of every row: (features, points) to (rows, points); they add up to `total_s`."""
        compute, memory = self.stretch(x, busy_s) * (self.compute @ x), self.memory @ x
        joined = np.empty_like(memory)
        for exponent in set(self.exponents):
            rows = self.exponents == exponent
            joined[rows] = joined_time(compute[rows], memory[rows], exponent)
        rows_s: Matrix = (self.launch + self.serial) @ x + joined
        for index, law in self.collectives:
            rows_s[index] += self._sent(index, law, x)
        return rows_s

    def parts_s(self, x: Matrix, busy_s: float | Matrix = 0.0) -> Matrix:
        """Seconds by :data:`PARTS`, row and pass: each row's joined time goes to its larger half."""
        compute = self.stretch(x, busy_s) * (self.compute @ x)
        memory, launch = self.memory @ x + self.serial @ x, self.launch @ x
        rest = self.rows_s(x, busy_s) - launch
        sent = np.zeros_like(rest)
        for index, _ in self.collectives:
            sent[index], rest[index] = rest[index], 0.0
        return np.stack([np.where(compute >= memory, rest, 0.0), np.where(compute >= memory, 0.0, rest), launch, sent])

    def memory_only_s(self, x: Matrix) -> NDArray[np.float64]:
        """Seconds of memory traffic alone: a bound that needs no arithmetic peak."""
        seconds: NDArray[np.float64] = self.memory.sum(axis=0) @ x
        return seconds


def _moving(x: Matrix) -> NDArray[np.bool_]:
    """Tell which features differ between points; the ends tell it of most, and only the others are compared in full."""
    moving: NDArray[np.bool_] = x[:, 0] != x[:, -1]
    still = ~moving
    moving[still] = (x[still] != x[still, :1]).any(axis=1)
    return moving


def _sum_joined(compute_s: Matrix, memory_s: Matrix, exponent: float) -> NDArray[np.float64]:
    total: NDArray[np.float64] = np.asarray(joined_time(compute_s, memory_s, exponent)).sum(axis=0)
    return total


@dataclass(frozen=True, eq=False)
class Floor:
    """Seconds that nothing can beat, from a plan of the least work: fewest operations, fewest experts.

    Of a rank; each of a pipeline's stages has a cache of its own. Messages are taken to cost nothing.
    """

    plan: Plan
    rates: Rates
    stages: int = 1

    @cached_property
    def _work(self) -> tuple[Matrix, Matrix]:
        """Seconds of operations at the highest clock, and compulsory bytes (weights, K and V, states), by row."""
        plan = self.plan
        peaks = [self.rates.floor_flops_per_s.get(row.dtype, np.inf) for row in plan.rows]
        return plan.flops / np.array(peaks)[:, None], plan.weight_bytes + plan.kv_bytes + plan.state_bytes

    def _bound(self, compute_s: Matrix, compulsory: Matrix) -> Matrix:
        rates, caches = self.rates, self.rates.cache_bytes * self.stages
        return np.asarray(floor_time(compute_s, compulsory, caches, rates.floor_bytes_per_s))

    def seconds(self, x: Matrix) -> NDArray[np.float64]:
        """Seconds of each pass; without an arithmetic peak, those of memory alone."""
        compute, compulsory = self._work
        return np.atleast_1d(self._bound(compute.sum(axis=0) @ x, compulsory.sum(axis=0) @ x))

    def rows_s(self, x: Matrix) -> Matrix:
        """Seconds of every row alone, each with the whole cache to itself: what no kernel can beat."""
        compute, compulsory = self._work
        return self._bound(compute @ x, compulsory @ x)


def compile_timing(plan: Plan, rates: Rates, laws: Laws) -> Timing:
    """Fold rates and constants into the plan's coefficients."""
    kinds = {row[1:]: row for row in plan.rows}  # all but the name
    by_kind = {kind: _row_law(row, rates, laws) for kind, row in kinds.items()}
    row_laws = tuple(by_kind[row[1:]] for row in plan.rows)
    needs = {row.dtype for row, flops in zip(plan.rows, plan.flops, strict=True) if flops.any()}
    missing = tuple(sorted(dtype for dtype in needs if dtype not in rates.flops_per_s))

    def column(name: str) -> Matrix:
        return np.array([[getattr(law, name)] for law in row_laws], dtype=np.float64)

    work = plan.flops + plan.scores * column("softmax_flops_per_score")
    bandwidth = rates.bytes_per_s
    streamed = np.array([law.activation or np.inf for law in row_laws])[:, None] * bandwidth
    apart = np.isfinite(streamed)  # attention's queries and outputs do not overlap with its stream of K and V
    traffic = np.where(apart, plan.kv_bytes, plan.bytes) + plan.kv_row_bytes
    serial = np.where(apart, plan.activation_bytes + plan.weight_bytes, 0.0) / streamed
    serial = serial + plan.input_elements * column("quantisation_ps_per_element") * units.PICO
    serial = serial + plan.inner_elements * column("inner_ns_per_element") * units.NANO
    with np.errstate(invalid="ignore"):
        compute = np.where(work == 0.0, 0.0, work / column("flops_per_s"))
    vector = plan.packed_weights * column("unpack_flops_per_weight") + plan.flops * column("vector_flops_per_flop")
    compute = compute + vector / rates.vector_flops_per_s
    return Timing(
        plan=_tiled(plan, laws),
        rates=rates,
        laws=laws,
        row_laws=row_laws,
        compute=compute,
        memory=traffic / column("bytes_per_s"),
        launch=plan.launches * column("launch_s") + _host(plan, laws),
        serial=serial,
        missing=missing,
    )


def _host(plan: Plan, laws: Laws) -> Matrix:
    """Put the host's time for a pass on its first row."""
    host: Matrix = np.zeros_like(plan.launches)
    if laws.step_us and ONE in plan.features:
        host[0, plan.column(ONE)] = laws.step_us * units.MICRO
    return host


def _tiled(plan: Plan, laws: Laws) -> Plan:
    """Tell the features that count rows short of a tile how large the attention kernel's tile is."""
    if not plan.kv_row_bytes.any():
        return plan
    variant = next((row.variant for row in plan.rows if row.op_class == "attention"), "")
    tile = laws.attention(variant)[0].tile_tokens
    tiled = (one._replace(tile=tile) if one.kind == "short_rows" else one for one in plan.features)
    return replace(plan, features=tuple(tiled))


#: Class of operator -> its law in a dtype, for the classes whose compute and memory time are joined.
_JOINED: Mapping[str, Callable[[Laws, str, str], tuple[ProductLaw | MixtureLaw | AttentionLaw, str]]] = {
    "product": lambda laws, dtype, _: laws.product(dtype),
    "mixture": lambda laws, dtype, _: laws.mixture(dtype),
    "attention": lambda laws, _, variant: laws.attention(variant),
}
_FURTHER = (
    "softmax_flops_per_score",
    "tile_tokens",
    "activation",
    "quantisation_ps_per_element",
    "inner_ns_per_element",
    "unpack_flops_per_weight",
    "vector_flops_per_flop",
)


def _collective_row_law(row: Row, rates: Rates, gap_s: float) -> RowLaw:
    """Take the law of messages; the pause before each launch joins their latency."""
    if rates.links is None:
        message = f"{rates.name} has no links: messages between devices cannot be timed"
        raise MissingFigureError(message)
    law = collective_law(row.variant, row.ranks, row.nodes, rates.links)
    basis = f"{row.variant} over {rates.links.inside.name}"
    return RowLaw(1.0, float("nan"), 1.0, rates.bytes_per_s, gap_s, 1.0, basis, collective=law)


def _row_law(row: Row, rates: Rates, laws: Laws) -> RowLaw:
    _, op_class, dtype, variant, *_ = row
    peak, bandwidth, gap_s = rates.flops(dtype), rates.bytes_per_s, laws.gap_us * units.MICRO
    if op_class == "collective":
        return _collective_row_law(row, rates, gap_s)
    if op_class in _JOINED:
        law, basis = _JOINED[op_class](laws, dtype, variant)
        peak = rates.flops_per_s.get(getattr(law, "peak", None) or dtype, peak)
        launch = law.launch_us * units.MICRO + gap_s
        further = {name: getattr(law, name) for name in _FURTHER if hasattr(law, name)}
        return RowLaw(law.compute, peak, law.memory, bandwidth, launch, law.exponent, basis, **further)
    if op_class == "scan":  # no scan has been measured: products' arithmetic, norms' bytes, the two added
        product, said = laws.product(dtype)
        small, basis = laws.elementwise("norm")
        launch = small.launch_us * units.MICRO + gap_s
        return RowLaw(product.compute, peak, small.memory, bandwidth, launch, 1.0, f"{basis}, {said}: unmeasured")
    small, basis = laws.elementwise(op_class)
    return RowLaw(1.0, peak, small.memory, bandwidth, small.launch_us * units.MICRO + gap_s, 1.0, basis)
