"""From a file, or a mapping of its keys, to a device or a model: YAML, a config.json, a GGUF file."""

import re
from collections.abc import Callable, Collection, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from rooflinekit.errors import InvalidInputError
from rooflinekit.specs.device import Device
from rooflinekit.specs.model import Model
from rooflinekit.specs.yamlfile import check, read_mapping


@cache
def load_device_file(path: Path) -> Device:
    """Read a device; a file without an id is named by its own name."""
    return device_of(dict(read_mapping(path)), str(path), path.stem)


@cache
def load_model_file(path: Path, assume: tuple[str, ...]) -> Model:
    """Read a model with the reader that its path calls for; YAML where it calls for none."""
    ending = "/" if path.is_dir() else path.suffix
    return _READERS.get(ending, _read_yaml)(path, assume)


def _refuse_assumed(path: Path, assume: Collection[str]) -> None:
    if assume:
        message = f"{path}: assume={', '.join(assume)}: only the keys of a config.json can be assumed; leave it out"
        raise InvalidInputError(message)


def _read_yaml(path: Path, assume: Collection[str]) -> Model:
    _refuse_assumed(path, assume)
    return model_of(dict(read_mapping(path)), str(path), path.stem)


def _read_config(path: Path, assume: Collection[str]) -> Model:
    from rooflinekit.specs.huggingface import load_config  # noqa: PLC0415 - only who reads a checkpoint needs it

    return load_config(path, assume)


def _read_gguf(path: Path, assume: Collection[str]) -> Model:
    _refuse_assumed(path, assume)
    from rooflinekit.specs.gguf import load_gguf  # noqa: PLC0415 - as above

    return load_gguf(path)


#: The ending of a path -> what reads a model from it; "/" is a folder.
_READERS: Mapping[str, Callable[[Path, Collection[str]], Model]] = {
    ".yaml": _read_yaml,
    ".yml": _read_yaml,
    ".json": _read_config,
    ".gguf": _read_gguf,
    "/": _read_config,
}


def device_of(data: dict[str, Any], where: str, stem: str) -> Device:
    """
    Make a device of the keys of its file, or of its datasheet's alone.

    Examples
    --------
    >>> device_of({"bandwidth_gb_per_s": 2000, "peak_dense_tflops": {"bf16": 200}}, "a mapping", "My card").id
    'my-card'
    """
    if "datasheet" not in data:  # the short form: the datasheet's keys at the top
        top = {key: data.pop(key) for key in tuple(data) if key in Device.model_fields}
        data = {**top, "datasheet": data}
    return check(Device, _identified(data, stem), where)


def model_of(data: dict[str, Any], where: str, stem: str) -> Model:
    """Make a model of the keys of its file."""
    return check(Model, _identified(data, stem), where)


def _identified(data: dict[str, Any], stem: str) -> dict[str, Any]:
    identifier = data.get("id") or re.sub(r"[^a-z0-9.-]+", "-", stem.lower()).strip("-.") or "custom"
    return {
        "id": identifier,
        "name": data.get("name") or stem,
        **{k: v for k, v in data.items() if k not in ("id", "name")},
    }
