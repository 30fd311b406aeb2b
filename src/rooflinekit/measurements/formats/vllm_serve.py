"""vLLM's serving benchmark: ``vllm bench serve --save-result``, before that ``benchmark_serving.py``.

A client's view: the file does not say which engine answered. ITL is a gap between streamed chunks: one token, unless
the server speculates. The one thing computed here is a mean: the length of prompts and answers, total over completed,
without which no comparison can be made. Arrays of ``--save-detailed`` hold nothing that the summary lacks.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from rooflinekit.measurements.fields import Fields
from rooflinekit.measurements.formats.format import Format, Item
from rooflinekit.measurements.formats.names import model_name, whole
from rooflinekit.measurements.record import Measurement, Setting, Skipped, nothing
from rooflinekit.measurements.source import Source
from rooflinekit.units import MILLI

TOOL = "vLLM"
_PERCENT = 0.01
_TIMES = {
    "ttft": "time_to_first_token_s",
    "tpot": "time_per_output_token_s",
    "itl": "inter_token_latency_s",
    "e2el": "end_to_end_s",
}
_STATISTIC = re.compile(r"(mean|median|std|p\d[\d.]*)_(\w+)_ms")
_RUN = {
    "output_throughput": "output_tokens_per_s",
    "total_token_throughput": "total_tokens_per_s",
    "input_throughput": "prompt_tokens_per_s",
    "request_throughput": "requests_per_s",
    "request_goodput": "goodput_requests_per_s",
    "request_goodput:": "goodput_requests_per_s",  # so written until 2025
    "duration": "run_time_s",
}
_SETTINGS = ("backend", "endpoint_type", "burstiness", "best_of", "ramp_up_strategy")
_TAIL = "ramp-up and tail"
_COPY = (
    "is the copy in PyTorch's benchmark format (.pytorch.json) that vLLM writes beside its result: read the result "
    "itself, NAME.json"
)


def _read(source: Source) -> Iterator[Item]:
    for line, run in source.objects():
        if "metric" in run and "benchmark" in run:
            source.refuse(_COPY, line)
        yield from run_items(Fields(run, source, line))


def run_items(run: Fields) -> Iterator[Item]:
    """Give what one run holds, from the keys of the JSON form."""
    completed = run.need("completed")
    if completed <= 0:
        yield Skipped("a run in which no request finished", run.line)
        return
    facts = _facts(run, completed)
    yield from _times(run, facts)
    for key, quantity in _RUN.items():
        yield from _positive(quantity, run.number(key), facts, includes=_TAIL)
    yield from _counts(run, completed, facts)
    yield from _speculation(run, facts)
    for name in _SETTINGS:
        value = run.data.get(name)
        if isinstance(value, str | int | float):
            yield Setting(name, value)


def _facts(run: Fields, completed: float) -> dict[str, Any]:
    tensor_parallel = str(run.data.get("tensor_parallel_size"))  # of --metadata, where the user gave it
    return {
        "requests": completed,
        "prompt_tokens": (run.number("total_input_tokens") or 0.0) / completed or None,
        "output_tokens": (run.number("total_output_tokens") or 0.0) / completed or None,
        "concurrency": run.number("max_concurrency"),
        "request_rate": run.number("request_rate"),
        "model": model_name(run.text("model_id")),
        "tensor_parallel": whole(tensor_parallel),
        "tool": TOOL,
        "line": run.line,
    }


def _times(run: Fields, facts: Mapping[str, Any]) -> Iterator[Item]:
    speculates = run.data.get("spec_decode_acceptance_length") is not None
    burst = run.data.get("request_rate") in ("inf", np.inf) and facts["concurrency"] is None
    for key, statistic, metric in _statistics(run):
        if metric not in _TIMES:
            yield Skipped(f"{metric}: no quantity of a server", run.line)
        elif (value := run.number(key)) is not None:
            quantity = "inter_chunk_latency_s" if speculates and metric == "itl" else _TIMES[metric]
            includes = "the queue of a burst: all requests were sent at once" if burst and metric == "ttft" else ""
            more = {"statistic": statistic, "phase": "request", "includes": includes}
            yield from _positive(quantity, value * MILLI, facts, **more)


def _statistics(run: Fields) -> Iterator[tuple[str, str, str]]:
    """Give the keys that hold a statistic, with its name and what it is of."""
    return ((found[0], found[1], found[2]) for found in map(_STATISTIC.fullmatch, run.data) if found)


def _positive(quantity: str, value: float | None, facts: Mapping[str, Any], **more: Any) -> Iterator[Item]:  # noqa: ANN401 - a record's fields
    """Give a record, unless the tool wrote nothing, or the nought that it writes for nothing."""
    if value is not None and value > 0:
        yield Measurement(quantity=quantity, value=value, **facts, **more)
    elif value is not None:
        yield Skipped(f"{quantity} of {nothing(value)}", facts["line"])


def _counts(run: Fields, completed: float, facts: Mapping[str, Any]) -> Iterator[Item]:
    yield Measurement(quantity="requests_completed", value=completed, statistic="total", **facts)
    failed = run.number("failed")
    if failed is not None:
        yield Measurement(quantity="requests_failed", value=failed, statistic="total", **facts)
    if failed:
        yield Skipped("requests failed: they are in no statistic, and the load was lighter than asked for", run.line)
    peak = run.number("max_concurrent_requests")
    yield from _positive("requests_running", peak, facts, statistic="max", includes="as the client counts")
    if run.number("max_output_tokens_per_s") is not None:
        yield Skipped("peak output rate: it counts streamed chunks, not tokens", run.line)


def _speculation(run: Fields, facts: Mapping[str, Any]) -> Iterator[Item]:
    rate, length = run.number("spec_decode_acceptance_rate"), run.number("spec_decode_acceptance_length")
    if rate is not None:
        yield Measurement(quantity="acceptance_rate", value=rate * _PERCENT, statistic="mean", phase="decode", **facts)
    if length:
        yield Measurement(quantity="accepted_tokens_per_step", value=length, statistic="mean", phase="decode", **facts)


def _matches(source: Source) -> bool:
    head = source.head
    if not source.is_json or '"total_output_tokens_retokenized"' in head:
        return False
    keys = ('"tokenizer_id"', '"num_prompts"'), ('"total_token_throughput"', '"total_input_tokens"')
    copy = '"benchmark_values"', '"vLLM benchmark"'
    return any(all(key in head for key in some) for some in (*keys, copy))


FORMAT = Format("vllm-serve", "result of vllm bench serve", matches=_matches, read=_read)
