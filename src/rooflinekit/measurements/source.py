"""Source: a file as readers see it: unpacked, decoded, without colours, within bounds. Nothing in it is executed."""

import csv
import gzip
import io
import json
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import IO, Any, NoReturn, cast

from rooflinekit import units
from rooflinekit.errors import InvalidInputError
from rooflinekit.measurements.record import refusal

#: What is looked at to tell a format.
_HEAD_BYTES = 1 << 16
#: A packed file may hold so much, and so many times its own size: more is a bomb, or needs unpacking by hand.
MOST_UNPACKED_BYTES = 4 * int(units.GIB)
MOST_UNPACKED_RATIO = 200.0
#: A file that must be held whole; larger ones are streamed by readers that can.
MOST_WHOLE_BYTES = int(units.GIB)
#: A single line longer than this is no log.
MOST_LINE_BYTES = 256 * int(units.MIB)
_COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]|(?<![\w\]])\[(?:\d{1,3};)*\d{1,3}m")
_LOST = re.compile(r"\[\d{1,3}[;m]")
_ENCODINGS = ((b"\xef\xbb\xbf", "utf-8-sig"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"))
#: What stands for a byte that could not be decoded.
_ESCAPED = re.compile("[\udc80-\udcff]")
#: How JSON begins; a log may begin with a bracket too: `[2026-02-26 10:25:20]`, `[info]`.
_JSON = re.compile(r"[\ufeff\s]*(?:\{|\[\s*(?:[\[{\]]|\Z))")
_GZIP, _SQLITE = b"\x1f\x8b", b"SQLite format 3\0"


class Source:
    """
    A file of measurements.

    Parameters
    ----------
    path : path
        The file; gzip is unpacked on the way, within bounds.
    content : bytes, optional
        What it holds, where that was read already (standard input).
    """

    def __init__(self, path: str | Path, content: bytes | None = None) -> None:
        self.path = Path(path)
        self._content = content
        self.name = str(path)

    # ---- bytes

    @contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        """Open it for reading bytes, unpacked; more than the bounds is one clear error."""
        with self._raw() as raw:
            packed = raw.read(2) == _GZIP
            raw.seek(0)
            if not packed:
                yield raw
                return
            size = raw.seek(0, io.SEEK_END)
            raw.seek(0)
            try:
                yield cast("IO[bytes]", io.BufferedReader(_Bounded(gzip.GzipFile(fileobj=raw), size, self.name)))
            except (EOFError, zlib.error, gzip.BadGzipFile) as fault:
                self.refuse(f"the gzip stream is broken ({fault}): pack the file anew")

    def _raw(self) -> IO[bytes]:
        return self.path.open("rb") if self._content is None else io.BytesIO(self._content)

    @cached_property
    def head_bytes(self) -> bytes:
        """First bytes, unpacked."""
        with self.open() as stream:
            return stream.read(_HEAD_BYTES)

    def content(self) -> bytes:
        """Give the bytes whole, unpacked."""
        with self.open() as stream:
            held = stream.read(MOST_WHOLE_BYTES + 1)
        if len(held) > MOST_WHOLE_BYTES:
            self.refuse(f"holds more than {MOST_WHOLE_BYTES / units.GIB:.0f} GiB: split it")
        return held

    @property
    def is_plain_file(self) -> bool:
        """Whether another program can read it as it lies: neither packed nor handed over."""
        if self._content is not None:
            return False
        with self._raw() as raw:
            return raw.read(2) != _GZIP

    @property
    def is_sqlite(self) -> bool:
        """Whether it is an SQLite database."""
        return self.head_bytes.startswith(_SQLITE)

    # ---- text

    @cached_property
    def encoding(self) -> str:
        """UTF-8, or what a byte order mark says."""
        return next((name for mark, name in _ENCODINGS if self.head_bytes.startswith(mark)), "utf-8")

    @cached_property
    def head(self) -> str:
        """First text, without colours; empty where the file holds none."""
        if self.is_sqlite or (self.encoding != "utf-16" and b"\0" in self.head_bytes):
            return ""
        return without_colours(self.head_bytes.decode(self.encoding, errors="ignore"))

    @property
    def is_json(self) -> bool:
        """Whether it begins as objects of JSON do, or a list of them."""
        return bool(_JSON.match(self.head))

    def lines(self) -> Iterator[tuple[int, str]]:
        """Yield the lines with their numbers, one at a time, without colours and line ends."""
        number = 0
        try:
            for number, line in self._decoded("strict"):
                yield number, without_colours(line.rstrip("\r\n"))
        except UnicodeDecodeError as fault:
            self.refuse(_not_text(fault), self._undecodable() or number + 1)

    def _decoded(self, errors: str) -> Iterator[tuple[int, str]]:
        with self.open() as stream:
            text = io.TextIOWrapper(stream, encoding=self.encoding, errors=errors, newline=None)
            number = 0
            while line := text.readline(MOST_LINE_BYTES):
                number += 1
                if len(line) == MOST_LINE_BYTES and not line.endswith("\n"):
                    self.refuse(f"has a line of more than {MOST_LINE_BYTES / units.MIB:.0f} MiB: it is no log", number)
                yield number, line

    def _undecodable(self) -> int | None:
        """Find the line that is no text: decoding reads ahead of the line at which it fails."""
        lines = self._decoded("surrogateescape")
        try:
            return next((number for number, line in lines if _ESCAPED.search(line)), None)
        except UnicodeDecodeError:  # half a letter of two bytes cannot be escaped
            return None

    def text(self) -> str:
        """Give it whole, decoded; colours stay, since JSON may hold them."""
        held = self.content()
        try:
            return held.decode(self.encoding)
        except UnicodeDecodeError as fault:
            self.refuse(_not_text(fault), held[: fault.start].count(b"\n") + 1)

    # ---- JSON and CSV

    def objects(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield JSON objects with their lines: one, several one after another (a line each or not), or a list of them.

        Bare ``Infinity`` and ``NaN`` are read: some tools write them.
        """
        text = self.text()
        decoder, at, listed = json.JSONDecoder(), _next(text, 0), False
        line, counted = 1, 0
        while at < len(text):
            line, counted = line + text.count("\n", counted, at), at
            if text[at] == ("]" if listed else "["):
                at, listed = _next(text, at + 1), not listed
                continue
            try:
                found, end = decoder.raw_decode(text, at)
                at = _after(text, end, listed=listed)
            except (ValueError, RecursionError) as fault:
                self._refuse_json(text, fault, line)
            if not isinstance(found, dict):
                self.refuse(f"holds {type(found).__name__} where a JSON object was expected", line)
            yield line, found
        if listed:
            self._refuse_json(text, json.JSONDecodeError("Expecting ',' delimiter", text, len(text)), line)

    def _refuse_json(self, text: str, fault: Exception, line: int) -> NoReturn:
        if not isinstance(fault, json.JSONDecodeError):
            self.refuse("is no JSON that can be read: nested too deep, or a number too long", line)
        ended = fault.msg.startswith("Unterminated string") or not set("]}").intersection(text[fault.pos :])
        reason = "JSON ends in the middle: the file is cut" if ended else f"no JSON ({fault.msg}, column {fault.colno})"
        self.refuse(f"{reason}; write it anew", fault.lineno)

    def rows(self, header: int = 1) -> Iterator[tuple[int, list[str]]]:
        """Yield the rows of a CSV table with their lines, from line `header` on."""
        kept = (f"{line}\n" for number, line in self.lines() if number >= header)
        table = csv.reader(kept)
        try:
            for row in table:
                yield table.line_num + header - 1, row
        except csv.Error as fault:
            self.refuse(f"no CSV ({fault})", table.line_num + header - 1)

    def refuse(self, what: str, line: int | None = None) -> NoReturn:
        """Raise the error that names the file and line."""
        raise refusal(self.name, line, what) from None


class _Bounded(io.RawIOBase):
    """An unpacked stream that ends with an error where it holds more than a file of its size should."""

    def __init__(self, stream: gzip.GzipFile, packed_bytes: int, name: str) -> None:
        self._stream, self._name, self._read_bytes = stream, name, 0
        self._most = min(MOST_UNPACKED_BYTES, max(packed_bytes * MOST_UNPACKED_RATIO, 64 * units.MIB))

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 - typeshed calls it a buffer, which Python 3.11 has no name for
        held = self._stream.read(len(buffer))
        self._read_bytes += len(held)
        if self._read_bytes > self._most:
            message = f"{self._name}: unpacks to more than {self._most / units.MIB:,.0f} MiB: unpack it and look first"
            raise InvalidInputError(message)
        buffer[: len(held)] = held
        return len(held)


def without_colours(line: str) -> str:
    r"""Take terminal colours out, and those that lost their escape byte on the way.

    >>> without_colours("\x1b[0;36m(Worker)\x1b[0m INFO"), without_colours("[0;36m(Worker)[0m INFO")
    ('(Worker) INFO', '(Worker) INFO')
    """
    coloured = "[" in line and ("\x1b" in line or _LOST.search(line))  # a tenth of the time of looking at each place
    return _COLOURS.sub("", line) if coloured else line


def _next(text: str, at: int) -> int:
    """Give where the next thing that is no space, comma of a list or byte order mark begins."""
    while at < len(text) and text[at] in " \t\r\n\ufeff\x1e":
        at += 1
    return at


def _after(text: str, end: int, *, listed: bool) -> int:
    """Give where the object after this one begins; those of a list have a comma between them."""
    at = _next(text, end)
    if not listed or at == len(text) or text[at] == "]":
        return at
    if text[at] != ",":
        message = "Expecting ',' delimiter"
        raise json.JSONDecodeError(message, text, at)
    return _next(text, at + 1)


def _not_text(fault: UnicodeDecodeError) -> str:
    byte = fault.object[fault.start]
    return f"is no {fault.encoding} text (byte 0x{byte:02x}): expected UTF-8, convert it with `iconv -t utf-8`"
