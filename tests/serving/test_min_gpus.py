"""Fewest GPUs: servers counted by hand from the rate that each keeps, layouts that cannot be, with their reasons."""

import math

import pytest

import rooflinekit as rk
from rooflinekit.errors import InvalidInputError

SLO = rk.Objective(time_per_output_token_s=0.020)
LOAD = {"prompt_tokens": 2000, "output_tokens": 200}
SHORT = {**LOAD, "requests": 50}


@pytest.fixture(scope="module")
def fleets():
    """Ask for 40 requests a second of an 8B model on H100s."""
    return rk.min_gpus("llama-3.1-8b", "h100-sxm", 40, SLO, gpus_each=(1, 2, 4), **LOAD)


def test_servers_are_the_rate_over_what_one_keeps(fleets):
    """By hand: the largest rate of one server of the layout, and whole servers that carry 40."""
    assert [one.layout for one in fleets.options if not one.servers] == []
    for one in fleets.options:
        degree = one.gpus_each
        server = rk.Deployment("llama-3.1-8b", "h100-sxm", tensor_parallel=degree)
        most = rk.max_rate(server, SLO, **LOAD).rate_per_s
        assert one.max_rate_per_s == most
        assert one.servers == math.ceil(40 / most)
        assert one.gpus == degree * one.servers


def test_the_fewest_come_first(fleets):
    """Sorted by GPUs; the best is the first."""
    counts = [one.gpus for one in fleets.options]
    assert counts == sorted(counts)
    assert fleets.best is fleets.options[0]
    assert fleets.gpus == min(counts)


def test_each_server_keeps_the_objective_at_its_part(fleets):
    """Its latencies are those of 40 over the servers."""
    for one in fleets.options:
        assert SLO.missed(one.serving) == ()
        assert one.serving.traffic.arrivals.rate_per_s == pytest.approx(40 / one.servers)


def test_a_rate_that_divides_needs_no_further_server(fleets):
    """Three times what one keeps is three servers, a little more is four."""
    (one,) = (one for one in fleets.options if one.gpus_each == 1)
    for rate, servers in ((3 * one.max_rate_per_s, 3), (3.01 * one.max_rate_per_s, 4)):
        asked = rk.min_gpus("llama-3.1-8b", "h100-sxm", rate, SLO, gpus_each=(1,), **LOAD)
        assert asked.best.servers == servers


def test_a_trickle_needs_one_server():
    """A rate that rounds to none of a server."""
    assert rk.min_gpus("llama-3.1-8b", "h100-sxm", 1e-9, SLO, gpus_each=(1,), **LOAD).gpus == 1


def test_layouts_that_cannot_be_say_why():
    """70B does not fit on one GPU, and three do not divide its heads: last, with the reason."""
    asked = rk.min_gpus("llama-3.1-70b", "h100-sxm", 1, rk.Objective(end_to_end_s=60), gpus_each=(1, 3, 4), **SHORT)
    assert asked.best.layout == "TP4"
    reasons = {one.layout: one.reason for one in asked.options if not one.servers}
    assert "leaves no room for K and V" in reasons["one device"]
    assert any("does not divide" in reason for reason in reasons.values())
    assert [bool(one.servers) for one in asked.options] == sorted(
        (bool(one.servers) for one in asked.options), reverse=True
    )


def test_an_objective_that_no_layout_keeps():
    """No fleet, and the line says what one request alone takes in each layout."""
    asked = rk.min_gpus(
        "llama-3.1-8b", "h100-sxm", 1, rk.Objective(time_to_first_token_s=0.001), gpus_each=(1, 2), **LOAD
    )
    assert (asked.best, asked.gpus) == (None, None)
    assert repr(asked).startswith(
        "no layout keeps mean time to first token up to 1.00 ms: one device: mean time to first"
    )
    assert asked.table()["gpus"].isna().all()


def test_mixtures_are_tried_with_whole_experts_too():
    """Tensor, expert and data-parallel attention of two GPUs; no pipeline."""
    asked = rk.min_gpus("qwen3-30b-a3b", "h200-sxm", 2, rk.Objective(end_to_end_s=60), gpus_each=(2,), **SHORT)
    layouts = {one.layout for one in asked.options}
    assert {"TP2", "TP2 EP2"} <= layouts
    assert not any("PP" in layout for layout in layouts)


def test_settings_are_those_of_the_deployment():
    """Weights in FP8 let a model of 70B parameters, 141 GB in 16 bits, onto one H200 of 141 GB."""
    asked = {"gpus_each": (1,), "requests": 50, **LOAD}
    line = "llama-3.1-70b", "h200-sxm", 0.5, rk.Objective(end_to_end_s=60)
    assert rk.min_gpus(*line, **asked).gpus is None
    assert rk.min_gpus(*line, settings={"weights": "fp8"}, **asked).gpus == 1


def test_the_table_is_tidy(fleets):
    """A row a layout with its latencies."""
    table = fleets.table()
    assert table["gpus"].tolist() == [one.gpus for one in fleets.options]
    assert (table["time_per_output_token_s"] < 0.020).all()
    assert repr(fleets) == repr(fleets.best)
    assert " GPUs: " in repr(fleets)


@pytest.mark.parametrize(
    ("rate", "gpus_each", "part"),
    [
        (0, (1,), "rate_per_s=0: expected a number, above 0"),
        (math.inf, (1,), "rate_per_s=inf"),
        (1, (0,), "gpus_each=0: expected a number, 1 or more, whole"),
        (1, (1.5,), "gpus_each=1.5"),
    ],
)
def test_bad_input(rate, gpus_each, part):
    """One line that names argument and value."""
    with pytest.raises(InvalidInputError) as caught:
        rk.min_gpus("llama-3.1-8b", "h100-sxm", rate, SLO, gpus_each=gpus_each, **LOAD)
    assert part in str(caught.value)
