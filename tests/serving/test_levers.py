"""Levers: what the texts claim moves and does not move, with the ratios that can be worked out by hand."""

import math

import pytest

import rooflinekit as rk
from rooflinekit.errors import InvalidInputError
from rooflinekit.serving.changes import scaled_device
from rooflinekit.serving.lever_figures import METRICS

GB10 = rk.Deployment("qwen3-8b", "gb10")
FOUND = rk.levers(GB10, 2048, 256, acceptance=0.7, usd_per_hour={"gb10": 0.36, "h100-sxm": 2.7})
H100 = rk.Deployment("llama-3.1-8b", "h100-sxm")

# fmt: off
CLAIMS = [
    # change                              moves                                                does not move
    ("2x memory bandwidth",               {"decode", "TPOT", "ITL p99", "throughput", "cost"}, {"prefill", "TTFT"}),
    ("weights in FP8, 16-bit arithmetic", {"decode", "TPOT", "ITL p99", "throughput", "cost"}, {"prefill", "TTFT"}),
    ("weights in INT4",                   {"decode", "TPOT", "ITL p99", "throughput", "cost"}, {"prefill", "TTFT"}),
    ("2x arithmetic",                     {"prefill", "TTFT"},                      {"decode", "TPOT", "throughput"}),
    ("weights and arithmetic in FP8",     {"prefill", "decode", "TTFT", "TPOT"},               {"KV capacity"}),
    ("K and V in FP8",                    {"KV capacity"},                          {*METRICS} - {"KV capacity"}),
    ("half the prompt",                   {"prefill", "TTFT", "KV capacity"},                  {"decode", "TPOT"}),
    ("prefix hit 50%",                    {"prefill", "TTFT"},                      {*METRICS} - {"prefill", "TTFT"}),
    ("prefix hit 90%",                    {"prefill", "TTFT"},                      {*METRICS} - {"prefill", "TTFT"}),
    ("2x the token budget",               set(),                                               {*METRICS}),
    ("2x requests in flight",             {"throughput", "cost"},                   {"prefill", "decode", "TPOT"}),
    ("tensor parallel 2",                 {"prefill", "decode", "TTFT", "TPOT", "throughput", "KV capacity"}, {"cost"}),
    ("speculation",                       {"decode", "TPOT", "throughput", "cost"},            {"prefill", "TTFT"}),
    ("on h100-sxm",                       {*METRICS} - {"cost"},                               set()),
]
# fmt: on


@pytest.mark.parametrize(("change", "moves", "stays"), CLAIMS)
def test_what_moves_which_phase(change, moves, stays):
    """Bytes move decode, arithmetic the prefill, batch the throughput, prefix hits the first token; nothing else."""
    words = FOUND[change].words
    assert moves <= {name for name, word in words.items() if word == "moves"}
    assert stays <= {name for name, word in words.items() if word == "does not move"}


def test_each_change_is_a_row_and_the_gap_is_wide():
    """A row a change asked for; what stays and what moves are not told apart by the threshold alone."""
    assert len(FOUND.rows) == 15
    bandwidth, arithmetic = FOUND["2x memory bandwidth"].ratios, FOUND["2x arithmetic"].ratios
    assert bandwidth["decode"] < 0.55
    assert 0.85 < bandwidth["prefill"] < 1
    assert arithmetic["prefill"] < 0.7
    assert 0.99 < arithmetic["decode"] <= 1.0001


def test_the_base_by_hand():
    """One in flight: the first token takes the prefill, the engine's work on a prompt and on a request; no queue."""
    base, engine = FOUND.base, rk.load_engine("vllm")
    loaded = {"busy_s": math.inf}
    assert base.prefill_s == pytest.approx(GB10.prefill(2048, **loaded).time_s)
    assert base.decode_step_s == pytest.approx(GB10.decode(2048 + 128, **loaded).time_s)
    host = engine.prefill_step_host_s + engine.request_host_s
    assert base.time_to_first_token_s == pytest.approx(base.prefill_s + host, rel=1e-6)
    cycle = base.time_to_first_token_s + 255 * base.time_per_output_token_s
    assert base.output_tokens_per_s == pytest.approx(256 / cycle, rel=1e-3)


def test_cost_by_hand():
    """Dollars of a GPU-second over tokens per second, of all GPUs; $2.7 an hour are 7.5 times $0.36."""
    assert FOUND.priced
    assert FOUND.base.cost_per_token == pytest.approx(0.36 / 3600 / FOUND.base.output_tokens_per_s)
    two, other = FOUND["tensor parallel 2"].ratios, FOUND["on h100-sxm"].ratios
    assert two["cost"] == pytest.approx(2 / two["throughput"])
    assert other["cost"] == pytest.approx(7.5 / other["throughput"])


def test_no_price_no_cost_of_another_device():
    """Without prices GPU time is compared on one device, and the cost of another is left open with the reason."""
    bare = rk.levers(GB10, 2048, 64, devices=("h100-sxm",))
    assert not bare.priced
    assert bare.base.cost_per_token == pytest.approx(1 / bare.base.output_tokens_per_s)
    assert math.isnan(bare["on h100-sxm"].ratios["cost"])
    assert "no usd_per_hour of gb10, h100-sxm-80gb" in bare["on h100-sxm"].note
    assert "cost" not in bare["on h100-sxm"].words or bare["on h100-sxm"].words["cost"] == ""


