"""A model's forward pass as a Plan, and a Step as its features: the only file of this room that knows specs."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rooflinekit.operators.attention import (
    attention_flops,
    attention_scores,
    query_output_elements,
    rows_read,
)
from rooflinekit.operators.cost import (
    ONE,
    SAMPLED,
    SAMPLING,
    SEQUENCES,
    TOKENS,
    Feature,
    Matrix,
    Operator,
    Plan,
    assemble,
)
from rooflinekit.operators.elementwise import activation_elements, copy_bytes, norm_elements, rotary_elements
from rooflinekit.operators.matmul import matmul_activation_elements, matmul_flops, matmul_weight_bytes
from rooflinekit.operators.moe import distinct_experts
from rooflinekit.specs.feedforward import FeedForward
from rooflinekit.specs.mixer import Mixer, Product
from rooflinekit.specs.model import Layer, Model, Summary
from rooflinekit.specs.precision import Precision
from rooflinekit.specs.step import Group

Real = float | NDArray[np.float64]
Work = dict[str, dict[Feature, Real]]


def plan(model: Model, precision: Precision) -> Plan:
    """Lay out the operators of one forward pass; built once per deployment."""
    if model.summary is not None:
        return assemble(_summary(model.summary, precision))
    layers = (operator for run in model.layer_runs for operator in _layer(model, run, precision))
    return assemble([*_entrance(model, precision), *layers, *_exit(model, precision)])


def features(wanted: tuple[Feature, ...], groups: tuple[Group, ...]) -> Matrix:
    """Evaluate the features of a step: (features, points), groups summed here and nowhere else."""
    if all(type(value) in (int, float) for group in groups for value in group):
        whole = tuple(Amounts(*group) for group in groups)  # type: ignore[arg-type]  # all plain numbers
        return np.array([[_total(feature, whole)] for feature in wanted], dtype=np.float64)
    arrays = [Amounts(*(np.asarray(value, dtype=np.float64) for value in group)) for group in groups]
    shape = np.broadcast_shapes(*(values.shape for group in arrays for values in group))  # type: ignore[union-attr]
    x = np.empty((len(wanted), *shape))
    for row, feature in zip(x, wanted, strict=True):
        row[...] = _total(feature, tuple(arrays))
    return x.reshape(len(wanted), -1)


class Amounts(NamedTuple):
    """A group's counts as numbers or arrays that broadcast."""

    new: Real
    context: Real
    sequences: Real
    sampled: Real


def _total(feature: Feature, groups: tuple[Amounts, ...]) -> Real:
    match feature.kind:
        case "pass":
            return 1.0
        case "sampling":
            return np.minimum(_sum(groups, lambda group: group.sampled), 1.0)
        case "distinct":
            return distinct_experts(_sum(groups, lambda group: group.new), 1.0, feature.share or 1.0)
        case _:
            return _sum(groups, _PER_SEQUENCE[feature.kind](feature.window))


def _sum(groups: tuple[Amounts, ...], per_sequence: Callable[[Amounts], Real]) -> Real:
    total: Real = 0.0
    for group in groups:
        total = total + group.sequences * per_sequence(group)
    return total


#: Kind of feature -> from its window to what one sequence of a group adds.
_PER_SEQUENCE: dict[str, Callable[[int | None], Callable[[Amounts], Real]]] = {
    "tokens": lambda _: lambda group: group.new,
    "sequences": lambda _: lambda _group: 1.0,
    "sampled": lambda _: lambda group: group.sampled,
    "scores": lambda window: lambda group: attention_scores(group.new, group.context, window),
    "rows_read": lambda window: lambda group: rows_read(group.new, group.context, window),
}


def _product(shape: Product, precision: Precision, times: int = 1, part: str = "") -> Operator:
    """Count a quantised linear layer over all new tokens; its bias stays in the model's own dtype."""
    weights = matmul_weight_bytes(shape.inner, shape.columns, precision.weights.bytes_per_weight)
    elements = matmul_activation_elements(1, shape.inner, shape.columns)
    work: Work = {
        "launches": {ONE: 1.0},
        "flops": {TOKENS: matmul_flops(1, shape.inner, shape.columns)},
        "weight_bytes": {ONE: weights + shape.bias * precision.value_bytes},
        "activation_bytes": {TOKENS: elements * precision.value_bytes},
        "input_elements": {TOKENS: float(shape.inner)},
    }
    return Operator(shape.name, "product", precision.product_dtype, work, times, part)


def _elementwise(name: str, op_class: str, precision: Precision, moved: Real, weights: float = 0.0) -> Operator:
    """Count a small kernel that moves so many bytes for each new token, and reads so many of weights."""
    work: Work = {"launches": {ONE: 1.0}, "weight_bytes": {ONE: weights}, "activation_bytes": {TOKENS: moved}}
    return Operator(name, op_class, precision.dtype, work)


def _entrance(model: Model, precision: Precision) -> Iterator[Operator]:
    hidden, size = float(model.hidden_size or 0), precision.value_bytes
    tables = 2.0 if model.position == "learned" else 1.0  # a learned position is a second row to gather
    yield _elementwise("embedding", "cache_write", precision, copy_bytes(1, hidden, tables * size, size))
    if model.embedding_norm:
        moved = norm_elements(1, hidden) / 2.0 * size  # no residual to add here
        yield _elementwise("embedding_norm", "norm", precision, moved, model.norm_parameters * size)


