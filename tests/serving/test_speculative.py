"""Speculation: expected tokens by hand, steps of the deployment, break-evens put back in."""

import math

import numpy as np
import pytest

import rooflinekit as rk
from rooflinekit.serving.speculative import break_even, expected_tokens, module_s, speculation_table

D = rk.Deployment("llama-3.1-8b", "h100-sxm")
SMALL = rk.Deployment("llama-3.2-1b", "h100-sxm")
AT = {"context_tokens": 2000}

# fmt: off
EXPECTED = [
    # a     k    tokens
    (0.0,   4,   1.0),
    (1.0,   4,   5.0),
    (0.5,   1,   1.5),
    (0.8,   3,   1 + 0.8 + 0.64 + 0.512),
    (0.9,   2,   1 + 0.9 + 0.81),
]
# fmt: on


@pytest.mark.parametrize(("acceptance", "drafted", "tokens"), EXPECTED)
def test_expected_tokens(acceptance, drafted, tokens):
    """The sum of the chances that the first, the first two, ... are accepted, and the model's own token."""
    assert expected_tokens(acceptance, drafted) == pytest.approx(tokens)


def test_expected_tokens_of_arrays():
    """Arrays broadcast; certainty among them is no division by zero."""
    found = expected_tokens([0.5, 1.0], [[1], [2]])
    assert np.allclose(found, [[1.5, 2.0], [1.75, 3.0]])


def test_steps_are_steps_of_the_deployments():
    """Drafts run one after another; verification is one step of k + 1 tokens that samples k + 1 positions."""
    made = rk.speculate(D, acceptance=0.7, batch=8, drafted=3, draft=SMALL, **AT)
    loaded = {"busy_s": math.inf}
    assert made.plain_s == pytest.approx(D.decode(2000, batch=8, **loaded).time_s)
    assert made.draft_s == pytest.approx(3 * SMALL.decode(2000, batch=8, **loaded).time_s)
    assert made.verify_s == pytest.approx(D.step(rk.Group(4, 2000, 8, 4), **loaded).time_s)
    assert made.time_per_output_token_s == pytest.approx((made.draft_s + made.verify_s) / (1 + 0.7 + 0.49 + 0.343))
    assert made.speedup == pytest.approx(made.plain_s / made.time_per_output_token_s)


def test_a_module_is_a_layer_and_the_output_layer():
    """Of 32 layers one: a 32nd of all but the output layer, and that whole."""
    step = D.decode(2000, busy_s=math.inf)
    head = sum(row.time_s for row in step.operators if row.name in ("lm_head", "output_layer", "sampling"))
    assert head > 0
    assert module_s(D, rk.Group(1.0, 2000.0, 1.0)) == pytest.approx(head + (step.time_s - head) / 32, rel=0.02)


def test_ngrams_cost_what_they_are_given():
    """0 is a draft for nothing, 0.1 a tenth of a step for each token."""
    free, tenth = (rk.speculate(D, acceptance=0.5, drafted=2, draft=cost, **AT) for cost in (0, 0.1))
    assert free.draft_s == 0
    assert tenth.draft_s == pytest.approx(0.2 * tenth.plain_s)


def test_the_best_number_of_drafted_tokens():
    """No other number up to 16 is quicker; a better acceptance drafts more."""
    best = rk.speculate(D, acceptance=0.7, draft=SMALL, **AT)
    others = [rk.speculate(D, acceptance=0.7, draft=SMALL, drafted=k, **AT) for k in range(1, 17)]
    assert best.time_per_output_token_s == min(one.time_per_output_token_s for one in others)
    assert best.drafted < rk.speculate(D, acceptance=0.9, draft=SMALL, **AT).drafted


@pytest.mark.parametrize(("batch", "draft"), [(1, "module"), (8, SMALL), (64, "module"), (32, 0.05)])
def test_a_break_even_put_back_gives_equality(batch, draft):
    """At that acceptance tokens come exactly as fast as without; a bit more pays, a bit less does not."""
    asked = {"batch": batch, "draft": draft, "drafted": 3, **AT}
    even = rk.speculate(D, acceptance=0.5, **asked).break_even_acceptance
    assert 0 < even < 1
    assert rk.speculate(D, acceptance=even, **asked).speedup == pytest.approx(1, rel=1e-9)
    assert rk.speculate(D, acceptance=even + 0.01, **asked).pays
    assert not rk.speculate(D, acceptance=even - 0.01, **asked).pays


# fmt: off
EVENS = [
    # k   cost          acceptance
    (1,   1.25,         0.25),      # 1 + a
    (2,   1.75,         0.5),       # 1 + a + a^2
    (3,   1.0,          0.0),       # costs nothing more
    (3,   4.0,          1.0),       # all must be accepted
    (3,   4.01,         math.inf),  # and even that is not enough
]
# fmt: on


@pytest.mark.parametrize(("drafted", "cost", "acceptance"), EVENS)
def test_break_even_by_hand(drafted, cost, acceptance):
    """Where 1 + a + ... + a^k is the cost in steps; the reason stands beside what never pays."""
    found, reason = break_even(drafted, cost)
    assert found == pytest.approx(acceptance)
    assert bool(reason) == math.isinf(acceptance)


def test_a_large_batch_uses_up_the_arithmetic():
    """Speculation trades idle arithmetic: at batch 512 and short contexts there is none."""
    table = speculation_table(D, acceptance=0.6, context_tokens=200, batch=[1, 64, 512], draft="module")
    assert table["speedup"].is_monotonic_decreasing
    assert table["speedup"][0] > 1.4
    assert table["speedup"][2] < 1


# fmt: off
WRONG = [
    ({"acceptance": 0.5},                         "draft='mtp': "),
    ({"acceptance": 1.2},                         "acceptance=1.2: expected a number from 0 to 1"),
    ({"acceptance": -0.1},                        "acceptance=-0.1"),
    ({"acceptance": math.nan},                    "acceptance=nan"),
    ({"acceptance": True},                        "acceptance=True"),
    ({"acceptance": 0.5, "batch": 0},             "batch"),
    ({"acceptance": 0.5, "drafted": 0},           "drafted"),
    ({"acceptance": 0.5, "drafted": 1.5},         "drafted"),
    ({"acceptance": 0.5, "draft": "eagle"},       "draft='eagle': expected a Deployment"),
    ({"acceptance": 0.5, "draft": -1.0},          "draft"),
    ({"acceptance": 0.5, "context_tokens": -1},   "context_tokens"),
]
# fmt: on


@pytest.mark.parametrize(("asked", "told"), WRONG)
def test_wrong_input_is_told(asked, told):
    """One line that names the argument and what was expected."""
    with pytest.raises(rk.InvalidInputError) as caught:
        rk.speculate(D, **{**AT, **asked})
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_module_is_the_models_own_or_said_to_be_imagined():
    """One that brings a module drafts with it; for another the basis says that there is none."""
    own = rk.Deployment("deepseek-v3", "h200-sxm", tensor_parallel=8)
    assert "draft: one more layer" in rk.speculate(own, acceptance=0.7, **AT).basis
    made = rk.speculate(D, acceptance=0.7, draft="module", **AT)
    assert made.basis.startswith("draft: a module that the model does not have: one more layer")
