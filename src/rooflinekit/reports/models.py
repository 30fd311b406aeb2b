"""Models as rows: one a model for lists, one a figure, with its source, to show one of them; and their checkpoints."""

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from rooflinekit.errors import SpecError
from rooflinekit.phases.memory import cache_shape, stored_weight_bytes
from rooflinekit.reports.cache import cache_precision, kinds
from rooflinekit.reports.catalog import Record, flat, row
from rooflinekit.specs.model import Model, PublishedCount, Run
from rooflinekit.specs.parameters import Parameters
from rooflinekit.specs.precision import Precision, WeightFormat
from rooflinekit.specs.safetensors import check_against, read_checkpoint

#: What names a model needs no source.
_NAMES = ("id", "name", "family", "hub_ids", "aliases", "verified")
#: Fields that have rows of another kind.
_APART = {"mixers", "feedforwards", "layers", "quantisation", "sources", "notes", "published_count", "reference_count"}
_COUNTED = "counted from the shapes"
#: Which convention a count of active parameters follows, and whose publications do.
_CONVENTIONS = {
    "active": "all that one token goes through",
    "active_without_embedding": "input table left out, as gpt-oss, DeepSeek and Kimi publish",
    "active_without_tables": "input table and output layer left out, as MiniMax and GLM publish",
    "lookup": "tables that are only gathered from",
    "prediction_module": "counted in nothing else",
}
#: What no checkpoint quantises unless a rule of it says so.
_ALWAYS_PLAIN = ("norms", "biases", "routers")


def model_row(model: Model) -> Record:
    """Give the figures of a model that bound inference; the KV cache in the model's own dtype."""
    parameters, cache = model.parameters, cache_shape(model, cache_precision(model))
    return {
        "model": model.id,
        "name": model.name,
        "family": model.family,
        "parameters": parameters.total,
        "active_parameters": parameters.active,
        "layers": model.layer_count,
        "kv_bytes_per_token": cache.bytes_per_token,
        "state_bytes": cache.state_bytes,
        "max_context_tokens": model.max_context_tokens,
        "dtype": model.dtype,
        "weights": cache_precision(model).described.replace(" weights", ""),
        "figures": "verified" if model.verified else "unverified",
    }


def model_figures(model: Model) -> Iterator[Record]:
    """Give every figure of a model file that is not its default, what follows from them, and their sources."""
    source = "; ".join(dict(model.sources).get("figures", ()))
    mark = "" if model.verified else "unverified"
    own = dict(flat(model.model_dump(exclude_defaults=True, exclude=_APART)))
    for figure, value in own.items():
        named = figure in _NAMES
        yield row("model", figure, value, "" if named else source, "" if named else mark)
    for figure, value in _layers(model).items():
        yield row("layers", figure, value, source, mark)
    yield from _counts(model)
    yield from _cache(model)
    yield from _weights(model)


def checkpoint_figures(model: Model, folder: Path) -> Iterator[Record]:
    """Give what the safetensors files of a folder hold, against what the model counts; nothing where there are none."""
    if not any(folder.glob("*.safetensors")):
        return
    try:
        stored, said = read_checkpoint(folder).stored_bytes, check_against(model, folder)
    except SpecError as error:
        yield row("checkpoint", "not compared", str(error), "headers of *.safetensors")
        return
    ours = stored_weight_bytes(model, cache_precision(model))
    note = f"{stored:,} bytes; {stored / ours - 1.0:+.2%} of what the formats give"
    yield row("checkpoint", "stored_weight_bytes", stored, "headers of *.safetensors", note, unit="capacity")
    yield row("checkpoint", "parameters", said.partition("; ")[2], "headers of *.safetensors")


# ---- layers


def _layers(model: Model) -> dict[str, Any]:
    """Give the order of the layers, then each mixer's and each feed-forward's figures."""
    if model.summary is not None:
        return {}
    found: dict[str, Any] = {"order": pattern(model.layers)}
    for position, parts in enumerate((model.mixers, model.feedforwards)):
        for part in parts:
            times = sum(run[2] for run in model.layers if run[position] == part.name)
            found |= {f"{part.name}.kind": part.kind, f"{part.name}.layers": times}
            found |= dict(flat(part.model_dump(exclude_defaults=True, exclude={"name", "kind"}), f"{part.name}."))
    return found


