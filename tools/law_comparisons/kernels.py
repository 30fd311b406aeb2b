"""Laws of kernels on eight devices: fitted to some shapes or devices, judged on the others."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from law_comparisons.judging import FOLDS, Errors, Result, Rows, changed, errors, folds
from rooflinekit.calibration import entries
from rooflinekit.calibration.entries import Stage, none
from rooflinekit.calibration.fit import fit
from rooflinekit.calibration.observations import Observations
from rooflinekit.calibration.references import kernel_tables
from rooflinekit.specs.efficiency import Efficiency


class Law(NamedTuple):
    """A law of kernels: which constants are fitted, which are held at a value, and what is counted in another way.

    ``own`` are fitted only where a device has kernels of its own. Of several ways to count, the one with the least
    misfit on the rows that are fitted is taken.
    """

    name: str
    free: tuple[str, ...]
    held: Mapping[str, float | None] = {}
    own: tuple[str, ...] = ()
    kept: bool = False
    said: str = ""
    counts: tuple[Callable[[Observations], Observations], ...] = (lambda one: one,)


class Kernels(NamedTuple):
    """A class of kernels: where its constants are, the rows to fit, the stages before, and the rows that are judged."""

    place: str
    rows: Callable[[Rows], list[Observations]]
    before: Callable[[Rows, bool], list[Stage]] = lambda _rows, _own: []
    judged: Callable[[Rows], list[Observations]] | None = None


def fitted(kind: Kernels, law: Law, kernels: Rows, begin: Efficiency, *, own: bool) -> tuple[Efficiency, Any]:
    """Fit a law to the kernels of its class, and say by which count."""
    fields = (*law.free, *(law.own if own else ()))
    for field, value in law.held.items():
        begin = changed(begin, f"{kind.place}.{field}", value)
    best: tuple[float, Efficiency, Any] | None = None
    for count in law.counts:
        rows = [count(one) for one in kind.rows(kernels)]
        entry, residuals = begin, np.zeros(1)
        if fields:
            places = {field: [f"{kind.place}.{field}"] for field in fields}
            weights = entries.equal_by_generation(rows)
            found = fit(rows, begin, places, weights=weights, checked=False, fallbacks=none)
            entry, residuals = found.efficiency, weights * np.minimum(np.abs(found.residuals), 1.0)
        if best is None or residuals.mean() < best[0]:
            best = float(residuals.mean()), entry, count
    if best is None:
        raise ValueError(law)
    return best[1], best[2]


class Split(NamedTuple):
    """Kernels to fit, those to predict, and the entry that fits begin with where all others were fitted first."""

    train: list[Observations]
    kin: list[Observations]
    test: list[Observations]
    own: bool


@cache
def splits() -> tuple[Split, ...]:
    """Split the tables: each device by shapes, and each device left out."""
    tables, found = kernel_tables(), []
    for device in dict.fromkeys(one.device for one in tables):
        mine = [(one, folds(one)) for one in tables if one.device.id == device.id]
        for fold in range(FOLDS):
            train = [one.take(dealt != fold) for one, dealt in mine]
            found.append(Split(train, [], [one.take(dealt == fold) for one, dealt in mine], own=True))
        rest = [one for one in tables if one.device.id != device.id]
        kin = [one for one in rest if one.device.generation == device.generation]
        found.append(Split(rest, kin, [one for one, _ in mine], own=False))
    return tuple(found)


#: Entries after the stages before a class, by class and split: the same for all of its laws.
_BEFORE: dict[tuple[str, int, bool], Efficiency] = {}


def before(kind: Kernels, number: int, kin: bool) -> Efficiency:  # noqa: FBT001 - part of a key
    """Fit the stages before a class, once."""
    key = (kind.place, number, kin)
    if key not in _BEFORE:
        split = splits()[number]
        begin = before(kind, number, False) if kin else entries.kernel_start()  # noqa: FBT003
        stages = kind.before(split.kin if kin else split.train, split.own)
        _BEFORE[key] = entries.run(stages, begin, none)[0]
    return _BEFORE[key]


def kernel_result(kind: Kernels, law: Law) -> Result:
    """Judge one law of kernels: on other shapes of each device, and on each device left out."""
    own: list[Errors] = []
    left: list[Errors] = []
    for number, split in enumerate(splits()):
        test = (kind.judged or kind.rows)(split.test)
        if not test or not kind.rows(split.train):
            continue
        begin = before(kind, number, False)  # noqa: FBT003 - as there
        entry, count = fitted(kind, law, split.train, begin, own=split.own)
        if kind.rows(split.kin):
            start = before(kind, number, True)  # noqa: FBT003 - as there
            for field in (*law.free, *law.held):
                value: Any = entry
                for part in f"{kind.place}.{field}".split("."):
                    value = getattr(value, part)
                start = changed(start, f"{kind.place}.{field}", value)
            entry, count = fitted(kind, law, split.kin, start, own=False)
        (own if split.own else left).append(errors([count(one) for one in test], entry))
    free = law.said or ", ".join(law.free) or "none"
    more = f"; own devices: {', '.join(law.own)}" if law.own else ""
    return Result(law.name, free + more, (np.concatenate(own), np.concatenate(left)), law.kept)


def kernel_results(kind: Kernels, laws: Iterable[Law]) -> Iterator[Result]:
    """Judge laws of one class."""
    return (kernel_result(kind, law) for law in laws)
