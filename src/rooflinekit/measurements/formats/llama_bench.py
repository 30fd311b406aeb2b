"""llama-bench's csv, json and jsonl: a row a test, the mean over its repetitions, at batch 1.

A `pp` row reads `n_prompt` tokens, a `tg` row makes `n_gen` decode steps, both on `n_depth` tokens that are in the
cache before the clock starts. Tokenising and sampling are not in the time.
"""

import re
from collections.abc import Iterator
from typing import Any, NoReturn

from rooflinekit.measurements.fields import Fields
from rooflinekit.measurements.formats.format import Format, Item
from rooflinekit.measurements.formats.llama_names import (
    ENGINE,
    build_of,
    cache_of,
    file_or_name,
    weights_of,
    without_addresses,
)
from rooflinekit.measurements.record import Measurement, Setting, Skipped
from rooflinekit.measurements.source import Source
from rooflinekit.units import NANO

TOOL = "llama-bench"
_HEADER = re.compile(r'^(?=.*\bn_prompt\b)(?=.*\bn_gen\b)(?=.*\bavg_(?:ns|ts)\b)[\w", ]+$|^"?build_commit"?,')
_OBJECT = re.compile(
    r'"n_prompt"\s*:[^{}]*"n_gen"\s*:[^{}]*"avg_(?:ns|ts)"\s*:|"build_(?:commit|number)"\s*:[^{}]*"model_(?:filename|type)"\s*:'
)
#: How JSON begins on a line; what a script prints before a table may stand in brackets.
_JSON_LINE = re.compile(r"[\ufeff\s]*(?:\{\s*(?:\"|\Z)|\[\s*(?:\{|\Z))")
_COMMIT = re.compile(r"[0-9a-f]*")
#: How SQLite keeps the table that llama-bench's SQL makes; the name alone may stand in any database.
_SQL_TABLE = re.compile(rb"CREATE TABLE [\"'`\[]?(?:llama_bench|test)\b[\"'`\]]?\s*\(\s*build_")
#: Given as settings where all rows have the same, else with each record.
_SETTINGS = ("backends", "n_batch", "n_ubatch", "n_threads", "n_gpu_layers", "n_cpu_moe", "split_mode", "no_kv_offload",
             "flash_attn")  # fmt: skip
#: A rate may differ so far from tokens / time, beside what the spread of the repetitions makes of a mean of rates.
_TOLERANCE = 0.01


def _read(source: Source) -> Iterator[Item]:
    held = list(_rows(source))
    yield from (one for one in held if isinstance(one, Skipped))
    rows = [one for one in held if isinstance(one, Fields)]
    same = {name: {str(row.data.get(name, "")) for row in rows} for name in _SETTINGS}
    varying = [name for name, values in same.items() if len(values) > 1]
    for name in (name for name in _SETTINGS if name not in varying):
        if rows and isinstance(value := rows[0].data.get(name), str | int | float) and value != "":
            yield Setting(name, value)
    sizes: set[tuple[str | None, float]] = set()
    for row in rows:
        yield from _size(row, sizes)
        yield from _items(row, varying)


# ---- rows


def _rows(source: Source) -> Iterator[Fields | Skipped]:
    for number, text in source.lines():
        if _JSON_LINE.match(text):
            for line, one in (source if number == 1 else _without_preamble(source, number)).objects():
                yield Fields(one, source, line)
            return
        if _HEADER.search(text):
            yield from _table(source, number)
            return


def _without_preamble(source: Source, first: int) -> Source:
    """Blank out what the backends print before the table, so that lines keep their numbers."""
    kept = [text if number >= first else "" for number, text in source.lines()]
    return Source(source.name, "\n".join(kept).encode())


def _table(source: Source, header: int) -> Iterator[Fields | Skipped]:
    names: list[str] = []
    for line, row in source.rows(header):
        if not any(row):
            continue
        if not names or row[0].strip() == names[0]:  # runs written one after another
            names = [name.strip() for name in row]
            if missing := {"n_prompt", "n_gen"} - set(names):
                source.refuse(f"the header lacks {', '.join(sorted(missing))}: expected llama-bench's own", line)
        elif len(row) == 1 and not _COMMIT.fullmatch(row[0]):  # a fence, or what a script prints between runs
            yield Skipped("a line that is no row of the table", line)
        elif len(row) != len(names):
            _refuse_width(source, line, len(row), len(names))
        else:
            yield Fields(dict(zip(names, row, strict=True)), source, line)


def _refuse_width(source: Source, line: int, found: int, expected: int) -> NoReturn:
    source.refuse(
        f"{found} values under {expected} names: the row is cut or a column was lost, and which value belongs where "
        "cannot be told; run `llama-bench -o jsonl` and read that",
        line,
    )


# ---- records


def _size(row: Fields, seen: set[tuple[str | None, float]]) -> Iterator[Item]:
    facts = _facts(row)
    size = row.number("model_size")
    if size and (facts["model"], size) not in seen:
        seen.add((facts["model"], size))
        kept = {name: facts[name] for name in ("model", "weights", "engine", "tool", "version", "line")}
        yield Measurement(quantity="weight_bytes", value=size, includes="all tensors of the file", **kept)
        if facts["weights"] is None:
            yield Skipped("weights: the printed type is none that we know, or the size contradicts it", row.line)


