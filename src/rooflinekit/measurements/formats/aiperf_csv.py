"""AIPerf's and genai-perf's summary (CSV): blocks of one table each, with the unit in the name of the metric."""

import re
from collections.abc import Iterator
from typing import Any

from rooflinekit.measurements.fields import Fields
from rooflinekit.measurements.formats.aiperf import LEFT_OUT, QUANTITY_OF, metric
from rooflinekit.measurements.formats.format import Format, Item
from rooflinekit.measurements.record import Skipped
from rooflinekit.measurements.source import Source

_HEAD = re.compile(r'^\ufeff?(?:=== .*\s+)?"?Metric"?,"?(?:avg|Value)"?\b', re.MULTILINE)
_KNOWN = re.compile(
    r'^"?(?:Time to First Token|Request (?:Latency|Throughput|Count)|Output \w+)', re.IGNORECASE | re.MULTILINE
)
_LABEL = re.compile(r"(.*?)(?: \(([^()]*)\))?")
_ALIASES = {"total_input_sequence_length": "total_isl", "total_output_sequence_length": "total_osl"}
_SLICE = re.compile(r"=+ *Time Slice")

Row = tuple[str, Fields]


def _read(source: Source) -> Iterator[Item]:
    rows: list[Row] = []
    for row in _rows(source):
        if isinstance(row, Skipped):
            yield row
        else:
            rows.append(row)
    facts = _facts(rows)
    if facts["requests"] == 0:
        yield Skipped("a run in which no request finished")
        return
    for name, values in rows:
        gpu = {"device": values.text("gpu_name"), "name": values.text("gpu") or ""} if name == "gpu_power_usage" else {}
        yield from metric(name, values, facts | gpu)


def _rows(source: Source) -> Iterator[Row | Skipped]:
    """Yield the rows of the blocks with the names of the JSON form; a block begins with its header."""
    header: list[str] = []
    in_slice, seen = False, set[tuple[str, ...]]()
    for line, cells in source.rows():
        if not any(cells):
            continue
        if cells[0].startswith("==="):
            in_slice = bool(_SLICE.match(cells[0]))
        elif "Metric" in cells:
            header = [cell.strip().lower() for cell in cells]
        elif in_slice:
            yield Skipped("a row of a time slice: the whole run is kept", line)
        else:
            yield from _row(source, line, header, cells, seen)


def _row(
    source: Source, line: int, header: list[str], cells: list[str], seen: set[tuple[str, ...]]
) -> Iterator[Row | Skipped]:
    if len(cells) != len(header):
        source.refuse(f"row of {len(cells)} cells under a header of {len(header)}: the file is cut or broken", line)
    data: dict[str, Any] = dict(zip(header, cells, strict=True))
    found = _LABEL.fullmatch(data["metric"].strip())
    name = re.sub(r"\W+", "_", found[1].lower()) if found else ""
    name = _ALIASES.get(name, name.removeprefix("nvidia_"))
    if name not in QUANTITY_OF and name not in LEFT_OUT:
        return
    identity = (name, data.get("gpu_uuid", ""), data.get("gpu", ""))
    if identity in seen:
        yield Skipped("a GPU that another endpoint shows as well", line)
        return
    seen.add(identity)
    unit = found[2] if found else None
    yield name, Fields({**data, "unit": unit, "avg": data.get("avg", data.get("value"))}, source, line)


def _facts(rows: list[Row]) -> dict[str, Any]:
    means = {name: values.number("avg") for name, values in rows}
    devices = {name for _, values in rows if (name := values.text("gpu_name"))}
    return {
        "tool": "AIPerf or genai-perf",
        "requests": means.get("request_count"),
        "prompt_tokens": means.get("input_sequence_length"),
        "output_tokens": means.get("output_sequence_length"),
        "device": devices.pop() if len(devices) == 1 else None,
    }


FORMAT = Format(
    "aiperf-csv",
    "summary of AIPerf or genai-perf (CSV)",
    matches=lambda source: bool(_HEAD.search(source.head) and _KNOWN.search(source.head)),
    read=_read,
)
