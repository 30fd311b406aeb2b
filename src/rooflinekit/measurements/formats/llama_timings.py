"""llama.cpp's timing lines: ``llama_print_timings``, ``llama_perf_context_print``, ``common_perf_print``, the server's.

llama-cli counts runs: decode steps, one less than tokens. The server counts tokens, in old builds under the name of
runs: the first comes from the prefill. It counts processed prompt tokens only; the whole prompt is in another line.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from rooflinekit.measurements.fields import read_number
from rooflinekit.measurements.formats.format import Format, Item
from rooflinekit.measurements.formats.llama_names import (
    ENGINE,
    PROCESSED,
    SPECULATIVE,
    UNKNOWN_PREFIX,
    build_of,
    device_of,
    file_or_name,
    weights_of,
    without_addresses,
)
from rooflinekit.measurements.record import Measurement, Skipped
from rooflinekit.measurements.source import Source
from rooflinekit.units import BITS_PER_BYTE, MILLI

_NUMBER = r"[\d.,]+|-?nan|-?inf"
_LINE = re.compile(
    r"(?<!\w)(prompt eval|generation eval|eval|load|total|sampl(?:e|ing)) time\s*=\s*"
    rf"({_NUMBER})\s*ms(?:\s*/\s*([\d,]+)\s*(runs|tokens))?"
)
_RATES = re.compile(rf"\[ Prompt: ({_NUMBER}) t/s \| Generation: ({_NUMBER}) t/s \]")
_TASK = re.compile(r"\b(?:task|id_task|task_id)[\s=\":]+(\d+)")
_WHOLE_PROMPT = re.compile(r"new prompt,.*?(?:task\.n_tokens|n_prompt_tokens) = (\d+)")
_DRAFT = re.compile(
    r"draft acceptance(?: rate)?\s*=\s*(\d+(?:\.\d+)?)\s*\(\s*\d+ accepted\s*/\s*(\d+) generated\)"
    r"(?:.*mean (?:acceptance )?len(?:gth)?\s*=\s*(\d+(?:\.\d+)?))?"
)
_BUILD = re.compile(r"\bbuild:\s+(\d+)\s+\(([0-9a-f]{6,})\)")
_MODEL = re.compile(r"llama_model_loader: loaded meta data .* from (\S.*?) \(version")
_TYPE = re.compile(r"(?:print_info: file type|print_meta: model ftype)\s*=\s*(\S.*?)\s*$")
_BITS = re.compile(r"(?:file|model) size\s*=\s*[\d.]+ \w+ \((\d+(?:\.\d+)?) BPW\)")
_LOG = re.compile(r"llama_model_loader: |\bslot\s+\w+ ?(?:\(\))?: id\s+\d+ \| task |\bsrv\s+\w+ ?(?:\(\))?: ")
_TOOL = ENGINE
#: A log's timing lines may come after its first 64 KiB, so that its other lines tell it as well.
_MARKS = (_LINE, _RATES, _LOG)


class _Line(NamedTuple):
    what: str
    seconds: float
    amount: float | None
    unit: str
    number: int


@dataclass
class _Log:
    """What earlier lines say of the run and its requests, by task; and records that a later line may still change."""

    facts: dict[str, str | None] = field(default_factory=dict)
    devices: list[str] = field(default_factory=list)
    wholes: dict[str, float] = field(default_factory=dict)
    processed: dict[str, float] = field(default_factory=dict)
    held: list[Item] = field(default_factory=list)
    task: str = ""
    type: str | None = None

    def notice(self, text: str) -> None:
        """Take up what a line says of the model, the build, the device or the prompt."""
        if found := _BUILD.search(text):  # a run begins
            self.facts, self.devices = {"version": build_of(found[1], found[2])}, []
        elif found := _MODEL.search(text):
            self.facts.setdefault("model", file_or_name(found[1]))  # a second one drafts
        elif found := _TYPE.search(text):
            self.type = found[1]
        elif found := _BITS.search(text):  # a model's bits a weight follow its type, and may contradict it
            self.facts.setdefault("weights", weights_of(self.type, float(found[1]), BITS_PER_BYTE))
        elif found := _WHOLE_PROMPT.search(text):
            self.wholes[self.task] = float(found[1])
        elif device := device_of(text):
            self.devices.append(device)
            self.facts["device"] = without_addresses(", ".join(self.devices))

    def release(self, *, drafted: bool = False) -> Iterator[Item]:
        """Yield what was held; where tokens were drafted, the number of steps is not known."""
        for item in self.held:
            if drafted and isinstance(item, Measurement) and item.quantity == "decode_time_s":
                yield replace(item, count=None, includes=item.includes + SPECULATIVE)
            else:
                yield item
        self.held.clear()


def _read(source: Source) -> Iterator[Item]:
    log = _Log()
    for number, text in source.lines():
        if found := _TASK.search(text):
            log.task = found[1]
        if line := _parsed(text, source, number):
            if line.what != "total":
                yield from log.release()
            log.held.extend(_items(line, log))
        elif draft := _DRAFT.search(text):
            yield from log.release(drafted=float(draft[2]) > 0)
            yield from _speculation(draft, number, log)
        elif rates := _RATES.search(text):
            yield from log.release()
            yield from _rates(rates, source, number, log)
        else:
            log.notice(text)
    yield from log.release()


def _parsed(text: str, source: Source, number: int) -> _Line | None:
    found = _LINE.search(text)
    if not found:
        return None
    what, time, count, unit = found.groups()
    seconds = read_number(time, f"{what} time", source.name, number) or 0.0
    amount = read_number(count, f"{what} {unit}", source.name, number) if count else None
    if what == "generation eval":
        what, unit = "eval", "tokens"
    return _Line(what, seconds * MILLI, amount, unit or "", number)


# ---- records


def _items(line: _Line, log: _Log) -> Iterator[Item]:
    """Give the record of a line; a time or a count of nought is no measurement."""
    if line.what == "prompt eval":  # a request begins: what an earlier one processed is none of its own
        log.processed.pop(log.task, None)
    if line.what.startswith("sampl"):
        yield Skipped("sampling time: no time of the model", line.number)
    elif not line.seconds:
        yield Skipped(f"{line.what} time of 0: counters off, or nothing to do", line.number)
    elif line.what in ("load", "total"):
        yield _whole(line, log)
    elif not line.amount:
        yield Skipped(f"{line.what} time without a count", line.number)
    else:
        yield _prefill(line, line.amount, log) if line.what == "prompt eval" else _decode(line, line.amount, log)


def _whole(line: _Line, log: _Log) -> Item:
    if line.what == "load":
        return Measurement(quantity="load_time_s", value=line.seconds, **_facts(line.number, log))
    includes = "prefill and decode, no queue" if log.task else "since the counters began: sampling and waiting too"
    return Measurement(
        quantity="end_to_end_s", value=line.seconds, phase="request", batch=1, includes=includes,
        **_facts(line.number, log),
    )  # fmt: skip


def _prefill(line: _Line, amount: float, log: _Log) -> Item:
    whole = log.wholes.get(log.task)
    includes = UNKNOWN_PREFIX if log.task and whole is None else PROCESSED
    log.processed[log.task] = amount
    return Measurement(
        quantity="prefill_time_s", value=line.seconds, phase="prefill", batch=1, prompt_tokens=whole or amount,
        cached_tokens=None if whole is None else whole - amount, includes=includes,
        **_facts(line.number, log),
    )  # fmt: skip


def _decode(line: _Line, amount: float, log: _Log) -> Item:
    of_server = line.unit == "tokens"
    steps = amount - of_server
    processed, whole = log.processed.pop(log.task, None), log.wholes.pop(log.task, None)
    if not steps:
        return Skipped("eval time of a single token: no decode step is in it", line.number)
    # A server keeps prefixes: what it processed is the whole prompt only where another line says so.
    prompt = whole if of_server else processed
    return Measurement(
        quantity="decode_time_s", value=line.seconds, phase="decode", count=steps, batch=1, output_tokens=steps + 1,
        prompt_tokens=prompt, includes="after the first token", **_facts(line.number, log),
    )  # fmt: skip


def _speculation(draft: re.Match[str], number: int, log: _Log) -> Iterator[Item]:
    rate, drafted, length = draft.groups()
    if not float(drafted):
        yield Skipped("draft acceptance of no drafted token", number)
        return
    for quantity, value in (("acceptance_rate", rate), ("accepted_tokens_per_step", length)):
        if value is not None:
            yield Measurement(quantity=quantity, value=float(value), phase="decode", **_facts(number, log))


def _rates(rates: re.Match[str], source: Source, number: int, log: _Log) -> Iterator[Item]:
    """Read what llama-cli prints since it is a client of the server: rates without counts."""
    pairs = (("prompt_tokens_per_s", "prefill"), ("output_tokens_per_s", "decode"))
    for (quantity, phase), written in zip(pairs, rates.groups(), strict=True):
        if value := read_number(written, phase, source.name, number):
            yield Measurement(quantity=quantity, value=value, phase=phase, batch=1, **_facts(number, log))
        else:
            yield Skipped(f"{phase} rate of 0", number)


def _facts(number: int, log: _Log) -> dict[str, Any]:
    return {"tool": _TOOL, "engine": ENGINE, "line": number, **log.facts}


FORMAT = Format(
    "llama-timings",
    "timing lines of llama.cpp",
    matches=lambda source: any(mark.search(source.head) for mark in _MARKS),
    read=_read,
)
