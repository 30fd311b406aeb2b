"""Values and spreads of a client's summary: mean, median and percentiles, under the names that the tools give them."""

import re
from collections.abc import Iterator
from typing import Any

from rooflinekit.measurements.fields import Fields
from rooflinekit.measurements.formats.format import Item
from rooflinekit.measurements.record import QUANTITIES, Measurement, Skipped

_STATISTICS = {
    "avg": "mean", "mean": "mean", "median": "median", "p50": "median", "min": "min", "max": "max",
    "std": "std", "std_dev": "std", "stdev": "std",
}  # fmt: skip
_PERCENTILE = re.compile(r"p\d{1,2}(?:\.\d+)?")
#: Nothing takes no time, and no rate of nought was measured: zeros stand for requests that failed or did not stream.
_NEVER_ZERO = frozenset({"s", "token/s", "request/s"})
#: What a client measures of each request.
_OF_A_REQUEST = frozenset({
    "time_to_first_token_s", "end_to_end_s", "request_per_token_s", "time_per_output_token_s",
    "inter_token_latency_s", "inter_chunk_latency_s", "output_tokens_per_s_per_user",
})  # fmt: skip


def statistic_of(key: str) -> str | None:
    """Name the statistic of a key, or None where it is none.

    >>> statistic_of("avg"), statistic_of("p50"), statistic_of("p99.9"), statistic_of("count")
    ('mean', 'median', 'p99.9', None)
    """
    return _STATISTICS.get(key) or (key if _PERCENTILE.fullmatch(key) else None)


def single(
    values: Fields,
    key: str,
    quantity: str,
    *,
    scale: float = 1.0,
    **facts: Any,  # noqa: ANN401 - a record's fields
) -> Iterator[Item]:
    """Give the record of one key; none where it is missing, and a reason where it is a nought that stands for none."""
    number = values.number(key)
    if number is None:
        return
    if number <= 0 and QUANTITIES[quantity].unit in _NEVER_ZERO:
        why = "spread of 0: one value, or none" if facts.get("statistic") == "std" else "nothing was measured"
        yield Skipped(f"{quantity} of 0 or less: {why}", values.line)
        return
    facts = {"phase": "request" if quantity in _OF_A_REQUEST else "", "line": values.line} | facts
    yield Measurement(quantity=quantity, value=number * scale, **facts)


def spread(
    values: Fields,
    quantity: str,
    *,
    scale: float = 1.0,
    **facts: Any,  # noqa: ANN401 - a record's fields
) -> Iterator[Item]:
    """Give the records of an object of statistics, each statistic once."""
    said: set[str] = set()
    for key, value in values.data.items():
        statistic = statistic_of(key)
        if statistic and statistic not in said and value is not None:
            said.add(statistic)
            yield from single(values, key, quantity, scale=scale, **facts, statistic=statistic)
