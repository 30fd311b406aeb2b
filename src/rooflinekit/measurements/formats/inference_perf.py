"""inference-perf's reports: lifecycle metrics of a client, and metrics that Prometheus took from the server.

All in seconds. Three times per token: "normalized" is the whole request over its tokens, "time per output token"
leaves the first token out, "inter token latency" is every gap. The last two are per token only as far as the tool
counted tokens: the whole request tells.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from rooflinekit.measurements.fields import Fields
from rooflinekit.measurements.formats.format import Format, Item
from rooflinekit.measurements.formats.spread import single, spread
from rooflinekit.measurements.record import Skipped
from rooflinekit.measurements.source import Source

_TOOL = "inference-perf"
_LATENCIES: Mapping[str, str] = {
    "request_latency": "end_to_end_s",
    "time_to_first_token": "time_to_first_token_s",
    "time_per_output_token": "time_per_output_token_s",
    "normalized_time_per_output_token": "request_per_token_s",
    "inter_token_latency": "inter_token_latency_s",
}
_RATES: Mapping[str, str] = {
    "input_tokens_per_sec": "prompt_tokens_per_s",
    "output_tokens_per_sec": "output_tokens_per_s",
    "total_tokens_per_sec": "total_tokens_per_s",
    "requests_per_sec": "requests_per_s",
}
#: As the server counts, since 2026, and as the client does.
_LENGTHS: Mapping[str, tuple[str, str]] = {
    "prompt_tokens": ("prompt_tokens", "prompt_len"),
    "output_tokens": ("output_tokens", "output_len"),
}
#: Until 2026 each streamed piece was tokenised by itself: with a tokenizer that puts a token before a text, twice the
#: tokens were counted. Means over requests of unlike length differ by less.
_LEAST_PART = 0.8
_PIECES = (
    "time_per_output_token that request latency, first token and lengths contradict: pieces of tokens were counted"
)
_SERVER = "server's histograms in the time of the stage: other requests may be in it"
_HEAD = re.compile(r'"(?:load_summary|successes)"\s*:\s*\{')


def _read(source: Source) -> Iterator[Item]:
    for line, data in source.objects():
        report = Fields(data, source, line)
        successes = report.inside("successes")
        if not successes.number("count"):
            yield Skipped("a stage in which no request succeeded", line)
        elif "latency" in successes.data or "throughput" in successes.data:
            yield from _lifecycle(report, successes)
        else:
            yield from _prometheus(successes)


def _lifecycle(report: Fields, successes: Fields) -> Iterator[Item]:
    facts = _facts(report, successes)
    yield from single(successes, "count", "requests_completed", statistic="total", **facts)
    yield from single(report.inside("failures"), "count", "requests_failed", statistic="total", **facts)
    latency, rates = successes.inside("latency"), successes.inside("throughput")
    pieces = _counts_pieces(latency, facts["output_tokens"])
    for name in latency.data:
        if pieces and name == "time_per_output_token":
            yield Skipped(_PIECES, latency.line)
        elif name in _LATENCIES:
            quantity = "inter_chunk_latency_s" if pieces and name == "inter_token_latency" else _LATENCIES[name]
            yield from spread(latency.inside(name), quantity, **facts)
    for name in rates.data:
        if name in _RATES:
            yield from single(rates, name, _RATES[name], **facts)
    if successes.data.get("goodput_metrics"):
        yield Skipped("goodput_metrics: the limits are not in the report", report.line)
    for quantity in _LENGTHS:
        own = {key: value for key, value in facts.items() if key != quantity}
        yield from spread(_length(successes, quantity), quantity, **own)


def _counts_pieces(latency: Fields, tokens: float | None) -> bool:
    """Tell a report whose time per token is too short for its own requests: it counted tokens where there are none."""
    names = ("request_latency", "time_to_first_token", "time_per_output_token")
    whole, first, each = (latency.inside(name).number("mean") for name in names)
    if whole is None or first is None or each is None or not tokens or tokens <= 1:
        return False
    return each < _LEAST_PART * (whole - first) / (tokens - 1)


def _facts(report: Fields, successes: Fields) -> dict[str, Any]:
    load = report.inside("load_summary")
    cached = successes.inside("prompt_tokens").number("cached")  # 0 where the server does not tell
    return {
        "tool": _TOOL,
        "requests": successes.number("count"),
        "cached_tokens": cached / successes.need("count") if cached else None,
        "request_rate": load.number("requested_rate"),
        "concurrency": load.number("concurrency"),
    } | {quantity: _length(successes, quantity).number("mean") for quantity in _LENGTHS}


def _length(successes: Fields, quantity: str) -> Fields:
    held = (successes.inside(one) for one in _LENGTHS[quantity])
    return next((one for one in held if one.number("mean") is not None), Fields({}, successes.source, successes.line))


def _prometheus(successes: Fields) -> Iterator[Item]:
    """Give what is plain: means and rates. The percentiles are drawn within a histogram's buckets."""
    facts: dict[str, Any] = {"tool": _TOOL, "includes": _SERVER}
    for name in ("request_latency", "time_to_first_token"):
        yield from single(successes.inside(name), "mean", _LATENCIES[name], statistic="mean", **facts)
    yield from single(successes, "rate", "requests_per_s", **facts)
    for name, quantity in (("prompt_len", "prompt_tokens_per_s"), ("output_len", "output_tokens_per_s")):
        yield from single(successes.inside(name), "rate", quantity, **facts)
    for name in successes.data:
        if name in {"request_latency", "time_to_first_token"}:
            yield Skipped("percentiles drawn within a histogram's buckets", successes.line)
        elif name == "time_per_output_token":
            yield Skipped(
                "time_per_output_token of a server that is not named: what it averages differs", successes.line
            )
        elif name not in {"rate", "prompt_len", "output_len", "count"}:
            yield Skipped(f"{name}: unit or window not said", successes.line)


FORMAT = Format(
    "inference-perf",
    "report of inference-perf",
    matches=lambda source: source.is_json and '"load_summary"' in source.head and bool(_HEAD.search(source.head)),
    read=_read,
)
