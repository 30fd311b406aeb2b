"""The methods that hold one format for all linear layers, with what they leave out."""

from collections.abc import Mapping
from typing import Any

from rooflinekit.specs.huggingface.config import Config
from rooflinekit.specs.huggingface.quantisation.compressed import block, kv_cache, patterns
from rooflinekit.specs.huggingface.quantisation.formats import LARGEST_GROUP, Numbers, format_name, group_size
from rooflinekit.specs.huggingface.quantisation.patterns import Patterns
from rooflinekit.specs.huggingface.quantisation.scheme import Scheme
from rooflinekit.specs.quantisation import PLAIN_FORMAT

_GPTQ_BITS = (2, 3, 4, 8)
_LEFT_OUT = ("modules_to_not_convert", "ignored_layers", "ignore", "exclude_modules")


# ---- integers in groups: AWQ, GPTQ, AutoRound


def grouped_integers(config: Config) -> Scheme:
    """Read bits and group size, with older names; scale and zero point are stored for each group."""
    method = config.text("quant_method")
    form = _grouped_format(config)
    named = [(Patterns([name], config), told) for name, told in _overrides(config)]
    head = form if config.flag("lm_head") else PLAIN_FORMAT
    return Scheme(method, form, patterns(config, *_LEFT_OUT), tuple(named), head=head, kv_cache=kv_cache(config))


def _grouped_format(config: Config) -> str:
    bits = config.count("bits", "w_bit", "wbits", default=4)
    size = group_size(config, "group_size", "q_group_size", "groupsize", default=128)
    if bits not in _GPTQ_BITS and config.text("quant_method").lower() == "gptq":
        config.refuse("bits", bits, f"one of {', '.join(map(str, _GPTQ_BITS))}: GPTQ packs no others")
    return format_name(config, Numbers(bits, group=size, zero=True), None)


def _overrides(config: Config) -> list[tuple[str, str]]:
    """Read formats of single modules: AutoRound's extra_config, GPTQModel's dynamic."""
    told: dict[str, Any] = {**config.part("extra_config").data, **config.part("dynamic").data}
    found = []
    for name, entry in told.items():
        pattern = name.removeprefix("+:").removeprefix("-:")
        pattern = f"re:{pattern}" if config.data.get("dynamic") and name in config.part("dynamic").data else pattern
        changed = entry if isinstance(entry, Mapping) else {}
        kept = name.startswith("-:") or changed.get("bits") == 16  # noqa: PLR2004 - bits of a weight left alone
        inner = Config({**config.data, **changed}, config.where, config.prefix)
        found.append((pattern, PLAIN_FORMAT if kept else _grouped_format(inner)))
    return found


# ---- bitsandbytes


def bitsandbytes(config: Config) -> Scheme:
    """Read 4-bit (NormalFloat or float, with or without quantised scales) or 8-bit weights."""
    four = config.flag("load_in_4bit") or config.flag("_load_in_4bit")
    eight = config.flag("load_in_8bit") or config.flag("_load_in_8bit")
    if not four and not eight:
        config.refuse("load_in_4bit", four, "true, or load_in_8bit = true")
    double = config.flag("bnb_4bit_use_double_quant")
    form = ("nf4-double" if double else "nf4") if four else "int8"
    return Scheme("bitsandbytes", form, patterns(config, "llm_int8_skip_modules"))


# ---- 8-bit floats


def fp8(config: Config) -> Scheme:
    """Read one scale a tensor, or one a block; the output layer stays plain."""
    if config.data.get("quant_algo") or config.data.get("moe_quant_algo"):
        config.refuse("quant_algo", config.data.get("quant_algo"), "none beside quant_method = fp8")
    sides = block(config, "weight_block_size")
    held = Numbers(8, float_=True, block=sides)
    form = format_name(config, held, Numbers(8, float_=True))
    return Scheme("fp8", form, patterns(config, *_LEFT_OUT), kv_cache=kv_cache(config))


def fbgemm_fp8(config: Config) -> Scheme:
    """Read Meta's form: one scale a row."""
    return Scheme("fbgemm_fp8", "fp8", patterns(config, *_LEFT_OUT))


def mxfp4(config: Config) -> Scheme:
    """Read gpt-oss's form: it is the routed experts that are quantised."""
    named = ((Patterns(["experts"], config), "mxfp4"),)
    return Scheme("mxfp4", PLAIN_FORMAT, patterns(config, *_LEFT_OUT), named)


