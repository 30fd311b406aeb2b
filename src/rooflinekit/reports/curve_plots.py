"""Curves: the decode step over the batch, the prefill over the prompt."""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import Locator, LogLocator, MaxNLocator, NullLocator
from numpy.typing import NDArray

from rooflinekit import units
from rooflinekit.errors import InvalidInputError
from rooflinekit.operators.cost import ONE, TOKENS
from rooflinekit.phases.batch import doubling_batch
from rooflinekit.phases.crossover import Crossover
from rooflinekit.phases.deployment import Deployment
from rooflinekit.phases.frames import batch_curve
from rooflinekit.reports.drawing import (
    COLOURS,
    GREY,
    SMALL,
    Line,
    legend,
    line,
    log_axes,
    new_figure,
    plain_tick,
    tick_by,
    title,
)
from rooflinekit.specs.step import checked

if TYPE_CHECKING:
    import pandas as pd

_PANELS = (
    ("step_s", 1.0 / units.MILLI, "step time [ms]"),
    ("tokens_per_s_per_user", 1.0, "rate of one user [token/s]"),
    ("tokens_per_s", 1.0, "rate of all users [token/s]"),
)
_STAR: dict[str, Any] = {
    "marker": "*",
    "markersize": 11,
    "markeredgecolor": "black",
    "markeredgewidth": 0.7,
    "linestyle": "none",
    "zorder": 4,
}
_CIRCLE: dict[str, Any] = {"marker": "o", "markersize": 5, "markerfacecolor": "white"}
#: Ticks of an axis by the decades that it spans at most.
_TICKS: tuple[tuple[float, Callable[[], Locator]], ...] = (
    (0.5, lambda: MaxNLocator(6)),
    (1.0, lambda: LogLocator(base=10, subs=tuple(np.arange(1.0, 10.0)))),
    (3.0, lambda: LogLocator(base=10, subs=(1.0, 2.0, 5.0))),
    (np.inf, lambda: LogLocator(base=10)),
)


# ---- the batch


def batch_curve_figure(deployments: Sequence[Deployment], context_tokens: float, batch: Sequence[float]) -> Figure:
    """
    Draw step time, rate of one user and rate of all users over the batch, one line a deployment.

    Parameters
    ----------
    deployments : sequence of Deployment
        Up to seven.
    context_tokens : float
        Tokens in the cache of each sequence before the step. [token]
    batch : sequence of float
        Batch sizes, drawn on a logarithmic axis.

    Returns
    -------
    figure : Figure
        A star marks the bend, :func:`rooflinekit.phases.batch.doubling_batch`. Hollow points exceed the memory.

    Raises
    ------
    InvalidInputError
        No deployment, or more than there are colours.

    Examples
    --------
    >>> import rooflinekit as rk
    >>> figure = batch_curve_figure([rk.Deployment("qwen3-8b", "gb10")], 2048, [1, 8, 64])
    >>> [axes.get_ylabel() for axes in figure.axes]
    ['step time [ms]', 'rate of one user [token/s]', 'rate of all users [token/s]']
    """
    if not 1 <= len(deployments) <= len(COLOURS):
        message = f"{len(deployments)} deployments: expected 1 to {len(COLOURS)}, one colour each"
        raise InvalidInputError(message)
    figure = new_figure(7.5, 4.3)
    panels: NDArray[Any] = figure.subplots(1, len(_PANELS), sharex=True)
    lines = [line(index, name) for index, name in enumerate(_names(deployments))]
    curves = [_curve(deployment, context_tokens, batch) for deployment in deployments]
    for curve, style in zip(curves, lines, strict=True):
        _draw_curve(panels, curve, style)
    for axes, (_, _, label) in zip(panels, _PANELS, strict=True):
        _dress(axes, label)
    _explain(figure, deployments, context_tokens, [*map(_curve_key, curves, lines), *_batch_key(curves)])
    return figure


class _Curve(NamedTuple):
    """A batch curve, whether the memory holds each of its points, and its row at the bend if that is in view."""

    table: "pd.DataFrame"
    fits: NDArray[np.bool_]
    bend: float
    at_bend: "pd.DataFrame"


def _curve(deployment: Deployment, context_tokens: float, batch: Sequence[float]) -> _Curve:
    bend = doubling_batch(deployment, context_tokens)  # seldom a whole number
    inside = min(batch) <= bend <= max(batch)
    table = batch_curve(deployment, context_tokens, batch)
    at_bend = batch_curve(deployment, context_tokens, [bend if inside else 1.0])
    fits = np.array([held is not False for held in table["fits"].tolist()])  # None: a memory that the file does not say
    return _Curve(table, fits, bend, at_bend if inside else at_bend.iloc[:0])


