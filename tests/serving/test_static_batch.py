"""Static against continuous batching on examples small enough for paper."""

import math

import pytest

import rooflinekit as rk

D = rk.Deployment("llama-3.1-8b", "h100-sxm")


def step_s(*group):
    """Time one step in a loaded server."""
    return D.step(rk.Group(*group), busy_s=math.inf).time_s


def test_two_answers_by_hand():
    """Answers of 2 and 4 tokens: one prefill, 3 steps of two; 2 of the 6 slots belong to the answer that has ended."""
    found = rk.static_batch(D, prompt_tokens=[100, 100], output_tokens=[2, 4])
    assert found.prefill_s == pytest.approx(step_s(100, 0, 2))
    assert found.duration_s == pytest.approx(step_s(100, 0, 2) + sum(step_s(1, 100 + held, 2) for held in range(3)))
    assert found.idle_share == pytest.approx(2 / 6)
    assert found.output_tokens_per_s == pytest.approx(6 / found.duration_s)
    # 4 decode tokens in steps of two: 2 steps at the mean context (1 x 100.5 + 3 x 101.5) / 4
    assert found.continuous_duration_s == pytest.approx(step_s(100, 0, 2) + 2 * step_s(1, 101.25, 2))
    assert found.continuous_gain == pytest.approx(found.duration_s / found.continuous_duration_s)


def test_prompts_are_padded():
    """The prefill is that of the longest prompt, twice; continuous batching reads 100 and 900 tokens."""
    found = rk.static_batch(D, prompt_tokens=[100, 900], output_tokens=[1, 1])
    assert found.duration_s == found.prefill_s == pytest.approx(step_s(900, 0, 2))
    assert found.continuous_duration_s == pytest.approx(min(step_s(500, 0, 2), step_s(100, 0, 1) + step_s(900, 0, 1)))
    assert found.idle_share == 0


def test_alike_gains_nothing_and_one_long_answer_most():
    """Equal answers leave no slot idle; one long answer among short ones leaves nearly all."""
    alike = rk.static_batch(D, prompt_tokens=[500] * 8, output_tokens=[200] * 8)
    ragged = rk.static_batch(D, prompt_tokens=[500] * 8, output_tokens=[20] * 7 + [1000])
    assert alike.continuous_gain == pytest.approx(1, abs=0.02)
    assert ragged.idle_share == pytest.approx(1 - (7 * 19 + 999) / (8 * 999))
    assert ragged.continuous_gain > 4


@pytest.mark.parametrize(
    ("prompts", "outputs", "told"),
    [
        ([100, 100], [5], "2 prompts and 1 answers"),
        ([0], [5], "prompt_tokens"),
        ([100], [0], "output_tokens"),
        ([100], [math.inf], "output_tokens"),
    ],
)
def test_wrong_input_is_told(prompts, outputs, told):
    """One line that names the list."""
    with pytest.raises(rk.InvalidInputError, match=told):
        rk.static_batch(D, prompt_tokens=prompts, output_tokens=outputs)
