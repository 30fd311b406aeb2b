"""Nsight Systems, ``nsys stats``: the kernel summary as text, CSV, TSV or JSON; a total is summed over all streams.

The unit stands in the header, or in the title of 2020's tables; a file may hold several tables and other reports.
"""

import csv
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import NoReturn

from rooflinekit.measurements.fields import Fields
from rooflinekit.measurements.formats.format import Format, Item
from rooflinekit.measurements.record import Measurement, Skipped
from rooflinekit.measurements.source import Source
from rooflinekit.units import MICRO, MILLI, NANO

_UNITS = {
    "ns": NANO, "nsec": NANO, "nanoseconds": NANO, "us": MICRO, "usec": MICRO, "microseconds": MICRO,
    "\u00b5s": MICRO, "\u03bcs": MICRO, "ms": MILLI, "msec": MILLI, "milliseconds": MILLI,
    "s": 1.0, "sec": 1.0, "seconds": 1.0,
}  # fmt: skip
_HEADER = re.compile(r"[\"|\u2502\s]*(?:Time ?\(%\)|Total(?: Time)?\b).*\bTotal(?: Time)?\b.*\bInstances\b.*\bName\b")
_JSON = re.compile(r'"Total Time[^"]*"\s*:[^{}]*"Instances"\s*:[^{}]*"Name"\s*:')
_OTHER = re.compile(r"[\"|\u2502\s]*(?:Time ?\(%\)|Total Time \(\w+\))\W")
_NO_KERNELS = "does not contain CUDA kernel data"
_UNIT = re.compile(r"\(([^%\d)]+)\)")
_VERSION = re.compile(r"nsight-systems[/\\](\d[\d.]*\d)")
#: Lines that name the report's file, or a command: no title, and a path may be in them.
_NO_TITLE = re.compile(r"(?:Processing|Generating|Exporting|Using|SKIPPED|\$|#)|[/\\]\S+[/\\]|^[^\w*]+$")
_NUMBER = re.compile(r"[-+]?[\d.,]+%?")
_PLAIN, _PERCENT = re.compile(r"\d+\.?\d*"), 0.01
_ELLIPSIS = re.compile(r"[.\u2026\[\]\s]+")
#: What `nsys profile --stats=true` prints before each report.
_STEP = re.compile(r"\s*\[\d+/\d+\]")
_RULE = frozenset("-+=|: \u2500\u253c\u251c\u2524\u2502\u250c\u2510\u2514\u2518\u252c\u2534")


@dataclass
class _Table:
    """Where the columns are, and what the lines above the table say."""

    columns: list[str]
    style: str
    title: str
    version: str | None
    after_gap: bool = False
    rows_ended: bool = False

    @property
    def total(self) -> str:
        return next(one for one in self.columns if one.startswith("Total"))

    @property
    def average(self) -> str:
        return next((one for one in self.columns if one.startswith(("Avg", "Average"))), "")


def _read(source: Source) -> Iterator[Item]:
    if _is_json(source.head):
        yield from _json(source)
        return
    table: _Table | None = None
    title, version, seen = "", None, set[str]()
    for number, text in source.lines():
        version = found[1] if (found := _VERSION.search(text)) else version
        if _HEADER.match(text):
            title = _told_apart(title, seen)
            table = _opened(text, title, version)
        elif _OTHER.match(text):
            table = None
            yield Skipped("table of another report: only the kernel summary is read", number)
        elif _NO_KERNELS in text:
            yield Skipped("report without CUDA kernels: profile with `nsys profile -t cuda`", number)
        elif table and (cells := _row(table, text, source, number)):
            title = ""
            yield _item(dict(zip(table.columns, cells, strict=True)), table, source, number)
            continue
        title = text.strip(" *:\t") if text.strip() and not _NO_TITLE.search(text.strip()) else title


def _told_apart(title: str, seen: set[str]) -> str:
    """Give the title, numbered where the file had it before."""
    numbered, number = title, 1
    while numbered in seen:
        number += 1
        numbered = f"{title} (table {number})"
    seen.add(numbered)
    return numbered


def _opened(header: str, title: str, version: str | None) -> _Table:
    style = "text"
    if header.lstrip().startswith(("|", "\u2502")):
        style = header.lstrip()[0]
    elif "\t" in header.strip():
        style = "\t"
    elif "," in header:
        style = ","
    return _Table(_cells(header, style), style, title, version)


def _cells(text: str, style: str, columns: int = 0) -> list[str]:
    """Split a line; only the last column, the name, may hold what splits the others."""
    if style == ",":
        return [cell.strip() for cell in next(csv.reader([text]))]
    if style == "text":
        parts = text.split(maxsplit=columns - 1) if columns else re.split(r"\s{2,}", text.strip())
    else:
        parts = text.strip().strip(style if style != "\t" else " ").split(style, columns - 1 if columns else -1)
    return [cell.strip().strip('"') for cell in parts]


