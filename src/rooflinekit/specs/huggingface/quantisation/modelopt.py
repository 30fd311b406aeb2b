"""NVIDIA ModelOpt: one algorithm for all, or a list of matrices with an algorithm each (MIXED_PRECISION)."""

from rooflinekit.specs.huggingface.config import Config
from rooflinekit.specs.huggingface.quantisation.compressed import groups, kv_cache, patterns
from rooflinekit.specs.huggingface.quantisation.formats import group_size
from rooflinekit.specs.huggingface.quantisation.patterns import Patterns
from rooflinekit.specs.huggingface.quantisation.scheme import Scheme
from rooflinekit.specs.quantisation import PLAIN_FORMAT

_FORMATS = {
    "FP8": "fp8",
    "FP8_PER_CHANNEL_PER_TOKEN": "fp8",
    "FP8_PB_WO": "fp8-block",
    "FP8_PB_REAL": "fp8-block",
    "NVFP4": "nvfp4",
    "NVFP4_AWQ": "nvfp4",
    "W4A16_NVFP4": "nvfp4-weight-only",
    "MXFP8": "mxfp8",
    "MXFP4": "mxfp4",
    "W4A8_MXFP4_FP8": "mxfp4-fp8",
    "INT8_SQ": "int8",
    "W8A8_SQ_PER_CHANNEL": "int8",
    "W8A16": "int8-weight-only",
}
_GROUPED = {"W4A16_AWQ": "", "INT4_AWQ": "", "W4A8_AWQ": "-fp8"}
_MIXED = "MIXED_PRECISION"


def modelopt(config: Config) -> Scheme:
    """Read a ModelOpt file: in config.json, or beside it with everything one level down."""
    inner = config.part("quantization") if config.data.get("quantization") else config
    left_out = patterns(inner, "ignore", "exclude_modules", "modules_to_not_convert")
    algorithm = inner.text("quant_algo").upper()
    default = PLAIN_FORMAT
    named: tuple[tuple[Patterns, str], ...] = ()
    if inner.data.get("quantized_layers"):
        named = tuple(_listed(inner))
    elif algorithm == _MIXED:
        found, default = groups(inner)
        named = tuple(found)
    elif algorithm:
        default = _format(inner, algorithm)
    else:
        default = groups(inner)[1]
    return Scheme("modelopt", default, left_out, named, kv_cache=kv_cache(inner))


def _format(config: Config, algorithm: str) -> str:
    if algorithm in _GROUPED:
        size = group_size(config, "group_size", default=128)
        return f"int4-g{size}{_GROUPED[algorithm]}" if size else f"int4-row{_GROUPED[algorithm]}"
    if algorithm not in _FORMATS:
        config.refuse("quant_algo", algorithm, f"one of {', '.join((*_FORMATS, *_GROUPED, _MIXED))}")
    return _FORMATS[algorithm]


def _listed(config: Config) -> list[tuple[Patterns, str]]:
    """Give the patterns of each format, of a list that names matrices one by one."""
    by_format: dict[str, list[str]] = {}
    seen: dict[tuple[object, object], str] = {}
    layers = config.part("quantized_layers").data
    for name, entry in layers.items():
        told = entry if isinstance(entry, dict) else config.refuse(f"quantized_layers.{name}", entry, "a mapping")
        key = (str(told.get("quant_algo")), str(told.get("group_size")))
        if key not in seen:
            inner = Config(told, config.where, f"{config.prefix}quantized_layers.{name}.")
            seen[key] = _format(inner, inner.text("quant_algo").upper())
        by_format.setdefault(seen[key], []).append(name)
    return [(Patterns(names, config), form) for form, names in by_format.items()]
