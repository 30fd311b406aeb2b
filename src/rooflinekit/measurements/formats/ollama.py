"""Ollama: the final message of ``/api/generate`` and ``/api/chat``, and what ``ollama run --verbose`` prints.

The count of output tokens holds the one that the prefill produced; their time does not. Times are in nanoseconds.
"""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from rooflinekit.measurements.fields import Fields, read_number
from rooflinekit.measurements.formats.format import Format, Item
from rooflinekit.measurements.formats.llama_names import file_or_name
from rooflinekit.measurements.record import Measurement, Skipped
from rooflinekit.measurements.source import Source
from rooflinekit.units import MICRO, MILLI, NANO

_TOOL = "ollama"
_JSON = re.compile(
    r'"(?:eval_duration|total_duration)"\s*:\s*\d|"created_at"\s*:\s*"[^{}]{0,400}"(?:response|message|done)"\s*:'
)
_LINE = re.compile(
    r"^[\s>*|`-]*((?:total|load|prompt eval|eval) duration|(?:prompt eval|eval) count|prompt eval cached):\s+(\S+)"
)
_VERBOSE = re.compile(_LINE.pattern, re.MULTILINE)
#: Go writes a duration in parts: 2m27.98s, 452.875µs (with either of the two letters).
_PART = re.compile(r"(\d+(?:\.\d+)?)(h|ms|m|s|us|µs|\u03bcs|ns)")
_PARTS_S = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": MILLI, "us": MICRO, "µs": MICRO, "\u03bcs": MICRO, "ns": NANO}


class _Run(NamedTuple):
    """One request; a counter of 0 is left out by Ollama, so that missing is unknown."""

    line: int
    model: str | None = None
    total_s: float | None = None
    load_s: float | None = None
    prompt_tokens: float | None = None
    cached_tokens: float | None = None
    prefill_s: float | None = None
    output_tokens: float | None = None
    decode_s: float | None = None


_FIELDS = {
    "total duration": "total_s",
    "load duration": "load_s",
    "prompt eval count": "prompt_tokens",
    "prompt eval cached": "cached_tokens",
    "prompt eval duration": "prefill_s",
    "eval count": "output_tokens",
    "eval duration": "decode_s",
}


def _read(source: Source) -> Iterator[Item]:
    if source.is_json:
        for line, one in source.objects():
            yield from _message(Fields(one, source, line), line)
    else:
        for run in _printed(source):
            yield from _items(run)


# ---- the two forms


def _message(one: Fields, line: int) -> Iterator[Item]:
    if "error" in one.data:
        yield Skipped("an error in place of an answer", line)
    elif "embeddings" in one.data or "embedding" in one.data:
        yield Skipped("an embedding: no prefill and decode", line)
    elif not any(key.endswith("_duration") for key in one.data):
        yield Skipped("a message without counters: a part of a stream, or a load", line)
    else:
        yield from _items(_Run(line, file_or_name(one.text("model")), *_counters(one)))


def _counters(one: Fields) -> Iterator[float | None]:
    for field in ("total_duration", "load_duration"):
        yield _seconds(one, field)
    yield one.number("prompt_eval_count")
    yield one.number("prompt_eval_cached_count")
    yield _seconds(one, "prompt_eval_duration")
    yield one.number("eval_count")
    yield _seconds(one, "eval_duration")


def _seconds(one: Fields, field: str) -> float | None:
    nanoseconds = one.number(field)
    return None if nanoseconds is None else nanoseconds * NANO


def _printed(source: Source) -> Iterator[_Run]:
    """Yield the blocks; a line that the block holds already begins the next one."""
    held: dict[str, Any] = {}
    for number, text in source.lines():
        if not (found := _LINE.match(text)):
            continue
        field = _FIELDS[found[1]]
        if field in held or field == "total_s":
            if held:
                yield _Run(**held)
            held = {}
        held.setdefault("line", number)
        read = _duration if field.endswith("_s") else _count
        held[field] = read(found[2], found[1], source, number)
    if held:
        yield _Run(**held)


def _count(written: str, name: str, source: Source, line: int) -> float | None:
    return read_number(written, name, source.name, line)


def _duration(written: str, name: str, source: Source, line: int) -> float:
    parts = _PART.findall(written)
    if written != "".join(value + unit for value, unit in parts) or not written.endswith("s"):  # 2m0s, never 2m
        source.refuse(f"`{name}` = {written!r}: expected a duration such as 2m27.98s or 452.875µs", line)
    return sum(float(value) * _PARTS_S[unit] for value, unit in parts)


# ---- records


def _items(run: _Run) -> Iterator[Item]:
    if run.total_s:
        yield Measurement(
            quantity="end_to_end_s", value=run.total_s, phase="request", batch=1, prompt_tokens=run.prompt_tokens,
            cached_tokens=run.cached_tokens, output_tokens=run.output_tokens, model=run.model,
            includes="loading the model, template, sampling and HTTP too", engine=_TOOL, tool=_TOOL, line=run.line,
        )  # fmt: skip
    if run.load_s:
        yield Measurement(
            quantity="load_time_s", value=run.load_s, model=run.model, engine=_TOOL, tool=_TOOL, line=run.line
        )
    yield _prefill(run)
    yield _decode(run)


def _prefill(run: _Run) -> Item:
    if not run.prefill_s or not run.prompt_tokens:
        return Skipped("prompt evaluation without a count or a time: left out where it is 0", run.line)
    if run.cached_tokens is not None and run.cached_tokens >= run.prompt_tokens:
        return Skipped("prompt evaluation of a prompt that was cached whole", run.line)
    return Measurement(
        quantity="prefill_time_s", value=run.prefill_s, phase="prefill", batch=1, prompt_tokens=run.prompt_tokens,
        cached_tokens=run.cached_tokens, model=run.model, engine=_TOOL, tool=_TOOL, line=run.line,
        includes="a cached prefix is in prompt_tokens but not in the time",
    )  # fmt: skip


def _decode(run: _Run) -> Item:
    if not run.decode_s or not run.output_tokens:
        return Skipped("evaluation without a count or a time: left out where it is 0", run.line)
    if run.output_tokens <= 1:
        return Skipped("evaluation of a single token: no decode step is in it", run.line)
    return Measurement(
        quantity="decode_time_s", value=run.decode_s, phase="decode", count=run.output_tokens - 1, batch=1,
        prompt_tokens=run.prompt_tokens, output_tokens=run.output_tokens, includes="after the first token",
        model=run.model, engine=_TOOL, tool=_TOOL, line=run.line,
    )  # fmt: skip


FORMAT = Format(
    "ollama",
    "Ollama's final message or --verbose text",
    matches=lambda source: bool((_JSON if source.is_json else _VERBOSE).search(source.head)),
    read=_read,
)
