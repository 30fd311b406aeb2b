"""What a deployment holds in memory: weights, and the KV cache of its sequences."""

import sys
import warnings
from collections.abc import Iterable, Sequence
from math import ceil
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rooflinekit import units
from rooflinekit.errors import ContextLengthWarning, DoesNotFitError
from rooflinekit.operators.forward.rows import module_bytes
from rooflinekit.operators.kv_cache import kv_cache_bytes
from rooflinekit.specs.model import Layer, Model
from rooflinekit.specs.parallelism import Parallelism, Stage
from rooflinekit.specs.parameters import layer_products
from rooflinekit.specs.precision import Precision
from rooflinekit.specs.step import Group, amount

if TYPE_CHECKING:
    from rooflinekit.phases.deployment import Deployment

Amount = float | NDArray[np.float64]


class CacheShape(NamedTuple):
    """What a sequence holds: bytes per token by window (equal windows together), and a state of constant size."""

    bytes_by_window: tuple[tuple[int | None, float], ...]
    state_bytes: float = 0.0

    @property
    def bytes_per_token(self) -> float:
        """Bytes that one token writes over all layers."""
        return sum((each for _, each in self.bytes_by_window), 0.0)

    def reserved(self, tokens: Amount) -> Amount:
        """Bytes that an engine without a cache manager for windows sets aside: every layer at the whole length."""
        return self.state_bytes + self.bytes_per_token * tokens

    def held(self, tokens: Amount) -> Amount:
        """Bytes that one sequence of so many tokens holds, its state included."""
        held: Amount = self.state_bytes
        for window, each in self.bytes_by_window:
            held = held + kv_cache_bytes(each, tokens, 1.0, window)
        return held


def cache_shape(model: Model, precision: Precision) -> CacheShape:
    """Sum the layers' cached bytes by window, and their states."""
    if model.summary is not None:
        values = 2.0 * model.summary.layers * model.summary.kv_heads * model.summary.head_dim
        return CacheShape(((None, values * precision.kv_bytes),))
    return runs_cache(model.layer_runs, precision)


def runs_cache(runs: Iterable[Layer], precision: Precision) -> CacheShape:
    """Sum what some runs of layers hold."""
    sums: dict[int | None, float] = {}
    state = 0.0
    for run in runs:
        mixer = run.mixer
        each = mixer.cached_per_token * precision.kv_bytes + mixer.index_bytes_per_token
        if each:
            sums[mixer.view] = sums.get(mixer.view, 0.0) + run.times * each
        state += run.times * sum(held.values * held.bytes_per_value for held in mixer.states)
    return CacheShape(tuple(sums.items()), state)


class Share(NamedTuple):
    """What one device of a pipeline stage holds: the weights of its layers, and their cache."""

    layers: int
    weights_bytes: float
    cache: CacheShape


def shares(model: Model, precision: Precision, layout: Parallelism) -> tuple[Share, ...]:
    """Give what a device of each stage holds, of the rank with most experts; one share without a pipeline."""
    part = layout.rank_of(model)
    if layout.pipeline_parallel == 1:
        return (Share(model.layer_count, stored_weight_bytes(part, precision), cache_shape(part, precision)),)
    return tuple(_share(part, precision, stage) for stage in layout.stages(model))


def _share(part: Model, precision: Precision, stage: Stage) -> Share:
    """Count one stage: the embedding is on the first, final norm and output layer on the last, a tied table on both."""
    own = part.model_copy(update={"layers": stage.runs})
    weights = stored_weight_bytes(own, precision, stage.first_layer)
    size, table = precision.value_bytes, (part.hidden_size or 0) * (part.vocabulary or 0)
    if not stage.is_last:
        weights -= part.norm_parameters * size + (part.vocabulary or 0) * part.lm_head_bias * size
        weights -= 0.0 if part.tied_embeddings else table * precision.head.bytes_per_weight
    if not stage.is_first:
        weights -= (part.hidden_size or 0) * (part.position_rows or 0) * size
        weights -= part.embedding_norm * part.norm_parameters * size
        weights -= 0.0 if part.tied_embeddings and stage.is_last else table * precision.embedding.bytes_per_weight
    return Share(stage.layers, weights, cache_shape(own, precision))


