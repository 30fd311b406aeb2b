"""Identifiability: what runs cannot tell apart is named, with the one run that would, and that run does it."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from rooflinekit import Deployment
from rooflinekit.calibration.fit import fit, shipped_fallbacks
from rooflinekit.calibration.identify import RESIDUAL, open_directions, weaknesses
from rooflinekit.calibration.passes import decode_point, observe, prefill_points
from rooflinekit.roofline.laws import Laws

DEPLOYMENT = Deployment("qwen3-8b", "h200-sxm", engine="pytorch-2.11")
ENTRY = DEPLOYMENT.device.efficiency[0].model_copy(update={"gap_us": 1.0})
KV, WEIGHTS, GAP = "attention.memory", "products.bf16.memory", "gap_us"
ARITHMETIC, LAUNCH = "products.bf16.compute", "products.bf16.launch_us"


def decodes(*held):
    """Give decode runs at contexts, as (phase, point) pairs."""
    return [("decode", decode_point(one)) for one in held]


def prefills(*sizes):
    """Give prefills of so many tokens."""
    return [("prefill", prefill_points(one)[0]) for one in sizes]


def measured(*runs):
    """Give runs that the entry predicts exactly."""
    facts = pd.DataFrame({"phase": [phase for phase, _ in runs]})
    seen = observe(DEPLOYMENT, facts, np.ones(len(runs)), [[point] for _, point in runs])
    return replace(seen, seconds=seen.predicted_s(Laws((ENTRY, *shipped_fallbacks(DEPLOYMENT.device)), "own")))


def weak(names, *runs):
    """List what those runs leave open of some constants."""
    return fit([measured(*runs)], ENTRY, {name: [name] for name in names}, prior=1.0).weak


def test_three_runs_at_one_context_cannot_separate_kv_from_weights():
    """They all read the same cache: the report names both, and one run at 16k tokens."""
    (found,) = weak([WEIGHTS, KV], *decodes(2048, 2048, 2048))
    assert found.constants == (KV, WEIGHTS)
    assert found.spread > 0.5
    assert str(found).startswith(f"these measurements cannot separate {KV} from {WEIGHTS} (known to a factor of ")
    assert str(found).endswith("): add one decode run at 16k tokens of context")


def test_one_run_at_16k_separates_them():
    """The measurement that the report asks for is the one that ends it."""
    assert weak([WEIGHTS, KV], *decodes(2048, 2048, 2048, 16384)) == ()


def test_three_prefills_cannot_give_launches():
    """A launch is lost in a product of 4k tokens: a small model's decode step shows it."""
    found = weak([ARITHMETIC, LAUNCH], *prefills(2048, 4096, 8192))
    assert [one.constants[0] for one in found] == [LAUNCH]
    assert found[0].measurement == "one decode run of a model under 1 B parameters"


def test_three_decode_runs_cannot_give_arithmetic():
    """A step of one sequence is all memory: one prefill shows the arithmetic."""
    found = weak([WEIGHTS, ARITHMETIC], *decodes(16, 2048, 8192))
    assert [one.constants[0] for one in found] == [ARITHMETIC]
    assert found[0].measurement == "one prefill of 4k tokens"
    assert weak([WEIGHTS, ARITHMETIC], *decodes(16, 2048, 8192), *prefills(4096)) == ()


def test_a_gap_is_not_told_from_weights_by_one_model():
    """Every step of one model has as many launches as the last."""
    (found,) = weak([GAP, WEIGHTS], *decodes(0, 16, 64))
    assert found.constants == (GAP, WEIGHTS)
    assert "under 1 B parameters" in found.measurement


@pytest.mark.parametrize("seen", [1.0, 0.5, 0.1])
def test_a_constant_that_is_seen_well_is_not_named(seen):
    """Ten rows of 1% each that move by a tenth of a constant know it to 3%."""
    assert weaknesses(["products.bf16.memory"], np.full((10, 1), seen)) == ()


def test_noise_makes_a_constant_open():
    """The same rows at 50% leave it open."""
    (found,) = weaknesses(["products.bf16.memory"], np.full((10, 1), 0.1), 0.5)
    assert found.constants == ("products.bf16.memory",)
    assert str(found).startswith("these measurements cannot determine products.bf16.memory (known to a factor of 2.3)")


def test_a_constant_that_no_row_sees_stays_as_open_as_before():
    """No slope: a factor of e either way, and no partner."""
    (found,) = weaknesses(["attention.tile_tokens", "norm.memory"], np.array([[0.0, 1.0]] * 3))
    assert found.constants == ("attention.tile_tokens",)
    assert found.spread == pytest.approx(1.0)
    assert "8 sequences" in found.measurement


def test_a_constant_of_no_known_run_asks_for_another_size():
    """The report is never empty-handed."""
    (found,) = weaknesses(["something"], np.zeros((1, 1)))
    assert found.measurement == "one more run at another size"


def test_the_covariance_is_that_of_a_linear_fit():
    """The singular values give what the normal equations give."""
    slopes = np.random.default_rng(0).normal(size=(7, 3))
    expected = np.linalg.inv(slopes.T @ slopes / RESIDUAL**2 + np.eye(3))
    np.testing.assert_allclose(open_directions(slopes), expected, rtol=1e-9)
