"""Cost: the bill is divided by time shares that are worked out here by hand, and adds up to the whole."""

import math

import pytest

import rooflinekit as rk
from rooflinekit.errors import InvalidInputError

SERVER = rk.Deployment("llama-3.1-8b", "h100-sxm")
#: A server whose host takes no time: steps are what the device takes.
QUIET = rk.load_engine("vllm", prefill_step_host_s=0, eager_layer_s=0, request_host_s=0)
LOAD = {"prompt_tokens": 2000, "output_tokens": 200, "rate_per_s": 4}
LOADED = math.inf


def priced(**changes):
    """Price a load at 2 dollars an hour."""
    return rk.cost(SERVER, **{"usd_per_hour": 2.0, **LOAD, **changes})


def test_answers_of_one_token_leave_the_whole_bill_to_prompts():
    """An hour costs $2 and 4 x 3,600 x 2,000 prompt tokens: $0.0694 a million; the prefill samples the one token."""
    usd = priced(output_tokens=1).usd_per_million
    assert usd.input == pytest.approx(2.0 / (4 * 3600 * 2000) * 1e6)
    assert usd.input == pytest.approx(0.0694, abs=5e-5)
    assert usd.output == 0
    assert math.isnan(usd.cached)


def test_the_bill_is_divided_by_the_time_of_the_steps():
    """A decode step over its sequences for each further token; what a prompt adds to such a step for its tokens."""
    found = priced(engine=QUIET)
    b = max(found.serving.running, 1.0)
    decode_s = SERVER.step((1, 2100, b), busy_s=LOADED).time_s
    prompt_s = SERVER.step((2000, 0, 1), (1, 2100, b), busy_s=LOADED).time_s - decode_s
    answer_s = 199 * decode_s / b
    each = 2.0 / 3600 / 4  # dollars of a request
    usd = found.usd_per_million
    assert usd.input == pytest.approx(each * prompt_s / (prompt_s + answer_s) / 2000 * 1e6)
    assert usd.output == pytest.approx(each * answer_s / (prompt_s + answer_s) / 200 * 1e6)


def test_host_times_are_paid_where_they_are_spent():
    """What a host takes for steps with prompts makes prompts dearer and answers cheaper, and the bill no larger."""
    quiet, slow = (priced(engine=engine).usd_per_million for engine in (QUIET, QUIET.with_(prefill_step_host_s=0.02)))
    assert slow.input > quiet.input
    assert slow.output < quiet.output


# fmt: off
BILLS = [
    # changes of the load
    {},
    {"cached_tokens": 1500},
    {"cached_tokens": 1500, "prompt_tokens": 30_000, "rate_per_s": 0.2},
    {"rate_per_s": 0.01},
    {"rate_per_s": 11, "requests": 200},
    {"engine": "sglang"},
    {"engine": "llama.cpp", "rate_per_s": 0.5},
    {"prompt_tokens": rk.Lengths.ranged(2000, 0.5), "output_tokens": rk.Lengths.ranged(200, 0.5)},
    {"rate_per_s": None, "concurrency": 16},
]
# fmt: on


@pytest.mark.parametrize("changes", BILLS, ids=str)
def test_all_kinds_together_are_the_whole_bill(changes):
    """Tokens of a request times their prices are its part of the GPUs' hour."""
    found = priced(**changes)
    load = {**LOAD, **changes}
    prompt, output = (getattr(load[name], "mean", load[name]) for name in ("prompt_tokens", "output_tokens"))
    held, usd = load.get("cached_tokens", 0), found.usd_per_million
    bill = ((prompt - held) * usd.input + (held * usd.cached if held else 0) + output * usd.output) / 1e6
    assert bill == pytest.approx(found.usd_per_request, rel=1e-12)
    assert bill == pytest.approx(2.0 / 3600 / found.serving.come_per_s, rel=1e-12)
    assert min(usd.input, usd.output) > 0


def test_a_cached_token_costs_less_than_one_that_is_read():
    """It is attended to and not computed: less than a tenth."""
    usd = priced(cached_tokens=1500).usd_per_million
    assert 0 < usd.cached < usd.input / 10


def test_output_costs_more_than_input():
    """The texts' rule of thumb, several times as much."""
    usd = priced().usd_per_million
    assert 4 < usd.output / usd.input < 40


