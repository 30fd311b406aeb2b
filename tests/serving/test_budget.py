"""Budget: the texts' ledgers line by line, and every change put back in by hand gives the limit."""

import math

import pytest

import rooflinekit as rk
from rooflinekit.errors import InvalidInputError
from rooflinekit.serving.budget import Ledger, ledger

SERVER = rk.Deployment("llama-3.1-8b", "l40s", engine="llama.cpp")
QUIET = rk.load_engine("vllm", prefill_step_host_s=0, eager_layer_s=0, request_host_s=0)
SIZES = {"prompt_tokens": 1500, "output_tokens": 20}


# ---- "Prefill and decode", sections "Which phase owns which number"

# fmt: off
TEXT = [
    # request                                                                                prefill  decode
    ({"prefill_s": 6000 / 10_000, "output_tokens": 400, "inter_token_latency_s": 0.008},     0.600,   3.2),
    ({"prefill_s": 1500 / 10_000, "output_tokens": 15, "inter_token_latency_s": 0.008},      0.150,   0.120),
    ({"prefill_s": 1500 / 10_000, "output_tokens": 0, "inter_token_latency_s": 0.008},       0.150,   0.0),
]
# fmt: on


@pytest.mark.parametrize(("parts", "prefill_s", "decode_s"), TEXT)
def test_the_courses_requests(parts, prefill_s, decode_s):
    """10,000 tokens a second, 8 ms a token: chat, completion, and an index that only reads."""
    lines = ledger(**parts)
    assert (lines.prefill_s, lines.decode_s) == (pytest.approx(prefill_s), pytest.approx(decode_s))
    assert lines.total_s == pytest.approx(prefill_s + decode_s)


def test_the_completion_that_misses_its_limit():
    """Over 300 ms by 60: prefill 150/90 as fast or decode twice as fast would do, network and queue cannot."""
    lines = Ledger(network_s=0.040, queue_s=0.050, prefill_s=0.150, decode_s=0.120)
    assert lines.total_s == pytest.approx(0.360)
    assert lines.over_s(0.3) == pytest.approx(0.060)
    faster = lines.faster(0.3)
    assert faster == {"network": None, "queue": None, "prefill": pytest.approx(5 / 3), "decode": pytest.approx(2)}
    assert lines.faster(0.4) == dict.fromkeys(("network", "queue", "prefill", "decode"), 1.0)


@pytest.mark.parametrize("name", ["prefill_s", "network_s", "queue_s", "output_tokens", "inter_token_latency_s"])
def test_a_ledger_of_less_than_nothing(name):
    """One line that names the part."""
    parts = {"prefill_s": 1, "output_tokens": 1, "inter_token_latency_s": 1, name: -1}
    with pytest.raises(InvalidInputError, match=f"{name}=-1: expected a number, 0 or more"):
        ledger(**parts)


# ---- lines of a deployment


def test_one_request_alone_is_its_service_time():
    """With a host that takes no time: the prefill, 19 steps, the network; no queue."""
    told = rk.budget(SERVER, 1.0, network_s=0.02, engine=QUIET, **SIZES)
    request = SERVER.request(1500, output_tokens=20)
    assert told.ledger == (0.02, 0.0, pytest.approx(request.prefill.time_s), pytest.approx(request.decode.time_s))
    assert told.serving is None
    assert told.met == (told.ledger.total_s <= 1.0)


def test_host_times_are_in_their_lines():
    """A request and a step with a prompt on the prefill's line; 19 steps on that of decode."""
    slow = QUIET.with_(request_host_s=0.1, prefill_step_host_s=0.01, step_host_s=0.001, sequence_host_s=0.0005)
    quiet, told = (rk.budget(SERVER, 5.0, engine=engine, **SIZES).ledger for engine in (QUIET, slow))
    assert told.prefill_s - quiet.prefill_s == pytest.approx(0.1 + 0.01 + 0.0015)
    assert told.decode_s - quiet.decode_s == pytest.approx(19 * 0.0015)


