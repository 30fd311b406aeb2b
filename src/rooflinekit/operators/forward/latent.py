"""Operators of latent attention: expanded for a long prompt, absorbed for few new tokens over a long context."""

from collections.abc import Iterator
from math import inf

from rooflinekit.operators.attention import attention_flops, query_output_elements
from rooflinekit.operators.cost import ONE, TOKENS, Feature, Operator
from rooflinekit.operators.elementwise import copy_bytes, rotary_elements
from rooflinekit.operators.forward.rows import Work, elementwise, linear, module_bytes, module_formats, product_dtype
from rooflinekit.operators.matmul import matmul_flops
from rooflinekit.specs.mixers import LatentAttention
from rooflinekit.specs.mixers.base import Product
from rooflinekit.specs.model import Model
from rooflinekit.specs.precision import Precision


def latent(model: Model, mixer: LatentAttention, precision: Precision, layer: int | None) -> Iterator[Operator]:
    """Yield projections, the indexer, the cache write, and attention in both forms; a group uses the cheaper one."""
    part = mixer.name
    for shape in mixer.products(model.hidden_size or 0):
        if shape.name == "kv_b_proj":
            yield _expansion(mixer, shape, precision, layer)
        elif shape.name == "o_proj":
            yield from _middle(mixer, precision)
            yield linear(shape, precision, layer, part)
        else:
            yield linear(shape, precision, layer, part)


def _middle(mixer: LatentAttention, precision: Precision) -> Iterator[Operator]:
    size, part = precision.value_bytes, mixer.name
    norms = ((mixer.q_rank or 0) + mixer.kv_rank) * size
    moved = (
        rotary_elements(1, mixer.heads * mixer.rope_dim, mixer.rope_dim + mixer.kv_rank + (mixer.q_rank or 0)) * size
    )
    yield elementwise("qk_norm_rotary", "rotary", precision, {TOKENS: moved}, weights=norms, part=part)
    written = copy_bytes(1, mixer.cached_per_token, size, precision.kv_bytes) + mixer.index_bytes_per_token
    yield elementwise("kv_write", "cache_write", precision, {TOKENS: written}, part=part)
    if mixer.indexer is not None:
        yield _indexer(mixer, precision)
    yield _absorbed(mixer, precision)
    yield _expanded(mixer, precision)


def _costs(mixer: LatentAttention) -> tuple[float, ...]:
    """Operations a score and a token (absorbed), a score and a row (expanded), keys seen: what the choice weighs."""
    lift = matmul_flops(1, mixer.kv_rank, mixer.heads * (mixer.nope_dim + mixer.value_dim))
    absorbed = attention_flops(1, mixer.heads, mixer.kv_rank + mixer.rope_dim, mixer.kv_rank)
    expanded = attention_flops(1, mixer.heads, mixer.nope_dim + mixer.rope_dim, mixer.value_dim)
    return float(absorbed), float(lift), float(expanded), float(lift), float(mixer.keys_seen or inf)


def _feature(mixer: LatentAttention, kind: str, form: str) -> Feature:
    """Give a feature over the groups of one form; any row may be selected by some token, so all are expanded."""
    capped = kind == "scores" or (kind == "rows_read" and form == "absorbed")
    return Feature(kind, mixer.keys_seen if capped else None, form, _costs(mixer))


def _expansion(mixer: LatentAttention, shape: Product, precision: Precision, layer: int | None) -> Operator:
    """Count kv_b_proj: over every row of the context where expanded, over the new tokens where absorbed.

    Absorbed it is two products for each head: queries into the latent's space, and sums of latents out of it.
    """
    formats = module_formats(shape, precision, layer)
    weights = module_bytes(shape, precision, layer)
    rows, tokens = _feature(mixer, "rows_read", "expanded"), _feature(mixer, "tokens", "absorbed")
    flops, written = matmul_flops(1, shape.inner, shape.columns), shape.columns * precision.value_bytes
    moved = (shape.columns + 2 * mixer.heads * mixer.kv_rank) * precision.value_bytes
    work: Work = {
        "launches": {ONE: 1.0},
        "flops": {rows: flops, tokens: flops},
        "weight_bytes": {ONE: weights},
        "activation_bytes": {rows: written, tokens: moved},
        "kv_bytes": {rows: mixer.cached_per_token * precision.kv_bytes},
    }
    return Operator(
        "kv_b_proj", "product", product_dtype((form for _, form in formats), precision), work, part=mixer.name
    )


def _absorbed(mixer: LatentAttention, precision: Precision) -> Operator:
    """Count attention over the latents themselves, read once for all heads."""
    key, value = mixer.kv_rank + mixer.rope_dim, mixer.kv_rank
    scores, rows = _feature(mixer, "scores", "absorbed"), _feature(mixer, "rows_read", "absorbed")
    tokens = _feature(mixer, "tokens", "absorbed")
    work: Work = {
        "launches": {_feature(mixer, "present", "absorbed"): 1.0},
        "flops": {scores: attention_flops(1, mixer.heads, key, value)},
        "scores": {scores: float(mixer.heads)},
        "activation_bytes": {tokens: query_output_elements(1, mixer.heads, key, value) * precision.value_bytes},
        "kv_bytes": {rows: mixer.cached_per_token * precision.kv_bytes},
        "kv_row_bytes": {_feature(mixer, "sequences", "absorbed"): mixer.cached_per_token * precision.kv_bytes},
    }
    return Operator("attention_absorbed", "attention", precision.attention_dtype, work, part=mixer.name)


def _expanded(mixer: LatentAttention, precision: Precision) -> Operator:
    """Count attention over expanded keys and values, which kv_b_proj has written."""
    key, value = mixer.nope_dim + mixer.rope_dim, mixer.value_dim
    scores, rows = _feature(mixer, "scores", "expanded"), _feature(mixer, "rows_read", "expanded")
    tokens = _feature(mixer, "tokens", "expanded")
    size = precision.value_bytes
    work: Work = {
        "launches": {_feature(mixer, "present", "expanded"): 1.0},
        "flops": {scores: attention_flops(1, mixer.heads, key, value)},
        "scores": {scores: float(mixer.heads)},
        "activation_bytes": {
            tokens: query_output_elements(1, mixer.heads, key, value) * size,
            rows: mixer.heads * (mixer.nope_dim + mixer.value_dim) * size,
        },
    }
    return Operator("attention_expanded", "attention", precision.attention_dtype, work, part=mixer.name)


def _indexer(mixer: LatentAttention, precision: Precision) -> Operator:
    """Count the indexer's scores over the whole context, its FP8 keys, and the norm of the new ones."""
    index = mixer.indexer
    if index is None:
        message = "a mixer without an indexer has no indexer row"
        raise AssertionError(message)
    work: Work = {
        "launches": {ONE: 1.0},
        "flops": {Feature("scores"): matmul_flops(1, index.heads, index.head_dim)},
        "weight_bytes": {ONE: 2 * index.head_dim * precision.value_bytes},
        "activation_bytes": {TOKENS: index.heads * index.head_dim * precision.value_bytes},
        "kv_bytes": {Feature("rows_read"): mixer.index_bytes_per_token},
    }
    return Operator("indexer", "attention", precision.attention_dtype, work, part=mixer.name)
