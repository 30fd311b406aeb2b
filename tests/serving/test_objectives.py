"""Objectives: what misses them, the largest rate that keeps them, and requests counted one by one."""

import math

import pytest

import rooflinekit as rk
from rooflinekit.errors import InvalidInputError
from rooflinekit.serving.objectives import Limit, Missed, judged

SERVER = rk.Deployment("llama-3.1-8b", "h100-sxm")
LOAD = {"prompt_tokens": 2000, "output_tokens": 200}


# ---- limits


def test_limits_have_the_statistic_of_all_or_their_own():
    """A pair is seconds and their statistic; a number takes that of the objective."""
    objective = rk.Objective(time_to_first_token_s=(0.5, "p99"), end_to_end_s=10, statistic="mean")
    assert objective.limits == {"time_to_first_token_s": (0.5, "p99"), "end_to_end_s": (10, "mean")}
    assert str(objective) == "p99 time to first token up to 500 ms, mean end to end up to 10.0 s"


BAD = [
    # arguments                                              part of the line
    ({},                                                     "without a limit: give one of time_to_first_token_s"),
    ({"time_to_first_token_s": 0},                           "time_to_first_token_s=0: expected a number, above 0"),
    ({"time_per_output_token_s": -0.01},                     "time_per_output_token_s=-0.01"),
    ({"end_to_end_s": math.nan},                             "end_to_end_s=nan"),
    ({"end_to_end_s": 1, "statistic": "p95"},                "statistic='p95' is not known: expected one of mean"),
    ({"inter_token_latency_s": (0.05, "max")},               "statistic='max'"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "part"), BAD, ids=[part for _, part in BAD])
def test_what_limits_nothing_is_refused(arguments, part):
    """One line that names argument and value."""
    with pytest.raises(InvalidInputError) as caught:
        rk.Objective(**arguments)
    assert part in str(caught.value)


def test_what_a_server_misses():
    """Every limit that is exceeded, with what was seen; what is exactly at its limit is kept."""
    serving = rk.serve(SERVER, rate_per_s=4, **LOAD)
    seen = serving.time_to_first_token_s.p99
    assert rk.Objective(time_to_first_token_s=(seen, "p99")).missed(serving) == ()
    strict = rk.Objective(time_to_first_token_s=(seen * 0.999, "p99"), time_per_output_token_s=(1e-3, "mean"))
    assert strict.missed(serving) == (
        Missed("time_to_first_token_s", Limit(seen * 0.999, "p99"), seen),
        Missed("time_per_output_token_s", Limit(1e-3, "mean"), serving.time_per_output_token_s.mean),
    )


def test_a_missed_limit_says_by_what():
    """Figures with units, four digits of what was seen."""
    missed = Missed("inter_token_latency_s", Limit(0.05, "p99"), 0.06789)
    assert str(missed) == "p99 inter-token latency is 67.89 ms, the limit 50.0 ms"


def test_a_statistic_that_nobody_gives_is_missed():
    """The closed form has no percentiles of a closed run: not-a-number keeps no limit."""
    serving = rk.serve(SERVER, concurrency=4, method="closed form", **LOAD)
    assert math.isnan(serving.time_to_first_token_s.p90)
    assert rk.Objective(time_to_first_token_s=(1e6, "p90")).missed(serving)


def test_judged_simulates_where_a_percentile_is_lacking():
    """The mean at a rate is the closed form's, its p90 the simulation's."""
    load = {"rate_per_s": 4, "requests": 40, **LOAD}
    assert judged(SERVER, rk.Objective(end_to_end_s=1), **load).method == "closed form"
    seen = judged(SERVER, rk.Objective(end_to_end_s=(1, "p90")), **load)
    assert seen.method.startswith("simulation")
    assert seen.end_to_end_s.p90 > 0


@pytest.mark.parametrize("statistic", ["p50", "p90", "p99"])
def test_percentiles_of_gaps_are_the_simulations(statistic):
    """The closed form knows the step of a mean load only: a run has longer gaps; its mean it was judged on."""
    load = {"rate_per_s": 3, "requests": 100, **LOAD}
    assert judged(SERVER, rk.Objective(inter_token_latency_s=1), **load).method == "closed form"
    seen = judged(SERVER, rk.Objective(inter_token_latency_s=(1, statistic)), **load)
    assert seen.method == "simulation: a percentile that the closed form was not judged on"
    assert seen.inter_token_latency_s == rk.serve(SERVER, method="simulation", **load).inter_token_latency_s


def test_the_rate_under_a_limit_on_gaps_is_that_of_the_simulation():
    """The same with and without asking for it: the quicker answer is not the more generous one."""
    objective = rk.Objective(inter_token_latency_s=(0.120, "p99"))
    load = {"requests": 60, "tolerance": 0.1, **LOAD}
    rates = [rk.max_rate(SERVER, objective, method=one, **load).rate_per_s for one in ("auto", "simulation")]
    assert rates[0] == rates[1] > 1


# ---- the largest rate


@pytest.mark.parametrize(
    ("metric", "limits"),
    [
        ("time_per_output_token_s", (0.005, 0.008, 0.010, 0.015, 0.016, 0.020)),
        ("time_to_first_token_s", (0.05, 0.15, 0.20, 0.25)),
        ("end_to_end_s", (1.0, 1.6, 2.0, 3.0, 4.0)),
    ],
)
def test_a_looser_limit_never_gives_a_smaller_rate(metric, limits):
    """From none at all, where one request alone misses it, upwards."""
    rates = [rk.max_rate(SERVER, rk.Objective(**{metric: limit}), **LOAD).rate_per_s for limit in limits]
    assert rates[0] == 0
    assert rates == sorted(rates)
    assert len(set(rates)) == len(rates)


