"""Fitting: constants come out of rows that hold them, physical ones only, with what the rows leave open."""

from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from rooflinekit import Deployment, InvalidInputError, SpecError, load_device
from rooflinekit.calibration import Fit, fit, gb10_trace
from rooflinekit.calibration.entries import GB10_FREE, fit_gb10, gb10_start, kernel_start, none, small_start
from rooflinekit.calibration.fit import check_physical, constant, direct_fraction, shipped_fallbacks, with_constants
from rooflinekit.calibration.kernels import kernel_observations
from rooflinekit.calibration.passes import decode_points, observe, prefill_points, rate_observations
from rooflinekit.calibration.trace import KernelRow, load_trace, trace_observations
from rooflinekit.errors import CalibrationError
from rooflinekit.roofline.laws import Laws

TRACE = load_trace(Path(str(files("rooflinekit"))) / "references" / "gb10_trace.yaml")
GB10 = Deployment(TRACE.model, TRACE.device, engine="vllm-0.31")
SHIPPED = next(entry for entry in GB10.device.efficiency if entry.engine == "vllm-0.31")
H200 = load_device("h200-sxm")


def moved(entry, free, factor):
    """Return an entry with every free constant moved by a factor."""
    return with_constants(entry, free, [factor * constant(entry, fields[0]) for fields in free.values()])


def exact(observations, truth, fallbacks=none):
    """Return observations whose seconds an entry gives exactly."""
    return replace(
        observations, seconds=observations.predicted_s(Laws((truth, *fallbacks(observations.device)), "own"))
    )


# ---- the GB10's trace


@pytest.fixture(scope="module")
def refit():
    """Fit the trace's kernel classes from a start that is 20% off."""
    trace = gb10_trace()
    weights = np.sqrt(trace.facts["share"].to_numpy(dtype=float))
    return fit([trace], moved(gb10_start(), GB10_FREE, 0.8), GB10_FREE, weights=weights, robust=False)


@pytest.mark.parametrize("name", GB10_FREE)
def test_the_trace_gives_the_shipped_constants(refit, name):
    """Each constant of the shipped entry is what the kernel classes give, to half a percent, from another start."""
    for field in GB10_FREE[name]:
        assert constant(refit.efficiency, field) == pytest.approx(constant(SHIPPED, field), rel=5e-3)
    assert refit.constants[name] == constant(refit.efficiency, GB10_FREE[name][0])


def test_the_shipped_fit_is_that_one(refit):
    """What the tool writes and what the test refits are the same constants."""
    entry, (found,) = fit_gb10()
    assert found.constants == pytest.approx(refit.constants, rel=1e-3)
    assert entry.name == SHIPPED.name


@pytest.mark.parametrize(
    "field", ["products.bf16.launch_us", "attention.compute", "attention.memory", "norm.launch_us"]
)
def test_frozen_constants_stay(refit, field):
    """What is not free is not touched."""
    assert field not in {field for fields in GB10_FREE.values() for field in fields}
    assert constant(refit.efficiency, field) == constant(gb10_start(), field)


def test_residuals_are_what_the_entry_says(refit):
    """The two kernel names of the decode products are left over at +7.5% and -22.5%; the rest fits."""
    facts = gb10_trace().facts
    left = dict(zip(facts["phase"] + ": " + facts["name"], refit.residuals, strict=True))
    assert left["decode: matrix-vector products of the first name"] == pytest.approx(0.075, abs=0.01)
    assert left["decode: matrix-vector products of the second name"] == pytest.approx(-0.225, abs=0.03)
    assert max(abs(value) for name, value in left.items() if "matrix-vector" not in name) < 0.03


def test_no_total_is_among_the_rows():
    """Only kernel classes are fitted on: no row spans a whole pass, and the rows of a phase stay below its total."""
    for phase, total in {"prefill": 0.412, "decode": 64 * 0.0746}.items():
        rows = [row for row in TRACE.rows if row.phase == phase]
        assert max(row.seconds for row in rows) < 0.8 * total
        assert sum(row.seconds for row in rows) < total
    covered = {name for row in TRACE.rows for name in row.operators}
    assert not any(covered <= set(row.operators) for row in TRACE.rows)
    words = " ".join(row.name for row in TRACE.rows)
    assert not any(word in words for word in ("total", "pass", "step", "TTFT", "whole"))


# ---- synthetic rows give back the constants that made them


def lines(op, **columns):
    """Give lines of one kind of kernel: every column is one value, or one a line."""
    count = max(len(values) for values in columns.values() if isinstance(values, list))
    wide = {name: values if isinstance(values, list) else [values] * count for name, values in columns.items()}
    return pd.DataFrame({"op": op, "context_tokens": 0, "sequences": 1, "seconds": 1.0, **wide})


