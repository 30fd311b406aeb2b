"""Families of dense models, one row each: what their config files leave unsaid."""

from typing import Any

from rooflinekit.specs.huggingface import keys
from rooflinekit.specs.huggingface.config import Config
from rooflinekit.specs.huggingface.families.blocks import (
    all_windowed,
    attention,
    dense,
    dense_block,
    every_nth_full,
    grouped,
    positions_of,
    windowed_from,
)
from rooflinekit.specs.huggingface.families.family import Family, Half, Prediction

_LAYERNORM = {"kind": "layernorm", "bias": True}
_BARE_LAYERNORM = {"kind": "layernorm", "bias": False}

LLAMA = Family(grouped, dense)
_QWEN2 = LLAMA._replace(q_bias=("attention_bias", True), o_bias=False, windows=False, kinds=windowed_from)
_MISTRAL = LLAMA._replace(q_bias=False, o_bias=False, kinds=all_windowed, skipped=("attention_sink_size",))
_CLASSIC = LLAMA._replace(
    tied=True, norm=_LAYERNORM, gated=False, activation="gelu", intermediate=4, q_bias=True, o_bias=True, mlp_bias=True
)


# ---- positions and other extras


def _learned(config: Config, more: int = 0) -> dict[str, Any]:
    rows = positions_of(config) or config.missing(*keys.CONTEXT)
    return {"position": "learned", "position_rows": rows + more}


def _gpt2(config: Config, _layers: int) -> dict[str, Any]:
    return _learned(config)


def _opt(config: Config, _layers: int) -> dict[str, Any]:
    """OPT looks its positions up with an offset of two."""
    config.on("do_layer_norm_before")
    config.off("_remove_final_layer_norm")
    config.on("layer_norm_elementwise_affine")
    config.only("word_embed_proj_dim", config.count(*keys.HIDDEN))
    return _learned(config, 2)


def _bloom(_config: Config, _layers: int) -> dict[str, Any]:
    return {"position": "alibi", "embedding_norm": True}


def _biased_head(config: Config, _layers: int) -> dict[str, Any]:
    config.off("qk_layernorm")
    return {"lm_head_bias": True}


def _one_norm_if_parallel(config: Config, default: bool) -> tuple[bool, tuple[int, int]]:  # noqa: FBT001 - a default
    parallel = config.flag("use_parallel_residual", default)
    return parallel, (1, 0 if parallel else 1)


# ---- families whose layers need a word of their own


def _falcon_family(config: Config, family: Family) -> Family:
    """Tell the norms: two in the new decoder, one in the old parallel block, two in a serial one."""
    new, parallel = config.flag("new_decoder_architecture"), config.flag("parallel_attn", default=True)
    two = config.count("num_ln_in_parallel_attn", default=2) > 1 if new else not parallel
    return family._replace(norms=(1, 1 if two else 0), q_bias="bias", o_bias="bias", mlp_bias="bias")


def _falcon_mixers(config: Config, layers: int, family: Family) -> Half:
    heads, new = config.count(*keys.HEADS), config.flag("new_decoder_architecture")
    config.skip(*keys.KV_HEADS)
    kv_heads = 1 if config.flag("multi_query", default=True) else heads
    block = attention(config, _falcon_family(config, family), "full")
    block["kv_heads"] = config.count(*keys.KV_HEADS, default=heads) if new else kv_heads
    return Half([block], ["full"] * layers)


def _falcon_dense(config: Config, layers: int, family: Family) -> Half:
    return dense(config, layers, _falcon_family(config, family))


def _falcon_extras(config: Config, _layers: int) -> dict[str, Any]:
    parallel = config.flag("parallel_attn", default=True)
    return {"position": "alibi" if config.flag("alibi") else "rope", "parallel_block": parallel}


def _mpt_mixers(config: Config, layers: int, family: Family) -> Half:
    inner = config.part("attn_config")
    inner.off("qk_ln")
    kind = inner.text("attn_type", default="multihead_attention")
    block = attention(config, family, "full")
    block["kv_heads"] = 1 if kind == "multiquery_attention" else inner.count("kv_n_heads", default=block["heads"])
    return Half([block], ["full"] * layers)


