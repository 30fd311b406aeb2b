"""SGLang's ``bench_one_batch`` (JSONL, and the text that it prints) and ``bench_one_batch_server`` (JSONL).

The first runs the model without a server: the whole batch in one prefill, then single decode steps. The second sends a
batch to a server, which may prefill in chunks: its times hold HTTP and scheduling.
"""

import re
from collections.abc import Iterator
from typing import Any

from rooflinekit.measurements.fields import Fields
from rooflinekit.measurements.formats.format import Format, Item
from rooflinekit.measurements.formats.names import SGLANG
from rooflinekit.measurements.formats.sglang_log import Startup
from rooflinekit.measurements.formats.spread import single
from rooflinekit.measurements.record import Skipped
from rooflinekit.measurements.source import Source

_TOOL, _SERVER_TOOL = "sglang bench_one_batch", "sglang bench_one_batch_server"
_JSON = re.compile(r'"(?:prefill_latency|last_ttft|run_name)"\s*:')
_TEXT = re.compile(r"Prefill\. +latency: *[\d.]+ s")
_TIME = re.compile(r"(Prefill|Decode|Total)[^:]*?(?:Batch size: *(\d+),)? *(median )?latency: *(\S+) s\b")
_RATE = re.compile(r"throughput: *(\S+) token/s")
_WARM_UP, _BENCHMARK = re.compile(r"^\W*Warmup\b"), re.compile(r"^\W*Benchmark \.\.\.")


def _read(source: Source) -> Iterator[Item]:
    if source.is_json:
        for line, data in source.objects():
            row = Fields(data, source, line)
            yield from (_of_server(row) if "last_ttft" in data else _of_batch(row))
    else:
        yield from _text(source)


def _of_batch(row: Fields) -> Iterator[Item]:
    batch, prompt, answer = row.need("batch_size"), row.need("input_len"), row.need("output_len")
    facts: dict[str, Any] = {
        "batch": batch, "prompt_tokens": prompt, "tool": _TOOL, "engine": SGLANG,
    }  # fmt: skip
    row.need("prefill_latency")
    yield from single(row, "prefill_latency", "prefill_time_s", phase="prefill", **facts)
    yield from single(row, "prefill_throughput", "prompt_tokens_per_s", **facts | {"phase": "prefill"})
    facts["output_tokens"] = answer
    median = facts | {"phase": "decode", "statistic": "median", "count": answer - 1}
    yield from single(row, "median_decode_latency", "decode_step_s", **median)
    yield from single(row, "median_decode_throughput", "output_tokens_per_s", **median)
    yield from single(row, "total_latency", "batch_latency_s", phase="mixed", **facts)
    yield from single(row, "overall_throughput", "total_tokens_per_s", **facts)


def _of_server(row: Fields) -> Iterator[Item]:
    """Give the records of a batch sent to a server, which need not be SGLang's."""
    batch, made = row.need("batch_size"), row.number("total_output_tokens")
    cached = row.number("cache_hit_rate") or 0.0
    facts: dict[str, Any] = {
        "batch": batch, "prompt_tokens": row.need("input_len"), "tool": _SERVER_TOOL,
        "output_tokens": row.need("output_len") if made is None else made / batch,
    }  # fmt: skip
    note = "; part of the prompt was cached" if cached else ""
    row.need("latency")
    yield from single(row, "latency", "batch_latency_s", phase="mixed", includes=f"HTTP and scheduling{note}", **facts)
    last = f"until the batch's last first token{note}"
    yield from single(row, "last_ttft", "time_to_first_token_s", statistic="max", includes=last, **facts)
    yield from single(row, "input_throughput", "prompt_tokens_per_s", phase="prefill", includes=last, **facts)
    decode = facts | {"phase": "decode"}
    yield from single(
        row, "output_throughput", "output_tokens_per_s", includes="after the batch's last first token", **decode
    )
    yield from single(
        row, "steady_state_output_throughput", "output_tokens_per_s", includes="steady state only", **decode
    )
    yield from single(row, "overall_throughput", "total_tokens_per_s", **facts)
    if cached:
        yield from single(row, "cache_hit_rate", "prefix_cache_hit_rate", **facts)
    if (row.number("acc_length") or 0) > 0:  # -1 where nothing is drafted
        yield from single(row, "acc_length", "accepted_tokens_per_step", statistic="mean", **decode)
    if row.number("last_gen_throughput") is not None:
        yield Skipped("last_gen_throughput: a gauge of one interval, of one rank", row.line)


def _text(source: Source) -> Iterator[Item]:
    startup, warm_up, begun = Startup(source), False, False
    block: list[tuple[int, re.Match[str], str]] = []
    for number, text in source.lines():
        if _WARM_UP.search(text) or _BENCHMARK.search(text):
            yield from _block(source, block) if begun else _warm_up(block)
            block, warm_up, begun = [], bool(_WARM_UP.search(text)), True
        elif not (found := _TIME.search(text)):
            yield from startup.items(number, text)
        elif warm_up:
            yield Skipped("a line of the warm-up", number)
        else:
            if found[1] == "Prefill":
                yield from _block(source, block)
                block = []
            block.append((number, found, text))
    yield from _block(source, block)


def _warm_up(block: list[tuple[int, re.Match[str], str]]) -> Iterator[Item]:
    """Leave out what stands before the first `Benchmark ...`: the warm-up, the line above which was not pasted."""
    yield from (Skipped("a line of the warm-up", number) for number, _, _ in block)


def _block(source: Source, block: list[tuple[int, re.Match[str], str]]) -> Iterator[Item]:
    """Give the records of one batch; its size stands in the lines of the steps, in newer versions only."""
    size = next((float(found[2]) for _, found, _ in block if found[2]), None)
    facts: dict[str, Any] = {"batch": size, "tool": _TOOL, "engine": SGLANG}
    for number, found, text in block:
        rate = _RATE.search(text)
        row = Fields({"latency": found[4], "throughput": rate[1] if rate else None}, source, number)
        if found[1] == "Prefill":
            yield from single(row, "latency", "prefill_time_s", phase="prefill", **facts)
            yield from single(row, "throughput", "prompt_tokens_per_s", phase="prefill", **facts)
        elif found[1] == "Total":
            yield from single(row, "latency", "batch_latency_s", phase="mixed", **facts)
            yield from single(row, "throughput", "total_tokens_per_s", **facts)
        elif found[3]:
            step = facts | {"phase": "decode", "statistic": "median"}
            yield from single(row, "latency", "decode_step_s", **step)
            yield from single(row, "throughput", "output_tokens_per_s", **step)
        else:
            yield Skipped("a single decode step, the first of which is slower: the median of all is kept", number)


def _matches(source: Source) -> bool:
    if source.is_json:
        return bool(_JSON.search(source.head)) and '"batch_size"' in source.head and '"input_len"' in source.head
    return bool(_TEXT.search(source.head))


FORMAT = Format(
    "sglang-one-batch",
    "result of SGLang's bench_one_batch or bench_one_batch_server",
    matches=_matches,
    read=_read,
    asks=("batch", "prompt_tokens"),
)
