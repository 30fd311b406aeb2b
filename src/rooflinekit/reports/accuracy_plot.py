"""Measured against predicted times of whole passes: what the accuracy of the library looks like."""

import io
from collections.abc import Iterable, Iterator

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from rooflinekit import units
from rooflinekit.calibration.references import rate_table
from rooflinekit.reports.drawing import COLOURS, GREY, SMALL, log_axes, new_figure, tick_by
from rooflinekit.reports.reasons import words
from rooflinekit.specs.catalog import load_device

#: Sets whose rows are whole passes, each predicted by constants that have not seen it.
PLOTTED = ("streams-left-out", "h200-steps", "gb10-llama.cpp")
BAND, WIDE = 0.10, 0.30
OTHER = "other: GB10, Arc, Gaudi"
#: Class of device -> colour.
CLASSES = {
    "data centre GPU": COLOURS[0],
    "consumer or workstation GPU": COLOURS[1],
    "Apple": COLOURS[2],
    "AMD APU": COLOURS[3],
    OTHER: COLOURS[4],
}
#: Phase -> marker, and what a point is.
PHASES = {
    "prefill": ("^", "prefill of a prompt"),
    "decode": ("o", "one decode step"),
    "request": ("s", "whole request"),
}
_AREA = 11.0
_RATIO = 6.0  # factor that the lower axes reach in either direction
_HEAP = 40  # points drawn at once: classes lie over each other in turn


def device_class(name: str) -> str:
    """
    Sort a device into a class of the plot.

    Examples
    --------
    >>> [device_class(name) for name in ("h200-sxm", "rtx-4090", "ryzen-ai-max-395", "gb10")]
    ['data centre GPU', 'consumer or workstation GPU', 'AMD APU', 'other: GB10, Arc, Gaudi']
    """
    device = load_device(name)
    if device.vendor == "AMD" and device.kind == "edge":
        return "AMD APU"
    if device.kind == "apple":
        return "Apple"
    cards = {"datacenter": "data centre GPU"} | dict.fromkeys(
        ("consumer", "workstation"), "consumer or workstation GPU"
    )
    return cards.get(device.kind, OTHER) if device.vendor in ("NVIDIA", "AMD") else OTHER


def points(frames: Iterable[pd.DataFrame]) -> pd.DataFrame:
    """Collect the passes to draw, runs of decode steps as one step; a measurement that two sets hold counts once."""
    rows = pd.concat([frame for frame in frames if frame["set"].iloc[0] in PLOTTED], ignore_index=True)
    again = words(rows["id"]).ne("") & rows["id"].duplicated(keep="first")
    whole = rows[~again & rows["phase"].isin(list(PHASES))]
    steps = whole["id"].map(rate_table().set_index("id")["output_tokens"]).fillna(1.0).clip(lower=1.0)
    each = 1.0 / steps.where(whole["phase"] == "decode", 1.0)
    times = {name: whole[name] * each for name in ("predicted_s", "measured_s")}
    return whole.assign(**times, kind=[device_class(str(name)) for name in whole["device"]])


def accuracy_figure(frames: Iterable[pd.DataFrame]) -> Figure:
    """
    Draw measured against predicted seconds of whole passes, with a band of 10%, and beneath it their ratio.

    Parameters
    ----------
    frames : iterable of DataFrame
        Predictions; sets that are no whole passes are passed over.

    Returns
    -------
    figure : Figure
        A point above the line took longer than predicted.
    """
    rows = points(frames)
    figure = new_figure(7.0, 8.2)
    upper, lower = figure.subplots(2, 1, height_ratios=(3.0, 1.25), sharex=True)
    for axes in (upper, lower):
        log_axes(axes)
    _scatter(upper, rows, rows["measured_s"])
    ratio = rows["measured_s"] / rows["predicted_s"]
    _scatter(lower, rows, ratio.clip(1.0 / _RATIO, _RATIO))
    _draw_equality(upper, lower, rows)
    _explain(figure, upper, rows)
    return figure


def accuracy_png(frames: Iterable[pd.DataFrame]) -> bytes:
    """Draw as the content of a PNG file; nothing where no frame holds whole passes."""
    kept = [frame for frame in frames if len(frame) and frame["set"].iloc[0] in PLOTTED]
    content = io.BytesIO()
    if kept:
        accuracy_figure(kept).savefig(content, dpi=150, format="png", metadata={"Software": None})
    return content.getvalue()


