"""What the user vouches for: keys that change no count. Each is in the file, and none is one that the family reads."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NoReturn

from rooflinekit.errors import SpecError
from rooflinekit.specs.huggingface import keys
from rooflinekit.specs.huggingface.config import Config, listed

_TYPE = "model_type"


def keys_assumed(assumed: Collection[str]) -> list[str]:
    """Give the keys alone, sorted: the family that the user names is no key."""
    return sorted(name for name in assumed if name != _TYPE and not name.startswith(f"{_TYPE}="))


def without_quantisation(config: Mapping[str, Any], assumed: Collection[str]) -> dict[str, Any]:
    """Leave the quantisation out of a mapping where the user asks for it."""
    dropped = keys.QUANTISATION if any(map(_is_quantisation, assumed)) else ()
    return {str(key): value for key, value in config.items() if key not in dropped}


def refuse_absent(config: Mapping[str, Any], where: str, assumed: Collection[str]) -> None:
    """Refuse a key that the file does not have: a slip of the pen would pass for a judgement."""
    nested = [part for key in keys.NESTED if isinstance(part := config.get(key), Mapping)]
    for name in keys_assumed(assumed):
        if not any(_holds(part, name) for part in (config, *nested)):
            message = f"{where}: assume: the file has no key `{name}`: expected a key that it has"
            raise SpecError(message)


def explain(outer: Config, inner: Config, assumed: Collection[str], unexplained: Sequence[str]) -> None:
    """Refuse the file where keys are left that may change a count, and assumptions about keys that are read."""
    outer.skip("tie_word_embeddings", *keys.DTYPE)
    parts = (outer, *outer.parts)
    found = [f"{part.prefix}{key}" for part in parts for key in keys.suspicious(part.unread)]
    left = [name for name in (*found, *unexplained) if not _assumes(inner, name, assumed)]
    if left:
        _refuse_left(outer, left)
    for name in keys_assumed(assumed):
        if not _is_quantisation(name) and _is_read(name, inner, parts, unexplained):
            message = (
                f"{outer.where}: assume: `{name}` is a key that the reader of this family reads, it cannot be "
                "assumed to change nothing: expected keys that no reader explains"
            )
            raise SpecError(message)


def notes_of(assumed: Collection[str]) -> tuple[str, ...]:
    """Say in a note what the user vouched for."""
    named = keys_assumed(assumed)
    return (f"read under the assumption that these change no count: {', '.join(named)}",) if named else ()


def _refuse_left(outer: Config, left: Sequence[str]) -> NoReturn:
    flags = " ".join(f"--assume {name}" for name in left)
    message = (
        f"{outer.where}: {listed(left)} may change a count, and the reader of this family does not explain "
        f"{'it' if len(left) == 1 else 'them'}: expected none such. If they change nothing, go on with "
        f"assume=[{', '.join(map(repr, left))}] (`{flags}`)"
    )
    raise SpecError(message)


def _assumes(inner: Config, name: str, assumed: Collection[str]) -> bool:
    """Tell whether a key is assumed, by its whole name or, in the language model's half, by its own."""
    return name in assumed or (name.startswith(inner.prefix) and name.removeprefix(inner.prefix) in assumed)


def _is_read(name: str, inner: Config, parts: Sequence[Config], unexplained: Sequence[str]) -> bool:
    """Tell whether something has read the key, by its whole name or its own in the language model's half."""
    if name in unexplained or f"{inner.prefix}{name}" in unexplained:
        return False
    if any(part.startswith(f"{key}.") for key in keys.QUANTISATION for part in (name, name.removeprefix(inner.prefix))):
        return True
    places = list(_places(name, inner, parts))
    return bool(places) and all(key not in part.unread for part, key in places)


def _places(name: str, inner: Config, parts: Sequence[Config]) -> Iterator[tuple[Config, str]]:
    for part in parts:
        key = name.removeprefix(part.prefix)
        if name.startswith(part.prefix) and key in part.data:
            yield part, key
    if inner.prefix and name in inner.data:
        yield inner, name


def _is_quantisation(name: str) -> bool:
    return name.rpartition(".")[2] in keys.QUANTISATION


def _holds(data: Mapping[str, Any], name: str) -> bool:
    """Tell whether a mapping has a key, or a key inside a mapping or list that it has: `a.b`, `a[0].b`."""
    if name in data:
        return True
    for key, value in data.items():
        entries = [(f"{key}.", value)]
        if isinstance(value, list):
            entries = [(f"{key}[{index}].", entry) for index, entry in enumerate(value)]
        for prefix, entry in entries:
            if name.startswith(prefix) and isinstance(entry, Mapping) and _holds(entry, name.removeprefix(prefix)):
                return True
    return False
