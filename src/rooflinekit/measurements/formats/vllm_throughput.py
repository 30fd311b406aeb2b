"""``vllm bench throughput --output-json``: a whole run, all requests at once, prompt and output tokens together.

Lengths are in the command only; ``input`` and ``output`` that a wrapper added are taken where they give the total.
"""

import re
from collections.abc import Iterator
from typing import Any

from rooflinekit.measurements.fields import Fields
from rooflinekit.measurements.formats.format import Format, Item
from rooflinekit.measurements.formats.names import model_name
from rooflinekit.measurements.formats.vllm_serve import TOOL
from rooflinekit.measurements.record import Measurement, Skipped, nothing
from rooflinekit.measurements.source import Source

_RUN = {
    "tokens_per_second": "total_tokens_per_s",
    "requests_per_second": "requests_per_s",
    "elapsed_time": "run_time_s",
}


def _read(source: Source) -> Iterator[Item]:
    for line, held in source.objects():
        run = Fields(held, source, line)
        if "error" in held and "elapsed_time" not in held:
            source.refuse(
                "holds an error and no measured value: the run failed, and its runner wrote nothing else", line
            )
        requests = run.need("num_requests")
        if requests <= 0:
            yield Skipped("a run without a request", line)
            continue
        yield from _items(run, requests)


def _items(run: Fields, requests: float) -> Iterator[Item]:
    facts = {**_lengths(run, requests), "requests": requests, "model": model_name(run.text("model_id")), "tool": TOOL}
    for key, quantity in _RUN.items():
        value = run.number(key)
        if value is not None and value > 0:
            yield Measurement(quantity=quantity, value=value, phase="mixed", line=run.line, **facts)
        elif value is not None:
            yield Skipped(f"{quantity} of {nothing(value)}", run.line)
    yield Measurement(quantity="requests_completed", value=requests, statistic="total", line=run.line, **facts)


def _lengths(run: Fields, requests: float) -> dict[str, Any]:
    """Give the lengths that a wrapper wrote; "ouput" is how one of them spells it."""
    prompt, output = run.data.get("input"), run.data.get("output", run.data.get("ouput"))
    if not isinstance(prompt, int | float) or not isinstance(output, int | float):
        return {}
    agree = requests * (prompt + output) == run.number("total_num_tokens")
    return {"prompt_tokens": prompt, "output_tokens": output} if agree else {}


def _matches(source: Source) -> bool:
    head = source.head.lstrip("\ufeff \t\r\n")
    failed = re.fullmatch(r'\{\s*"error"\s*:\s*"[^"]*"\s*\}\s*', head)
    keys = source.is_json and '"elapsed_time"' in head and '"num_requests"' in head
    return bool(failed or (keys and '"benchmark_values"' not in head))


FORMAT = Format("vllm-throughput", "result of vllm bench throughput", matches=_matches, read=_read)
