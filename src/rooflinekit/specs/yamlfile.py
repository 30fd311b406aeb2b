"""Read a YAML file and check it against a spec: every fault becomes one line that names file, key, value and remedy."""

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from rooflinekit.errors import SpecError

SpecT = TypeVar("SpecT", bound=BaseModel)
_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_Base):  # type: ignore[misc]  # one of two classes, by how PyYAML was built
    """A safe loader that refuses a key given twice: YAML would silently take the last."""

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:  # noqa: ANN401, FBT001, FBT002 - PyYAML's own
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        twice = next((key for key in keys if keys.count(key) > 1), None)
        if twice is not None:
            raise yaml.constructor.ConstructorError(None, None, f"key `{twice}` is given twice", node.start_mark)
        return super().construct_mapping(node, deep=deep)


def read_mapping(path: Path) -> Mapping[str, Any]:
    """Read a YAML file that holds a mapping."""
    try:
        text = path.read_text(encoding="utf-8")
        data = yaml.load(text, Loader=_Loader)  # noqa: S506 - a safe loader, the C one where PyYAML was built with it
    except OSError as error:
        message = f"{path}: cannot be read ({error.strerror}): expected a YAML file"
        raise SpecError(message) from None
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        message = f"{path}: is no YAML file ({_first_line(error)}): expected `key: value` lines"
        raise SpecError(message) from None
    if not isinstance(data, dict):
        message = f"{path}: holds {type(data).__name__}, expected a mapping of `key: value` lines"
        raise SpecError(message)
    return data


def check(spec: type[SpecT], data: Mapping[str, Any], where: str) -> SpecT:
    """Validate a mapping, or raise one error with the first fault and the number of others."""
    try:
        return spec.model_validate(dict(data))
    except ValidationError as error:
        faults = sorted(error.errors(), key=lambda fault: fault["type"] != "extra_forbidden")  # a misspelt key first
        more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
        message = f"{where}: {_fault(spec, dict(faults[0]))}{more}"
        raise SpecError(message) from None


def _fault(spec: type[BaseModel], fault: Mapping[str, Any]) -> str:
    key = ".".join(str(part) for part in fault["loc"])
    if fault["type"] == "extra_forbidden":
        return f"unknown key `{key}`{_known(spec, fault['loc'])}"
    if fault["type"] == "missing":
        return f"missing key `{key}`: add it"
    if not key:
        return str(fault["msg"]).removeprefix("Value error, ")
    found = f" = {fault['input']!r}" if not isinstance(fault["input"], Mapping | BaseModel) else ""
    return f"`{key}`{found}: {fault['msg'].removeprefix('Value error, ')}; correct the value"


def _known(spec: type[BaseModel], loc: tuple[int | str, ...]) -> str:
    """List the keys that the place allows, the nearest first."""
    fields = _fields_at(spec, loc[:-1])
    if not fields:
        return ": remove it"
    near = difflib.get_close_matches(str(loc[-1]), fields, n=1)
    return f": did you mean `{near[0]}`?" if near else f": expected one of {', '.join(fields)}"


def _fields_at(spec: object, loc: tuple[int | str, ...]) -> list[str]:
    for part in (part for part in loc if isinstance(part, str)):
        field = getattr(spec, "model_fields", {}).get(part)
        options = () if field is None else (field.annotation, *getattr(field.annotation, "__args__", ()))
        spec = next((one for one in options if isinstance(one, type) and issubclass(one, BaseModel)), None)
    return list(getattr(spec, "model_fields", {}))


def _first_line(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    line = f" in line {mark.line + 1}" if mark else ""
    return f"{getattr(error, 'problem', None) or str(error).splitlines()[0]}{line}"
