"""llama.cpp's timing lines: ``llama_print_timings``, ``llama_perf_context_print``, the server's ``print_timing``.

llama-cli counts runs: decode steps, one less than tokens. The server counts tokens: the first comes from the prefill.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from rooflinekit.measurements.fields import read_number
from rooflinekit.measurements.formats.format import Format, Item
from rooflinekit.measurements.record import Measurement, Skipped
from rooflinekit.measurements.source import Source
from rooflinekit.units import MILLI

_LINE = re.compile(r"(prompt eval|eval|load) time\s*=\s*([\d.,]+)\s*ms(?:\s*/\s*([\d,]+)\s*(runs|tokens))?")
_TASK = re.compile(r"task\s+(\d+)")
_DRAFT = re.compile(r"draft acceptance(?: rate)?\s*=\s*([\d.]+)(?:.*mean len\s*=\s*([\d.]+))?")
_TOOL = "llama.cpp"


class _Line(NamedTuple):
    what: str
    seconds: float
    amount: float | None
    unit: str
    number: int


def _read(source: Source) -> Iterator[Item]:
    prompts: dict[str, float] = {}
    for number, text in source.lines():
        task = found[1] if (found := _TASK.search(text)) else ""
        line = _parsed(text, source, number)
        if line is not None:
            if line.what == "prompt eval" and line.amount:
                prompts[task] = line.amount
            yield from _items(line, prompts.get(task))
        elif draft := _DRAFT.search(text):
            yield from _speculation(draft, number)


def _parsed(text: str, source: Source, number: int) -> _Line | None:
    found = _LINE.search(text)
    if not found:
        return None
    what, time, count, unit = found.groups()
    seconds = read_number(time, f"{what} time", source.name, number) or 0.0
    amount = read_number(count, f"{what} {unit}", source.name, number) if count else None
    return _Line(what, seconds * MILLI, amount, unit or "", number)


def _items(line: _Line, prompt_tokens: float | None) -> Iterator[Item]:
    """Give the record of a line; a time or a count of nought is no measurement."""
    if line.what == "load":
        yield Measurement(quantity="load_time_s", value=line.seconds, tool=_TOOL, engine=_TOOL, line=line.number)
    elif not line.seconds or not line.amount:
        yield Skipped(f"{line.what} time of 0 or without a count: counters off, or nothing to do", line.number)
    elif line.what == "prompt eval":
        yield Measurement(
            quantity="prefill_time_s", value=line.seconds, phase="prefill", batch=1, prompt_tokens=line.amount,
            includes="processed tokens only", tool=_TOOL, engine=_TOOL, line=line.number,
        )  # fmt: skip
    else:
        steps = line.amount - (line.unit == "tokens")
        if not steps:
            yield Skipped("eval time of a single token: no decode step is in it", line.number)
            return
        yield Measurement(
            quantity="decode_time_s", value=line.seconds, phase="decode", count=steps, batch=1, output_tokens=steps + 1,
            prompt_tokens=prompt_tokens, includes="after the first token", tool=_TOOL, engine=_TOOL, line=line.number,
        )  # fmt: skip


def _speculation(draft: re.Match[str], number: int) -> Iterator[Item]:
    rate, length = draft.groups()
    for quantity, value in (("acceptance_rate", rate), ("accepted_tokens_per_step", length)):
        if value is not None:
            yield Measurement(
                quantity=quantity, value=float(value), phase="decode", tool=_TOOL, engine=_TOOL, line=number
            )


FORMAT = Format(
    "llama-timings",
    "timing lines of llama.cpp",
    matches=lambda source: bool(re.search(r"(?<!\w)eval time\s*=\s*[\d.,]+\s*ms", source.head)),
    read=_read,
)
