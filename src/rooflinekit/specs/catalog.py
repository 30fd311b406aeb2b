"""Find, load and list the devices and models: the user's folders first, then the ones that ship with the library.

A name is an id, a prefix of one id that ends at a dash (`h100-sxm`), a Hub id, an alias, or the path of a YAML file;
for a model also that of a Hugging Face config.json or of a folder that holds one. Names are compared as normalised
words, never as substrings. A name that several hold is an error that lists them.
"""

import difflib
import os
import re
from collections.abc import Collection, Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from rooflinekit.errors import AmbiguousNameError, SpecError, UnknownNameError
from rooflinekit.specs.device import Device
from rooflinekit.specs.efficiency import Efficiency, Fusion
from rooflinekit.specs.hub import fetch_config, is_hub_id
from rooflinekit.specs.interconnect import Interconnect, default_link
from rooflinekit.specs.model import Model
from rooflinekit.specs.spec_files import device_of, load_device_file, load_model_file, model_of
from rooflinekit.specs.yamlfile import check, read_mapping

_SUFFIXES = (".yaml", ".yml")
_LONGEST_NAME = 255  # beyond it, asking for a file of that name is an error of its own
_PATH_SUFFIXES = (*_SUFFIXES, ".json", ".gguf")


class Kind(NamedTuple):
    """One half of the catalogue: its folder, the variable that names the user's own folder, and how it is listed."""

    what: str
    folder: str
    variable: str
    listing: str


DEVICES = Kind("device", "hardware_db", "ROOFLINEKIT_HARDWARE_DB", "rooflinekit devices list")
MODELS = Kind("model", "model_configs", "ROOFLINEKIT_MODEL_CONFIGS", "rooflinekit models list")


def load_device(name: str | Path | Mapping[str, Any] | Device) -> Device:
    """
    Load a device by id, unique prefix, alias or path, or from a mapping of the same keys.

    Parameters
    ----------
    name : str, Path, mapping or Device
        ``"h100-sxm-80gb"``, ``"h100-sxm"``, ``"NVIDIA H200 NVL"``, ``"my_card.yaml"``, or
        ``{"bandwidth_gb_per_s": 2000, "peak_dense_tflops": {"bf16": 200}}``: the datasheet's keys alone are enough.

    Returns
    -------
    device : Device
        Frozen; its figures carry their sources.

    Raises
    ------
    UnknownNameError
        No device has this name; the nearest ones are listed.
    AmbiguousNameError
        Several devices have it ("A100", "Apple M4 Max").
    SpecError
        The file is missing, no YAML mapping, or a key in it is wrong.

    Examples
    --------
    >>> load_device("h100-sxm").id, load_device("DGX Spark").bytes_per_s
    ('h100-sxm-80gb', 273000000000.0)
    """
    if isinstance(name, Device):
        return name
    if isinstance(name, Mapping):
        return device_of(dict(name), "device mapping", "custom")
    return load_device_file(_locate(DEVICES, name))


def load_model(name: str | Path | Mapping[str, Any] | Model, *, assume: Collection[str] = ()) -> Model:
    """
    Load a model by id, unique prefix, Hub id, alias or path, or from a mapping of the same keys.

    Parameters
    ----------
    name : str, Path, mapping or Model
        ``"qwen3-8b"``, ``"meta-llama/Llama-3.1-8B"``, ``"my_model.yaml"``, ``"Qwen3-8B/config.json"`` or its folder,
        or ``{"summary": {"parameters": 8e9, "layers": 32, "kv_heads": 8, "head_dim": 128}}``.
    assume : collection of str
        Keys of a config.json that change no count, where its reader asks about them; other sources have none.

    Returns
    -------
    model : Model
        Frozen.

    Raises
    ------
    UnknownNameError, AmbiguousNameError, SpecError
        As :func:`load_device`.

    Examples
    --------
    >>> load_model("meta-llama/Llama-3.1-8B").parameters.total
    8030261248
    """
    if isinstance(name, Model):
        return name
    if isinstance(name, Mapping):
        return model_of(dict(name), "model mapping", "custom")
    return load_model_file(_locate(MODELS, name), (assume,) if isinstance(assume, str) else tuple(assume))


def list_devices() -> tuple[str, ...]:
    """
    Ids of all devices, sorted.

    Examples
    --------
    >>> "gb10" in list_devices()
    True
    """
    return tuple(sorted(_paths(DEVICES)))


