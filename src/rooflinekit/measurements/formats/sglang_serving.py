"""SGLang's ``bench_serving``: JSONL with one run a line, and the table that it prints.

TPOT leaves the first token out; ``concurrency`` is the average in flight, ``max_concurrency`` the limit. Lengths come
from the totals: ``random_input_len`` is the upper end of what is drawn unless the range ratio is 1.
"""

import re
from collections.abc import Iterator
from typing import Any

from rooflinekit.measurements.fields import Fields
from rooflinekit.measurements.formats.format import Format, Item
from rooflinekit.measurements.formats.names import SGLANG, model_name, weights_name
from rooflinekit.measurements.formats.spread import single, statistic_of
from rooflinekit.measurements.record import Skipped
from rooflinekit.measurements.source import Source
from rooflinekit.units import MILLI

_TOOL = "sglang bench_serving"
_LATENCIES = {
    "e2e_latency": "end_to_end_s", "ttft": "time_to_first_token_s", "tpot": "time_per_output_token_s",
    "itl": "inter_token_latency_s",
}  # fmt: skip
_LATENCY = re.compile(r"(mean|median|std|min|max|p[\d.]+)_(e2e_latency|ttft|tpot|itl)_ms")
#: key, quantity, statistic
_VALUES = (
    ("request_throughput", "requests_per_s", "single"),
    ("input_throughput", "prompt_tokens_per_s", "single"),
    ("output_throughput", "output_tokens_per_s", "single"),
    ("total_throughput", "total_tokens_per_s", "single"),
    ("duration", "run_time_s", "single"),
    ("completed", "requests_completed", "total"),
    ("total_input_tokens", "prompt_tokens", "total"),
    ("total_output_tokens", "output_tokens", "total"),
    ("concurrency", "requests_running", "mean"),
    ("max_concurrent_requests", "requests_running", "max"),
    ("accept_length", "accepted_tokens_per_step", "mean"),
)
_JSON = re.compile(
    r'"(?:total_output_tokens_retokenized|(?:mean|median)_e2e_latency_ms|sharegpt_output_len)"\s*:'
    r'|"dataset_name"\s*:\s*"[^"]*",\s*"request_rate"'
)
_TABLE = re.compile(r"Serving Benchmark Result\s*=[\s\S]*?(?:E2E Latency \(ms\)|\(retokenized\))", re.IGNORECASE)
_BLOCK = re.compile(r"=\s*Serving Benchmark Result\s*=", re.IGNORECASE)
_END = re.compile(r"={20,}\s*$")
_ROW = re.compile(r"([A-Za-z][\w /().-]*?)\s*:\s+(\S+(?: set)?)\s*$")
_LABEL = re.compile(r"(mean|median|std|min|max|p[\d.]+) (e2e latency|ttft|tpot|itl) \(ms\)")
_LABELS = {
    "traffic request rate": "request_rate",
    "max request concurrency": "max_concurrency",
    "max reqeuest concurrency": "max_concurrency",  # so until 2025
    "successful requests": "completed",
    "benchmark duration (s)": "duration",
    "total input tokens": "total_input_tokens",
    "total generated tokens": "total_output_tokens",
    "request throughput (req/s)": "request_throughput",
    "input token throughput (tok/s)": "input_throughput",
    "output token throughput (tok/s)": "output_throughput",
    "total token throughput (tok/s)": "total_throughput",
    "concurrency": "concurrency",
    "peak output token throughput (tok/s)": "max_output_tokens_per_s",
    "peak concurrent requests": "max_concurrent_requests",
    "accept length": "accept_length",
}


def _read(source: Source) -> Iterator[Item]:
    if source.is_json:
        for line, run in source.objects():
            yield from _run(Fields(run, source, line))
    else:
        for line, run, closed in _blocks(source):
            yield from _run(Fields(run, source, line))
            if not closed:
                yield Skipped("a result without its closing line: statistics may be missing", line)


def _run(run: Fields) -> Iterator[Item]:
    if not run.need("completed"):
        yield Skipped("a run in which no request finished", run.line)
        return
    facts = _facts(run)
    for key, quantity, statistic in _VALUES:
        yield from single(run, key, quantity, statistic=statistic, **facts)
    if run.number("max_output_tokens_per_s"):
        yield Skipped("peak output rate: it counts streamed chunks, not tokens", run.line)
    yield from _latencies(run, facts)


def _latencies(run: Fields, facts: dict[str, Any]) -> Iterator[Item]:
    streamed = run.number("mean_ttft_ms") != 0 and run.number("median_ttft_ms") != 0
    for found in filter(None, map(_LATENCY.fullmatch, run.data)):
        key, statistic, name = found[0], statistic_of(found[1]), found[2]
        if name == "tpot" and not streamed:
            yield Skipped("time_per_output_token_s of answers that were not streamed: the prefill is in it", run.line)
        elif statistic:
            yield from single(run, key, _LATENCIES[name], scale=MILLI, statistic=statistic, **facts)


def _facts(run: Fields) -> dict[str, Any]:
    completed = run.need("completed")
    prompt, answer = run.number("total_input_tokens"), run.number("total_output_tokens")
    return {
        "prompt_tokens": None if prompt is None else prompt / completed,
        "output_tokens": None if answer is None else answer / completed,
        "requests": completed,
        "concurrency": run.number("max_concurrency"),
        "request_rate": run.number("request_rate"),
        "tool": _TOOL,
    } | _server(run.inside("server_info"))


def _server(info: Fields) -> dict[str, Any]:
    """Take the few facts that are safe to keep: the rest holds launch arguments, with paths and keys among them."""
    if not info.data:
        return {}
    parallel = info.number("tp_size")
    return {
        "engine": SGLANG,
        "model": model_name(info.text("served_model_name") or info.text("model_path")),
        "weights": weights_name(info.text("quantization") or info.text("dtype")),
        "kv_cache": weights_name(info.text("kv_cache_dtype")),
        "tensor_parallel": int(parallel) if parallel else None,
        "version": info.text("version"),
    }


def _blocks(source: Source) -> Iterator[tuple[int, dict[str, Any], bool]]:
    """Yield the tables of a text, with the keys of the JSON form."""
    begun, closed = 0, False
    block: dict[str, Any] = {}
    for number, text in source.lines():
        if _BLOCK.search(text):
            if begun:
                yield begun, block, closed
            begun, block, closed = number, {}, False
        elif begun and (row := _ROW.search(text)) and (key := _key(row[1].lower())):
            block[key] = None if row[2] in {"not set", "trace"} else row[2]
        closed = closed or bool(_END.search(text))
    yield begun, block, closed


def _key(label: str) -> str | None:
    found = _LABEL.fullmatch(label)
    return f"{found[1]}_{found[2].replace(' ', '_')}_ms" if found else _LABELS.get(label)


FORMAT = Format(
    "sglang-serving",
    "result of SGLang's bench_serving",
    matches=lambda source: bool((_JSON if source.is_json else _TABLE).search(source.head)),
    read=_read,
)
