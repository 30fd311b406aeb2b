"""The YAML files of engine profiles: which file a name means, and what a file takes over from its base."""

import difflib
import re
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rooflinekit.errors import UnknownNameError
from rooflinekit.serving.engine import EngineProfile
from rooflinekit.specs.yamlfile import check, read_mapping

if TYPE_CHECKING:
    from collections.abc import Mapping

FOLDER = Path(str(files("rooflinekit"))) / "serving" / "profiles"
#: Other names of engines.
_ALIASES = {
    "llama-cpp": "llama.cpp",
    "llama-server": "llama.cpp",
    "llamacpp": "llama.cpp",
    "trtllm": "tensorrt-llm",
    "trt-llm": "tensorrt-llm",
    "tensorrt": "tensorrt-llm",
}
_NAME = re.compile(r"(?P<engine>.+?)(?:[- ][vb]?(?P<version>\d[\w.+]*))?(?:-(?P<mode>serve|offline))?")


class Wanted(NamedTuple):
    """What a name asks for; an empty version is the newest."""

    engine: str
    version: str
    mode: str


def profile_ids() -> tuple[str, ...]:
    """Ids of the profiles that ship."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.yaml")))


def asked(name: str) -> Wanted:
    """Take a name apart.

    >>> asked("vllm-0.15.1")
    Wanted(engine='vllm', version='0.15.1', mode='serve')
    >>> asked("llama-server").engine, asked("vllm-offline").mode
    ('llama.cpp', 'offline')
    """
    parts = _NAME.fullmatch(name.strip().lower())
    if parts is None:
        return Wanted(name, "", "serve")
    engine = parts["engine"].strip("- ")
    return Wanted(_ALIASES.get(engine, engine), parts["version"] or "", parts["mode"] or "serve")


def find_profile(name: str) -> str:
    """Give the id of the profile that a name means: the newest, or the newest up to the version asked for."""
    want = asked(name)
    own = [one for one in map(asked, profile_ids()) if (one.engine, one.mode) == (want.engine, want.mode)]
    if not own:
        raise UnknownNameError(_unknown(name))
    held = sorted((one for one in own if not want.version or not _newer(one, want)), key=_age)
    if not held:
        oldest = min(own, key=_age)
        message = f"{name!r}: the oldest profile of {want.engine} ({want.mode}) is that of {oldest.version}"
        raise UnknownNameError(message)
    return _id(held[-1])


def _id(one: Wanted) -> str:
    return f"{one.engine}-{one.version}" + ("-offline" if one.mode == "offline" else "")


def _age(one: Wanted) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", one.version))


def _newer(one: Wanted, want: Wanted) -> bool:
    """Tell whether a profile begins after the version asked for, as far as that is given."""
    return _age(one)[: len(_age(want))] > _age(want)[: len(_age(one))]


def _unknown(name: str) -> str:
    known = (*sorted({asked(one).engine for one in profile_ids()}), *profile_ids())
    near = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]}?" if near else "."
    return f"{name or repr(name)} is no engine profile{hint} list_engines() gives {', '.join(profile_ids())}"


@cache
def read_profile(identifier: str) -> EngineProfile:
    """Read a profile with what it takes over."""
    path = FOLDER / f"{identifier}.yaml"
    return check(EngineProfile, {**_merged(identifier), "id": identifier}, str(path))


def _merged(identifier: str) -> dict[str, Any]:
    """Lay a file over its base: its figures replace, its sources and notes are added."""
    own = dict(read_mapping(FOLDER / f"{identifier}.yaml"))
    base = own.pop("base", None)
    if base is None:
        return own
    below: Mapping[str, Any] = _merged(str(base))
    sources = {**below.get("sources", {}), **own.pop("sources", {})}
    notes = (*below.get("notes", ()), *own.pop("notes", ()))
    return {**below, **own, "sources": sources, "notes": notes}
