"""The time laws as functions of numbers: limits, bounds and shape."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rooflinekit.roofline.law import floor_time, joined_time, power_limit_stretch

SECONDS = st.floats(0, 10, allow_subnormal=False).map(lambda value: 0.0 if value < 1e-12 else value)
EXPONENTS = st.sampled_from([1.0, 1.5, 2.0, 3.0, math.inf])

# fmt: off
TABLE = [
    # ours                                                      expected     tolerance  what
    pytest.param(joined_time(3.0, 4.0, 1.0),                    7.0,         0,     id="exponent 1 adds"),
    pytest.param(joined_time(3.0, 4.0, 2.0),                    5.0,         0,     id="exponent 2 is the hypotenuse"),
    pytest.param(joined_time(3.0, 4.0, 3.0),                    91 ** (1 / 3), 1e-15, id="exponent 3"),
    pytest.param(joined_time(3.0, 4.0, math.inf),               4.0,         0,     id="infinity takes the larger"),
    pytest.param(joined_time(0.0, 4.0, 2.0),                   4.0,         0,     id="no arithmetic: the memory time"),
    pytest.param(power_limit_stretch(0.040, 0.0, 0.020, 0.8),   1.125,       1e-15, id="half of it beyond the budget"),
    pytest.param(power_limit_stretch(0.020, 0.0, 0.020, 0.8),   1.0,         0,     id="just within the budget"),
    pytest.param(power_limit_stretch(0.040, 0.020, 0.020, 0.8), 1.25,        1e-15, id="budget used up before"),
    pytest.param(power_limit_stretch(0.040, 0.010, 0.020, 0.8), 1.1875,      1e-15, id="half the budget used before"),
    pytest.param(power_limit_stretch(0.001, math.inf, 0.020, 0.8), 1.25,    1e-15, id="a loaded server: 1 / sustained"),
    pytest.param(power_limit_stretch(0.0, math.inf, 0.020, 0.8), 1.0,        0,     id="no compute work"),
    pytest.param(power_limit_stretch(5.0, 0.0, 0.020, 1.0),     1.0,        0,     id="a card that does not slow down"),
    pytest.param(floor_time(0.5, 1e9, 0.0, 1e9),                1.0,         0,     id="memory floor"),
    pytest.param(floor_time(2.0, 1e9, 0.0, 1e9),                2.0,         0,     id="compute floor"),
    pytest.param(floor_time(0.0, 1e9, 4e8, 1e9),              0.6,         1e-15, id="what the cache may hold is free"),
    pytest.param(floor_time(0.0, 1e8, 4e8, 1e9),                0.0,         0,     id="all in the cache"),
]
# fmt: on


@pytest.mark.parametrize(("ours", "expected", "tolerance"), TABLE)
def test_cases_worked_by_hand(ours, expected, tolerance):
    """Each law at points where its value is plain."""
    assert type(ours) is float
    assert ours == pytest.approx(expected, rel=tolerance, abs=0)


@given(SECONDS, SECONDS, EXPONENTS)
def test_a_joined_time_lies_between_the_larger_and_the_sum(compute, memory, exponent):
    """Never faster than either, never slower than one after the other, and symmetric."""
    time = joined_time(compute, memory, exponent)
    assert max(compute, memory) * (1 - 1e-12) <= time <= (compute + memory) * (1 + 1e-12)
    assert time == pytest.approx(joined_time(memory, compute, exponent), rel=1e-13)


@given(SECONDS, SECONDS)
def test_a_sharper_join_is_faster(compute, memory):
    """Time falls as the exponent rises, from the sum to the maximum."""
    times = [joined_time(compute, memory, exponent) for exponent in (1.0, 1.5, 2.0, 3.0, math.inf)]
    assert all(later <= earlier * (1 + 1e-12) for earlier, later in itertools.pairwise(times))


@given(SECONDS, SECONDS, EXPONENTS, st.floats(0.01, 100))
def test_a_joined_time_is_homogeneous(compute, memory, exponent, factor):
    """Twice both times is twice the time."""
    scaled = joined_time(factor * compute, factor * memory, exponent)
    assert scaled == pytest.approx(factor * joined_time(compute, memory, exponent), rel=1e-12)


@pytest.mark.parametrize("exponent", [1.0, 2.0, 2.5, math.inf])
def test_laws_take_arrays(exponent):
    """Vectors give vectors, the same numbers as one by one."""
    compute, memory = np.array([0.0, 1.0, 3.0]), np.array([[2.0], [4.0]])
    single = [[joined_time(float(c), float(m), exponent) for c in compute] for m in memory[:, 0]]
    assert np.allclose(joined_time(compute, memory, exponent), single, rtol=1e-15)
    work, busy = np.array([0.0, 0.01, 0.05]), np.array([0.0, 0.015, np.inf])
    stretched = [power_limit_stretch(float(w), float(b), 0.02, 0.7) for w, b in zip(work, busy, strict=True)]
    assert np.allclose(power_limit_stretch(work, busy, 0.02, 0.7), stretched, rtol=1e-15)
    assert floor_time(np.array([0.1, 5.0]), np.array([1e9, 1e9]), 0.0, 1e9).tolist() == [1.0, 5.0]


SUSTAINED = st.floats(0.1, 1)
BUDGET = st.floats(0, 1)


@given(SECONDS, st.floats(0, 2), BUDGET, SUSTAINED)
def test_a_stretch_lies_between_burst_and_sustained(work, busy, budget, sustained):
    """Never faster than the burst rate, never slower than the sustained one."""
    assert 1 <= power_limit_stretch(work, busy, budget, sustained) <= (1 / sustained) * (1 + 1e-12)


@given(SECONDS, st.floats(0, 2), st.floats(0, 2), BUDGET, SUSTAINED)
def test_a_busier_card_is_never_faster(work, busy, more, budget, sustained):
    """More work before the pass stretches it no less."""
    before = power_limit_stretch(work, busy, budget, sustained)
    assert power_limit_stretch(work, busy + more, budget, sustained) >= before * (1 - 1e-12)


@given(st.floats(0, 2), BUDGET, SUSTAINED)
def test_stretched_work_is_convex_and_rises(busy, budget, sustained):
    """A longer pass takes longer, and each second of it at least as long as the one before."""
    work = np.linspace(0, 3, 200)
    time = work * power_limit_stretch(work, busy, budget, sustained)
    assert np.all(np.diff(time) > 0)
    assert np.all(np.diff(time, 2) > -1e-12)


@given(SECONDS, SECONDS, st.floats(0, 2), BUDGET, SUSTAINED)
def test_work_in_two_passes_takes_as_long_as_in_one(first, second, busy, budget, sustained):
    """The budget is one account: a pass leaves to the next what it did not use."""
    whole = (first + second) * power_limit_stretch(first + second, busy, budget, sustained)
    parts = first * power_limit_stretch(first, busy, budget, sustained)
    parts += second * power_limit_stretch(second, busy + first, budget, sustained)
    assert parts == pytest.approx(whole, rel=1e-9, abs=1e-12)


@given(SECONDS, st.floats(0, 2), BUDGET, SUSTAINED)
def test_an_endless_load_is_the_sustained_rate(work, busy, budget, sustained):
    """Infinity before the pass gives 1 / sustained, which no finite load exceeds."""
    loaded = power_limit_stretch(work, math.inf, budget, sustained)
    assert loaded == pytest.approx(1 / sustained if work else 1.0, rel=1e-12)
    assert loaded >= power_limit_stretch(work, busy, budget, sustained) * (1 - 1e-12)
