"""Served rows: recipes as their notes say, the pool judged before measurements, and host times that a refit gives."""

import numpy as np
import pytest

from rooflinekit.calibration import served
from rooflinekit.calibration.served import HostTimes, Recipe, fit_host, recipes
from rooflinekit.serving.engine import load_engine

MEASURED = ["time_per_output_token_s", "time_to_first_token_s"]


def of(name, count=None):
    """Recipes of one engine, the longest first."""
    found = [one for one in recipes() if served.engine(one) == name]
    return sorted(found, key=lambda one: -len(one.rows))[:count]


def test_every_row_is_read_once():
    """914 rows, 14 of a broken configuration: 900 of 106 recipes."""
    rows = [row for one in recipes() for row in one.rows["id"]]
    assert len(rows) == len(set(rows)) == 900
    assert not any(one.rows["note"].str.contains("broken").any() for one in recipes())


def test_a_recipe_is_one_deployment():
    """Model, device, formats, layout and settings are those of all its rows."""
    for one in recipes():
        assert (one.rows[list(served._RECIPE)].nunique(dropna=False) == 1).all()


def test_what_recipes_say_reaches_the_engine():
    """Prompts held back for 20 steps, looks every 10 or 30 steps, the token budget of the row."""
    waits = {one.profile.batch_wait_steps for one in of("tensorrt-llm")}
    looks = {(one.profile.receive_interval_steps, bool((one.rows["concurrency"] < 16).all())) for one in of("sglang")}
    assert waits == {0, 20}
    assert looks <= {(10, True), (30, False), (1, True), (1, False)}
    assert len(looks) > 1
    budgets = {(one.rows["max_num_batched_tokens"].iloc[0], one.rules.token_budget) for one in of("vllm", 12)}
    assert all(np.isnan(asked) or asked == used for asked, used in budgets)


def test_attention_groups_are_the_same_gpus():
    """Sizes of groups that the source multiplies are no more GPUs than ran."""
    for one in recipes():
        layout = one.deployment.layout
        assert layout.tensor_parallel == 1 or layout.data_parallel_attention == 1
        assert layout.expert_parallel <= layout.tensor_parallel * layout.data_parallel_attention


def test_the_pool_is_judged_without_looking():
    """Rows beyond the pool are named by the model alone: measured columns may say anything, or be gone."""
    named = 0
    for one in recipes():
        blind = Recipe(one.rows.drop(columns=MEASURED))
        wild = Recipe(one.rows.assign(**dict.fromkeys(MEASURED, 1e3)))
        assert np.array_equal(blind.exhausted, one.exhausted)
        assert np.array_equal(wild.exhausted, one.exhausted)
        named += int(one.exhausted.sum())
    assert 0 < named < 45


def test_loads_are_what_the_client_drew():
    """Lengths from 80% of the nominal one up to it, and ten rounds."""
    one = of("vllm", 1)[0]
    load = one.load()
    assert load.prompt_tokens == pytest.approx(0.9 * one.rows["prompt_tokens"])
    assert load.output_tokens == pytest.approx(0.9 * one.rows["output_tokens"])
    assert np.array_equal(load.requests, 10 * load.concurrency)


def test_host_times_add():
    """Each time alone makes no figure smaller, and a request's time moves the first token by itself."""
    one = of("vllm", 1)[0]
    none = one.predicted(HostTimes())
    for name in HostTimes._fields:
        more = one.predicted(HostTimes(**{name: 1e-5 if "layer" in name else 1e-3}))
        assert all(np.all(with_it > without * 0.999) for with_it, without in zip(more, none, strict=True)), name


def test_nothing_seen_gives_nothing():
    """No rows, no host times."""
    assert fit_host([]) == HostTimes()


def test_a_fit_finds_what_was_put_in():
    """Rows made with 10 ms of a step with a prompt and 12 of a request: a fit gives them again, to 3% in the mean.

    The times themselves do not part on so few rows.
    """
    host, known = HostTimes(prefill_step_host_s=0.010, request_host_s=0.012), of("tensorrt-llm", 2)
    made = [Recipe(one.rows.assign(**dict(zip(MEASURED, one.predicted(host), strict=True)))) for one in known]

    def misfit(times):
        return np.mean([np.abs(errors).mean() for one in made for errors in served._log_errors(one, times)])

    assert misfit(fit_host(made)) < 0.03
    assert misfit(HostTimes()) > 0.1


def test_a_simulated_row_is_near_its_closed_form():
    """One row within the pool by both: time per output token within 5%."""
    one, host = of("tensorrt-llm", 1)[0], HostTimes()
    row = int(np.argmin(one.rows["concurrency"] * one.rows["output_tokens"]))
    each, first = one.simulated(host, row)
    assert each == pytest.approx(one.predicted(host)[0][row], rel=0.05)
    assert 0 < first < 1


# fmt: off
SHIPPED = [
    # profile            engine          models
    ("vllm-0.10",        "vllm",         {"llama", "minimax"}),
    # a DeepSeek whose prefill there is several times slower than any law is left out
    ("tensorrt-llm-1.1", "tensorrt-llm", {"llama"}),
]
# fmt: on


@pytest.mark.slow
@pytest.mark.parametrize(("profile", "engine", "models"), SHIPPED)
def test_shipped_host_times_are_those_of_a_refit(profile, engine, models):
    """They predict what a refit predicts; single ones may trade: a layer's launches hide behind the device's work."""
    known = [one for one in of(engine) if served.family(one) in models]
    shipped, found = load_engine(profile), fit_host(known)
    times = HostTimes(**{name: getattr(shipped, name) for name in HostTimes._fields})
    pairs = [zip(one.predicted(times), one.predicted(found), strict=True) for one in known]
    each, first = (
        np.concatenate([np.abs(np.log(ours / theirs)) for ours, theirs in one]) for one in zip(*pairs, strict=True)
    )
    assert np.median(each) < 0.005
    assert np.median(first) < 0.005
