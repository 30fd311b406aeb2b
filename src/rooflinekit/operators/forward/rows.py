"""The rows that all blocks are made of: a linear layer, a small kernel."""

from collections.abc import Iterable, Mapping

from rooflinekit.operators.cost import ONE, TOKENS, Feature, Operator, Real
from rooflinekit.operators.matmul import matmul_activation_elements, matmul_flops, matmul_weight_bytes
from rooflinekit.specs.mixers.base import Product
from rooflinekit.specs.precision import Precision, WeightFormat

Work = dict[str, dict[Feature, Real]]


def linear(shape: Product, precision: Precision, layer: int | None, part: str = "") -> Operator:
    """Count a linear layer over the new tokens: each merged matrix in its own format, the bias in the model's dtype."""
    formats = module_formats(shape, precision, layer)
    weights = module_bytes(shape, precision, layer)
    elements = matmul_activation_elements(1, shape.inner, shape.columns)
    dtype = precision.dtype if shape.plain else product_dtype((form for _, form in formats), precision)
    work: Work = {
        "launches": {ONE: 1.0},
        "flops": {TOKENS: matmul_flops(1, shape.inner, shape.columns)},
        "weight_bytes": {ONE: weights + shape.bias * precision.value_bytes},
        "activation_bytes": {TOKENS: elements * precision.value_bytes},
        "input_elements": {TOKENS: float(shape.inner)},
        "inner_elements": {ONE: float(shape.inner)},
        "packed_weights": {ONE: packed_weights(shape, precision, layer)},
    }
    return Operator(shape.name, "product", dtype, work, part=part)


def module_formats(shape: Product, precision: Precision, layer: int | None) -> list[tuple[int, WeightFormat]]:
    """Columns and format of each matrix merged in a linear layer."""
    prefix = "" if layer is None else f"layers.{layer}."
    choose = precision.format_by_rule if shape.plain else precision.format_of
    return [(module.columns, choose(f"{prefix}{module.path}")) for module in shape.modules]


def module_bytes(shape: Product, precision: Precision, layer: int | None) -> float:
    """Bytes of a linear layer's matrices, each in its own format."""
    formats = module_formats(shape, precision, layer)
    return sum(float(matmul_weight_bytes(shape.inner, columns, form.bytes_per_weight)) for columns, form in formats)


def packed_weights(shape: Product, precision: Precision, layer: int | None) -> float:
    """Count the weights of a linear layer that are unpacked before they are computed with."""
    return float(sum(shape.inner * columns for columns, form in module_formats(shape, precision, layer) if form.packed))


def product_dtype(formats: Iterable[WeightFormat], precision: Precision) -> str:
    """Dtype that a product computes in: its formats' where they agree, the model's own where one of them has none."""
    found = {precision.arithmetic_of(form) for form in formats}
    return found.pop() if len(found) == 1 else precision.dtype


#: Widest head that the flash kernels of today's engines take; wider ones run on a kernel of last resort.
_WIDEST = 256


def attention_variant(head_width: int, precision: Precision) -> str:
    """Name what tells an attention kernel from the usual one: heads too wide for it, a cache in FP8."""
    return "wide" if head_width > _WIDEST else "fp8" if precision.kv_cache == "fp8" else ""


def elementwise(
    name: str,
    op_class: str,
    precision: Precision,
    moved: Mapping[Feature, Real],
    *,
    weights: float = 0.0,
    part: str = "",
) -> Operator:
    """Count a small kernel that moves so many bytes by feature, and reads so many of weights once a pass."""
    work: Work = {"launches": {ONE: 1.0}, "weight_bytes": {ONE: weights}, "activation_bytes": dict(moved)}
    return Operator(name, op_class, precision.dtype, work, part=part)