SHAPES = [(4096, 4096), (24576, 4096), (4096, 12288)]
PRODUCTS = pd.concat(
    [
        lines("product", weights=weights, n=n, k=k, new_tokens=[1, 16, 256, 1024, 8192])
        for weights in ("bf16", "fp8")
        for n, k in SHAPES
    ],
    ignore_index=True,
)
ATTENTION = lines(
    "attention",
    kv_cache="bf16",
    heads=32,
    kv_heads=8,
    head_dim=128,
    new_tokens=[1, 1, 1, 1, 1, 1, 1, 512, 2048, 8192, 16384, 64],
    context_tokens=[0, 16, 32, 64, 1024, 8192, 32768, 0, 0, 0, 0, 8192],
    sequences=[1, 64, 512, 64, 8, 32, 4, 1, 1, 1, 1, 1],
)
SMALL = pd.concat(
    [
        lines("small", op_class=name, bytes_per_token=[8192.0, 16384.0, 24576.0], new_tokens=[1, 64, 8192])
        for name in ("norm", "rotary", "activation", "cache_write")
    ],
    ignore_index=True,
)
MIXTURES = lines(
    "mixture",
    weights="bf16",
    hidden_size=2048,
    inter_size=768,
    topk=8,
    num_experts=128,
    new_tokens=[1, 2, 8, 64, 512, 8192, 32768],
)


def names(law, *fields):
    """Name fields of a law."""
    return [f"{law}.{field}" for field in fields]


KERNELS = [
    (PRODUCTS, names("products.bf16", "compute", "memory", "launch_us", "exponent")),
    (PRODUCTS, names("products.fp8", "compute", "memory", "launch_us", "quantisation_ps_per_element")),
    (ATTENTION, names("attention", "memory", "activation", "launch_us", "softmax_flops_per_score", "tile_tokens")),
    (SMALL, [f"{name}.{field}" for name in ("norm", "rotary", "activation") for field in ("memory", "launch_us")]),
    (SMALL, names("cache_write", "memory", "launch_us")),
    (MIXTURES, names("mixtures.bf16", "compute", "memory", "launch_us")),
]
START = kernel_start().model_copy(update=small_start())


@pytest.mark.parametrize(("table", "fields"), KERNELS, ids=[fields[0] for _, fields in KERNELS])
def test_kernels_give_their_constants_back(table, fields):
    """From rows that an entry gives exactly, the fit finds that entry, starting elsewhere."""
    free = {name: [name] for name in fields}
    truth = moved(START, free, 0.9)
    rows = exact(kernel_observations(table, H200), truth)
    found = fit([rows], START, free, fallbacks=none)
    for name in fields:
        assert found.constants[name] == pytest.approx(constant(truth, name), rel=1e-3), name
    assert np.abs(found.residuals).max() < 1e-4
    assert found.residual < 1e-4


RATES = pd.DataFrame(
    [
        {"reading": reading, "value": 1.0, "prompt_tokens": prompt, "held_tokens": held, "output_tokens": output}
        for reading, prompt, held, output in (
            ("prefill_rate", 512, 0, 0),
            ("prefill_rate", 8192, 0, 0),
            ("decode_rate", 0, 0, 128),
            ("decode_rate", 0, 16384, 32),
            ("request_rate", 1024, 0, 128),
            ("decode_step_ms", 0, 4096, 1),
            ("ttft_ms", 16384, 0, 0),
        )
    ]
).assign(device="h200-sxm", kv_cache=None, weights="bf16")


def test_rates_give_their_constants_back():
    """Readings of five kinds on two models: weights, K and V, arithmetic, and the pause before each launch."""
    free = {name: [name] for name in ("products.bf16.compute", "products.bf16.memory", "attention.memory", "gap_us")}
    start = SHIPPED.model_copy(update={"gap_us": 2.0})
    truth = moved(start, free, 0.9)
    tables = [RATES.assign(model=model) for model in ("qwen3-8b", "qwen3-0.6b")]
    rows = [exact(one, truth, shipped_fallbacks) for table in tables for one in rate_observations(table)]
    found = fit(rows, start, free)
    assert found.constants == pytest.approx({name: constant(truth, name) for name in free}, rel=1e-3)
    assert not found.weak