def test_a_fuller_server_is_cheaper():
    """Twice the requests on one GPU halve the bill of each."""
    few, many = (priced(rate_per_s=rate).usd_per_request for rate in (2, 4))
    assert few == pytest.approx(2 * many)


def test_every_gpu_is_paid():
    """Two of them at one price: twice the bill at the same rate."""
    one, two = (
        rk.cost(SERVER.with_(tensor_parallel=ranks), usd_per_hour=3.0, **LOAD).usd_per_request for ranks in (1, 2)
    )
    assert one == pytest.approx(3.0 / 3600 / 4)
    assert two == pytest.approx(2 * one)


def test_energy_is_the_power_limit_all_the_time():
    """700 W for every GPU-second, an upper bound; nothing where no limit is known."""
    found = priced()
    assert found.energy_j.output == pytest.approx(700 * found.gpu_s.output)
    card = {"bandwidth_gb_per_s": 3350, "memory_gib": 80, "peak_dense_tflops": {"bf16": 989}}
    assert rk.cost(rk.Deployment("llama-3.1-8b", card), usd_per_hour=1, **LOAD).energy_j is None


# ---- where there is no cost


def test_no_cost_where_the_objective_is_missed():
    """The line says which limit, by what."""
    found = priced(objective=rk.Objective(time_to_first_token_s=0.05))
    assert found.usd_per_million is None
    assert found.usd_per_request is None
    assert repr(found).startswith("cost undefined: the objective is missed: mean time to first token is ")
    assert priced(objective=rk.Objective(time_to_first_token_s=5)).usd_per_million is not None


def test_an_objective_on_a_percentile_of_a_closed_run_is_simulated():
    """The closed form has none, which is no miss."""
    found = priced(
        rate_per_s=None, concurrency=4, requests=40, objective=rk.Objective(time_to_first_token_s=(5.0, "p99"))
    )
    assert found.serving.method.startswith("simulation")
    assert found.usd_per_million is not None


def test_no_cost_of_an_overloaded_server():
    """It says what it could carry."""
    found = priced(rate_per_s=100)
    assert found.serving.overloaded
    most = found.serving.most_requests_per_s
    assert 5 < most < 30
    assert repr(found) == f"cost undefined: overloaded: it could carry {most:.3g} requests/s"


def test_no_dollars_without_a_price():
    """GPU time and energy are known all the same; the line says what to give."""
    found = priced(usd_per_hour=None)
    assert found.usd_per_million is None
    assert found.gpu_s.output > 0
    assert found.reason.startswith("h100-sxm-80gb has no dated price in its file: give usd_per_hour")


def test_the_dated_price_of_a_file():
    """Taken where the user gives none, with source and day; the user's own goes first."""
    card = rk.load_device("h100-sxm")
    dated = {"usd_per_hour": 2.5, "date": "2026-08-01", "source": "a price list"}
    server = SERVER.with_(device=type(card).model_validate({**card.model_dump(), "price": dated}))
    assert rk.cost(server, **LOAD).price == (2.5, "a price list, 2026-08-01")
    assert rk.cost(server, usd_per_hour=1.0, **LOAD).price == (1.0, "given")


@pytest.mark.parametrize("price", [0, -1, math.nan, math.inf])
def test_a_price_that_is_none(price):
    """One line with the value."""
    with pytest.raises(InvalidInputError, match=rf"usd_per_hour={price}: expected a number, above 0"):
        priced(usd_per_hour=price)


def test_the_table_has_a_row_a_kind():
    """Tidy, not-a-number where there is no such token."""
    table = priced().table().set_index("tokens")
    assert list(table.index) == ["input", "cached", "output"]
    assert table["usd_per_million"].notna().tolist() == [True, False, True]
    assert priced(rate_per_s=100).table()["gpu_s"].isna().all()


def test_a_trace_is_priced_by_its_means(tmp_path):
    """Its requests over its time, its mean lengths."""
    path = tmp_path / "trace.csv"
    rows = "".join(f"{index / 4},{1500 + index * 100},200\n" for index in range(11))
    path.write_text(f"arrival_s,prompt_tokens,output_tokens\n{rows}")
    found = rk.cost(SERVER, usd_per_hour=2.0, trace=rk.read_trace(path))
    usd = found.usd_per_million
    assert (2000 * usd.input + 200 * usd.output) / 1e6 == pytest.approx(found.usd_per_request)
    assert found.usd_per_request == pytest.approx(2.0 / 3600 / found.serving.requests_per_s)
