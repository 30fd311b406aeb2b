"""The order of evidence: kernels fit each class on its own rows and are frozen, passes fit what no kernel row shows."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pandas as pd

from rooflinekit.calibration.engines import OWN_PRIOR, free
from rooflinekit.calibration.entries import (
    POWER_LIMIT,
    SMALL,
    Stage,
    held,
    kernel_stages,
    kernel_start,
    select,
    small_start,
)
from rooflinekit.calibration.fit import ROBUST, Fit, Free, constant, fit, most, with_constants
from rooflinekit.calibration.inputs import Inputs
from rooflinekit.calibration.observations import Observations
from rooflinekit.errors import CalibrationError, InvalidInputError
from rooflinekit.roofline.laws import format_kind
from rooflinekit.specs.efficiency import Efficiency

#: Spread of the logarithm of a constant around its start where kernel rows fit it: they say more than any start.
KERNEL_PRIOR = 1.0
#: Where the pauses and the power limit of whole passes begin, if nothing nearer is known.
_PASSES = {"gap_us": 1.0, "burst_ms": 15.0, "sustained": 0.88}
#: A power limit known no better than this was not seen at all.
_UNSEEN = 0.5
#: Context from which a decode row's attention is its stream of K and V, below it is its launch.
_LONG = 4096
FRACTIONS = ("compute", "memory", "activation")


class Found(NamedTuple):
    """A fit, the files of its rows, and the constants held at what is physical since the rows would go beyond."""

    fit: Fit
    source: str
    limited: tuple[str, ...] = ()


def started(entry: Efficiency, constants: Free) -> Efficiency:
    """Move constants that an entry holds at nought, or not at all, to a plain start: nought has no logarithm."""
    plain = kernel_start().model_copy(update={**small_start(), **_PASSES})
    away = {name: fields for name, fields in constants.items() if not _value(entry, fields[0])}
    begin = [_value(plain, fields[0]) for fields in away.values()]
    known = {name: fields for (name, fields), value in zip(away.items(), begin, strict=True) if value}
    return with_constants(entry, known, [value for value in begin if value])


def _value(entry: Efficiency, field: str) -> float:
    try:
        return constant(entry, field)
    except InvalidInputError:
        return 0.0


# ---- kernels


def fit_kernel_rows(entry: Efficiency, inputs: Inputs) -> list[Found]:
    """Fit each class of kernels on its own rows, from what the classes before it found."""
    found = []
    for stage in _table_stages(inputs):
        one = fit(stage.rows, started(entry, stage.free), stage.free, prior=KERNEL_PRIOR)
        if "products.bf16.compute" in stage.free:
            one = one._replace(efficiency=held(one.efficiency))
        found.append(Found(one, files_of(stage.rows)))
        entry = one.efficiency
    for trace in inputs.traces:
        found.append(Found(_fit_trace(entry, trace), files_of([trace])))
        entry = found[-1].fit.efficiency
    return found


def _table_stages(inputs: Inputs) -> list[Stage]:
    """List a stage for each class that the tables hold."""
    kernels = [_by_kind(one, i) for i, one in enumerate(inputs.kernels)]
    small = {name: select(kernels, op="small", op_class=name) for name in SMALL}
    fields = {name: {f"{name}.{field}": [f"{name}.{field}"] for field in ("memory", "launch_us")} for name in SMALL}
    return [*kernel_stages(kernels, own=True), *(Stage(fields[name], rows) for name, rows in small.items() if rows)]


def _by_kind(one: Observations, number: int) -> Observations:
    """Name formats by the kind whose constants they share, and number the rows."""
    names = {column: one.facts[column].map(format_kind) for column in ("weights", "kv_cache") if column in one.facts}
    return replace(one, facts=one.facts.assign(**names, number=[f"{number}:{i}" for i in range(len(one))]))


def unused(inputs: Inputs) -> Counter[str]:
    """Count the kernel rows that no stage uses, by what they are."""
    used = {number for stage in _table_stages(inputs) for one in stage.rows for number in one.facts["number"]}
    left: Counter[str] = Counter()
    for i, one in enumerate(inputs.kernels):
        facts = _by_kind(one, i).facts
        for line in facts[~facts["number"].isin(used)].to_dict("records"):
            left[f"{line['op']} rows that no law is fitted on ({line['weights']}, regime {line['regime']})"] += 1
    return left


def _fit_trace(entry: Efficiency, trace: Observations) -> Fit:
    """Fit what the kernel classes of a trace show; each weighs by its share of its phase's measured time."""
    weights = np.sqrt(trace.facts["share"].to_numpy(dtype=np.float64))
    constants = trace_free(trace, entry.format)
    return fit([trace], started(entry, constants), constants, weights=weights, prior=KERNEL_PRIOR, robust=False)


