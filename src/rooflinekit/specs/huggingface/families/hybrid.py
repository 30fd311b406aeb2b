"""Families that mix attention with linear attention, state-space models or convolutions, and searched layer lists."""

from math import ceil
from typing import Any

from rooflinekit.specs.huggingface import keys
from rooflinekit.specs.huggingface.config import Config
from rooflinekit.specs.huggingface.families.blocks import (
    attention,
    dense_block,
    every_nth_full,
    layer_kinds,
    leading,
    mixture_block,
)
from rooflinekit.specs.huggingface.families.dense import LLAMA
from rooflinekit.specs.huggingface.families.family import Block, Family, Half, Prediction
from rooflinekit.specs.huggingface.families.mixtures import qwen_mixture

_NONE: Block = {"name": "none", "kind": "none"}
Names = tuple[str, ...]
_HYBRID_HEADS = ("mamba_num_heads", "mamba_n_heads")
_HYBRID_WIDTH = ("mamba_head_dim", "mamba_d_head")
_STATE_BYTES = {"float32": 4.0, "bfloat16": 2.0, "float16": 2.0}


def _state_bytes(config: Config) -> dict[str, float]:
    """Read the width of a state value, where the file gives one that is not 32 bits."""
    named = config.text("mamba_ssm_dtype", "mamba_ssm_cache_dtype", default="float32").removeprefix("torch.")
    if named not in _STATE_BYTES:
        config.refuse("mamba_ssm_dtype", named, f"one of {', '.join(_STATE_BYTES)}")
    return {"state_bytes": _STATE_BYTES[named]}


# ---- Qwen3-Next and Qwen3.5: gated DeltaNet


def _fourth_full(config: Config, layers: int) -> list[str]:
    kinds = every_nth_full(config, layers, 4, "full_attention_interval")
    return ["linear" if kind == "window" else kind for kind in kinds]


def _deltanet_mixers(config: Config, layers: int, family: Family) -> Half:
    config.on("attn_output_gate")
    config.skip("output_gate_type")
    linear = {
        "name": "gated_deltanet",
        "kind": "gated_deltanet",
        "key_heads": config.count("linear_num_key_heads"),
        "value_heads": config.count("linear_num_value_heads"),
        "key_dim": config.count("linear_key_head_dim"),
        "value_dim": config.count("linear_value_head_dim"),
        "conv_kernel": config.count("linear_conv_kernel_dim", default=4),
        **_state_bytes(config),
    }
    kinds = ["gated_deltanet" if kind == "linear" else kind for kind in layer_kinds(config, layers, family)]
    return Half([attention(config, family, "full", output_gate=True), linear], kinds)


def _unnamed_module(_config: Config, _layers: int) -> dict[str, Any]:
    note = (
        "checkpoints of this family may hold a next-token-prediction layer that config.json does not name: not counted"
    )
    return {"notes": (note,)}


def _qwen3_5_extras(config: Config, _layers: int) -> dict[str, Any]:
    config.off("mtp_use_dedicated_embeddings")
    return {}


# ---- Mamba


def _mamba1_block(config: Config, inner: int, **fields: object) -> Block:
    _, rank = config.find("time_step_rank", "mamba_dt_rank")
    block: Block = {
        "name": "mamba1",
        "kind": "mamba1",
        "inner": inner,
        "state": config.count("state_size", "mamba_d_state", default=16),
        "conv_kernel": config.count("conv_kernel", "mamba_d_conv", default=4),
        "dt_rank": None if rank == "auto" else config.optional("time_step_rank", "mamba_dt_rank"),
    }
    return {**block, **fields}


def _mamba_mixers(config: Config, layers: int, _family: Family) -> Half:
    config.off("use_bias")
    config.on("use_conv_bias")
    expand, hidden = config.number("expand", default=2.0), config.count(*keys.HIDDEN)
    config.skip(*keys.ACTIVATION)
    inner = config.count("intermediate_size", "d_inner", default=int(expand * hidden))
    return Half([_mamba1_block(config, inner)], ["mamba1"] * layers)


