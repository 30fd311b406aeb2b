"""The closed form of a server's latencies against what was simulated on the stored grid."""

import numpy as np
import pytest

from rooflinekit.calibration.closed_form import compared


@pytest.fixture(scope="module")
def table():
    """Lay closed form and simulation side by side: some seconds."""
    return compared()


@pytest.mark.parametrize(
    ("name", "how", "median", "tail"),
    [
        ("time_per_output_token_s", "closed", 0.01, 0.02),
        ("time_to_first_token_s", "closed", 0.08, 0.15),
        ("time_per_output_token_s", "open", 0.04, 0.12),
        ("time_to_first_token_s", "open", 0.10, 0.25),
        ("time_to_first_token_p99_s", "open", 0.25, 0.40),
    ],
)
def test_the_closed_form_against_the_simulation(table, name, how, median, tail):
    """Lengths of public clients, where the form is valid; the page prints the same figures."""
    rows = table[(table["arrivals"] == how) & (table["lengths"] == "uniform") & table["valid"]]
    found = (rows[f"closed_{name}"] / rows[name] - 1.0).abs()
    assert len(found) >= 30
    assert np.median(found) <= median
    assert np.quantile(found, 0.9) <= tail