def trace_free(trace: Observations, form: str) -> Free:
    """List the constants that the kernel classes of a trace determine."""
    held_tokens = np.asarray(trace.groups[0].context_tokens, dtype=np.float64)
    owners = trace.facts["phase"].to_numpy()[trace.owner]
    rows = trace.row if trace.row is not None else np.zeros(len(owners), dtype=np.int64)
    classes = [trace.plan.rows[row].op_class for row in rows]
    found: dict[str, Sequence[str]] = {}
    for op_class, phase, context in zip(classes, owners, held_tokens, strict=True):
        name, *more = _shown(op_class, phase, float(context), "fp8" if form == "fp8" else "bf16")
        found[name] = [name, *more]
    return found


def _shown(op_class: str, phase: str, context: float, dtype: str) -> list[str]:
    """Name the constant that a kernel class shows; norm, rotary and cache writes are one kernel's in a trace."""
    if op_class in ("product", "mixture"):
        return [f"{op_class}s.{dtype}.{'compute' if phase == 'prefill' else 'memory'}"]
    if op_class == "attention":
        decode = "memory" if context >= _LONG else "launch_us"
        return [f"attention.{'softmax_flops_per_score' if phase == 'prefill' else decode}"]
    alike = ["norm.memory", "rotary.memory", "cache_write.memory"]
    return ["activation.memory"] if op_class == "activation" else alike


def determined(found: Iterable[Found]) -> set[str]:
    """Name the constants that kernel rows determine: those of which no weakness is reported."""
    fits = [one.fit for one in found]
    open_ = {name for one in fits for weak in one.weak for name in weak.constants}
    return {name for one in fits for name in one.constants} - open_


# ---- whole passes


def fit_passes(entry: Efficiency, inputs: Inputs, frozen: set[str]) -> list[Found]:
    """Fit what no kernel row shows; the power limit only beside kernels, and only where the passes see it."""
    passes = inputs.passes
    if not passes:
        return []
    for one in passes:
        _refuse_below_floor(one)
    constants = _left_free(entry, passes, frozen)
    if not _covered(frozen, entry.format):
        return [_fit_held(entry, passes, constants)]
    limited = {**constants, **POWER_LIMIT}
    if sum(map(len, passes)) >= len(limited):
        found = fit(passes, started(entry, limited), limited)
        if not any(weak.constants[0] in POWER_LIMIT and weak.spread > _UNSEEN for weak in found.weak):
            return [Found(found, files_of(passes))]
    if not constants:
        return []
    enough = sum(map(len, passes)) > 2 * len(constants)
    return [_fit_held(entry, passes, constants, prior=None if enough else OWN_PRIOR)]


def _left_free(entry: Efficiency, passes: Sequence[Observations], frozen: set[str]) -> Free:
    """List what passes fit: what kernels determined stays, attention's arithmetic with its kernels."""
    attention = any(name.startswith("attention.") for name in frozen)
    closed = frozen | ({"attention.compute", "attention.memory"} if attention else set())
    gone = {"gap_us"} if entry.gap_us == 0.0 and not _covered(frozen, entry.format) else set()  # known to be none
    return {name: fields for name, fields in free(entry, passes).items() if name not in closed | gone}


def _covered(frozen: set[str], form: str) -> bool:
    """Tell whether kernels determined products and attention."""
    dtype = "fp8" if form == "fp8" else "bf16"
    products = {f"products.{dtype}.compute", f"products.{dtype}.memory"}
    return products <= frozen and any(name.startswith("attention.") for name in frozen)


def _fit_held(
    entry: Efficiency, passes: Sequence[Observations], constants: Free, prior: float | None = OWN_PRIOR
) -> Found:
    """
    Fit from the nearest entry as prior; a fraction that would leave what is physical is held there.

    Passes mix all laws, so that one price that is too high presses another ceiling up: held at its limit the rows must
    still be met to 15%, or they are refused.
    """
    device, limited, beyond = passes[0].device, list[str](), list(constants)
    while beyond:
        found = fit(passes, started(entry, constants), constants, prior=prior, checked=False)
        beyond = [name for name in constants if found.constants[name] > 0.999 * most(name, device)]
        limits = [most(name, device) for name in beyond]
        entry = with_constants(found.efficiency, {name: constants[name] for name in beyond}, limits)
        constants = {name: fields for name, fields in constants.items() if name not in beyond}
        limited += beyond
        if beyond and (not constants or found.residual > ROBUST):
            message = (
                f"{device.id} {', '.join(limited)}: at the most that the datasheet and direct measurements allow, "
                f"{found.residual:.0%} are left over: a counting or data fault: check units, batch, model and format"
            )
            raise CalibrationError(message)
    return Found(found, files_of(passes), tuple(limited))


def _refuse_below_floor(one: Observations) -> None:
    """Refuse passes faster than the datasheet's peaks allow."""
    faster = one.seconds < one.floor_s
    if faster.any():
        i = int(np.argmax(faster))
        message = (
            f"{one.facts['line'].iloc[i]}: {one.seconds[i]:.3g} s is below the floor of {one.floor_s[i]:.3g} s on "
            f"{one.device.id}: a counting or data fault: check units, batch, model and format of the row"
        )
        raise CalibrationError(message)


def files_of(rows: Iterable[Observations]) -> str:
    """Name the files that rows are from."""
    names = pd.concat([one.facts["file"] for one in rows]).astype(str)
    return ", ".join(dict.fromkeys(names))
