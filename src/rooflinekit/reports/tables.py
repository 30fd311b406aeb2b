"""One renderer for every table: rows with base-unit columns in; a rounded table for eyes, or csv and json in full, out.

A column's name says its unit (``time_s``, ``weight_bytes``); a column ``unit`` says it row by row for ``value``,
``published`` and ``ours``. Nothing is rounded before it comes here.
"""

import csv
import io
import json
import math
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from rich.box import Box
from rich.console import Console
from rich.table import Table

from rooflinekit import units
from rooflinekit.specs.precision import one_of

if TYPE_CHECKING:
    import pandas as pd

FORMATS = ("table", "markdown", "csv", "json")
Record = Mapping[str, Any]
Rows: TypeAlias = "pd.DataFrame | Iterable[Record]"

#: Output that is no terminal has no width: nothing is wrapped in a pipe or a file.
_UNLIMITED = 100_000
#: Text up to this width is never wrapped, nor squeezed further before the table outgrows the terminal; names have more.
_FIRM, _FIRM_NAME = 16, 44
_GAP = 2
_BOX = Box("    \n    \n -- \n    \n    \n    \n    \n    \n", ascii=True)
_BY_ROW = ("value", "published", "ours", "observed", "expected", "floor")

# fmt: off
#: Unit -> how a figure is shown: (value, significant digits) -> text.
_SHOWN: dict[str, Callable[[float, int], str]] = {
    "s": units.duration,
    "bytes": lambda value, digits: units.si(value, "B", digits),
    "bytes per token": lambda value, digits: units.si(value, "B", digits),
    "capacity": units.binary_bytes,
    "bytes/s": lambda value, digits: units.si(value, "B/s", digits),
    "FLOP": lambda value, digits: units.si(value, "FLOP", digits),
    "FLOP/s": lambda value, digits: units.si(value, "FLOP/s", digits),
    "FLOP/byte": units.significant,
    "ratio": units.significant,
    "tokens/s": units.significant,
    "parameters": lambda value, digits: units.si(value, "", digits),
    "tokens": lambda value, _: f"{value:,.0f}",
    "count": lambda value, _: units.count(value),
    "fraction": lambda value, _: f"{value:.1%}",
    "change": lambda value, _: f"{value:+.2%}",
    "error": lambda value, _: f"{value:+.1%}",
    "signed": lambda value, _: f"{value:+.1f}",
    "slope": lambda value, _: f"{value:+.2f}",
    "1": lambda value, _: units.count(value),
    "token": lambda value, _: f"{units.count(value)} tokens",
    "request": lambda value, _: f"{units.count(value)} requests",
    "byte": units.binary_bytes,
    "W": lambda value, digits: f"{units.significant(value, digits)} W",
    "token/s": lambda value, digits: f"{units.significant(value, digits)} tokens/s",
    "requests/s": units.significant,
    "texts/s": units.significant,
    "USD": lambda value, digits: f"${units.significant(value, digits)}",
    "J": lambda value, digits: units.si(value, "J", digits) if value >= 1 else f"{units.significant(value, digits)} J",
    "request/s": lambda value, digits: f"{units.significant(value, digits)} requests/s",
    "": lambda value, _: f"{value:.12g}",
}
#: End of a column's name -> unit of its figures; the first that fits.
_UNITS = (
    ("flops_per_s", "FLOP/s"), ("tokens_per_s", "tokens/s"), ("per_user", "tokens/s"), ("at_most", "tokens/s"),
    ("bytes_per_s", "bytes/s"), ("requests_per_s", "requests/s"), ("texts_per_s", "texts/s"),
    ("usd_per_million", "USD"), ("usd_per_hour", "USD"), ("thousand_requests", "USD"), ("energy_j", "J"),
    ("bytes_per_token", "capacity"), ("weights_bytes", "capacity"), ("kv_cache_bytes", "capacity"),
    ("memory_bytes", "capacity"), ("room_bytes", "capacity"), ("state_bytes", "capacity"),
    ("_bytes", "bytes"), ("bytes", "bytes"),
    ("flops", "FLOP"), ("_s", "s"), ("intensity", "FLOP/byte"), ("share", "fraction"), ("tolerance", "fraction"),
    ("of_arithmetic", "fraction"), ("of_memory", "fraction"), ("mfu", "fraction"), ("mbu", "fraction"),
    ("explains", "fraction"), ("error", "error"), ("deviations", "signed"), ("log_odds", "signed"),
    ("difference", "change"), ("tokens", "tokens"), ("parameters", "parameters"), ("launches", "count"),
    ("batch", "count"), ("sequences", "count"), ("requests", "ratio"), ("running", "ratio"), ("token_budget", "count"),
    ("tokens_per_step", "ratio"), ("speedup", "ratio"), ("acceptance", "ratio"), ("elasticity", "slope"),
    ("balance", "ratio"),
)
_HEADINGS = {
    "flops": "FLOPs", "bytes": "bytes", "intensity": "FLOP/byte", "weight_bytes": "weights", "kv_bytes": "KV read",
    "kv_bytes_per_token": "KV per token", "kv_cache_bytes": "KV cache", "tokens_per_s_per_user": "tokens/s per user",
    "bytes_per_s": "bandwidth", "flops_per_s": "arithmetic", "memory_time_s": "memory time",
    "half_flops_per_s": "16-bit", "fp8_flops_per_s": "FP8", "max_context_tokens": "context",
    "active_parameters": "active", "message_bytes": "sent", "kv_room_bytes": "KV room",
    "utilisation_share": "utilisation", "steps_with_prompts_share": "steps with prompts",
    "most_requests_per_s": "it could carry, requests/s", "each_at_most_requests_per_s": "each at most, requests/s",
    "max_requests_per_s": "requests/s", "usd_per_hour": "an hour",
    "input_usd_per_million": "input, 1M", "output_usd_per_million": "output, 1M",
    "usd_per_thousand_requests": "1,000 requests",
    "texts_per_s": "texts/s", "gpu_s": "GPU time", "usd_per_million": "a million", "energy_j": "energy, at most",
    "token_energy_j": "energy of a token, at most",
    "ttft_mean_s": "TTFT", "ttft_p99_s": "TTFT p99", "itl_mean_s": "ITL", "itl_p99_s": "ITL p99",
    "unchunked_gap_s": "gap without chunks", "full_budget_gap_s": "gap of a full step",
    "balance": "prefill GPUs that fill a decode GPU", "sent_by_a_gpu_bytes": "K and V that a GPU sends",
    "prefill_gpus": "prefill GPUs", "decode_gpus": "decode GPUs", "link_bytes_per_s": "link",
    "prefill_elasticity": "prefill", "decode_elasticity": "decode",
    "prefill_communication_share": "prefill sent", "decode_communication_share": "decode sent",
}
# fmt: on


