"""curl's ``-w`` timings of one streamed request: TTFT is the first byte less the set-up of the connection.

Seconds since the start: ``time_pretransfer`` when the request may be sent, ``time_starttransfer`` at the first byte.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from rooflinekit.measurements.formats.format import Format, Item
from rooflinekit.measurements.record import Measurement, Skipped
from rooflinekit.measurements.source import Source

_NAMES = (
    ("pretransfer", r"(?:time_)?pre_?transfer"),
    ("first_byte", r"(?:time_)?start_?transfer|(?:time_to_)?first[_ ]byte|ttfb"),
    ("total", r"time_total|total(?:_time)?(?=[\"']?\s*[:=])"),
)
_TIME = re.compile(
    r"(?<![\w%{])(?:" + "|".join(f"(?P<{name}>{pattern})" for name, pattern in _NAMES) + r")[\"']?\s*[:=]?\s*"
    r"(?P<value>\d+[.,]?\d*)(?P<unit>[a-z]*)",
    re.IGNORECASE,
)


class _Time(NamedTuple):
    seconds: float
    line: int


def _read(source: Source) -> Iterator[Item]:
    """Collect the times of a run: a name that comes again begins the next."""
    run: dict[str, _Time] = {}
    for number, text in source.lines():
        for found in _TIME.finditer(text):
            name = str(found.lastgroup and next(one for one, _ in _NAMES if found[one]))
            if name in run:
                yield from _items(run, source)
                run = {}
            run[name] = _Time(_seconds(found, source, number), number)
    yield from _items(run, source)


def _seconds(found: re.Match[str], source: Source, number: int) -> float:
    if found["unit"].lower() not in ("", "s"):
        source.refuse(f"`{found[0]}`: expected seconds, as curl prints them", number)
    return float(found["value"].replace(",", "."))  # curl has no thousands separators: a comma is a locale's point


def _items(run: dict[str, _Time], source: Source) -> Iterator[Item]:
    if not run:
        return
    if "first_byte" not in run or not run["first_byte"].seconds:
        yield Skipped(
            "request without a first byte: it failed, or its time is not printed", next(iter(run.values())).line
        )
        return
    start = run["pretransfer"].seconds if "pretransfer" in run else 0.0
    includes = (
        "first byte less pretransfer" if "pretransfer" in run else "connection set-up is in it: no pretransfer time"
    )
    for name, quantity in (("first_byte", "time_to_first_token_s"), ("total", "end_to_end_s")):
        if name not in run:
            continue
        if run[name].seconds <= start:
            source.refuse(f"{name} {run[name].seconds:g} s is not after pretransfer {start:g} s", run[name].line)
        yield Measurement(
            quantity=quantity, value=run[name].seconds - start, phase="request", tool="curl", line=run[name].line,
            includes=includes if name == "first_byte" else includes.replace("first byte", "total"),
        )  # fmt: skip


FORMAT = Format(
    "curl-timing",
    "timings that curl prints with -w",
    matches=lambda source: any(found["first_byte"] for found in _TIME.finditer(source.head)),
    read=_read,
)