def stored_weight_bytes(model: Model, precision: Precision, first_layer: int = 0) -> float:
    """Count the bytes of all weights: each matrix in its format, tables in theirs, the rest in the model's own dtype.

    The input embedding is stored whole, though a pass gathers only the rows that it needs. ``first_layer`` is the
    index of the first layer in the checkpoint, whose rules may tell layers apart.
    """
    parameters = model.parameters
    if model.summary is not None:
        return parameters.total * precision.weights.bytes_per_weight
    quantised, matrices = _matrix_bytes(model, precision, first_layer)
    head = (model.hidden_size or 0) * (model.vocabulary or 0)
    tables = head * precision.embedding.bytes_per_weight
    tables += 0.0 if model.tied_embeddings else head * precision.head.bytes_per_weight
    rest = parameters.total - matrices - head * (1 if model.tied_embeddings else 2)
    return quantised + tables + rest * precision.value_bytes


def _matrix_bytes(model: Model, precision: Precision, index: int) -> tuple[float, int]:
    """Bytes and parameters of the linear layers and experts of the layers from `index` on."""
    held, counted, hidden = 0.0, 0, model.hidden_size or 0
    for run in model.layer_runs:
        layers = range(index, index + run.times) if precision.scheme.by_layer else (index,)
        repeat = 1 if precision.scheme.by_layer else run.times
        shapes = [(1, shape) for shape in layer_products(model, run)]
        shapes += [(run.feedforward.held, shape) for shape in run.feedforward.expert_products(hidden)]
        for layer in layers:
            held += repeat * sum(times * module_bytes(shape, precision, layer) for times, shape in shapes)
            counted += repeat * sum(times * shape.parameters for times, shape in shapes)
        index += run.times
    return held, counted


def check_sizes(deployment: "Deployment", groups: tuple[Group, ...]) -> None:
    """Warn of a context that the model was not made for; refuse what the memory cannot hold."""
    lengths = [amount(group.new_tokens) + amount(group.context_tokens) for group in groups]
    longest = max(length if isinstance(length, float) else float(length.max()) for length in lengths)
    limit = deployment.model.max_context_tokens
    if limit is not None and longest > limit:
        message = f"{units.count(longest)} tokens exceed the {limit:,} that {deployment.model.id} was made for"
        warnings.warn(message, ContextLengthWarning, stacklevel=_callers_level())
    if deployment.memory_check:
        _require_fit(deployment, lengths, [amount(group.sequences) for group in groups])


def _callers_level() -> int:
    """Stack level of the first line outside the library, so that a warning points at who asked."""
    level, frame = 1, sys._getframe(1)  # noqa: SLF001 - `warnings` can skip files by itself only from Python 3.12 on
    while frame.f_back is not None and str(frame.f_globals.get("__name__", "")).split(".")[0] == "rooflinekit":
        level, frame = level + 1, frame.f_back
    return level


def _require_fit(deployment: "Deployment", lengths: Sequence[Amount], sequences: Sequence[Amount]) -> None:
    """Raise an error that says how much is missing, where weights and the caches of all groups exceed the memory."""
    device, memory = deployment.device, deployment.device.memory_bytes
    if memory is None:
        return
    groups = deployment.layout.data_parallel_attention
    many = sequences if groups == 1 else [np.ceil(np.divide(one, groups)) for one in sequences]
    weights, worst = max(
        ((share.weights_bytes, _most_held(share.cache, lengths, many)) for share in deployment.shares), key=sum
    )
    if weights + worst <= memory:
        return
    count = deployment.layout.devices
    place = f"{device.id}" if count == 1 else f"{count} x {device.id} ({deployment.layout.layout}), each with its part"
    more = f"at least {ceil((weights + worst) / memory)} such devices hold them. " if count == 1 else ""
    message = (
        f"{deployment.model.id} does not fit on {place}: weights {units.binary_bytes(weights)} and KV cache "
        f"{units.binary_bytes(worst)} need {units.binary_bytes(weights + worst - memory)} more than its "
        f"{units.binary_bytes(memory)}: {more}"
        f"Use fewer sequences, a shorter context, smaller weights (`weights=`) or "
        "KV (`kv_cache=`), or memory_check=False"
    )
    raise DoesNotFitError(message)


def _most_held(cache: CacheShape, lengths: Sequence[Amount], sequences: Sequence[Amount]) -> float:
    """Bytes of the caches of all groups, at the point that holds most."""
    held: Amount = 0.0
    for length, many in zip(lengths, sequences, strict=True):
        held = held + cache.held(length) * many
    return float(held) if np.ndim(held) == 0 else float(np.max(held))
