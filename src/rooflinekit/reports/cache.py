"""The KV cache of a model by kind of layer; no device is needed."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from rooflinekit.phases.memory import CacheShape, cache_shape, runs_cache
from rooflinekit.phases.resolve import Choices, resolve_precision
from rooflinekit.specs.catalog import load_device
from rooflinekit.specs.model import Model
from rooflinekit.specs.precision import Precision
from rooflinekit.specs.step import checked


class Kind(NamedTuple):
    """Layers that hold their K and V, latents or states alike."""

    layer: str
    layers: int
    window_tokens: int | None
    cache: CacheShape


def cache_precision(model: Model, kv_cache: str | None = None) -> Precision:
    """Settle the cache's dtype: the asked one, else the model's own.

    >>> from rooflinekit import load_model
    >>> cache_precision(load_model("qwen3-8b")).kv_cache
    'bf16'
    """
    # A device without rates: nothing about it bears on the cache, and no dtype is replaced for its sake.
    anywhere = load_device({"bandwidth_gb_per_s": 1.0})
    return resolve_precision(model, anywhere, Choices(None, kv_cache, None, 0.0)).precision


def cache_rows(model: Model, precision: Precision, tokens: float, sequences: float) -> list[dict[str, Any]]:
    """Give a row for each kind of layer: bytes of one token, of one sequence and of all.

    >>> from rooflinekit import load_model
    >>> model = load_model("qwen3-8b")
    >>> cache_rows(model, cache_precision(model), 2048, 2)[0]["kv_cache_bytes"]
    603979776.0
    """
    checked("tokens", tokens)
    checked("sequences", sequences)
    return [_row(kind, tokens, sequences) for kind in kinds(model, precision)]


def kinds(model: Model, precision: Precision) -> Iterator[Kind]:
    """Give each kind of layer that holds something, and all together where there is not just one."""
    names = dict.fromkeys(run.mixer.name for run in model.layer_runs if run.mixer.cached_per_token or run.mixer.states)
    for name in names:
        runs = [run for run in model.layer_runs if run.mixer.name == name]
        yield Kind(name, sum(run.times for run in runs), runs[0].mixer.view, runs_cache(runs, precision))
    if len(names) != 1:
        yield Kind("all", model.layer_count, None, cache_shape(model, precision))


def _row(kind: Kind, tokens: float, sequences: float) -> dict[str, Any]:
    held = float(kind.cache.held(tokens))
    return {
        "layer": kind.layer,
        "layers": kind.layers,
        "window_tokens": kind.window_tokens,
        "kv_bytes_per_token": kind.cache.bytes_per_token,
        "state_bytes": kind.cache.state_bytes,
        "sequence_kv_cache_bytes": held,
        "kv_cache_bytes": held * sequences,
    }
