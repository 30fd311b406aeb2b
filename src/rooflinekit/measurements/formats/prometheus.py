"""Prometheus text of vLLM, SGLang, TGI and llama-server: one scrape, or the difference of two.

Counters and histograms count since the server's start; of a histogram the mean is exact, a percentile is a bucket.
"""

import math
import re
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import pairwise

from rooflinekit.measurements.formats.format import Format, Item
from rooflinekit.measurements.formats.names import model_name
from rooflinekit.measurements.formats.prometheus_names import CACHE_LABELS, NAMES, Metric
from rooflinekit.measurements.formats.prometheus_page import (
    NAME,
    Key,
    Page,
    Sample,
    Total,
    parsed,
    subtracted,
    totals,
)
from rooflinekit.measurements.record import Measurement, Setting, Skipped
from rooflinekit.measurements.source import Source

_LINE = re.compile(r"^(?:vllm|sglang|tgi|llamacpp)[:_]\w+(?:\{[^\n]*\})?[ \t]+[-+\dNI.]", re.MULTILINE)
_PERCENTILES = (50, 99)
_SIZES = {"num_gpu_blocks": "kv_cache_blocks", "kv_cache_size_tokens": "kv_cache_tokens"}
_SHORT = re.compile(r"[\w.+-]{1,40}")


def _read(source: Source) -> Iterator[Item]:
    yield from _items(parsed(source), source, "since the server's start")


def between(before: Source, after: Source) -> Iterator[Item]:
    """
    Yield what two scrapes of one server say of the time between them.

    Parameters
    ----------
    before, after : Source
        The scrapes. Counters and histograms are subtracted, gauges are the later's.

    Raises
    ------
    InvalidInputError
        A counter fell: the server was started anew, or the scrapes are in the wrong order.
    """
    page = subtracted(parsed(before), parsed(after), before, after)
    yield from _items(page, after, "between two scrapes")


def _items(page: Page, source: Source, since: str) -> Iterator[Item]:
    found = totals(page)
    for key, total in found.items():
        names = NAMES[key.prefix]
        if metric := names.histograms.get(key.name):
            yield from _histogram(key, total, metric, since, source)
        elif metric := names.counters.get(key.name):
            yield _counter(key, total, metric, since)
        elif metric := names.gauges.get(key.name):
            yield _gauge(key, total, metric, found)
        elif key.name in names.settings:
            yield Setting(key.name, total.value)
        elif key.name in names.windows:
            yield Skipped("rate of one window of the log: no measurement", total.line)
        elif key.name != "cache_config_info" and not names.is_part_of_ratio(key.name):
            yield Skipped("metric that is no quantity of a phase", total.line)
    yield from _ratios(found, since)
    yield from _cache(page)


def _record(
    key: Key, metric: Metric, value: float, *, statistic: str, line: int, count: float | None = None, since: str = ""
) -> Measurement:
    names = NAMES[key.prefix]
    of_steps = metric.quantity == "decode_time_s"  # there `count` would be steps, and we know requests
    return Measurement(
        quantity=metric.quantity, value=value, statistic=statistic, phase=metric.phase, name=key.kind, model=key.model,
        count=None if of_steps else count, requests=count if of_steps else None, tool=names.tool, engine=names.engine,
        includes="; ".join(one for one in (metric.includes, since) if one), line=line,
    )  # fmt: skip


def _gauge(key: Key, total: Total, metric: Metric, found: Mapping[Key, Total]) -> Item:
    if not math.isfinite(total.value) or total.value < 0:
        return Skipped("gauge that is not set", total.line)
    running = found.get(key._replace(name=NAMES[key.prefix].running))
    if not total.value and not (running and running.value):
        return Skipped("gauge of 0 while nothing runs", total.line)
    return _record(key, metric, total.value, statistic="single", line=total.line)