def list_models() -> tuple[str, ...]:
    """
    Ids of all models, sorted.

    Examples
    --------
    >>> "qwen3-8b" in list_models()
    True
    """
    return tuple(sorted(_paths(MODELS)))


def is_listed(kind: Kind, name: str) -> bool:
    """
    Tell whether a name is one of the catalogue: for names that a file says, which must lead to no path and no server.

    Examples
    --------
    >>> [is_listed(MODELS, name) for name in ("meta-llama/Llama-3.1-8B", "my-org/my-model")]
    [True, False]
    """
    return not is_path(name) and (name in _paths(kind) or len(_candidates(kind, name)) == 1)


@cache
def load_sources() -> Mapping[str, Mapping[str, str]]:
    """Load the table that the source keys of the device files point into."""
    return read_mapping(_shipped(DEVICES) / "sources.yaml")


@cache
def load_generation(name: str) -> Efficiency | None:
    """Load the efficiency of an architecture generation (or ``"universal"``), if one was fitted."""
    path = _shipped(DEVICES) / "generations" / f"{name}.yaml"
    return check(Efficiency, read_mapping(path), str(path)) if path.is_file() else None


@cache
def load_engines() -> tuple[Efficiency, ...]:
    """Load the entries that the devices of a vendor share, by engine and format."""
    files = _engine_files().values()
    return tuple(check(Efficiency, entry, str(path)) for path in files for entry in read_mapping(path)["entries"])


@cache
def load_fusions(engine: str | None) -> tuple[Fusion, ...]:
    """
    Load what an engine runs inside neighbouring kernels; nothing where its file says nothing, or there is none.

    Examples
    --------
    >>> [one.kernel for one in load_fusions("tensorrt-llm")][:2], load_fusions("vllm")
    (['rotary', 'cache_write'], ())
    """
    asked = f"{engine}-"  # a version is of its engine
    files = [path for name, path in _engine_files().items() if asked.startswith(f"{name}-")]
    return tuple(check(Fusion, one, str(path)) for path in files for one in read_mapping(path).get("fused", ()))


def _engine_files() -> Mapping[str, Path]:
    return {path.stem: path for path in sorted((_shipped(DEVICES) / "engines").glob("*.yaml"))}


@cache
def load_interconnects() -> Mapping[str, Interconnect]:
    """Load the links between devices, by id."""
    paths = sorted((_shipped(DEVICES) / "interconnects").glob("*.yaml"))
    links = (check(Interconnect, read_mapping(path), str(path)) for path in paths)
    return {link.id: link for link in links}


