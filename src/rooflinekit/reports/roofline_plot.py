"""The roofline of a device with the operators of one or more passes under it."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

from rooflinekit import units
from rooflinekit.errors import InvalidInputError
from rooflinekit.phases.estimate import Estimate
from rooflinekit.phases.row import OperatorEstimate
from rooflinekit.reports.drawing import (
    COLOURS,
    Kept,
    Spot,
    figure_of,
    label_spots,
    legend,
    line,
    log_axes,
    new_figure,
    title,
)
from rooflinekit.roofline.curves import Real, attainable_flops_per_s, ridge_point
from rooflinekit.specs.device import Device

_LABELLED = 6  # operators of a pass that get a label, the longest first
_SHARE = 0.02  # and that take at least this part of it
_AREA = 700.0  # of a point that took the whole pass, in square points
_LEAST = 8.0  # of a point too small to see
_NAMED = 1  # operators without FLOPs that the legend names
_NOTHING = 0.0005  # a share that prints as 0.0%


class Roof(NamedTuple):
    """Two peaks of one kind; a measured roof may know only one of them, and is drawn as far as that one goes."""

    kind: str
    dtype: str
    flops_per_s: float | None
    bytes_per_s: float | None

    def rate(self, intensity: Real) -> Real:
        """Give the attainable rate, a peak that is not known being no limit. [FLOP/s]"""
        return attainable_flops_per_s(intensity, self.flops_per_s or np.inf, self.bytes_per_s or np.inf)

    def __str__(self) -> str:
        """Name the roof with its figures."""
        flat = f"{units.si(self.flops_per_s, 'FLOP/s')} ({self.dtype})" if self.flops_per_s else ""
        slope = units.si(self.bytes_per_s, "B/s") if self.bytes_per_s else ""
        if self.flops_per_s and self.bytes_per_s:
            ridge = units.significant(float(ridge_point(self.flops_per_s, self.bytes_per_s)))
            return f"{self.kind} roof: {flat}, {slope}, ridge at {ridge} FLOP/byte"
        return f"{self.kind} roof: {flat or slope}, no {'bandwidth' if flat else f'{self.dtype} rate'} marked"


def roofline_figure(*estimates: Estimate) -> Figure:
    """
    Draw operators under the roofs of their device: datasheet and, where the device file marks ceilings, measured.

    Parameters
    ----------
    *estimates : Estimate
        Single points on one device, typically a prefill and a decode step.

    Returns
    -------
    figure : Figure
        An operator is a point at its intensity and the rate that its expected time means; its area is its share of the
        pass. Operators without FLOPs are not on the plot: the legend holds their share.

    Raises
    ------
    InvalidInputError
        No estimate, a sweep, an estimate without passes, or estimates of several devices.
    MissingFigureError
        The device has no arithmetic peak to time the operators with.

    Examples
    --------
    >>> import rooflinekit as rk
    >>> d = rk.Deployment("qwen3-8b", "gb10")
    >>> figure = roofline_figure(d.prefill(2048), d.decode(2048))
    >>> figure.axes[0].get_ylabel()
    'rate reached [FLOP/s]'
    """
    device = _one_device(estimates)
    figure = new_figure(7.0, 5.0)
    axes = figure.add_subplot()
    log_axes(axes)
    axes.set_xlabel("arithmetic intensity [FLOP/byte]", fontsize=9)
    axes.set_ylabel("rate reached [FLOP/s]", fontsize=9)
    roofs = device_roofs(device, _dtypes(estimates))
    _set_limits(axes, estimates, roofs)
    draw_roofs(axes, roofs)
    for index, estimate in enumerate(estimates):
        _draw_points(axes, estimate, index)
    _explain(axes, estimates)
    _label_points(axes, estimates, roofs)
    return figure


# ---- roofs


def device_roofs(device: Device, dtypes: Iterable[str]) -> tuple[Roof, ...]:
    """List the roofs of a device in these dtypes: the datasheet's, then those of its measured ceilings."""
    read = device.ceiling("memory_read_gb_per_s")
    bandwidth = None if read is None else read.value * units.GIGA
    roofs = []
    for dtype in dtypes:
        sheet, measured = device.flops_per_s.get(dtype), _measured_peak(device, dtype)
        roofs += [Roof("datasheet", dtype, sheet, device.bytes_per_s)]
        roofs += [Roof("measured", dtype, measured, bandwidth)] if measured or bandwidth else []
    return tuple(roofs)


def _measured_peak(device: Device, dtype: str) -> float | None:
    row = device.ceiling(f"gemm_{dtype}_{'tops' if dtype.startswith('int') else 'tflops'}")
    return None if row is None else row.value * units.TERA


def draw_roofs(axes: Axes, roofs: Sequence[Roof]) -> None:
    """Draw each roof over the width of the axes: solid from the datasheet, dashed measured, a colour a dtype."""
    colours = dict(zip(dict.fromkeys(roof.dtype for roof in roofs), ("black", COLOURS[3], COLOURS[4]), strict=False))
    x = np.geomspace(*axes.get_xlim(), 400)
    for roof in roofs:
        y = roof.rate(x)
        shown = np.where(np.isfinite(y) & (y <= _datasheet(roofs, roof.dtype, x)), y, np.nan)
        style = "-" if roof.kind == "datasheet" else (0, (5, 2))
        axes.plot(x, shown, linestyle=style, color=colours.get(roof.dtype, "black"), linewidth=1.3, label=str(roof))