def _counter(key: Key, total: Total, metric: Metric, since: str) -> Item:
    if not math.isfinite(total.value) or not total.value:
        return Skipped("counter of 0: nothing was served", total.line)
    return _record(key, metric, total.value, statistic="total", line=total.line, since=since)


def _histogram(key: Key, total: Total, metric: Metric, since: str, source: Source) -> Iterator[Item]:
    """Give the mean, and the bucket in which a percentile lies."""
    if total.sum is None or total.count is None:
        yield Skipped("histogram without its sum or count: the page was trimmed", total.line)
        return
    if not total.count or not total.sum or not math.isfinite(total.sum / total.count):
        yield Skipped("histogram without a value: nothing was served", total.line)
        return
    wrong = next((upper for lower, upper in pairwise(sorted(total.buckets)) if _falls(total, lower, upper)), None)
    if wrong is not None:
        source.refuse(f"{key.name}: the bucket up to {wrong:g} holds less than the one before it", total.line)
    record = partial(_record, key, metric, line=total.line, count=total.count, since=since)
    yield record(total.sum / total.count, statistic="mean")
    for percent in _PERCENTILES if total.buckets else ():
        for side, bound in _bounds(total, total.count * percent / 100):
            yield record(bound, statistic=f"p{percent}_{side}")


def _falls(total: Total, lower: float, upper: float) -> bool:
    return total.buckets[upper] < total.buckets[lower]


def _bounds(total: Total, rank: float) -> Iterator[tuple[str, float]]:
    """Give the limits of the bucket that holds a rank; none where it is open."""
    limits = sorted(total.buckets)
    below = [one for one in limits if total.buckets[one] < rank]
    if below and math.isfinite(below[-1]) and below[-1] > 0:
        yield "low", below[-1]
    if len(below) < len(limits) and math.isfinite(limits[len(below)]):
        yield "high", limits[len(below)]


def _ratios(found: Mapping[Key, Total], since: str) -> Iterator[Item]:
    for key, under in found.items():
        for ratio in NAMES[key.prefix].ratios:
            over = found.get(key._replace(name=ratio.over))
            if key.name != ratio.under or over is None:
                continue
            if not under.value:
                yield Skipped("counter of 0: nothing was served", under.line)
            else:
                metric = Metric(ratio.quantity, ratio.phase, ratio.includes)
                yield _record(key, metric, over.value / under.value, statistic="mean", line=over.line, since=since)


def _cache(page: Page) -> Iterator[Item]:
    """Give the size of each engine's cache, and the settings that all engines of the page share."""
    infos = [one for one in page.values() if one.name.endswith("cache_config_info")]
    for one in infos:
        yield from _sizes(one)
    for label in sorted({label for one in infos for label, _ in one.labels} & CACHE_LABELS):
        values = {dict(one.labels)[label] for one in infos if label in dict(one.labels)}
        if len(values) > 1:
            yield Skipped("setting in which the engines of the page differ")
        elif (value := _typed(values.pop())) is not None:
            yield Setting(label, value)


def _sizes(info: Sample) -> Iterator[Item]:
    labels = dict(info.labels)
    prefix = found[1] if (found := NAME.fullmatch(info.name)) else ""
    for label, quantity in _SIZES.items():
        held = _typed(labels.get(label, ""))
        if type(held) is float and held > 0:
            key = Key(prefix, label, model_name(labels.get("model_name")), "")
            yield _record(key, Metric(quantity, includes="one engine"), held, statistic="single", line=info.line)


def _typed(text: str) -> str | float | bool | None:
    """Read a label's value; None for none."""
    if not _SHORT.fullmatch(text) or text.lower() in {"none", "nan", "inf"}:
        return None
    if text in {"True", "False"}:
        return text == "True"
    try:
        return float(text)
    except ValueError:
        return text


FORMAT = Format(
    "prometheus",
    "Prometheus metrics of vLLM, SGLang, TGI or llama-server",
    matches=lambda source: bool(_LINE.search(source.head)),
    read=_read,
)