def _draw_curve(panels: NDArray[Any], curve: _Curve, style: Line) -> None:
    """Draw a line, its points and its bend in every panel."""
    for axes, (column, scale, _) in zip(panels, _PANELS, strict=True):
        values = scale * curve.table[column].to_numpy(float)
        _draw_line(axes, curve.table["batch"].to_numpy(float), values, curve.fits, style)
        axes.plot(curve.at_bend["batch"], scale * curve.at_bend[column], color=style.colour, **_STAR)


def _draw_line(
    axes: Axes, x: NDArray[np.float64], y: NDArray[np.float64], fits: NDArray[np.bool_], style: Line
) -> None:
    """Draw a line, then its points: filled where the memory holds them, hollow where it does not."""
    axes.plot(x, y, color=style.colour, linewidth=1.2)
    for chosen, face in ((fits, style.colour), (~fits, "white")):
        axes.plot(x[chosen], y[chosen], style.marker, color=style.colour, markersize=4, markerfacecolor=face)


def _curve_key(curve: _Curve, style: Line) -> Line2D:
    view = ", not in view" if curve.at_bend.empty else ""
    return _key(style, f"{style.name}: bend at batch {units.count(round(curve.bend))}{view}")


def _key(style: Line, label: str) -> Line2D:
    return Line2D([], [], color=style.colour, marker=style.marker, markersize=4, label=label)


def _explain(figure: Figure, deployments: Sequence[Deployment], context_tokens: float, keys: list[Line2D]) -> None:
    models = {deployment.model.id for deployment in deployments}
    what = f" of {models.pop()}" if len(models) == 1 else ""
    heading = f"Decode step{what} at {units.count(context_tokens)} tokens of context"
    figure.suptitle(heading, x=0.01, ha="left", fontsize=11)
    legend(figure, keys)


def _dress(axes: Axes, label: str) -> None:
    log_axes(axes, x_base=2)
    axes.xaxis.set_major_locator(LogLocator(base=4))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(tick_by(plain_tick))
    axes.set_xlabel("batch [sequences]", fontsize=9)
    _y_axis(axes, label)


def _y_axis(axes: Axes, label: str) -> None:
    low, high = axes.get_ylim()
    decades = np.log10(high / low)
    axes.yaxis.set_major_locator(next(locator for most, locator in _TICKS if decades < most)())
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(tick_by(plain_tick))
    axes.set_ylabel(label, fontsize=9)


def _batch_key(curves: Sequence[_Curve]) -> Iterator[Line2D]:
    """Yield what the star and the hollow points mean, where there are any."""
    if not all(curve.at_bend.empty for curve in curves):
        meaning = "bend: the batch whose step takes twice as long as that of one sequence"
        yield Line2D([], [], color="white", label=meaning, **_STAR)
    if not all(curve.fits.all() for curve in curves):
        yield _hollow_key()


def _hollow_key() -> Line2D:
    meaning = "hollow: weights and KV cache exceed the memory"
    return Line2D(
        [], [], marker="o", color=GREY, markerfacecolor="white", markersize=4, linestyle="none", label=meaning
    )


def _names(deployments: Sequence[Deployment]) -> list[str]:
    """Name each line by what differs, and by the basis of its times."""
    one_model = len({deployment.model.id for deployment in deployments}) == 1
    short = [d.device.id if one_model else f"{d.model.id} on {d.device.id}" for d in deployments]
    if len(set(short)) < len(short):
        return [repr(deployment) for deployment in deployments]
    return [f"{name} ({d.timing.laws.basis})" for name, d in zip(short, deployments, strict=True)]


# ---- the prompt


class Products(NamedTuple):
    """What the blocks' matrix products need: one read of their weights, and the arithmetic of each token."""

    weight_bytes: float
    flops_per_token: float


