"""Families whose feed-forwards are mixtures of experts over grouped-query attention."""

from typing import Any

from rooflinekit.specs.huggingface import keys
from rooflinekit.specs.huggingface.config import Config
from rooflinekit.specs.huggingface.families.blocks import (
    all_windowed,
    attention,
    dense_block,
    grouped,
    layer_kinds,
    leading,
    mixture,
    mixture_block,
    stepped,
    windowed_from,
)
from rooflinekit.specs.huggingface.families.family import Family, Half, Prediction

_LAYERNORM = {"kind": "layernorm", "bias": True}
_MIXTURE = Family(grouped, mixture)


def shared_width(config: Config, each: int) -> int:
    """Sum the widths of the shared experts: their number times the width of one (DeepSeek and its kin)."""
    return config.natural("n_shared_experts", "num_shared_experts") * each


def deepseek_mixture(config: Config, layers: int, family: Family) -> Half:
    """Read leading dense layers and a mixture with shared experts."""
    each = config.count("moe_intermediate_size")
    moe = mixture_block(config, family, each, shared_width(config, each))
    return Half([dense_block(config, family), moe], leading(config, layers))


def qwen_mixture(config: Config, layers: int, family: Family) -> Half:
    """Read Qwen's mixtures: by step, with one shared expert behind a gate where there is one."""
    shared = config.natural("shared_expert_intermediate_size")
    each = config.count("moe_intermediate_size")
    moe = mixture_block(config, family, each, shared, shared_gate=bool(shared))
    names = stepped(config, layers)
    config.skip("intermediate_size")
    return Half([dense_block(config, family), moe] if "dense" in names else [moe], names)


def _gpt_oss(config: Config, layers: int, family: Family) -> Half:
    """Experts and router are biased."""
    block = mixture_block(config, family, config.count("intermediate_size"), bias=True, router_bias=True)
    return Half([block], ["moe"] * layers)


def _gpt_oss_mixers(config: Config, layers: int, family: Family) -> Half:
    base, kinds = grouped(config, layers, family)
    return Half([{**block, "sinks": True} for block in base], kinds)


def _even_windowed(_config: Config, layers: int) -> list[str]:
    return ["full" if index % 2 else "window" for index in range(layers)]


def _biased_head(config: Config, _layers: int) -> dict[str, Any]:
    return {"lm_head_bias": config.flag("lm_head_bias")}


def _dbrx_mixers(config: Config, layers: int, family: Family) -> Half:
    block = attention(config, family, "full")
    inner = config.part("attn_config")
    inner.skip("tie_word_embeddings")  # means nothing there
    block["kv_heads"] = inner.count("kv_n_heads", default=block["heads"])
    return Half([block], ["full"] * layers)


def _dbrx(config: Config, layers: int, family: Family) -> Half:
    """DBRX keeps its experts' figures in a mapping of their own, beside generation settings."""
    inner = config.part("ffn_config")
    inner.skip("ffn_act_fn", "tie_word_embeddings")
    block = mixture_block(inner, family, inner.count("ffn_hidden_size"))
    return Half([block], ["moe"] * layers)


def _hunyuan_mixers(config: Config, layers: int, family: Family) -> Half:
    """With cross-layer attention, only every cla_share_factor-th layer has keys and values of its own."""
    config.off("use_mla")
    base = attention(config, family, "full")
    every = config.count("cla_share_factor", default=1)
    shares = config.flag("use_cla") and every > 1
    names = ["full_shared" if shares and index % every else "full" for index in range(layers)]
    return Half([base, {**base, "name": "full_shared", "shares_kv": True}], names)


def _hunyuan(config: Config, layers: int, family: Family) -> Half:
    """Figures stand as lists of equal numbers."""
    each = config.same("moe_intermediate_size", "intermediate_size")
    config.skip("norm_type", "org_vocab_size")
    shared = config.same("num_shared_expert", default=1) if config.flag("use_mixed_mlp_moe") else 0
    moe = mixture_block(config, family, each, shared * each)
    first = config.natural("moe_layer_num_skipped")
    names = ["dense" if index < first else "moe" for index in range(layers)]
    config.skip("intermediate_size")
    return Half([dense_block(config, family), moe] if first else [moe], names)


def _ernie(config: Config, layers: int, family: Family) -> Half:
    """Sparse from a start to an end layer, in steps; the selection bias is a parameter of the class."""
    each, experts = config.count("moe_intermediate_size"), config.count(*keys.EXPERTS)
    first = config.natural("moe_layer_start_index")
    last, period = config.natural("moe_layer_end_index") or layers - 1, config.count("moe_layer_interval", default=1)
    sparse = [first <= index <= last and (index + 1) % period == 0 for index in range(layers)]
    shared = config.natural("moe_num_shared_experts") * each
    moe = mixture_block(config, family, each, shared, router_extra=experts)
    return Half([dense_block(config, family), moe], ["moe" if on else "dense" for on in sparse])


def _minimax_m2_mixers(config: Config, layers: int, family: Family) -> Half:
    """Read full attention; published checkpoints hold none of the prediction modules that the file names."""
    config.skip("use_mtp", "mtp_transformer_layers", "num_mtp_modules", "qk_norm_type")
    config.only("qk_norm_type", "per_layer")
    kinds = config.listing("attn_type_list", length=layers) or [1] * layers
    if set(kinds) != {1}:
        config.refuse("attn_type_list", kinds, "1 for every layer: this family has no other attention")
    return grouped(config, layers, family)


