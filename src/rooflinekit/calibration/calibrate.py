"""Calibrate a device: files of measured times in, an Efficiency out, with what the files leave open.

Kernel rows come first, each class of operator on its own rows, and what they determine is frozen. Whole passes then fit
only what no kernel row shows.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from rooflinekit.calibration.entries import (
    SMALL,
    joined_covariance,
    kernel_start,
    small_start,
)
from rooflinekit.calibration.fit import (
    Fit,
    constant,
    shipped_fallbacks,
)
from rooflinekit.calibration.identify import Weakness
from rooflinekit.calibration.inputs import Asked, Inputs, read_inputs, told
from rooflinekit.calibration.ordered import FRACTIONS, Found, determined, fit_kernel_rows, fit_passes, unused
from rooflinekit.calibration.writing import evidence_of, write_device
from rooflinekit.errors import InvalidInputError
from rooflinekit.phases.resolve import resolve_laws
from rooflinekit.specs.catalog import load_device
from rooflinekit.specs.device import Device
from rooflinekit.specs.efficiency import Efficiency, Evidence, MixtureLaws, ProductLaws

#: A kernel timed alone is no burst, and has no pause before it.
ALONE: Mapping[str, object] = {"burst_ms": None, "sustained": None, "gap_us": 0.0}
#: What is said of a constant that the rows would have beyond what is physical.
HELD = "held at its limit: the rows would go beyond"
_LAWS = ("attention", "attention_fp8", "attention_wide", *SMALL)
_NUMBERS = ("gap_us", "step_us", "burst_ms", "sustained")


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
    skipped = Counter(inputs.skipped) + unused(inputs)
    if not found:
        message = f"{card.id}: no row that a fit can use: {told(skipped)}"
        raise InvalidInputError(message)
    fits = tuple(one.fit for one in found)
    weak = tuple(weak for one in fits for weak in one.weak)
    return Calibration(_entry(entry, found, near, card), fits, dict(skipped), weak, card)


def _fitted(begin: Efficiency, inputs: Inputs) -> tuple[Efficiency, list[Found]]:
    """Fit kernels, then on top of what they determine whole passes."""
    kernels = fit_kernel_rows(begin.model_copy(update=ALONE), inputs)
    fitted = kernels[-1].fit.efficiency if kernels else begin
    entry = fitted.model_copy(update={name: getattr(begin, name) for name in ALONE})
    passes = fit_passes(entry, inputs, determined(kernels))
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
        "unit": "fraction" if name.rsplit(".", 1)[-1] in (*FRACTIONS, "sustained") else "ratio",
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


# ---- the entry


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
