"""Heat map of the closed form's error against the simulation, over the stored grid of workloads."""

from collections.abc import Iterator
from io import BytesIO
from typing import TYPE_CHECKING

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.image import AxesImage
from matplotlib.patches import Rectangle

from rooflinekit.reports.drawing import GREY, SMALL, new_figure

if TYPE_CHECKING:
    import pandas as pd

#: Errors from here on have one colour.
_MOST = 0.30
#: A colour map that is read in grey and by the colour-blind alike, and where its cells need pale letters.
_MAP, _PALE = "cividis", 0.45
_FIGURES = {"time_per_output_token_s": "time per output token", "time_to_first_token_s": "mean time to first token"}


def grid_figure(table: "pd.DataFrame") -> bytes:
    """
    Draw the errors, a panel for arrivals, figure and lengths; a cell holds the worse of the sizes of requests.

    Parameters
    ----------
    table : DataFrame
        As :func:`rooflinekit.calibration.closed_form.compared` gives it.

    Returns
    -------
    picture : bytes
        PNG.
    """
    lengths, rows = list(dict.fromkeys(table["lengths"])), list(_rows(table))
    figure = new_figure(8.0, 2.1 * len(rows) + 0.9)
    panels = figure.subplots(len(rows), len(lengths), sharex=True, sharey=True, squeeze=False)
    for (how, name), line in zip(rows, panels, strict=True):
        for kind, axes in zip(lengths, line, strict=True):
            chosen = table[(table["arrivals"] == how) & (table["lengths"] == kind)]
            image = _draw(axes, chosen, name)
            axes.set_title(f"{how}, {kind} lengths:\n{_FIGURES[name]}", fontsize=SMALL)
    figure.suptitle("Closed form against simulation: error, the worse of 1,000 in / 200 out and 4,000 in / 300 out")
    figure.supxlabel("token budget of a step", fontsize=9)
    figure.supylabel("load, as a part of the most that the server carries", fontsize=9)
    bar = figure.colorbar(image, ax=panels, shrink=0.4, extend="max", format=lambda part, _: f"{part:.0%}")
    bar.set_label("size of the error; framed: the command simulates there", fontsize=SMALL)
    bar.ax.tick_params(labelsize=SMALL)
    picture = BytesIO()
    figure.savefig(picture, format="png", dpi=130)
    return picture.getvalue()


def _rows(table: "pd.DataFrame") -> Iterator[tuple[str, str]]:
    for how in dict.fromkeys(table["arrivals"]):
        yield from ((how, name) for name in _FIGURES)


def _draw(axes: Axes, rows: "pd.DataFrame", name: str) -> AxesImage:
    """Draw one panel: budgets along, loads up."""
    errors = rows.assign(error=rows[f"closed_{name}"] / rows[name] - 1.0)
    worst = errors.pivot_table(index="utilisation", columns="token_budget", values="error", aggfunc=_worst)
    valid = errors.pivot_table(index="utilisation", columns="token_budget", values="valid", aggfunc="min").to_numpy(
        bool
    )
    values = worst.to_numpy(float)
    image = axes.imshow(np.abs(values), cmap=_MAP, norm=Normalize(0.0, _MOST), origin="lower", aspect="auto")
    for (row, column), value in np.ndenumerate(values):
        axes.text(column, row, f"{value:+.0%}", ha="center", va="center", fontsize=7, color=letters(value))
        if not valid[row, column]:
            axes.add_patch(
                Rectangle((column - 0.46, row - 0.44), 0.92, 0.88, fill=False, edgecolor=GREY, linewidth=1.2)
            )
    axes.set_xticks(range(worst.shape[1]), [f"{budget:,}" for budget in worst.columns], fontsize=SMALL, rotation=30)
    axes.set_yticks(range(worst.shape[0]), [f"{load:g}" for load in worst.index], fontsize=SMALL)
    return image


def _worst(errors: "pd.Series[float]") -> float:
    return float(max(errors, key=abs))


def letters(value: float) -> str:
    """Give the colour of letters on a cell.

    >>> letters(0.01), letters(0.25)
    ('white', 'black')
    """
    red, green, blue, _ = colormaps[_MAP](min(abs(value) / _MOST, 1.0))
    return "black" if 0.3 * red + 0.6 * green + 0.1 * blue > _PALE else "white"
