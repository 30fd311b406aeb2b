"""Sections and tables of Markdown, and the sections that are more than one table."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from accuracy_page.targets import NAMES
from rooflinekit.reports import validation as of
from rooflinekit.reports.reasons import device_reason
from rooflinekit.reports.tables import cell, heading

#: Devices of a part that are explained.
EXPLAINED = 3


def section(title: str, words: str, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Write a heading, a paragraph and a table."""
    return [f"## {title}", words, table(rows)]


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Write a table of Markdown whose figures stand right."""
    shown = of.for_eyes(rows)
    names = list(dict.fromkeys(name for row in shown for name in row))
    cells = [[cell(name, row).strip().replace("|", "\\|") for name in names] for row in shown]
    rules = ["---:" if all(figure(line[i]) for line in cells) else ":---" for i in range(len(names))]
    lines = [[heading(name) for name in names], rules, *cells]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) if rows else "None."


def figure(text: str) -> bool:
    """Tell whether a cell is a figure, or a dash in place of one.

    >>> figure("+1.2%"), figure("3.1 ms"), figure("-"), figure("8 of 8")
    (True, True, True, False)
    """
    return bool(re.fullmatch(r"-|[+-]?[\d,.]+(%| [a-z]{1,2})?", text))


def devices(frames: Mapping[str, pd.DataFrame]) -> Iterator[str]:
    """Write the devices left out, one table a part that has a target, the three worst explained."""
    yield "## Device by device"
    words = "Each device predicted without its own measurements, the largest median error first"
    yield f"{words}; the three worst are explained."
    for name in of.DEVICES_LEFT_OUT:
        lines = of.grouped(frames[name], "device")
        for part in dict.fromkeys(line["part"] for line in lines if of.target_of(name, line["part"])):
            mine = [
                {key: value for key, value in line.items() if key not in ("set", "part")}
                for line in lines
                if line["part"] == part
            ]
            yield f"### {NAMES[name].capitalize()}: {part}"
            reasons = [device_reason(part, line["device"]) if at < EXPLAINED else "" for at, line in enumerate(mine)]
            yield table([{**line, "reason": why} for line, why in zip(mine, reasons, strict=True)])


def without_totals(frame: pd.DataFrame, frames: Mapping[str, pd.DataFrame]) -> Iterator[dict[str, Any]]:
    """Compare the figures of a set with those without totals."""
    whole = of.summary(frames[str(frame["set"].iloc[0])])
    for line, other in zip(of.summary(frame), whole, strict=True):
        both = {
            "with totals": f"{other['median']:.1%} / {other['p90']:.1%}",
            "without totals": f"{line['median']:.1%} / {line['p90']:.1%}",
        }
        yield {
            "set": line["set"],
            "part": line["part"],
            "rows": line["rows"],
            **both,
            "target": line["target"],
            "without totals, verdict": line["verdict"],
        }


def worst(frames: Mapping[str, pd.DataFrame]) -> Iterator[str]:
    """Write the worst ten of each set, those of engines that no other device runs apart."""
    yield "## The worst ten of each set"
    yield "By the ratio of predicted and measured."
    for name, frame in frames.items():
        yield f"### `{name}`"
        yield table([worst_line(row) for row in of.worst(frame)])
        apart = of.worst(frame, apart=True)
        if apart:
            yield "Engines that no other device of the vendor runs:"
            yield table([worst_line(row) for row in apart])


def worst_line(row: Mapping[str, Any]) -> dict[str, Any]:
    """Lay out one of the worst rows: what it is, times, error, reason."""
    sizes = {"batch": "batch", "tokens": "new", "context": "held"}
    known = [f"{word} {row[key]:,.0f}" for key, word in sizes.items() if row[key] == row[key] and float(row[key]) > 0]
    what = " ".join(str(row[name]) for name in ("model", "weights") if row[name])
    who = " ".join(str(row[name]) for name in ("device", "engine") if row[name])
    facts = {
        "part": row["part"].partition(";")[0],
        "where": who,
        "what": what,
        "size": ", ".join(known),
        "id": row["id"] or "-",
    }
    return {**facts, **{name: row[name] for name in ("measured_s", "predicted_s", "error", "reason")}}


def floor_line(row: Mapping[str, Any]) -> dict[str, Any]:
    """Lay out a measurement that is faster than the floor."""
    names = ("set", "device", "engine", "model", "weights", "phase", "id", "measured_s", "floor_s")
    return {name: row[name] for name in names}