def test_a_prior_holds_an_unseen_constant_at_its_start():
    """Decode runs do not see the price of a score: it stays where the prior has it, and is named."""
    free = {name: [name] for name in ("products.bf16.memory", "attention.softmax_flops_per_score")}
    truth = moved(SHIPPED, free, 0.8)
    points = [decode_points(held, 1) for held in (16, 2048, 8192)]
    rows = observe(GB10, pd.DataFrame({"phase": ["decode"] * 3}), np.ones(3), points)
    found = fit([exact(rows, truth, shipped_fallbacks)], SHIPPED, free, prior=0.3)
    assert found.constants["products.bf16.memory"] == pytest.approx(constant(truth, "products.bf16.memory"), rel=5e-3)
    start = SHIPPED.attention.softmax_flops_per_score
    assert found.constants["attention.softmax_flops_per_score"] == pytest.approx(start, rel=5e-2)
    assert "attention.softmax_flops_per_score" in {name for weak in found.weak for name in weak.constants}


def test_a_constant_with_few_rows_has_a_larger_covariance():
    """Twelve rows in two groups of noise: ten that read weights, two that compute."""
    rng = np.random.default_rng(1)
    free = {name: [name] for name in ("products.bf16.memory", "products.bf16.compute")}
    points = [decode_points(held, 1) for held in range(0, 1000, 100)] + [prefill_points(size) for size in (4096, 8192)]
    facts = pd.DataFrame({"phase": ["decode"] * 10 + ["prefill"] * 2})
    rows = exact(observe(GB10, facts, np.ones(12), points), SHIPPED, shipped_fallbacks)
    noisy = replace(rows, seconds=rows.seconds * np.exp(rng.normal(0, 0.02, 12)))
    found = fit([noisy], SHIPPED, free)
    covariance = found.efficiency.covariance
    assert covariance.constants == (("products.bf16.memory",), ("products.bf16.compute",))
    (many, _), (_, few) = covariance.log
    assert 0 < many < few
    assert many == pytest.approx((0.02**2) / 10, rel=1.0)


# ---- what is refused


def test_too_few_rows_are_an_error():
    """Six constants are not determined by five rows, unless a prior holds them."""
    trace = gb10_trace()
    five = trace.take(np.arange(len(trace)) < 5)
    with pytest.raises(InvalidInputError, match=r"^5 rows cannot determine 6 constants: add rows, or free fewer$"):
        fit([five], gb10_start(), GB10_FREE)
    assert isinstance(fit([five], gb10_start(), GB10_FREE, prior=0.3), Fit)


def test_a_constant_that_the_start_lacks_is_named():
    """A law that is not there cannot be freed."""
    with pytest.raises(InvalidInputError, match=r"products\.fp8\.memory: .* has no such constant to free"):
        fit([gb10_trace()], gb10_start(), {"x": ["products.fp8.memory"]}, prior=1.0)


@pytest.mark.parametrize(("factor", "words"), [(0.4, "above 1"), (0.75, "above"), (3.0, "far below every direct")])
def test_a_ceiling_that_no_device_has_is_refused(factor, words):
    """Rows that are too fast or too slow by a count or a unit do not become a constant."""
    rows = gb10_trace()
    wrong = replace(rows, seconds=rows.seconds * factor)
    with pytest.raises(
        CalibrationError, match=rf"^gb10 products\.bf16\.\w+: fitted at .* {words}.*: a counting or data fault"
    ):
        fit([wrong], gb10_start(), GB10_FREE, robust=False)


@pytest.mark.parametrize("above", [1.02, 1.05, 1.2, 1.5])
def test_a_fraction_above_1_is_refused(above):
    """Exact rows of a device that would reach more than its datasheet says: a fault, not a result."""
    free = {"products.bf16.memory": ["products.bf16.memory"]}
    truth = with_constants(START, free, [above])
    decode = PRODUCTS[(PRODUCTS["weights"] == "bf16") & (PRODUCTS["new_tokens"] == 1)]
    rows = exact(kernel_observations(decode, H200), truth)
    with pytest.raises(CalibrationError, match=r"above 1: a counting or data fault: check dtype, units, shapes"):
        fit([rows], START, free, fallbacks=none)


def test_a_fraction_above_1_within_its_uncertainty_is_held_at_1():
    """Noisy rows around 0.99 may fit 1.01: that is the peak, and never more."""
    free = {"mixtures.bf16.memory": ["mixtures.bf16.memory"]}
    rows = exact(kernel_observations(pd.concat([MIXTURES[:3]] * 4), H200), with_constants(START, free, [1.01]))
    noise = np.tile([0.05, -0.05], 6)
    found = fit([replace(rows, seconds=rows.seconds * np.exp(noise))], START, free, fallbacks=none)
    assert 0.99 < found.constants["mixtures.bf16.memory"] <= 1.0


