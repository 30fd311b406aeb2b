"""Kernels matched to operators by family and by the arithmetic of their counts: a x layers + b a pass, times passes."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import log
from typing import NamedTuple

import numpy as np

from rooflinekit.calibration.kernel_families import FAMILIES, family_of
from rooflinekit.measurements import Measurement
from rooflinekit.phases.estimate import Estimate
from rooflinekit.specs.step import amount

#: Operators tried together for one kernel: a pass has few shapes of a class, and more would match anything.
_MOST_TOGETHER = 6
#: Kernels and operators that are matched in order: a file that lists more of one count is of several kinds of pass.
_MOST_IN_ORDER = 14


class Passes(NamedTuple):
    """So many equal passes in a range, as one estimate; ``name`` is how a table calls them."""

    name: str
    estimate: Estimate
    times: float


class Part(NamedTuple):
    """One operator in all passes of a kind: what the model puts there."""

    passes: str
    times: float
    operator: str
    op_class: str
    launches: float
    seconds: float
    flops: float
    bytes: float
    rows: float


@dataclass(frozen=True)
class Matched:
    """
    One listed kernel, and the operators that its family and count point to.

    ``listed_s`` is what the file holds, ``explained_s`` what the laws predict for the operators named, ``rest_s`` the
    difference. ``counted`` tells whether the launches of these operators add up to the kernel's; ``assists`` marks a
    second kernel of operators that another one computes (a split product's sum, say), so its time is their rest.
    """

    name: str
    family: str
    count: float
    listed_s: float
    parts: tuple[Part, ...]
    counted: bool
    assists: bool = False

    @property
    def named(self) -> bool:
        """Whether an operator stands behind it."""
        return bool(self.parts) or self.assists

    @property
    def explained_s(self) -> float:
        """Predicted seconds of the operators named."""
        return sum(part.seconds for part in self.parts)

    @property
    def rest_s(self) -> float:
        """What the file lists beyond that."""
        return self.listed_s - self.explained_s

    @property
    def arithmetic(self) -> str:
        """Write the launches as so many a pass times passes: ``73 x 64 + 1``; empty where they do not add up."""
        if not self.counted:
            return ""
        launches: dict[float, float] = {}
        for part in self.parts:
            launches[part.times] = launches.get(part.times, 0.0) + part.launches
        by_times = sorted(launches.items(), reverse=True)
        told = " + ".join(f"{n / times:g} x {times:g}" if times > 1 else f"{n:g}" for times, n in by_times)
        several = self.count / sum(launches.values())
        return told if several == 1.0 else f"{several:g} x {told}"

    @property
    def operators(self) -> str:
        """Name the operators with the passes that they are of."""
        if not self.count:
            return "none: the launches of two runs cancel"
        if self.assists:
            return f"beside the other {self.family} kernels"
        by_pass: dict[str, list[str]] = {}
        for part in self.parts:
            by_pass.setdefault(part.passes, []).append(part.operator)
        return "; ".join(f"{name}: {', '.join(found)}" for name, found in by_pass.items())


def parts_of(passes: Iterable[Passes]) -> list[Part]:
    """List every operator of every kind of pass."""
    return [
        Part(
            one.name, one.times, row.name, row.op_class, row.launches * one.times, row.time_s * one.times,
            row.flops * one.times, row.bytes * one.times, _rows(one.estimate, row.name),
        )
        for one in passes
        for row in one.estimate.operators
        if row.launches
    ]  # fmt: skip


def _rows(estimate: Estimate, operator: str) -> float:
    """Count the rows that a product works on: the output layer has those that are sampled, the others each token."""
    if operator != "lm_head":
        return float(estimate.tokens)
    return float(np.sum([amount(one.sequences) * amount(one.sampled_tokens) for one in estimate.groups]))


def match(
    kernels: Sequence[Measurement], passes: Sequence[Passes], further: Sequence[Part] = ()
) -> tuple[list[Matched], list[Part]]:
    """
    Match kernels to operators, the longest first; what no kernel is left for is returned beside them.

    Parameters
    ----------
    kernels : sequence of Measurement
        Of quantity ``kernel_time_s``, with names and counts.
    passes : sequence of Passes
        What ran in the range.
    further : sequence of Part
        Operators of other passes that may be in it.

    Returns
    -------
    matched, unlisted : list of Matched, list of Part
        One line a kernel in their order; operators that no listed kernel computes.

    Notes
    -----
    Of all sets of operators of the kernel's family whose launches add up to its count, the one whose predicted time is
    nearest is taken. Kernels of one family and count that stand for one operator each are then matched together, so
    that all are near: where every one is faster than predicted, the longest does not take the second one's operator.
    Without such a set, small kernels (fused as each engine likes) share what is left of their class by family; larger
    ones stay unexplained.
    """
    left = [*parts_of(passes), *further]
    found: dict[int, Matched] = {}
    for index in sorted(range(len(kernels)), key=lambda i: -kernels[i].value):
        kernel = kernels[index]
        family = family_of(kernel.name)
        parts, left = _taken(kernel, left, FAMILIES.get(family, ()))
        found[index] = Matched(kernel.name, family, kernel.count or 0.0, kernel.value, parts, counted=bool(parts))
    matched, left = _in_order([found[index] for index in range(len(kernels))], left)
    return _shared(matched, left)


def _taken(kernel: Measurement, left: Sequence[Part], classes: Sequence[str]) -> tuple[tuple[Part, ...], list[Part]]:
    """Take the operators that a kernel computes, from the class that its name points to first."""
    if kernel.value <= 0 or not kernel.count:  # a difference of two runs
        return (), list(left)
    for wanted in (*((one,) for one in classes), tuple(classes)):
        candidates = [part for part in left if _class_of(part) in wanted]
        parts = _nearest(kernel, candidates) or _several_launches(kernel, candidates)
        if parts:
            return parts, [part for part in left if part not in parts]
        share = _once_in_several(kernel, candidates)
        if share:
            part, taken = share
            rest = _scaled(part, 1.0 - taken.launches / part.launches)
            return (taken,), [rest if one is part else one for one in left]
    return (), list(left)


def _class_of(part: Part) -> str:
    """Name the class that kernels tell apart: sampling is priced as a norm, and is none."""
    return "sampling" if part.operator == "sampling" else part.op_class


def _several_launches(kernel: Measurement, candidates: Sequence[Part]) -> tuple[Part, ...]:
    """Find the operator that an engine runs as several launches each time: Q and K turned one after the other."""
    fitting = [part for part in candidates if kernel.count and kernel.count % part.launches == 0 and part.launches > 1]
    return min(((part,) for part in fitting), key=lambda parts: _distance(kernel.value, parts), default=())


def _once_in_several(kernel: Measurement, candidates: Sequence[Part]) -> tuple[Part, Part] | None:
    """Find the operator of which this kernel is a part: one of the two norms of a block."""
    fitting = [part for part in candidates if kernel.count and part.launches % kernel.count == 0]
    shares = [(part, _scaled(part, (kernel.count or 0.0) / part.launches)) for part in fitting]
    return min(shares, key=lambda pair: _distance(kernel.value, [pair[1]]), default=None)


def _scaled(part: Part, share: float) -> Part:
    scaled = (share * value for value in (part.launches, part.seconds, part.flops, part.bytes))
    launches, seconds, flops, moved = scaled
    return part._replace(launches=launches, seconds=seconds, flops=flops, bytes=moved)


def _nearest(kernel: Measurement, candidates: Sequence[Part]) -> tuple[Part, ...]:
    """Choose the operators whose launches add up to the kernel's and whose time is nearest to its."""
    fitting = _adding_up(kernel.count or 0.0, candidates)
    return min(fitting, key=lambda parts: _distance(kernel.value, parts), default=())


def _adding_up(count: float, candidates: Sequence[Part]) -> Iterator[tuple[Part, ...]]:
    for together in range(1, min(len(candidates), _MOST_TOGETHER) + 1):
        for parts in combinations(candidates, together):
            if sum(part.launches for part in parts) == count:
                yield parts


def _distance(seconds: float, parts: Sequence[Part]) -> float:
    return abs(log(sum(part.seconds for part in parts) / seconds))


def _in_order(matched: list[Matched], left: list[Part]) -> tuple[list[Matched], list[Part]]:
    """Match kernels of one family and count again, all together, where each stands for one operator."""
    alike: dict[tuple[str, str, float], list[int]] = {}
    for index, one in enumerate(matched):
        if len(one.parts) == 1 and one.parts[0].launches == one.count:
            alike.setdefault((one.family, _class_of(one.parts[0]), one.count), []).append(index)
    for (_, op_class, count), found in alike.items():
        free = [part for part in left if _class_of(part) == op_class and part.launches == count]
        if len(found) > 1 and len(found) + len(free) <= _MOST_IN_ORDER:
            parts = _nearest_in_all([matched[i] for i in found], free)
            left = [part for part in left if part not in free]
            left += [part for part in (*free, *(matched[i].parts[0] for i in found)) if part not in parts]
            for i, part in zip(found, parts, strict=True):
                matched[i] = replace(matched[i], parts=(part,))
    return matched, left


def _nearest_in_all(kernels: Sequence[Matched], free: Sequence[Part]) -> tuple[Part, ...]:
    """Choose an operator for each kernel with the least sum of squared logarithms: on a line the order is kept."""
    parts = sorted((*free, *(one.parts[0] for one in kernels)), key=lambda part: part.seconds)
    order = sorted(range(len(kernels)), key=lambda i: kernels[i].listed_s)

    def cost(chosen: Iterable[Part]) -> float:
        return sum(_distance(kernels[i].listed_s, [part]) ** 2 for i, part in zip(order, chosen, strict=True))

    chosen = dict(zip(order, min(combinations(parts, len(kernels)), key=cost), strict=True))
    return tuple(chosen[i] for i in range(len(kernels)))


def _shared(matched: list[Matched], left: list[Part]) -> tuple[list[Matched], list[Part]]:
    """Give what is left of a class of small operators to the kernel of its family that takes longest."""
    taken = list(matched)
    for family, classes in FAMILIES.items():
        rest = [part for part in left if _class_of(part) in classes]
        open_ones = [i for i, one in enumerate(taken) if one.family == family and not one.parts and one.listed_s > 0]
        if rest and open_ones:
            longest = max(open_ones, key=lambda i: taken[i].listed_s)
            one = taken[longest]
            taken[longest] = replace(one, parts=tuple(rest))
            left = [part for part in left if part not in rest]
    computed = {one.family for one in taken if one.parts}
    return [replace(one, assists=not one.parts and one.family in computed and one.count > 0) for one in taken], left
