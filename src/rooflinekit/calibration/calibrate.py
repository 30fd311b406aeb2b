"""Calibrate a device: files of measured times in, an Efficiency out, with what the files leave open.

Kernel rows come first, each class of operator on its own rows, and what they determine is frozen. Whole passes then fit
only what no kernel row shows.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from rooflinekit.calibration.engines import OWN_PRIOR, free
from rooflinekit.calibration.entries import (
    POWER_LIMIT,
    SMALL,
    Stage,
    held,
    joined_covariance,
    kernel_stages,
    kernel_start,
    select,
    small_start,
)
from rooflinekit.calibration.fit import (
    ABOVE,
    ROBUST,
    Fit,
    Free,
    constant,
    direct_fraction,
    fit,
    shipped_fallbacks,
    with_constants,
)
from rooflinekit.calibration.identify import Weakness
from rooflinekit.calibration.inputs import Asked, Inputs, read_inputs, told
from rooflinekit.calibration.observations import Observations
from rooflinekit.calibration.writing import evidence_of, write_device
from rooflinekit.errors import CalibrationError, InvalidInputError
from rooflinekit.phases.resolve import resolve_laws
from rooflinekit.roofline.laws import format_kind
from rooflinekit.specs.catalog import load_device
from rooflinekit.specs.device import Device
from rooflinekit.specs.efficiency import Efficiency, Evidence, MixtureLaws, ProductLaws

#: Spread of the logarithm of a constant around its start where kernel rows fit it: they say more than any start.
KERNEL_PRIOR = 1.0
#: Where the pauses and the power limit of whole passes begin, if nothing nearer is known.
_PASSES = {"gap_us": 1.0, "burst_ms": 15.0, "sustained": 0.88}
#: A power limit known no better than this was not seen at all.
_UNSEEN = 0.5
#: A kernel timed alone is no burst, and has no pause before it.
ALONE: Mapping[str, object] = {"burst_ms": None, "sustained": None, "gap_us": 0.0}
#: Context from which a decode row's attention is its stream of K and V, below it is its launch.
_LONG = 4096
#: What is said of a constant that the rows would have beyond what is physical.
HELD = "held at its limit: the rows would go beyond"
_LAWS = ("attention", "attention_fp8", "attention_wide", *SMALL)
_NUMBERS = ("gap_us", "step_us", "burst_ms", "sustained")
_FRACTIONS = ("compute", "memory", "activation")


class Found(NamedTuple):
    """A fit, the files of its rows, and the constants held at what is physical since the rows would go beyond."""

    fit: Fit
    source: str
    limited: tuple[str, ...] = ()


@dataclass(frozen=True)
class Calibration:
    """
    What files of measured times say of a device.

    ``efficiency`` is the new entry, ``fits`` the steps that led to it, ``skipped`` counts rows that were not used by
    reason, and ``weaknesses`` names what the rows cannot tell apart, with the one measurement that would.
    """

    efficiency: Efficiency
    fits: tuple[Fit, ...]
    skipped: Mapping[str, int]
    weaknesses: tuple[Weakness, ...]
    device: Device

    @property
    def points(self) -> int:
        """Count the rows that were fitted."""
        return sum(len(one.residuals) for one in self.fits)

    def rows(self) -> list[dict[str, Any]]:
        """Tabulate the fitted constants: value, uncertainty, points, residual, direct measurement."""
        known = {row.constant: row for row in self.efficiency.evidence if row.points}
        rows = [_row(one, i, known[name]) for one in self.fits for i, name in enumerate(one.constants)]
        return rows + [_held_row(self.efficiency, row) for row in self.efficiency.evidence if row.note == HELD]

    def card(self) -> Device:
        """Give the device with the new entry in front, as its default; an entry of its engine and format gives way."""
        new = self.efficiency
        key = (new.engine, new.format)
        others = [one for one in self.device.efficiency if one.name != new.name and (one.engine, one.format) != key]
        rest = (one.model_copy(update={"default": False}) for one in others)
        return self.device.model_copy(update={"efficiency": (new, *rest)})

    def write(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Write the device and its entries as a YAML file, which ``Deployment(model, path)`` takes."""
        return write_device(self.card(), Path(path), overwrite=overwrite)


