"""What all figures share: colours, a figure without global state, labels that keep apart, and saving."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from textwrap import fill
from typing import NamedTuple, cast

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.ticker import FuncFormatter
from matplotlib.transforms import Bbox
from numpy.typing import NDArray

from rooflinekit import units
from rooflinekit.errors import InvalidInputError

#: Okabe and Ito's palette, told apart under every common colour blindness; yellow is left out, too pale for a line.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
#: One a colour, so that nothing is told by colour alone.
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
GREY = "#666666"
SMALL = 8.0
_SUFFIXES = (".png", ".svg", ".pdf")
_LETTERS = 14.0  # of a legend that fit into an inch
_GRID = 60  # places tried in either direction for a block of labels
_LEADER = {"arrowstyle": "-", "linewidth": 0.5, "shrinkA": 1, "shrinkB": 0}
_GAP = 6.0  # least distance of a label to what it must not cover, in pixels
_APART = 25.0  # points further apart along x than this are labelled apart, in pixels


class Line(NamedTuple):
    """How one thing among several is told apart: by its name, its colour and its marker."""

    name: str
    colour: str
    marker: str


class Kept(NamedTuple):
    """What labels must not cover: boxes in pixels, and everything above a roof in the units of the axes.

    Their lines must cross no `label` that is there already.
    """

    boxes: list[Bbox]
    roof: Callable[[float], float]
    labels: list[Bbox]


class Spot(NamedTuple):
    """A point of a plot and what its label says."""

    x: float
    y: float
    text: str


def line(index: int, name: str = "") -> Line:
    """Choose the colour and the marker of the n-th thing; they repeat after the seventh."""
    return Line(name, COLOURS[index % len(COLOURS)], MARKERS[index % len(MARKERS)])


def figure_of(axes: Axes) -> Figure:
    """Return the figure of axes made by `new_figure`, which has no sub-figures."""
    return cast("Figure", axes.figure)


def new_figure(width: float = 7.0, height: float = 4.5) -> Figure:
    """Make a figure that pyplot does not know, so that nothing has to be closed. Sizes in inches."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def save(figure: Figure, path: str | Path) -> Path:
    """
    Write a figure; the suffix of the path chooses the format.

    Raises
    ------
    InvalidInputError
        The suffix is not one of .png, .svg and .pdf, or the folder is missing.

    Examples
    --------
    >>> save(new_figure(), "roofline.xls")
    Traceback (most recent call last):
    rooflinekit.errors.InvalidInputError: roofline.xls: cannot draw '.xls': expected a name ending in .png, .svg, .pdf
    """
    target = Path(path)
    if target.suffix.lower() not in _SUFFIXES:
        message = f"{target}: cannot draw {target.suffix!r}: expected a name ending in {', '.join(_SUFFIXES)}"
        raise InvalidInputError(message)
    if not target.parent.is_dir():
        message = f"{target}: there is no folder {target.parent}: make it first"
        raise InvalidInputError(message)
    figure.savefig(target, dpi=150)
    return target


def log_axes(axes: Axes, x_base: int = 10) -> None:
    """Scale both axes by logarithms, with a faint grid and counts such as 2,048 along x."""
    axes.set_xscale("log", base=x_base)
    axes.set_yscale("log")
    axes.grid(visible=True, which="major", color="0.9", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=SMALL)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def tick_by(render: Callable[[float], str]) -> FuncFormatter:
    """Label ticks by one of the renderers of `units`."""
    return FuncFormatter(lambda value, _: render(value))


def plain_tick(value: float) -> str:
    """Render a tick without an exponent and without digits that say nothing.

    >>> plain_tick(2048.0), plain_tick(0.5)
    ('2,048', '0.5')
    """
    return units.count(value)


def title(axes: Axes, heading: str, beneath: str) -> None:
    """Set a heading and, smaller, what the figure rests on."""
    figure_of(axes).suptitle(heading, x=0.01, ha="left", fontsize=11)
    axes.set_title(beneath, loc="left", fontsize=SMALL, color=GREY)


def legend(figure: Figure, keys: Sequence[Artist] | None = None) -> Legend:
    """Explain the lines beneath the axes, one entry a row; long entries are wrapped at the width of the figure."""
    named = figure.legend(handles=keys, loc="outside lower left", fontsize=SMALL, frameon=False)
    most = int(figure.get_figwidth() * _LETTERS)
    for text in named.get_texts():
        text.set_text(fill(text.get_text(), most, subsequent_indent="    ", break_long_words=False))
    return named


# ---- labels that keep apart


def label_spots(axes: Axes, spots: Sequence[Spot], colour: str, kept: Kept) -> None:
    """Label points, those that stand together in one block: long lines across the plot would cross each other."""
    ordered = sorted(spots, key=lambda spot: spot.x)
    x = axes.transData.transform([(spot.x, spot.y) for spot in ordered] or np.empty((0, 2)))[:, 0]
    starts = sorted({0, *(np.flatnonzero(np.diff(x) > _APART) + 1).tolist(), len(ordered)})
    together = [[spot for spot in spots if spot in ordered[first:last]] for first, last in pairwise(starts)]
    for block in sorted(together, key=len, reverse=True):  # the largest first: it has the fewest places to go
        label_block(axes, block, colour, kept)