def _exit(model: Model, precision: Precision) -> Iterator[Operator]:
    """Count the final norm, and the output layer for the positions that are sampled and for no others."""
    hidden, vocabulary, size = float(model.hidden_size or 0), float(model.vocabulary or 0), precision.value_bytes
    moved = norm_elements(1, hidden) * size
    yield _elementwise("final_norm", "norm", precision, moved, model.norm_parameters * size)
    weights = matmul_weight_bytes(hidden, vocabulary, size) + model.lm_head_bias * vocabulary * size
    head: Work = {
        "launches": {SAMPLING: 1.0},
        "flops": {SAMPLED: matmul_flops(1, hidden, vocabulary)},
        "weight_bytes": {SAMPLING: weights},
        "activation_bytes": {SAMPLED: matmul_activation_elements(1, hidden, vocabulary) * size},
    }
    yield Operator("lm_head", "product", precision.dtype, head)
    sampling: Work = {"launches": {SAMPLING: 1.0}, "activation_bytes": {SAMPLED: vocabulary * size}}
    yield Operator("sampling", "norm", precision.dtype, sampling)  # a reduction over a row, as a norm is


def _layer(model: Model, run: Layer, precision: Precision) -> Iterator[Operator]:
    hidden, size = model.hidden_size or 0, precision.value_bytes
    norms = run.mixer.norms + run.feedforward.norms
    moved = norm_elements(1, hidden) * size
    yield _elementwise("block_norm", "norm", precision, moved, model.norm_parameters * size)._replace(
        times=norms * run.times
    )
    for operator in (*_mixer(model, run.mixer, precision), *_feedforward(hidden, run.feedforward, precision)):
        yield operator._replace(times=run.times)


def _mixer(model: Model, mixer: Mixer, precision: Precision) -> Iterator[Operator]:
    size, part = precision.value_bytes, mixer.name
    qkv, output = mixer.products(model.hidden_size or 0)
    yield _product(qkv, precision, part=part)
    if model.has_rotary or mixer.qk_norm:
        name = "rotary" if mixer.qk_norm is None else "qk_norm_rotary" if model.has_rotary else "qk_norm"
        keys = 0 if mixer.shares_kv else mixer.kv_heads * mixer.head_dim
        moved = rotary_elements(1, mixer.heads * mixer.head_dim, keys) * size
        weights = mixer.head_norm_parameters * size
        yield _elementwise(name, "rotary", precision, moved, weights)._replace(part=part)
    if mixer.cached_per_token:
        moved = copy_bytes(1, mixer.cached_per_token, size, precision.kv_bytes)
        yield _elementwise("kv_write", "cache_write", precision, moved)._replace(part=part)
    yield _attention(mixer, precision)
    yield _product(output, precision, part=part)


def _attention(mixer: Mixer, precision: Precision) -> Operator:
    heads, key, value = mixer.heads, mixer.head_dim, mixer.value_width
    scores, rows = Feature("scores", mixer.window), Feature("rows_read", mixer.window)
    moved = query_output_elements(1, heads, key, value) * precision.value_bytes
    work: Work = {
        "launches": {ONE: 1.0},
        "flops": {scores: attention_flops(1, heads, key, value)},
        "scores": {scores: float(heads)},
        "activation_bytes": {TOKENS: moved},
        "kv_bytes": {rows: mixer.read_per_token * precision.kv_bytes, SEQUENCES: 0.0},
    }
    return Operator("attention", "attention", precision.attention_dtype, work, part=mixer.name)


def _feedforward(hidden: int, block: FeedForward, precision: Precision) -> Iterator[Operator]:
    up, down = block.products(hidden)
    moved = activation_elements(1, block.intermediate_size, gated=block.gated) * precision.value_bytes
    yield _product(up, precision, part=block.name)
    yield _elementwise(block.activation_name, "activation", precision, moved)._replace(part=block.name)
    yield _product(down, precision, part=block.name)


def _summary(summary: Summary, precision: Precision) -> Iterator[Operator]:
    """Count a lump of matrices and the KV cache: no activations, no small kernels, attention's FLOPs only if told."""
    active = summary.active_parameters or summary.parameters
    weights = summary.parameters * precision.weights.bytes_per_weight
    read = ONE if active == summary.parameters else Feature("distinct", share=active / summary.parameters)
    lump: Work = {
        "launches": {ONE: 1.0},
        "flops": {TOKENS: matmul_flops(1, active, 1)},
        "weight_bytes": {read: weights},
    }
    yield Operator("products", "product", precision.product_dtype, lump)
    scores, rows = Feature("scores"), Feature("rows_read")
    heads, width = float(summary.heads or 0), summary.head_dim
    cache: Work = {
        "launches": {ONE: 1.0},
        "flops": {scores: attention_flops(1, heads, width, width)},
        "scores": {scores: heads},
        "kv_bytes": {rows: 2.0 * summary.kv_heads * width * precision.kv_bytes, SEQUENCES: 0.0},
    }
    yield Operator("attention", "attention", precision.attention_dtype, cache, summary.layers)