@pytest.mark.parametrize(
    "objective",
    [
        rk.Objective(time_per_output_token_s=0.012),
        rk.Objective(time_to_first_token_s=(0.2, "p90"), end_to_end_s=(4.0, "p99")),
        rk.Objective(inter_token_latency_s=0.05),
    ],
    ids=str,
)
def test_the_rate_keeps_the_objective_and_a_little_more_does_not(objective):
    """Kept at the rate, missed 3% above it, by what it says."""
    found = rk.max_rate(SERVER, objective, **LOAD)
    assert found.rate_per_s > 1
    assert objective.missed(judged(SERVER, objective, rate_per_s=found.rate_per_s, **LOAD)) == ()
    above = objective.missed(judged(SERVER, objective, rate_per_s=1.03 * found.rate_per_s, **LOAD))
    assert above
    assert found.limited_by.partition(" is ")[0] == str(above[0]).partition(" is ")[0]
    assert objective.missed(found.serving) == ()


def test_without_a_limit_that_matters_the_server_itself_is_the_limit():
    """A day for every answer: as much as can be carried, to 1%."""
    found = rk.max_rate(SERVER, rk.Objective(end_to_end_s=86_400), requests=100, **LOAD)
    assert found.limited_by == "no more could be carried"
    assert found.rate_per_s == pytest.approx(found.serving.most_requests_per_s, rel=0.011)
    assert found.serving.method.startswith("simulation")
    assert found.serving.utilisation == found.rate_per_s / found.serving.most_requests_per_s  # of what comes


def test_no_rate_keeps_what_one_request_misses():
    """Rate 0, with what one request alone takes."""
    found = rk.max_rate(SERVER, rk.Objective(time_to_first_token_s=0.001), **LOAD)
    assert found.rate_per_s == 0
    assert repr(found) == f"0 requests/s: {found.limited_by} for one request alone"
    assert found.limited_by.startswith("mean time to first token is ")


def test_tolerance_is_how_near_it_is_looked_for():
    """A finer search lies within the coarse one's interval."""
    objective = rk.Objective(time_per_output_token_s=0.012)
    coarse, fine = (rk.max_rate(SERVER, objective, tolerance=part, **LOAD).rate_per_s for part in (0.1, 0.001))
    assert coarse <= fine <= coarse / (1 - 0.1)
    with pytest.raises(InvalidInputError, match="tolerance=0"):
        rk.max_rate(SERVER, objective, tolerance=0, **LOAD)


# ---- goodput

# fmt: off
REQUESTS = [
    # limits                                                      first, each, whole     kept
    ({"time_to_first_token_s": 0.5},                              (0.5, 0.02, 4.0),      True),
    ({"time_to_first_token_s": 0.5},                              (0.51, 0.02, 4.0),     False),
    ({"time_to_first_token_s": 0.5, "end_to_end_s": 3},           (0.1, 0.02, 4.0),      False),
    ({"time_per_output_token_s": 0.01},                           (0.1, 0.02, 4.0),      False),
    ({"time_per_output_token_s": 0.01},                           (0.1, math.nan, 0.1),  True),
    ({"time_to_first_token_s": (0.5, "mean")},                    (0.6, 0.02, 4.0),      False),
]
# fmt: on


@pytest.mark.parametrize(("limits", "seen", "kept"), REQUESTS)
def test_one_request_keeps_every_limit_or_none(limits, seen, kept):
    """Whatever the statistic; an answer of one token has no time per token."""
    assert rk.Objective(**limits).met_by(*seen) is kept


def test_goodput_is_a_count():
    """The same run, its requests counted one by one by hand."""
    limit, lengths = 0.140, (rk.Lengths(2000), rk.Lengths(200))
    seen = []
    served = rk.simulate(
        SERVER, rk.Traffic(rk.Open(6.0), *lengths, requests=150), on_request=lambda *times: seen.append(times)
    )
    counted = rk.goodput(SERVER, rk.Objective(time_to_first_token_s=limit), rate_per_s=6.0, requests=150, **LOAD)
    kept = sum(first <= limit for first, _, _ in seen)
    assert 0 < kept < 150
    assert counted.share == kept / 150
    assert counted.requests_per_s == pytest.approx(kept / served.duration_s)
    assert repr(counted).startswith(f"{counted.requests_per_s:.3g} of {served.requests_per_s:.3g} requests/s keep the")


def test_goodput_of_a_trace(tmp_path):
    """Two requests far apart and one that finds a long prompt at work."""
    path = tmp_path / "trace.csv"
    path.write_text("arrival_s,prompt_tokens,output_tokens\n0,1000,10\n9,30000,10\n9.05,1000,10\n")
    counted = rk.goodput(SERVER, rk.Objective(time_to_first_token_s=0.3), trace=rk.read_trace(path))
    assert counted.share == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ({"rate_per_s": 1, "concurrency": 1}, "one of rate_per_s"),
        ({}, "one of rate_per_s"),
        ({"rate_per_s": 1, "output_tokens": 0}, "output_tokens=0"),
        ({"rate_per_s": 1, "output_tokens": None}, "output_tokens"),
    ],
)
def test_a_load_that_is_none(arguments, part):
    """One line that says what is missing."""
    with pytest.raises(InvalidInputError) as caught:
        rk.goodput(SERVER, rk.Objective(end_to_end_s=1), **{**LOAD, **arguments})
    assert part in str(caught.value)


def test_gaps_are_no_property_of_a_request():
    """A request has many: goodput asks for the time per output token."""
    with pytest.raises(InvalidInputError, match="rather than inter_token_latency_s"):
        rk.goodput(SERVER, rk.Objective(inter_token_latency_s=0.1), rate_per_s=1, **LOAD)
