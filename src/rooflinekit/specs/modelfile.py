"""Write a model as our YAML: keys in the order of the schema, defaults left out, one block a line."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from rooflinekit.errors import InvalidInputError
from rooflinekit.specs.model import Model
from rooflinekit.specs.spec import Spec

_WIDTH = 120
#: The kinds that a file need not name.
_USUAL_KINDS = ("gqa", "dense")
_MAPPINGS = ("sources",)


def to_yaml(model: Model) -> str:
    """
    Write a model as one YAML file of ``model_configs``.

    Parameters
    ----------
    model : Model
        Any: from YAML, from a config.json, from a mapping.

    Returns
    -------
    text : str
        Reading it gives an equal model, and writing that gives the same text.

    Examples
    --------
    >>> summary = {"parameters": 8000000000, "layers": 32, "kv_heads": 8, "head_dim": 128}
    >>> print(to_yaml(Model.model_validate({"id": "small", "name": "Small", "summary": summary})), end="")
    id: small
    name: Small
    summary: {parameters: 8000000000, layers: 32, kv_heads: 8, head_dim: 128}
    """
    return "".join(f"{line}\n" for key, value in _plain(model).items() for line in _lines(key, value))


def write_model(model: Model, folder: Path, *, overwrite: bool = False) -> Path:
    """
    Write a model to ``<folder>/<family>/<id>.yaml``, where the catalogue finds it.

    Parameters
    ----------
    model : Model
        Without a family it goes into the folder itself.
    folder : Path
        Made where it is missing; name it in ``ROOFLINEKIT_MODEL_CONFIGS`` to find the model by its id.
    overwrite : bool
        Whether a file that is there already may be replaced.

    Returns
    -------
    path : Path
        The file.

    Raises
    ------
    InvalidInputError
        The file is there already.
    """
    family = "-".join(re.findall(r"[a-z0-9.]*[a-z0-9]", model.family.lower()))  # a word, never a way out of the folder
    path = folder / family / f"{model.id}.yaml"
    if path.exists() and not overwrite:
        message = f"{path}: is there already: expected no file; overwrite it with --force (`overwrite=True`)"
        raise InvalidInputError(message)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(to_yaml(model), encoding="utf-8")
    return path


def _plain(spec: Spec) -> dict[str, Any]:
    """Give the fields of a description that a file has to say, in the order of the schema."""
    fields = type(spec).model_fields
    found: dict[str, Any] = {}
    for key in sorted(fields, key=_place):
        value = getattr(spec, key)
        if key == "kind" and "name" in fields:  # a block is told apart by its kind, whatever its class's default
            told = value not in _USUAL_KINDS
        else:
            told = fields[key].is_required() or value != fields[key].get_default()
        if told:
            found[key] = dict(value) if key in _MAPPINGS else _value(value)
    return found


def _place(key: str) -> int:
    """Tell where a key of a block stands: name and kind first, the norms last, the others as in the schema."""
    return {"id": 0, "name": 1, "kind": 2, "norms": 4}.get(key, 3)


def _value(value: Any) -> Any:  # noqa: ANN401 - whatever a field holds
    if isinstance(value, Spec):
        return _plain(value)
    return [_value(entry) for entry in value] if isinstance(value, tuple) else value


def _lines(key: str, value: Any, indent: str = "") -> Iterator[str]:  # noqa: ANN401 - as above
    """Yield the lines of one key: on one line where it fits, blocks and long lists on several."""
    one_line = f"{indent}{key}: {_flow(value)}"
    blocks = isinstance(value, list) and value and isinstance(value[0], dict)
    if not blocks and len(one_line) <= _WIDTH and not _is_prose(key):
        yield one_line
    elif isinstance(value, Mapping):
        yield f"{indent}{key}:"
        for inner, held in value.items():
            yield from _lines(inner, held, f"{indent}  ")
    elif isinstance(value, list) and (blocks or not isinstance(value[0], list)):
        yield f"{indent}{key}:"
        for entry in value:
            yield from _item(f"{indent}  - ", entry)
    elif isinstance(value, list):
        yield from _wrapped(f"{indent}{key}", value, indent)
    else:
        yield one_line


def _item(head: str, entry: Any) -> Iterator[str]:  # noqa: ANN401 - as above
    """Yield an entry of a list; a long mapping goes on below its first key."""
    line, margin = f"{head}{_flow(entry)}", " " * (len(head) + 1)
    if len(line) <= _WIDTH or not isinstance(entry, Mapping):
        yield line
        return
    line = f"{head}{{"
    for number, (key, value) in enumerate(entry.items(), 1):
        text = f"{key}: {_flow(value)}{'}' if number == len(entry) else ','}"
        if len(line) + len(text) >= _WIDTH:
            yield line.rstrip()
            line = margin
        line += text if line.endswith((margin, "{")) else f" {text}"
    yield line


def _is_prose(key: str) -> bool:
    return key in {"notes", "sources", "published_count", "reference_count"}


def _wrapped(head: str, entries: Sequence[Any], indent: str) -> Iterator[str]:
    """Yield a long list of lists, as many on a line as fit."""
    yield f"{head}: ["
    line = f"{indent} "
    for entry in entries:
        text = f" {_flow(entry)},"
        if len(line) + len(text) > _WIDTH:
            yield line
            line = f"{indent} "
        line += text
    yield line
    yield f"{indent}]"


def _flow(value: Any) -> str:  # noqa: ANN401 - as above
    """Give a value on one line, quoted where YAML asks for it."""
    text: str = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=10**9, allow_unicode=True)
    return text.removesuffix("\n").removesuffix("\n...")
