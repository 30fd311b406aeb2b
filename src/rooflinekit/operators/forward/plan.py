"""The operators of a forward pass, layer by layer; identical ones merge."""

from collections.abc import Callable, Iterator
from typing import Any

from rooflinekit.operators.attention import attention_flops
from rooflinekit.operators.cost import ONE, SAMPLED, SAMPLING, TOKENS, Feature, Operator, Plan, assemble
from rooflinekit.operators.elementwise import copy_bytes, norm_elements
from rooflinekit.operators.forward.collectives import Messages, shared_out
from rooflinekit.operators.forward.feedforward import dense, mixture
from rooflinekit.operators.forward.grouped import grouped
from rooflinekit.operators.forward.latent import latent
from rooflinekit.operators.forward.recurrent import recurrent
from rooflinekit.operators.forward.rows import Work, attention_variant, elementwise, linear
from rooflinekit.operators.matmul import matmul_activation_elements, matmul_flops, matmul_weight_bytes
from rooflinekit.specs.feedforwards import DenseFeedForward, FeedForwardBase, MixtureFeedForward
from rooflinekit.specs.mixers import GroupedQueryAttention, LatentAttention, MixerBase, Recurrent
from rooflinekit.specs.model import Layer, Model, Summary
from rooflinekit.specs.parallelism import Parallelism
from rooflinekit.specs.precision import Precision

Build = Callable[..., Iterator[Operator]]
#: Class of mixer -> its operators: a new kind is one function here.
MIXERS: tuple[tuple[type[MixerBase], Build], ...] = (
    (GroupedQueryAttention, grouped),
    (LatentAttention, latent),
    (Recurrent, recurrent),
)
#: Class of feed-forward -> its operators.
FEEDFORWARDS: tuple[tuple[type[FeedForwardBase], Build], ...] = (
    (DenseFeedForward, dense),
    (MixtureFeedForward, mixture),
)


ALONE = Parallelism.model_construct()


def plan(model: Model, precision: Precision, layout: Parallelism = ALONE) -> Plan:
    """Lay out the operators of one forward pass, of the busiest rank where several share it; built once a deployment.

    Of a pipeline it has all stages, since one group of tokens passes them one after another.
    """
    part = layout.rank_of(model)
    if part.summary is not None:
        return assemble(_summary(part.summary, precision))
    messages = Messages(layout, model, precision)
    operators = [
        *_entrance(part, precision),
        *messages.entrance(),
        *_layers(part, precision, messages),
        *_exit(part, precision, float(model.vocabulary or 0)),
        *messages.exit(),
    ]
    return assemble(shared_out(operators, layout.data_parallel_attention))


def _layers(model: Model, precision: Precision, messages: Messages) -> Iterator[Operator]:
    """Yield the layers' operators: a run of identical layers at once, unless the checkpoint tells its layers apart."""
    index = 0
    for run in model.layer_runs:
        if precision.scheme.by_layer:
            for layer in range(index, index + run.times):
                yield from _layer(model, run, precision, layer)
                yield from messages.layer(run)
        else:
            yield from (
                operator._replace(times=operator.times * run.times)
                for operator in (*_layer(model, run, precision, index), *messages.layer(run))
            )
        index += run.times


def _layer(model: Model, run: Layer, precision: Precision, layer: int) -> Iterator[Operator]:
    hidden, size = model.hidden_size or 0, precision.value_bytes
    norms = run.mixer.norms + run.feedforward.norms
    if norms:
        moved = norm_elements(1, hidden) * size
        norm = elementwise("block_norm", "norm", precision, {TOKENS: moved}, weights=model.norm_parameters * size)
        yield norm._replace(times=norms)
    yield from _of_kind(MIXERS, run.mixer, model, run.mixer, precision, layer)
    yield from _of_kind(FEEDFORWARDS, run.feedforward, hidden, run.feedforward, precision, layer)
    for extra in (model.per_layer_inputs, model.altup):
        for shape in extra.layer_products(hidden) if extra else ():
            yield linear(shape, precision, layer)


def _of_kind(registry: tuple[tuple[type[Any], Build], ...], block: object, *arguments: object) -> Iterator[Operator]:
    build = next((function for kind, function in registry if isinstance(block, kind)), None)
    return iter(()) if build is None else build(*arguments)


