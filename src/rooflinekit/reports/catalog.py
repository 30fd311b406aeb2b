"""Devices and models as rows: one a device or model for lists, one a figure, with its source, to show one of them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rooflinekit.phases.memory import cache_shape
from rooflinekit.phases.sources import titles
from rooflinekit.reports.cache import cache_precision
from rooflinekit.specs.device import Device, Measured
from rooflinekit.specs.efficiency import Efficiency, Evidence
from rooflinekit.specs.model import Model, PublishedCount
from rooflinekit.specs.spec import SourceMap

Record = dict[str, Any]

#: The source key of a figure that no document was read for.
_UNVERIFIED = "memory"
#: What names a model needs no source.
_NAMES = ("id", "name", "family", "hub_ids", "aliases", "verified")


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


def model_row(model: Model) -> Record:
    """Give the figures of a model that bound inference; the KV cache in the model's own dtype."""
    return {
        "model": model.id,
        "name": model.name,
        "family": model.family,
        "parameters": model.parameters.total,
        "active_parameters": model.parameters.active,
        "layers": model.layer_count,
        "kv_bytes_per_token": cache_shape(model, cache_precision(model)).bytes_per_token,
        "max_context_tokens": model.max_context_tokens,
        "dtype": model.dtype,
        "figures": "verified" if model.verified else "unverified",
    }


def device_figures(device: Device) -> Iterator[Record]:
    """Give every figure of a device file with the titles of its sources."""
    own = device.model_dump(exclude_none=True, exclude={"datasheet", "measured", "efficiency", "sources", "notes"})
    sheet = device.datasheet.model_dump(exclude_none=True, exclude={"sources"})
    for figure, value in _flat(own):
        yield _figure("device", figure, value, _keys(figure, device.sources))
    for figure, value in _flat(sheet):
        yield _figure("datasheet", figure, value, _keys(figure, device.datasheet.sources))
    for row in device.measured:
        yield _measured(row)
    for entry in device.efficiency:
        yield from _efficiency(entry)


def model_figures(model: Model) -> Iterator[Record]:
    """Give every figure of a model file that is not its default, the counts that follow, and their sources."""
    apart = {"mixers", "feedforwards", "layers", "sources", "notes", "published_count", "reference_count"}
    own = dict(_flat(model.model_dump(exclude_defaults=True, exclude=apart)))
    for parts in (model.mixers, model.feedforwards):
        own |= dict(_flat({part.name: part.model_dump(exclude_defaults=True, exclude={"name"}) for part in parts}))
    if model.layers:
        own["layers"] = ", ".join(f"{times} x {mixer} + {inner}" for mixer, inner, times in model.layers)
    source = "; ".join(dict(model.sources).get("figures", ()))
    mark = "" if model.verified else "unverified"
    for figure, value in own.items():
        yield _row("model", figure, value, "" if figure in _NAMES else source, "" if figure in _NAMES else mark)
    yield from _counts(model)


def brief(rows: Iterable[Record]) -> Iterator[Record]:
    """Shorten sources for eyes: titles without their remarks, and `as above` where the last figure had the same."""
    last = None
    for row in rows:
        said = "; ".join(dict.fromkeys(_short(title) for title in row["source"].split("; ")))
        yield {**row, "source": "as above" if said and said == last else said}
        last = said


def _short(title: str) -> str:
    """Take a title up to its remarks.

    >>> _short("DGX Spark compute note (0.5 PFLOP FP4 dense, 0.25 PFLOP FP8 dense)"), _short("derived: arithmetic")
    ('DGX Spark compute note', 'derived')
    """
    return title.split(": " if title.startswith("derived") else " (", maxsplit=1)[0]


def _counts(model: Model) -> Iterator[Record]:
    for name, value in model.parameters._asdict().items():
        yield _row("parameters", name, value, "counted from the shapes")
    for name in ("published_count", "reference_count"):
        count: PublishedCount | None = getattr(model, name)
        if count is not None:
            keys = "; ".join((count.source, *dict(model.sources).get(name, ())))
            yield _row("parameters", name, count.total, keys, count.note)


def _figure(block: str, figure: str, value: object, keys: Sequence[str], note: str = "") -> Record:
    """Give one figure; what was recalled rather than read, and what is not on sale yet, is marked."""
    marks = ["unverified"] if _UNVERIFIED in keys or figure.endswith("_unverified") else []
    marks += ["announced, not shipping"] if value == "announced" else []
    source = titles(tuple(keys)) if keys else ""
    return _row(block, figure, value, source, "; ".join((*marks, *([note] if note else []))))


def _measured(row: Measured) -> Record:
    conditions = "; ".join(part for part in (row.conditions, "ceiling" if row.ceiling else "") if part)
    return _figure("measured", row.quantity, row.value, row.source, conditions)


def _efficiency(entry: Efficiency) -> Iterator[Record]:
    constants = entry.model_dump(exclude_defaults=True, exclude={"name", "evidence"})
    for figure, value in _flat(constants):
        evidence = next((one for one in entry.evidence if _supports(one, figure)), None)
        keys, note = ((evidence.source,), evidence.note) if evidence else ((), "")
        yield _figure(f"efficiency {entry.name}", figure, value, keys, note)


def _supports(evidence: Evidence, figure: str) -> bool:
    return figure == evidence.constant or figure.startswith(f"{evidence.constant}.")


def _row(block: str, figure: str, value: object, source: str, note: str = "") -> Record:
    return {"block": block, "figure": figure, "value": value, "source": source, "note": note}


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Give nested figures under dotted names; what is empty is left out."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        elif value not in ("", (), []):
            yield f"{prefix}{key}", ", ".join(value) if isinstance(value, list | tuple) else value


def _keys(figure: str, sources: SourceMap) -> Sequence[str]:
    """Look up the source of a figure, or of the group that it belongs to."""
    table = dict(sources)
    parts = figure.split(".")
    named = (".".join(parts[:end]) for end in range(len(parts), 0, -1))
    return next((table[name] for name in named if name in table), ())
