"""A page of Prometheus text: parsed line by line, subtracted from a later one, added up over engines and ranks."""

import importlib
import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from rooflinekit.errors import InvalidInputError
from rooflinekit.measurements.formats.names import model_name
from rooflinekit.measurements.formats.prometheus_names import KINDS, NAMES, PARTS, RANKS
from rooflinekit.measurements.source import Source

NAME = re.compile(r"(vllm|sglang|tgi|llamacpp)[:_](\w+)")
_SUFFIX = re.compile(r"_(bucket|sum|count)$")
_START = "process_start_time_seconds"


class Sample(NamedTuple):
    """One line of a page."""

    name: str
    labels: tuple[tuple[str, str], ...]
    value: float
    line: int


class Key(NamedTuple):
    """What samples of several engines are added up by."""

    prefix: str
    name: str
    model: str | None
    kind: str


@dataclass
class Total:
    """A metric of one model over its engines: of a gauge or counter `value`, of a histogram the rest."""

    line: int
    value: float = 0.0
    sum: float | None = None
    count: float | None = None
    buckets: dict[float, float] = field(default_factory=dict)


Page = dict[tuple[str, tuple[tuple[str, str], ...]], Sample]


# ---- parsing


def parsed(source: Source) -> Page:
    """Parse line by line, so that a message can name the line; metrics of no engine are left out."""
    parse = _parser()
    page: Page = {}
    for number, text in source.lines():
        if not text.strip() or text.startswith("#"):
            continue
        for sample in _samples(parse, text, source, number):
            key = (sample.name, sample.labels)
            if key in page:
                first = f"{sample.name} comes twice (first in line {page[key].line})"
                source.refuse(f"{first}: expected one scrape a file, two are read with `read_between`", number)
            if NAME.fullmatch(sample.name) or sample.name == _START:
                page[key] = sample
    return page


def _parser() -> Callable[[str], Iterator[object]]:
    try:
        parser = importlib.import_module("prometheus_client.parser")
    except ImportError:
        message = 'Prometheus text is read with prometheus_client: `pip install "rooflinekit[metrics]"`'
        raise InvalidInputError(message) from None
    found: Callable[[str], Iterator[object]] = parser.text_string_to_metric_families
    return found


def _samples(parse: Callable[[str], Iterator[object]], text: str, source: Source, number: int) -> list[Sample]:
    try:
        found = [one for family in parse(f"{text}\n") for one in getattr(family, "samples", ())]
        for one in found:
            float(one.labels.get("le", 0))
        return [Sample(one.name, tuple(sorted(one.labels.items())), float(one.value), number) for one in found]
    except (ValueError, IndexError, KeyError, TypeError, OverflowError):
        return source.refuse("no line of a metrics page: expected NAME{LABELS} VALUE; the page may be cut", number)


# ---- two pages


def subtracted(earlier: Page, later: Page, before: Source, after: Source) -> Page:
    """Give the later page, with what was counted since the earlier one."""
    gone = next((one.name for key, one in earlier.items() if key not in later and _grows(one)), None)
    if gone or _started(earlier) != _started(later):
        why = f"it lacks {gone}" if gone else "the process started at another time"
        after.refuse(f"{why}: this is not the server of {before.name}, or it was started anew in between")
    return {key: _less(one, earlier.get(key), before, after) for key, one in later.items()}


def _started(page: Page) -> list[float]:
    return sorted(one.value for one in page.values() if one.name == _START)


def _less(later: Sample, earlier: Sample | None, before: Source, after: Source) -> Sample:
    if earlier is None or not _grows(later):
        return later
    if later.value < earlier.value:
        fell = f"{later.name} fell from {earlier.value:g} ({before.name}) to {later.value:g}"
        after.refuse(f"{fell}: the server was started anew in between, or the order is wrong", later.line)
    return later._replace(value=later.value - earlier.value)


def _grows(sample: Sample) -> bool:
    """Tell a counter or a part of a histogram."""
    found = NAME.fullmatch(sample.name)
    if not found:
        return False
    names = NAMES[found[1]]
    name, part = _named(found[1], found[2], dict(sample.labels))
    return name in names.histograms if part else name in names.counters or names.is_part_of_ratio(name)


# ---- adding up


def totals(page: Page) -> dict[Key, Total]:
    """Add the engines of a page up; of ranks that report the same, the one that says most counts."""
    engines: dict[tuple[Key, str, str], dict[tuple[tuple[str, str], ...], Sample]] = defaultdict(dict)
    for one, prefix, written in _without_old(page):
        labels = dict(one.labels)
        name, part = _named(prefix, written, labels)
        key = Key(
            prefix,
            name,
            model_name(labels.get("model_name") or labels.get("name")),
            next((labels[kind] for kind in KINDS if kind in labels), ""),
        )
        held = engines[key, part, labels.get("le", "")]
        engine = tuple(pair for pair in one.labels if pair[0] not in RANKS)
        if engine not in held or one.value > held[engine].value:
            held[engine] = one
    found: dict[Key, Total] = {}
    for (key, part, limit), samples in engines.items():
        total = found.setdefault(key, Total(line=min(one.line for one in samples.values())))
        _put(total, part, limit, _over_engines(key, [one.value for one in samples.values()]))
    return found


def _without_old(page: Page) -> Iterator[tuple[Sample, str, str]]:
    """Leave out old names where the page has the new one too, and the times at which counters were created."""
    ours = [(one, found[1], found[2]) for one in page.values() if (found := NAME.fullmatch(one.name))]
    present = {(prefix, _base(name)) for _, prefix, name in ours}
    for one, prefix, name in ours:
        renamed = NAMES[prefix].old.get(_base(name))
        if not name.endswith("_created") and (prefix, renamed) not in present:
            yield one, prefix, name


def _base(name: str) -> str:
    return _SUFFIX.sub("", name).removesuffix("_total")


def _named(prefix: str, name: str, labels: Mapping[str, str]) -> tuple[str, str]:
    """Give the name as the tables have it, and which part of a histogram it is."""
    part = found[1] if (found := _SUFFIX.search(name)) else ""
    base = NAMES[prefix].old.get(_base(name), _base(name))
    # IBM's fork prints a whole dictionary as the value of `method`: its last word is the method.
    words = (word for one in PARTS if one in labels for word in re.findall(r"\w+", labels[one])[-1:])
    names = NAMES[prefix]
    parts = (f"{base}/{word}" for word in words)
    return next((one for one in parts if one in names.histograms or one in names.counters), base), part


def _over_engines(key: Key, values: list[float]) -> float:
    metric = NAMES[key.prefix].gauges.get(key.name)
    return max(values) if metric and metric.over_engines == "max" else math.fsum(values)


def _put(total: Total, part: str, limit: str, value: float) -> None:
    if part == "bucket":
        total.buckets[float(limit or "inf")] = value
    elif part == "sum":
        total.sum = value
    elif part == "count":
        total.count = value
    else:
        total.value = value