def render(rows: Rows, form: str, *, title: str = "", columns: Sequence[str] = ()) -> str:
    """
    Render rows in one of the four formats.

    Parameters
    ----------
    rows : DataFrame or iterable of mappings
        Columns in base units.
    form : {"table", "markdown", "csv", "json"}
        The first two are for eyes: rounded, with units. The others hold every column in full precision.
    title : str
        A line above the table, for eyes.
    columns : sequence of str
        Those shown to eyes, in this order; all of them if not given.

    Returns
    -------
    text : str
        Without a line end.

    Raises
    ------
    InvalidInputError
        There is no such format.

    Examples
    --------
    >>> print(render([{"phase": "decode", "time_s": 0.0744}], "markdown"))
    | phase | time |
    | :--- | ---: |
    | decode | 74.4 ms |
    """
    one_of("format", form, FORMATS)
    records = records_of(rows)
    if form == "json":
        return to_json(records)
    if form == "csv":
        return _csv(records)
    shown = [name for name in columns or _columns(records) if name != "unit"]
    draw = _table if form == "table" else _markdown
    heading = f"### {title}\n\n" if title and form == "markdown" else f"{title}\n" if title else ""
    return heading + draw(records, shown)


def records_of(rows: Rows) -> list[Record]:
    """Give a DataFrame's rows, or the rows as they are."""
    to_dict = getattr(rows, "to_dict", None)
    return list(rows if to_dict is None else to_dict("records"))


def to_json(value: object) -> str:
    """Write JSON that every reader takes: full precision, not-a-number as null, infinity as text.

    >>> to_json({"time_s": 0.1, "tokens": float("inf"), "spread": float("nan")}).replace(chr(10), "")
    '{  "time_s": 0.1,  "tokens": "inf",  "spread": null}'
    """
    return json.dumps(_plain(value), indent=2, allow_nan=False)


