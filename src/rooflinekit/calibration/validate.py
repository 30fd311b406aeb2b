"""Validation: every shipped reference predicted, most of them by constants that have not seen it."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import pandas as pd

from rooflinekit.calibration.closed_form import grid_frames
from rooflinekit.calibration.engines import by_entry, fit_own, fit_shared, start
from rooflinekit.calibration.entries import (
    fit_gb10,
    fit_generation,
    fit_kernels,
    fit_llama_cpp,
    fit_power_limit,
    fit_universal,
    h200_kernel_entry,
    kernel_start,
    none,
)
from rooflinekit.calibration.fit import shipped_fallbacks
from rooflinekit.calibration.observations import Observations
from rooflinekit.calibration.references import (
    gb10_totals,
    gb10_trace,
    h200_fp8_steps,
    h200_llama_cpp,
    h200_mixed_steps,
    h200_steps,
    kernel_tables,
    rates,
)
from rooflinekit.calibration.served import served_frames
from rooflinekit.calibration.spreads import with_spreads
from rooflinekit.calibration.tensor_parallel import predicted_collectives
from rooflinekit.calibration.tensor_parallel import step_observations as two_rank_steps
from rooflinekit.errors import InvalidInputError
from rooflinekit.roofline.laws import Laws
from rooflinekit.specs.catalog import load_device
from rooflinekit.specs.efficiency import Efficiency

FOLDS = 5
#: Facts that a frame of predictions repeats, where a reference has them.
SAID = ("engine", "model", "weights", "kv_cache", "op", "phase", "regime", "id")
#: Columns of every frame of predictions, facts first.
COLUMNS = (
    "set", "tier", "device", "engine", "model", "weights", "kv_cache", "op", "phase", "regime", "mixture", "batch",
    "tokens", "context", "id", "measured_s", "predicted_s", "floor_s", "log_error", "log_std", "bound",
)  # fmt: skip


@dataclass(frozen=True)
class ReferenceSet:
    """A set of references: what it holds, which constants predict it, and how."""

    name: str
    title: str
    held_out: str
    predict: Callable[[bool], Iterator[pd.DataFrame]]

    def frame(self, *, ablate: bool = False) -> pd.DataFrame:
        """Predict every row, without any whole step or phase among the fits where `ablate` is set."""
        return pd.concat(list(self.predict(ablate)), ignore_index=True).assign(set=self.name)


def judged(
    observations: Iterable[Observations],
    entry: Efficiency,
    tier: str,
    fallbacks: Callable[..., tuple[Efficiency, ...]] = shipped_fallbacks,
) -> Iterator[pd.DataFrame]:
    """Predict observations under an entry and lay them out, one line a measured value."""
    for one in observations:
        laws = Laws((entry, *fallbacks(one.device)), tier)
        predicted = one.predicted_s(laws)
        facts = one.facts
        mixture = facts["op"] == "mixture" if "op" in facts else any(row.op_class == "mixture" for row in one.plan.rows)
        yield pd.DataFrame(
            {
                "tier": tier,
                "device": one.device.id,
                **{name: facts.get(name, "") for name in SAID},
                "mixture": mixture,
                "batch": _first(facts, "batch", "sequences"),
                "tokens": _first(facts, "prompt_tokens", "new_tokens", "chunk_tokens"),
                "context": _first(facts, "held_tokens", "context_tokens"),
                "measured_s": one.seconds,
                "predicted_s": predicted,
                "floor_s": one.floor_s,
                "log_error": np.log(predicted / one.seconds),
                "bound": one.bounds(laws),
            }
        )


def _first(facts: pd.DataFrame, *names: str) -> pd.Series:
    return next((facts[name] for name in names if name in facts), pd.Series(np.nan, index=facts.index))


# ---- the sets


def _gb10_trace(ablate: bool) -> Iterator[pd.DataFrame]:  # noqa: ARG001, FBT001 - no total is ever a fit input here
    entry, _ = fit_gb10()
    yield from judged([gb10_trace()], entry, "own classes")
    yield from judged([gb10_totals()], entry, "own")


def _gb10_engines(ablate: bool) -> Iterator[pd.DataFrame]:  # noqa: FBT001 - one switch for all sets
    """Predict llama.cpp's rows on the GB10 by constants of the other models of that engine."""
    if ablate:
        return
    for key, observations in by_entry(rates()).items():
        if key.engine != "llama.cpp":
            continue
        mine = [one for one in observations if one.device.id == "gb10"]
        others = [one for one in observations if one.device.id != "gb10"]
        for model in dict.fromkeys(_model(one) for one in mine):
            rest = [one for one in mine if _model(one) != model]
            shared = fit_shared(key, [*others, *rest]).efficiency if others or rest else start(key)
            entry = fit_own(shared, rest).efficiency if rest else shared
            yield from judged([one for one in mine if _model(one) == model], entry, "own" if rest else "engine")


def _model(one: Observations) -> str:
    return str(one.facts["model"].iloc[0])