def calibrate(
    device: str | Path | Mapping[str, Any] | Device,
    files: Sequence[str | Path],
    *,
    model: str | None = None,
    engine: str | None = None,
    weights: str | None = None,
    name: str | None = None,
) -> Calibration:
    """
    Fit an efficiency of a device to files of measured times.

    Parameters
    ----------
    device : str, path, mapping or Device
        The catalogue's, or a file of your own.
    files : sequence of path
        CSV tables of kernels (products, attention, mixtures, small kernels), of whole steps, of single-stream rates,
        and YAML kernel traces, in any mixture: the header says which. Columns are in docs/calibrating.md.
    model, engine, weights : str, optional
        Rows that name none are taken to be of these; rows that name another are left out and counted.
    name : str, optional
        Name of the new entry; ``DEVICE/ENGINE/FORMAT`` by default.

    Returns
    -------
    calibration : Calibration

    Raises
    ------
    InvalidInputError
        A file, row or size is none, rows of several engines or formats are mixed, or no row is left.
    CalibrationError
        The rows would have a fraction of a peak above 1, a ceiling above or far below what was measured directly, or a
        pass faster than the floor: a counting or data fault.

    Examples
    --------
    >>> from rooflinekit.calibration.references import FOLDER
    >>> found = calibrate("gb10", [FOLDER / "gb10_trace.yaml"])
    >>> print(f"{found.points} rows: {found.efficiency.products.bf16.compute:.3f} of the peak in products")
    8 rows: 0.725 of the peak in products
    """
    if find_spec("scipy") is None:
        message = "a fit needs SciPy, which is not installed: pip install 'rooflinekit[calibrate]'"
        raise InvalidInputError(message)
    card = load_device(device)
    inputs = read_inputs(card, files, Asked(model, engine, weights))
    near = resolve_laws(card, inputs.engine, inputs.format, "calibrated").chain
    entry, found = _fitted(complete(near).model_copy(update=_named(card, inputs, name)), inputs)
    skipped = Counter(inputs.skipped) + _unused(inputs)
    if not found:
        message = f"{card.id}: no row that a fit can use: {told(skipped)}"
        raise InvalidInputError(message)
    fits = tuple(one.fit for one in found)
    weak = tuple(weak for one in fits for weak in one.weak)
    return Calibration(_entry(entry, found, near, card), fits, dict(skipped), weak, card)


def _fitted(begin: Efficiency, inputs: Inputs) -> tuple[Efficiency, list[Found]]:
    """Fit kernels, then on top of what they determine whole passes."""
    kernels = _fit_kernels(begin.model_copy(update=ALONE), inputs)
    fitted = kernels[-1].fit.efficiency if kernels else begin
    entry = fitted.model_copy(update={name: getattr(begin, name) for name in ALONE})
    passes = _fit_passes(entry, inputs, _determined(kernels))
    return passes[-1].fit.efficiency if passes else entry, [*kernels, *passes]


def _row(one: Fit, i: int, row: Evidence) -> dict[str, Any]:
    """Tabulate one constant; where the rows leave it open, that is its uncertainty."""
    name = row.constant
    covariance = one.efficiency.covariance
    spread = float(np.sqrt(covariance.log[i][i])) if covariance else 0.0
    spread = max([spread, *(weak.spread for weak in one.weak if weak.constants[0] == name)])
    return {
        "constant": name,
        "value": one.constants[name],
        "unit": "fraction" if name.rsplit(".", 1)[-1] in (*_FRACTIONS, "sustained") else "ratio",
        "uncertainty_share": spread,
        "points": row.points,
        "residual_share": row.residual,
        "direct_share": row.direct,
        "note": row.note,
    }


def _held_row(entry: Efficiency, row: Evidence) -> dict[str, Any]:
    """Tabulate a constant that is held at its limit."""
    return {
        "constant": row.constant,
        "value": constant(entry, row.constant),
        "unit": "fraction",
        "points": 0,
        "direct_share": row.direct,
        "note": row.note,
    }


# ---- the start


def complete(chain: Sequence[Efficiency]) -> Efficiency:
    """
    Join entries into one that is complete: each law from the first that holds it, then from a plain start.

    Examples
    --------
    >>> from rooflinekit.phases.resolve import resolve_laws
    >>> entry = complete(resolve_laws(load_device("rtx-4090"), None, "bf16", "calibrated").chain)
    >>> entry.norm is not None and entry.products.fp4 is not None
    True
    """
    last = kernel_start().model_copy(update=small_start())
    whole = (*chain, last)
    laws = {law: _first(whole, law) for law in (*_LAWS, *_NUMBERS)}
    limit = next((one for one in chain if one.burst_ms is not None and one.sustained is not None), last)
    return chain[0].model_copy(
        update={
            **laws,
            "burst_ms": limit.burst_ms,
            "sustained": limit.sustained,
            "products": ProductLaws().model_copy(update=_by_dtype(whole, "products")),
            "mixtures": MixtureLaws().model_copy(update=_by_dtype(whole, "mixtures")),
            **dict.fromkeys(("covariance", "spread")),
        }
    )


def _first(chain: Iterable[Efficiency], law: str) -> object:
    return next((found for one in chain if (found := getattr(one, law)) is not None), None)


def _by_dtype(chain: Sequence[Efficiency], family: str) -> dict[str, object]:
    dtypes = type(getattr(chain[0], family)).model_fields
    return {dtype: _first([getattr(one, family) for one in chain], dtype) for dtype in dtypes}


