"""AIPerf's and genai-perf's summary (JSON); every metric carries its unit, which is read rather than assumed.

Their "inter token latency" is (end to end - TTFT) / (tokens - 1), each request weighing the same: TPOT here.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from rooflinekit.measurements.fields import Fields
from rooflinekit.measurements.formats.format import Format, Item
from rooflinekit.measurements.formats.names import model_name
from rooflinekit.measurements.formats.spread import single, spread
from rooflinekit.measurements.record import QUANTITIES, Setting, Skipped
from rooflinekit.measurements.source import Source
from rooflinekit.units import MICRO, MILLI, NANO

QUANTITY_OF: Mapping[str, str] = {
    "time_to_first_token": "time_to_first_token_s",
    "inter_token_latency": "time_per_output_token_s",
    "inter_chunk_latency": "inter_chunk_latency_s",
    "request_latency": "end_to_end_s",
    "output_token_throughput": "output_tokens_per_s",
    "output_token_throughput_per_user": "output_tokens_per_s_per_user",
    "total_token_throughput": "total_tokens_per_s",
    "request_throughput": "requests_per_s",
    "request_count": "requests_completed",
    "error_request_count": "requests_failed",
    "benchmark_duration": "run_time_s",
    "input_sequence_length": "prompt_tokens",
    "output_sequence_length": "output_tokens",
    "total_isl": "prompt_tokens",
    "total_osl": "output_tokens",
    "gpu_power_usage": "power_w",
}
#: Of metrics with one value: what that value is.
_ONE_VALUE = {
    "request_count": "total", "error_request_count": "total", "benchmark_duration": "single", "total_isl": "total",
    "total_osl": "total", "output_token_throughput": "single", "total_token_throughput": "single",
    "request_throughput": "single",
}  # fmt: skip
#: What is left out, and why: each follows from another metric, or mixes what no quantity of ours does.
LEFT_OUT: Mapping[str, str] = {
    name: f"{name}: {why}"
    for why, names in {
        "prompt length / TTFT of each request": ("prefill_throughput", "prefill_throughput_per_user"),
        "output length / latency of each request": ("e2e_output_token_throughput",),
        "a single gap of each answer": ("time_to_second_token",),
        "TTFT without reasoning tokens": ("time_to_first_output_token",),
    }.items()
    for name in names
}
_NO_QUANTITY = "metric that is no quantity of a phase"
_TOKENS = {"tokens": 1.0, "token": 1.0}
_PER_SECOND = {"tokens/sec": 1.0, "tokens/s": 1.0, "tokens/sec/user": 1.0, "tokens/s/user": 1.0}
_UNITS: Mapping[str, Mapping[str, float]] = {
    "s": {"ns": NANO, "us": MICRO, "µs": MICRO, "ms": MILLI, "s": 1.0, "sec": 1.0, "seconds": 1.0},
    "token": _TOKENS,
    "token/s": _PER_SECOND,
    "request/s": {"requests/sec": 1.0, "requests/s": 1.0, "per sec": 1.0},
    "request": {"requests": 1.0, "count": 1.0, "": 1.0},
    "W": {"w": 1.0, "mw": MILLI},
}
_HEAD = re.compile(r'"(?:time_to_first_token|request_(?:latency|throughput|count)|output_\w+)"\s*:\s*\{\s*"unit"\s*:')


def metric(name: str, values: Fields, facts: Mapping[str, Any]) -> Iterator[Item]:
    """Give the records of one metric: an object with a unit and statistics, or with a single `avg`."""
    quantity = QUANTITY_OF.get(name)
    if name in LEFT_OUT:
        yield Skipped(LEFT_OUT[name], values.line)
    elif quantity in {"prompt_tokens", "output_tokens"} and name not in _ONE_VALUE:
        # its own length is no condition of a length
        own = {key: value for key, value in facts.items() if key != quantity}
        yield from spread(values, quantity, scale=scale_of(values, quantity), **own)
    elif quantity and name in _ONE_VALUE:
        yield from single(
            values, "avg", quantity, scale=scale_of(values, quantity), statistic=_ONE_VALUE[name], **facts
        )
    elif quantity:
        yield from spread(values, quantity, scale=scale_of(values, quantity), **facts)


def scale_of(values: Fields, quantity: str) -> float:
    """Give what a value is multiplied with, by the unit that stands beside it."""
    unit = (values.text("unit") or "").lower()
    known = _UNITS[QUANTITIES[quantity].unit]
    if unit not in known:
        values.refuse("unit", f"expected one of {', '.join(one for one in known if one)}")
    return known[unit]


def _read(source: Source) -> Iterator[Item]:
    for line, data in source.objects():
        yield from _summary(Fields(data, source, line))


def _summary(data: Fields) -> Iterator[Item]:
    asked = data.inside("request_count")
    if asked.data and not asked.number("avg"):
        yield Skipped("a run in which no request finished", data.line)
        return
    facts = _facts(data)
    for name, value in data.data.items():
        if value is not None and (name in QUANTITY_OF or name in LEFT_OUT):
            yield from metric(name, data.inside(name), facts)
        elif isinstance(value, Mapping) and "unit" in value:
            yield Skipped(_NO_QUANTITY, data.line)
    yield from _power(data, facts)
    if data.data.get("warmup_metrics"):
        yield Skipped("metrics of the warm-up", data.line)
    if data.data.get("was_cancelled"):
        yield Setting("was_cancelled", value=True)


def _facts(data: Fields) -> dict[str, Any]:
    is_aiperf = "aiperf_version" in data.data or "was_cancelled" in data.data
    names = {name for name, _, _ in _gpus(data) if name}
    return {
        "tool": "AIPerf" if is_aiperf else "genai-perf",
        "version": data.text("aiperf_version"),
        "device": names.pop() if len(names) == 1 else None,
        "requests": data.inside("request_count").number("avg"),
        "prompt_tokens": data.inside("input_sequence_length").number("avg"),
        "output_tokens": data.inside("output_sequence_length").number("avg"),
    } | _asked(data.inside("input_config"))


def _asked(config: Fields) -> dict[str, Any]:
    """Give model and load as the configuration says; its shape changed three times, and it may hold URLs."""
    phases = config.data.get("phases")
    last = phases[-1] if isinstance(phases, list) and phases else phases
    stimulus = config.inside("perf_analyzer").data.get("stimulus") if "perf_analyzer" in config.data else None
    places = [config.data.get("loadgen"), last, stimulus, config.data]
    loads = [Fields(one, config.source, config.line) for one in places if isinstance(one, Mapping)]
    numbers = {key: [_plain(one, key) for one in loads] for key in ("concurrency", "request_rate", "rate")}
    return {
        "model": model_name(_model(config)),
        "concurrency": next((one for one in numbers["concurrency"] if one), None),
        "request_rate": next((one for one in numbers["request_rate"] + numbers["rate"] if one), None),
    }


def _plain(load: Fields, key: str) -> float | None:
    value = load.data.get(key)
    return load.number(key) if type(value) in {int, float} else None


def _model(config: Fields) -> str | None:
    """Give the model's name, where there is one."""
    endpoint, models = config.data.get("endpoint"), config.data.get("models")
    places = [
        endpoint.get("model_names") if isinstance(endpoint, Mapping) else None,
        config.data.get("model_names"),
        models.get("items") if isinstance(models, Mapping) else models,
        config.data.get("model"),
    ]
    for found in places:
        one = found[0] if isinstance(found, list) and len(found) == 1 else found
        one = one.get("name") if isinstance(one, Mapping) else one
        if isinstance(one, str):
            return one
    return None


def _gpus(data: Fields) -> Iterator[tuple[str | None, str, Fields]]:
    """Yield name, number and metrics of each GPU, once where two endpoints show the same."""
    seen: set[str] = set()
    endpoints = data.inside("telemetry_data").inside("endpoints")
    for endpoint in endpoints.data:
        gpus = endpoints.inside(endpoint).inside("gpus")
        for key in gpus.data:
            gpu = gpus.inside(key)
            identity = gpu.text("gpu_uuid") or f"{endpoint} {key}"
            if identity not in seen:
                seen.add(identity)
                yield gpu.text("gpu_name"), f"gpu{gpu.number('gpu_index') or 0:.0f}", gpu.inside("metrics")


def _power(data: Fields, facts: Mapping[str, Any]) -> Iterator[Item]:
    for device, number, metrics in _gpus(data):
        if metrics.data.get("gpu_power_usage"):
            own = {**facts, "device": device, "name": number}
            yield from metric("gpu_power_usage", metrics.inside("gpu_power_usage"), own)


FORMAT = Format(
    "aiperf",
    "summary of AIPerf or genai-perf",
    matches=lambda source: source.head.lstrip("\ufeff \t\r\n").startswith("{") and bool(_HEAD.search(source.head)),
    read=_read,
)
