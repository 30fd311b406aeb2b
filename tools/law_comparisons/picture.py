"""The figure of docs/laws.md, drawn from the tables of the page."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from law_comparisons.judging import Comparison
from law_comparisons.tables import COMPARISONS
from rooflinekit.reports.drawing import COLOURS, GREY, MARKERS, new_figure

_ERROR = re.compile(r"([\d.]+)% / ([\d.]+)%")


def drawn(name: str, text: str) -> list[tuple[str, list[tuple[float, float]]]]:
    """Read a table of the page again: names of laws, and the medians and 90th percentiles of both columns."""
    _, _, after = text.partition(f"<!-- {name}: written")
    part, _, _ = after.partition(f"<!-- {name}: end")
    rows = []
    for line in part.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        values = [_ERROR.fullmatch(cell) for cell in cells[2:]]
        if values and all(values):
            rows.append((cells[0], [(float(one[1]), float(one[2])) for one in values if one]))
    return rows


def picture(text: str) -> Figure:
    """Draw a panel for each class: dots are medians, lines reach to the 90th percentile."""
    known = {name: rows for name in COMPARISONS if (rows := drawn(name, text))}
    names = [name for name in COMPARISONS if name in known]
    pairs = [names[i : i + 2] for i in range(0, len(names), 2)]
    heights = [max(len(known[name]) for name in pair) + 3.2 for pair in pairs]
    figure = new_figure(9.5, 0.225 * sum(heights))
    grid = figure.subplots(len(pairs), 2, squeeze=False, gridspec_kw={"height_ratios": heights})
    for i, (place, name) in enumerate(zip(grid.flat, [*names, *[""] * (len(names) % 2)], strict=True)):
        if name:
            panel(place, COMPARISONS[name], known[name], last=i >= len(names) - 2)
        else:
            place.set_visible(False)
    return figure


def panel(axes: Any, comparison: Comparison, rows: Sequence[Any], *, last: bool) -> None:  # noqa: ANN401 - of matplotlib
    """Draw the laws of one class, the code's in bold type."""
    for column, shift in ((0, 0.16), (1, -0.16)):
        heights = [len(rows) - 1 - i + shift for i in range(len(rows))]
        median, most = (np.array([values[column][part] for _, values in rows]) for part in (0, 1))
        axes.hlines(heights, median, most, color=COLOURS[column], linewidth=1.6)
        axes.plot(most, heights, "|", color=COLOURS[column], markersize=5, markeredgewidth=1.6)
        said = comparison.columns[column]
        axes.plot(median, heights, MARKERS[column], color=COLOURS[column], markersize=5, label=said)
    name_laws(axes, [name for name, _ in rows[::-1]])
    show_errors(axes)
    axes.set_title(comparison.title, fontsize=10, loc="left", fontweight="bold", pad=19)
    place, tight = {"loc": "lower left", "bbox_to_anchor": (-0.01, 1.0)}, {"handletextpad": 0.2, "borderpad": 0}
    axes.legend(**place, **tight, ncols=2, fontsize=8, frameon=False)
    if last:
        axes.set_xlabel("error: dot median, line to the 90th percentile", fontsize=8, color=GREY, loc="right")


def name_laws(axes: Any, names: Sequence[str]) -> None:  # noqa: ANN401 - of matplotlib
    """Write the names of laws beside their lines, from below."""
    axes.set_yticks(range(len(names)), [name.strip("*") for name in names], fontsize=8.5)
    for label, name in zip(axes.get_yticklabels(), names, strict=True):
        label.set_fontweight("bold" if name.startswith("*") else "normal")
    axes.set_ylim(-0.6, len(names) - 0.4)
    axes.tick_params(axis="y", length=0)


def show_errors(axes: Any) -> None:  # noqa: ANN401 - of matplotlib
    """Lay out the axis of errors, and leave no other line than its own."""
    axes.set_xscale("log")
    axes.set_xlim(1, 300)
    ticks = (1, 2, 5, 10, 20, 50, 100)
    axes.set_xticks(ticks, [f"{tick}%" for tick in ticks])
    axes.minorticks_off()
    axes.grid(visible=True, axis="x", color="0.9", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(axis="x", labelsize=7.5)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
