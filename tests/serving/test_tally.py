"""Tally: exact means and percentiles within half a bin, in memory that no number of values changes."""

import math
import sys

import numpy as np
import pytest

from rooflinekit.serving.latency import Latency
from rooflinekit.serving.tally import Tally

#: Half a bin of a logarithm of 0.005.
HALF = 0.0026


def counted(values, weights=None):
    """Count values."""
    tally = Tally()
    for value, weight in zip(values, np.ones(len(values)) if weights is None else weights, strict=True):
        tally.add(float(value), float(weight))
    return tally


SAMPLES = {
    "lognormal": np.random.default_rng(0).lognormal(-3, 1.0, 5001),
    "uniform": np.random.default_rng(1).uniform(0.001, 10.0, 5001),
    "two values": np.repeat([0.01, 5.0], [9900, 100]),
    "one": np.array([0.25]),
}


@pytest.mark.parametrize("values", SAMPLES.values(), ids=SAMPLES)
@pytest.mark.parametrize("percent", [1, 50, 90, 99, 99.9])
def test_percentiles_against_numpy(values, percent):
    """The value that so many percent do not exceed, to 0.26%."""
    exact = np.percentile(values, percent, method="inverted_cdf")
    assert counted(values).percentile(percent) == pytest.approx(exact, rel=HALF)


def test_means_are_exact():
    """Mean, count and largest are those of the values themselves."""
    values = SAMPLES["lognormal"]
    tally = counted(values)
    assert tally.mean == pytest.approx(values.mean(), rel=1e-12)
    assert (tally.count, tally.largest) == (len(values), values.max())


def test_a_weight_is_so_many_values():
    """3 x 0.1 s and 1 x 0.2 s."""
    tally, single = counted([0.1, 0.2], [3, 1]), counted([0.1, 0.1, 0.1, 0.2])
    assert tally.mean == pytest.approx(single.mean) == pytest.approx(0.125)
    assert [tally.percentile(p) for p in (50, 76)] == [single.percentile(p) for p in (50, 76)]


def test_no_percentile_exceeds_the_largest():
    """Half a bin above the largest value is no value."""
    assert counted([1.0] * 3).percentile(99) <= 1.0


def test_nothing_counted():
    """Not-a-number, not nought."""
    assert math.isnan(Tally().mean)
    assert math.isnan(Tally().percentile(50))


def test_values_beyond_the_bins():
    """Nought and ages stay in the first and the last bin; the mean is theirs all the same."""
    tally = counted([0.0, 1e9])
    assert tally.mean == 5e8
    assert tally.percentile(40) < 1e-6
    assert tally.percentile(99) > 9e5


def test_memory_is_constant():
    """As many bins after 100,000 values as before."""
    tally = Tally()
    before = sys.getsizeof(tally._bins)
    for value in np.random.default_rng(2).lognormal(0, 3, 100_000):
        tally.add(float(value))
    assert sys.getsizeof(tally._bins) == before < 100_000


def test_latency_of_a_tally():
    """Mean and three percentiles."""
    tally = counted(np.arange(1, 101) / 100)
    assert Latency.of(tally) == pytest.approx((0.505, 0.5, 0.9, 0.99), rel=HALF)
