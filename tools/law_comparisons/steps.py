"""Small kernels of the H200, and its whole steps."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from law_comparisons.judging import FOLDS, Errors, Result, by_phase, changed, errors, model_of
from rooflinekit.calibration import entries
from rooflinekit.calibration.entries import Stage, none
from rooflinekit.calibration.fit import fit
from rooflinekit.calibration.references import h200_steps
from rooflinekit.specs.efficiency import Efficiency


def small_results() -> Iterator[Result]:
    """Predict a fifth of the small kernels by the others, the four classes apart."""
    laws = {
        "part of the bandwidth": (("memory",), {"launch_us": 0.0}),
        "launch alone": (("launch_us",), {"memory": 1e6}),
        "launch and bytes": (("memory", "launch_us"), {}),
    }
    for name, (free, held) in laws.items():
        columns = tuple(_small(compiled, free, held) for compiled in ("fixed", "sized"))
        yield Result(name, ", ".join(free), (columns[0], columns[1]), name == "launch and bytes")


def _small(compiled: str, free: Sequence[str], held: Mapping[str, float]) -> Errors:
    found = []
    for stage in entries.small_stages(compiled):
        place = next(iter(stage.free)).split(".")[0]
        entry = Efficiency(name="small").model_copy(update=entries.small_start())
        for field, value in held.items():
            entry = changed(entry, f"{place}.{field}", value)
        for fold in range(FOLDS):
            dealt = [np.arange(len(one)) % FOLDS for one in stage.rows]
            train = [one.take(part != fold) for one, part in zip(stage.rows, dealt, strict=True)]
            test = [one.take(part == fold) for one, part in zip(stage.rows, dealt, strict=True)]
            places = {field: [f"{place}.{field}"] for field in free}
            found.append(errors(test, fit(train, entry, places, checked=False, fallbacks=none).efficiency))
    return np.concatenate(found)


def step_results() -> Iterator[Result]:
    """Predict the steps of each model by kernels, and by what the other models' steps show."""
    sized, summed = (_h200(inner_sums=which) for which in (False, True))
    fixed = entries.run(entries.small_stages("fixed"), sized, none)[0]
    small = ("norm", "rotary", "activation", "cache_write")
    nothing = {name: getattr(sized, name).model_copy(update={"launch_us": 0.0}) for name in small}
    limit = ("burst_ms", "sustained")
    whole = changed(changed(sized, "burst_ms", 0.0), "sustained", 0.9)
    burst = changed(changed(sized, "burst_ms", 15.0), "sustained", 0.88)
    paused = changed(burst, "gap_us", 0.3)
    small_fixed = changed(changed(fixed, "burst_ms", 15.0), "sustained", 0.88)
    summed = changed(changed(summed, "burst_ms", 15.0), "sustained", 0.88)
    yield from (
        _steps("kernels alone", sized, ()),
        _steps("+ one slower rate, no budget", whole, ("sustained",)),
        _steps("+ power limit", burst, limit, kept=True),
        _steps("+ power limit and pause", paused, (*limit, "gap_us")),
        _steps("limit, small kernels for their width", small_fixed, limit),
        _steps("limit, BF16 products with inner sums", summed, limit),
        _steps("limit, small kernels without launch", burst.model_copy(update=nothing), limit),
    )


def _h200(*, inner_sums: bool) -> Efficiency:
    """Fit the kernels of the H200, BF16 products with or without a price of their inner sums."""
    first, *others = entries.h200_stages("cudnn")
    field = "products.bf16.inner_ns_per_element"
    free = {name: at for name, at in first.free.items() if name != field} | ({field: [field]} if inner_sums else {})
    begin = changed(entries.h200_kernel_entry()[0], field, 0.1 if inner_sums else 0.0)
    return entries.run([Stage(free, first.rows), *others], begin, none)[0]


def _steps(name: str, begin: Efficiency, free: Sequence[str], *, kept: bool = False) -> Result:
    found: tuple[list[Errors], list[Errors]] = ([], [])
    fits = []
    for model in dict.fromkeys(map(model_of, h200_steps())):
        rest = [one for one in h200_steps() if model_of(one) != model]
        entry = begin
        if free:
            entry = fit(rest, begin, {field: [field] for field in free}, checked=False).efficiency
            fits.append([getattr(entry, field) for field in free])
        by_phase(found, [one for one in h200_steps() if model_of(one) == model], entry)
    median = np.median(fits, axis=0) if fits else ()
    said = ", ".join(f"{field} ({value:.3g})" for field, value in zip(free, median, strict=True))
    return Result(name, said or "none on steps", (np.concatenate(found[0]), np.concatenate(found[1])), kept)