def _datasheet(roofs: Sequence[Roof], dtype: str, x: Real) -> Real:
    """Give the datasheet roof in this dtype: where a measured one that knows one peak only ends."""
    return next(roof for roof in roofs if roof.kind == "datasheet" and roof.dtype == dtype).rate(x)


def _lowest(roofs: Sequence[Roof], intensity: float) -> float:
    """Give the rate under the lowest roof at this intensity: labels stay beneath it."""
    return min(float(roof.rate(intensity)) for roof in roofs)


# ---- points


def _one_device(estimates: Sequence[Estimate]) -> Device:
    devices = {estimate.deployment.device.id: estimate.deployment.device for estimate in estimates}
    if len(devices) != 1:
        message = f"a roofline is that of one device: got estimates of {', '.join(devices) or 'none'}"
        raise InvalidInputError(message)
    for estimate in estimates:
        if estimate.shape != () or not estimate.time_s > 0:
            message = f"{estimate.label}: a roofline takes single points that take time, not shape {estimate.shape}"
            raise InvalidInputError(message)
    return next(iter(devices.values()))


def _working(estimate: Estimate) -> tuple[OperatorEstimate, ...]:
    """Operators with FLOPs, the longest first."""
    return tuple(sorted((row for row in estimate.operators if row.flops > 0), key=lambda row: -row.time_s))


def _dtypes(estimates: Sequence[Estimate]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(row.dtype for estimate in estimates for row in _working(estimate)))


def _set_limits(axes: Axes, estimates: Sequence[Estimate], roofs: Sequence[Roof]) -> None:
    points = [(row.intensity, row.flops / row.time_s) for estimate in estimates for row in _working(estimate)]
    ridges = [ridge_point(r.flops_per_s, r.bytes_per_s) for r in roofs if r.flops_per_s and r.bytes_per_s]
    tops = [roof.flops_per_s for roof in roofs if roof.flops_per_s]
    x, y = np.array(points).T
    axes.set_xlim(min(x.min(), *ridges) / 3.0, 10.0 * max(x.max(), *ridges))
    axes.set_ylim(y.min() / 8.0, 1.8 * max(y.max(), *tops))


def _draw_points(axes: Axes, estimate: Estimate, index: int) -> None:
    rows, style = _working(estimate), line(index)
    axes.scatter(
        [row.intensity for row in rows],
        [row.flops / row.time_s for row in rows],
        s=[max(_AREA * row.time_s / estimate.time_s, _LEAST) for row in rows],
        marker=style.marker,
        color=style.colour,
        edgecolors="white",
        linewidths=0.6,
        alpha=0.85,
        zorder=3,
        label=_pass_name(estimate, rows),
    )


def _pass_name(estimate: Estimate, rows: Sequence[OperatorEstimate]) -> str:
    """Name a pass and its time, with the share and the names of what is not on the plot."""
    rest = sorted((row for row in estimate.operators if row not in rows), key=lambda row: -row.time_s)
    share = sum(row.time_s for row in rest) / estimate.time_s
    names = ", ".join(row.name for row in rest[:_NAMED]) + (", ..." if len(rest) > _NAMED else "")
    missing = f"; not drawn: {share:.1%} without FLOPs ({names})" if share > _NOTHING else ""
    return f"{estimate.label}: {units.duration(estimate.time_s)}{missing}"


def _explain(axes: Axes, estimates: Sequence[Estimate]) -> None:
    deployments = dict.fromkeys(line for estimate in estimates for line in (repr(estimate.deployment), *estimate.notes))
    models = dict.fromkeys(estimate.deployment.model.id for estimate in estimates)
    heading = f"{' and '.join(models)} under the roofs of {estimates[0].deployment.device.id}"
    title(axes, heading, "\n".join((*deployments, "point area: share of the pass's time")))
    for handle in legend(figure_of(axes)).legend_handles[-len(estimates) :]:
        handle.set_sizes([40.0])  # type: ignore[union-attr]


def _label_points(axes: Axes, estimates: Sequence[Estimate], roofs: Sequence[Roof]) -> None:
    figure_of(axes).draw_without_rendering()  # settles the layout, which the places are chosen in
    boxes = [_box(axes, row, estimate) for estimate in estimates for row in _working(estimate)]
    kept = Kept(boxes, lambda intensity: _lowest(roofs, intensity), [])
    for index, estimate in enumerate(estimates):
        named = [row for row in _working(estimate)[:_LABELLED] if row.time_s / estimate.time_s >= _SHARE]
        spots = [_spot(row, row.time_s / estimate.time_s) for row in named]
        label_spots(axes, spots, line(index).colour, kept)


def _spot(row: OperatorEstimate, share: float) -> Spot:
    return Spot(row.intensity, row.flops / row.time_s, f"{row.name} {share:.0%}")


def _box(axes: Axes, row: OperatorEstimate, estimate: Estimate) -> Bbox:
    """Give the pixels that a point covers."""
    x, y = axes.transData.transform((row.intensity, row.flops / row.time_s))
    half = 0.5 * np.sqrt(max(_AREA * row.time_s / estimate.time_s, _LEAST)) * figure_of(axes).dpi / 72.0
    return Bbox.from_extents(x - half, y - half, x + half, y + half)
