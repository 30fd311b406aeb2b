"""The two lines of a roofline meet at the ridge point, and nothing lies above either."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rooflinekit.roofline.curves import attainable_flops_per_s, ridge_point

RATES = st.floats(1e6, 1e18)

# fmt: off
TABLE = [
    # FLOP/s  byte/s   ridge  peaks
    (94e12,   241e9,   390,   "GB10, both measured"),
    (125e12,  273e9,   458,   "GB10, both from the datasheet"),
    (989e12,  3.35e12, 295,   "H100 SXM, datasheet"),
]
# fmt: on


@pytest.mark.parametrize(("flops_per_s", "bytes_per_s", "ridge", "peaks"), TABLE)
def test_published_ridge_points(flops_per_s, bytes_per_s, ridge, peaks):
    """The ridge is the quotient of two peaks of one kind."""
    assert round(ridge_point(flops_per_s, bytes_per_s)) == ridge, peaks


@given(RATES, RATES)
def test_both_peaks_agree_at_the_ridge(flops_per_s, bytes_per_s):
    """At the ridge point the slope has just reached the flat part."""
    ridge = ridge_point(flops_per_s, bytes_per_s)
    assert ridge * bytes_per_s == pytest.approx(flops_per_s)
    assert attainable_flops_per_s(ridge, flops_per_s, bytes_per_s) == pytest.approx(flops_per_s)


@given(st.lists(st.floats(0, 1e6), min_size=1), RATES, RATES)
def test_the_roof_never_falls_and_stays_under_both_peaks(intensities, flops_per_s, bytes_per_s):
    """More FLOPs a byte never lower the rate, and no rate passes either line."""
    x = np.sort(np.array(intensities))
    rate = attainable_flops_per_s(x, flops_per_s, bytes_per_s)
    assert np.all(np.diff(rate) >= 0)
    assert np.all(rate <= flops_per_s)
    assert np.all(rate <= x * bytes_per_s)


def test_scalars_give_floats_and_arrays_broadcast():
    """One point is a Python float, the first entry of its vector."""
    one = attainable_flops_per_s(100.0, 94e12, 241e9)
    assert type(one) is float
    assert attainable_flops_per_s(np.array([100.0, 1e4]), 94e12, 241e9).tolist() == [one, 94e12]
