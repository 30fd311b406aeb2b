"""Whatever a file holds, a reader gives records or one clear line: every file of every format, broken in all ways."""

import gzip
import json
import math
import re
import sqlite3
from contextlib import closing
from dataclasses import fields
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rooflinekit.errors import RooflinekitError
from rooflinekit.measurements import Measurement, read
from rooflinekit.measurements.formats import FORMATS, torch_trace

FOLDER = Path(__file__).parent / "files"
NAME = "broken.json"
_KERNELS = """
PRAGMA page_size = 512;
CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER, demangledName INTEGER);
INSERT INTO StringIds VALUES (1, 'gemm'), (2, 'softmax');
INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (1000, 2000, 0, 1), (1600, 3000, 0, 2), (5000, 5500, 0, 1);
"""


def _sqlite():
    with closing(sqlite3.connect(":memory:")) as base:
        base.executescript(_KERNELS)
        return base.serialize()


# By format, so that each is drawn as often as any other.
WHOLE = {
    **{folder.name: [path.read_bytes() for path in sorted(folder.iterdir())] for folder in sorted(FOLDER.iterdir())},
    "sqlite": [_sqlite()],
    "curl": [b"time_pretransfer: 0.01\ntime_starttransfer: 0.21\ntime_total: 1.2\n"],
    "vllm_offline": [
        b"Namespace(model='m', input_len=32, output_len=128, batch_size=8)\nAvg latency: 0.5 seconds\n",
        b"Throughput: 2.00 requests/s, 9.50 total tokens/s, 6.25 output tokens/s\nTotal num prompt tokens:  8\n",
    ],
}
ALL = tuple(sorted(WHOLE))
NUMBERS = (
    "-1", "0", "-0.0", "1e999", "-1e999", "1e308", "-3.5e307", "1e-320", "9" * 400, "7" * 5000, "9223372036854775808",
    "1,234,5", "1_000", "0x10", "1e", ".", "-", "NaN", "Infinity", "-Infinity", "inf", "null", "true", '""',
    '"7"', '"inf"', "[]", "{}", "[1, -2]", '{"a": 1}', '"\\ud800"', "\u0663", "\u00bd", "\u00b2", "12 GB", "1.5ms", "",
)  # fmt: skip
VALUES = (
    None, True, False, -1, 0, 10**400, -(10**30), 1e308, math.inf, -math.inf, math.nan, "", "x", "-5", "inf", "\ud800",
    [], {}, [None], [-1.0, math.nan], [[]], [{}], {"mean": "x"}, {"successful": {"mean": -1}}, "x" * 5000,
)  # fmt: skip
DIGITS = re.compile(rb"\d+(?:\.\d+)?")


# ---- ways to break a file; each takes bytes, and draws where


def cut(held, draw):
    """End it anywhere."""
    return held[: draw(st.integers(0, len(held)))]


def flip(held, draw):
    """Change single bytes."""
    changed = bytearray(held or b" ")
    for _ in range(draw(st.integers(1, 8))):
        changed[draw(st.integers(0, len(changed) - 1))] = draw(st.integers(0, 255))
    return bytes(changed)


def lines(held, draw):
    """Drop, double, move or join lines."""
    rows = held.split(b"\n")
    at, to = (draw(st.integers(0, len(rows) - 1)) for _ in range(2))
    how = draw(st.sampled_from(("drop", "double", "move", "join", "empty")))
    row = rows.pop(at)
    rows[to:to] = {"drop": [], "double": [row, row], "move": [row], "join": [row + row], "empty": [b"", row]}[how]
    return b"\n".join(rows)


def number(held, draw):
    """Write something else in place of a number."""
    places = list(DIGITS.finditer(held))
    if not places:
        return held
    place = draw(st.sampled_from(places))
    return held[: place.start()] + draw(st.sampled_from(NUMBERS)).encode() + held[place.end() :]


def value(held, draw):
    """Put another type of value anywhere in a JSON document, or in the line of one."""
    if held.count(b"[") + held.count(b"{") > 3_000:  # what is nested() already depends on the depth of the stack
        return held
    rows = held.split(b"\n")
    at = draw(st.integers(0, len(rows) - 1))
    for start, text in ((None, held), (at, rows[at])):
        try:
            document = json.loads(text)
        except ValueError:
            continue
        changed = json.dumps(_replaced(document, draw)).encode()
        return changed if start is None else b"\n".join([*rows[:at], changed, *rows[at + 1 :]])
    return held


def _replaced(document, draw):
    """Walk down some steps, and replace, drop or rename what lies there."""
    keys = list(document) if isinstance(document, dict) else range(len(document)) if isinstance(document, list) else []
    if not len(keys) or draw(st.integers(0, 5)) == 0:
        return draw(st.sampled_from(VALUES))
    key = draw(st.sampled_from(keys))
    if isinstance(document, dict) and draw(st.integers(0, 9)) == 0:
        document.pop(key)
    else:
        document[key] = _replaced(document[key], draw)
    return document