def _items(row: Fields, varying: list[str]) -> Iterator[Item]:
    prompt, steps = row.need("n_prompt"), row.need("n_gen")
    nanoseconds, rate = row.number("avg_ns"), row.number("avg_ts")
    if not (prompt or steps) or not (nanoseconds or rate):
        yield Skipped("a test of no tokens, or without a time", row.line)
        return
    _check(row, prompt + steps)
    facts = facts_of_test(prompt, steps, row.number("n_depth") or 0.0) | _facts(row) | _conditions(row, varying)
    if nanoseconds and not (prompt and steps):
        spread = row.number("stddev_ns")
        quantity = "prefill_time_s" if prompt else "decode_time_s"
        yield from with_spread(quantity, nanoseconds * NANO, None if spread is None else spread * NANO, facts)
    elif rate:
        yield from with_spread(rate_of(prompt, steps), rate, row.number("stddev_ts"), facts)
    else:
        yield Skipped("a test that mixes prompt and output, without a rate", row.line)


def facts_of_test(prompt: float, steps: float, depth: float) -> dict[str, Any]:
    """Give what a test of llama-bench is; the markdown table has the same."""
    phase = "mixed" if prompt and steps else "prefill" if prompt else "decode"
    return {
        "phase": phase, "batch": 1, "prompt_tokens": prompt or None, "output_tokens": steps or None,
        "context_tokens": depth, "count": steps if phase == "decode" else None, "tool": TOOL, "engine": ENGINE,
    }  # fmt: skip


def rate_of(prompt: float, steps: float) -> str:
    """Name the quantity of a test's rate."""
    if prompt and steps:
        return "total_tokens_per_s"
    return "prompt_tokens_per_s" if prompt else "output_tokens_per_s"


def with_spread(quantity: str, value: float, spread: float | None, facts: dict[str, Any]) -> Iterator[Item]:
    """Yield a mean and its standard deviation; that of a single repetition is 0 and says nothing."""
    yield Measurement(quantity=quantity, value=value, statistic="mean", **facts)
    if spread:
        yield Measurement(quantity=quantity, value=spread, statistic="std", **facts)
    elif spread is not None:
        yield Skipped("standard deviation of 0: a single repetition", facts["line"])


def _check(row: Fields, tokens: float) -> None:
    """Refuse a rate that tokens and time do not give: columns that slipped, or values edited by hand."""
    nanoseconds, rate = row.number("avg_ns"), row.number("avg_ts")
    if not nanoseconds or not rate:
        return
    expected = tokens / (nanoseconds * NANO)
    spread = (row.number("stddev_ns") or 0.0) / nanoseconds
    if abs(rate / expected - 1) > _TOLERANCE + 2 * spread**2:
        row.refuse("avg_ts", f"expected about {expected:.6g}, {tokens:.0f} tokens over avg_ns: columns have slipped or "
                             "were edited; run `llama-bench -o jsonl` and read that")  # fmt: skip


def _facts(row: Fields) -> dict[str, Any]:
    kind, size = row.text("model_type"), row.number("model_size")
    return {
        "model": file_or_name(row.text("model_filename")) or kind,
        "device": without_addresses(row.text("gpu_info")) or without_addresses(row.text("cpu_info")),
        "weights": weights_of(kind, size, row.number("model_n_params")),
        "kv_cache": cache_of(row.text("type_k"), row.text("type_v")),
        "version": build_of(_written(row, "build_number"), _written(row, "build_commit")),
        "engine": ENGINE,
        "tool": TOOL,
        "line": row.line,
    }


def _written(row: Fields, key: str) -> str | None:
    value = row.data.get(key)
    return str(value) if isinstance(value, str | int) and value != "" else None


def _conditions(row: Fields, varying: list[str]) -> dict[str, str]:
    """Say what differs from row to row, and what is not on the GPU."""
    on_cpu = [name for name, value in (("n_gpu_layers", 0.0), ("n_cpu_moe", None)) if _off(row, name, value)]
    said = [f"{name} {row.data.get(name)}" for name in dict.fromkeys((*varying, *on_cpu))]
    return {"includes": ", ".join(["no tokenising or sampling", *said])}


def _off(row: Fields, name: str, value: float | None) -> bool:
    found = row.number(name)
    return found == value if value is not None else bool(found)


def _matches(source: Source) -> bool:
    return bool(_OBJECT.search(source.head)) or any(_HEADER.search(line) for line in source.head.splitlines())


def _matches_sql(source: Source) -> bool:
    is_text = re.search(r"\b(?:TABLE IF NOT EXISTS|INSERT INTO) (?:llama_bench|test)\s*\(\s*build_", source.head)
    return bool(is_text) or (source.is_sqlite and bool(_SQL_TABLE.search(source.head_bytes)))


def _refuse_sql(source: Source) -> Iterator[Item]:
    source.refuse("is llama-bench's SQL, and nothing in it is executed: run `llama-bench -o jsonl` and read that")


FORMAT = Format("llama-bench", "llama-bench's csv, json or jsonl", matches=_matches, read=_read)
SQL = Format("llama-bench-sql", "llama-bench's sql (refused)", matches=_matches_sql, read=_refuse_sql)