def _h200_steps(ablate: bool) -> Iterator[pd.DataFrame]:  # noqa: FBT001 - as above
    """Predict the steps of each model by kernels and by the power limit that the other models' steps show."""
    entry, _ = h200_kernel_entry()
    for model in dict.fromkeys(map(_model, h200_steps())):
        rest = [one for one in h200_steps() if _model(one) != model]
        fitted = entry if ablate else fit_power_limit(entry, rest).efficiency
        yield from judged([one for one in h200_steps() if _model(one) == model], fitted, "own")


def _h200_nothing_fitted(observations: Sequence[Observations], ablate: bool) -> Iterator[pd.DataFrame]:  # noqa: FBT001
    """Predict rows of which nothing was fitted, by the back end that the trace ran: FA2 where context is held."""
    steps = [] if ablate else h200_steps()
    for backend, held in (("cudnn", False), ("flash2", True)):
        entry, _ = h200_kernel_entry(backend)
        fitted = fit_power_limit(entry, steps).efficiency if steps and backend == "cudnn" else entry
        if backend == "flash2" and steps:
            limit = fit_power_limit(h200_kernel_entry()[0], steps).efficiency
            fitted = entry.model_copy(update={"burst_ms": limit.burst_ms, "sustained": limit.sustained})
        for one in observations:
            chosen = (_first(one.facts, "chunk_context_tokens").fillna(0.0) > 0).to_numpy() == held
            if chosen.any():
                yield from judged([one.take(chosen)], fitted, "own")


def _h200_mixed(ablate: bool) -> Iterator[pd.DataFrame]:  # noqa: FBT001 - as above
    yield from _h200_nothing_fitted(h200_mixed_steps(), ablate)


def _h200_fp8(ablate: bool) -> Iterator[pd.DataFrame]:  # noqa: FBT001 - as above
    yield from _h200_nothing_fitted(h200_fp8_steps(), ablate)


def _h200_tensor_parallel(ablate: bool) -> Iterator[pd.DataFrame]:  # noqa: FBT001 - as above
    """Predict steps of two ranks; the constants of their collectives come from a table of those alone."""
    entry, _ = h200_kernel_entry()
    fitted = entry if ablate else fit_power_limit(entry, h200_steps()).efficiency
    yield from judged(two_rank_steps(), fitted, "own")


def _h200_llama_cpp(ablate: bool) -> Iterator[pd.DataFrame]:  # noqa: FBT001 - as above
    """Predict every other row of each format by a fit on the rows between them."""
    if ablate:
        return
    for one in h200_llama_cpp():
        fold = np.arange(len(one)) // 2 % 2  # pairs: prefills and steps take turns in the file
        for part in (0, 1):
            yield from judged([one.take(fold == part)], fit_llama_cpp(one.take(fold != part)).efficiency, "own")


def _kernels_own(ablate: bool) -> Iterator[pd.DataFrame]:  # noqa: ARG001, FBT001 - kernels are no totals
    """Predict kernels of each device by its kernels of other shapes, in five folds of shapes."""
    tables = kernel_tables()
    for device in dict.fromkeys(one.device.id for one in tables):
        mine = [(one, _folds(one)) for one in tables if one.device.id == device]
        for fold in range(FOLDS):
            entry, _ = fit_kernels([one.take(folds != fold) for one, folds in mine], kernel_start(), own=True)
            yield from judged([one.take(folds == fold) for one, folds in mine], entry, "own", none)


def _folds(one: Observations) -> np.ndarray:
    """Deal the shapes of a table into folds, all rows of a shape into one."""
    if one.row is None:
        message = "only a table of kernels has shapes"
        raise InvalidInputError(message)
    order = np.random.default_rng(0).permutation(int(one.row.max()) + 1)
    return np.asarray(order[one.row] % FOLDS)


def _kernels_left_out(ablate: bool) -> Iterator[pd.DataFrame]:  # noqa: ARG001, FBT001 - kernels are no totals
    """Predict kernels of each device by those of the others: of its generation where there are some, else of all."""
    tables = kernel_tables()
    for device in dict.fromkeys(one.device for one in tables):
        rest = [one for one in tables if one.device.id != device.id]
        kin = [one for one in rest if one.device.generation == device.generation]
        universal, _ = fit_universal(rest)
        entry = fit_generation(kin, universal)[0] if kin else universal
        tier = "architecture generation" if kin else "universal"
        yield from judged([one for one in tables if one.device.id == device.id], entry, tier, none)


def _streams_left_out(ablate: bool) -> Iterator[pd.DataFrame]:  # noqa: FBT001 - as above
    """Predict single-stream rates of each device by the same engine and format on other devices of the vendor."""
    if ablate:
        return
    for key, observations in by_entry(rates()).items():
        for device in dict.fromkeys(one.device.id for one in observations):
            rest = [one for one in observations if one.device.id != device]
            entry = fit_shared(key, rest).efficiency if rest else start(key)
            tier = "engine" if rest else "no other device"
            yield from judged([one for one in observations if one.device.id == device], entry, tier)


