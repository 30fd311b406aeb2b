"""Operators of feed-forward blocks."""

from collections.abc import Iterator

from rooflinekit.operators.cost import ONE, TOKENS, Feature, Operator
from rooflinekit.operators.elementwise import activation_elements
from rooflinekit.operators.forward.rows import (
    Work,
    elementwise,
    linear,
    module_bytes,
    module_formats,
    packed_weights,
    product_dtype,
)
from rooflinekit.operators.matmul import matmul_flops
from rooflinekit.operators.moe import expert_activation_elements
from rooflinekit.specs.feedforwards import DenseFeedForward, MixtureFeedForward, RankMixture
from rooflinekit.specs.precision import Precision


def dense(hidden: int, block: DenseFeedForward, precision: Precision, layer: int | None) -> Iterator[Operator]:
    """Yield the two products and the activation between them."""
    up, down = block.products(hidden)
    moved = activation_elements(1, block.intermediate_size, gated=block.gated) * precision.value_bytes
    yield linear(up, precision, layer, block.name)
    yield elementwise(block.activation_name, "activation", precision, {TOKENS: moved}, part=block.name)
    yield linear(down, precision, layer, block.name)


def mixture(hidden: int, block: MixtureFeedForward, precision: Precision, layer: int | None) -> Iterator[Operator]:
    """Yield router, latent, shared experts, and all routed experts as the one fused kernel that engines run."""
    router, *others = block.products(hidden)
    scales = block.other_parameters(hidden)  # read with the router, as its bias is
    yield linear(router._replace(bias=router.bias + scales), precision, layer, block.name)
    for shape in others:
        yield linear(shape, precision, layer, block.name)
    if block.shared_intermediate_size:
        moved = activation_elements(1, block.shared_intermediate_size, gated=block.gated) * precision.value_bytes
        yield elementwise("shared_expert_activation", "activation", precision, {TOKENS: moved}, part=block.name)
    yield experts(hidden, block, precision, layer)


def experts(hidden: int, block: MixtureFeedForward, precision: Precision, layer: int | None) -> Operator:
    """Count the experts that tokens go through, and the weights of the distinct ones that the pass touches."""
    products = block.expert_products(hidden)
    forms = [form for shape in products for _, form in module_formats(shape, precision, layer)]
    chosen, detail = _load(block, precision.routing_skew)
    touched = Feature("experts", detail=detail)
    matrices, width = block.expert_matrices(hidden), block.width(hidden)
    biases = block.expert_parameters(hidden) - matrices
    each = sum(module_bytes(shape, precision, layer) for shape in products) + biases * precision.value_bytes
    elements = expert_activation_elements(1, chosen, width, block.intermediate_size)
    work: Work = {
        "launches": {ONE: 1.0},
        "flops": {TOKENS: matmul_flops(chosen, matrices, 1)},
        "weight_bytes": {touched: each},
        "activation_bytes": {TOKENS: elements * precision.value_bytes},
        "packed_weights": {touched: sum(packed_weights(shape, precision, layer) for shape in products)},
    }
    return Operator("experts", "mixture", product_dtype(forms, precision), work, part=block.name)


def _load(block: MixtureFeedForward, skew: float) -> tuple[float, tuple[float, ...]]:
    """Experts that a token goes through here, and what the number of distinct ones is made from.

    Of a rank that holds some of the experts, the mean over ranks times the imbalance.
    """
    experts, chosen = block.routed
    detail = (float(experts), float(chosen), skew)
    if not isinstance(block, RankMixture) or block.expert_ranks == 1:
        return chosen, detail
    return chosen * block.imbalance * block.held / experts, (*detail, float(block.held), block.imbalance)