def prefill_figure(deployment: Deployment, prompt_tokens: Sequence[int]) -> Figure:
    """
    Draw the time of a prefill over the length of its prompt, with the two lines that it runs between.

    Parameters
    ----------
    deployment : Deployment
    prompt_tokens : sequence of int
        Prompt lengths, drawn on a logarithmic axis. [token]

    Returns
    -------
    figure : Figure
        The floor is one read of the blocks' weights, the asymptote their arithmetic, both at the rates of
        :meth:`rooflinekit.Deployment.crossover`. The two lines meet at its closed form; the crossover itself, which
        counts activations, is marked apart.

    Raises
    ------
    InvalidInputError
        A length is not positive.
    MissingFigureError
        The device has no arithmetic peak.

    Examples
    --------
    >>> import rooflinekit as rk
    >>> figure = prefill_figure(rk.Deployment("qwen3-8b", "gb10"), [32, 128, 512, 2048])
    >>> figure.axes[0].get_xlabel(), figure.axes[0].get_ylabel()
    ('prompt [token]', 'prefill time [ms]')
    """
    checked("prompt_tokens", np.asarray(prompt_tokens), positive=True)
    tokens = np.sort(np.asarray(prompt_tokens, dtype=np.float64))
    times = np.asarray(deployment.with_(memory_check=False).prefill(tokens).time_s)
    figure = new_figure(7.0, 4.6)
    axes = figure.add_subplot()
    log_axes(axes, x_base=2)
    keys = [*_draw_prefill(axes, deployment, tokens, times), *_draw_lines(axes, deployment, tokens[[0, -1]])]
    axes.set_ylim(times.min() / 3.0 / units.MILLI, times.max() * 1.5 / units.MILLI)
    axes.xaxis.set_major_formatter(tick_by(plain_tick))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("prompt [token]", fontsize=9)
    _y_axis(axes, "prefill time [ms]")
    beneath = "\n".join((repr(deployment), *deployment.notes))
    title(axes, f"Prefill of {deployment.model.id} on {deployment.device.id}", beneath)
    legend(figure, keys)
    return figure


def _draw_prefill(
    axes: Axes, deployment: Deployment, tokens: NDArray[np.float64], times: NDArray[np.float64]
) -> Iterator[Line2D]:
    memory = deployment.device.memory_bytes or np.inf
    fits = deployment.weights_bytes + np.asarray(deployment.kv_cache_bytes(tokens)) <= memory
    _draw_line(axes, tokens, times / units.MILLI, fits, line(0))
    yield _key(line(0), "whole prefill, expected")
    if not fits.all():
        yield _hollow_key()


def _draw_lines(axes: Axes, deployment: Deployment, ends: NDArray[np.float64]) -> Iterator[Line2D]:
    """Draw floor, asymptote and crossover of the blocks' products."""
    work, found = _block_products(deployment), deployment.crossover()
    floor, each = work.weight_bytes / found.bytes_per_s, work.flops_per_token / found.flops_per_s
    read = f"one read of the blocks' weights: {units.duration(floor)} at {units.si(found.bytes_per_s, 'B/s')}"
    compute = f"arithmetic of their products: {units.duration(each)} a token at {units.si(found.flops_per_s, 'FLOP/s')}"
    lines = ((np.full(2, floor), "--", COLOURS[2], read), (ends * each, "-.", COLOURS[1], compute))
    for seconds, style, colour, label in lines:
        yield from axes.plot(ends, seconds / units.MILLI, linestyle=style, color=colour, linewidth=1.2, label=label)
    yield _mark_crossover(axes, found, floor)


def _mark_crossover(axes: Axes, found: Crossover, floor_s: float) -> Line2D:
    """Mark where the products' compute time overtakes their memory time, and where the two drawn lines meet."""
    key = Line2D([], [], color="black", linestyle=":", **_CIRCLE)
    if not np.isfinite(found.tokens):
        key.set_label(f"no crossover: {found.reason}")
        return key
    value, closed = (units.count(round(tokens)) for tokens in (found.tokens, found.closed_form_tokens))
    axes.axvline(found.tokens, color="black", linestyle=":", linewidth=1.0)
    axes.plot(found.closed_form_tokens, floor_s / units.MILLI, color="black", **_CIRCLE)
    low = axes.get_xaxis_transform()
    axes.annotate(f"crossover {value}", (found.tokens, 0.03), (4, 0), low, "offset points", fontsize=SMALL)
    key.set_label(f"crossover at {value} tokens; {closed} (circle) without activations; {found.peaks}")
    return key


def _block_products(deployment: Deployment) -> Products:
    """Sum the products that run over every token; the output layer, which runs once a prompt, is left out."""
    plan = deployment.plan
    per_token = plan.flops[:, plan.column(TOKENS)]
    blocks = np.array([row.op_class == "product" for row in plan.rows]) & (per_token > 0)
    return Products(float(plan.weight_bytes[blocks][:, plan.column(ONE)].sum()), float(per_token[blocks].sum()))
