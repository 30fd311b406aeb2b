"""AIPerf's ``profile_export.jsonl``: one request a line; warm-up, failed and cancelled requests are left out."""

import re
from collections.abc import Iterator
from typing import Any

from rooflinekit.measurements.fields import Fields
from rooflinekit.measurements.formats.aiperf import LEFT_OUT, QUANTITY_OF, scale_of
from rooflinekit.measurements.formats.format import Format, Item
from rooflinekit.measurements.formats.spread import single
from rooflinekit.measurements.record import Skipped
from rooflinekit.measurements.source import Source

_HEAD = re.compile(r'"metadata"\s*:\s*\{[^{}]*"(?:benchmark_phase|record_processor_id|request_start_ns)"')


def _read(source: Source) -> Iterator[Item]:
    for line, data in source.objects():
        request = Fields(data, source, line)
        why = _left_out(request)
        if why:
            yield Skipped(why, line)
        else:
            yield from _request(request.inside("metrics"))


def _left_out(request: Fields) -> str:
    """Say why a request is left out, or nothing."""
    metadata = request.inside("metadata")
    if (metadata.text("benchmark_phase") or "profiling").lower() != "profiling":
        return "a request of the warm-up"
    if request.data.get("error"):
        return "a request that failed"
    if metadata.data.get("was_cancelled"):
        return "a request that was cancelled"
    return "" if request.data.get("metrics") else "a request without metrics"


def _request(metrics: Fields) -> Iterator[Item]:
    lengths = {
        quantity: metrics.inside(name).number("value")
        for name, quantity in (("input_sequence_length", "prompt_tokens"), ("output_sequence_length", "output_tokens"))
    }
    for name in metrics.data:
        quantity = QUANTITY_OF.get(name)
        if name in LEFT_OUT:
            yield Skipped(LEFT_OUT[name], metrics.line)
        elif quantity and quantity not in lengths:
            yield from _value(name, quantity, metrics.inside(name), lengths)


def _value(name: str, quantity: str, value: Fields, lengths: dict[str, Any]) -> Iterator[Item]:
    if isinstance(value.data.get("value"), list):
        yield Skipped(f"{name}: every gap of an answer; the summary has their mean", value.line)
    else:
        yield from single(
            value, "value", quantity, scale=scale_of(value, quantity), requests=1, tool="AIPerf", **lengths
        )


FORMAT = Format(
    "aiperf-requests",
    "single requests of AIPerf",
    matches=lambda source: bool(_HEAD.search(source.head)) and '"metrics"' in source.head,
    read=_read,
)
