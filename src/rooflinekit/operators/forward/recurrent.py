"""Operators of mixers with a state of constant size."""

from collections.abc import Iterator

from rooflinekit.operators.cost import ONE, SEQUENCES, TOKENS, Operator
from rooflinekit.operators.forward.rows import Work, linear
from rooflinekit.operators.recurrent import convolution_flops, state_traffic_bytes
from rooflinekit.specs.mixers import Recurrent
from rooflinekit.specs.model import Model
from rooflinekit.specs.precision import Precision


def recurrent(model: Model, mixer: Recurrent, precision: Precision, layer: int | None) -> Iterator[Operator]:
    """Yield the projections in, the convolution, the scan, and the projection out."""
    *entrance, leave = mixer.products(model.hidden_size or 0)
    for shape in entrance:
        yield linear(shape, precision, layer, mixer.name)
    if mixer.channels:
        yield _convolution(mixer, precision)
    if mixer.state_values:
        yield _scan(model, mixer, precision)
    yield linear(leave, precision, layer, mixer.name)


def _convolution(mixer: Recurrent, precision: Precision) -> Operator:
    moved = 2.0 * mixer.channels * precision.value_bytes
    held = (mixer.kernel - 1) * mixer.channels
    work: Work = {
        "launches": {ONE: 1.0},
        "flops": {TOKENS: convolution_flops(1, mixer.channels, mixer.kernel)},
        "weight_bytes": {ONE: mixer.channels * mixer.kernel * precision.value_bytes},
        "activation_bytes": {TOKENS: moved},
        "state_bytes": {SEQUENCES: state_traffic_bytes(1, held, mixer.conv_state_bytes)},
    }
    return Operator("conv", "scan", precision.dtype, work, part=mixer.name)


def _scan(model: Model, mixer: Recurrent, precision: Precision) -> Operator:
    rest = mixer.other_parameters(model.hidden_size or 0) - mixer.channels * mixer.kernel
    state = state_traffic_bytes(1, mixer.state_values, mixer.state_bytes)
    work: Work = {
        "launches": {ONE: 1.0},
        "flops": {TOKENS: mixer.scan_flops_per_token},
        "weight_bytes": {ONE: rest * precision.value_bytes},
        "activation_bytes": {TOKENS: mixer.scan_elements_per_token * precision.value_bytes},
        "state_bytes": {SEQUENCES: state},
    }
    return Operator("scan", "scan", precision.dtype, work, part=mixer.name)
