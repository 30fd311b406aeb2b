"""Token mixers from the tensors of a GGUF layer."""

from collections.abc import Callable
from typing import Any

from rooflinekit.specs.gguf.keys import Keys
from rooflinekit.specs.gguf.layer import Layer, MixerHalf, Part, Parts, matrix
from rooflinekit.specs.mixers import GroupedQueryAttention, LatentAttention, NoMixer
from rooflinekit.specs.mixers.recurrent import GatedDeltaNet, Mamba1, Mamba2, ShortConvolution
from rooflinekit.specs.yamlfile import check

_NOPE_PERIOD = 4


def read_mixer(layer: Layer) -> MixerHalf:
    """Read the mixer that the layer's tensors make; a layer that has none is a feed-forward alone."""
    read = next((read for names, read in _KINDS if layer.has(*names)), None)
    if read is None:
        return NoMixer(name="none"), {}
    norms, claimed = layer.norms("attn_norm", "attn_norm_2", *_norm_behind(layer))
    if not norms:
        layer.keys.refuse(f"`blk.{layer.index}.attn_norm.weight` is missing")
    mixer, parts = read(layer, {"name": "mixer", "norms": norms})
    return mixer, parts | claimed


def _norm_behind(layer: Layer) -> tuple[str, ...]:
    """Name the norm behind attention, unless it is the one that stands before the feed-forward."""
    own = layer.has("ffn_norm.weight", "post_ffw_norm.weight")
    return ("post_attention_norm",) if own else ()


# ---- attention