def test_unchecked_fractions_never_leave_their_range():
    """The shipped fits of engines hold fractions at 1 and below."""
    rows = gb10_trace()
    found = fit([replace(rows, seconds=rows.seconds / 3)], gb10_start(), GB10_FREE, checked=False)
    fractions = [value for name, value in found.constants.items() if name.endswith(("compute", "memory"))]
    assert max(fractions) == pytest.approx(1, abs=1e-3)
    assert max(fractions) <= 1
    assert found.constants["attention.launch_us"] >= 0


# fmt: off
PHYSICAL = [
    # constant                  value   refused as
    ("products.bf16.compute",   0.80,   None),
    ("products.bf16.compute",   0.83,   "above every direct measurement"),  # 94 of 125 TFLOPS, and a tenth
    ("products.bf16.compute",   0.29,   "far below every direct measurement"),
    ("products.bf16.memory",    0.97,   None),                              # 241 of 273 GB/s, and a tenth
    ("products.bf16.memory",    0.98,   "above every direct measurement"),
    ("attention.memory",        0.98,   "above every direct measurement"),
    ("mixtures.bf16.memory",    0.98,   "above every direct measurement"),
    ("attention.compute",       0.98,   None),                              # nothing was measured of it directly
    ("attention.compute",       1.01,   "above 1"),
    ("norm.memory",             1.01,   "above 1"),
    ("attention.activation",    1.01,   "above 1"),
    ("attention.launch_us",     1.01,   None),
]
# fmt: on


@pytest.mark.parametrize(("field", "value", "words"), PHYSICAL)
def test_what_is_physical_on_a_gb10(field, value, words):
    """A fraction of the datasheet's peak is at most 1, and near what was measured directly where something was."""
    if words is None:
        check_physical(field, value, GB10.device)
        return
    with pytest.raises(CalibrationError, match=words):
        check_physical(field, value, GB10.device)


def test_direct_fractions_are_of_the_datasheet():
    """94 of 125 TFLOPS; 241 of 273 GB/s; of FP4 the GB10 has no direct figure."""
    assert direct_fraction("products.bf16.compute", GB10.device) == pytest.approx(94 / 125)
    assert direct_fraction("attention.memory", GB10.device) == pytest.approx(241 / 273)
    assert direct_fraction("products.fp4.compute", GB10.device) is None


# ---- rows of a trace


def seconds_of(row):
    """Predict one kernel class under the shipped entry."""
    one = trace_observations(TRACE.model_copy(update={"rows": (row,)}))
    return float(one.predicted_s(Laws((SHIPPED, *shipped_fallbacks(GB10.device)), "own"))[0])


def test_shares_and_steps_scale_a_prediction():
    """A row of half the launches over ten steps predicts five times the operator's time."""
    row = KernelRow(name="x", phase="decode", context_tokens=100, operators=("o_proj",), steps=10, share=0.5, seconds=1)
    assert seconds_of(row) == pytest.approx(5 * GB10.decode(100).operator("o_proj").time_s, rel=1e-12)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"phase": "prefill", "seconds": 1, "operators": ["o_proj"]}, "prompt_tokens"),
        ({"phase": "decode", "seconds": 1, "operators": ["o_proj"]}, "context_tokens"),
        ({"phase": "decode", "context_tokens": 5, "seconds": 0, "operators": ["o_proj"]}, "seconds"),
        ({"phase": "decode", "context_tokens": 5, "seconds": 1, "operators": []}, "operators"),
        ({"phase": "decode", "context_tokens": 5, "seconds": 1, "operators": ["o_proj"], "share": 2}, "share"),
        ({"phase": "verify", "context_tokens": 5, "seconds": 1, "operators": ["o_proj"]}, "phase"),
    ],
)
def test_a_bad_row_is_refused(tmp_path, row, message):
    """A row without its size, its time or its operators is an error in one line: no size is taken as nought."""
    path = tmp_path / "rows.yaml"
    text = "\n".join(f"  {key}: {value}" for key, value in {"name": "x", **row}.items()).replace("  name", "- name", 1)
    path.write_text(f"source: s\nmodel: qwen3-8b\ndevice: gb10\nrows:\n{text}\n", encoding="utf-8")
    with pytest.raises(SpecError, match=rf"rows\.yaml: .*{message}"):
        load_trace(path)


def test_an_operator_that_the_model_lacks_is_named():
    """A row about another model's operator says which operators there are."""
    row = KernelRow(name="x", phase="decode", context_tokens=100, operators=("gelu",), seconds=1)
    with pytest.raises(InvalidInputError, match="no operator 'gelu': this pass has embedding"):
        seconds_of(row)