def _streams_own(ablate: bool) -> Iterator[pd.DataFrame]:  # noqa: FBT001 - as above
    """Predict single-stream rates of each model by the other models of its engine and format on its device."""
    if ablate:
        return
    for key, observations in by_entry(rates()).items():
        shared = fit_shared(key, observations).efficiency
        for device in dict.fromkeys(one.device.id for one in observations):
            mine = [one for one in observations if one.device.id == device]
            models = dict.fromkeys(map(_model, mine))
            for model in models if len(models) > 1 else ():
                rest = [one for one in mine if _model(one) != model]
                yield from judged(
                    [one for one in mine if _model(one) == model], fit_own(shared, rest).efficiency, "own"
                )


def _collectives(ablate: bool) -> Iterator[pd.DataFrame]:  # noqa: ARG001, FBT001 - messages are no totals
    """Predict collectives by the constants of their links."""
    table = predicted_collectives()
    wires = [load_device(device).datasheet.scale_up for device in table["device"]]
    kinds = ["NVLink" if wire and "NVLink" in wire.kind else "other links" for wire in wires]
    how = np.where(table["how"] == "own_kernel", "engines' kernels", "library")
    yield table.assign(
        phase=[f"{one}, {kind}" for one, kind in zip(how, kinds, strict=True)], tier="link", mixture=False, op="",
        model="-", weights="", kv_cache="", regime="", batch=table["ranks"], tokens=table["bytes"], context=np.nan,
        id=table["operation"], measured_s=table["seconds"], floor_s=0.0, bound="communication", log_std=np.nan,
        engine=table["how"],
    )[[name for name in COLUMNS if name != "set"]]  # fmt: skip


def _served(ablate: bool) -> Iterator[pd.DataFrame]:  # noqa: FBT001 - as above
    """Predict served rows; without totals no host time is fitted at all."""
    yield from served_frames(fitted=not ablate)


def _closed_form(ablate: bool) -> Iterator[pd.DataFrame]:  # noqa: ARG001, FBT001 - as above
    """Compare the closed form with stored simulations: measured is simulated."""
    yield from grid_frames()


#: Sets whose predictions carry no interval.
WITHOUT_INTERVALS = frozenset({"collectives", "served", "closed-form"})
SETS: Mapping[str, ReferenceSet] = {
    one.name: one
    for one in (
        ReferenceSet("gb10-trace", "Qwen3-8B on GB10, vLLM 0.31: kernel classes and totals", "the totals", _gb10_trace),
        ReferenceSet("gb10-llama.cpp", "llama.cpp on GB10", "each model: constants of the others", _gb10_engines),
        ReferenceSet(
            "h200-steps",
            "whole steps on H200, PyTorch 2.11, ten models",
            "each model: kernels, and the power limit of the others",
            _h200_steps,
        ),
        ReferenceSet(
            "h200-mixed-steps",
            "steps with a chunk and decoding sequences on H200",
            "all: nothing fitted on them",
            _h200_mixed,
        ),
        ReferenceSet(
            "h200-tensor-parallel", "whole steps of two H200s", "all: nothing fitted on them", _h200_tensor_parallel
        ),
        ReferenceSet(
            "h200-fp8-steps", "whole steps with FP8 weights on H200", "all: nothing fitted on them", _h200_fp8
        ),
        ReferenceSet(
            "h200-llama.cpp",
            "llama.cpp on H200, Qwen3-8B in three formats",
            "every other pair of rows",
            _h200_llama_cpp,
        ),
        ReferenceSet("kernels-other-shapes", "kernels of eight devices", "a fifth of the shapes in turn", _kernels_own),
        ReferenceSet("kernels-left-out", "kernels of eight devices", "each device in turn", _kernels_left_out),
        ReferenceSet(
            "streams-other-models", "public single-stream rates", "each model on a device in turn", _streams_own
        ),
        ReferenceSet("streams-left-out", "public single-stream rates", "each device in turn", _streams_left_out),
        ReferenceSet("collectives", "messages between GPUs", "none: fitted by generation of link", _collectives),
        ReferenceSet(
            "served",
            "closed runs of a public client, H100 to B300",
            "each model: host times of the engine's other models, or none",
            _served,
        ),
        ReferenceSet(
            "closed-form", "300 simulated workloads, Llama-3.1-8B on H100", "nothing fitted on them", _closed_form
        ),
    )
}


@cache
def predictions(name: str, *, ablate: bool = False) -> pd.DataFrame:
    """
    Predict one set of references.

    Raises
    ------
    InvalidInputError
        There is no such set.
    """
    if name not in SETS:
        message = f"set={name!r}: expected one of {', '.join(SETS)}"
        raise InvalidInputError(message)
    frame = SETS[name].frame(ablate=ablate)
    return (frame if name in WITHOUT_INTERVALS else with_spreads(frame))[[*COLUMNS]]
