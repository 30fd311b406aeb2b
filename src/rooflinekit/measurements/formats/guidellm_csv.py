"""GuideLLM's report (CSV): three header rows (group, field with unit, statistic), one benchmark a row."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from rooflinekit.measurements.fields import Fields
from rooflinekit.measurements.formats.format import Format, Item
from rooflinekit.measurements.formats.guidellm import TOOL, load, metric
from rooflinekit.measurements.formats.names import model_name
from rooflinekit.measurements.formats.spread import single
from rooflinekit.measurements.record import Skipped
from rooflinekit.measurements.source import Source

Column = tuple[str, str, str]

#: group and field: name of the JSON form, whose unit is the same
_METRICS: Mapping[tuple[str, str], str] = {
    ("Request Latency", "Successful Sec"): "request_latency",
    ("Time to First Token", "Successful ms"): "time_to_first_token_ms",
    ("Time per Output Token", "Successful ms"): "time_per_output_token_ms",
    ("Inter Token Latency", "Successful ms"): "inter_token_latency_ms",
    ("Token Metrics", "Successful Input Tokens"): "prompt_token_count",
    ("Token Metrics", "Successful Output Tokens"): "output_token_count",
    ("Server Throughput", "Successful Requests/Sec"): "requests_per_second",
    ("Server Throughput", "Successful Concurrency"): "request_concurrency",
    ("Token Throughput", "Successful Input Tokens/Sec"): "prompt_tokens_per_second",
    ("Token Throughput", "Successful Output Tokens/Sec"): "output_tokens_per_second",
    ("Token Throughput", "Successful Total Tokens/Sec"): "tokens_per_second",
}
_STATISTICS = {"Mean": "mean", "Median": "median", "Std Dev": "std_dev"}
#: Of the list in a cell called percentiles: the median has its own column, and the ends are no percentiles.
_LISTED = ("min", "p0.1", "p1", "p5", "p10", "p25", "p75", "p90", "p95", "p99", "max")
_STRATEGY = re.compile(r"([a-z]+)(?:@(\d+(?:\.\d+)?))?")
_HEADERS = 3


def _read(source: Source) -> Iterator[Item]:
    header: list[list[str]] = []
    for line, cells in source.rows():
        if not any(cells):
            continue
        if len(header) < _HEADERS:
            header.append(cells)
            continue
        columns = list(zip(*header, strict=False))
        if len(cells) != len(header[0]) or len({len(row) for row in header}) != 1:
            source.refuse(f"row of {len(cells)} cells under a header of {len(columns)}: the file is cut", line)
        yield from _benchmark(source, line, dict(zip(columns, cells, strict=True)))


def _benchmark(source: Source, line: int, cells: Mapping[tuple[str, ...], str]) -> Iterator[Item]:
    counts = Fields({name: cells.get(("Request Counts", name, "")) for name in ("Successful", "Errored")}, source, line)
    if not counts.number("Successful"):
        yield Skipped("a benchmark in which no request succeeded", line)
        return
    metrics = {name: _values(source, line, cells, key) for key, name in _METRICS.items()}
    facts = _facts(cells) | {
        "requests": counts.number("Successful"),
        "prompt_tokens": metrics["prompt_token_count"].number("mean"),
        "output_tokens": metrics["output_token_count"].number("mean"),
    }
    yield from single(counts, "Successful", "requests_completed", statistic="total", **facts)
    yield from single(counts, "Errored", "requests_failed", statistic="total", **facts)
    duration = Fields({"Duration": cells.get(("Timings", "Duration", "Sec"))}, source, line)
    yield from single(duration, "Duration", "run_time_s", **facts)
    for name, values in metrics.items():
        yield from metric(name, values, facts)


def _values(source: Source, line: int, cells: Mapping[tuple[str, ...], str], key: tuple[str, str]) -> Fields:
    data: dict[str, Any] = {ours: cells.get((*key, theirs)) for theirs, ours in _STATISTICS.items()}
    values = Fields(data | {"percentiles": _json(cells.get((*key, "Percentiles")))}, source, line)
    percentiles = values.numbers("percentiles")
    if len(percentiles) == len(_LISTED):
        values.data = {**data, **dict(zip(_LISTED, percentiles, strict=True))}
    return values


def _facts(cells: Mapping[tuple[str, ...], str]) -> dict[str, Any]:
    """Give what the run was: of the backend, whose cell holds a URL as well, the model alone."""
    backend, metadata = (
        _json(cells.get(("Run Info", "Backend", ""))),
        _json(cells.get(("Runtime Info", "Metadata", ""))),
    )
    found = _STRATEGY.match(cells.get(("Benchmark", "Strategy", ""), ""))
    amount = float(found[2]) if found and found[2] else None
    return {
        "tool": TOOL,
        "model": model_name(backend.get("model")) if isinstance(backend, Mapping) else None,
        "version": metadata.get("guidellm_version") if isinstance(metadata, Mapping) else None,
    } | load(found[1] if found else "", amount, amount)


def _json(text: str | None) -> Any:  # noqa: ANN401 - what a cell holds
    try:
        return json.loads(text or "null")
    except (ValueError, RecursionError):
        return None


def _matches(source: Source) -> bool:
    first = source.head.split("\n", 1)[0]
    return all(name in first.split(",") for name in ("Run Info", "Request Latency", "Inter Token Latency"))


FORMAT = Format("guidellm-csv", "report of GuideLLM (CSV)", matches=_matches, read=_read)
