"""PyTorch's profiler (Kineto): a Chrome trace, whose GPU work is its kernels, copies and fills; microseconds.

Traces are large: events are read one after another (ijson), and only sums and the kernels' times are kept.
"""

import importlib
import math
import re
from array import array
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rooflinekit.measurements.fields import Fields
from rooflinekit.measurements.formats.format import Format, Item
from rooflinekit.measurements.record import Measurement, Skipped
from rooflinekit.measurements.source import Source
from rooflinekit.units import MIB, MICRO

_KERNEL = frozenset({"kernel", "Kernel"})
_WORK = _KERNEL | {"gpu_memcpy", "gpu_memset", "Memcpy", "Memset"}
#: Read whole, with lines in messages, up to the first; without ijson up to the second: it takes ten times the bytes.
_SMALL_BYTES = 16 * int(MIB)
MOST_HELD_BYTES = 128 * int(MIB)
_CHUNK_BYTES = int(MIB)
_MOST_MICROSECONDS = 1 << 63
#: So many openings without an end are no trace, and the parser's time grows with their square.
_DEEPEST = 500
_NESTED = re.compile(rb"(?:[\[{][^\[\]{}]*+){%d}" % _DEEPEST)
_TOOL = "pytorch-profiler"


@dataclass
class _Sum:
    count: int = 0
    microseconds: float = 0.0


@dataclass
class _Spans:
    """When the kernels of a device began and ended."""

    starts: "array[float]" = field(default_factory=lambda: array("d"))
    ends: "array[float]" = field(default_factory=lambda: array("d"))

    def union(self) -> float:
        """Give the time in which any ran."""
        order = np.argsort(self.starts, kind="stable")
        starts, ends = np.asarray(self.starts)[order], np.asarray(self.ends)[order]
        reached = np.maximum.accumulate(ends)
        reached = np.concatenate(([-np.inf], reached[:-1]))
        return float(np.maximum(0.0, ends - np.maximum(starts, reached)).sum())


