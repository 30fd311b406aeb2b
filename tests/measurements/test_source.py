"""Sources: files as they lie, unpacked within bounds, decoded, and every fault with the line that it is in."""

import gzip

import pytest

import rooflinekit as rk
from rooflinekit.errors import InvalidInputError
from rooflinekit.measurements import read, source
from rooflinekit.measurements.record import refusal
from rooflinekit.measurements.source import Source

ROW = '{"n": 1}'


@pytest.mark.parametrize("before", [0, 3, 5000])
@pytest.mark.parametrize("method", ["lines", "text"])
def test_a_byte_that_is_no_text_is_named_with_its_line(before, method):
    """Text is decoded in blocks of 8 KiB, and the line named is still the one that holds the byte."""
    held = Source("a.log", b"a line of a log\n" * before + b"caf\xe9\nmore\n")
    with pytest.raises(InvalidInputError, match=rf"a\.log, line {before + 1}: is no utf-8 text \(byte 0xe9\)"):
        list(getattr(held, method)())


def test_half_a_letter_of_two_bytes():
    """UTF-16 that ends in the middle of a letter is refused as any other."""
    with pytest.raises(InvalidInputError, match=r"a\.log, line \d+: is no utf-16.* text"):
        list(Source("a.log", "one\ntwo".encode("utf-16") + b"\x00").lines())


# fmt: off
OBJECTS = [
    # text                                       lines of the objects
    (ROW,                                        [1]),
    (f"{ROW}\n{ROW}\n\n{ROW}",                   [1, 2, 4]),
    (f"{ROW} {ROW}",                             [1, 1]),
    (f"[\n  {ROW},\n  {ROW}\n]\n",               [2, 3]),
    (f"[{ROW},\n\n{ROW}]\n[\n{ROW}]",            [1, 3, 5]),
    (f"\ufeff[{ROW}]",                           [1]),
    ("[]",                                       []),
    ("\n\n",                                     []),
]
REFUSED = [
    # text                          message
    (f"[{ROW}",                     "line 1: JSON ends in the middle: the file is cut"),
    (f"[\n{ROW},\n",                "line 3: JSON ends in the middle: the file is cut"),
    (f"[\n{ROW}\n{ROW}]",           r"line 3: no JSON \(Expecting ',' delimiter, column 1\)"),
    (f"{ROW},{ROW}",                r"line 1: no JSON \(Expecting value, column 9\)"),
    (f"{ROW}\n]",                   r"line 2: no JSON \(Expecting value, column 1\)"),
    (f"[{ROW},\n[{ROW}]]",          "line 2: holds list where a JSON object was expected"),
    ("\n7",                         "line 2: holds int where a JSON object was expected"),
    ("[" * 100_000,                 "line 1: is no JSON that can be read: nested too deep"),
    ('{"n": ' + "1" * 5000 + "}",   "line 1: is no JSON that can be read: .* a number too long"),
]
# fmt: on


@pytest.mark.parametrize(("text", "lines"), OBJECTS)
def test_objects_have_their_own_lines(text, lines):
    """One, several one after another, or the rows of a list."""
    assert list(Source("a.json", text.encode()).objects()) == [(line, {"n": 1}) for line in lines]


@pytest.mark.parametrize(("text", "message"), REFUSED, ids=[text[:20] for text, _ in REFUSED])
def test_what_is_no_list_of_objects(text, message):
    """The line is that of the fault."""
    with pytest.raises(InvalidInputError, match=rf"^a\.json, {message}"):
        list(Source("a.json", text.encode()).objects())


def test_a_packed_file_may_not_unpack_to_anything():
    """100 MB of zeros pack into 100 kB: more than 64 MiB of so small a file are a bomb, and are never held."""
    bomb = gzip.compress(b"\0" * 100_000_000, 9)
    with pytest.raises(InvalidInputError, match=r"^a\.gz: unpacks to more than 64 MiB: unpack it and look first"):
        Source("a.gz", bomb).content()
    with pytest.raises(InvalidInputError, match=r"^a\.gz: "):
        read("a.gz", content=bomb)


def test_a_line_without_end(monkeypatch):
    """A line longer than any log's is refused, not taken apart."""
    monkeypatch.setattr(source, "MOST_LINE_BYTES", 16)
    assert [line for _, line in Source("a.log", b"0123456789abcde\nmore\n").lines()] == ["0123456789abcde", "more"]
    with pytest.raises(InvalidInputError, match=r"a\.log, line 2: has a line of more than"):
        list(Source("a.log", b"short\n0123456789abcdef0\n").lines())


@pytest.mark.parametrize(
    ("held", "lines"),
    [
        (b"one\r\ntwo\rthree", ["one", "two", "three"]),
        ("\ufeffone".encode(), ["one"]),
        ("one\ntwo".encode("utf-16"), ["one", "two"]),
        (gzip.compress(b"one\ntwo\n"), ["one", "two"]),
        (b"\x1b[0;36m(Worker)\x1b[0m one\n[0;36m(Worker)[0m two", ["(Worker) one", "(Worker) two"]),
    ],
    ids=["line ends", "mark", "UTF-16", "packed", "colours"],
)
def test_lines_as_they_come(held, lines):
    """Windows' and old line ends, a byte order mark, UTF-16, gzip, colours with and without their escape byte."""
    assert [line for _, line in Source("a.log", held).lines()] == lines


def test_a_refusal_is_one_line_that_can_be_printed():
    """Whatever a file holds: control characters are spelt out, and a page of text shows its ends."""
    shown = str(refusal("a.log", 7, "`\x01\nx` = '" + "7" * 5000 + "': expected a number"))
    assert shown.startswith(r"a.log, line 7: `\x01\nx` = '777")
    assert shown.endswith("777': expected a number")
    assert shown.isprintable()
    assert len(shown) < 700


def test_a_record_that_refuses_itself_names_the_file():
    """A duration of 400 digits is no number: the record does not know its file, the reading does."""
    held = b"total duration: " + b"9" * 400 + b"s\neval count: 5 token(s)\n"
    with pytest.raises(InvalidInputError, match=r"^run\.txt: line 1: end_to_end_s = inf: expected a finite value"):
        read("run.txt", content=held)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (ROW, True), (f"\ufeff\n [{ROW}]", True), ("[\n", True), ("[]", True),
        ("[2026-02-26 10:25:20 TP0] Load weight end.", False), ("[invocation 1/3]", False), ("eval time", False),
    ],
)  # fmt: skip
def test_a_log_in_brackets_is_no_json(text, expected):
    """Many tools begin their lines with the time in brackets, as a list of JSON begins."""
    assert Source("a", text.encode()).is_json is expected


@pytest.mark.parametrize("quantity", ["prefill_time_s", "output_tokens_per_s", "requests_per_s"])
def test_times_and_rates_below_nought_are_no_record(quantity):
    """From Python as from a file; nought is a value."""
    with pytest.raises(rk.InvalidInputError, match=f"{quantity} = -1: expected a .* of 0 or more"):
        rk.Measurement(quantity=quantity, value=-1)
    assert rk.Measurement(quantity=quantity, value=0).value == 0


def test_a_file_that_is_not_there(tmp_path):
    """One line of the library's own."""
    path = tmp_path / "nowhere.json"
    with pytest.raises(rk.InvalidInputError, match=r"nowhere.json: cannot be read \(No such file"):
        rk.read(path)