def eetq(config: Config) -> Scheme:
    """Read 8-bit integers, weights only."""
    return Scheme("eetq", "int8-weight-only", patterns(config, *_LEFT_OUT))


# ---- torchao


_TORCHAO = {
    "int8_weight_only": "int8-weight-only",
    "int8_dynamic_activation_int8_weight": "int8",
    "float8_weight_only": "fp8-weight-only",
    "float8_dynamic_activation_float8_weight": "fp8",
    "float8_static_activation_float8_weight": "fp8",
}
_TORCHAO_GROUPED = {
    "int4_weight_only": ("int4", 128, "-zp16"),
    "int8_dynamic_activation_int4_weight": ("int4", 32, "-int8"),
    "float8_dynamic_activation_int4_weight": ("int4", 128, "-fp8"),
}


def torchao(config: Config) -> Scheme:
    """Read a type by name or as a mapping of its class, for all or by module name."""
    _, told = config.find("quant_type")
    told = told.get("default", told) if isinstance(told, Mapping) else told
    named: list[tuple[Patterns, str]] = []
    inner = _module_map(told)
    default = _torchao_format(config, inner.pop("_default", None) if inner else told)
    for name, entry in inner.items():
        named.append((Patterns([name], config), _torchao_format(config, entry)))
    return Scheme("torchao", default, patterns(config, *_LEFT_OUT), tuple(named))


def _module_map(told: object) -> dict[str, Any]:
    """Give the formats by module of a FqnToConfig; empty for one format for all."""
    if not isinstance(told, Mapping) or "FqnToConfig" not in str(told.get("_type")):
        return {}
    data = told.get("_data")
    inner = data if isinstance(data, Mapping) else {}
    found = inner.get("module_fqn_to_config") or inner.get("fqn_to_config")
    return dict(found) if isinstance(found, Mapping) else {}


def _torchao_format(config: Config, told: object) -> str:
    if told is None:
        return PLAIN_FORMAT
    name, figures = _torchao_type(config, told)
    if name in _TORCHAO:
        return _TORCHAO[name]
    if name not in _TORCHAO_GROUPED:
        config.refuse("quant_type", told, f"one of {', '.join((*_TORCHAO, *_TORCHAO_GROUPED))}")
    base, usual, ending = _TORCHAO_GROUPED[name]
    size = group_size(figures, "group_size", default=usual)
    return f"{base}-g{size}{ending}" if size else f"{base}-row{ending.replace('-zp16', '')}"


def _torchao_type(config: Config, told: object) -> tuple[str, Config]:
    """Give the type in words, Int4WeightOnlyConfig as int4_weight_only, and its figures."""
    if isinstance(told, Mapping):
        data = told.get("_data")
        bare = str(told.get("_type")).removesuffix("Config")
        words = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in bare).removeprefix("_")
        return words, Config(data if isinstance(data, Mapping) else {}, config.where, f"{config.prefix}quant_type.")
    return str(told), config.part("quant_type_kwargs")


# ---- MLX


def mlx(config: Config) -> Scheme:
    """Read MLX's form: the table and the output layer too; single modules may differ or be left alone."""
    form = _mlx_format(config)
    entries = {name: entry for name, entry in config.data.items() if isinstance(entry, Mapping | bool)}
    named = []
    for name, entry in entries.items():
        inner = Config({**config.data, **entry}, config.where, config.prefix) if isinstance(entry, Mapping) else None
        told = _mlx_format(inner) if inner else form if entry else PLAIN_FORMAT
        named.append((Patterns([name], config), told))
    return Scheme("mlx", form, Patterns([], config), tuple(named), head=form, embedding=form)


def _mlx_format(config: Config) -> str:
    mode = config.text("mode", default="affine")
    if mode in {"mxfp4", "mxfp8"}:
        return mode
    if mode == "nvfp4":
        return "nvfp4-weight-only"
    if mode != "affine":
        config.refuse("mode", mode, "affine, mxfp4, mxfp8 or nvfp4")
    bits, size = config.count("bits", default=4, most=8), config.count("group_size", default=64, most=LARGEST_GROUP)
    return f"mlx-{bits}bit" if size == 64 else f"mlx-{bits}bit-g{size}"  # noqa: PLR2004 - MLX's usual group
