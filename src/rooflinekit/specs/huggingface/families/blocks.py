"""The blocks that most families share: grouped attention with its windows, dense feed-forwards, mixtures."""

from collections.abc import Mapping, Sequence

from rooflinekit.specs.huggingface import keys
from rooflinekit.specs.huggingface.config import Config
from rooflinekit.specs.huggingface.families.family import Block, Family, Half, flag

_ACTIVATIONS = {
    "silu": "silu",
    "swish": "silu",
    "swiglu": "silu",
    "swigluoai": "silu",
    "gelu": "gelu",
    "gelu_new": "gelu",
    "gelu_fast": "gelu",
    "gelu_python": "gelu",
    "gelu_pytorch_tanh": "gelu",
    "geglu": "gelu",
    "quick_gelu": "gelu",
    "relu": "relu",
    "relu2": "relu2",
    "relu_squared": "relu2",
}
#: Kinds of layers under the names that library versions have given them.
_KINDS = {
    "full_attention": "full",
    "attention": "full",
    "global": "full",
    "deepseek_sparse_attention": "full",
    "sliding_attention": "window",
    "local": "window",
    "chunked_attention": "chunked",
    "linear_attention": "linear",
    "mamba": "linear",
    "conv": "linear",
}


#: Scaled rotations whose files may give the positions before scaling.
_SCALED = ("yarn", "linear")

# ---- attention


def grouped(config: Config, layers: int, family: Family) -> Half:
    """Read grouped-query attention, with the windows of those layers that have one."""
    kinds, window = layer_kinds(config, layers, family), None
    if family.kinds is not None or config.data.get("layer_types"):
        window = window_of(config, family)  # otherwise unread: a window that a family does not know refuses the file
    if window is None:
        kinds = ["full" if kind == "window" else kind for kind in kinds]
    rotate = family.full_layers_rotate or "window" not in kinds
    blocks = [
        attention(config, family, "window", window=window),
        attention(config, family, "full", rotary=rotate),
    ]
    return Half(blocks, kinds)


def attention(config: Config, family: Family, name: str, **changes: object) -> Block:
    """Read one kind of grouped-query attention; `changes` go over what the file says for all."""
    heads = config.count(*keys.HEADS)
    q_bias = flag(config, family.q_bias)
    block: Block = {
        "name": name,
        "heads": heads,
        "kv_heads": config.count(*keys.KV_HEADS, default=heads),
        "head_dim": head_width(config, family),
        "q_bias": q_bias,
        "k_bias": q_bias,
        "v_bias": q_bias,
        "o_bias": flag(config, family.o_bias),
        "qk_norm": qk_norm(config, family),
        "norms": family.norms[0],
    }
    return {**block, **changes}


def head_width(config: Config, family: Family) -> int:
    """Read the width of a head: the file's figure before hidden / heads, which is wrong for many models."""
    given = config.optional(*keys.HEAD_DIM) or family.head_dim
    if given is not None:
        return given
    hidden, heads = config.count(*keys.HIDDEN), config.count(*keys.HEADS)
    if hidden % heads:
        config.refuse("head_dim", None, f"a figure, as hidden_size ({hidden}) is no multiple of heads ({heads})")
    return hidden // heads


def qk_norm(config: Config, family: Family) -> str | None:
    """Read the kind of norm on queries and keys, where the family has one and the file does not switch it off."""
    switched_on = family.qk_norm_key is None or config.flag(*family.qk_norm_key)
    return family.qk_norm if switched_on else None


def window_of(config: Config, family: Family) -> int | None:
    """Read the window, or None where it does not apply: switched off, or no shorter than the context."""
    window, context = config.optional(*keys.WINDOW), context_of(config, family)
    config.skip("max_window_layers")
    if window is None or not config.flag("use_sliding_window", family.windows):
        return None
    return None if context is not None and window >= context else window


def positions_of(config: Config) -> int | None:
    """Read the positions of the file: the first of their names, which need not agree (that of training, of files)."""
    first, _ = config.find(*keys.CONTEXT)
    return config.optional(first)


def context_of(config: Config, family: Family) -> int | None:
    """Read the longest context: the positions of the file, or what scaled rotations reach where that is more.

    longrope, llama3 and dynamic files give the reach themselves, and so do families with `stretched` positions.
    """
    positions = positions_of(config)
    rope = None if family.stretched else _rope(config)
    kind = rope.text("rope_type", "type") if rope else ""
    if rope is None or positions is None or kind not in _SCALED:
        return positions
    original = rope.optional("original_max_position_embeddings") or config.optional("original_max_position_embeddings")
    base = original or (positions if kind == "linear" else None)
    return positions if base is None else max(positions, int(rope.number("factor", default=1.0) * base))


def _rope(config: Config) -> Config | None:
    """Give the scaling of rotations, under its older or newer name; that of full layers where kinds differ."""
    for key in ("rope_parameters", "rope_scaling"):
        _, value = config.find(key)
        told = value.get("full_attention", value) if isinstance(value, Mapping) else None
        if told and isinstance(told, Mapping):
            return Config(told, config.where, f"{config.prefix}{key}.")
    return None


