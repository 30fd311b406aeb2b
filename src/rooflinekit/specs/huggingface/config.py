"""The keys of a config.json: read by name, converted or refused, and remembered, so that none is dropped silently."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from rooflinekit.errors import SpecError

#: No figure of a model is larger: what is, is a mistake or an attack.
_LARGEST = 10**13
_WHOLE = re.compile(r"\d{1,15}(\.0*)?")
_WORDS = {"true": True, "false": False, "1": True, "0": False}
_SHOWN = 60
_NOT_MODELLED = "this family is not modelled with another"


class Config:
    """One mapping of the file and which of its keys were read.

    Several names for one figure are read at once: the first that holds something counts, all are explained.
    """

    def __init__(self, data: Mapping[str, Any], where: str, prefix: str = "", outer: "Config | None" = None) -> None:
        """Wrap a mapping; `prefix` is its place in the file, `outer` the mapping around it."""
        self.data = dict(data)
        self.where = where
        self.prefix = prefix
        self.outer = outer
        self._parts: dict[str, list[Config]] = {}
        self._read: set[str] = set()

    # ---- finding

    def find(self, *keys: str) -> tuple[str, Any]:
        """Give the first key that holds something with its value, else the first key and None; all count as read."""
        self._read.update(keys)
        return next(((key, self.data[key]) for key in keys if self.data.get(key) is not None), (keys[0], None))

    def skip(self, *keys: str) -> None:
        """Count keys as read that a family knows and that change nothing in it."""
        self._read.update(keys)

    @property
    def unread(self) -> dict[str, Any]:
        """The keys that nothing has read."""
        return {key: value for key, value in self.data.items() if key not in self._read}

    @property
    def parts(self) -> list["Config"]:
        """The mappings inside that were read, and theirs."""
        own = [part for parts in self._parts.values() for part in parts]
        return [*own, *(part for inner in own for part in inner.parts)]

    def part(self, key: str) -> "Config":
        """Give a mapping inside this one; empty where it is absent."""
        _, value = self.find(key)
        if value is not None and not isinstance(value, Mapping):
            self.refuse(key, value, "a mapping")
        if key not in self._parts:
            self._parts[key] = [Config(value or {}, self.where, f"{self.prefix}{key}.", self)]
        return self._parts[key][0]

    def entries(self, key: str, length: int) -> list["Config"]:
        """Give the mappings of a list of `length`."""
        found = self.listing(key, length=length) or self.missing(key)
        if not all(isinstance(entry, Mapping) for entry in found):
            self.refuse(key, found, "a list of mappings")
        if key not in self._parts:
            self._parts[key] = [
                Config(entry, self.where, f"{self.prefix}{key}[{index}].", self) for index, entry in enumerate(found)
            ]
        return self._parts[key]

    # ---- figures

    def optional(self, *keys: str) -> int | None:
        """Read a whole number of 1 or more, or None where it is absent."""
        key, value = self.find(*keys)
        if value is None:
            return None
        found = whole(value)
        if found is None or found < 1:
            self.refuse(key, value, "a whole number of 1 or more")
        self._agree(found, keys)
        return found

    def _agree(self, found: int, names: tuple[str, ...]) -> None:
        """Refuse a file that gives one figure twice under two names, and not the same."""
        for key in names:
            other = whole(self.data.get(key))
            if other is not None and other != found:
                self.refuse(key, other, f"{found}, which another name of the figure gives ({', '.join(names)})")

    def count(self, *keys: str, default: int | None = None, most: int = _LARGEST) -> int:
        """Read a whole number of 1 or more."""
        found = self.optional(*keys)
        if found is None and default is None:
            self.missing(*keys)
        if found is not None and found > most:
            self.refuse(self.find(*keys)[0], found, f"at most {most}")
        return found or default or 0

    def natural(self, *keys: str) -> int:
        """Read a whole number, 0 where it is absent."""
        key, value = self.find(*keys)
        found = 0 if value is None else whole(value)
        if found is None:
            self.refuse(key, value, "a whole number")
        return found

    def number(self, *keys: str, default: float | None = None) -> float:
        """Read a number above 0, whole or not."""
        key, value = self.find(*keys)
        if value is None:
            return self.missing(*keys) if default is None else default
        usable = isinstance(value, int | float) and not isinstance(value, bool)
        if not usable or not 0 < value < _LARGEST:
            self.refuse(key, value, "a number above 0")
        return float(value)

    def flag(self, key: str, default: bool = False) -> bool:  # noqa: FBT001, FBT002 - the value itself, as in dict.get
        """Read true or false."""
        _, value = self.find(key)
        if value is None:
            return default
        found = _WORDS.get(str(value).lower())
        if found is None:
            self.refuse(key, value, "true or false")
        return found

    def text(self, *keys: str, default: str = "") -> str:
        """Read a string."""
        key, value = self.find(*keys)
        if value is None:
            return default
        if not isinstance(value, str):
            self.refuse(key, value, "a string")
        return value

    def listing(self, *keys: str, length: int | None = None) -> list[Any] | None:
        """Read a list, of one entry a layer where `length` is given; a string of commas is a list too."""
        key, value = self.find(*keys)
        if isinstance(value, str) and "," in value:
            value = [entry.strip() for entry in value.split(",")]
        if value is not None and not isinstance(value, list | tuple):
            self.refuse(key, value, "a list")
        if value is not None and length is not None and len(value) != length:
            self.refuse(key, value, f"a list of {length} entries, one a layer (it has {len(value)})")
        return None if value is None else list(value)

    def same(self, *keys: str, default: int | None = None) -> int:
        """Read a whole number that may stand as a list of equal numbers, one a layer."""
        key, value = self.find(*keys)
        if not isinstance(value, list | tuple):
            return self.count(*keys, default=default)
        found = {whole(entry) for entry in value}
        only = found.pop() if len(found) == 1 else None
        if not only:
            self.refuse(key, value, "one number, or a list of equal ones of 1 or more")
        return only

    def per_layer(self, *keys: str, layers: int) -> list[int]:
        """Read a whole number a layer, given as a list or as one number for all."""
        key, value = self.find(*keys)
        if not isinstance(value, list | tuple):
            return [self.count(*keys)] * layers
        entries = [whole(entry) for entry in self.listing(*keys, length=layers) or ()]
        found = [entry for entry in entries if entry]
        if len(found) != layers:
            self.refuse(key, value, "whole numbers of 1 or more")
        return found

    def only(self, key: str, *allowed: object) -> None:
        """Refuse any value but those that this family is modelled for."""
        _, value = self.find(key)
        if value is not None and value not in allowed:
            self.refuse(key, value, f"{', '.join(map(_show, allowed)) or 'null'}: {_NOT_MODELLED}")

    def on(self, key: str) -> None:
        """Refuse a family without this switch."""
        if not self.flag(key, default=True):
            self.refuse(key, self.data[key], f"true: {_NOT_MODELLED}")

    def off(self, key: str) -> None:
        """Refuse a family with this switch."""
        if self.flag(key):
            self.refuse(key, self.data[key], f"false: {_NOT_MODELLED}")

    # ---- errors

    def refuse(self, key: str, value: object, expected: str) -> NoReturn:
        """Raise one line: file, key, value, what was expected."""
        message = f"{self.where}: `{self.prefix}{key}` = {_show(value)}: expected {expected}"
        raise SpecError(message)

    def missing(self, *keys: str) -> NoReturn:
        """Raise one line: file, missing key, its other names."""
        others = f" (or {', '.join(keys[1:])})" if keys[1:] else ""
        message = f"{self.where}: missing key `{self.prefix}{keys[0]}`{others}: expected a figure of the model"
        raise SpecError(message)


def whole(value: object) -> int | None:
    """Read a whole number that stands as an integer, as 32.0 or as a string; None is no such number.

    >>> whole(32), whole(32.0), whole("32"), whole(2.5), whole(True)
    (32, 32, 32, None, None)
    """
    if isinstance(value, str) and _WHOLE.fullmatch(value):
        return int(value.split(".")[0])
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return int(value) if value == int(value) and 0 <= value <= _LARGEST else None


def _show(value: object) -> str:
    """Give a value as a file writes it, cut to a line."""
    words = {True: "true", False: "false", None: "null"}
    text = words[value] if value is None or isinstance(value, bool) else repr(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


def listed(keys: Sequence[str]) -> str:
    """Join key names for a message."""
    return ", ".join(f"`{key}`" for key in keys)