def _scatter(axes: Axes, rows: pd.DataFrame, heights: "pd.Series[float]") -> None:
    """Draw in one shuffled heap, so that no class covers another as a whole."""
    mixed = rows.assign(height=heights).sample(frac=1.0, random_state=0)
    for start in range(0, len(mixed), _HEAP):
        for phase, lines in mixed.iloc[start : start + _HEAP].groupby("phase"):
            colours = [CLASSES[kind] for kind in lines["kind"]]
            marker = PHASES[str(phase)][0]
            axes.scatter(
                lines["predicted_s"],
                lines["height"],
                s=_AREA,
                marker=marker,
                c=colours,
                linewidths=0,
                alpha=0.6,
                zorder=3,
            )


def _draw_equality(upper: Axes, lower: Axes, rows: pd.DataFrame) -> None:
    """Set the limits, and draw equality with its band into both axes."""
    both = rows[["predicted_s", "measured_s"]].to_numpy(dtype=np.float64)
    ends = np.array([both.min() / 1.5, both.max() * 1.5])
    for axes, line in ((upper, ends), (lower, np.ones(2))):
        axes.fill_between(ends, line * (1.0 - BAND), line * (1.0 + BAND), color="0.78", linewidth=0, zorder=1)
        axes.plot(ends, line, color="black", linewidth=0.8, zorder=2)
    upper.set(xlim=ends, ylim=ends)
    lower.set_ylim(1.0 / _RATIO / 1.05, _RATIO * 1.05)
    lower.set_yticks([0.2, 0.5, 1.0, 2.0, 5.0], ["1/5", "1/2", "1", "2", "5"])
    lower.minorticks_off()
    upper.yaxis.set_major_formatter(tick_by(_tick))
    lower.xaxis.set_major_formatter(tick_by(_tick))
    lower.set_xlabel("predicted time", fontsize=9.5)
    upper.set_ylabel("measured time", fontsize=9.5)
    lower.set_ylabel("measured / predicted", fontsize=9.5)


def _tick(seconds: float) -> str:
    """Label a power of ten.

    >>> _tick(0.001), _tick(10.0)
    ('1 ms', '10 s')
    """
    return units.duration(seconds, 1)


def _explain(figure: Figure, axes: Axes, rows: pd.DataFrame) -> None:
    """Set the title, say what the points are, and put the legend beneath."""
    errors = np.abs(rows["predicted_s"] / rows["measured_s"] - 1.0)
    near, far = (errors <= BAND).mean(), (errors <= WIDE).mean()
    figure.suptitle("Predicted and measured times of LLM inference", x=0.01, ha="left", fontsize=12)
    beneath = (
        f"{len(rows):,} passes on {rows['device'].nunique()} devices. No prediction has seen its own measurement:\n"
        "the constants are fitted without that device (public rates) or without that model (H200, GB10).\n"
        f"{near:.0%} lie within 10% and {far:.0%} within 30%; the median error is {errors.median():.0%}."
    )
    axes.set_title(beneath, loc="left", fontsize=SMALL + 0.5, color=GREY)
    corners = ((0.02, 0.96, "slower than predicted", "left"), (0.98, 0.03, "faster than predicted", "right"))
    for x, y, text, side in corners:
        axes.text(x, y, text, transform=axes.transAxes, ha=side, fontsize=SMALL + 1, color=GREY)
    figure.legend(handles=list(_keys(rows)), loc="outside lower left", ncols=3, fontsize=SMALL, frameon=False)


def _keys(rows: pd.DataFrame) -> Iterator[Line2D | Patch]:
    """Explain colours, then markers, then the line and its band."""
    counts = rows["kind"].value_counts()
    for kind, colour in CLASSES.items():
        if kind in counts:
            yield Patch(color=colour, label=f"{kind} ({counts[kind]:,})")
    for phase, (marker, name) in PHASES.items():
        if (rows["phase"] == phase).any():
            yield Line2D([], [], linestyle="", marker=marker, markersize=5, color=GREY, label=name)
    yield Line2D([], [], color="black", linewidth=0.9, label="measured = predicted")
    yield Patch(color="0.78", label="within 10%")
