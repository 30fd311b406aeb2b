"""The heat map of the closed form's errors."""

import numpy as np
import pandas as pd
import pytest

from rooflinekit.reports.grid_plot import grid_figure, letters

TABLE = pd.DataFrame(
    [
        {
            "arrivals": how, "lengths": kind, "token_budget": budget, "utilisation": load, "valid": load < 0.8,
            "time_per_output_token_s": 0.01, "closed_time_per_output_token_s": 0.01 * (1.0 + error),
            "time_to_first_token_s": 0.1, "closed_time_to_first_token_s": 0.1 * (1.0 - error),
        }
        for how in ("open", "closed")
        for kind in ("fixed", "uniform")
        for budget in (512, 2048)
        for load in (0.5, 0.9)
        for error in (0.02, 0.11)
    ]
)  # fmt: skip


def test_a_picture():
    """It is a PNG of some size."""
    picture = grid_figure(TABLE)
    assert picture.startswith(b"\x89PNG")
    assert len(picture) > 20_000


@pytest.mark.parametrize("error", np.linspace(0.0, 0.4, 9))
def test_letters_are_read_on_their_cell(error):
    """Dark cells of small errors have white letters, pale ones black; the sign does not matter."""
    assert letters(error) == letters(-error)
    assert letters(error) == ("white" if error < 0.14 else "black")