def _plain(value: object) -> object:
    """Replace what JSON has no word for, and NumPy's numbers by Python's."""
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value


def _csv(records: Sequence[Record]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, _columns(records), lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _csv_cell(value) for name, value in record.items()} for record in records)
    return text.getvalue().removesuffix("\n")


def _csv_cell(value: object) -> object:
    plain = _plain(value)
    return " ".join(map(str, plain)) if isinstance(plain, list) else plain


def _columns(records: Sequence[Record]) -> list[str]:
    return list(dict.fromkeys(name for record in records for name in record))


# ---- for eyes


def heading(column: str) -> str:
    """Name a column for eyes: words, without the unit that its cells show.

    >>> heading("time_to_first_token_s"), heading("tokens_per_s"), heading("launches")
    ('time to first token', 'tokens/s', 'launches')
    """
    bare = column.removesuffix("_bytes") if column.endswith("_bytes") else column
    bare = bare if bare.endswith("_per_s") else bare.removesuffix("_s")
    return _HEADINGS.get(column) or bare.replace("_per_s", "/s").replace("_", " ")


def listing(record: Record) -> list[Record]:
    """Turn a record into rows of quantity and value, for eyes.

    >>> print(render(listing({"time_to_first_token_s": 0.41, "weights_bytes": 2**34}), "markdown"))
    | quantity | value |
    | :--- | ---: |
    | time to first token | 410 ms |
    | weights | 16.0 GiB |
    """
    return [{"quantity": heading(name), "value": value, "unit": _unit(name, {})} for name, value in record.items()]


def cell(column: str, record: Record) -> str:
    """Show one figure with its unit, a dash where there is none."""
    value = record.get(column)
    if isinstance(value, list | tuple):
        return ", ".join(cell(column, {**record, column: one}) for one in value)
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    if math.isinf(value):
        return "never" if column.endswith(("tokens", "acceptance")) else f"{value:g}"
    return _SHOWN[_unit(column, record)](value, _digits(column, record)) if value else "0"


def _unit(column: str, record: Record) -> str:
    if column in _BY_ROW:
        return str(record.get("unit", ""))
    return next((unit for end, unit in _UNITS if column.endswith(end)), "")


def _digits(column: str, record: Record) -> int:
    """Give the digits to show: those that a text prints, one more where ours stands beside it, else three."""
    if column not in ("published", "ours"):
        return 3
    printed = [len(f"{one:.12e}".partition("e")[0].rstrip("0")) - 1 for one in np.ravel(record["published"])]
    return max(*printed, 3 if column == "published" else 4)


def _numeric(column: str, records: Sequence[Record]) -> bool:
    values = [value for record in records if (value := record.get(column)) is not None]
    return bool(values) and all(
        isinstance(value, int | float | tuple) and not isinstance(value, bool) for value in values
    )


def _table(records: Sequence[Record], columns: Sequence[str]) -> str:
    table = Table(box=_BOX, show_edge=False, pad_edge=False, padding=(0, _GAP - 1, 0, 0))
    widths = []
    for position, name in enumerate(columns):
        cells = [heading(name), *(cell(name, record) for record in records)]
        numeric, widest = _numeric(name, records), max(map(len, cells))
        firm = numeric or widest <= (_FIRM if position else _FIRM_NAME)
        widths.append(widest if firm else _FIRM)
        table.add_column(heading(name), justify="right" if numeric else "left", no_wrap=firm, overflow="fold")
    for record in records:
        table.add_row(*(cell(name, record) for name in columns))
    least = sum(widths) + _GAP * len(widths)
    return _drawn(table, max(least, shutil.get_terminal_size((_UNLIMITED, 24)).columns))


def _drawn(table: Table, width: int) -> str:
    """Draw without colours, trailing blanks or the console's own ideas about text."""
    text = io.StringIO()
    console = Console(file=text, width=width, markup=False, highlight=False, emoji=False, color_system=None)
    console.print(table)
    return "\n".join(line.rstrip() for line in text.getvalue().rstrip("\n").split("\n"))


def _markdown(records: Sequence[Record], columns: Sequence[str]) -> str:
    rules = ["---:" if _numeric(name, records) else ":---" for name in columns]
    lines = [[heading(name) for name in columns], rules]
    lines += [[cell(name, record).replace("|", "\\|") for name in columns] for record in records]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
