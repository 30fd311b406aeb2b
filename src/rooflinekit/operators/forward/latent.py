"""Operators of latent attention: expanded for a long prompt, absorbed for few new tokens over a long context."""

from collections.abc import Callable, Iterator
from functools import partial
from math import inf

from rooflinekit.operators.attention import attention_flops, query_output_elements
from rooflinekit.operators.cost import ONE, TOKENS, Feature, Operator
from rooflinekit.operators.elementwise import copy_bytes, rotary_elements
from rooflinekit.operators.forward.rows import Work, attention_variant, elementwise, linear
from rooflinekit.operators.matmul import matmul_flops
from rooflinekit.specs.mixers import LatentAttention
from rooflinekit.specs.model import Model
from rooflinekit.specs.precision import DTYPES, Precision

#: Kind and form -> the feature over the groups that use this form.
OfForm = Callable[[str, str], Feature]


def latent(model: Model, mixer: LatentAttention, precision: Precision, layer: int | None) -> Iterator[Operator]:
    """Yield projections, the indexer, the cache write, and attention in both forms; a group uses the quicker one."""
    shapes = {shape.name: shape for shape in mixer.products(model.hidden_size or 0)}
    expansion = linear(shapes["kv_b_proj"], precision, layer, mixer.name)
    feature = partial(_feature, mixer, _costs(mixer, expansion.dtype, precision))
    for name, shape in shapes.items():
        if name == "o_proj":
            yield from _middle(mixer, precision, feature)
        yield (
            _expansion(mixer, expansion, precision, feature)
            if name == "kv_b_proj"
            else linear(shape, precision, layer, mixer.name)
        )


def _middle(mixer: LatentAttention, precision: Precision, feature: OfForm) -> Iterator[Operator]:
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
    yield _absorbed(mixer, precision, feature)
    yield _expanded(mixer, precision, feature)


def _costs(mixer: LatentAttention, dtype: str, precision: Precision) -> tuple[float, ...]:
    """Price of a score and a token (absorbed), a score and a row (expanded), and keys seen: what the choice weighs.

    Prices are 16-bit operations: 8-bit ones of kv_b_proj weigh half, as they take half the time, and each byte of the
    expanded rows, written and read, weighs as many operations as the device does meanwhile.
    """
    narrow = DTYPES[dtype] / DTYPES[precision.attention_dtype]
    expanded_width = mixer.heads * (mixer.nope_dim + mixer.value_dim)
    lift = narrow * matmul_flops(1, mixer.kv_rank, expanded_width)
    row = lift + precision.ridge * 2.0 * expanded_width * precision.value_bytes
    absorbed = attention_flops(1, mixer.heads, mixer.kv_rank + mixer.rope_dim, mixer.kv_rank)
    expanded = attention_flops(1, mixer.heads, mixer.nope_dim + mixer.rope_dim, mixer.value_dim)
    return float(absorbed), float(lift), float(expanded), float(row), float(mixer.keys_seen or inf)


def _feature(mixer: LatentAttention, costs: tuple[float, ...], kind: str, form: str) -> Feature:
    """Give a feature over the groups of one form; any row may be selected by some token, so all are expanded."""
    capped = kind == "scores" or (kind in {"rows_read", "short_rows"} and form == "absorbed")
    return Feature(kind, mixer.keys_seen if capped else None, form, costs)


def _expansion(mixer: LatentAttention, product: Operator, precision: Precision, feature: OfForm) -> Operator:
    """Count kv_b_proj: over every row of the context where expanded, over the new tokens where absorbed.

    Absorbed it is two products for each head: queries into the latent's space, and sums of latents out of it.
    """
    rows, tokens, size = feature("rows_read", "expanded"), feature("tokens", "absorbed"), precision.value_bytes
    expanded = mixer.heads * (mixer.nope_dim + mixer.value_dim)
    flops = matmul_flops(1, mixer.kv_rank, expanded)
    work: Work = {
        "launches": {ONE: 1.0},
        "flops": {rows: flops, tokens: flops},
        "weight_bytes": dict(product.work["weight_bytes"]),
        "activation_bytes": {rows: expanded * size, tokens: (expanded + 2 * mixer.heads * mixer.kv_rank) * size},
        "kv_bytes": {rows: mixer.cached_per_token * precision.kv_bytes},
    }
    return product._replace(work=work)


def _absorbed(mixer: LatentAttention, precision: Precision, feature: OfForm) -> Operator:
    """Count attention over the latents themselves, read once for all heads."""
    key, value = mixer.kv_rank + mixer.rope_dim, mixer.kv_rank
    scores, rows = feature("scores", "absorbed"), feature("rows_read", "absorbed")
    tokens = feature("tokens", "absorbed")
    work: Work = {
        "launches": {feature("present", "absorbed"): 1.0},
        "flops": {scores: attention_flops(1, mixer.heads, key, value)},
        "scores": {scores: float(mixer.heads)},
        "activation_bytes": {tokens: query_output_elements(1, mixer.heads, key, value) * precision.value_bytes},
        "kv_bytes": {rows: mixer.cached_per_token * precision.kv_bytes},
        "kv_row_bytes": {feature("short_rows", "absorbed"): mixer.cached_per_token * precision.kv_bytes},
    }
    return Operator(
        "attention_absorbed",
        "attention",
        precision.attention_dtype,
        work,
        part=mixer.name,
        variant=attention_variant(0, precision),
    )


def _expanded(mixer: LatentAttention, precision: Precision, feature: OfForm) -> Operator:
    """Count attention over expanded keys and values, which kv_b_proj has written."""
    key, value = mixer.nope_dim + mixer.rope_dim, mixer.value_dim
    scores, rows = feature("scores", "expanded"), feature("rows_read", "expanded")
    tokens = feature("tokens", "expanded")
    size = precision.value_bytes
    work: Work = {
        "launches": {feature("present", "expanded"): 1.0},
        "flops": {scores: attention_flops(1, mixer.heads, key, value)},
        "scores": {scores: float(mixer.heads)},
        "activation_bytes": {
            tokens: query_output_elements(1, mixer.heads, key, value) * size,
            rows: mixer.heads * (mixer.nope_dim + mixer.value_dim) * size,
        },
    }
    return Operator(
        "attention_expanded",
        "attention",
        precision.attention_dtype,
        work,
        part=mixer.name,
        variant=attention_variant(0, precision),
    )


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
    return Operator(
        "indexer",
        "attention",
        precision.attention_dtype,
        work,
        part=mixer.name,
        variant=attention_variant(0, precision),
    )