def _named(card: Device, inputs: Inputs, name: str | None) -> dict[str, object]:
    whole = name or f"{card.id}/{inputs.engine or 'measured'}/{inputs.format}"
    return {"name": whole, "engine": inputs.engine, "format": inputs.format, "family": "", "default": True}


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


def _fit_kernels(entry: Efficiency, inputs: Inputs) -> list[Found]:
    """Fit each class of kernels on its own rows, from what the classes before it found."""
    found = []
    for stage in _table_stages(inputs):
        one = fit(stage.rows, started(entry, stage.free), stage.free, prior=KERNEL_PRIOR)
        if "products.bf16.compute" in stage.free:
            one = one._replace(efficiency=held(one.efficiency))
        found.append(Found(one, _files(stage.rows)))
        entry = one.efficiency
    for trace in inputs.traces:
        found.append(Found(_fit_trace(entry, trace), _files([trace])))
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


def _unused(inputs: Inputs) -> Counter[str]:
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


def _determined(found: Iterable[Found]) -> set[str]:
    """Name the constants that kernel rows determine: those of which no weakness is reported."""
    fits = [one.fit for one in found]
    open_ = {name for one in fits for weak in one.weak for name in weak.constants}
    return {name for one in fits for name in one.constants} - open_


# ---- whole passes


def _fit_passes(entry: Efficiency, inputs: Inputs, frozen: set[str]) -> list[Found]:
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
            return [Found(found, _files(passes))]
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
    return Found(found, _files(passes), tuple(limited))


def most(field: str, device: Device) -> float:
    """Give the largest value that a constant may have: the datasheet's peak, or 1.1 of its direct measurement."""
    if field.rsplit(".", 1)[-1] not in _FRACTIONS:
        return np.inf
    direct = direct_fraction(field, device)
    return 1.0 if direct is None else min(1.0, ABOVE * direct)


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


# ---- the entry


def _files(rows: Iterable[Observations]) -> str:
    names = pd.concat([one.facts["file"] for one in rows]).astype(str)
    return ", ".join(dict.fromkeys(names))


def _entry(entry: Efficiency, found: Sequence[Found], near: Sequence[Efficiency], card: Device) -> Efficiency:
    """Say where each constant is from, and leave to the generation what was neither fitted nor the device's own."""
    fits = [one.fit for one in found]
    evidence = [row for one in found for row in evidence_of([one.fit], one.source, card)]
    evidence += [Evidence(constant=name, source=one.source, note=HELD) for one in found for name in one.limited]
    fields = {field for one in fits for name in one.constants for field in (name, *_set_by(one, name))}
    fields |= {name for one in found for name in one.limited}
    own = near[: len(near) - len(shipped_fallbacks(card))]
    kept = _without_fallbacks(entry, {_law(field) for field in fields} | set(_laws_of(own)))
    held_laws = sorted(set(_laws_of([kept])) - {_law(field) for field in fields})
    if held_laws and own:
        evidence.append(
            Evidence(constant=", ".join(held_laws), source=own[0].name, note="as it was: no row here shows it")
        )
    said = f"{sum(len(one.residuals) for one in fits)} rows of {', '.join(dict.fromkeys(one.source for one in found))}"
    whole = joined_covariance(kept, fits).model_copy(update={"evidence": tuple(evidence), "fitted_on": said})
    return Efficiency.model_validate(whole.model_dump())


def _set_by(one: Fit, name: str) -> tuple[str, ...]:
    """List the fields that a constant of a fit sets."""
    covariance = one.efficiency.covariance
    return covariance.constants[list(one.constants).index(name)] if covariance else (name,)


def _law(field: str) -> str:
    """Name the law that a field belongs to: ``products.bf16``, ``attention``, ``gap_us``."""
    family, *path = field.split(".")
    return f"{family}.{path[0]}" if family in ("products", "mixtures") else family


def _laws_of(entries: Iterable[Efficiency]) -> Iterable[str]:
    """List the laws that entries hold."""
    for one in entries:
        yield from (name for name in (*_LAWS, *_NUMBERS) if getattr(one, name) is not None)
        for family in ("products", "mixtures"):
            laws = getattr(one, family)
            yield from (f"{family}.{dtype}" for dtype in type(laws).model_fields if getattr(laws, dtype) is not None)


def _without_fallbacks(entry: Efficiency, kept: set[str]) -> Efficiency:
    """Drop the laws that are the generation's or universal: a deployment finds them there."""
    changes: dict[str, object] = {name: None for name in (*_LAWS, *_NUMBERS) if name not in kept}
    for family in ("products", "mixtures"):
        laws = getattr(entry, family)
        gone = {dtype: None for dtype in type(laws).model_fields if f"{family}.{dtype}" not in kept}
        changes[family] = laws.model_copy(update=gone)
    return entry.model_copy(update=changes)
