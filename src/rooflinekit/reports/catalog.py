"""Devices as rows: one a device for lists, one a figure, with its source, to show one; and what models share."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rooflinekit.phases.sources import titles
from rooflinekit.specs.device import Device, Measured
from rooflinekit.specs.efficiency import Efficiency, Evidence
from rooflinekit.specs.spec import SourceMap

Record = dict[str, Any]

#: The source key of a figure that no document was read for.
_UNVERIFIED = "memory"
#: Values of more letters are cut for eyes.
_LONGEST = 400


def device_row(device: Device) -> Record:
    """Give the figures of a device that bound inference."""
    peaks = device.flops_per_s
    return {
        "device": device.id,
        "name": device.name,
        "vendor": device.vendor,
        "kind": device.kind,
        "year": device.year,
        "memory_bytes": device.memory_bytes,
        "bytes_per_s": device.bytes_per_s,
        "half_flops_per_s": peaks.get("bf16", peaks.get("fp16")),
        "fp16_flops_per_s": peaks.get("fp16"),
        "bf16_flops_per_s": peaks.get("bf16"),
        "fp8_flops_per_s": peaks.get("fp8"),
        "calibrated": ", ".join(entry.name for entry in device.efficiency),
        "status": device.status,
    }


def device_figures(device: Device) -> Iterator[Record]:
    """Give every figure of a device file with the titles of its sources."""
    own = device.model_dump(exclude_none=True, exclude={"datasheet", "measured", "efficiency", "sources", "notes"})
    sheet = device.datasheet.model_dump(exclude_none=True, exclude={"sources"})
    for figure, value in flat(own):
        yield _figure("device", figure, value, _keys(figure, device.sources))
    for figure, value in flat(sheet):
        yield _figure("datasheet", figure, value, _keys(figure, device.datasheet.sources))
    for measured in device.measured:
        yield _measured(measured)
    for entry in device.efficiency:
        yield from _efficiency(entry)


def brief(rows: Iterable[Record]) -> Iterator[Record]:
    """Shorten rows for eyes: titles without their remarks, `as above` where the last had the same, long lists cut."""
    last = None
    for one in rows:
        said = "; ".join(dict.fromkeys(_short(title) for title in one["source"].split("; ")))
        yield {**one, "value": _cut(one["value"]), "source": "as above" if said and said == last else said}
        last = said


def _cut(value: object) -> object:
    """Cut a long list after an entry, and say how many it has.

    >>> _cut(", ".join(f"layers.{index}" for index in range(90)))[-37:]
    'layers.35, layers.36, ... (90 in all)'
    """
    if not isinstance(value, str) or len(value) <= _LONGEST or ", " not in value:
        return value
    kept = value[:_LONGEST].rpartition(", ")[0]
    return f"{kept}, ... ({value.count(', ') + 1} in all)"


def _short(title: str) -> str:
    """Take a title up to its remarks.

    >>> _short("DGX Spark compute note (0.5 PFLOP FP4 dense, 0.25 PFLOP FP8 dense)"), _short("derived: arithmetic")
    ('DGX Spark compute note', 'derived')
    """
    return title.split(": " if title.startswith("derived") else " (", maxsplit=1)[0]


def _figure(block: str, figure: str, value: object, keys: Sequence[str], note: str = "") -> Record:
    """Give one figure; what was recalled rather than read, and what is not on sale yet, is marked."""
    marks = ["unverified"] if _UNVERIFIED in keys or figure.endswith("_unverified") else []
    marks += ["announced, not shipping"] if value == "announced" else []
    source = titles(tuple(keys)) if keys else ""
    return row(block, figure, value, source, "; ".join((*marks, *([note] if note else []))))


def _measured(one: Measured) -> Record:
    conditions = "; ".join(part for part in (one.conditions, "ceiling" if one.ceiling else "") if part)
    return _figure("measured", one.quantity, one.value, one.source, conditions)


def _efficiency(entry: Efficiency) -> Iterator[Record]:
    constants = entry.model_dump(exclude_defaults=True, exclude={"name", "evidence"})
    for figure, value in flat(constants):
        evidence = next((one for one in entry.evidence if _supports(one, figure)), None)
        keys, note = ((evidence.source,), evidence.note) if evidence else ((), "")
        yield _figure(f"efficiency {entry.name}", figure, value, keys, note)


def _supports(evidence: Evidence, figure: str) -> bool:
    return figure == evidence.constant or figure.startswith(f"{evidence.constant}.")


def row(block: str, figure: str, value: object, source: str, note: str = "", *, unit: str = "") -> Record:
    """Give one figure as a row; the unit says how it is shown to eyes."""
    return {"block": block, "figure": figure, "value": value, "source": source, "note": note, "unit": unit}


def flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Give nested figures under dotted names; what is empty is left out."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{key}.")
        elif value not in ("", (), []):
            yield f"{prefix}{key}", ", ".join(map(str, value)) if isinstance(value, list | tuple) else value


def _keys(figure: str, sources: SourceMap) -> Sequence[str]:
    """Look up the source of a figure, or of the group that it belongs to."""
    table = dict(sources)
    parts = figure.split(".")
    named = (".".join(parts[:end]) for end in range(len(parts), 0, -1))
    return next((table[name] for name in named if name in table), ())
