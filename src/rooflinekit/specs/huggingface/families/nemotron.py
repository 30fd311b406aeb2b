"""NVIDIA's families: Nemotron-H, whose layers are a mixer or a feed-forward, and Nemotron-NAS with searched layers."""

from math import ceil
from typing import Any

from rooflinekit.specs.huggingface import keys
from rooflinekit.specs.huggingface.config import Config
from rooflinekit.specs.huggingface.families.blocks import attention, dense_block, mixture_block
from rooflinekit.specs.huggingface.families.dense import LLAMA
from rooflinekit.specs.huggingface.families.family import Block, Family, Half
from rooflinekit.specs.huggingface.families.hybrid import mamba2_block
from rooflinekit.specs.huggingface.families.mixtures import shared_width

_NONE: Block = {"name": "none", "kind": "none"}
_LETTERS = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
_WORDS = {
    "mamba": "mamba",
    "linear_attention": "mamba",
    "attention": "attention",
    "full_attention": "attention",
    "mlp": "mlp",
    "moe": "moe",
}
_MIXERS = {"mamba": "mamba2", "attention": "full"}
_FEEDFORWARDS = {"mlp": "dense", "moe": "moe"}


# ---- Nemotron-H


def _parts(config: Config, *names: str) -> list[str]:
    """Read what each layer is, from letters (M, *, -, E) or from a list of words."""
    key, value = config.find(*names)
    if isinstance(value, str):
        found = [_LETTERS.get(letter, "") for letter in value]
    else:
        found = [_WORDS.get(str(word), "") for word in config.listing(key) or ()]
    if not all(found):
        config.refuse(key, value, "letters M * - E, or a list of mamba, attention, mlp, moe")
    return found


def _layers_of(config: Config, layers: int) -> list[str]:
    found = _parts(config, "hybrid_override_pattern", "layers_block_type")
    if len(found) != layers:
        config.refuse("hybrid_override_pattern", len(found), f"{layers} entries, one a layer")
    return found


def nemotron_layers(config: Config) -> int:
    """Count layers: the figure, or the length of the list that stands for it."""
    listed = _parts(config, "hybrid_override_pattern", "layers_block_type")
    return config.count(*keys.LAYERS, default=len(listed) or None)


def _nemotron_mixers(config: Config, layers: int, family: Family) -> Half:
    config.off("mamba_proj_bias")
    config.off("use_bias")
    config.skip("expand", "mamba_hidden_act", "time_step_rank", "sliding_window", "layer_types")
    names = [_MIXERS.get(part, "none") for part in _layers_of(config, layers)]
    found: list[Block] = [attention(config, family, "full"), _NONE]
    return Half([*found, mamba2_block(config)] if "mamba2" in names else found, names)


def _nemotron_feedforwards(config: Config, layers: int, family: Family) -> Half:
    names = [_FEEDFORWARDS.get(part, "none") for part in _layers_of(config, layers)]
    found = [_NONE]
    if "moe" in names:
        found.append(_nemotron_mixture(config, family))
        config.skip("intermediate_size")
    if "dense" in names:
        found.append(dense_block(config, family))
        config.skip(*_MIXTURE_KEYS)
    return Half(found, names)


#: Nemotron-H files without mixtures may carry the defaults of their class.
_MIXTURE_KEYS = (
    "n_routed_experts",
    "num_experts_per_tok",
    "moe_intermediate_size",
    "moe_shared_expert_intermediate_size",
    "n_shared_experts",
    "moe_latent_size",
)


def _nemotron_mixture(config: Config, family: Family) -> Block:
    each = config.count("moe_intermediate_size")
    shared = shared_width(config, config.count("moe_shared_expert_intermediate_size", default=each))
    return mixture_block(config, family, each, shared, latent_size=config.optional("moe_latent_size"))


def _nemotron_extras(config: Config, _layers: int) -> dict[str, Any]:
    """Attention has no positions; a prediction module is one attention layer and one mixture, written apart."""
    modules = config.natural("num_nextn_predict_layers")
    parts = _parts(config, "mtp_hybrid_override_pattern", "mtp_layers_block_type")
    if not modules:
        return {}
    if parts != ["attention", "moe"]:
        config.refuse("mtp_hybrid_override_pattern", parts, "*E: one attention layer and one mixture")
    return {"prediction_module": {"layers": modules, "mixer": "full", "feedforward": "moe"}}


# ---- Nemotron-NAS


def _nas_mixers(config: Config, layers: int, family: Family) -> Half:
    """Each layer has a number of query heads a key head, or no attention at all."""
    heads, names, blocks = config.count(*keys.HEADS), [], {"none": _NONE}
    config.skip(*keys.KV_HEADS)
    for entry in config.entries("block_configs", layers):
        inner = entry.part("attention")
        group = inner.optional("n_heads_in_group")
        if inner.flag("no_op"):
            names.append("none")
            continue
        kv_heads = heads // (group or inner.missing("n_heads_in_group"))
        names.append(f"full_kv{kv_heads}")
        blocks[names[-1]] = attention(config, family, names[-1], kv_heads=kv_heads)
    return Half(list(blocks.values()), names)


def _nas_feedforwards(config: Config, layers: int, family: Family) -> Half:
    """Each layer's width is a multiple of the hidden size, times two thirds, rounded up to 256."""
    hidden, names, blocks = config.count(*keys.HIDDEN), [], {"none": _NONE}
    config.skip("intermediate_size")
    for entry in config.entries("block_configs", layers):
        inner = entry.part("ffn")
        if inner.flag("no_op"):
            inner.skip("ffn_mult")
            names.append("none")
            continue
        width = 256 * ceil(int(2 * inner.number("ffn_mult") * hidden / 3) / 256)
        names.append(f"dense_{width}")
        blocks[names[-1]] = dense_block(config, family, names[-1], width)
    return Half(list(blocks.values()), names)


FAMILIES: dict[str, Family] = {
    "nemotron_h": LLAMA._replace(
        mixers=_nemotron_mixers,
        feedforwards=_nemotron_feedforwards,
        gated=False,
        activation="relu2",
        position="none",
        extras=_nemotron_extras,
    ),
    "nemotron-nas": LLAMA._replace(mixers=_nas_mixers, feedforwards=_nas_feedforwards),
}
