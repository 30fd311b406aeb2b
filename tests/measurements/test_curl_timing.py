"""curl's timings: the first byte less the set-up of the connection."""

import pytest

from rooflinekit.errors import InvalidInputError
from rooflinekit.measurements import read

FULL = """\
    time_namelookup:  0.004s
   time_pretransfer:  0.005s
 time_starttransfer:  0.345s
         time_total:  1.245s
"""
TTFT, REST = "time_to_first_token_s", "total less pretransfer"
LESS, ALL = "first byte less pretransfer", "connection set-up is in it: no pretransfer time"

# fmt: off
VALUES = [
    # text                                                          quantity, value, includes, line
    ("pretransfer 0.012s  first_byte 0.345s\n",                     [(TTFT, 0.333, LESS, 1)]),
    ("time_pretransfer: 0.01\ntime_starttransfer=0.21\n",           [(TTFT, 0.2, LESS, 2)]),
    ("time_starttransfer=0.21 time_pretransfer=0.01\n",             [(TTFT, 0.2, LESS, 1)]),
    ('{"time_pretransfer":0.01,"time_starttransfer":1,"url":"x"}',  [(TTFT, 0.99, LESS, 1)]),
    ("pretransfer 0,012s  first_byte 0,345s\n",                     [(TTFT, 0.333, LESS, 1)]),
    ("first_byte 0.345s\n",                                         [(TTFT, 0.345, ALL, 1)]),
    ("TTFB: 0.345\n",                                               [(TTFT, 0.345, ALL, 1)]),
    ("v1/x 200 ttfb=0.2 total=3.4\n",            [(TTFT, 0.2, ALL, 1), ("end_to_end_s", 3.4, ALL, 1)]),
    ("TTFB: 0.2\nTotal: 3.4\nTotal 3 files\n",   [(TTFT, 0.2, ALL, 1), ("end_to_end_s", 3.4, ALL, 2)]),
    (FULL,                                       [(TTFT, 0.34, LESS, 3), ("end_to_end_s", 1.24, REST, 4)]),
    ("pretransfer 0.1 first_byte 9.1\npretransfer 0.1 first_byte 0.3\n", [(TTFT, 9.0, LESS, 1), (TTFT, 0.2, LESS, 2)]),
]
# fmt: on


@pytest.mark.parametrize(("text", "expected"), VALUES)
def test_values(text, expected):
    """Each request gives its TTFT, and its whole time where curl printed that."""
    found = [(one.quantity, one.value, one.includes, one.line) for one in read("t", content=text.encode()).records]
    assert found == [(name, pytest.approx(value), includes, line) for name, value, includes, line in expected]


def test_failed_request():
    """A request without a first byte has no TTFT."""
    reading = read("t", content=b"pretransfer 0.1s first_byte 0.3s\npretransfer 0.1s first_byte 0.000s\n")
    assert (len(reading), sum(reading.skipped.values())) == (1, 1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("pretransfer 0.4s first_byte 0.3s\n", r"t, line 1: first_byte 0.3 s is not after pretransfer 0.4 s"),
        ("pretransfer 4ms\nfirst_byte 345ms\n", r"t, line 1: `pretransfer 4ms`: expected seconds"),
        ("first_byte 0.000s\n", r"without a record: 1 x request without a first byte"),
        ("pretransfer %{time_pretransfer}s first_byte %{time_starttransfer}s\n", r"is of no known format"),
    ],
)
def test_what_is_refused(text, message):
    """The message names the line and the times."""
    with pytest.raises(InvalidInputError, match=message):
        read("t", content=text.encode())
