"""Open a config.json, or the folder that holds one: bounded in size, refused in one line where it is no such file."""

import json
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from rooflinekit.errors import SpecError
from rooflinekit.specs.huggingface.reader import Naming, identifier, model_from_config
from rooflinekit.specs.model import Model

CONFIG = "config.json"
#: ModelOpt checkpoints keep their formats in a file of their own.
_MODELOPT = "hf_quant_config.json"
_ADAPTER = "adapter_config.json"
#: The largest known file (a list of all quantised matrices) holds 2 MB.
LARGEST_BYTES = 16_000_000
_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")
_CACHE_FOLDER = "models--"


def load_config(path: str | Path, assume: Collection[str] = ()) -> Model:
    """
    Load a model from a Hugging Face config.json or a folder that holds one.

    Parameters
    ----------
    path : str or Path
        The file or the folder; a snapshot of the Hub's cache is recognised.
    assume : collection of str
        Keys that change no count, as :func:`model_from_config` takes them.

    Returns
    -------
    model : Model
        The language model of the file, with its quantisation.

    Raises
    ------
    SpecError
        The file cannot be read, is no JSON mapping, is too large, or does not describe a model that is known.
    """
    file = Path(path).expanduser()
    file = _inside(file) if file.is_dir() else file
    data = dict(read_json(file))
    beside = file.parent / _MODELOPT
    if "quantization_config" not in data and file.name == CONFIG and beside.is_file():
        data["quantization_config"] = {"quant_method": "modelopt", **read_json(beside)}
    return model_from_config(data, str(file), assume, naming(file, data))


def _inside(folder: Path) -> Path:
    """Give the config.json of a folder; an adapter's file where that is all there is, to be refused by its name."""
    adapter = folder / _ADAPTER
    return adapter if adapter.is_file() and not (folder / CONFIG).exists() else folder / CONFIG


def read_json(file: Path) -> Mapping[str, Any]:
    """Read a JSON mapping; `Infinity` is allowed, as files in use hold it."""
    try:
        size = file.stat().st_size
        if size > LARGEST_BYTES:
            message = f"{file}: holds {size:,} bytes: expected a config.json of at most {LARGEST_BYTES:,}"
            raise SpecError(message)
        data = json.loads(file.read_text(encoding="utf-8-sig"))
    except OSError as error:
        message = f"{file}: cannot be read ({error.strerror}): expected a config.json or a folder that holds one"
        raise SpecError(message) from None
    except (ValueError, RecursionError) as error:
        message = f"{file}: is no JSON file ({str(error).splitlines()[0]}): expected the whole of a config.json"
        raise SpecError(message) from None
    if not isinstance(data, dict):
        message = f"{file}: holds {type(data).__name__}, expected a mapping of keys to values"
        raise SpecError(message)
    return data


def naming(file: Path, data: Mapping[str, Any]) -> Naming:
    """Name a model by the Hub's cache folder, by _name_or_path, or by its own folder or file."""
    cached = next((part for part in reversed(file.parts) if part.startswith(_CACHE_FOLDER)), None)
    if cached is not None:
        hub_id = cached.removeprefix(_CACHE_FOLDER).replace("--", "/", 1)
        return Naming(identifier(hub_id.rsplit("/", maxsplit=1)[-1]), hub_id.rsplit("/", maxsplit=1)[-1], (hub_id,))
    stated = data.get("_name_or_path")
    if isinstance(stated, str) and _HUB_NAME.fullmatch(stated):
        name = stated.rsplit("/", maxsplit=1)[-1]
    else:
        name = (
            file.absolute().parent.name
            if file.name == CONFIG
            else file.stem.replace("__", "/").rsplit("/", maxsplit=1)[-1]
        )
    return Naming(identifier(name), name or "custom")
