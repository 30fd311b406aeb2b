"""llama-bench's markdown table: rates only, with what the backends print before it and the build after it.

`size` is printed to 0.01 GiB. Columns are there where their parameter is not the default.
"""

import re
from collections.abc import Iterator
from typing import Any

from rooflinekit.measurements.fields import read_number
from rooflinekit.measurements.formats.format import Format, Item
from rooflinekit.measurements.formats.llama_bench import facts_of_test, rate_of, with_spread
from rooflinekit.measurements.formats.llama_names import (
    build_of,
    cache_of,
    device_of,
    file_or_name,
    printed_bytes,
    weights_of,
    without_addresses,
)
from rooflinekit.measurements.record import Measurement, Setting
from rooflinekit.measurements.source import Source
from rooflinekit.units import GIGA, MEGA

_HEADER = re.compile(r"^\s*\|\s*model\s*\|.*\|\s*test\s*\|\s*t/s\s*\|", re.MULTILINE)
_RULE = re.compile(r"^\s*\|[\s:|-]+\|\s*$")
_TEST = re.compile(r"(?:pp ?(\d+))?\+?(?:tg ?(\d+))?(?: ?@ ?d ?(\d+))?")
_RATE = re.compile(r"(\S+)(?:\s*(?:±|\+/?-|\S{1,3}±|\?)\s*(\S+))?")
_BUILD = re.compile(r"^\s*build:\s+([0-9a-f]+)\s+\((\d+)\)")
_PARAMETERS = {"B": GIGA, "M": MEGA}
#: Short names of columns, as the other forms write them.
_LONG = {"backend": "backends", "ngl": "n_gpu_layers", "threads": "n_threads", "sm": "split_mode",
         "nkvo": "no_kv_offload", "fa": "flash_attn", "mmap": "use_mmap", "ncmoe": "n_cpu_moe"}  # fmt: skip
#: Columns that are read into a field of their own; the others are settings or conditions.
_OWN = frozenset({"model", "size", "params", "test", "t/s", "type_k", "type_v"})

_Row = tuple[int, dict[str, str]]


def _read(source: Source) -> Iterator[Item]:
    """Read run by run: its devices, its rows and the build, in this order."""
    names: list[str] = []
    devices: list[str] = []
    rows: list[_Row] = []
    for number, text in source.lines():
        built, device = _BUILD.match(text), device_of(text)
        if (built or device or _HEADER.match(text)) and rows:
            yield from _run(source, rows, devices, build_of(built[2], built[1]) if built else None)
            rows, devices = [], devices if _HEADER.match(text) else []
        if device:
            devices.append(device)
        elif _HEADER.match(text):
            names = _cells(text)
        elif names and text.lstrip().startswith("|") and not _RULE.match(text):
            rows.append((number, _row(source, number, names, _cells(text))))
    yield from _run(source, rows, devices, None)


def _cells(text: str) -> list[str]:
    return [cell.strip() for cell in text.strip().removeprefix("|").removesuffix("|").split("|")]


def _row(source: Source, line: int, names: list[str], cells: list[str]) -> dict[str, str]:
    if len(cells) != len(names):
        source.refuse(
            f"{len(cells)} cells under {len(names)} names: the row is cut or a column was lost; "
            "run llama-bench anew, best with `-o jsonl`",
            line,
        )
    return dict(zip(names, cells, strict=True))


def _run(source: Source, rows: list[_Row], devices: list[str], version: str | None) -> Iterator[Item]:
    others = [name for name in dict.fromkeys(name for _, row in rows for name in row) if name not in _OWN]
    same = {name for name in others if len({row.get(name) for _, row in rows}) == 1}
    for name in (name for name in others if name in same):
        yield Setting(_LONG.get(name, name), rows[0][1][name])
    sizes: set[tuple[str, str]] = set()
    for line, row in rows:
        facts = _facts(row, devices, version, line)
        held = printed_bytes(row.get("size", ""))
        if held and (row["model"], row["size"]) not in sizes:
            sizes.add((row["model"], row["size"]))
            kept = {name: facts[name] for name in ("model", "weights", "version", "line")}
            yield Measurement(
                quantity="weight_bytes", value=held, includes="all tensors of the file; printed to 0.01 GiB",
                tool="llama-bench", engine="llama.cpp", **kept,
            )  # fmt: skip
        said = (name for name in others if name not in same or (name, row[name]) == ("ngl", "0") or name == "ncmoe")
        varying = [f"{_LONG.get(name, name)} {row[name]}" for name in said if name in row]
        yield from _rate(source, row, facts | {"includes": ", ".join(["no tokenising or sampling", *varying])})


def _facts(row: dict[str, str], devices: list[str], version: str | None, line: int) -> dict[str, Any]:
    parameters = re.match(r"(\d+(?:\.\d+)?) ([BM])$", row.get("params", ""))
    count = float(parameters[1]) * _PARAMETERS[parameters[2]] if parameters else None
    return {
        "model": file_or_name(row["model"]),
        "device": without_addresses(", ".join(devices)),
        "weights": weights_of(row["model"], printed_bytes(row.get("size", "")), count),
        "kv_cache": _cache(row),
        "version": version,
        "line": line,
    }


def _cache(row: dict[str, str]) -> str | None:
    """Of two columns, one is left out where it is the default, F16."""
    keys, values = row.get("type_k"), row.get("type_v")
    return cache_of(keys or "f16", values or "f16") if keys or values else None


def _rate(source: Source, row: dict[str, str], facts: dict[str, Any]) -> Iterator[Item]:
    line = facts["line"]
    test, rate = _TEST.fullmatch(row["test"]), _RATE.fullmatch(row["t/s"])
    if not test or not (test[1] or test[2]):
        source.refuse(f"`test` = {row['test']!r}: expected pp512, tg128 or pp512+tg128, @ d1024 or not", line)
    value = read_number(rate[1], "t/s", source.name, line) if rate else None
    if not rate or not value:
        source.refuse(f"`t/s` = {row['t/s']!r}: expected a rate such as 4703.28 ± 12.30", line)
    spread = read_number(rate[2], "t/s", source.name, line) if rate[2] else None
    prompt, steps, depth = (float(part or 0) for part in test.groups())
    yield from with_spread(rate_of(prompt, steps), value, spread, facts_of_test(prompt, steps, depth) | facts)


FORMAT = Format(
    "llama-bench-markdown",
    "llama-bench's markdown table",
    matches=lambda source: bool(_HEADER.search(source.head)),
    read=_read,
)