def test_a_long_prompt_is_read_in_passes():
    """10,000 tokens under 2,048: five passes, each with its host time."""
    slow = QUIET.with_(prefill_step_host_s=0.01, max_num_batched_tokens=2048)
    told = rk.budget(SERVER, 60.0, prompt_tokens=10_000, output_tokens=1, engine=slow)
    chunks = SERVER.chunked_prefill(10_000, token_budget=2048)
    assert len(chunks.steps) == 5
    assert told.ledger.prefill_s == pytest.approx(chunks.time_s + 5 * 0.01)
    assert told.ledger.decode_s == 0


@pytest.mark.parametrize("load", [{"rate_per_s": 1.0}, {"concurrency": 4, "requests": 40}], ids=str)
@pytest.mark.parametrize("statistic", ["mean", "p90", "p99"])
def test_lines_of_a_loaded_server_add_up_to_what_it_delivers(load, statistic):
    """Network besides; the first token is queue and prefill, the rest decode."""
    told = rk.budget(SERVER, 100.0, network_s=0.5, statistic=statistic, **load, **SIZES)
    whole = getattr(told.serving.end_to_end_s, statistic)
    first = getattr(told.serving.time_to_first_token_s, statistic)
    assert told.ledger.total_s == pytest.approx(0.5 + whole)
    assert told.ledger.queue_s + told.ledger.prefill_s == pytest.approx(first)
    assert told.ledger.queue_s > 0
    assert sum(told.ledger) == told.ledger.total_s


def test_load_lengthens_the_queue():
    """More requests, more waiting; the prefill is the same."""
    few, many = (rk.budget(SERVER, 9.0, rate_per_s=rate, **SIZES).ledger for rate in (0.5, 3))
    assert many.queue_s > few.queue_s
    assert many.prefill_s == pytest.approx(few.prefill_s)


# ---- what alone would close the gap

# fmt: off
ASKED = [
    # limit  load
    (0.60,   {}),
    (0.55,   {"cached_tokens": 500}),
    pytest.param(0.75, {"rate_per_s": 2.0}, marks=pytest.mark.slow),
    pytest.param(0.75, {"concurrency": 4}, marks=pytest.mark.slow),
]
# fmt: on


@pytest.mark.parametrize(("limit", "load"), ASKED, ids=str)
def test_each_change_put_back_in_gives_the_limit(limit, load):
    """The size that it names keeps the limit; 2% of the way back, or one, misses it."""
    told = rk.budget(SERVER, limit, **SIZES, **load)
    assert not told.met
    sized = [one for one in told.changes if one.closes and one.unit not in ("times", "device")]
    assert len(sized) >= 2
    for one in sized:
        kept = rk.budget(SERVER, limit, **{**SIZES, **load, one.unit: one.to}).ledger.total_s
        assert kept == pytest.approx(one.end_to_end_s)
        assert kept <= limit
        back = (one.before - one.to) * 0.02 if one.unit == "rate_per_s" else max(abs(one.to) * 0.02, 1)
        less = one.to + math.copysign(back, one.before - one.to)
        less = less if one.unit == "rate_per_s" else round(less)
        assert rk.budget(SERVER, limit, **{**SIZES, **load, one.unit: less}).ledger.total_s > limit, one


def test_how_much_faster_a_phase_would_have_to_be():
    """The other lines as they are and this one divided by it are the limit."""
    told = rk.budget(SERVER, 0.5, network_s=0.02, **SIZES)
    times = {one.change: one.to for one in told.changes if one.unit == "times"}
    lines = told.ledger
    assert 0.02 + lines.prefill_s / times["faster prefill"] + lines.decode_s == pytest.approx(0.5)
    assert 0.02 + lines.prefill_s + lines.decode_s / times["faster decode"] == pytest.approx(0.5)


