"""Fields: keys of one JSON object or CSV row, each read as what it must be, or refused by name, value and line."""

import re
import textwrap
from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np

from rooflinekit.measurements.record import refusal
from rooflinekit.measurements.source import Source

#: 1,234.5 with separators; a comma that is no separator is refused rather than guessed at.
_NUMBER = re.compile(r"[-+]?(?:\d{1,3}(?:,\d{3})+|\d+|(?=\.\d))(?:\.\d*)?(?:[eE][-+]?\d+)?")
_NOTHING = frozenset({"", "-", "n/a", "na", "nan", "inf", "-inf", "infinity", "-infinity", "none", "null"})


class Fields:
    """
    One object of a file.

    Missing keys, nulls and numbers that are not finite are None: normal in what tools write. Text where a number
    belongs is an error.

    Examples
    --------
    >>> row = Fields({"avg_ts": "1,234.5", "n_gen": 128, "request_rate": "inf"}, Source("bench.csv"), 2)
    >>> row.number("avg_ts"), row.number("n_gen"), row.number("request_rate"), row.number("n_depth")
    (1234.5, 128.0, None, None)
    """

    def __init__(self, data: Mapping[str, Any], source: Source, line: int | None = None) -> None:
        self.data, self.source, self.line = data, source, line

    def number(self, key: str) -> float | None:
        """Give a number, or None where there is none or it is not finite."""
        value = self.data.get(key)
        if value is None:
            return None
        if isinstance(value, str):
            return read_number(value, key, self.source.name, self.line)
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.refuse(key, "expected a number")
        try:
            number = float(value)
        except OverflowError:
            return None
        return number if np.isfinite(number) else None

    def need(self, key: str) -> float:
        """Give a number that the format always has."""
        value = self.number(key)
        if value is None:
            self.refuse(key, "expected a number: files of this format have one")
        return value

    def text(self, key: str) -> str | None:
        """Give a text, or None where there is none."""
        value = self.data.get(key)
        if value is not None and not isinstance(value, str):
            self.refuse(key, "expected a text")
        return value or None

    def inside(self, key: str) -> "Fields":
        """Give the object that a key holds; empty where there is none."""
        value = self.data.get(key) or {}
        if not isinstance(value, Mapping):
            self.refuse(key, "expected an object")
        return Fields(value, self.source, self.line)

    def objects(self, key: str) -> list["Fields"]:
        """Give the objects that a list holds; empty where there is none."""
        value = self.data.get(key) or []
        if not isinstance(value, list) or not all(isinstance(one, Mapping) for one in value):
            self.refuse(key, "expected a list of objects")
        return [Fields(one, self.source, self.line) for one in value]

    def numbers(self, key: str) -> list[float]:
        """Give a list of numbers; empty where there is none."""
        value = self.data.get(key) or []
        if not isinstance(value, list) or not all(type(one) in (int, float) for one in value):
            self.refuse(key, "expected a list of numbers")
        try:
            return [float(one) for one in value]
        except OverflowError:
            self.refuse(key, "expected a list of numbers, and one is too large for any")

    def refuse(self, key: str, expected: str) -> NoReturn:
        """Raise the error that names file, line, key and value."""
        shown = textwrap.shorten(repr(self.data.get(key, "missing")), 60, placeholder="...")
        self.source.refuse(f"`{key}` = {shown}: {expected}", self.line)


def read_number(text: str, key: str, file: str, line: int | None) -> float | None:
    """Read a number as people and tools write it, thousands separators included; None for the words for none."""
    written = text.strip().strip('"')
    if written.lower() in _NOTHING:
        return None
    if not _NUMBER.fullmatch(written):
        raise refusal(file, line, f"`{key}` = {text!r}: expected a number")
    number = float(written.replace(",", ""))
    return number if np.isfinite(number) else None
