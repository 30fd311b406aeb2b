"""From bits, groups and scales to the name of a weight format."""

from typing import NamedTuple

from rooflinekit.specs.huggingface.config import Config, whole

_NVFP4_GROUP, _MX_GROUP = 16, 32
_BYTE, _NIBBLE = 8, 4
#: No matrix has longer rows.
LARGEST_GROUP = 999_999


class Numbers(NamedTuple):
    """How values are held: bits, integers or floats, one scale for how many, whether zero points are stored."""

    bits: int
    float_: bool = False
    group: int | None = None
    zero: bool = False
    block: tuple[int, int] | None = None


def format_name(config: Config, weights: Numbers, activations: Numbers | None) -> str:
    """Name the format of weights that meet activations so held (None: not quantised).

    >>> format_name(Config({}, ""), Numbers(4, group=128, zero=True), None)
    'int4'
    >>> format_name(Config({}, ""), Numbers(8, float_=True), Numbers(8, float_=True))
    'fp8'
    """
    name = _float(weights, activations) if weights.float_ else _integer(weights, activations)
    if name is None:
        found = f"{_said(weights)} with {'plain' if activations is None else _said(activations)} activations"
        config.refuse("weights", found, "a form that is known: int 2-8, fp8, mxfp4, nvfp4")
    return name


def _said(numbers: Numbers) -> str:
    return f"{'float' if numbers.float_ else 'int'} {numbers.bits} (group {numbers.group})"


def _float(weights: Numbers, activations: Numbers | None) -> str | None:
    if weights.bits == _BYTE:
        return _fp8(weights, activations)
    if weights.bits != _NIBBLE or (activations is not None and not activations.float_):
        return None
    if weights.group == _NVFP4_GROUP:
        return _NVFP4.get(activations.bits if activations else None)
    return _MXFP4.get(activations.bits if activations else None) if weights.group == _MX_GROUP else None


_NVFP4 = {None: "nvfp4-weight-only", 4: "nvfp4"}
_MXFP4 = {None: "mxfp4", 4: "mxfp4-fp4", 8: "mxfp4-fp8"}


def _fp8(weights: Numbers, activations: Numbers | None) -> str | None:
    if activations is not None and (activations.bits != _BYTE or not activations.float_):
        return None
    if weights.block is not None:
        rows, columns = weights.block
        return "fp8-block" if (rows, columns) == (128, 128) else f"fp8-block-{rows}x{columns}"
    if weights.group == _MX_GROUP:
        return "mxfp8"
    if weights.group is not None:
        return f"fp8-block-1x{weights.group}"
    return "fp8" if activations else "fp8-weight-only"


def _integer(weights: Numbers, activations: Numbers | None) -> str | None:
    if not 2 <= weights.bits <= _BYTE or (activations is not None and activations.bits != _BYTE):  # noqa: PLR2004 - bits
        return None
    if weights.bits == _BYTE and weights.group is None:
        if activations is None:
            return "int8-weight-only"
        return None if activations.float_ else "int8"
    name = f"int{weights.bits}-row" if weights.group is None else f"int{weights.bits}-g{weights.group}"
    name += "-zp" if weights.zero and weights.group is not None else ""
    name += "" if activations is None else "-fp8" if activations.float_ else "-int8"
    return "int4" if name == "int4-g128-zp" else name


def group_size(config: Config, *keys: str, default: int | None = None) -> int | None:
    """Read the number of weights that share a scale; -1 and null are one scale a row."""
    key, value = config.find(*keys)
    if value is None:
        return default
    if value in (-1, "-1"):
        return None
    found = whole(value)
    if not found or found > LARGEST_GROUP:
        config.refuse(key, value, "a whole number of 1 or more, or -1 for one group a row")
    return found
