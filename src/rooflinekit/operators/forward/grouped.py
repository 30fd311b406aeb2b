"""Operators of grouped-query attention."""

from collections.abc import Iterator

from rooflinekit.operators.attention import attention_flops, query_output_elements
from rooflinekit.operators.cost import ONE, TOKENS, Feature, Operator
from rooflinekit.operators.elementwise import activation_elements, copy_bytes, rotary_elements
from rooflinekit.operators.forward.rows import Work, attention_variant, elementwise, linear
from rooflinekit.specs.mixers import GroupedQueryAttention
from rooflinekit.specs.model import Model
from rooflinekit.specs.precision import Precision


def grouped(model: Model, mixer: GroupedQueryAttention, precision: Precision, layer: int | None) -> Iterator[Operator]:
    """Yield projections, rotation, cache write, attention and its gate."""
    size, part = precision.value_bytes, mixer.name
    qkv, output = mixer.products(model.hidden_size or 0)
    yield linear(qkv, precision, layer, part)
    yield from _rotary(model, mixer, precision)
    if mixer.cached_per_token:
        moved = copy_bytes(1, mixer.cached_per_token, size, precision.kv_bytes)
        yield elementwise("kv_write", "cache_write", precision, {TOKENS: moved}, part=part)
    yield attention(mixer, precision)
    if mixer.output_gate:
        gated = activation_elements(1, mixer.heads * mixer.value_width, gated=True) * size
        yield elementwise("attention_gate", "activation", precision, {TOKENS: gated}, part=part)
    yield linear(output, precision, layer, part)


def _rotary(model: Model, mixer: GroupedQueryAttention, precision: Precision) -> Iterator[Operator]:
    rotated = model.has_rotary and mixer.rotary
    if not rotated and mixer.qk_norm is None:
        return
    name = "rotary" if mixer.qk_norm is None else "qk_norm_rotary" if rotated else "qk_norm"
    keys = 0 if mixer.shares_kv else mixer.kv_heads * mixer.head_dim
    moved = rotary_elements(1, mixer.heads * mixer.head_dim, keys) * precision.value_bytes
    weights = mixer.head_norm_parameters * precision.value_bytes
    yield elementwise(name, "rotary", precision, {TOKENS: moved}, weights=weights, part=mixer.name)


def attention(mixer: GroupedQueryAttention, precision: Precision) -> Operator:
    """Count attention of one layer: scores, rows of K and V, queries and outputs."""
    heads, key, value = mixer.heads, mixer.head_dim, mixer.value_width
    form = "chunked" if mixer.chunked else ""
    scores, rows = Feature("scores", mixer.window, form), Feature("rows_read", mixer.window, form)
    moved = query_output_elements(1, heads, key, value) * precision.value_bytes
    work: Work = {
        "launches": {ONE: 1.0},
        "flops": {scores: attention_flops(1, heads, key, value)},
        "scores": {scores: float(heads)},
        "weight_bytes": {ONE: heads * mixer.sinks * precision.value_bytes},
        "activation_bytes": {TOKENS: moved},
        "kv_bytes": {rows: mixer.read_per_token * precision.kv_bytes},
        "kv_row_bytes": {rows._replace(kind="short_rows"): mixer.read_per_token * precision.kv_bytes},
    }
    return Operator(
        "attention",
        "attention",
        precision.attention_dtype,
        work,
        part=mixer.name,
        variant=attention_variant(max(key, value), precision),
    )