def _row(table: _Table, text: str, source: Source, number: int) -> list[str]:
    """Give the cells of a row; empty where the line is none: rules, empty lines, text under the table."""
    line = text.strip()
    if set(line) <= _RULE or table.rows_ended or _ELLIPSIS.fullmatch(line):
        table.after_gap = not line
        return []
    cells = _grid_joined(_cells(line, table.style, _parts(table.columns)), table.columns)
    fits, is_number = len(cells) == len(table.columns), bool(_NUMBER.fullmatch(cells[0]))
    looks_like_one = is_number or len(_cells(line, table.style)) >= len(table.columns) - 1
    if not looks_like_one or (table.after_gap and not (fits and all(_NUMBER.fullmatch(one) for one in cells[:2]))):
        table.rows_ended = True
        return []
    if not is_number:
        _refuse(source, number, f"`{table.columns[0]}` = {cells[0]!r}: expected a number")
    if not fits:
        _refuse(
            source, number, f"row of {len(cells)} cells: expected {len(table.columns)} ({', '.join(table.columns)})"
        )
    return cells


def _parts(columns: list[str]) -> int:
    """Count the words of a text row: a grid or block is three numbers."""
    return sum(3 if one.endswith("XYZ") else 1 for one in columns)


def _grid_joined(cells: list[str], columns: list[str]) -> list[str]:
    if len(cells) == len(columns) or len(cells) != _parts(columns):
        return cells
    left = iter(cells)
    return [" ".join(next(left) for _ in range(3 if one.endswith("XYZ") else 1)) for one in columns]


def _item(row: Mapping[str, object], table: _Table, source: Source, number: int | None, place: str = "") -> Item:
    """Give the record of a row, whose total must be instances times average."""
    fields = Fields(row, source, number)
    total, instances = fields.need(table.total), fields.need("Instances")
    if total < 0 or instances < 0:
        _refuse(source, number, f"{place}`{table.total}` = {row[table.total]}: expected no negative number")
    if not total or not instances:
        return Skipped("kernel without launches or time", number)
    average = fields.number(table.average)
    if average is not None:
        rounding = instances * _last_digit(row[table.average]) + _last_digit(row[table.total])
        if abs(total - instances * average) > rounding + 1e-9 * total:
            shown = f"`{table.total}` = {row[table.total]} is not `Instances` x `{table.average}`"
            _refuse(source, number, f"{place}{shown} = {instances:g} x {average:g}: a row is broken or columns moved")
    scale = _scale(table, source, number)
    where = f"{table.title}: " if table.title else ""
    return Measurement(
        quantity="kernel_time_s", value=total * scale, statistic="total", name=fields.text("Name") or "",
        count=instances, share=_share(row), includes=f"{where}summed over streams", tool="nsys",
        version=table.version, line=number,
    )  # fmt: skip


def _share(row: Mapping[str, object]) -> float | None:
    """Give the part of all kernels' time; no number is refused for it, since the total says it better."""
    written = str(next((row[one] for one in row if one.startswith("Time")), "")).strip(' %"')
    return float(written) * _PERCENT if _PLAIN.fullmatch(written) else None


def _last_digit(written: object) -> float:
    """Give what one step of the last written digit is worth."""
    exponent = Decimal(str(written).replace(",", "").strip('" ')).as_tuple().exponent
    return 10.0**exponent if isinstance(exponent, int) else 0.0


def _scale(table: _Table, source: Source, number: int | None) -> float:
    """Give the unit of the total: from its header, else from the title; nsys writes nanoseconds where neither says."""
    found = _UNIT.search(table.total)
    if found:
        if found[1].strip() not in _UNITS:
            _refuse(source, number, f"unit of `{table.total}`: expected one of ns, us, ms, s")
        return _UNITS[found[1].strip()]
    return next((_UNITS[one] for one in _UNIT.findall(table.title) if one in _UNITS), NANO)


def _refuse(source: Source, number: int | None, what: str) -> NoReturn:
    source.refuse(f"kernel summary of nsys: {what}", number)


def _is_json(head: str) -> bool:
    return bool(_JSON.search(head))


def _json(source: Source) -> Iterator[Item]:
    """Read lists of objects; lines before and between them (names of files, titles) are blanked, so that lines stay."""
    version = found[1] if (found := _VERSION.search(source.head)) else None
    kept = "\n".join("" if _is_preamble(line) else line for line in source.text().split("\n"))
    for index, (number, row) in enumerate(Source(source.name, kept.encode()).objects(), 1):
        if "Instances" not in row or "Name" not in row or not any(one.startswith("Total") for one in row):
            yield Skipped("row of another report: only the kernel summary is read", number)
            continue
        numbers = {key: json.dumps(value) if type(value) in (int, float) else value for key, value in row.items()}
        yield _item(numbers, _Table(list(row), "json", "", version), source, number, f"row {index}: ")


def _is_preamble(line: str) -> bool:
    return line.lstrip()[:1] not in set('[]{}",') or bool(_STEP.match(line))


FORMAT = Format(
    "nsys-summary",
    "kernel summary of Nsight Systems (nsys stats)",
    matches=lambda source: (
        any(_HEADER.match(line) or _NO_KERNELS in line for line in source.head.splitlines()) or _is_json(source.head)
    ),
    read=_read,
)