def _mamba2_mixers(config: Config, layers: int, _family: Family) -> Half:
    config.off("use_bias")
    config.skip(*keys.ACTIVATION, "expand", "time_step_rank")
    return Half([mamba2_block(config, ("num_heads",), ("head_dim",))], ["mamba2"] * layers)


def mamba2_block(config: Config, heads: Names = _HYBRID_HEADS, width: Names = _HYBRID_WIDTH) -> Block:
    """Read a Mamba-2 mixer; beside attention its heads have names of their own."""
    return {
        "name": "mamba2",
        "kind": "mamba2",
        "heads": config.count(*heads),
        "head_dim": config.count(*width),
        "groups": config.count("mamba_n_groups", "n_groups", default=1),
        "state": config.count("ssm_state_size", "mamba_d_state", "state_size", default=128),
        "conv_kernel": config.count("conv_kernel", "mamba_d_conv", default=4),
        "conv_bias": config.flag("use_conv_bias", default=True) and config.flag("mamba_conv_bias", default=True),
        **_state_bytes(config),
    }


def _no_feedforward(_config: Config, layers: int, _family: Family) -> Half:
    return Half([_NONE], ["none"] * layers)


# ---- Jamba


def _jamba_mixers(config: Config, layers: int, family: Family) -> Half:
    config.off("mamba_proj_bias")
    config.on("mamba_conv_bias")
    period, offset = config.count("attn_layer_period", default=8), config.natural("attn_layer_offset")
    inner = int(config.number("mamba_expand", default=2.0) * config.count(*keys.HIDDEN))
    config.skip("layers_block_type")
    names = ["full" if index % period == offset else "mamba1" for index in range(layers)]
    return Half([attention(config, family, "full"), _mamba1_block(config, inner, inner_norms=True)], names)


def _jamba_feedforwards(config: Config, layers: int, family: Family) -> Half:
    period, offset = config.count("expert_layer_period", default=2), config.natural("expert_layer_offset")
    many = config.count(*keys.EXPERTS, default=1) > 1
    names = ["moe" if many and index % period == offset else "dense" for index in range(layers)]
    moe = [mixture_block(config, family, config.count("intermediate_size"))] if many else []
    config.skip(*keys.CHOSEN)
    return Half([dense_block(config, family), *moe], names)


# ---- Granite 4


def _granite_mixers(config: Config, layers: int, family: Family) -> Half:
    config.off("mamba_proj_bias")
    config.skip("mamba_expand", "layers_block_type")
    kinds = ["mamba2" if kind == "linear" else kind for kind in layer_kinds(config, layers, family)]
    mamba = [mamba2_block(config)] if "mamba2" in kinds else []
    return Half([attention(config, family, "full"), *mamba], kinds)


def _granite_feedforwards(config: Config, layers: int, family: Family) -> Half:
    """Read experts beside a shared block; a file without experts has the shared block alone."""
    shared = config.natural("shared_intermediate_size")
    if config.natural(*keys.EXPERTS):
        return Half([mixture_block(config, family, config.count("intermediate_size"), shared)], ["moe"] * layers)
    config.skip(*keys.CHOSEN, "intermediate_size")
    return Half([dense_block(config, family, width=shared or None)], ["dense"] * layers)


def _granite_extras(config: Config, _layers: int) -> dict[str, Any]:
    return {"position": "rope" if config.text("position_embedding_type") == "rope" else "none"}


# ---- LFM2


def _lfm2_kinds(config: Config, layers: int) -> list[str]:
    full = config.listing("full_attn_idxs")
    if full is None:
        return ["full"] * layers if config.data.get("layer_types") else config.missing("layer_types", "full_attn_idxs")
    return ["full" if index in full else "linear" for index in range(layers)]


def _lfm2_mixers(config: Config, layers: int, family: Family) -> Half:
    config.off("conv_bias")
    hidden = config.count(*keys.HIDDEN)
    for key in ("block_dim", "conv_dim", "conv_dim_out"):
        config.only(key, hidden)
    config.only("num_heads", config.count("num_attention_heads"))
    kinds = ["shortconv" if kind == "linear" else kind for kind in layer_kinds(config, layers, family)]
    conv = {"name": "shortconv", "kind": "shortconv", "width": hidden, "conv_kernel": config.count("conv_L_cache")}
    return Half([attention(config, family, "full"), conv], kinds)