def pattern(runs: Sequence[Run]) -> str:
    """Write a layer list in short, what repeats as a group.

    >>> pattern([("window", "dense", 5), ("full", "dense", 1)] * 10 + [("window", "dense", 2)])
    '10 x (5 x window + dense, 1 x full + dense), 2 x window + dense'
    """
    said, left = [], [f"{times} x {mixer} + {inner}" for mixer, inner, times in runs]
    while left:
        length, times = max(_repeats(left), key=lambda found: (found[0] * found[1] * (found[1] > 1), -found[0]))
        group = ", ".join(left[:length])
        said.append(group if times == 1 else f"{times} x ({group})")
        left = left[length * times :]
    return ", ".join(said)


def _repeats(words: list[str]) -> Iterator[tuple[int, int]]:
    """Yield each length of a group at the front, and how often it stands there in a row."""
    for length in range(1, len(words) // 2 + 2):
        times = 1
        while words[length * times : length * (times + 1)] == words[:length]:
            times += 1
        yield length, times


# ---- what follows


def _counts(model: Model) -> Iterator[Record]:
    for name, value in _named(model.parameters):
        yield row("parameters", name, value, _COUNTED, _CONVENTIONS.get(name, ""), unit="count")
    for name in ("published_count", "reference_count"):
        count: PublishedCount | None = getattr(model, name)
        if count is not None:
            keys = "; ".join((count.source, *dict(model.sources).get(name, ())))
            yield row("parameters", name, count.total, keys, count.note, unit="count")


def _named(parameters: Parameters) -> Iterator[tuple[str, int]]:
    """Name the counts: the total, active ones by each convention, the parts; what most models lack only where it is."""
    yield "total", parameters.total
    for name in ("active", "active_without_embedding", "active_without_tables"):
        yield name, getattr(parameters, name)
    for name, value in islice(parameters._asdict().items(), 2, None):
        if value or name not in ("lookup", "prediction_module"):
            yield name, value


def _cache(model: Model) -> Iterator[Record]:
    precision = cache_precision(model)
    whole = cache_shape(model, precision)
    said = f"{precision.kv_cache} cache, all layers"
    yield row("KV cache", "kv_bytes_per_token", whole.bytes_per_token, _COUNTED, said, unit="capacity")
    yield row("KV cache", "state_bytes", whole.state_bytes, _COUNTED, "of a sequence, at any length", unit="capacity")
    for kind in kinds(model, precision):
        if kind.layer != "all":
            each, state = kind.cache.bytes_per_token, kind.cache.state_bytes
            figure = f"{kind.layer}.{'kv_bytes_per_token' if each else 'state_bytes'}"
            seen = "" if kind.window_tokens is None else f", the last {kind.window_tokens:,} tokens only"
            yield row("KV cache", figure, each or state, _COUNTED, f"{kind.layers} layers{seen}", unit="capacity")


def _weights(model: Model) -> Iterator[Record]:
    """Give each format with its bits and what it holds, what stays plain, and the bytes of all weights."""
    precision = cache_precision(model)
    scheme, stored = precision.scheme, stored_weight_bytes(model, precision)
    if scheme.method:
        yield row("weights", "method", scheme.method, "")
    for form, matrices in _held(precision).items():
        yield row("weights", form.name, ", ".join(matrices), "", _bits(form))
    yield row("weights", "stored_weight_bytes", stored, _COUNTED, f"{stored:,.0f} bytes", unit="capacity")


def _held(precision: Precision) -> dict[WeightFormat, list[str]]:
    """List what is held in each format: the linear layers, those that rules name, tables, and what is never packed."""
    found: dict[WeightFormat, list[str]] = {precision.named(precision.scheme.default): ["linear layers"]}
    for matrices, form in precision.scheme.rules:
        found.setdefault(precision.named(form), []).append(matrices)
    for name, held in (("embedding", precision.embedding), ("output layer", precision.head)):
        found.setdefault(held, []).append(name)
    found.setdefault(precision.plain, []).extend(_ALWAYS_PLAIN)
    return found


def _bits(form: WeightFormat) -> str:
    return f"{form.bits:.6g} bits a weight; scales: {form.scales}"
