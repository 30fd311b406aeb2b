"""Figures of a loaded server: what is drawn is what was computed."""

import numpy as np
import pytest

import rooflinekit as rk
from rooflinekit.reports.choices import lever_rows
from rooflinekit.reports.plots import budget_figure, levers_figure, save

GB10 = rk.Deployment("qwen3-8b", "gb10")
FOUND = rk.levers(GB10, 2048, 64)
TABLE = rk.budget_curve(GB10, 10_000, 100, 0.02, budgets=[512, 2048, 16_384])


def words(figure):
    """Give the texts of the legend, joined lines."""
    return [" ".join(text.get_text().split()) for text in figure.legends[0].get_texts()]


def test_a_row_a_change_and_a_cell_a_ratio():
    """The names of the rows, the columns, and the ratios to two digits."""
    axes = levers_figure(FOUND).axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == [row.change for row in FOUND.rows]
    shown = [text.get_text() for text in axes.texts]
    expected = [cell.strip("()") for cell in [*lever_rows(FOUND)[1].values()][1:]]
    assert shown[: len(expected)] == expected


def test_colours_tell_better_from_worse():
    """Less time and more throughput are of one colour, more time of the other, what stays is grey."""
    cells = levers_figure(FOUND).axes[0].patches
    places = {(round(cell.get_x()), round(cell.get_y() + 0.46)): cell.get_facecolor()[:3] for cell in cells}
    height = {row.change: index for index, row in enumerate(FOUND.rows)}
    better, grey = places[1, height["2x memory bandwidth"]], places[0, height["2x memory bandwidth"]]
    assert places[5, height["2x memory bandwidth"]] == better  # throughput
    worse = places[6, height["on h100-sxm"]]  # a smaller pool
    assert len({better, grey, worse}) == 3
    assert grey[0] == grey[1] == grey[2]


def test_what_cannot_be_told_is_said_in_its_row():
    """No cells: the reason."""
    axes = levers_figure(FOUND).axes[0]
    assert any(text.get_text().startswith("needs your acceptance rate") for text in axes.texts)
    height = [row.change for row in FOUND.rows].index("speculation")
    assert not any(round(cell.get_y() + 0.46) == height for cell in axes.patches)


def test_the_budget_figure_draws_the_table():
    """Curves of both panels are the columns; the dashed line is the gap without chunks."""
    upper, lower = budget_figure(TABLE, heading="a", beneath="b", default=2048).axes
    drawn = {line.get_label(): line.get_ydata() for line in (*upper.lines, *lower.lines)}
    for start, column in (
        ("TTFT, mean", "ttft_mean_s"),
        ("worst gap: the largest", "worst_gap_s"),
        ("ITL, mean", "itl_mean_s"),
    ):
        (found,) = (values for label, values in drawn.items() if label.startswith(start))
        assert np.array_equal(found, TABLE[column])
    (whole,) = (values for label, values in drawn.items() if label.startswith("worst gap without chunks"))
    assert whole[0] == TABLE["unchunked_gap_s"].iloc[-1]


def test_keys_of_the_budget_figure():
    """The engine's own budget where it is in view; what is overloaded by name."""
    assert "default of the engine here: 2,048" in words(budget_figure(TABLE, default=2048))
    assert not any("default" in word for word in words(budget_figure(TABLE, default=99)))
    over = TABLE.assign(overloaded=[True, False, False])
    assert words(budget_figure(over))[-1] == "overloaded and left out: 512"


def test_nothing_to_draw_is_told():
    """All overloaded: the rate that could be carried."""
    most = TABLE["most_requests_per_s"].max()
    with pytest.raises(rk.InvalidInputError, match=f"every budget is overloaded: at most {most:.3g} requests/s"):
        budget_figure(TABLE.assign(overloaded=True))


@pytest.mark.parametrize("make", [lambda: levers_figure(FOUND), lambda: budget_figure(TABLE)])
def test_nothing_reaches_beyond_the_picture(make, tmp_path):
    """Legend and texts lie within the figure."""
    figure = make()
    assert save(figure, tmp_path / "a.png").stat().st_size > 10_000
    width, height = figure.get_size_inches() * figure.dpi
    renderer = figure.canvas.get_renderer()
    for artist in (figure.legends[0], *(text for axes in figure.axes for text in axes.texts)):
        box = artist.get_window_extent(renderer)
        assert box.x0 > -1
        assert box.y0 > -1
        assert box.x1 < width + 1
        assert box.y1 < height + 1