class _Work:
    """What is kept of a trace."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.sums: dict[tuple[Any, str], _Sum] = defaultdict(_Sum)
        self.spans: dict[Any, _Spans] = defaultdict(_Spans)
        self.devices: dict[Any, str] = {}
        self.events = self.untimed = 0

    def add_event(self, event: Any) -> None:  # noqa: ANN401 - what JSON holds
        """Count an event, and add it if it is GPU work."""
        self.events += 1
        if not isinstance(event, dict):
            self.source.refuse(f"event {self.events:,} is {type(event).__name__}: expected an object")
        category = event.get("cat")
        if event.get("ph") != "X" or not isinstance(category, str) or category not in _WORK:
            return
        start, duration = self._number(event, "ts"), self._number(event, "dur")
        if start is None or duration is None or duration < 0:
            self.untimed += 1
            return
        device = _device(event)
        total = self.sums[device, str(event.get("name", ""))]
        total.count += 1
        total.microseconds += duration
        if category in _KERNEL:
            self.spans[device].starts.append(start)
            self.spans[device].ends.append(start + duration)

    def _number(self, event: dict[str, Any], key: str) -> float | None:
        value = event.get(key)
        if type(value) is float and math.isfinite(value):
            return value
        if type(value) is int and abs(value) < _MOST_MICROSECONDS:
            return float(value)
        return Fields(event, Source(f"{self.source.name}, event {self.events:,}", b"")).number(key)

    def add_device(self, device: Any) -> None:  # noqa: ANN401 - what JSON holds
        """Note the name of a device."""
        if not isinstance(device, dict) or not isinstance(device.get("name"), str):
            return
        if isinstance(device.get("id"), int | str | None):
            self.devices[device.get("id")] = device["name"]


def _device(event: Mapping[str, Any]) -> int | str | None:
    """Give the number of the device; traces of GPUs have it as the process too."""
    arguments = event.get("args")
    device = arguments.get("device") if isinstance(arguments, dict) else None
    device = event.get("pid") if device is None else device
    return device if isinstance(device, int | str) else None


# ---- reading


def _read(source: Source) -> Iterator[Item]:
    work = _Work(source)
    ijson = _streamer()
    if not _holds_more(source, _SMALL_BYTES):
        _read_whole(work)
    elif ijson is not None:
        _read_streamed(work, ijson)
    elif _holds_more(source, MOST_HELD_BYTES):
        most = f"{MOST_HELD_BYTES / MIB:.0f} MiB"
        source.refuse(f'is a trace of more than {most}: `pip install "rooflinekit[traces]"` (ijson) to read it')
    else:
        _read_whole(work)
    yield from _items(work)


def _streamer() -> Any | None:  # noqa: ANN401 - a module that may be missing
    try:
        return importlib.import_module("ijson")
    except ImportError:
        return None


def _holds_more(source: Source, most: int) -> bool:
    with source.open() as stream:
        return len(stream.read(most + 1)) > most


def _read_whole(work: _Work) -> None:
    for _, found in work.source.objects():
        if "traceEvents" not in found:
            work.add_event(found)
            continue
        events, devices = found["traceEvents"] or [], found.get("deviceProperties") or []
        if not isinstance(events, list) or not isinstance(devices, list):
            work.source.refuse("`traceEvents` or `deviceProperties` is no list")
        for device in devices:
            work.add_device(device)
        for event in events:
            work.add_event(event)


def _read_streamed(work: _Work, ijson: Any) -> None:  # noqa: ANN401 - the module
    """Hand the trace to two parsers: of the events, and of the devices until those are found."""
    path = "item" if work.source.head.lstrip().startswith("[") else "traceEvents.item"
    events, devices = ijson.sendable_list(), ijson.sendable_list()
    of_events = ijson.items_coro(events, path, use_float=True)
    of_devices = ijson.items_coro(devices, "deviceProperties.item", use_float=True)
    known = -1
    try:
        with work.source.open() as stream:
            while chunk := stream.read(_CHUNK_BYTES):
                if _is_nested(chunk):
                    work.source.refuse(f"is nested too deep to be a trace, after event {work.events:,}")
                of_events.send(chunk)
                _emptied(events, work.add_event)
                if not work.devices or len(work.devices) > known:  # their list may end in the next chunk
                    known = len(work.devices)
                    of_devices.send(chunk)
                    _emptied(devices, work.add_device)
        of_events.close()
    except ijson.IncompleteJSONError as fault:
        reason = "the file is cut" if "premature" in str(fault).lower() else str(fault).partition("\n")[0]
        work.source.refuse(f"no JSON after event {work.events:,}: {reason}; write it anew")


def _is_nested(chunk: bytes) -> bool:
    """Tell a chunk that opens far more than it ends; what names of kernels hold is looked at only then."""
    opened = sum(chunk.count(one) for one in (b"[", b"{")) - sum(chunk.count(one) for one in (b"]", b"}"))
    return opened > _DEEPEST and bool(_NESTED.search(chunk))


def _emptied(found: list[Any], add: Any) -> None:  # noqa: ANN401 - a method
    for one in found:
        add(one)
    found.clear()


# ---- records


def _items(work: _Work) -> Iterator[Item]:
    several = len({device for device, _ in work.sums}) > 1
    yield from _kernels(work, several=several)
    yield from _busy(work, several=several)
    for _ in range(work.untimed):
        yield Skipped("GPU event without a start or a duration")
    if not work.sums and not work.untimed:
        yield Skipped(f"trace of {work.events:,} events, none of the GPU: profile with ProfilerActivity.CUDA")


def _kernels(work: _Work, *, several: bool) -> Iterator[Item]:
    for (device, name), total in sorted(work.sums.items(), key=lambda one: -one[1].microseconds):
        if not total.microseconds:
            yield Skipped("kernel of 0 microseconds: shorter than the trace's clock tells")
            continue
        waiting = " with the wait for other GPUs" if re.match(r"n?r?ccl", name) else ""
        yield Measurement(
            quantity="kernel_time_s", value=total.microseconds * MICRO, statistic="total", name=name, count=total.count,
            includes=_includes(f"summed over streams{waiting}", device, several=several),
            device=work.devices.get(device), tool=_TOOL,
        )  # fmt: skip


def _busy(work: _Work, *, several: bool) -> Iterator[Item]:
    for device, spans in work.spans.items():
        if busy := spans.union():
            yield Measurement(
                quantity="gpu_busy_s", value=busy * MICRO, count=len(spans.starts), device=work.devices.get(device),
                includes=_includes("kernels; no copies and fills", device, several=several), tool=_TOOL,
            )  # fmt: skip


def _includes(what: str, device: int | str | None, *, several: bool) -> str:
    return f"GPU {device}: {what}" if several else what


def _matches(source: Source) -> bool:
    """Tell an object with events or the devices' properties at its head, or a bare list of events."""
    head = source.head.lstrip("\ufeff \r\n\t")
    if head.startswith("{"):
        return bool(re.search(r'"traceEvents"\s*:|"deviceProperties"\s*:\s*\[', head))
    return bool(re.match(r'\[\s*\{[^{}]*"ph"\s*:\s*"\w"', head))


FORMAT = Format("torch-trace", "trace of PyTorch's profiler (Kineto)", matches=_matches, read=_read)
