"""Gemma 3, 3n and 4: windows, layers that reuse keys and values, and per-layer inputs."""

from typing import Any

from rooflinekit.specs.huggingface import keys
from rooflinekit.specs.huggingface.config import Config
from rooflinekit.specs.huggingface.families.blocks import (
    attention,
    dense_block,
    every_nth_full,
    layer_kinds,
    mixture_block,
)
from rooflinekit.specs.huggingface.families.dense import GEMMA2
from rooflinekit.specs.huggingface.families.family import Block, Family, Half

#: Gemma 4 names its mixture and the dense block beside it otherwise.
_GEMMA4_MODULES = {"mlp.shared_experts": ("mlp",), "mlp.experts": ("experts", "moe.experts"), "mlp.gate": ("router",)}


def _sixth_full(config: Config, layers: int) -> list[str]:
    return every_nth_full(config, layers, 6)


def _fifth_full(_config: Config, layers: int) -> list[str]:
    return ["window" if (index + 1) % 5 else "full" for index in range(layers)]


def _with_shared(config: Config, kinds: list[str], blocks: list[Block]) -> Half:
    """Let the last num_kv_shared_layers reuse the keys and values of an earlier layer of their kind."""
    first = len(kinds) - config.natural("num_kv_shared_layers")
    if first <= 0:
        config.refuse("num_kv_shared_layers", len(kinds) - first, f"fewer than the {len(kinds)} layers")
    names = [kind if index < first else f"{kind}_shared" for index, kind in enumerate(kinds)]
    shared = [{**block, "name": f"{block['name']}_shared", "shares_kv": True} for block in blocks]
    return Half([*blocks, *shared], names)


def _gemma3n_mixers(config: Config, layers: int, family: Family) -> Half:
    blocks = [
        attention(config, family, "window", window=config.count(*keys.WINDOW)),
        attention(config, family, "full"),
    ]
    return _with_shared(config, layer_kinds(config, layers, family), blocks)


def _gemma3n_dense(config: Config, layers: int, family: Family) -> Half:
    """Read widths that stand as a list, one figure a layer."""
    return _by_width(config, family, config.per_layer(*keys.INTERMEDIATE, layers=layers))


def _by_width(config: Config, family: Family, widths: list[int]) -> Half:
    """Give a dense block for each width: the first is `dense`, others bear their width."""
    names = {width: "dense" if width == widths[0] else f"dense_{width}" for width in dict.fromkeys(widths)}
    blocks = [dense_block(config, family, name, width) for width, name in names.items()]
    return Half(blocks, [names[width] for width in widths])


def _per_layer_inputs(config: Config) -> dict[str, Any]:
    config.skip("vocab_size_per_layer_input")
    width = config.natural("hidden_size_per_layer_input")
    if not width:
        return {}
    rows = config.optional("vocab_size_per_layer_input") or config.count("vocab_size")
    return {"per_layer_inputs": {"width": width, "vocabulary": rows}}


def _gemma3n_extras(config: Config, _layers: int) -> dict[str, Any]:
    altup = {"inputs": config.count("altup_num_inputs"), "laurel_rank": config.count("laurel_rank")}
    return {"altup": altup, **_per_layer_inputs(config)}


def _gemma4_mixers(config: Config, layers: int, family: Family) -> Half:
    """Global layers have wider heads, keys of their own number, and may take values from keys."""
    window = attention(config, family, "window", window=config.count(*keys.WINDOW))
    from_key = config.flag("attention_k_eq_v")
    own = config.optional("num_global_key_value_heads") if from_key else None
    full = attention(
        config,
        family,
        "full",
        head_dim=config.count("global_head_dim", default=window["head_dim"]),
        kv_heads=own or window["kv_heads"],
        value_from_key=from_key,
    )
    config.skip("num_global_key_value_heads")
    return _with_shared(config, layer_kinds(config, layers, family), [window, full])


def _gemma4_feedforwards(config: Config, layers: int, family: Family) -> Half:
    """Read a mixture beside a dense block in every layer, or a width that doubles where keys are shared."""
    width = config.count("intermediate_size")
    config.skip(*keys.EXPERTS, *keys.CHOSEN, "moe_intermediate_size", "expert_intermediate_size")
    if config.flag("enable_moe_block"):
        extra = config.count(*keys.HIDDEN) + config.count(*keys.EXPERTS)
        each = config.count("moe_intermediate_size", "expert_intermediate_size")
        return Half(
            [mixture_block(config, family, each, width, name="dense_moe", router_extra=extra, norms=5)],
            ["dense_moe"] * layers,
        )
    shared = config.natural("num_kv_shared_layers") if config.flag("use_double_wide_mlp") else 0
    names = ["dense" if index < layers - shared else "dense_wide" for index in range(layers)]
    wide = dense_block(config, family, "dense_wide", 2 * width)
    return Half([dense_block(config, family, width=width), wide], names)


def _gemma4_extras(config: Config, _layers: int) -> dict[str, Any]:
    return _per_layer_inputs(config)


_GEMMA3 = GEMMA2._replace(qk_norm="head", kinds=_sixth_full, stretched=True)
_GEMMA3N = GEMMA2._replace(
    qk_norm="head",
    stretched=True,
    kinds=_fifth_full,
    mixers=_gemma3n_mixers,
    feedforwards=_gemma3n_dense,
    extras=_gemma3n_extras,
)
_GEMMA4 = GEMMA2._replace(
    qk_norm="head",
    stretched=True,
    kinds=_sixth_full,
    mixers=_gemma4_mixers,
    feedforwards=_gemma4_feedforwards,
    extras=_gemma4_extras,
    modules=_GEMMA4_MODULES,
)

FAMILIES: dict[str, Family] = {
    "gemma3": _GEMMA3,
    "gemma3_text": _GEMMA3,
    "gemma3n": _GEMMA3N,
    "gemma3n_text": _GEMMA3N,
    "gemma4": _GEMMA4,
    "gemma4_text": _GEMMA4,
}