def _entrance(model: Model, precision: Precision) -> Iterator[Operator]:
    hidden, size = float(model.hidden_size or 0), precision.value_bytes
    tables = 2.0 if model.position == "learned" else 1.0  # a learned position is a second row to gather
    yield elementwise("embedding", "cache_write", precision, {TOKENS: copy_bytes(1, hidden, tables * size, size)})
    if model.embedding_norm:
        moved = norm_elements(1, hidden) / 2.0 * size  # no residual to add here
        yield elementwise("embedding_norm", "norm", precision, {TOKENS: moved}, weights=model.norm_parameters * size)
    yield from _extra_entrance(model, precision)


def _extra_entrance(model: Model, precision: Precision) -> Iterator[Operator]:
    hidden, size = model.hidden_size or 0, precision.value_bytes
    if model.per_layer_inputs is not None:
        rows = copy_bytes(1, model.layer_count * model.per_layer_inputs.width, size, size)
        yield elementwise("per_layer_embedding", "cache_write", precision, {TOKENS: rows})
        norms = model.per_layer_inputs.norm_parameters(hidden, model.layer_count) * size
        moved = norm_elements(1, model.layer_count * hidden) / 2.0 * size
        yield elementwise("per_layer_norm", "norm", precision, {TOKENS: moved}, weights=norms)
        for shape in model.per_layer_inputs.model_products(hidden, model.layer_count):
            yield linear(shape, precision, None)
    if model.altup is not None:
        vectors = model.layer_count * model.altup.layer_parameters(hidden) * size
        moved = 2.0 * model.layer_count * model.altup.inputs * hidden * size
        yield elementwise("altup", "norm", precision, {TOKENS: moved}, weights=vectors)
        for shape in model.altup.model_products(hidden):
            yield linear(shape, precision, None)


def _exit(model: Model, precision: Precision, sampled: float) -> Iterator[Operator]:
    """Yield the final norm, and the output layer for the positions that are sampled and for no others.

    A rank computes its part of the vocabulary; the next token is sampled from all of it.
    """
    hidden, vocabulary, size = float(model.hidden_size or 0), float(model.vocabulary or 0), precision.value_bytes
    moved = norm_elements(1, hidden) * size
    yield elementwise("final_norm", "norm", precision, {TOKENS: moved}, weights=model.norm_parameters * size)
    each = precision.head.bytes_per_weight
    weights = matmul_weight_bytes(hidden, vocabulary, each) + model.lm_head_bias * vocabulary * size
    head: Work = {
        "launches": {SAMPLING: 1.0},
        "flops": {SAMPLED: matmul_flops(1, hidden, vocabulary)},
        "weight_bytes": {SAMPLING: weights},
        "activation_bytes": {SAMPLED: matmul_activation_elements(1, hidden, vocabulary) * size},
        "packed_weights": {SAMPLING: hidden * vocabulary if precision.head.packed else 0.0},
    }
    yield Operator("lm_head", "product", precision.head_dtype, head)
    sampling: Work = {"launches": {SAMPLING: 1.0}, "activation_bytes": {SAMPLED: sampled * size}}
    yield Operator("sampling", "norm", precision.dtype, sampling)  # a reduction over a row, as a norm is


def _summary(summary: Summary, precision: Precision) -> Iterator[Operator]:
    """Yield a lump of matrices and the KV cache: no activations, no small kernels, attention's FLOPs only if told."""
    active = summary.active_parameters or summary.parameters
    weights = summary.parameters * precision.weights.bytes_per_weight
    read = ONE if active == summary.parameters else Feature("experts", detail=(1.0, active / summary.parameters, 0.0))
    lump: Work = {
        "launches": {ONE: 1.0},
        "flops": {TOKENS: matmul_flops(1, active, 1)},
        "weight_bytes": {read: weights},
    }
    yield Operator("products", "product", precision.arithmetic_of(precision.weights), lump)
    scores, rows = Feature("scores"), Feature("rows_read")
    heads, width = float(summary.heads or 0), summary.head_dim
    cache: Work = {
        "launches": {ONE: 1.0},
        "flops": {scores: attention_flops(1, heads, width, width)},
        "scores": {scores: heads},
        "kv_bytes": {rows: 2.0 * summary.kv_heads * width * precision.kv_bytes},
        "kv_row_bytes": {Feature("short_rows"): 2.0 * summary.kv_heads * width * precision.kv_bytes},
    }
    yield Operator(
        "attention",
        "attention",
        precision.attention_dtype,
        cache,
        summary.layers,
        variant=attention_variant(width, precision),
    )