def test_speculation_by_hand():
    """A burst of tokens a step: the step over its tokens, the gap between bursts, the answers' part of the work."""
    made = rk.speculate(GB10, acceptance=0.7, context_tokens=2048 + 128, draft="module")
    row = FOUND["speculation"].ratios
    assert row["decode"] == pytest.approx(made.time_per_output_token_s / made.plain_s, rel=1e-3)
    work = FOUND.base.prefill_s + 256 * made.plain_s
    saved = 256 * (made.plain_s - made.time_per_output_token_s)
    assert row["throughput"] == pytest.approx(work / (work - saved), rel=1e-3)
    assert row["ITL p99"] > 1 > row["TPOT"]


def test_speculation_without_an_acceptance_is_left_open():
    """No acceptance is assumed: the break-even is told in its place."""
    row = rk.levers(GB10, 2048, 64)["speculation"]
    even = rk.speculate(GB10, acceptance=0.0, context_tokens=2048 + 32, drafted=4, draft="module").break_even_acceptance
    assert (row.moved, row.words) == ((), {})
    assert f"4 drafted tokens pay from {even:.2f} on" in row.note


def test_at_a_rate_throughput_is_what_the_server_carries():
    """A full batch leaves less arithmetic to verify with: speculation gains less there than at the running batch."""
    found = rk.levers(H100, 1000, 200, rate_per_s=4, acceptance=0.6)
    served = rk.serve(H100, prompt_tokens=1000, output_tokens=200, rate_per_s=4)
    assert found.base.output_tokens_per_s == pytest.approx(200 * served.most_requests_per_s)
    row = found["speculation"].ratios
    assert row["throughput"] < 0.9 / row["TPOT"]


def test_an_overload_is_told():
    """A rate that a change makes too large ends in infinite latencies, and the rate that is carried is told."""
    most = rk.serve(H100, prompt_tokens=1000, output_tokens=200, rate_per_s=1).most_requests_per_s
    row = rk.levers(H100, 1000, 200, rate_per_s=0.6 * most, devices=())["2x the rate"]
    assert math.isinf(row.ratios["TTFT"])
    assert row.note.startswith("overloaded: carries ")


# fmt: off
REFUSED = [
    # deployment                    engine          change             reason
    ({"weights": "int4"},           "vllm",         "weights in INT4", "the weights are held in int4"),
    ({"weights": "int4"},           "vllm",         "weights in FP8",  "the weights are held in int4"),
    ({"weights": "fp8"},            "vllm",         "weights and ari", "the weights are held in fp8"),
    ({"kv_cache": "fp8"},           "vllm",         "K and V in FP8",  "K and V are held in fp8"),
    ({"device": "a100-sxm-80gb"},   "vllm",         "weights and ari", "no FP8 arithmetic peak"),
    ({},                            "tensorrt-llm", "half the token",  "cuts no prompts into chunks"),
    ({"tensor_parallel": 8},        "vllm",         "tensor parallel", ""),
]
# fmt: on


@pytest.mark.parametrize(("choices", "engine", "change", "reason"), REFUSED)
def test_what_cannot_be_changed_says_why(choices, engine, change, reason):
    """A row stays, without ratios and with the reason, or with ratios where nothing forbids it."""
    row = rk.levers(H100.with_(**choices), 500, 20, engine=engine, devices=())[change]
    assert reason in row.note
    assert math.isnan(row.ratios["TPOT"]) == bool(reason)


def test_the_table_is_tidy():
    """A row a change: the ratios, what moves in words, the note."""
    table = FOUND.table()
    assert [*table.columns] == ["change", *METRICS, "moves", "note"]
    assert table.set_index("change").loc["K and V in FP8", "moves"] == "KV capacity"


def test_the_threshold_is_the_readers():
    """2x bandwidth takes 12% off the prefill: that moves by a threshold of 10%."""
    strict = rk.levers(GB10, 2048, 64, threshold=0.1, devices=())
    assert strict["2x memory bandwidth"].words["prefill"] == "moves"


# fmt: off
WRONG = [
    ({"rate_per_s": 1, "concurrency": 2},      "one of rate_per_s= (open) and concurrency= (closed)"),
    ({"threshold": 0},                         "threshold"),
    ({"acceptance": 1.5},                      "acceptance=1.5: expected a number from 0 to 1"),
    ({"usd_per_hour": {"gb10": -1}},           "usd_per_hour of gb10"),
    ({"usd_per_hour": {"gb11": 1}},            "did you mean gb10"),
]
# fmt: on


@pytest.mark.parametrize(("choices", "told"), WRONG)
def test_wrong_input_is_told(choices, told):
    """One line that names the key and the value."""
    with pytest.raises(rk.RooflinekitError) as caught:
        rk.levers(GB10, 2048, 64, **choices)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_unknown_change_lists_those_there_are():
    """The names are the rows'."""
    with pytest.raises(InvalidInputError, match="'3x memory': expected one of 2x memory bandwidth, "):
        FOUND["3x memory"]


def test_a_scaled_device_keeps_what_was_fitted():
    """Twice the datasheet's peaks at the same fractions: a memory-bound pass without launches takes half."""
    twice = scaled_device(rk.load_device("gb10"), bandwidth=2.0, flops=2.0)
    plain, fast = (GB10.with_(device=one, efficiency="datasheet") for one in ("gb10", twice))
    assert fast.decode(2048).time_s == pytest.approx(plain.decode(2048).time_s / 2)
    assert fast.prefill(2048).time_s == pytest.approx(plain.prefill(2048).time_s / 2)