def _mpt_dense(config: Config, layers: int, family: Family) -> Half:
    width = config.number("expansion_ratio", default=4.0) * config.count(*keys.HIDDEN)
    return Half([dense_block(config, family, width=int(width))], ["dense"] * layers)


def _mpt_extras(config: Config, _layers: int) -> dict[str, Any]:
    config.on("no_bias")
    config.only("norm_type", "low_precision_layernorm", "layernorm")
    config.only("embedding_fraction", 1, 1.0)
    if config.part("attn_config").flag("alibi"):
        config.skip("learned_pos_emb")
        return {"position": "alibi"}
    return _learned(config) if config.flag("learned_pos_emb", default=True) else {"position": "rope"}


def _multi_query(config: Config, layers: int, family: Family) -> Half:
    kv_heads = {"kv_heads": 1} if config.flag("multi_query", default=True) else {}
    return Half([attention(config, family, "full", **kv_heads)], ["full"] * layers)


def _gpt_neo_kinds(config: Config, layers: int) -> list[str]:
    """Read attention_types, [[["global", "local"], 12]], or the list that it means."""
    groups = config.listing("attention_types") or []
    given = config.listing("attention_layers", length=layers)
    if given is None:
        given = [kind for group in groups for kind in _repeated(group, layers)]
    if len(given) != layers or not set(map(str, given)) <= {"global", "local"}:
        config.refuse("attention_types", groups, f"`global` and `local` for {layers} layers")
    return ["full" if kind == "global" else "window" for kind in given]


def _repeated(group: object, most: int) -> list[Any]:
    """Give the kinds of a group as often as it says; nothing where it is no pair of kinds and times."""
    match group:
        case [list(kinds), int(times)] if times <= most and len(kinds) <= most:
            return kinds * times
    return []


