"""What one sequence holds over its length: KV cache and states, one line a model."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Annotation
from matplotlib.ticker import LogLocator, NullLocator
from numpy.typing import NDArray

from rooflinekit import units
from rooflinekit.errors import InvalidInputError
from rooflinekit.phases.memory import cache_shape
from rooflinekit.reports.cache import cache_precision
from rooflinekit.reports.drawing import (
    SMALL,
    Line,
    figure_of,
    line,
    log_axes,
    new_figure,
    plain_tick,
    tick_by,
    title,
)
from rooflinekit.specs.catalog import load_model
from rooflinekit.specs.model import Model
from rooflinekit.specs.step import checked

#: Dashes in turn: as many as have no divisor in common with the colours, so that no pair comes twice.
_STYLES = ("-", (0, (5, 2)), (0, (6, 2, 1, 2)), (0, (1.5, 1.5)))
_MOST = 14  # labels that fit beside the axes
_LINE_HEIGHT = 1.25  # least distance of two labels, in heights of their text
_LEADER = 0.03  # from a line's end to its label, in widths of the axes


class Held(NamedTuple):
    """What a sequence of a model holds at each length, and how its line is drawn."""

    model: Model
    held_bytes: NDArray[np.float64]
    style: Line
    dashes: Any


def kv_cache_figure(models: Sequence[str | Model], tokens: Sequence[float]) -> Figure:
    """
    Draw what one sequence holds over its length: KV cache and states, in each model's own dtype.

    Parameters
    ----------
    models : sequence of str or Model
        Up to fourteen.
    tokens : sequence of float
        Lengths, drawn on a logarithmic axis as the bytes are. [token]

    Returns
    -------
    figure : Figure
        Every line is labelled at its end, and no two have both the same colour and the same dashes.

    Raises
    ------
    InvalidInputError
        No model, or more than their labels have room; a length is not positive.

    Examples
    --------
    >>> figure = kv_cache_figure(["qwen3-8b", "qwen3-next-80b-a3b"], [1024, 8192, 65536])
    >>> figure.axes[0].get_xlabel(), figure.axes[0].get_ylabel()
    ('context [token]', 'KV cache and states of one sequence [byte]')
    """
    if not 1 <= len(models) <= _MOST:
        message = f"{len(models)} models: expected 1 to {_MOST}, one line each"
        raise InvalidInputError(message)
    checked("tokens", np.asarray(tokens), positive=True)
    lengths = np.sort(np.asarray(tokens, dtype=np.float64))
    curves = [_held(load_model(name), lengths, index) for index, name in enumerate(models)]
    figure = new_figure(7.5, 5.0)
    axes = figure.add_subplot()
    _dress(axes)
    for curve in curves:
        axes.plot(lengths, curve.held_bytes, color=curve.style.colour, linestyle=curve.dashes, linewidth=1.5)
    axes.set_xlim(lengths[0], lengths[-1])
    dtypes = " and ".join(dict.fromkeys(cache_precision(curve.model).kv_cache for curve in curves))
    title(axes, "What one sequence holds", f"{dtypes} KV cache; states in the models' own dtypes")
    _label_ends(axes, curves)
    return figure


def _held(model: Model, lengths: NDArray[np.float64], index: int) -> Held:
    held = cache_shape(model, cache_precision(model)).held(lengths)
    whole = np.broadcast_to(np.asarray(held, dtype=np.float64), lengths.shape)
    return Held(model, whole, line(index, model.id), _STYLES[index % len(_STYLES)])


def _dress(axes: Axes) -> None:
    log_axes(axes, x_base=2)
    axes.set_yscale("log", base=2)
    for axis, render in ((axes.xaxis, plain_tick), (axes.yaxis, units.binary_bytes)):
        axis.set_major_locator(LogLocator(base=4, numticks=20))
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(tick_by(render))
    axes.set_xlabel("context [token]", fontsize=9)
    axes.set_ylabel("KV cache and states of one sequence [byte]", fontsize=9)


def _label_ends(axes: Axes, curves: Sequence[Held]) -> None:
    """Name each line at its right end; names that would cover each other move apart and keep a line to their end."""
    ordered = sorted(curves, key=lambda curve: curve.held_bytes[-1])
    notes = [_note(axes, curve) for curve in ordered]
    figure_of(axes).draw_without_rendering()  # settles the layout, which the distances are measured in
    height = _LINE_HEIGHT * notes[0].get_window_extent().height
    wanted = axes.transData.transform([(1.0, curve.held_bytes[-1]) for curve in ordered])[:, 1]
    for note, y in zip(notes, _apart(wanted, height), strict=True):
        note.set_position((1.0 + _LEADER, float(axes.transData.inverted().transform((0.0, y))[1])))


def _note(axes: Axes, curve: Held) -> Annotation:
    """Write a model's name and what it holds last beside the axes, with a line to the end of its own."""
    last, beside = float(curve.held_bytes[-1]), axes.get_yaxis_transform()
    return axes.annotate(
        f"{curve.model.id}  {units.binary_bytes(last)}",
        (1.0, last),
        xycoords=beside,
        xytext=(1.0 + _LEADER, last),
        textcoords=beside,
        color=curve.style.colour,
        fontsize=SMALL,
        va="center",
        arrowprops={"arrowstyle": "-", "linewidth": 0.6, "color": curve.style.colour, "shrinkA": 0, "shrinkB": 0},
        annotation_clip=False,
    )


def _apart(wanted: NDArray[np.float64], height: float) -> Iterator[float]:
    """Move rising places apart by at least a height, as little as possible in sum for each crowd of them.

    >>> [float(place) for place in _apart(np.array([0.0, 1.0, 50.0]), 10.0)]
    [-4.5, 5.5, 50.0]
    """
    crowds: list[list[float]] = []
    for place in wanted.tolist():
        crowds.append([place])
        while len(crowds) > 1 and _bottom(crowds[-1], height) < _bottom(crowds[-2], height) + height * len(crowds[-2]):
            last = crowds.pop()
            crowds[-1] += last
    for crowd in crowds:
        yield from (_bottom(crowd, height) + height * index for index in range(len(crowd)))


def _bottom(crowd: Sequence[float], height: float) -> float:
    """Give the lowest place of a crowd that stands around its own middle."""
    return float(np.mean(crowd)) - 0.5 * height * (len(crowd) - 1)