def _grouped(layer: Layer, data: dict[str, Any]) -> MixerHalf:
    heads = layer.count("attention.head_count")
    width = layer.count("attention.key_length", layer.hidden // heads or 1)
    data |= {"heads": heads, "kv_heads": layer.count("attention.head_count_kv", heads), "head_dim": width}
    value = layer.count("attention.value_length", width)
    data |= {"value_dim": value if value != width else None, **_biases(layer), **_view(layer)}
    gate = layer.has("attn_gate.weight") or layer.keys.traits.output_gate
    data |= {"qk_norm": _qk_norm(layer, heads, width), "output_gate": gate, "sinks": layer.has("attn_sinks.weight")}
    mixer = check(GroupedQueryAttention, data, str(layer.keys.path))
    return mixer, _projections(layer, mixer) | _small(mixer)


def _biases(layer: Layer) -> dict[str, bool]:
    merged = layer.has("attn_qkv.bias")
    biased = {f"{part}_bias": merged or layer.has(f"attn_{part}.bias") for part in "qkv"}
    return biased | {"o_bias": layer.has("attn_output.bias")}


def _qk_norm(layer: Layer, heads: int, width: int) -> str | None:
    weights = layer.elements("attn_q_norm.weight")
    if not weights:
        return None
    if weights != heads * width or heads == 1:
        return "head"
    return "per_head" if len(layer.tensors["attn_q_norm.weight"].shape) > 1 else "full"


def _projections(layer: Layer, mixer: GroupedQueryAttention) -> Parts:
    hidden, query, key = layer.hidden, mixer.heads * mixer.head_dim, mixer.kv_heads * mixer.head_dim
    value = mixer.kv_heads * mixer.value_width
    names = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
    inner = mixer.heads * mixer.value_width
    parts = matrix("attn_output", inner, hidden, "self_attn.o_proj", biased=mixer.o_bias)
    if layer.has("attn_qkv.weight"):
        return parts | matrix("attn_qkv", hidden, query + key + value, *names, biased=mixer.q_bias)
    apart = layer.has("attn_gate.weight")
    parts |= matrix("attn_gate", hidden, query, names[0]) if apart else {}
    doubled = 2 if mixer.output_gate and not apart else 1
    parts |= matrix("attn_q", hidden, query * doubled, names[0], biased=mixer.q_bias)
    parts |= matrix("attn_k", hidden, key, names[1], biased=mixer.k_bias)
    return parts | matrix("attn_v", hidden, value, names[2], biased=mixer.v_bias)


def _small(mixer: GroupedQueryAttention) -> Parts:
    """Claim head norms and sinks."""
    parts = {"attn_sinks.weight": Part(mixer.heads)} if mixer.sinks else {}
    if mixer.qk_norm is None:
        return parts
    each = (1, 1) if mixer.qk_norm == "head" else (mixer.heads, mixer.kv_heads)
    names = ("attn_q_norm.weight", "attn_k_norm.weight")
    return parts | {name: Part(heads * mixer.head_dim) for name, heads in zip(names, each, strict=True)}


def _view(layer: Layer) -> dict[str, Any]:
    """Window and rotation of the layer."""
    traits, window = layer.keys.traits, window_of(layer.keys, layer.index)
    fourth = traits.nope == "fourth" and layer.index % _NOPE_PERIOD == _NOPE_PERIOD - 1
    full = traits.nope == "full" and window is None and _window_size(layer.keys) > 0
    return {
        "window": window,
        "chunked": window is not None and traits.chunk is not None,
        "rotary": not (fourth or full),
    }


def window_of(keys: Keys, layer: int) -> int | None:
    """Tokens that a layer sees at most, by the file's pattern or else the architecture's; None is all."""
    size = _window_size(keys)
    listed: Any = keys.raw("attention.sliding_window_pattern")
    if not size:
        return None
    if isinstance(listed, tuple) and listed:
        return size if listed[layer % len(listed)] else None
    if listed is None and keys.traits.window_period is None:
        name = f"{keys.architecture}.attention.sliding_window"
        keys.refuse(f"`{name}` = {size}: the file does not say which layers have it (`{name}_pattern`)")
    period = keys.count("attention.sliding_window_pattern", None, keys.traits.window_period, 0)
    return size if period == 0 or layer % period < period - 1 else None


def _window_size(keys: Keys) -> int:
    return keys.count("attention.sliding_window", None, keys.traits.chunk or 0, 0)


def _latent(layer: Layer, data: dict[str, Any]) -> MixerHalf:
    low = layer.has("attn_q_a.weight")
    rope = layer.count("rope.dimension_count")
    data |= {"heads": layer.count("attention.head_count"), "kv_rank": layer.count("attention.kv_lora_rank")}
    data |= {"q_rank": layer.count("attention.q_lora_rank") if low else None, "rope_dim": rope}
    data |= {"nope_dim": _latent_width(layer, "key_length") - rope, "value_dim": _latent_width(layer, "value_length")}
    mixer = check(LatentAttention, data | _indexer(layer), str(layer.keys.path))
    return mixer, _latent_parts(layer, mixer) | _indexer_parts(layer, mixer)


def _latent_width(layer: Layer, key: str) -> int:
    """Width of a head; newer files keep the absorbed form's under the plain key."""
    absorbed = layer.keys.has(f"attention.{key}_mla")
    return layer.count(f"attention.{key}_mla" if absorbed else f"attention.{key}")


def _indexer(layer: Layer) -> dict[str, Any]:
    if not layer.has("indexer.attn_k.weight"):
        return {}
    keys = {"heads": "head_count", "head_dim": "key_length", "selected": "top_k"}
    return {"indexer": {name: layer.count(f"attention.indexer.{key}") for name, key in keys.items()}}


def _latent_parts(layer: Layer, mixer: LatentAttention) -> Parts:
    hidden, heads, rank = layer.hidden, mixer.heads, mixer.kv_rank
    parts = _latent_query(layer, mixer) | {"attn_kv_a_norm.weight": Part(rank)}
    parts |= matrix("attn_kv_a_mqa", hidden, rank + mixer.rope_dim, "self_attn.kv_a_proj_with_mqa")
    parts |= matrix("attn_output", heads * mixer.value_dim, hidden, "self_attn.o_proj")
    split = {"attn_k_b": heads * mixer.nope_dim, "attn_v_b": heads * mixer.value_dim}
    whole = {"attn_kv_b": heads * (mixer.nope_dim + mixer.value_dim)}
    for name, columns in (split if layer.has("attn_k_b.weight") else whole).items():
        parts |= matrix(name, rank, columns, "self_attn.kv_b_proj")
    return parts


def _latent_query(layer: Layer, mixer: LatentAttention) -> Parts:
    width = mixer.heads * (mixer.nope_dim + mixer.rope_dim)
    if not mixer.q_rank:
        return matrix("attn_q", layer.hidden, width, "self_attn.q_proj")
    parts = matrix("attn_q_a", layer.hidden, mixer.q_rank, "self_attn.q_a_proj")
    parts |= matrix("attn_q_b", mixer.q_rank, width, "self_attn.q_b_proj")
    return parts | {"attn_q_a_norm.weight": Part(mixer.q_rank)}


def _indexer_parts(layer: Layer, mixer: LatentAttention) -> Parts:
    if mixer.indexer is None:
        return {}
    width, heads = mixer.indexer.head_dim, mixer.indexer.heads
    parts = matrix("indexer.attn_q_b", mixer.q_rank or layer.hidden, heads * width, "self_attn.indexer.wq_b")
    parts |= matrix("indexer.attn_k", layer.hidden, width, "self_attn.indexer.wk")
    parts |= matrix("indexer.proj", layer.hidden, heads, "self_attn.indexer.weights_proj")
    return parts | {f"indexer.k_norm.{end}": Part(width) for end in ("weight", "bias")}


# ---- states of constant size


def _delta_net(layer: Layer, data: dict[str, Any]) -> MixerHalf:
    values, inner = layer.count("ssm.time_step_rank"), layer.count("ssm.inner_size")
    data |= {"value_heads": values, "value_dim": inner // values, "key_heads": layer.count("ssm.group_count")}
    data |= {"key_dim": layer.count("ssm.state_size"), "conv_kernel": layer.count("ssm.conv_kernel")}
    mixer = check(GatedDeltaNet, data, str(layer.keys.path))
    parts = matrix("ssm_out", inner, layer.hidden, "mixer.out_proj") | _delta_inputs(layer, mixer)
    parts |= {"ssm_norm.weight": Part(mixer.value_dim), "ssm_a": Part(values), "ssm_dt.bias": Part(values)}
    return mixer, parts | {"ssm_conv1d.weight": Part(mixer.channels * mixer.conv_kernel)}


def _delta_inputs(layer: Layer, mixer: GatedDeltaNet) -> Parts:
    """Claim the input projections: one, or Q, K, V and the gate apart; the two small ones merged or not."""
    inner, heads = mixer.value_heads * mixer.value_dim, mixer.value_heads
    apart = {"attn_qkv": mixer.channels, "attn_gate": inner}
    wide = apart if layer.has("attn_qkv.weight") else {"ssm_in": mixer.channels + inner}
    small = {"ssm_ba": 2 * heads} if layer.has("ssm_ba.weight") else {"ssm_alpha": heads, "ssm_beta": heads}
    parts: Parts = {}
    for columns, module in ((wide, "mixer.in_proj_qkvz"), (small, "mixer.in_proj_ba")):
        for name, count in columns.items():
            parts |= matrix(name, layer.hidden, count, module)
    return parts


def _mamba1(layer: Layer, data: dict[str, Any]) -> MixerHalf:
    inner, state, rank = (layer.count(f"ssm.{key}") for key in ("inner_size", "state_size", "time_step_rank"))
    kernel, norms = layer.count("ssm.conv_kernel"), layer.has("ssm_dt_norm.weight")
    data |= {"inner": inner, "state": state, "dt_rank": rank, "conv_kernel": kernel, "inner_norms": norms}
    parts = matrix("ssm_in", layer.hidden, 2 * inner, "mixer.in_proj")
    parts |= matrix("ssm_x", inner, rank + 2 * state, "mixer.x_proj")
    parts |= matrix("ssm_dt", rank, inner, "mixer.dt_proj", biased=True)
    parts |= matrix("ssm_out", inner, layer.hidden, "mixer.out_proj")
    parts |= {"ssm_conv1d.weight": Part(kernel * inner), "ssm_conv1d.bias": Part(inner)}
    parts |= {"ssm_a": Part(inner * state), "ssm_d": Part(inner)}
    widths = {"ssm_dt_norm": rank, "ssm_b_norm": state, "ssm_c_norm": state} if norms else {}
    parts |= {f"{name}.weight": Part(width) for name, width in widths.items()}
    return check(Mamba1, data, str(layer.keys.path)), parts


def _mamba2(layer: Layer, data: dict[str, Any]) -> MixerHalf:
    heads, inner, kernel = (layer.count(f"ssm.{key}") for key in ("time_step_rank", "inner_size", "conv_kernel"))
    data |= {"heads": heads, "head_dim": inner // heads, "groups": layer.count("ssm.group_count")}
    biased = layer.has("ssm_conv1d.bias")
    data |= {"state": layer.count("ssm.state_size"), "conv_kernel": kernel, "conv_bias": biased}
    mixer = check(Mamba2, data, str(layer.keys.path))
    parts = matrix("ssm_in", layer.hidden, inner + mixer.channels + heads, "mixer.in_proj")
    parts |= matrix("ssm_out", inner, layer.hidden, "mixer.out_proj")
    parts |= {"ssm_conv1d.weight": Part(kernel * mixer.channels), "ssm_norm.weight": Part(inner)}
    parts |= {"ssm_conv1d.bias": Part(mixer.channels)} if biased else {}
    return mixer, parts | {name: Part(heads) for name in ("ssm_a", "ssm_d", "ssm_dt.bias")}


def _short_convolution(layer: Layer, data: dict[str, Any]) -> MixerHalf:
    hidden, kernel = layer.hidden, layer.count("shortconv.l_cache")
    mixer = check(ShortConvolution, data | {"width": hidden, "conv_kernel": kernel}, str(layer.keys.path))
    parts = matrix("shortconv.in_proj", hidden, 3 * hidden, "mixer.in_proj")
    parts |= matrix("shortconv.out_proj", hidden, hidden, "mixer.out_proj")
    return mixer, parts | {"shortconv.conv.weight": Part(kernel * hidden)}


#: Which tensors make which mixer; the first that fits.
_KINDS: tuple[tuple[tuple[str, ...], Callable[[Layer, dict[str, Any]], MixerHalf]], ...] = (
    (("ssm_ba.weight", "ssm_beta.weight"), _delta_net),
    (("ssm_x.weight",), _mamba1),
    (("ssm_in.weight",), _mamba2),
    (("shortconv.in_proj.weight",), _short_convolution),
    (("attn_kv_a_mqa.weight",), _latent),
    (("attn_q.weight", "attn_qkv.weight"), _grouped),
)
