"""Files that describe their formats group by group: compressed-tensors, and ModelOpt's newer files."""

from collections.abc import Mapping
from typing import Any, TypeGuard

from rooflinekit.specs.huggingface.config import Config, whole
from rooflinekit.specs.huggingface.quantisation.formats import LARGEST_GROUP, Numbers, format_name, group_size
from rooflinekit.specs.huggingface.quantisation.patterns import Patterns
from rooflinekit.specs.huggingface.quantisation.scheme import Scheme
from rooflinekit.specs.quantisation import PLAIN_FORMAT

_KV_NAMES = {"fp8": "fp8", "int8": "int8", "fp8_e4m3": "fp8", "fp8_e5m2": "fp8"}
_SPARSE = ("marlin-24", "sparse-24-bitmask", "sparse-bitmask")


def compressed_tensors(config: Config) -> Scheme:
    """Read config_groups: targets are the class Linear, names, or `re:` patterns."""
    named, default = groups(config)
    ignored = patterns(config, "ignore")
    head = default if default != PLAIN_FORMAT else PLAIN_FORMAT
    return Scheme("compressed-tensors", default, ignored, tuple(named), head=head, kv_cache=kv_cache(config))


def groups(config: Config) -> tuple[list[tuple[Patterns, str]], str]:
    """Give the formats of named targets, and that of all linear layers."""
    found = config.part("config_groups")
    named, default = [], PLAIN_FORMAT
    for key in found.data:
        group = found.part(key)
        form = _group_format(group)
        targets = [str(target) for target in group.listing("targets") or ["Linear"]]
        if "Linear" in targets:
            default = form
        names = [target for target in targets if target != "Linear"]
        if names:
            named.append((Patterns(names, group), form))
    if not found.data:
        config.missing("config_groups")
    return named, default


def _group_format(group: Config) -> str:
    weights = numbers(group.part("weights"))
    if weights is None:
        group.missing("weights")
    told = group.data.get("input_activations")
    return format_name(group, weights, numbers(group.part("input_activations")) if told else None)


def numbers(config: Config) -> Numbers | None:
    """Read bits, type and groups of weights or activations."""
    bits = config.optional("num_bits")
    if bits is None:
        return None
    kind = config.text("type", default="int")
    if kind not in {"int", "float"}:
        config.refuse("type", kind, "int or float")
    strategy = config.text("strategy")
    group = None if strategy in {"channel", "tensor", "token"} else group_size(config, "group_size")
    zero = not config.flag("symmetric", default=True)
    return Numbers(bits, kind == "float", group, zero, block(config, "block_structure", strategy))


def block(config: Config, key: str, strategy: str = "block") -> tuple[int, int] | None:
    """Read a block of rows and columns that share a scale."""
    found = config.listing(key)
    if found is None or strategy != "block":
        return None
    match [whole(side) for side in found]:
        case [int(rows), int(columns)] if 0 < rows <= LARGEST_GROUP and 0 < columns <= LARGEST_GROUP:
            return rows, columns
    return config.refuse(key, found, "two whole numbers: rows and columns")


def kv_cache(config: Config) -> str | None:
    """Read the format of the KV cache: a mapping of bits and type, or a name."""
    key, value = config.find("kv_cache_scheme", "kv_cache_quant_algo")
    if value is None:
        return None
    if isinstance(value, Mapping):
        return _kv_by_numbers(config, key, value)
    if not isinstance(value, str) or value.lower() not in _KV_NAMES:
        config.refuse(key, value, "FP8 or INT8, or bits and type")
    return _KV_NAMES[value.lower()]


def _kv_by_numbers(config: Config, key: str, value: Mapping[str, Any]) -> str:
    inner = config.part(key)
    bits, kind = inner.optional("num_bits"), inner.text("type", default="float")
    if bits != 8 or kind not in {"float", "int"}:  # noqa: PLR2004 - bits
        config.refuse(key, dict(value), "8 bits of float or int: no engine of ours holds another")
    return "fp8" if kind == "float" else "int8"


def sparse_keys(config: Config) -> list[str]:
    """List the keys that say that only some weights are stored, by their whole names."""
    told = config.data.get("sparsity_config")
    form = told.get("format", "unsaid") if isinstance(told, Mapping) and told else told
    found = [f"{config.prefix}sparsity_config"] if form and form != "dense" else []
    groups_told = config.data.get("config_groups")
    parts = {f"config_groups.{key}.": group for key, group in groups_told.items()} if _is_map(groups_told) else {}
    for prefix, part in {"": config.data, **parts}.items():
        if _is_map(part) and str(part.get("format")) in _SPARSE:
            found.append(f"{config.prefix}{prefix}format")
    return found


def _is_map(value: object) -> TypeGuard[Mapping[str, Any]]:
    return isinstance(value, Mapping)


def patterns(config: Config, *keys: str) -> Patterns:
    """Read a list of module patterns."""
    found: list[str] = []
    for key in keys:
        entries = config.listing(key) or []
        if not all(isinstance(entry, str) for entry in entries):
            config.refuse(key, entries, "a list of module names")
        found += entries
    return Patterns(found, config)
