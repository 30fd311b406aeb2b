"""Nsight Systems, ``nsys export --type sqlite``: kernels summed by name, and the time in which any ran; nanoseconds.

The database is opened read-only, and only tables are asked: nothing that a view or trigger says is executed.
"""

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from typing import Any

from rooflinekit.measurements.formats.format import Format, Item
from rooflinekit.measurements.record import Measurement, Skipped
from rooflinekit.measurements.source import Source
from rooflinekit.units import NANO

_KERNELS, _GRAPHS, _NAMES, _GPUS = (
    "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_GRAPH_TRACE", "StringIds", "TARGET_INFO_GPU",
)  # fmt: skip
_REPORTS = (".nsys-rep", ".qdrep", ".qdstrm")
_SHOWN_TABLES = 5
_TOOL = "nsys"

_SUMS = """
    SELECT {device}, coalesce(s.value, 'kernel ' || {name}), count(*), sum(k."end" - k.start)
    FROM CUPTI_ACTIVITY_KIND_KERNEL AS k LEFT JOIN StringIds AS s ON s.id = {name}
    WHERE k."end" >= k.start GROUP BY 1, 2 ORDER BY 1, 4 DESC, 2
"""
# What a kernel adds to the union: its time after the last end of those that began before it.
_UNION = """
    SELECT device, count(*), sum(max(0, ended - max(start, coalesce(reached, start)))) FROM (
        SELECT {device} AS device, start, "end" AS ended, max("end") OVER (
            PARTITION BY {device} ORDER BY start, "end" ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS reached
        FROM CUPTI_ACTIVITY_KIND_KERNEL AS k WHERE "end" >= start
    ) GROUP BY device ORDER BY device
"""


def _read(source: Source) -> Iterator[Item]:
    if not source.is_sqlite:
        _refuse_what_is_none(source)
    try:
        with _opened(source) as base:
            yield from _items(base, source)
    except (sqlite3.Error, UnicodeDecodeError) as fault:  # SQLite's own messages quote the broken bytes
        source.refuse(f"the SQLite database cannot be read ({fault}): it is cut or broken, export it anew")


def _refuse_what_is_none(source: Source) -> None:
    if source.path.suffix.lower() in _REPORTS:
        advice = f"nsys export --type sqlite {source.path.name}"
        source.refuse(f"is a report of Nsight Systems, which only nsys reads: run `{advice}` and read what it writes")
    source.refuse("is no SQLite database: expected one that `nsys export --type sqlite` wrote")


@contextmanager
def _opened(source: Source) -> Iterator[sqlite3.Connection]:
    """Open it as it lies; what was packed or handed over is held in memory."""
    if source.is_plain_file:
        address = f"{source.path.resolve().as_uri()}?mode=ro&immutable=1"
        base = sqlite3.connect(address, uri=True)
    else:
        base = sqlite3.connect(":memory:")
        base.deserialize(source.content())
    with closing(base):
        base.text_factory = lambda held: held.decode("utf-8", errors="replace")
        base.execute("PRAGMA trusted_schema = OFF")
        base.execute("PRAGMA query_only = ON")
        yield base


def _items(base: sqlite3.Connection, source: Source) -> Iterator[Item]:
    columns = _columns(base, source)
    shape = {
        "device": "k.deviceId" if "deviceId" in columns else "NULL",
        "name": "k.demangledName" if "demangledName" in columns else "k.shortName",
    }
    gpu = _gpu(base)
    busy = list(base.execute(_UNION.format(**shape)))
    several = len(busy) > 1
    yield from _kernels(base.execute(_SUMS.format(**shape)), gpu, several=several)
    yield from _busy(busy, gpu, several=several)
    yield from _graphs(base)


def _kernels(sums: Iterable[tuple[Any, ...]], gpu: str | None, *, several: bool) -> Iterator[Item]:
    for device, name, count, nanoseconds in sums:
        if not nanoseconds:
            yield Skipped("kernel whose launches have no time")
            continue
        yield Measurement(
            quantity="kernel_time_s", value=nanoseconds * NANO, statistic="total", name=str(name), count=count,
            device=gpu, includes=_includes("summed over streams", device, several=several), tool=_TOOL,
        )  # fmt: skip


def _busy(unions: Iterable[tuple[Any, ...]], gpu: str | None, *, several: bool) -> Iterator[Item]:
    for device, count, nanoseconds in unions:
        if nanoseconds:
            yield Measurement(
                quantity="gpu_busy_s", value=nanoseconds * NANO, count=count, device=gpu, tool=_TOOL,
                includes=_includes("kernels; no copies", device, several=several),
            )  # fmt: skip


def _columns(base: sqlite3.Connection, source: Source) -> set[str]:
    """Give the columns of the kernels' table, or say what the database is instead."""
    tables = _tables(base)
    if _NAMES not in tables:
        held = ", ".join(sorted(tables)[:_SHOWN_TABLES]) or "no table"
        source.refuse(f"is an SQLite database of another program (it holds {held}): expected an export of nsys")
    if _KERNELS not in tables:
        source.refuse(f"holds no kernels (no table {_KERNELS}): profile with `nsys profile -t cuda`")
    columns = _columns_of(base, _KERNELS)
    if not {"start", "end"} <= columns or not {"demangledName", "shortName"} & columns:
        source.refuse(f"{_KERNELS} lacks start, end or the kernels' names: export it with a newer nsys")
    return columns


def _tables(base: sqlite3.Connection) -> set[str]:
    return {row[0] for row in base.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}


def _columns_of(base: sqlite3.Connection, table: str) -> set[str]:
    return {row[0] for row in base.execute("SELECT name FROM pragma_table_info(?)", (table,))}


def _gpu(base: sqlite3.Connection) -> str | None:
    """Name the GPU where all of the machine are of one name: the export numbers them in two ways."""
    if _GPUS not in _tables(base) or "name" not in _columns_of(base, _GPUS):
        return None
    names = {row[0] for row in base.execute(f"SELECT DISTINCT name FROM {_GPUS}")}  # noqa: S608 - a constant
    return str(names.pop()) if len(names) == 1 else None


def _includes(what: str, device: int | None, *, several: bool) -> str:
    return f"GPU {device}: {what}" if several else what


def _graphs(base: sqlite3.Connection) -> Iterator[Item]:
    """Count graph launches that were traced as a whole: their kernels are in no sum."""
    if _GRAPHS in _tables(base):
        (launches,) = base.execute(f"SELECT count(*) FROM {_GRAPHS}").fetchone()  # noqa: S608 - a constant
        for _ in range(launches):
            yield Skipped("CUDA graph traced as a whole, its kernels are in no sum: use --cuda-graph-trace=node")


FORMAT = Format(
    "nsys-sqlite",
    "SQLite export of Nsight Systems (nsys export)",
    matches=lambda source: source.is_sqlite or source.path.suffix.lower() in _REPORTS,
    read=_read,
)
