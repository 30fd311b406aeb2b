"""The token budget: the seed's five passes, and gaps that are steps of the deployment."""

import math

import pytest

import rooflinekit as rk
from rooflinekit.serving.dial import gaps
from rooflinekit.serving.host import loaded_step_s

D = rk.Deployment("qwen3-8b", "gb10")
TABLE = rk.budget_curve(D, 10_000, 100, 0.02).set_index("token_budget")


def engine(budget):
    """Take vLLM with this many tokens a step."""
    return rk.load_engine("vllm", max_num_batched_tokens=budget)


# fmt: off
PASSES = [(256, 40), (512, 20), (1024, 10), (2048, 5), (4096, 3), (8192, 2), (16384, 1)]
# fmt: on


@pytest.mark.parametrize(("budget", "passes"), PASSES)
def test_a_prompt_of_10000_tokens(budget, passes):
    """Under a budget of 2,048 a 10,000-token prompt runs as five passes."""
    assert TABLE.loc[budget, "chunks"] == passes


def test_a_step_with_a_prompt_lasts_that_prompts_prefill():
    """The seed: a step with a 2,048-token prompt lasts as long as its prefill; the engine's 21 ms come on top."""
    gap = gaps(D, engine(4096), 2048, 100, batch=1)
    host = rk.load_engine("vllm").prefill_step_host_s
    prefill = D.prefill(2048, busy_s=math.inf).time_s
    assert gap.whole_s - host == pytest.approx(prefill, rel=0.02)
    assert gap.whole_s - host > prefill


def test_the_worst_gap_with_chunks_is_a_step_full_of_one_prompt():
    """The chunk that leaves room for those who decode, late in the prompt, beside them; without chunks all of it."""
    gap = gaps(D, engine(2048), 10_000, 100, batch=8)
    rest = rk.Group(1, 10_050, 8)
    late = loaded_step_s(D, engine(2048), chunks=rk.Group(2040, 3 * 2040, 1, 0), decoding=rest)
    whole = loaded_step_s(D, engine(2048), chunks=rk.Group(10_000, 0, 1), decoding=rest)
    assert gap.chunked_s == pytest.approx(float(late))
    assert gap.whole_s == pytest.approx(float(whole))
    assert gap.full_budget_s == gap.chunked_s  # a longer prompt fills the budget alone


def test_prompts_that_come_together_fill_the_budget():
    """Four prompts of 2,000 tokens in a budget of 8,000 and one: four times the tokens."""
    gap = gaps(D, engine(8001), 2000, 100, batch=1)
    four = loaded_step_s(D, engine(8001), chunks=rk.Group(2000, 0, 4), decoding=rk.Group(1, 2050, 1))
    assert gap.chunked_s == gap.whole_s
    assert gap.full_budget_s == pytest.approx(float(four))


def test_nothing_beside_a_prompt():
    """With no answer running a step is the chunk alone."""
    gap = gaps(D, engine(4096), 2048, 100, batch=0)
    assert gap.whole_s == pytest.approx(float(loaded_step_s(D, engine(4096), chunks=rk.Group(2048, 0, 1))))


def test_the_trade():
    """Larger budgets bring the first token sooner and make the worst gap longer, up to the whole prompt's."""
    assert TABLE["ttft_mean_s"].is_monotonic_decreasing
    assert TABLE["worst_gap_s"].is_monotonic_increasing
    assert TABLE["worst_gap_s"].iloc[-1] == pytest.approx(TABLE["unchunked_gap_s"].iloc[-1])
    assert TABLE.loc[256, "worst_gap_s"] < TABLE.loc[256, "unchunked_gap_s"] / 10
    assert (TABLE["full_budget_gap_s"] >= TABLE["worst_gap_s"]).all()


def test_a_cached_prefix_has_fewer_chunks():
    """Only what is new is read: 10,000 less 8,000 tokens fit into one budget of 2,048."""
    table = rk.budget_curve(D, 10_000, 100, 0.02, budgets=[2048], cached_tokens=8000)
    assert table["chunks"].tolist() == [1]
    assert table["worst_gap_s"][0] == pytest.approx(table["unchunked_gap_s"][0])


def test_like_stands_beside_like():
    """Where one budget needs a simulation all are simulated, but those that are overloaded."""
    most = rk.budget_curve(D, 10_000, 20, 0.01, budgets=[256, 2048])["most_requests_per_s"]
    assert most[0] < 0.85 * most[1]
    table = rk.budget_curve(D, 10_000, 20, 0.9 * most[0], budgets=[256, 2048], requests=20)
    assert all(method.startswith("simulation") for method in table["method"])
    over = rk.budget_curve(D, 10_000, 20, 1.01 * most[0], budgets=[256, 2048], requests=20)
    assert over["overloaded"].tolist() == [True, False]
    assert math.isinf(over["ttft_mean_s"][0])


def test_a_micro_batch_is_the_budget():
    """llama.cpp splits its batch once more: there the split is what is set."""
    table = rk.budget_curve(D, 4096, 50, 0.01, budgets=[512, 2048], engine="llama.cpp")
    assert table["chunks"].tolist() == [8, 2]
    assert table["worst_gap_s"][1] > 2 * table["worst_gap_s"][0]


# fmt: off
WRONG = [
    ({"engine": "sglang"},         "reads prompts whole or apart from decoding"),
    ({"engine": "tensorrt-llm"},   "reads prompts whole or apart from decoding"),
    ({"budgets": [0]},             "budgets"),
    ({"budgets": [512.5]},         "budgets"),
]
# fmt: on


@pytest.mark.parametrize(("asked", "told"), WRONG)
def test_wrong_input_is_told(asked, told):
    """An engine without a budget to trade with, a budget of no or of half a token."""
    with pytest.raises(rk.InvalidInputError, match=told):
        rk.budget_curve(D, 10_000, 100, 0.02, **asked)
