"""Which device: rates and prices of each are those of its own question, and the cheapest request comes first."""

import math

import pytest

import rooflinekit as rk
from rooflinekit.errors import InvalidInputError

SLO = rk.Objective(time_per_output_token_s=0.025)
LOAD = {"prompt_tokens": 2000, "output_tokens": 200}
PRICES = {"a100-sxm-80gb": 1.3, "h100-sxm": 2.5, "h200-sxm": None, "rtx-3060-12gb": 0.1}


@pytest.fixture(scope="module")
def compared():
    """Compare three that serve an 8B model and one that is too small."""
    return rk.candidates("llama-3.1-8b", PRICES, SLO, **LOAD)


def test_the_cheapest_request_comes_first(compared):
    """Then what has no price, then what cannot serve."""
    assert [one.deployment.device.id for one in compared.options] == [
        "h100-sxm-80gb", "a100-sxm-80gb", "h200-sxm", "rtx-3060-12gb",
    ]  # fmt: skip
    first, second, third, last = compared.options
    assert first.usd_per_request < second.usd_per_request
    assert (third.usd_per_request, last.max_rate_per_s) == (None, 0)
    assert compared.best is first


@pytest.mark.parametrize("index", [0, 1, 2])
def test_each_rate_is_its_own_questions(compared, index):
    """As if only this device had been asked; an hour's price over an hour's requests."""
    one = compared.options[index]
    assert one.max_rate_per_s == rk.max_rate(one.deployment, SLO, **LOAD).rate_per_s
    if one.usd_per_request is not None:
        assert one.usd_per_request == pytest.approx(one.cost.price.usd_per_hour / 3600 / one.max_rate_per_s)


def test_what_is_too_small_says_so(compared):
    """The reason is the error's; the table has not-a-number."""
    assert "leaves no room for K and V on rtx-3060-12gb" in compared.options[-1].reason
    table = compared.table().set_index("device")
    assert math.isnan(table.loc["rtx-3060-12gb", "request_usd"])
    assert math.isnan(table.loc["h200-sxm", "usd_per_hour"])
    assert repr(compared.options[0]).startswith("1 x h100-sxm-80gb: ")


def test_settings_are_those_of_every_deployment():
    """Two GPUs each, both paid."""
    one, two = (
        rk.candidates("llama-3.1-8b", {"h100-sxm": 2.5}, SLO, settings={"tensor_parallel": ranks}, **LOAD).best
        for ranks in (1, 2)
    )
    assert two.deployment.layout.devices == 2
    assert two.max_rate_per_s > one.max_rate_per_s
    assert two.usd_per_request == pytest.approx(2 * 2.5 / 3600 / two.max_rate_per_s)


def test_an_objective_that_none_keeps():
    """No best one, and the reason is what one request alone takes."""
    none = rk.candidates("llama-3.1-8b", {"h100-sxm": 2}, rk.Objective(time_to_first_token_s=0.001), **LOAD)
    assert none.best is None
    assert none.options[0].reason.startswith("mean time to first token is ")


def test_bad_input():
    """No device, and a price that is none, before any search."""
    with pytest.raises(InvalidInputError, match="expected one at least"):
        rk.candidates("llama-3.1-8b", {}, SLO, **LOAD)
    with pytest.raises(InvalidInputError, match="usd_per_hour=0"):
        rk.candidates("llama-3.1-8b", {"h100-sxm": 0}, SLO, **LOAD)
