"""Read a YAML file and check it against a spec: every fault becomes one line that names file, key, value and remedy."""

import difflib
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, Tag, ValidationError

from rooflinekit.errors import SpecError

SpecT = TypeVar("SpecT", bound=BaseModel)


def read_mapping(path: Path) -> Mapping[str, Any]:
    """Read a YAML file that holds a mapping."""
    from rooflinekit.specs.yamltext import parse  # noqa: PLC0415 - PyYAML loads when a file is read, not at import

    try:
        data = parse(path.read_text(encoding="utf-8"))
    except OSError as error:
        message = f"{path}: cannot be read ({error.strerror}): expected a YAML file"
        raise SpecError(message) from None
    except ValueError as error:  # a text that is none, or no YAML
        message = f"{path}: is no YAML file ({str(error).splitlines()[0]}): expected `key: value` lines"
        raise SpecError(message) from None
    if not isinstance(data, dict):
        held = "is empty" if data is None else f"holds {type(data).__name__}"
        message = f"{path}: {held}, expected a mapping of `key: value` lines"
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
    keys, fields = _place(spec, fault["loc"])
    key = ".".join(map(str, keys))
    if fault["type"] == "extra_forbidden":
        return f"unknown key `{key}`{_known(str(keys[-1]), fields)}"
    if fault["type"] == "missing":
        return f"missing key `{key}`: add it"
    if fault["type"] == "union_tag_invalid":
        expected = str(fault["ctx"]["expected_tags"]).replace("'", "")
        return f"`{key}.kind` = {fault['ctx']['tag']!r}: expected one of {expected}; correct the value"
    if not key:
        return str(fault["msg"]).removeprefix("Value error, ")
    found = f" = {fault['input']!r}" if not isinstance(fault["input"], Mapping | BaseModel) else ""
    return f"`{key}`{found}: {fault['msg'].removeprefix('Value error, ')}; correct the value"


def _known(key: str, fields: list[str]) -> str:
    """List the keys that the place allows, the nearest first."""
    if not fields:
        return ": remove it"
    near = difflib.get_close_matches(key, fields, n=1)
    return f": did you mean `{near[0]}`?" if near else f": expected one of {', '.join(fields)}"


def _place(spec: type[BaseModel], loc: tuple[int | str, ...]) -> tuple[list[int | str], list[str]]:
    """Follow a fault's place through the spec: the keys as the file has them, and the fields beside the last one.

    Between them pydantic names the kind of a block that it took: a tag, which is no key of the file.
    """
    keys: list[int | str] = []
    fields: list[str] = []
    here: object = spec
    for part in loc:
        kinds = dict(_kinds(here))
        if part in kinds:
            here = kinds[part]
            continue
        models = [one for one in kinds.values() if isinstance(one, type) and issubclass(one, BaseModel)]
        fields = [name for one in models for name in one.model_fields]
        keys.append(part)
        here = next((found for one in kinds.values() if (found := _below(one, part)) is not None), None)
    return keys, fields


def _kinds(annotation: object) -> Iterator[tuple[object, object]]:
    """Yield the types that an annotation allows, each under its tag, or under itself where it has none."""
    if get_origin(annotation) is Annotated:
        inner, *marks = get_args(annotation)
        tag = next((mark.tag for mark in marks if isinstance(mark, Tag)), None)
        yield from ((tag or key, one) for key, one in _kinds(inner))
    elif get_origin(annotation) in (Union, UnionType):
        for one in get_args(annotation):
            yield from _kinds(one)
    else:
        yield annotation, annotation


def _below(kind: object, part: int | str) -> object:
    """Type of a field of a spec, or of an item of a sequence; None where it is neither."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        field = kind.model_fields.get(str(part))
        return None if field is None else field.annotation
    if get_origin(kind) is tuple and isinstance(part, int):
        items = get_args(kind)
        return items[0] if Ellipsis in items else items[min(part, len(items) - 1)]
    return None