def encoding(held, draw):
    """Write it in another encoding, or with marks that do not belong there."""
    text = held.decode("utf-8", errors="replace")
    return draw(
        st.sampled_from((
            text.encode("utf-16"), text.encode("utf-16-le"), text.encode("utf-16-be"), b"\xfe\xff" + held,
            b"\xff\xfe" + held, b"\xef\xbb\xbf" + held, text.encode("utf-32"),
            ("\u00e9" + text).encode("latin-1", "replace"),
            held.replace(b"\n", b"\r\n"), held.replace(b"\n", b"\r"), held.replace(b"\n", b"\n\0"),
            held.replace(b" ", "\u00a0".encode()), b"\x1b[32m" + held.replace(b"\n", b"\x1b[0m\n\x1b[1;31m"),
            held.replace(b"\n", b"\n[0;36m(Worker)[0m "), held.replace(b".", b","), held.replace(b'"', b"'"),
        ))
    )  # fmt: skip


def packed(held, draw):
    """Pack it, twice, cut, or with a bomb inside."""
    whole = gzip.compress(held, 1, mtime=0)  # the time would make each draw another
    return draw(
        st.sampled_from((
            whole, gzip.compress(whole, mtime=0), whole[: len(whole) // 2], whole + b"more", whole + whole,
            b"\x1f\x8b" + held, whole[:-4] + b"\0\0\0\0",
        ))
    )  # fmt: skip


def joined(held, draw):
    """Put two files into one."""
    other = draw(st.sampled_from(WHOLE[draw(st.sampled_from(sorted(WHOLE)))]))
    return held + draw(st.sampled_from((b"", b"\n", b",", b"\n\n", b" "))) + other


def nested(held, draw):
    """Nest values as deep as no reader goes, at the start or in place of a number."""
    deep = draw(st.sampled_from((b"[" * 50_000, b'{"a":' * 20_000, b"[" * 300 + b"]" * 300, b"(" * 5_000, b"{" * 999)))
    places = [0, *(found.start() for found in DIGITS.finditer(held))]
    at = draw(st.sampled_from(places))
    return held[:at] + deep + held[at:]


WAYS = (cut, flip, lines, number, number, value, value, value, encoding, packed, joined, nested)


class Broken(bytes):
    """A broken file, of which a failure shows the beginning."""

    def __repr__(self):
        """Show no more than a screen of it."""
        return f"<{len(self)} bytes: {bytes(self[:1500])!r}>"


@st.composite
def broken_files(draw, formats=ALL):
    """Draw a format, a file of it, and one to three ways to break it."""
    held = draw(st.sampled_from(WHOLE[draw(st.sampled_from(formats))]))
    for way in draw(st.lists(st.sampled_from(WAYS), min_size=1, max_size=3)):
        held = way(held, draw)
    return Broken(held)


# ---- what must hold

COUNTED = [
    one.name
    for one in fields(Measurement)
    if one.type in ("float", "float | None", "int | None") and one.name != "line"
]


def refusal(content, **choices):
    """Read it: None where there are records, all of them sound, else the message."""
    try:
        reading = read(NAME, content=content, **choices)
    except RooflinekitError as fault:
        return str(fault)
    assert len(reading)
    for record in reading.records:
        sizes = [size for name in COUNTED if (size := getattr(record, name)) is not None]
        assert all(math.isfinite(size) and size >= 0 for size in sizes), record
        assert record.line is None or record.line > 0
        assert record.file == NAME
    return None


def check(content, **choices):
    """Check that a refusal is one line that names the file, and not a page of what it holds."""
    message = refusal(content, **choices)
    if message is not None:
        shown = f"{len(message)} letters: {message[:300]!r}"
        assert message.startswith(NAME), shown
        assert message.isprintable(), shown
        assert len(message) < 800, shown


@given(broken_files())
@settings(max_examples=400)
def test_a_broken_file_gives_records_or_one_line(content):
    """Records with finite values that are not negative, or one error that names the file; nothing else."""
    check(content)


@pytest.mark.slow
@given(broken_files())
@settings(max_examples=20_000)
def test_many_broken_files_give_records_or_one_line(content):
    """As above, for long."""
    check(content)


@pytest.mark.slow
@given(broken_files(), st.sampled_from([one.name for one in FORMATS]))
@settings(max_examples=10_000)
def test_a_file_of_another_format_gives_records_or_one_line(content, name):
    """As above, where the user names a format that the file may not be of."""
    check(content, format=name)


@given(broken_files(("torch_trace",)))
@settings(max_examples=60)
def test_a_broken_trace_that_is_streamed_gives_records_or_one_line(content):
    """As above, for the parser of traces that are too large to be held."""
    with patch.object(torch_trace, "_SMALL_BYTES", 0):
        check(content, format="torch-trace")


@pytest.mark.slow
@given(broken_files(("torch_trace",)))
@settings(max_examples=4_000)
def test_many_broken_traces_that_are_streamed_give_records_or_one_line(content):
    """As above, for long."""
    with patch.object(torch_trace, "_SMALL_BYTES", 0):
        check(content, format="torch-trace")


@pytest.mark.parametrize(
    "content", [b"", b" \n\t ", b"\0" * 100, b"[]", b"{}", b"[{}]", b"null", b"\xff\xfe", b"\x1f\x8b"]
)
def test_nothing_to_read_is_one_line(content):
    """An empty file, empty JSON, a mark without a text, the first bytes of a packed file."""
    assert refusal(content).startswith(NAME)
    check(content)