def _lfm2_dense(config: Config, layers: int, family: Family) -> Half:
    """Read a width that is two thirds of the figure, times a factor, rounded up, unless the file says otherwise."""
    config.on("block_use_swiglu")
    width = config.count("block_ff_dim", "intermediate_size")
    unit = config.count("block_multiple_of", default=256)
    factor = config.number("block_ffn_dim_multiplier", default=1.0)
    if config.flag("block_auto_adjust_ff_dim", default=True):
        width = unit * ceil(int(factor * int(2 * width / 3)) / unit)
    return Half([dense_block(config, family, width=width)], ["dense"] * layers)


def _lfm2_mixture(config: Config, layers: int, family: Family) -> Half:
    moe = mixture_block(config, family, config.count("moe_intermediate_size"))
    return Half([dense_block(config, family), moe], leading(config, layers))


_LFM2 = LLAMA._replace(
    mixers=_lfm2_mixers,
    feedforwards=_lfm2_dense,
    tied=True,
    qk_norm="head",
    kinds=_lfm2_kinds,
    q_bias=False,
    o_bias=False,
)


# ---- MiniMax-M1 and Text-01


def _minimax_mixers(config: Config, layers: int, family: Family) -> Half:
    full = attention(config, family, "full")
    kinds = config.listing("attn_type_list", length=layers)
    if kinds is None or not set(map(str, kinds)) <= {"0", "1"}:
        config.refuse("attn_type_list", kinds, "a list of 0 (lightning attention) and 1 (full attention)")
    config.skip("postnorm", "shared_intermediate_size")
    config.only("shared_intermediate_size", 0)
    lightning = {"name": "lightning", "kind": "lightning", "heads": full["heads"], "head_dim": full["head_dim"]}
    return Half([full, lightning], ["full" if str(kind) == "1" else "lightning" for kind in kinds])


def _minimax_mixture(config: Config, layers: int, family: Family) -> Half:
    return Half([mixture_block(config, family, config.count("intermediate_size"))], ["moe"] * layers)


FAMILIES: dict[str, Family] = {
    "qwen3_next": LLAMA._replace(
        mixers=_deltanet_mixers,
        feedforwards=qwen_mixture,
        qk_norm="head",
        head_dim=256,
        kinds=_fourth_full,
        extras=_unnamed_module,
        skipped=("use_sliding_window",),
    ),
    "qwen3_5": LLAMA._replace(
        mixers=_deltanet_mixers,
        qk_norm="head",
        head_dim=256,
        kinds=_fourth_full,
        prediction=Prediction("mtp_num_hidden_layers"),
        extras=_qwen3_5_extras,
    ),
    "qwen3_5_moe": LLAMA._replace(
        mixers=_deltanet_mixers,
        feedforwards=qwen_mixture,
        qk_norm="head",
        head_dim=256,
        kinds=_fourth_full,
        prediction=Prediction("mtp_num_hidden_layers"),
        extras=_qwen3_5_extras,
    ),
    "mamba": LLAMA._replace(mixers=_mamba_mixers, feedforwards=_no_feedforward, tied=True, position="none"),
    "falcon_mamba": LLAMA._replace(
        mixers=_mamba_mixers, feedforwards=_no_feedforward, tied=True, position="none", skipped=("mixer_rms_eps",)
    ),
    "mamba2": LLAMA._replace(mixers=_mamba2_mixers, feedforwards=_no_feedforward, position="none"),
    "jamba": LLAMA._replace(
        mixers=_jamba_mixers, feedforwards=_jamba_feedforwards, q_bias=False, o_bias=False, position="none"
    ),
    "granitemoehybrid": LLAMA._replace(
        mixers=_granite_mixers, feedforwards=_granite_feedforwards, extras=_granite_extras
    ),
    "lfm2": _LFM2,
    "lfm2_moe": _LFM2._replace(feedforwards=_lfm2_mixture),
    "minimax_m1": LLAMA._replace(mixers=_minimax_mixers, feedforwards=_minimax_mixture),
    "minimax_text_01": LLAMA._replace(mixers=_minimax_mixers, feedforwards=_minimax_mixture),
}
