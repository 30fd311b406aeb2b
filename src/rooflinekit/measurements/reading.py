"""Read a file: tell its format, collect its records, count what is skipped, and say what the file does not hold."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rooflinekit.errors import InvalidInputError
from rooflinekit.measurements.formats import FORMATS, Format, prometheus
from rooflinekit.measurements.formats.format import Item
from rooflinekit.measurements.record import FACTS, Measurement, Setting, Skipped, refusal
from rooflinekit.measurements.source import Source

if TYPE_CHECKING:
    import pandas as pd


#: A result that a script printed between its own lines.
_JSON_WITHIN = re.compile(r"(?<=\n)[ \t]*\{\s*\"")


@dataclass(frozen=True)
class Reading:
    """
    What a file holds.

    ``skipped`` counts, by reason, what became no record; ``lacks`` names the facts that no comparison can do without
    and that the file does not say; ``settings`` are those of the engine or client that it does.
    """

    file: str
    format: str
    records: tuple[Measurement, ...]
    settings: Mapping[str, str | float | bool]
    skipped: Mapping[str, int]
    lacks: tuple[str, ...]

    def __len__(self) -> int:
        """Count the records."""
        return len(self.records)

    def table(self) -> "pd.DataFrame":
        """Give the records as a tidy DataFrame, without columns that are empty throughout."""
        import pandas as pd  # noqa: PLC0415 - loads on first use

        names = list(Measurement.__dataclass_fields__)
        names.insert(2, "unit")
        table = pd.DataFrame([[getattr(one, name) for name in names] for one in self.records], columns=names)
        return table.replace("", None).dropna(axis="columns", how="all")


def read(
    file: str | Path,
    *,
    format: str | None = None,  # noqa: A002 - the word that users know
    content: bytes | None = None,
    **facts: Any,  # noqa: ANN401 - a record's fields
) -> Reading:
    r"""
    Read the measurements of one file; its format is told by what it holds, not by its name.

    Parameters
    ----------
    file : path
        The file; gzip is unpacked.
    format : str, optional
        Name of the format, where it cannot be told.
    content : bytes, optional
        What the file holds, where that was read already.
    **facts
        What the file does not say (``model``, ``device``, ``engine``, ``weights``, ``tensor_parallel``, ``batch``,
        ...); a fact that it does say is replaced.

    Returns
    -------
    reading : Reading

    Raises
    ------
    InvalidInputError
        The format cannot be told, the file is broken (file, line and field are named), or it holds no record.

    Examples
    --------
    >>> text = b"prompt eval time = 88.24 ms / 9 tokens\neval time = 2226.40 ms / 127 runs"
    >>> reading = read("run.txt", content=text, model="llama-3.2-1b")
    >>> reading.format, reading.records[-1]
    ('llama-timings', decode_time_s 2.2264 s)
    """
    source = _there(Source(file, content), content)
    chosen = _named(format) if format else detect(source)
    besides = () if format else _besides(chosen, source)
    return _collected(chosen, source, chain(chosen.read(source), besides), facts)


def read_between(before: str | Path, after: str | Path, **facts: Any) -> Reading:  # noqa: ANN401 - a record's fields
    """
    Read what two scrapes of one server's metrics say of the time between them.

    Parameters
    ----------
    before, after : path
        Prometheus text of vLLM, SGLang, TGI or llama-server.
    **facts
        As for :func:`read`.

    Returns
    -------
    reading : Reading
        Counters and histograms are subtracted, gauges are the later's; it is named after the later file.

    Raises
    ------
    InvalidInputError
        A file is no such text, or a counter fell: the server was started anew in between.
    """
    sources = _there(Source(before)), _there(Source(after))
    for source in sources:
        if not source.head_bytes or not prometheus.FORMAT.matches(source):
            source.refuse(f"is no scrape: expected {prometheus.FORMAT.title}")
    return _collected(prometheus.FORMAT, sources[1], prometheus.between(*sources), facts)


def _there(source: Source, content: bytes | None = None) -> Source:
    """Return a source that can be opened, or say why it cannot."""
    if content is None:
        try:
            source.path.open("rb").close()
        except OSError as fault:
            source.refuse(f"cannot be read ({fault.strerror}): expected a file of measurements")
    return source


def _collected(chosen: Format, source: Source, items: Iterator[Item], facts: Mapping[str, Any]) -> Reading:
    _known(facts)
    records: list[Measurement] = []
    settings: dict[str, str | float | bool] = {}
    skipped: Counter[str] = Counter()
    for item in _naming(source, items):
        if isinstance(item, Measurement):
            records.append(replace(item, file=source.name, **facts))
        elif isinstance(item, Setting):
            settings[item.name] = item.value
        else:
            skipped[item.why] += 1
    if not records:
        source.refuse(f"{chosen.title} without a record: {told(skipped) or 'it holds no measured value'}")
    lacks = (*(name for name in FACTS if _open(name, records)), *(name for name in chosen.asks if _some(name, records)))
    return Reading(source.name, chosen.name, tuple(records), settings, skipped, lacks)


def _some(name: str, records: list[Measurement]) -> bool:
    """Tell whether a record does not say it."""
    return any(getattr(one, name) is None for one in records)


def _open(name: str, records: list[Measurement]) -> bool:
    """Tell whether a fact is open: not where all records that say it agree, since a file's size says no device."""
    said = {getattr(one, name) for one in records} - {None}
    return len(said) != 1 and _some(name, records)


def _naming(source: Source, items: Iterator[Item]) -> Iterator[Item]:
    """Name the file in a refusal by a record, which does not know what it is read from."""
    try:
        yield from items
    except InvalidInputError as fault:
        if source.name in str(fault):
            raise
        raise refusal(source.name, None, str(fault)) from None


def detect(source: Source) -> Format:
    """Tell the format by the content."""
    if not source.head_bytes:
        source.refuse("is empty")
    for one in FORMATS:
        if one.matches(source):
            return one
    if not source.is_json and (found := _JSON_WITHIN.search(source.head)):
        line = source.head.count("\n", 0, found.start()) + 1
        source.refuse("is of no known format: JSON begins here, below other lines; read it without them", line)
    names = ", ".join(one.name for one in FORMATS)
    return source.refuse(f"is of no known format: expected one of {names}; `format=` says which it is")


def _besides(chosen: Format, source: Source) -> Iterator[Item]:
    """Name the other tools whose output the file holds too: it is read apart."""
    for one in FORMATS:
        if one is not chosen and one.matches(source):
            yield Skipped(f"{one.title} in the same file: format={one.name!r} (--format-of) reads it")


def told(skipped: Mapping[str, int]) -> str:
    """Say in one line what was skipped, and why."""
    return "; ".join(f"{count:,} x {why}" for why, count in skipped.items())


def _named(name: str) -> Format:
    for one in FORMATS:
        if one.name == name:
            return one
    message = f"format={name!r} is not known: expected one of {', '.join(one.name for one in FORMATS)}"
    raise InvalidInputError(message)


def _known(facts: Mapping[str, Any]) -> None:
    fields = set(Measurement.__dataclass_fields__) - {"quantity", "value", "file", "line"}
    for name in facts:
        if name not in fields:
            message = f"{name}={facts[name]!r}: no such fact: expected one of {', '.join(sorted(fields))}"
            raise InvalidInputError(message)