def layer_kinds(config: Config, layers: int, family: Family) -> list[str]:
    """Read the kind of each layer: the file's own list, else the family's pattern."""
    by_pattern = ["full"] * layers if family.kinds is None else family.kinds(config, layers)
    given = config.listing("layer_types", length=layers)
    if given is None:
        return by_pattern
    unknown = [entry for entry in given if not isinstance(entry, str) or entry not in _KINDS]
    if unknown:
        config.refuse("layer_types", unknown[0], f"one of {', '.join(_KINDS)}")
    return [_KINDS[entry] for entry in given]


def all_windowed(_config: Config, layers: int) -> list[str]:
    """Give every layer the window."""
    return ["window"] * layers


def windowed_from(config: Config, layers: int) -> list[str]:
    """Give the window to the layers from max_window_layers on (Qwen)."""
    first = config.natural("max_window_layers")
    return ["full" if index < first else "window" for index in range(layers)]


def every_nth_full(config: Config, layers: int, default: int, key: str = "sliding_window_pattern") -> list[str]:
    """Give every n-th layer the full context: n from the file, as a number or as letters such as LLLG."""
    _, value = config.find(key, f"_{key}")
    if isinstance(value, str) and value and not value.isdigit():
        return ["full" if value[index % len(value)] == "G" else "window" for index in range(layers)]
    period = config.count(key, f"_{key}", default=default)
    return ["window" if (index + 1) % period else "full" for index in range(layers)]


# ---- feed-forwards


def dense(config: Config, layers: int, family: Family) -> Half:
    """Read the same dense block for all layers."""
    return Half([dense_block(config, family)], ["dense"] * layers)


def dense_block(config: Config, family: Family, name: str = "dense", width: int | None = None) -> Block:
    """Read a dense feed-forward."""
    default = family.intermediate and family.intermediate * config.count(*keys.HIDDEN)
    return {
        "name": name,
        "intermediate_size": width or config.count(*keys.INTERMEDIATE, default=default),
        "gated": family.gated,
        "activation": activation(config, family),
        "bias": flag(config, family.mlp_bias),
        "norms": family.norms[1],
    }


def activation(config: Config, family: Family) -> str:
    """Read the activation by any of its names."""
    named = config.text(*keys.ACTIVATION, default=family.activation)
    if named not in _ACTIVATIONS:
        config.refuse(config.find(*keys.ACTIVATION)[0], named, f"one of {', '.join(_ACTIVATIONS)}")
    return _ACTIVATIONS[named]


def mixture_block(config: Config, family: Family, width: int, shared: int = 0, **fields: object) -> Block:
    """Read a mixture whose experts are `width` wide, with shared experts of `shared` in all."""
    return {
        "name": "moe",
        "kind": "moe",
        "experts": config.count(*keys.EXPERTS),
        "experts_per_token": config.same(*keys.CHOSEN),
        "intermediate_size": width,
        "shared_intermediate_size": shared,
        "gated": family.gated,
        "activation": activation(config, family),
        "norms": family.norms[1],
        **fields,
    }


def mixture(config: Config, layers: int, family: Family) -> Half:
    """Read the same mixture for all layers, its experts as wide as intermediate_size (Mixtral and its kin)."""
    width = config.same("moe_intermediate_size", "expert_intermediate_size", *keys.INTERMEDIATE)
    shared = config.natural("shared_intermediate_size")
    return Half([mixture_block(config, family, width, shared)], ["moe"] * layers)


def stepped(config: Config, layers: int) -> list[str]:
    """Tell the sparse layers of Qwen's mixtures: every decoder_sparse_step-th but those of mlp_only_layers."""
    step = config.count("decoder_sparse_step", default=1)
    dense_layers = config.listing("mlp_only_layers") or []
    return ["dense" if index in dense_layers or (index + 1) % step else "moe" for index in range(layers)]


def leading(config: Config, layers: int) -> list[str]:
    """Tell the sparse layers of the DeepSeek family: those after the first dense ones, by list or by frequency."""
    config.skip("first_k_dense_replace", "num_dense_layers", "moe_layer_freq")
    given = config.listing("mlp_layer_types", length=layers)
    if given is not None:
        return ["moe" if entry == "sparse" else "dense" for entry in given]
    if isinstance(config.data.get("moe_layer_freq"), list):
        return ["moe" if entry else "dense" for entry in config.listing("moe_layer_freq", length=layers) or ()]
    first = config.natural("first_k_dense_replace", "num_dense_layers")
    period = config.count("moe_layer_freq", default=1)
    return ["moe" if index >= first and index % period == 0 else "dense" for index in range(layers)]


def half(blocks: Sequence[Block], names: Sequence[str]) -> Half:
    """Join blocks and names, leaving out blocks that no layer has."""
    return Half([block for block in blocks if block["name"] in names], names)
