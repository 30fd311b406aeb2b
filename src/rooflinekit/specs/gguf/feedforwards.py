"""Feed-forward blocks from the tensors of a GGUF layer."""

from typing import Any

from rooflinekit.specs.feedforwards import DenseFeedForward, MixtureFeedForward, NoFeedForward
from rooflinekit.specs.gguf.layer import FeedForwardHalf, Layer, Part, Parts, matrix
from rooflinekit.specs.yamlfile import check

_GATE, _UP, _DOWN = "gate_proj", "up_proj", "down_proj"


def read_feedforward(layer: Layer, *, alone: bool) -> FeedForwardHalf:
    """Read the feed-forward; `alone` where the layer has no mixer, so that the layer's first norm is this half's."""
    if layer.has("ffn_gate_inp.weight"):
        read = _mixture
    elif layer.has("ffn_up.weight", "ffn_down.weight"):
        read = _dense
    else:
        return NoFeedForward(name="none"), {}
    norms, claimed = layer.norms(*_norm_names(layer, alone=alone))
    if not norms and layer.keys.parallel is False:
        layer.keys.refuse(f"`blk.{layer.index}.ffn_norm.weight` is missing")
    data = {"name": "feedforward", "norms": norms, "activation": layer.keys.traits.activation}
    block, parts = read(layer, data)
    return block, parts | claimed


def _norm_names(layer: Layer, *, alone: bool) -> tuple[str, ...]:
    names = ("ffn_norm", "post_ffw_norm", "layer_output_norm")
    before = ("attn_norm",) if alone else ()
    if layer.has("ffn_norm.weight", "post_ffw_norm.weight"):
        return (*before, *names)
    return (*before, "post_attention_norm", *names)


def _dense(layer: Layer, data: dict[str, Any]) -> FeedForwardHalf:
    data |= {"intermediate_size": layer.dimension("ffn_down.weight", 0), "gated": layer.keys.traits.gated}
    block = check(DenseFeedForward, data | {"bias": layer.has("ffn_down.bias")}, str(layer.keys.path))
    return block, _gated(layer, "", "mlp", block.intermediate_size, gated=block.gated, biased=block.bias)


def _gated(layer: Layer, suffix: str, module: str, width: int, *, gated: bool, biased: bool = False) -> Parts:
    """Claim (gate,) up and down of a dense block."""
    up, hidden = f"{module}.{_UP}", layer.hidden
    parts = matrix(f"ffn_down{suffix}", width, hidden, f"{module}.{_DOWN}", biased=biased)
    if not gated:
        return parts | matrix(f"ffn_up{suffix}", hidden, width, up, biased=biased)
    gate = f"{module}.{_GATE}"
    if layer.keys.traits.merged_gate and not layer.has(f"ffn_gate{suffix}.weight"):
        return parts | matrix(f"ffn_up{suffix}", hidden, 2 * width, gate, up, biased=biased)
    parts |= matrix(f"ffn_gate{suffix}", hidden, width, gate, biased=biased)
    return parts | matrix(f"ffn_up{suffix}", hidden, width, up, biased=biased)


def _mixture(layer: Layer, data: dict[str, Any]) -> FeedForwardHalf:
    data |= {"experts": layer.count("expert_count"), "experts_per_token": layer.count("expert_used_count")}
    data |= {"intermediate_size": layer.dimension("ffn_down_exps.weight", 0), "gated": layer.keys.traits.gated}
    shared = layer.dimension("ffn_down_shexp.weight", 0)
    data |= {"shared_intermediate_size": shared, "shared_gate": layer.has("ffn_gate_inp_shexp.weight")}
    data |= {"latent_size": layer.dimension("ffn_latent_down.weight", 1) or None}
    data |= {"bias": layer.has("ffn_down_exps.bias"), "router_bias": layer.has("ffn_gate_inp.bias")}
    block = check(MixtureFeedForward, data, str(layer.keys.path))
    router = matrix("ffn_gate_inp", layer.hidden, block.experts, biased=block.router_bias)
    return block, router | _latent(layer, block) | _shared(layer, block) | _experts(layer, block)


def _latent(layer: Layer, block: MixtureFeedForward) -> Parts:
    if block.latent_size is None:
        return {}
    down = matrix("ffn_latent_down", layer.hidden, block.latent_size, "mlp.fc1_latent_proj")
    return down | matrix("ffn_latent_up", block.latent_size, layer.hidden, "mlp.fc2_latent_proj")


def _shared(layer: Layer, block: MixtureFeedForward) -> Parts:
    if not block.shared_intermediate_size:
        return {}
    module, width = "mlp.shared_experts", block.shared_intermediate_size
    gate = {"ffn_gate_inp_shexp.weight": Part(layer.hidden)} if block.shared_gate else {}
    return gate | _gated(layer, "_shexp", module, width, gated=block.gated)


def _experts(layer: Layer, block: MixtureFeedForward) -> Parts:
    """Claim the routed experts, each kind of matrix in one tensor for all of them; gate and up may be one."""
    many, inner, width = block.experts, block.width(layer.hidden), block.intermediate_size
    apart = {"ffn_gate_exps": width, "ffn_up_exps": width} if block.gated else {"ffn_up_exps": width}
    if block.gated and layer.has("ffn_gate_up_exps.weight"):
        apart = {"ffn_gate_up_exps": 2 * width}
    parts = _stacked(many, "ffn_down_exps", width, inner, f"mlp.experts.{_DOWN}", biased=block.bias)
    for name, columns in apart.items():
        parts |= _stacked(many, name, inner, columns, "mlp.experts.gate_up_proj", biased=block.bias)
    return parts


def _stacked(many: int, name: str, inner: int, columns: int, module: str, *, biased: bool) -> Parts:
    """Claim one kind of matrix of all experts: below the experts' common path, and under it."""
    parts = {f"{name}.weight": Part(many * inner * columns, ("mlp.experts", module))}
    return parts | ({f"{name}.bias": Part(many * columns)} if biased else {})