def test_what_cannot_close_the_gap_says_how_far_it_goes():
    """A limit below the decode: no prompt is short enough, one of a token leaves the 19 steps."""
    told = rk.budget(SERVER, 0.2, **SIZES)
    shorter = next(one for one in told.changes if one.change == "shorter prompt")
    assert (shorter.to, shorter.closes) == (None, False)
    assert shorter.end_to_end_s == rk.budget(SERVER, 0.2, prompt_tokens=1, output_tokens=20).ledger.total_s > 0.2


def test_other_devices():
    """One that keeps the limit, one that misses it, one that the model does not fit on, which says so."""
    told = rk.budget(SERVER, 0.4, devices=["h100-sxm", "l4", "rtx-3060-12gb"], **SIZES)
    quick, slow, small = (one for one in told.changes if one.unit == "device")
    assert (quick.change, quick.to) == ("another device", "h100-sxm-80gb")
    assert quick.end_to_end_s == rk.budget(SERVER.with_(device="h100-sxm"), 0.4, **SIZES).ledger.total_s < 0.4
    assert (slow.change, slow.to, slow.reason) == ("l4 instead", None, "")
    assert (small.change, small.to) == ("rtx-3060-12gb instead", None)
    assert "rtx-3060-12gb" in small.reason
    assert math.isnan(small.end_to_end_s)


def test_a_limit_that_is_kept_asks_for_nothing():
    """No changes, whatever devices are named."""
    told = rk.budget(SERVER, 5.0, devices=["h100-sxm"], **SIZES)
    assert told.met
    assert told.changes == ()
    assert ", within 5.00 s" in repr(told)


def test_an_overloaded_server_has_a_queue_without_end():
    """It is said with the rate that it could carry; fewer requests would close the gap."""
    told = rk.budget(SERVER, 5.0, rate_per_s=1000, **SIZES)
    most = told.serving.most_requests_per_s
    assert told.ledger.queue_s == math.inf
    assert not told.met
    assert repr(told) == f"overloaded: at most {most:.3g} requests/s ({told.basis})"
    fewer = next(one for one in told.changes if one.change == "fewer requests")
    assert 0 < fewer.to <= most


def test_the_table_is_tidy():
    """A row a line, shares that add up to 1."""
    table = rk.budget(SERVER, 0.5, network_s=0.02, **SIZES).table()
    assert table["line"].tolist() == ["network", "queue", "prefill", "decode"]
    assert table["share"].sum() == pytest.approx(1)


BAD = [
    # arguments                                 part of the line
    ({"limit_s": 0},                            "limit_s=0: expected a number, above 0"),
    ({"prompt_tokens": 0},                      "prompt_tokens=0: expected a number, 1 or more"),
    ({"output_tokens": 0},                      "output_tokens=0"),
    ({"cached_tokens": -1},                     "cached_tokens=-1"),
    ({"cached_tokens": 1500},                   "expected fewer than prompt_tokens=1500"),
    ({"network_s": -0.1},                       "network_s=-0.1"),
    ({"statistic": "median"},                   "statistic='median' is not known"),
    ({"burstiness": 2.0, "requests": 5},        "burstiness, requests: of a load: give rate_per_s= (open) or"),
    ({"prompt_tokens": 131_053},                "a request of 131,073 tokens is longer than the 131,072"),
    ({"rate_per_s": 1, "concurrency": 1},       "give one of rate_per_s= (open) and concurrency= (closed), or neither"),
    ({"rate_per_s": 0},                         "rate_per_s=0"),
    ({"devices": ["l40x"]},                     "l40x is not in hardware_db"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "part"), BAD, ids=[part for _, part in BAD])
def test_bad_input(arguments, part):
    """One line that names argument and value."""
    with pytest.raises(rk.RooflinekitError) as caught:
        rk.budget(SERVER, **{"limit_s": 0.3, **SIZES, **arguments})
    assert part in str(caught.value)
    assert "\n" not in str(caught.value)
