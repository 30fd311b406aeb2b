"""Console text of ``vllm bench latency`` and ``throughput``, the older ``benchmark_latency.py`` and ``_throughput.py``.

Both print their arguments first, ``Namespace(...)``: where those were pasted too, batch, lengths and model are known.
"""

import re
from collections.abc import Iterator
from typing import Any

from rooflinekit.measurements.fields import read_number
from rooflinekit.measurements.formats.format import Format, Item
from rooflinekit.measurements.formats.names import VLLM, model_name, whole
from rooflinekit.measurements.formats.vllm_serve import TOOL
from rooflinekit.measurements.record import Measurement, Skipped, nothing
from rooflinekit.measurements.source import Source

_AVERAGE = re.compile(r"\bAvg latency: (\S+) seconds")
_PERCENTILE = re.compile(r"(?<![\d.])(\d{1,2}(?:\.\d+)?)% percentile latency: (\S+) seconds")
#: Until September 2024 a line of two rates: the tokens are those of prompt and output together, then as now.
_RATES = re.compile(r"\bThroughput: (\S+) requests/s, (\S+) (?:total )?tokens/s(?:, (\S+) output tokens/s)?")
_TOTAL = re.compile(r"\bTotal num (prompt|output) tokens:\s+(\d+)")
_ARGUMENTS = re.compile(r"\bNamespace\((.*)")
_PAIR = re.compile(
    r"\b(model|batch_size|input_len|output_len|num_prompts|tensor_parallel_size)=(?:'([^']*)'|([^,\s)]+))"
)
#: A log's result may stand after its first 64 KiB, so that its other lines tell it as well.
_OF_LATENCY = re.compile(rf"{_AVERAGE.pattern}|\bbench_type='latency'|\bProfiling iterations: ")
_OF_THROUGHPUT = re.compile(rf"{_RATES.pattern}|\bbench_type='throughput'")
_QUANTITIES = ("requests_per_s", "total_tokens_per_s", "output_tokens_per_s")


def _latencies(source: Source) -> Iterator[Item]:
    said: dict[str, str] = {}
    for number, text in source.lines():
        said = _said(text) or said
        average, percentile = _AVERAGE.search(text), _PERCENTILE.search(text)
        if average:
            yield _latency("mean", average[1], said, source, number)
        elif percentile:
            yield _latency(_statistic(percentile[1]), percentile[2], said, source, number)


def _latency(statistic: str, seconds: str, said: dict[str, str], source: Source, line: int) -> Item:
    value = read_number(seconds, "latency", source.name, line)
    if not value or value < 0:
        return Skipped(f"a latency of {nothing(value or 0.0)}", line)
    return Measurement(
        quantity="batch_latency_s", value=value, statistic=statistic, phase="mixed", batch=_count(said, "batch_size"),
        prompt_tokens=_count(said, "input_len"), output_tokens=_count(said, "output_len"),
        includes="the prefill and all decode steps", tool=TOOL, engine=VLLM, line=line, **_facts(said),
    )  # fmt: skip


def _statistic(percent: str) -> str:
    return "median" if percent == "50" else f"p{percent}"


def _throughputs(source: Source) -> Iterator[Item]:
    """Read run by run: the totals stand below the rates."""
    said: dict[str, str] = {}
    run: tuple[int, re.Match[str]] | None = None
    totals: dict[str, float] = {}
    for number, text in source.lines():
        said = _said(text) or said
        if found := _RATES.search(text):
            yield from _rates(run, totals, said, source)
            run, totals = (number, found), {}
        elif run and (total := _TOTAL.search(text)):
            totals[total[1]] = float(total[2])
    yield from _rates(run, totals, said, source)


def _rates(
    run: tuple[int, re.Match[str]] | None, totals: dict[str, float], said: dict[str, str], source: Source
) -> Iterator[Item]:
    if run is None:
        return
    line, found = run
    requests = _count(said, "num_prompts")
    lengths = {f"{name}_tokens": total / requests for name, total in totals.items() if requests}
    facts = {"requests": requests, "phase": "mixed", "tool": TOOL, "line": line, **lengths, **_facts(said)}
    for quantity, written in zip(_QUANTITIES, found.groups(), strict=True):
        value = read_number(written, quantity, source.name, line) if written else None
        if value is not None and value > 0:
            yield Measurement(quantity=quantity, value=value, **facts)
        elif value is not None:
            yield Skipped(f"{quantity} of {nothing(value)}", line)
    for name, total in totals.items():
        yield Measurement(quantity=f"{name}_tokens", value=total, statistic="total", **_without(facts, name))


def _without(facts: dict[str, Any], name: str) -> dict[str, Any]:
    """Leave out the length that the total is one of: it is no condition of itself."""
    return {key: value for key, value in facts.items() if key != f"{name}_tokens"}


def _said(text: str) -> dict[str, str]:
    """Give the kept arguments of a line that prints them."""
    found = _ARGUMENTS.search(text)
    return {name: quoted or plain for name, quoted, plain in _PAIR.findall(found[1])} if found else {}


def _count(said: dict[str, str], name: str) -> int | None:
    return whole(said.get(name, ""))


def _facts(said: dict[str, str]) -> dict[str, Any]:
    return {"model": model_name(said.get("model")), "tensor_parallel": _count(said, "tensor_parallel_size")}


LATENCY = Format(
    "vllm-latency-text",
    "console text of vllm bench latency",
    matches=lambda source: not source.is_json and bool(_OF_LATENCY.search(source.head)),
    read=_latencies,
    asks=("batch", "prompt_tokens", "output_tokens"),
)
THROUGHPUT = Format(
    "vllm-throughput-text",
    "console text of vllm bench throughput",
    matches=lambda source: not source.is_json and bool(_OF_THROUGHPUT.search(source.head)),
    read=_throughputs,
)
