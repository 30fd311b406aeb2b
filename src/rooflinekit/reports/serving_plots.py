"""Figures of a loaded server: what moves which phase, and what the token budget trades."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import LogLocator, NullLocator

from rooflinekit import units
from rooflinekit.errors import InvalidInputError
from rooflinekit.reports.choices import load_of
from rooflinekit.reports.drawing import (
    COLOURS,
    GREY,
    SMALL,
    legend,
    log_axes,
    new_figure,
    plain_tick,
    tick_by,
    title,
)
from rooflinekit.serving.lever_figures import METRICS
from rooflinekit.serving.levers import MOVES, Lever, Levers

if TYPE_CHECKING:
    import pandas as pd

#: Metrics of which more is better; of all others less is.
_MORE_IS_BETTER = ("throughput", "KV capacity")
#: Columns under a common heading: what a phase takes, what a client sees, what the server gives.
_BLOCKS = (("service time", 2), ("a client sees", 3), ("the server", 3))
_BETTER, _WORSE, _STILL = COLOURS[0], COLOURS[4], "0.93"
_DEEPEST = 3.0  # doublings at which a colour is full
_ROW, _SPACE = 0.27, 2.3  # inches
_HEADINGS = 42.0  # points that the two rows of headings take


# ---- what moves which phase


def levers_figure(found: Levers) -> Figure:
    """
    Draw the ratios of every change and metric as a table of colours.

    Parameters
    ----------
    found : Levers
        What :func:`rooflinekit.levers` gives.

    Returns
    -------
    figure : Figure
        Blue is better, orange worse, grey does not move; the number is the ratio to what there was.

    Examples
    --------
    >>> import rooflinekit as rk
    >>> figure = levers_figure(rk.levers(rk.Deployment("qwen3-8b", "gb10"), 2048, 32))
    >>> [label.get_text() for label in figure.axes[0].get_xticklabels()][:2]
    ['prefill', 'decode']
    """
    rows = found.rows
    figure = new_figure(7.6, _SPACE + _ROW * len(rows))
    axes = figure.add_subplot()
    for height, row in enumerate(rows):
        _draw_row(axes, row, height)
    _dress_table(axes, [row.change for row in rows])
    state = found.state
    heading = f"What moves which phase: {state.deployment.model.id} on {state.deployment.device.id}"
    sizes = f"{state.prompt_tokens:,.0f} prompt and {state.output_tokens:,.0f} output tokens, {load_of(found)}"
    title(axes, heading, f"{sizes}; {found.basis}")
    axes.set_title(axes.get_title(loc="left"), loc="left", fontsize=SMALL, color=GREY, pad=_HEADINGS)
    legend(figure, list(_table_keys(found)))
    return figure


def _draw_row(axes: Axes, row: Lever, height: int) -> None:
    if not row.words:
        axes.text(0.08, height, _short(row.note), fontsize=SMALL - 0.5, color=GREY, va="center", style="italic",
                  bbox={"facecolor": "white", "linewidth": 0, "pad": 1.5})  # fmt: skip
        return
    for column, metric in enumerate(METRICS):
        ratio = row.ratios[metric]
        moves = row.words.get(metric) == MOVES
        colour, strength = _shade(metric, ratio) if moves else (_STILL, 1.0)
        spot = (column + 0.03, height - 0.46)
        axes.add_patch(Rectangle(spot, 0.94, 0.92, facecolor=colour, alpha=strength, linewidth=0))
        axes.text(
            column + 0.5, height, _ratio(ratio), fontsize=SMALL, ha="center", va="center",
            weight="bold" if moves else "normal", color="black" if moves else GREY,
        )  # fmt: skip


def _shade(metric: str, ratio: float) -> tuple[str, float]:
    """Choose the colour of a ratio that moves, and how strong it is."""
    gain = np.log2(max(ratio, 1e-9)) * (1.0 if metric in _MORE_IS_BETTER else -1.0)
    strength = 0.25 + 0.5 * min(abs(float(gain)) / _DEEPEST, 1.0)
    return (_BETTER if gain > 0 else _WORSE), strength


def _ratio(ratio: float) -> str:
    """
    Show a ratio.

    >>> _ratio(0.514), _ratio(11.2), _ratio(float("nan"))
    ('0.51', '11', '-')
    """
    if np.isnan(ratio):
        return "-"
    return "inf" if np.isinf(ratio) else units.significant(ratio, 2)


def _short(text: str, most: int = 82) -> str:
    """Cut a reason to what fits into a row."""
    while len(text) > most and "; " in text:
        text = text.rpartition("; ")[0]  # whole clauses, as many as there is room for
    return text if len(text) <= most else f"{text[: most - 1].rstrip()}…"


def _dress_table(axes: Axes, names: Sequence[str]) -> None:
    axes.set(xlim=(0, len(METRICS)), ylim=(len(names) - 0.5, -0.5))
    axes.set_yticks(range(len(names)), names, fontsize=SMALL)
    axes.set_xticks(np.arange(len(METRICS)) + 0.5, list(METRICS), fontsize=SMALL)
    axes.tick_params(length=0, labeltop=True, labelbottom=False, pad=2)
    for side in axes.spines.values():
        side.set_visible(False)
    start = 0
    for name, wide in _BLOCKS:
        middle = start + wide / 2.0
        axes.text(middle, -1.3, name, ha="center", va="bottom", fontsize=SMALL, color=GREY, style="italic")
        start += wide
        if start < len(METRICS):
            axes.axvline(start, color="black", linewidth=0.6)


def _table_keys(found: Levers) -> Iterator[Artist]:
    yield Patch(color=_BETTER, alpha=0.6, label="moves, for the better: less time or cost, more throughput or room")
    yield Patch(color=_WORSE, alpha=0.6, label="moves, for the worse")
    yield Patch(color=_STILL, label=f"does not move: within {found.threshold:.0%}. Numbers: after over before")


# ---- the token budget


def budget_figure(
    table: "pd.DataFrame", *, heading: str = "Token budget", beneath: str = "", default: int = 0
) -> Figure:
    """
    Draw what the token budget trades: time to first token above, gaps between tokens beneath, over one axis.

    Parameters
    ----------
    table : DataFrame
        What :func:`rooflinekit.budget_curve` gives.
    heading, beneath : str
        Title, and what the figure rests on.
    default : int
        The engine's own budget, marked where it is in view. [token]

    Returns
    -------
    figure : Figure
        Overloaded budgets are left out and named in the legend.

    Raises
    ------
    InvalidInputError
        Every budget is overloaded.

    Examples
    --------
    >>> import rooflinekit as rk
    >>> table = rk.budget_curve(rk.Deployment("qwen3-8b", "gb10"), 10_000, 100, 0.02, budgets=[512, 2048])
    >>> [axes.get_ylabel() for axes in budget_figure(table).axes]
    ['time to first token', 'gap between tokens']
    """
    rows = table[~table["overloaded"]]
    if rows.empty:
        message = f"every budget is overloaded: at most {table['most_requests_per_s'].max():.3g} requests/s"
        raise InvalidInputError(message)
    figure = new_figure(7.0, 6.4)
    upper, lower = figure.subplots(2, 1, sharex=True)
    keys = [*_draw_first(upper, rows), *_draw_gaps(lower, rows)]
    for axes, name in ((upper, "time to first token"), (lower, "gap between tokens")):
        _dress_budget(axes, name, rows)
    lower.set_xlabel("token budget of a step [token]", fontsize=9)
    keys += [*_mark_default((upper, lower), rows, default), *_left_out(table)]
    title(upper, heading, beneath)
    legend(figure, keys)
    return figure


def _draw_first(axes: Axes, rows: "pd.DataFrame") -> Iterator[Artist]:
    yield _curve(axes, rows, "ttft_p99_s", 1, "TTFT, p99")
    yield _curve(axes, rows, "ttft_mean_s", 0, "TTFT, mean")


def _draw_gaps(axes: Axes, rows: "pd.DataFrame") -> Iterator[Artist]:
    x = rows["token_budget"].to_numpy(float)
    low, high = rows["worst_gap_s"].to_numpy(float), rows["full_budget_gap_s"].to_numpy(float)
    if (high > 1.05 * low).any():
        axes.fill_between(x, low, high, color=COLOURS[2], alpha=0.2, linewidth=0)
    whole = float(rows["unchunked_gap_s"].iloc[-1])
    without = f"worst gap without chunks: the whole prompt in one step, {units.duration(whole)}"
    yield axes.axhline(whole, color="black", linestyle="--", linewidth=1.2, label=without)
    yield _curve(axes, rows, "worst_gap_s", 2, "worst gap: the largest chunk, or all that comes at once")
    if (high > 1.05 * low).any():
        yield Patch(color=COLOURS[2], alpha=0.2, label="longer where prompts come together and fill the budget")
    yield _curve(axes, rows, "itl_p99_s", 3, "ITL, p99: a step with a chunk where over 1% of the steps carry one")
    yield _curve(axes, rows, "itl_mean_s", 5, "ITL, mean")


def _curve(axes: Axes, rows: "pd.DataFrame", column: str, index: int, label: str) -> Artist:
    marker = ("o", "s", "^", "D", "v", "P")[index]
    known = rows[np.isfinite(rows[column])]
    (drawn,) = axes.plot(
        known["token_budget"], known[column], marker=marker, color=COLOURS[index], markersize=5, linewidth=1.3,
        label=label,
    )  # fmt: skip
    return drawn


def _dress_budget(axes: Axes, name: str, rows: "pd.DataFrame") -> None:
    log_axes(axes, x_base=2)
    low, high = axes.get_ylim()
    axes.set_ylim(low / 1.15, high * 1.15)
    axes.yaxis.set_major_locator(LogLocator(base=10, subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(tick_by(lambda seconds: units.duration(seconds, 1)))
    axes.set_xticks(rows["token_budget"].to_list())
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(tick_by(plain_tick))
    axes.set_ylabel(name, fontsize=9)


def _mark_default(panels: Sequence[Axes], rows: "pd.DataFrame", default: int) -> Iterator[Artist]:
    """Mark the engine's own budget."""
    if not rows["token_budget"].min() <= default <= rows["token_budget"].max():
        return
    for axes in panels:
        axes.axvline(default, color=GREY, linestyle=":", linewidth=1.2)
    yield Line2D([], [], color=GREY, linestyle=":", linewidth=1.2, label=f"default of the engine here: {default:,}")


def _left_out(table: "pd.DataFrame") -> Iterator[Artist]:
    over = table[table["overloaded"]]
    if len(over):
        named = ", ".join(f"{size:,}" for size in over["token_budget"])
        yield Line2D([], [], linestyle="none", label=f"overloaded and left out: {named}")