def label_block(axes: Axes, spots: Sequence[Spot], colour: str, kept: Kept) -> None:
    """Stack the labels of neighbouring points in the free place nearest to them, each with a line to its point.

    The place covers nothing in `kept`, to which it and the lines are added. The heaviest spots come first.
    """
    ordered = sorted(spots, key=lambda spot: -round(10.0 * np.log10(spot.y)))  # nearly equal rates stay as given
    width, height = _text_size(axes, ordered)
    at = axes.transData.transform([(spot.x, spot.y) for spot in ordered])
    box = _free_place(axes, (width, height * len(ordered)), at, kept)
    kept.boxes.append(box)
    kept.labels.append(box)
    right = box.x0 > at[:, 0].mean()
    for spot, leader, corner in zip(ordered, _leaders(box, at), _corners(box, at), strict=True):
        _label(axes, spot, (float(corner[0]), float(corner[1])), colour, right=right)
        kept.boxes.extend(Bbox.from_extents(x, y, x + 1.0, y + 1.0) for x, y in leader)


def _corners(box: Bbox, at: NDArray[np.float64]) -> NDArray[np.float64]:
    """Give where the line of each label ends: the middle of its row, on the side of the points."""
    height = box.height / len(at)
    side = box.x0 if box.x0 > at[:, 0].mean() else box.x1
    return np.array([(side, box.y1 - (index + 0.5) * height) for index in range(len(at))])


def _leaders(box: Bbox, at: NDArray[np.float64]) -> NDArray[np.float64]:
    """Give the lines from the points to their labels, each as a row of places. [pixel]"""
    return np.linspace(at, _corners(box, at), 40, axis=1)


def _label(axes: Axes, spot: Spot, corner: tuple[float, float], colour: str, *, right: bool) -> None:
    per_point = figure_of(axes).dpi / 72.0
    x, y = (np.array(corner) - axes.transData.transform((spot.x, spot.y))) / per_point
    note = axes.annotate(
        spot.text,
        (spot.x, spot.y),
        xytext=(float(x), float(y)),
        textcoords="offset points",
        fontsize=SMALL,
        color=colour,
        ha="left" if right else "right",
        va="center",
        arrowprops={**_LEADER, "color": colour, "relpos": (0.0 if right else 1.0, 0.5)},
        zorder=2.5,
    )
    note.set_in_layout(False)


def _text_size(axes: Axes, spots: Sequence[Spot]) -> tuple[float, float]:
    """Measure the widest text and the height of a line, in pixels."""
    probes = [axes.text(0, 0, spot.text, fontsize=SMALL, transform=axes.transAxes) for spot in spots]
    extents = [probe.get_window_extent() for probe in probes]
    for probe in probes:
        probe.remove()
    return max(box.width for box in extents), 1.15 * max(box.height for box in extents)


def _free_place(axes: Axes, size: tuple[float, float], at: NDArray[np.float64], kept: Kept) -> Bbox:
    """Try a grid of places and take the free one nearest to the points, or the one that covers least."""
    frame = axes.get_window_extent()
    columns = np.linspace(frame.x0 + _GAP, frame.x1 - size[0] - _GAP, _GRID)
    rows = np.linspace(frame.y0 + _GAP, frame.y1 - size[1] - _GAP, _GRID)
    left, right = at[:, 0].min() - 2.0 * _GAP, at[:, 0].max() + 2.0 * _GAP
    beside = [x for x in columns if x > right or x + size[0] < left]  # lines to the points then cross no label
    places = [Bbox.from_bounds(x, y, *size) for x in beside for y in rows]
    nearest = sorted(places, key=lambda box: _distance(box, at.mean(axis=0)))
    free = next((box for box in nearest if not _covered(axes, box, at, kept)), None)
    return free or min(nearest, key=lambda box: _covered(axes, box, at, kept))


def _covered(axes: Axes, box: Bbox, at: NDArray[np.float64], kept: Kept) -> int:
    """Count what a block would cover; roof and labels weigh more than any number of points and lines."""
    x, y = axes.transData.inverted().transform((box.x0 - _GAP, box.y1 + _GAP))
    lines = _leaders(box, at).reshape(-1, 2)
    worst = (y >= kept.roof(x)) + sum(bool(label.count_contains(lines)) for label in kept.labels)
    return int(worst) * (len(kept.boxes) + 1) + box.padded(_GAP).count_overlaps(kept.boxes)


def _distance(box: Bbox, point: NDArray[np.float64]) -> float:
    """Distance of a point to the middle of the side that faces it; a block on its left costs more than on its right."""
    right = box.x0 > point[0]
    middle = np.array([box.x0 if right else box.x1, 0.5 * (box.y0 + box.y1)])
    return float(np.hypot(*(middle - point))) * (1.0 if right else 1.5)