def _qwen1_dense(config: Config, layers: int, family: Family) -> Half:
    """Qwen's first files give twice the width of the feed-forward."""
    width = config.count("intermediate_size")
    if width % 2:
        config.refuse("intermediate_size", width, "an even number: it is twice the width in this family")
    return Half([dense_block(config, family, width=width // 2)], ["dense"] * layers)


def _smollm3_mixers(config: Config, layers: int, family: Family) -> Half:
    """Every fourth layer goes without positions: no_rope_layers holds 0 for it."""
    config.skip("no_rope_layer_interval")
    base, kinds = grouped(config, layers, family)
    rotates = config.listing("no_rope_layers", length=layers) or [1] * layers
    names = [kind if on else f"{kind}_nope" for kind, on in zip(kinds, rotates, strict=True)]
    still = [{**block, "name": f"{block['name']}_nope", "rotary": False} for block in base]
    return Half([*base, *still], names)


def _stablelm(config: Config, layers: int, family: Family) -> Half:
    return dense(config, layers, family._replace(norms=_one_norm_if_parallel(config, default=False)[1]))


def _stablelm_extras(config: Config, _layers: int) -> dict[str, Any]:
    return {"parallel_block": _one_norm_if_parallel(config, default=False)[0]}


def _neox_extras(config: Config, _layers: int) -> dict[str, Any]:
    return {"parallel_block": config.flag("use_parallel_residual", default=True)}


def _gemma2_kinds(_config: Config, layers: int) -> list[str]:
    return ["full" if index % 2 else "window" for index in range(layers)]


def _fourth_full(config: Config, layers: int) -> list[str]:
    return every_nth_full(config, layers, 4)


_COHERE = LLAMA._replace(tied=True, norm=_BARE_LAYERNORM, norms=(1, 0), parallel=True, q_bias="attention_bias")
_PHI = _CLASSIC._replace(tied=False, norms=(1, 0), parallel=True, extras=_biased_head)
_GEMMA = LLAMA._replace(tied=True, activation="gelu", head_dim=256)
GEMMA2 = _GEMMA._replace(norms=(2, 2), kinds=_gemma2_kinds)

FAMILIES: dict[str, Family] = {
    "llama": LLAMA,
    "mistral": _MISTRAL,
    "ministral3": _MISTRAL,
    "ministral": _MISTRAL,
    "qwen2": _QWEN2,
    "qwen2_5_vl": _QWEN2,
    "qwen2_5_vl_text": _QWEN2,
    "qwen2_vl": _QWEN2,
    "qwen2_vl_text": _QWEN2,
    "qwen3": _QWEN2._replace(q_bias="attention_bias", o_bias="attention_bias", qk_norm="head", head_dim=128),
    "mimo": _QWEN2._replace(prediction=Prediction("num_nextn_predict_layers")),
    "qwen": LLAMA._replace(
        q_bias=True, o_bias=False, feedforwards=_qwen1_dense, skipped=("no_bias", "padded_vocab_size")
    ),
    "phi3": LLAMA._replace(kinds=all_windowed),
    "phi": _PHI,
    "phi-msft": _PHI,
    "gemma": _GEMMA,
    "gemma2": GEMMA2,
    "olmo2": LLAMA._replace(qk_norm="full"),
    "olmo3": LLAMA._replace(qk_norm="full", kinds=_fourth_full),
    "exaone4": LLAMA._replace(qk_norm="head", kinds=_fourth_full, full_layers_rotate=False),
    "glm": LLAMA._replace(o_bias=False),
    "glm4": LLAMA._replace(o_bias=False, norms=(2, 2)),
    "granite": LLAMA,
    "seed_oss": LLAMA._replace(o_bias="attention_out_bias"),
    "smollm3": LLAMA._replace(tied=True, windows=False, mixers=_smollm3_mixers, kinds=windowed_from),
    "ernie4_5": LLAMA._replace(tied=True, q_bias="use_bias", o_bias="use_bias", mlp_bias="use_bias", head_dim=128),
    "internlm": LLAMA._replace(q_bias=("bias", True), o_bias=("bias", True)),
    "internlm2": LLAMA._replace(q_bias="bias", o_bias="bias"),
    "panguembedded": LLAMA._replace(q_bias=("bias", True), o_bias=("bias", True)),
    "cohere": _COHERE._replace(qk_norm="per_head", qk_norm_key=("use_qk_norm", False)),
    "cohere2": _COHERE._replace(kinds=_fourth_full, full_layers_rotate=False),
    "starcoder2": _CLASSIC._replace(
        q_bias=("use_bias", True),
        o_bias=("use_bias", True),
        mlp_bias=("use_bias", True),
        kinds=all_windowed,
        skipped=("mlp_type", "norm_type"),
    ),
    "stablelm": LLAMA._replace(
        norm=_LAYERNORM,
        q_bias="use_qkv_bias",
        o_bias=False,
        mlp_bias=False,
        qk_norm="per_head",
        qk_norm_key=("qk_layernorm", False),
        feedforwards=_stablelm,
        extras=_stablelm_extras,
    ),
    "gpt2": _CLASSIC._replace(position="learned", extras=_gpt2),
    "gpt_bigcode": _CLASSIC._replace(position="learned", mixers=_multi_query, extras=_gpt2),
    "gpt_neo": _CLASSIC._replace(q_bias=False, kinds=_gpt_neo_kinds, extras=_gpt2),
    "gptj": _PHI._replace(q_bias=False, o_bias=False, extras=_biased_head),
    "gpt_neox": _CLASSIC._replace(
        tied=False, q_bias=("attention_bias", True), o_bias=("attention_bias", True), extras=_neox_extras
    ),
    "opt": _CLASSIC._replace(
        activation="relu",
        q_bias=("enable_bias", True),
        o_bias=("enable_bias", True),
        mlp_bias=("enable_bias", True),
        extras=_opt,
    ),
    "bloom": _CLASSIC._replace(extras=_bloom),
    "falcon": _CLASSIC._replace(mixers=_falcon_mixers, feedforwards=_falcon_dense, extras=_falcon_extras),
    "mpt": _CLASSIC._replace(
        norm=_BARE_LAYERNORM,
        q_bias=False,
        o_bias=False,
        mlp_bias=False,
        mixers=_mpt_mixers,
        feedforwards=_mpt_dense,
        extras=_mpt_extras,
    ),
}