def _llama4_mixers(config: Config, layers: int, family: Family) -> Half:
    """Three of four layers attend within chunks, every fourth to all and without positions."""
    rotates = config.listing("no_rope_layers") or [(index + 1) % 4 for index in range(layers)]
    by_pattern = ["chunked" if on else "full" for on in rotates]
    kinds = layer_kinds(config, layers, family) if config.data.get("layer_types") else by_pattern
    if len(kinds) != layers:
        config.refuse("no_rope_layers", rotates, f"{layers} entries, one a layer")
    config.skip("use_qk_norm")  # it has no weights
    chunk = config.optional("attention_chunk_size")
    blocks = [attention(config, family, "full", rotary=False)]
    if chunk is not None:
        blocks.append(attention(config, family, "chunked", window=chunk, chunked=True))
    return Half(blocks, kinds if chunk else ["full"] * layers)


def _llama4(config: Config, layers: int, family: Family) -> Half:
    """intermediate_size is the width of an expert and of the shared one; dense layers have a figure of their own."""
    each = config.count("intermediate_size")
    step = config.count("interleave_moe_layer_step", default=1)
    listed = config.listing("moe_layers")
    sparse = range(step - 1, layers, step) if listed is None else listed
    names = ["moe" if index in sparse else "dense" for index in range(layers)]
    wide = dense_block(config, family, width=config.count("intermediate_size_mlp", default=each))
    return Half([wide, mixture_block(config, family, each, each)], names)


def _mimo_v2_mixers(config: Config, layers: int, family: Family) -> Half:
    """Windowed layers have heads, widths and sinks of their own."""
    config.skip("attention_chunk_size")
    pattern = config.listing("hybrid_layer_pattern", length=layers) or [0] * layers
    full = attention(config, family, "full", value_dim=config.optional("v_head_dim"))
    window = attention(
        config,
        family,
        "window",
        window=config.optional(*keys.WINDOW),
        heads=config.count("swa_num_attention_heads", default=full["heads"]),
        kv_heads=config.count("swa_num_key_value_heads", default=full["kv_heads"]),
        head_dim=config.count("swa_head_dim", default=full["head_dim"]),
        value_dim=config.optional("swa_v_head_dim") or full["value_dim"],
        sinks=config.flag("add_swa_attention_sink_bias"),
    )
    full["sinks"] = config.flag("add_full_attention_sink_bias")
    return Half([full, window], ["window" if entry else "full" for entry in pattern])


FAMILIES: dict[str, Family] = {
    "mixtral": _MIXTURE._replace(q_bias=False, o_bias=False, kinds=all_windowed),
    "olmoe": _MIXTURE._replace(qk_norm="full"),
    "granitemoe": _MIXTURE,
    "phimoe": _MIXTURE._replace(norm=_LAYERNORM, kinds=all_windowed, extras=_biased_head),
    "qwen2_moe": _MIXTURE._replace(
        feedforwards=qwen_mixture, q_bias=("qkv_bias", True), o_bias=False, windows=False, kinds=windowed_from
    ),
    "qwen3_moe": _MIXTURE._replace(
        feedforwards=qwen_mixture,
        qk_norm="head",
        qk_norm_key=("use_qk_norm", True),
        head_dim=128,
        windows=False,
        kinds=windowed_from,
        skipped=("qkv_bias",),
    ),
    "gpt_oss": _MIXTURE._replace(
        mixers=_gpt_oss_mixers,
        feedforwards=_gpt_oss,
        q_bias=("attention_bias", True),
        o_bias=("attention_bias", True),
        kinds=_even_windowed,
        head_dim=64,
    ),
    "dbrx": _MIXTURE._replace(
        norm={"kind": "layernorm", "bias": False}, mixers=_dbrx_mixers, feedforwards=_dbrx, q_bias=False, o_bias=False
    ),
    "hunyuan_v1_moe": _MIXTURE._replace(
        mixers=_hunyuan_mixers, feedforwards=_hunyuan, tied=True, qk_norm="head", qk_norm_key=("use_qk_norm", False)
    ),
    "deepseek": _MIXTURE._replace(feedforwards=deepseek_mixture),
    "dots1": _MIXTURE._replace(feedforwards=deepseek_mixture, qk_norm="head", windows=True, kinds=windowed_from),
    "glm4_moe": _MIXTURE._replace(
        feedforwards=deepseek_mixture,
        o_bias=False,
        qk_norm="head",
        qk_norm_key=("use_qk_norm", False),
        prediction=Prediction("num_nextn_predict_layers", stores_copies=True),
    ),
    "ernie4_5_moe": _MIXTURE._replace(
        feedforwards=_ernie, tied=True, q_bias="use_bias", o_bias="use_bias", mlp_bias="use_bias", head_dim=None
    ),
    "minimax_m2": _MIXTURE._replace(
        mixers=_minimax_m2_mixers,
        qk_norm="full",
        qk_norm_key=("use_qk_norm", True),
    ),
    "llama4": _MIXTURE._replace(mixers=_llama4_mixers, feedforwards=_llama4),
    "mimo_v2_flash": _MIXTURE._replace(mixers=_mimo_v2_mixers, feedforwards=deepseek_mixture),
}