def load_interconnect(name: str) -> Interconnect:
    """
    Load a link between devices by id.

    Raises
    ------
    UnknownNameError
        There is no such link; all are listed.

    Examples
    --------
    >>> load_interconnect("nvlink-hopper").all_reduce.latency_us
    6.18
    """
    links = load_interconnects()
    if name not in links:
        near = difflib.get_close_matches(name, links, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        message = f"interconnect={name!r} is not in hardware_db/interconnects: expected one of {', '.join(links)}{hint}"
        raise UnknownNameError(message)
    return links[name]


def interconnect_of(device: Device) -> Interconnect:
    """
    Find the link that devices of this kind talk over by default: one of their own, that of its kind, else PCIe.

    Examples
    --------
    >>> interconnect_of(load_device("h100-sxm")).id, interconnect_of(load_device("l40s")).id
    ('nvlink-hopper', 'pcie')
    """
    links, kind = load_interconnects(), default_link(device)
    own = next((link for link in links.values() if device.id in link.devices), None)
    of_kind = next((link for link in links.values() if kind in link.kinds), None)
    return own or of_kind or links.get(kind, links["pcie"])


def clear_cache() -> None:
    """Forget what was read, after a file or a user folder has changed."""
    for cached in (_paths_in, load_device_file, load_model_file, _names):
        cached.cache_clear()
    for table in (load_sources, load_generation, load_engines, load_fusions, load_interconnects):
        table.cache_clear()


# ---- where the files are


def _shipped(kind: Kind) -> Path:
    """Return the folder inside the installed package, or the checkout's while developing."""
    places = [Path(str(files("rooflinekit"))) / "_data" / kind.folder]
    places += [parent / kind.folder for parent in Path(__file__).parents if (parent / "pyproject.toml").is_file()]
    found = next((place for place in places if place.is_dir()), None)
    if found is None:
        message = f"no {kind.folder} folder: looked in {', '.join(map(str, places))}. Reinstall rooflinekit"
        raise SpecError(message)
    return found


def _paths(kind: Kind) -> Mapping[str, Path]:
    """Id -> file, a user's own file before a shipped one of the same id."""
    own = os.environ.get(kind.variable)
    folders = [Path(part) for part in own.split(os.pathsep)] if own else []
    found: dict[str, Path] = {}
    for folder in (*folders, _shipped(kind)):
        if not folder.is_dir():
            message = f"{kind.variable}: {folder} is no folder: expected folders of YAML files"
            raise SpecError(message)
        found = {**_paths_in(folder), **found}
    return found


@cache
def _paths_in(folder: Path) -> Mapping[str, Path]:
    skipped = {"sources", "generations", "engines", "interconnects"}
    paths = sorted(path for suffix in _SUFFIXES for path in folder.rglob(f"*{suffix}"))
    return {path.stem: path for path in paths if path.stem not in skipped and path.parent.name not in skipped}


# ---- what a name means


def _locate(kind: Kind, name: object) -> Path:
    if not isinstance(name, str | Path):
        message = f"{name!r} is no {kind.what}: expected a name, a path, a mapping or a {kind.what.capitalize()}"
        raise SpecError(message)
    text = str(name)
    if isinstance(name, Path) or is_path(text):
        return Path(text).expanduser()
    paths = _paths(kind)
    if text in paths:
        return paths[text]
    found = _candidates(kind, text)
    if len(found) == 1:
        return paths[found[0]]
    if found:
        message = f"{text!r} is the name of {len(found)} {kind.what}s: choose one of {', '.join(found)}"
        raise AmbiguousNameError(message)
    if text and len(text) < _LONGEST_NAME and Path(text).exists():  # no name of the catalogue, so it can only mean this
        return Path(text)
    unknown = _unknown(kind, text, paths)
    if kind is MODELS and is_hub_id(text):
        return _from_hub(text, unknown)
    raise UnknownNameError(unknown)


def _from_hub(hub_id: str, unknown: str) -> Path:
    """Fetch the config of a repository that the catalogue does not know."""
    try:
        return fetch_config(hub_id)
    except SpecError as error:
        message = f"{unknown}; on the Hub: {error}"
        raise UnknownNameError(message) from None


def is_path(text: str) -> bool:
    """Tell a path from a name by how it ends or begins."""
    return text.endswith(_PATH_SUFFIXES) or text.startswith((".", "/", "~"))


def _candidates(kind: Kind, text: str) -> list[str]:
    """Ids that the name may mean: those that bear it, else those whose id it begins."""
    words = normalise(text)
    bearers = _names(kind, tuple(_paths(kind).items())).get(words, ())
    if any(normalise(identifier) == words for identifier in bearers):  # an id, spelled otherwise: no prefix of others
        return sorted(bearers)
    begun = [identifier for identifier in _paths(kind) if normalise(identifier).startswith(f"{words}-")]
    return sorted({*bearers, *begun})


def _unknown(kind: Kind, text: str, paths: Mapping[str, Path]) -> str:
    words = normalise(text)
    names = {normalise(identifier): identifier for identifier in paths}
    near = [names[match] for match in difflib.get_close_matches(words, names, n=1, cutoff=0.6)]
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    return f"{text or repr(text)} is not in {kind.folder}{hint or '.'} `{kind.listing}` shows all {kind.what}s"


def normalise(name: str) -> str:
    """Lower-case words joined by dashes: how names are compared.

    >>> normalise("NVIDIA H200_NVL"), normalise("meta-llama/Llama-3.1-8B")
    ('nvidia-h200-nvl', 'meta-llama-llama-3-1-8b')
    """
    return "-".join(re.findall(r"[a-z0-9]+", name.lower()))


@cache
def _names(kind: Kind, paths: tuple[tuple[str, Path], ...]) -> Mapping[str, tuple[str, ...]]:
    """Normalised name -> the ids that bear it; reads every file, so only when an id does not settle it."""
    bearers: dict[str, set[str]] = {}
    for identifier, path in paths:
        for name in (identifier, *_other_names(kind, path)):
            bearers.setdefault(normalise(name), set()).add(identifier)
    return {name: tuple(sorted(ids)) for name, ids in bearers.items()}


def _other_names(kind: Kind, path: Path) -> tuple[str, ...]:
    if kind is DEVICES:
        return load_device_file(path).names
    model = load_model_file(path, ())
    return (model.name, *model.hub_ids, *model.aliases)
