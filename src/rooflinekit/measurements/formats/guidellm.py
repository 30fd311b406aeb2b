"""GuideLLM's report (JSON). Request latency is in seconds, what ends in ``_ms`` in milliseconds.

Its "time per output token" holds the first token and its prefill, but not until 0.3; its inter token latency does not,
and weighs every gap alike. Groups without requests hold zeros.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from rooflinekit.measurements.fields import Fields
from rooflinekit.measurements.formats.format import Format, Item
from rooflinekit.measurements.formats.names import model_name
from rooflinekit.measurements.formats.spread import single, spread
from rooflinekit.measurements.record import Skipped
from rooflinekit.measurements.source import Source
from rooflinekit.units import MILLI

TOOL = "GuideLLM"
#: metric: quantity, scale
SPREADS: Mapping[str, tuple[str, float]] = {
    "request_latency": ("end_to_end_s", 1.0),
    "time_to_first_token_ms": ("time_to_first_token_s", MILLI),
    "time_per_output_token_ms": ("request_per_token_s", MILLI),
    "inter_token_latency_ms": ("inter_token_latency_s", MILLI),
    "prompt_token_count": ("prompt_tokens", 1.0),
    "output_token_count": ("output_tokens", 1.0),
}
#: Of these the mean alone is kept: the percentiles are of rates between two events, infinite where both coincide.
MEANS: Mapping[str, str] = {
    "requests_per_second": "requests_per_s",
    "request_concurrency": "requests_running",
    "prompt_tokens_per_second": "prompt_tokens_per_s",
    "output_tokens_per_second": "output_tokens_per_s",
    "tokens_per_second": "total_tokens_per_s",
}
#: p01 is the first percentile, p001 a tenth of one.
_KEYS = {"p001": "p0.1", "p01": "p1", "p05": "p5", "p999": "p99.9"}
_GAPS = (
    "time_per_output_token_ms until 0.3: the time after the first token over all tokens, that one too; "
    "inter_token_latency_ms is the same time over its gaps"
)
_HEAD = re.compile(r'"guidellm_version"\s*:|"type_"\s*:\s*"generative_benchmark"')


def metric(name: str, values: Fields, facts: Mapping[str, Any]) -> Iterator[Item]:
    """Give the records of one metric of the requests that succeeded: statistics, and percentiles by our names."""
    if values.number("count") == 0:
        yield Skipped(f"{name}: a group without requests", values.line)
    elif name in SPREADS:
        quantity, scale = SPREADS[name]
        own = {key: value for key, value in facts.items() if key != quantity}
        yield from spread(values, quantity, scale=scale, **own)
    elif name in MEANS:
        yield from single(values, "mean", MEANS[name], statistic="mean", **facts)
        yield Skipped("percentiles of rates between two events", values.line)


def load(strategy: str, streams: float | None, rate: float | None) -> dict[str, Any]:
    """Give the load of a strategy: streams in flight, or requests sent per second."""
    if strategy == "synchronous":
        return {"concurrency": 1.0}
    if strategy in {"concurrent", "throughput"}:
        return {"concurrency": streams}
    return {"request_rate": rate}


def _read(source: Source) -> Iterator[Item]:
    for line, data in source.objects():
        report = Fields(data, source, line)
        # until 0.3 neither a version nor the model stand beside the benchmarks
        version = report.inside("metadata").text("guidellm_version")
        # version 0.4 holds the model beside the benchmarks, later ones within
        asked = report.data.get("args")
        model = asked.get("model") if isinstance(asked, Mapping) else None
        for benchmark in report.objects("benchmarks"):
            yield from _benchmark(benchmark, {"version": version, "model": model_name(model), "tool": TOOL})


def _benchmark(benchmark: Fields, facts: dict[str, Any]) -> Iterator[Item]:
    metrics = benchmark.inside("metrics")
    totals = _totals(benchmark)
    if totals.data and not totals.number("successful"):
        yield Skipped("a benchmark in which no request succeeded", benchmark.line)
        return
    facts |= _facts(benchmark, metrics)
    yield from single(totals, "successful", "requests_completed", statistic="total", **facts)
    yield from single(totals, "errored", "requests_failed", statistic="total", **facts)
    yield from single(benchmark, "duration", "run_time_s", **facts)
    for name in metrics.data:
        if name == "time_per_output_token_ms" and _is_of_2025(benchmark):
            yield Skipped(_GAPS, benchmark.line)
        elif name in SPREADS or name in MEANS:
            yield from metric(name, _flat(metrics.inside(name).inside("successful")), facts)


def _is_of_2025(benchmark: Fields) -> bool:
    """Tell a benchmark of 0.2 or 0.3, which says its strategy and worker itself."""
    return isinstance(benchmark.data.get("args"), Mapping) and "strategy" in benchmark.inside("args").data


def _totals(benchmark: Fields) -> Fields:
    inner = benchmark.inside("metrics").inside("request_totals")
    return inner if inner.data else benchmark.inside("request_totals")


def _facts(benchmark: Fields, metrics: Fields) -> dict[str, Any]:
    config = benchmark.inside("config")
    places = (config, benchmark.inside("scheduler"), benchmark.inside("args") if _is_of_2025(benchmark) else config)
    strategy = next((one.inside("strategy") for one in places if one.data.get("strategy")), config.inside("strategy"))
    streams = strategy.number("streams") or strategy.number("max_concurrency")
    facts = {
        "requests": _totals(benchmark).number("successful"),
        "prompt_tokens": metrics.inside("prompt_token_count").inside("successful").number("mean"),
        "output_tokens": metrics.inside("output_token_count").inside("successful").number("mean"),
    } | load(strategy.text("type_") or "", streams, strategy.number("rate"))
    return facts | ({"model": model_name(model)} if (model := _model(config, benchmark.data.get("worker"))) else {})


def _model(config: Fields, worker: object) -> str | None:
    if isinstance(config.data.get("backend"), Mapping):
        return config.inside("backend").text("model")
    return Fields(worker, config.source, config.line).text("backend_model") if isinstance(worker, Mapping) else None


def _flat(group: Fields) -> Fields:
    """Lay the percentiles beside the mean, under our names."""
    percentiles = group.inside("percentiles").data
    named = {_KEYS.get(key, key): value for key, value in percentiles.items()}
    return Fields({**group.data, **named}, group.source, group.line)


FORMAT = Format(
    "guidellm",
    "report of GuideLLM",
    matches=lambda source: source.head.lstrip("\ufeff \t\r\n").startswith("{") and bool(_HEAD.search(source.head)),
    read=_read,
)
