"""Quantised checkpoints: the forms of quantization_config. The registry is the table; a new method is one function."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rooflinekit.specs.huggingface import keys
from rooflinekit.specs.huggingface.config import Config
from rooflinekit.specs.huggingface.quantisation import methods
from rooflinekit.specs.huggingface.quantisation.compressed import compressed_tensors, sparse_keys
from rooflinekit.specs.huggingface.quantisation.modelopt import modelopt
from rooflinekit.specs.huggingface.quantisation.rules import quantisation_of
from rooflinekit.specs.huggingface.quantisation.scheme import Scheme
from rooflinekit.specs.model import Model

__all__ = ["METHODS", "read_quantisation", "unexplained"]

METHODS: dict[str, Callable[[Config], Scheme]] = {
    "auto-round": methods.grouped_integers,
    "awq": methods.grouped_integers,
    "bitsandbytes": methods.bitsandbytes,
    "compressed-tensors": compressed_tensors,
    "eetq": methods.eetq,
    "fbgemm_fp8": methods.fbgemm_fp8,
    "fp8": methods.fp8,
    "gptq": methods.grouped_integers,
    "modelopt": modelopt,
    "modelopt_fp4": modelopt,
    "mxfp4": methods.mxfp4,
    "torchao": methods.torchao,
}


def read_quantisation(
    outer: Config, inner: Config, model: Model, modules: Mapping[str, Sequence[str]]
) -> dict[str, Any] | None:
    """Read how a checkpoint is quantised, as fields of our Quantisation; None where it is not."""
    found = _found(outer, inner)
    if found is None:
        return None
    key, config = found
    method = _method(key, config)
    if method not in METHODS and method != "mlx":
        config.refuse("quant_method", method, f"one of {', '.join(METHODS)}")
    scheme = methods.mlx(config) if method == "mlx" else METHODS[method](config)
    return quantisation_of(scheme, model, modules)


def unexplained(outer: Config, inner: Config) -> list[str]:
    """List the keys that tell of weights stored sparsely: the formats that are read hold them all."""
    found = _found(outer, inner)
    return [] if found is None else sparse_keys(found[1])


def _found(outer: Config, inner: Config) -> tuple[str, Config] | None:
    """Find the mapping: around the language model or inside it; MLX writes another key, and both in newer files."""
    for config in (outer, inner):
        key, value = config.find(*keys.QUANTISATION)
        if value is None or value == {}:
            continue
        if not isinstance(value, Mapping):
            config.refuse(key, value, "a mapping")
        return key, Config(value, config.where, f"{config.prefix}{key}.")
    return None


def _method(key: str, config: Config) -> str:
    """Tell the method; MLX's and some of ModelOpt's files name none."""
    named = config.text("quant_method", "quant_library").lower().replace("_tensors", "-tensors")
    producer = config.data.get("producer")
    by_modelopt = config.data.get("quant_algo") or (
        isinstance(producer, Mapping) and producer.get("name") == "modelopt"
    )
    if by_modelopt and named in {"", "fp8"}:
        return "modelopt"
    if not named and (key == "quantization" or "bits" in config.data):
        return "mlx"
    return named or config.missing("quant_method")
