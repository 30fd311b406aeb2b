"""The stored grid of workloads: what it holds, which loads it asks for, and where the closed form holds."""

import pandas as pd
import pytest

from rooflinekit.calibration import grid

TABLE = pd.read_csv(grid.TABLE)


def test_the_table_holds_the_grid():
    """300 rows, in order, each simulated; percentiles of all."""
    cells = [grid.Workload(*row) for row in TABLE[[*grid.Workload._fields]].itertuples(index=False)]
    assert cells == list(grid.workloads())
    assert (TABLE[[*grid.FIGURES]] > 0).all(axis=None)


def test_loads_are_parts_of_the_largest():
    """An open one of the rate, a closed one of the requests in flight; runs end after ten rounds."""
    open_one, closed = (grid.load_of(grid.Workload(how, "fixed", 1000, 200, 2048, 0.5)) for how in ("open", "closed"))
    twice = grid.load_of(grid.Workload("open", "fixed", 1000, 200, 2048, 0.95))
    assert twice["rate_per_s"] / open_one["rate_per_s"] == pytest.approx(0.95 / 0.5)
    assert closed["requests"] == 10 * closed["concurrency"]


@pytest.mark.parametrize(
    ("how", "lengths", "load", "valid"),
    [
        ("closed", "uniform", 0.95, True),
        ("open", "fixed", 0.7, True),
        ("open", "fixed", 0.85, False),
        ("open", "lognormal", 0.3, False),
        ("closed", "lognormal", 0.3, True),
    ],
)
def test_validity_is_what_the_command_says(how, lengths, load, valid):
    """The answer of the closed form says where it was asked for outside."""
    assert grid.figures(grid.Workload(how, lengths, 1000, 200, 2048, load), "closed form")["valid"] is valid


@pytest.mark.slow
@pytest.mark.parametrize("index", [24, 110, 163, 222])
def test_a_workload_simulated_anew(index):
    """What is stored comes of today's laws and profile: whoever changes them runs tools/serving_grid.py."""
    found = grid.figures(grid.workloads()[index], "simulation")
    assert {name: found[name] for name in grid.FIGURES} == pytest.approx(
        dict(TABLE.loc[index, [*grid.FIGURES]]), rel=1e-4
    )
