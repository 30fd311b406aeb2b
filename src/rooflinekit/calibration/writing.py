"""Entries and devices as YAML, and what is said of each fitted constant."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import yaml

from rooflinekit.calibration.fit import Fit, direct_fraction
from rooflinekit.errors import InvalidInputError
from rooflinekit.specs.device import Device
from rooflinekit.specs.efficiency import Efficiency, Evidence

DIGITS = 4
#: Constants below this are what a fit leaves of nought.
NOTHING = 1e-6
#: A difference between a fitted ceiling and its direct measurement beyond which the evidence explains it.
EXPLAINED = 0.1
#: Lists and mappings of a device that are written on one line each.
_ON_ONE_LINE = ("peak_dense_tflops", "aliases", "aliases_unverified")


# ---- what is said of constants


def evidence_of(fits: Sequence[Fit], source: str, device: Device | None) -> tuple[Evidence, ...]:
    """Say for each constant on how many points it was fitted, what they leave over, and what was measured directly."""
    return tuple(_evidence(fit, field, source, device) for fit in fits for field in fit.constants)


def _evidence(fit: Fit, field: str, source: str, device: Device | None) -> Evidence:
    value = fit.constants[field]
    direct = direct_fraction(field, device) if device else None
    return Evidence(
        constant=field,
        source=source,
        points=len(fit.residuals),
        residual=round(fit.residual, 3),
        direct=None if direct is None else round(direct, 3),
        note=explain(value, direct),
    )


def explain(value: float, direct: float | None) -> str:
    """Say why a fitted ceiling differs from its direct measurement, where it does by more than 10%."""
    if direct is None or abs(value / direct - 1.0) <= EXPLAINED:
        return ""
    if value < direct:
        return "the direct figure is the best single kernel; this is what all sizes of the table reach"
    return "above the best plain read: part of the stream comes from the cache"


# ---- YAML


class Flow(dict[str, object]):
    """A mapping that is written on one line."""


class Row(list[object]):
    """A list that is written on one line."""


class Lines(yaml.SafeDumper):
    """A dumper that writes laws on one line each."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - the same constants may stand in two laws
        """Write every value out."""
        return True


Lines.add_representer(Flow, lambda dumper, data: dumper.represent_mapping("tag:yaml.org,2002:map", data, True))  # noqa: FBT003
Lines.add_representer(Row, lambda dumper, data: dumper.represent_sequence("tag:yaml.org,2002:seq", data, True))  # noqa: FBT003


def plain(value: object) -> object:
    """Turn a spec's dump into what YAML holds: no defaults, numbers to four digits.

    >>> plain({"memory": 0.876543, "gap_us": 1e-9, "exponent": float("inf"), "points": (1, 2)})
    {'memory': 0.8765, 'gap_us': 0.0, 'exponent': inf, 'points': [1, 2]}
    """
    if isinstance(value, float):
        return value if np.isinf(value) else 0.0 if abs(value) < NOTHING else float(f"{value:.{DIGITS}g}")
    if isinstance(value, Mapping):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return value


def dump(entry: Efficiency) -> str:
    """Write an entry: laws and evidence on a line each."""
    data = plain(entry.model_dump(exclude_defaults=True, exclude_none=True))
    if not isinstance(data, dict):
        raise TypeError(type(data))
    for name, value in data.items():
        if name in ("products", "mixtures"):
            data[name] = {dtype: Flow(law) for dtype, law in value.items()}
        elif name == "evidence":
            data[name] = [Flow(row) for row in value]
        elif isinstance(value, dict):
            data[name] = Flow(value)
    return _yaml(data)


def _yaml(data: object) -> str:
    return yaml.dump(data, Dumper=Lines, sort_keys=False, width=10_000, allow_unicode=True)


def indented(text: str, by: int) -> str:
    """Indent all lines but the first."""
    return text.replace("\n", "\n" + " " * by).rstrip(" ")


def device_yaml(device: Device) -> str:
    r"""
    Write a device with its entries as one YAML file.

    Examples
    --------
    >>> from rooflinekit import load_device
    >>> print(*device_yaml(load_device("gb10")).split("\n")[:3], sep="\n")
    id: gb10
    name: GB10 (DGX Spark)
    vendor: NVIDIA
    """
    facts = device.model_copy(update={"efficiency": ()}).model_dump(
        mode="json", exclude_defaults=True, exclude_none=True
    )
    last = {name: facts.pop(name) for name in ("sources", "notes") if name in facts}
    entries = "".join(f"  - {indented(dump(entry), 4)}" for entry in device.efficiency)
    block = f"efficiency:\n{entries}" if entries else ""
    return _yaml(_on_lines(facts)) + block + (_yaml(_on_lines(last)) if last else "")


def _on_lines(value: object, name: str = "") -> object:
    """Write short mappings and lists on one line each."""
    if isinstance(value, dict):
        below = {key: _on_lines(one, str(key)) for key, one in value.items()}
        return Flow(below) if name in _ON_ONE_LINE else below
    if isinstance(value, list):
        flat = name in _ON_ONE_LINE or (name != "notes" and all(isinstance(one, str) for one in value))
        return Row(value) if flat else [_flow(one) for one in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _flow(one: object) -> object:
    return Flow({key: _on_lines(value, str(key)) for key, value in one.items()}) if isinstance(one, dict) else one


def write_device(device: Device, path: Path, *, overwrite: bool = False) -> Path:
    """
    Write a device to a YAML file of the user's own, which ``Deployment(model, path)`` takes.

    Raises
    ------
    InvalidInputError
        The file is no YAML file by its name, or is there already.
    """
    if path.suffix not in (".yaml", ".yml"):
        message = f"{path}: expected the name of a YAML file, as my_device.yaml"
        raise InvalidInputError(message)
    if path.exists() and not overwrite:
        message = f"{path}: is there already: expected no file; overwrite it with --force (`overwrite=True`)"
        raise InvalidInputError(message)
    if not path.parent.is_dir():
        message = f"{path}: there is no folder {path.parent}: make it first"
        raise InvalidInputError(message)
    path.write_text(device_yaml(device), encoding="utf-8")
    return path
