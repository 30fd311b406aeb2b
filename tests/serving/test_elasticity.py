"""Elasticities against shares of time and of bytes that can be worked out by hand."""

import pytest

import rooflinekit as rk
from rooflinekit.serving.elasticity import elasticities

ROOF = rk.Deployment("llama-3.1-8b", "h100-sxm", efficiency="datasheet")
SIZES = {"prompt_tokens": 4096, "context_tokens": 8192, "batch": 4}


def by_change(deployment, **sizes):
    """Index the table by the quantity that changes."""
    return elasticities(deployment, **{**SIZES, **sizes}).set_index("change")


ROOFED = by_change(ROOF)


@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_twice_both_peaks_halves_the_time(phase):
    """A roofline has no other terms: the two elasticities sum to -1, to the error of a 5% difference."""
    assert ROOFED.loc[["memory bandwidth", "arithmetic (FLOPS)"], phase].sum() == pytest.approx(-1, abs=1e-3)


def test_memory_bound_decode():
    """Every row of a decode step of 4 is memory-bound: -1 in bandwidth, 0 in arithmetic, shares of bytes elsewhere."""
    step = ROOF.decode(8192, batch=4)
    weights, kv = step.weight_bytes / step.bytes, 4 * 8192 * 131_072 / step.bytes
    told = ROOFED["decode"]
    assert told["memory bandwidth"] == pytest.approx(-1, abs=1e-6)
    assert told["arithmetic (FLOPS)"] == pytest.approx(0, abs=1e-6)
    assert told["weight bits"] == pytest.approx(weights, abs=1e-3)
    assert told["context"] == pytest.approx(kv, abs=1e-3)
    assert told["batch"] == pytest.approx(1 - weights, abs=1e-3)


def test_compute_bound_prefill():
    """A prompt of 4,096 tokens on a card with its ridge at 295: arithmetic, linear in the tokens and a bit more."""
    told = ROOFED["prefill"]
    assert told["arithmetic (FLOPS)"] < -0.85
    assert told["weight bits"] < 0.01
    assert 1.0 < told["prompt length"] < 1.1  # attention's scores grow with the square
    assert told["context"] == 0


def test_launches_are_what_is_left():
    """A calibrated step has launches, which no peak makes shorter: the sum is nearer to 0 than -1."""
    told = by_change(rk.Deployment("qwen3-8b", "gb10"), prompt_tokens=2048, context_tokens=2048, batch=1)
    for phase in ("prefill", "decode"):
        assert -1 < told.loc[["memory bandwidth", "arithmetic (FLOPS)"], phase].sum() < -0.97
    assert told.loc["memory bandwidth", "decode"] < -0.95
    assert told.loc["arithmetic (FLOPS)", "prefill"] < -0.7


def test_a_cached_prefix_is_context_of_the_prefill():
    """Held tokens are read again by every chunk: then the context matters to the prefill too."""
    assert by_change(ROOF, cached_tokens=3072).loc["context", "prefill"] > 0


@pytest.mark.parametrize("name", ["prompt_tokens", "context_tokens", "batch"])
def test_sizes_are_positive(name):
    """A slope at nothing is none."""
    with pytest.raises(rk.InvalidInputError, match=name):
        elasticities(ROOF, **{**SIZES, name: 0})
