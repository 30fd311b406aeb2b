"""``vllm bench latency --output-json``: one fixed batch, start to end: the prefill and output length - 1 decode steps.

Batch and lengths are in the command only: a step is the difference of two files over that of their output lengths.
"""

import re
from collections.abc import Iterator

from rooflinekit.measurements.fields import Fields
from rooflinekit.measurements.formats.format import Format, Item
from rooflinekit.measurements.formats.names import VLLM, model_name
from rooflinekit.measurements.formats.vllm_serve import TOOL
from rooflinekit.measurements.record import Measurement, Skipped, nothing
from rooflinekit.measurements.source import Source


def _read(source: Source) -> Iterator[Item]:
    for line, held in source.objects():
        run = Fields(held, source, line)
        yield from _item(run, "mean", run.need("avg_latency"))
        percentiles = run.inside("percentiles")
        for key in percentiles.data:
            if not re.fullmatch(r"\d+(\.\d+)?", key):
                percentiles.refuse(key, "expected the percentiles 10, 25, 50 ...")
            value = percentiles.number(key)
            if value is not None:
                yield from _item(run, "median" if float(key) == 50 else f"p{key}", value)  # noqa: PLR2004 - percent


def _item(run: Fields, statistic: str, seconds: float) -> Iterator[Item]:
    if seconds <= 0:
        yield Skipped(f"a latency of {nothing(seconds)}", run.line)
        return
    yield Measurement(
        quantity="batch_latency_s", value=seconds, statistic=statistic, phase="mixed",
        count=len(run.numbers("latencies")) or None, model=model_name(run.text("model_id")),
        batch=run.number("batch_size"), prompt_tokens=run.number("input_len"), output_tokens=run.number("output_len"),
        includes="the prefill and all decode steps", tool=TOOL, engine=VLLM, line=run.line,
    )  # fmt: skip


def _matches(source: Source) -> bool:
    keys = all(key in source.head for key in ('"avg_latency"', '"latencies"'))
    return source.is_json and keys and '"benchmark_values"' not in source.head


FORMAT = Format(
    "vllm-latency",
    "result of vllm bench latency",
    matches=_matches,
    read=_read,
    asks=("batch", "prompt_tokens", "output_tokens"),
)
