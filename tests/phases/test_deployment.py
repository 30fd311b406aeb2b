"""The face: what a deployment settles, what its estimates hold, and what it refuses, in words that help."""

import math
import re

import numpy as np
import pytest

import rooflinekit as rk
from rooflinekit.specs.catalog import load_generation
from rooflinekit.specs.precision import WEIGHT_FORMATS
from rooflinekit.specs.recipes import Recipe, recipe_of

CARD = {"bandwidth_gb_per_s": 1000, "peak_dense_tflops": {"bf16": 100, "fp8": 200}, "memory_gib": 80}
LUMP = {"parameters": 8_000_000_000, "layers": 32, "kv_heads": 8, "head_dim": 128}
QWEN = rk.Deployment("qwen3-8b", "gb10")


def entry(name, engine, weights="bf16", *, default=False, launch_us=1.0):
    """Efficiency entry of a device file with a product law of its own."""
    law = {"compute": 0.5, "memory": 0.5, "launch_us": launch_us}
    return {"name": name, "engine": engine, "format": weights, "default": default, "products": {"bf16": law}}


# ---- a value


def test_deployments_compare_by_value():
    """The same choices under other names of model and device are the same deployment; a changed one is another."""
    other = rk.Deployment("Qwen/Qwen3-8B", "DGX Spark")
    assert other == QWEN
    assert other is not QWEN
    assert hash(other) == hash(QWEN)
    assert QWEN.with_(weights="fp8") != QWEN
    assert QWEN.with_(memory_check=False) != QWEN


def test_with_keeps_what_it_is_not_told():
    """A changed copy differs in the named choice alone, and leaves the original as it was."""
    base = rk.Deployment("qwen3-8b", "gb10", engine="vllm", weights="int4", kv_cache="fp8", efficiency="datasheet")
    changed = base.with_(device="h200-sxm")
    assert changed.device.id == "h200-sxm"
    assert changed.with_(device="gb10") == base
    assert (changed.engine, changed.weights, changed.kv_cache, changed.efficiency) == (
        "vllm",
        "int4",
        "fp8",
        "datasheet",
    )


def test_with_refuses_an_unknown_choice():
    """A misspelt choice is an error that lists those there are."""
    with pytest.raises(
        rk.InvalidInputError, match=r"^wieghts: no such choice; a deployment has model, device, engine, "
    ):
        QWEN.with_(wieghts="fp8")


def test_nothing_of_a_deployment_can_be_assigned():
    """Deployments, specs and estimates are frozen."""
    for thing, name in ((QWEN, "weights"), (QWEN.device, "id"), (QWEN.model, "layers"), (QWEN.decode(1), "label")):
        with pytest.raises((AttributeError, ValueError), match=r"(?i)frozen|cannot assign"):
            setattr(thing, name, "other")


# ---- one line each

# fmt: off
LINES = [
    (QWEN,                                      r"qwen3-8b on gb10: bf16 weights, bf16 KV, gb10/vllm-0\.31/bf16"),
    (QWEN.with_(weights="int4", kv_cache="fp8"),
                     r"qwen3-8b on gb10: int4 weights, fp8 KV, gb10/vllm-0\.31/bf16, other format on this device"),
    (QWEN.prefill(2048),                     r"prefill 2,048 tokens: 4\d\d ms, compute-bound \(gb10/vllm-0\.31/bf16\)"),
    (QWEN.prefill(2048, cached_tokens=512),     r"prefill 2,048 tokens after 512 cached: \d+ ms, compute-bound .*"),
    (QWEN.decode(2048),        r"decode at 2,048 tokens of context: 7\d\.\d ms, memory-bound \(gb10/vllm-0\.31/bf16\)"),
    (QWEN.decode(2048, batch=32),              r"decode at 2,048 tokens of context, batch 32: \d+ ms, memory-bound .*"),
    (QWEN.decode([1, 2, 3]),                    r"decode at many tokens of context: 3 points \(gb10/vllm-0\.31/bf16\)"),
    (QWEN.step((512, 0, 1), (1, 2048, 32)),     r"step 1 x \(512 new, 0 held\) \+ 32 x \(1 new, 2,048 held\): .*"),
    (QWEN.step((512, 0), label="a chunk"),      r"a chunk: .*"),
    (QWEN.chunked_prefill(10_000, token_budget=2048), r"prefill 10,000 tokens in chunks of 2,048: \d\.\d\d s, .*"),
    (QWEN.request(2048, output_tokens=65),
                        r"request: TTFT 4\d\d ms, TPOT 7\d\.\d ms, end to end 5\.\d\d s, service time only \(gb10.*\)"),
    (QWEN.decode(2048).operator("gate_up_proj"), r"gate_up_proj: 36 launches, 7\.25 GFLOP, 7\.25 GB, \d\d\.\d ms"),
    (QWEN.decode([1, 2]).operator("gate_up_proj"), r"gate_up_proj: 2 points"),
    (QWEN.with_(efficiency="measured").crossover(),
         r"crossover of the products: 4\d\d tokens \(closed form 390; 94\.0 TFLOP/s over 241 GB/s, measured peaks\)"),
]
# fmt: on


@pytest.mark.parametrize(("thing", "line"), LINES)
def test_a_repr_is_one_line(thing, line):
    """Every object says in one line what it is, how long it takes, what bounds it and on which basis."""
    assert re.fullmatch(line, repr(thing))


def test_a_notebook_shows_the_line_the_operators_and_the_notes():
    """The HTML form has the one-line repr, a row an operator with rounded figures, and each note."""
    estimate = rk.Deployment("gpt2-xl", "gb10").decode(100)
    page = estimate._repr_html_()
    assert page.startswith(f"<p>{estimate!r}</p><table")
    assert page.count("<tr") == 1 + len(estimate.operators)
    assert all(note in page for note in estimate.notes)
    assert estimate.notes


def test_a_notebook_shows_a_sweep_as_its_line():
    """A sweep has no single operator table."""
    assert QWEN.decode([1, 2])._repr_html_() == f"<p>{QWEN.decode([1, 2])!r}</p>"


def test_a_notebook_shows_counts_where_times_are_missing():
    """A device without an arithmetic peak still renders its counts."""
    page = rk.Deployment("qwen3-0.6b", "cpu-ddr5-5600-dual").decode(100)._repr_html_()
    assert "flops" in page
    assert "time_s" not in page


# ---- floats and arrays

VALUES = ("time_s", "floor_s", "memory_time_s", "flops", "bytes", "weight_bytes", "activation_bytes", "kv_bytes")


def test_scalars_give_python_floats():
    """One point in, Python floats and a string out: nothing of NumPy."""
    for estimate in (QWEN.decode(2048), QWEN.prefill(np.int64(2048)), QWEN.chunked_prefill(5000, token_budget=2048)):
        for name in (*VALUES, "intensity", "tokens", "tokens_per_s"):
            assert type(getattr(estimate, name)) is float
        assert type(estimate.bound) is str
        assert all(type(getattr(estimate.operators[0], name)) is float for name in ("time_s", "flops", "launches"))
    assert type(QWEN.kv_bytes_per_token) is type(QWEN.kv_cache_bytes(5)) is float
    assert type(QWEN.decode_ceiling_tokens_per_s) is float


SHAPES = [
    # context           batch           busy       shape
    ([512, 2048],       1,              0.0,       (2,)),
    (2048,              [1, 8, 64],     0.0,       (3,)),
    ([512, 2048],       [[1], [8], [64]], 0.0,     (3, 2)),
    (2048,              1,              [0, 1],    (2,)),
    ([512, 2048],       [[1], [8], [64]], np.zeros((4, 1, 1)), (4, 3, 2)),
    ([2048],            1,              0.0,       (1,)),
]  # fmt: skip


@pytest.mark.parametrize(("context", "batch", "busy", "shape"), SHAPES)
def test_arguments_broadcast(context, batch, busy, shape):
    """A sweep has the broadcast shape of its arguments, in every value, of operators too."""
    sweep = QWEN.with_(memory_check=False).decode(context, batch=batch, busy_s=busy)
    for name in (*VALUES, "intensity", "tokens_per_s", "bound"):
        assert getattr(sweep, name).shape == shape
    for row in sweep.operators:
        assert row.time_s.shape == row.flops.shape == row.bound.shape == shape


def test_every_point_of_a_sweep_is_the_scalar_estimate():
    """A grid of contexts and batches holds what each pair gives alone."""
    contexts, batches = [0, 512, 30_000], [1, 7, 16]
    sweep = QWEN.decode(contexts, batch=np.array(batches)[:, None])
    for i, batch in enumerate(batches):
        for j, context in enumerate(contexts):
            single = QWEN.decode(context, batch=batch)
            assert sweep.time_s[i, j] == pytest.approx(single.time_s, rel=1e-13)
            assert sweep.flops[i, j] == single.flops
            assert sweep.bound[i, j] == single.bound


def test_a_long_sweep_equals_its_blocks():
    """More points than a block holds are timed in pieces, with each point's own `busy_s`."""
    limited = rk.Efficiency.model_validate({**load_generation("hopper").model_dump(), "burst_ms": 5, "sustained": 0.8})
    d = QWEN.with_(efficiency=limited)
    contexts, busy = np.arange(70_000) % 4000, np.linspace(0, 0.01, 70_000)
    sweep = d.decode(contexts, busy_s=busy)
    for index in (0, 32_767, 32_768, 65_536, 69_999):
        assert sweep.time_s[index] == pytest.approx(
            d.decode(int(contexts[index]), busy_s=busy[index]).time_s, rel=1e-13
        )


def test_the_operator_table_is_tidy():
    """One row an operator and point; shares of a point sum to one."""
    table = QWEN.decode([512, 2048]).table()
    assert len(table) == 2 * len(QWEN.plan.rows)
    assert table.groupby("point")["share"].sum().tolist() == pytest.approx([1, 1])
    single = QWEN.decode(512).table()
    assert single["time_s"].sum() == pytest.approx(QWEN.decode(512).time_s)


def test_the_batch_curve_agrees_with_decode():
    """Each row of the curve is the decode step of that batch, with what a user and the device get."""
    curve = QWEN.batch_curve(context_tokens=2048, batch=[1, 64, 1000])
    assert curve["batch"].tolist() == [1, 64, 1000]
    step = QWEN.decode(2048, batch=64)
    row = curve.iloc[1]
    assert row["step_s"] == pytest.approx(step.time_s)
    assert row["tokens_per_s"] == pytest.approx(64 * row["tokens_per_s_per_user"]) == pytest.approx(step.tokens_per_s)
    assert row["kv_cache_bytes"] == QWEN.kv_bytes_per_token * 2049 * 64
    assert curve["fits"].tolist() == [True, True, False]


# ---- summary models


def test_a_summary_is_timed_and_marked():
    """Four numbers are a model: weights and K and V are counted, and every estimate says what is left out."""
    d = rk.Deployment({"summary": LUMP}, "h100-sxm", efficiency="datasheet")
    step = d.decode(2047)
    assert [row.name for row in step.operators] == ["products", "attention"]
    assert step.time_s == pytest.approx((16e9 + 131_072 * 2048) / d.device.bytes_per_s, rel=1e-12)
    assert step.notes[0] == "summary model: no activations, no small kernels"
    assert d.weights_bytes == 16e9


def test_a_summary_of_a_mixture_has_a_closed_form_crossover_of_its_own():
    """The closed form counts the weights that a pass reads, all of them once the prompt is long: not none of them."""
    d = rk.Deployment({"summary": {**LUMP, "active_parameters": 1_000_000_000}}, "h100-sxm", efficiency="datasheet")
    found = d.crossover()
    assert found.closed_form_tokens == pytest.approx(found.tokens, rel=0.01)


# ---- devices without a peak


def test_a_device_without_a_peak_counts_and_bounds_by_memory():
    """The DDR5 desktop: counts, memory time and floor are there; the estimate says that it is memory alone."""
    d = rk.Deployment("llama-3.1-8b", "cpu-ddr5-5600-dual", memory_check=False)
    step, prefill = d.decode(2048), d.prefill(2048)
    assert prefill.flops == rk.Deployment("llama-3.1-8b", "gb10").prefill(2048).flops
    assert step.bytes > step.weight_bytes > 15e9
    assert 0 < step.floor_s <= step.memory_time_s
    assert step.operator("lm_head").memory_time_s > 0
    assert step.operator("block_norm").compute_time_s == 0
    assert repr(step).endswith("by memory alone (no arithmetic peak)")
    assert "no arithmetic peak" in repr(step.operator("lm_head"))


@pytest.mark.parametrize(
    "ask",
    [
        lambda d: d.decode(1).time_s,
        lambda d: d.decode(1).tokens_per_s,
        lambda d: d.decode(1).bound,
        lambda d: d.decode(1).operator("lm_head").time_s,
        lambda d: d.decode(1).operator("lm_head").compute_time_s,
        lambda d: d.decode(1).explain(),
        lambda d: d.request(5, output_tokens=5).end_to_end_s,
        rk.Deployment.crossover,
        lambda d: d.compute_bound_batch(context_tokens=1),
    ],
)
def test_a_time_that_needs_a_missing_peak_is_an_error_when_asked_for(ask):
    """The error names the device and the dtype, and says what to do; nothing is guessed from another field."""
    d = rk.Deployment("qwen3-0.6b", "cpu-ddr5-5600-dual")
    with pytest.raises(
        rk.MissingFigureError, match=r"cpu-ddr5-5600-dual has no datasheet peak for bf16 .*Choose another"
    ):
        ask(d)


def test_a_missing_dtype_is_not_taken_from_a_present_one():
    """FP8 weights on a card without FP8: the error says which peaks there are, and BF16 is not used silently."""
    d = rk.Deployment("qwen3-8b", "a100-sxm-80gb", weights="fp8")
    with pytest.raises(
        rk.MissingFigureError, match=r"a100-sxm-80gb has no datasheet peak for fp8 \(it has: .*bf16.*\)"
    ):
        _ = d.decode(1).time_s
    assert d.with_(compute="bf16").decode(1).time_s > 0


# ---- dtypes


def test_fp16_stands_in_for_bf16_on_28_devices():
    """The devices with an FP16 rate and no BF16 rate compute in FP16 and say so; two have neither rate."""
    peaks = {name: rk.load_device(name).flops_per_s for name in rk.list_devices()}
    without = {name for name, have in peaks.items() if "bf16" not in have}
    substituted = {name for name in without if "fp16" in peaks[name]}
    assert len(substituted) == 28
    assert len(without - substituted) == 2
    for name in peaks:
        d = rk.Deployment("qwen3-0.6b", name)
        said = f"{name} has no BF16 rate: computed in FP16, as engines do" in d.notes
        assert said == (name in substituted)
        assert d.precision.product_dtype == ("fp16" if said else "bf16")
        assert bool(d.timing.missing) == (name in without - substituted)


def test_a_dtype_that_was_asked_for_is_not_substituted():
    """`compute="bf16"` on a card without a BF16 rate is an error that names it, not a silent FP16."""
    d = rk.Deployment("qwen3-0.6b", "v100-sxm-32gb", compute="bf16")
    with pytest.raises(rk.MissingFigureError, match="v100-sxm-32gb has no datasheet peak for bf16"):
        _ = d.decode(1).time_s


@pytest.mark.parametrize("weights", [name for name in WEIGHT_FORMATS if name != "fp32"])
def test_the_cache_dtype_does_not_follow_the_weights(weights):
    """K and V stay at the model's 16 bits whatever the weights are, and at 8 where that is asked for."""
    assert QWEN.with_(weights=weights).kv_bytes_per_token == 147_456
    assert QWEN.with_(weights=weights, kv_cache="fp8").kv_bytes_per_token == 73_728
    assert QWEN.with_(weights=weights, kv_cache="fp8").decode(99).kv_bytes == 73_728 * 100


@pytest.mark.parametrize(
    "weights", [name for name, one in WEIGHT_FORMATS.items() if not one.arithmetic and one.bits < 16]
)
def test_weight_only_formats_compute_at_16_bits(weights):
    """INT4 weights are not INT4 arithmetic: same FLOPs, same dtype, fewer bytes."""
    one = QWEN.device.efficiency[0]  # the same constants for all: entries by format price the unpacking too
    d = QWEN.with_(weights=weights, efficiency=one)
    assert {row.dtype for row in d.plan.rows} == {"bf16"}
    assert d.prefill(2048).flops == QWEN.prefill(2048).flops
    compute = [
        sum(row.compute_time_s for row in e.prefill(2048).operators if row.op_class == "product") for e in (d, QWEN)
    ]
    assert compute[0] == pytest.approx(compute[1], rel=1e-12)
    saved = 6_945_767_424 * (16 - WEIGHT_FORMATS[weights].bits) / 8
    if recipe_of(weights) == Recipe(weights):  # a format and no recipe: the output layer stays at 16 bits
        assert d.decode(2048).weight_bytes == pytest.approx(QWEN.decode(2048).weight_bytes - saved, rel=1e-15)


def test_formats_with_narrow_arithmetic_are_these_and_no_others():
    """Only formats whose activations are quantised too compute at 8 or 4 bits; INT4, NF4, MXFP4 and GGUF never do."""
    narrow = {name: one.arithmetic for name, one in WEIGHT_FORMATS.items() if one.arithmetic}
    assert narrow == {
        "fp8": "fp8", "fp8-block": "fp8", "int8": "int8", "nvfp4": "fp4", "mxfp8": "fp8",
        "mxfp4-fp8": "fp8", "mxfp4-fp4": "fp4",
    }  # fmt: skip
    for weights in ("int4", "int4-g32", "nf4", "mxfp4", "nvfp4-weight-only", "fp8-weight-only", "q4_k", "int3-g64"):
        assert {row.dtype for row in QWEN.with_(weights=weights).plan.rows} == {"bf16"}


def test_stored_weights_include_the_embedding_and_scales():
    """Memory holds every parameter; a pass reads all but the embedding rows that it does not gather."""
    assert QWEN.weights_bytes == 2 * 8_190_735_360
    int4 = QWEN.with_(weights="int4")
    blocks = 6_945_767_424
    assert int4.weights_bytes == pytest.approx(blocks * (4 + 20 / 128) / 8 + 2 * (8_190_735_360 - blocks), rel=1e-15)


UNKNOWN = [
    ({"weights": "fp9"}, r"weights='fp9' is not known: expected one of bf16, fp16, "),
    ({"kv_cache": "fp4"}, r"kv_cache='fp4' is not known: expected one of bf16, fp16, fp32, fp8, int8"),
    ({"compute": "bf61"}, r"compute='bf61' is not known: expected one of fp32, tf32, bf16"),
    ({"efficiency": "fast"}, r"efficiency='fast' is not known: expected one of calibrated, measured, datasheet"),
    ({"efficiency": 0.7}, r"efficiency=0\.7: expected one of calibrated, measured, datasheet, or an Efficiency"),
]


@pytest.mark.parametrize(("choice", "message"), UNKNOWN)
def test_an_unknown_choice_lists_the_known_ones(choice, message):
    """A format, dtype or efficiency that there is not is refused where it is made."""
    with pytest.raises(rk.InvalidInputError, match=f"^{message}"):
        QWEN.with_(**choice)


# ---- sizes

# fmt: off
SIZES = [
    # call                                                    what the message says
    (lambda: QWEN.decode(-1),                            r"context_tokens=-1: expected a number, 0 or more and finite"),
    (lambda: QWEN.decode(math.nan),                           r"context_tokens=nan: expected a number, 0 or more"),
    (lambda: QWEN.decode(math.inf),                           r"context_tokens=inf: expected a number, 0 or more"),
    (lambda: QWEN.decode("2048"),                             r"context_tokens='2048': expected a number"),
    (lambda: QWEN.decode(None),                               r"context_tokens=None: expected a number"),
    (lambda: QWEN.decode([5, -1]),                           r"context_tokens=\[5, -1\]: expected a number, 0 or more"),
    (lambda: QWEN.decode([]),                                 r"context_tokens=\[\]: expected a number"),
    (lambda: QWEN.decode(5, batch=0),                         r"batch=0: expected a number, above 0"),
    (lambda: QWEN.decode(5, busy_s=-1),                       r"busy_s=-1: expected a number, 0 or more"),
    (lambda: QWEN.prefill(0),                                 r"prompt_tokens=0: expected a number, above 0"),
    (lambda: QWEN.prefill(5, cached_tokens=5),                r"cached_tokens=5: expected fewer than prompt_tokens=5"),
    (lambda: QWEN.chunked_prefill(5, token_budget=0),         r"token_budget=0: expected a number, above 0"),
    (lambda: QWEN.chunked_prefill(5, token_budget=2, cached_tokens=5), r"cached_tokens=5: expected fewer than prompt"),
    (lambda: QWEN.request(5, output_tokens=0),                r"output_tokens=0: expected a number, 1 or more"),
    (lambda: QWEN.request(5, output_tokens=1.5),              r"output_tokens=1\.5: expected"),
    (lambda: QWEN.kv_cache_bytes(-1),                         r"tokens=-1: expected a number, 0 or more"),
    (lambda: QWEN.kv_cache_bytes(1, sequences=math.nan),      r"sequences=nan: expected a number, 0 or more"),
    (QWEN.step,                                              r"a step needs at least one group: \(new_tokens, context"),
    (lambda: QWEN.step((1, 2, 3, -4)),                        r"sampled_tokens=-4: expected a number, 0 or more"),
    (lambda: QWEN.step((1, 2, 3, 4, 5)),                      r".*\(new_tokens, context_tokens, sequences"),
    (lambda: QWEN.step(5),                                    r".*\(new_tokens, context_tokens, sequences"),
    (lambda: QWEN.decode([1, 2], batch=[1, 2, 3]),            r".*broadcast"),
    (lambda: QWEN.prefill([1, 2], cached_tokens=[0, 0, 0]),   r".*broadcast"),
    (lambda: QWEN.request([1, 2], output_tokens=[1, 2, 3]),   r".*broadcast"),
    (lambda: QWEN.chunked_prefill([5, 6], token_budget=2),    r"prompt_tokens=\[5, 6\]|.*one prompt|.*single"),
    (lambda: QWEN.batch_curve(5, batch=[0]),                  r"batch=.*: expected a number, above 0"),
    (lambda: QWEN.crossover(scope="all"),                     r"scope='all': expected 'products' or 'pass'"),
    (lambda: QWEN.decode(1).operator("mlp"),               r"no operator 'mlp': this pass has embedding, block_norm, "),
    (lambda: rk.crossover_tokens(flops_per_s=-1, bytes_per_s=1), r"flops_per_s=-1: expected a number, above 0"),
]
# fmt: on


@pytest.mark.parametrize(("call", "message"), SIZES)
def test_a_bad_size_is_one_error_that_names_it(call, message):
    """Each message names the argument, the value found and what was expected, in one line."""
    with pytest.raises(rk.InvalidInputError, match=f"^{message}") as caught:
        call()
    assert "\n" not in str(caught.value)


# ---- memory and context


def test_a_deployment_that_does_not_fit_says_how_much_is_missing():
    """Weights and cache, the difference to the device's memory, and what could be changed."""
    d = rk.Deployment("qwen3-8b", CARD)
    with pytest.raises(
        rk.DoesNotFitError,
        match=r"^qwen3-8b does not fit on custom: weights 15\.3 GiB and KV cache 1\.10 TiB need 1\.04 TiB more than "
        r"its 80\.0 GiB: at least 15 such devices hold them\. Use fewer sequences, .*memory_check=False$",
    ):
        d.decode(8191, batch=1000)
    assert d.with_(memory_check=False).decode(8191, batch=1000).time_s > 0


def test_fitting_is_judged_at_the_end_of_the_step_and_over_all_groups():
    """The last sequence that fits passes, one more does not; two groups share the memory."""
    d = rk.Deployment("qwen3-8b", CARD)
    most = int((80 * 2**30 - d.weights_bytes) / d.kv_cache_bytes(2048))
    assert d.decode(2047, batch=most).time_s > 0
    assert d.step((1, 2047, most // 2), (1, 2047, most - most // 2)).time_s > 0
    for step in (((1, 2047, most + 1),), ((1, 2047, most), (1, 2047, 1)), ((2047, 1, most + 1),)):
        with pytest.raises(rk.DoesNotFitError):
            d.step(*step)


def test_a_device_of_unknown_memory_holds_anything():
    """Nothing is guessed about a memory that the file does not give."""
    card = {"bandwidth_gb_per_s": 1000, "peak_dense_tflops": {"bf16": 100}}
    assert rk.Deployment("qwen3-8b", card).decode(2048, batch=1e6).time_s > 0


def test_a_windowed_cache_holds_its_window():
    """Gemma 2 9B at 8,192 tokens: 21 layers hold all of them, 21 their window of 4,096."""
    d = rk.Deployment("gemma-2-9b", "h100-sxm")
    row = 2 * 2 * 8 * 256
    assert d.kv_cache_bytes(8192) == 21 * row * (8192 + 4096)
    assert d.kv_bytes_per_token == 42 * row
    assert d.kv_cache_bytes([100, 8192], sequences=[[1], [2]]).shape == (2, 2)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda d: d.decode(1024), "1,025 tokens exceed the 1,024 that gpt2-xl was made for"),
        (lambda d: d.prefill(2000), "2,000 tokens exceed the 1,024 that gpt2-xl was made for"),
        (lambda d: d.step((1, 10), (500, 525)), "1,025 tokens exceed the 1,024"),
        (lambda d: d.request(1000, output_tokens=26), "1,025 tokens exceed the 1,024"),
    ],
)
def test_a_context_beyond_the_models_is_a_warning(call, said):
    """The estimate is made all the same; the warning says how many tokens and how many the model was made for."""
    with pytest.warns(rk.ContextLengthWarning, match=said):
        call(rk.Deployment("gpt2-xl", "gb10"))


@pytest.mark.parametrize("call", ["d.decode(1024)", "d.prefill(1025)", "d.step((1, 1024))"])
def test_the_warning_points_at_the_callers_line(call):
    """Whoever asks for a step, a prefill or a decode finds their own file in the warning."""
    with pytest.warns(rk.ContextLengthWarning) as caught:
        exec(compile(call, "mine.py", "exec"), {"d": rk.Deployment("gpt2-xl", "gb10")})  # noqa: S102 - a file of its own
    assert caught[0].filename == "mine.py"


def test_the_longest_context_that_the_model_was_made_for_is_silent():
    """At the limit itself nothing is said: warnings are errors in this suite."""
    assert rk.Deployment("gpt2-xl", "gb10").decode(1023).time_s > 0


# ---- efficiency


def test_an_interval_needs_calibration():
    """A roofline has no measured spread, so no interval, and the error says so; a level that is none is refused."""
    bare = QWEN.with_(efficiency="datasheet").decode(1)
    with pytest.raises(
        rk.NotCalibratedError, match=r"^no interval: datasheet roofline of gb10 carries no measured spread"
    ):
        bare.interval()
    for level in (0, 1, -0.5, 2, float("nan")):
        with pytest.raises(rk.InvalidInputError, match=r"expected a probability between 0 and 1"):
            QWEN.decode(1).interval(level=level)


def test_an_interval_holds_the_time_and_widens_with_its_level():
    """Low, time and high in order, wider at a higher level, never below the floor; arrays for a sweep."""
    step = QWEN.decode(2048)
    narrow, wide = step.interval(level=0.5), step.interval(level=0.95)
    assert step.floor_s <= wide[0] < narrow[0] < step.time_s < narrow[1] < wide[1]
    low, high = QWEN.decode([512, 2048], batch=[[1], [8], [64]]).interval()
    assert low.shape == high.shape == (3, 2)
    assert low[0, 1] == pytest.approx(step.interval()[0], rel=1e-6)
    prefill = QWEN.prefill(2048)
    assert prefill.interval()[1] / prefill.time_s > step.interval()[1] / step.time_s  # prefills stray further


def test_an_interval_is_wider_where_the_constants_are_another_engines():
    """The tier is part of the spread: another engine's constants miss by more than the engine's own."""
    own, other = (rk.Deployment("qwen3-8b", "h200-sxm", engine=name).decode(2048) for name in ("pytorch", "triton"))
    assert other.basis.endswith("other engine on this device")
    width = [step.interval()[1] / step.time_s for step in (own, other)]
    assert width[1] > 1.3 > width[0]


def test_an_error_budget_adds_up_and_names_a_measurement():
    """Causes add up in squares to the spread, the largest first; one measurement is named, and it narrows."""
    budget = QWEN.prefill(2048).error_budget()
    assert sum(float(cause.log_std[0]) ** 2 for cause in budget.causes) == pytest.approx(budget.log_std**2, rel=1e-9)
    sizes = [float(cause.log_std[0]) for cause in budget.causes[:-1]]
    assert sizes == sorted(sizes, reverse=True)
    assert budget.log_std_after < budget.log_std
    assert "of qwen3-8b on gb10" in budget.measurement
    assert str(budget).splitlines()[-1].startswith("one measurement would help most: ")
    with pytest.raises(rk.InvalidInputError, match=r"error_budget\(\) takes one point"):
        QWEN.prefill([1, 2]).error_budget()


ENTRIES = (
    entry("card/vllm-0.31/bf16", "vllm-0.31", default=True, launch_us=1),
    entry("card/sglang-0.5/bf16", "sglang-0.5", launch_us=2),
    entry("card/vllm-0.31/int4", "vllm-0.31", "int4", launch_us=3),
)
# fmt: off
TIERS = [
    # generation  entries      engine       weights  basis                                                launch
    ("hopper",    ENTRIES,     None,        None,    "card/vllm-0.31/bf16",                                1),
    ("hopper",    ENTRIES,     "vllm-0.31", None,    "card/vllm-0.31/bf16",                                1),
    ("hopper",    ENTRIES,     "vllm",      None,    "card/vllm-0.31/bf16",                                1),
    ("hopper",    ENTRIES,     "sglang",    None,    "card/sglang-0.5/bf16",                               2),
    ("hopper",    ENTRIES,     "vllm",      "int4",  "card/vllm-0.31/int4",                                3),
    ("hopper",    ENTRIES,     "vllm",      "fp16",  "card/vllm-0.31/bf16",                                1),
    ("hopper",    ENTRIES,     "llama.cpp", None,    "card/vllm-0.31/bf16, other engine on this device",   1),
    ("hopper",    ENTRIES,     "sglang",    "int4",  "card/vllm-0.31/int4, other engine on this device",   3),
    ("hopper",    ENTRIES,     None,        "nf4",   "card/vllm-0.31/bf16, other format on this device",   1),
    ("hopper",    ENTRIES,     "sglang",    "nf4",   "card/sglang-0.5/bf16, other format on this device",  2),
    ("hopper",    ENTRIES[2:], None,        None,    "hopper, architecture generation",                    None),
    ("hopper",    (),          None,        None,    "hopper, architecture generation",                    None),
    ("cdna3",     (),          None,        None,    "universal",                                          None),
    (None,        (),          None,        None,    "universal",                                          None),
]
# fmt: on


@pytest.mark.parametrize("row", TIERS, ids=[f"{row[2]} {row[3]}: {row[4]}" for row in TIERS])
def test_the_nearest_efficiency_is_taken_and_named(row):
    """Own entry, another engine's, another format's, the generation's, the universal one: the basis says which."""
    generation, entries, engine, weights, basis, launch_us = row
    device = {**CARD, "id": "card", "generation": generation, "efficiency": entries}
    d = rk.Deployment("qwen3-8b", device, engine=engine, weights=weights)
    assert d.decode(1).basis == basis
    assert repr(d).endswith(basis)
    if launch_us is None:
        launch_us = load_generation("hopper" if generation == "hopper" else "universal").products.bf16.launch_us
    assert d.decode(1).operator("o_proj").launch_time_s == pytest.approx(36 * launch_us * 1e-6)


def test_a_constant_that_an_entry_lacks_is_taken_from_the_next():
    """Each constant comes from the first of entry, generation and universal that holds it, and explain() says whose."""
    device = {**CARD, "id": "card", "generation": "hopper", "efficiency": ENTRIES[:1]}
    d = rk.Deployment("qwen3-8b", device)
    bases = {row.name: law.basis for row, law in zip(d.plan.rows, d.timing.row_laws, strict=True)}
    assert bases["qkv_proj"] == "card/vllm-0.31/bf16 products.bf16"
    assert bases["attention"] == "hopper attention"
    assert bases["block_norm"] == "universal norm"
    assert bases["attention"] in str(d.decode(1).explain())


def test_an_efficiency_can_be_handed_in():
    """A value of one's own is used as it is, and named as the basis."""
    own = QWEN.device.efficiency[0].model_copy(update={"name": "mine"})
    assert QWEN.with_(efficiency=own).decode(5).basis == "mine"
    assert QWEN.with_(efficiency=own).decode(5).time_s == QWEN.decode(5).time_s


def test_measured_uses_the_two_ceilings():
    """`efficiency="measured"`: the per-operator roofline on the figures that the device file marks as ceilings."""
    d = QWEN.with_(efficiency="measured")
    product = d.decode(2048).operator("gate_up_proj")
    assert product.memory_time_s == pytest.approx(product.bytes / 241e9, rel=1e-12)
    assert d.prefill(2048).operator("gate_up_proj").compute_time_s == pytest.approx(
        36 * 412_316_860_416 / 94e12, rel=1e-12
    )
    assert d.decode(2048).basis == "measured roofline of gb10"
    assert d.decode(2048).floor_s == QWEN.decode(2048).floor_s


def test_measured_needs_ceilings():
    """Without a marked figure the error names the missing quantity and the device."""
    with pytest.raises(
        rk.MissingFigureError, match=r"^custom has no measured memory_read_gb_per_s marked `ceiling: true`"
    ):
        rk.Deployment("qwen3-8b", CARD, efficiency="measured")
    fp8 = QWEN.with_(efficiency="measured", weights="fp8")
    with pytest.raises(rk.MissingFigureError, match=r"^gb10 has no measured peak for fp8 \(it has: bf16\)"):
        _ = fp8.decode(1).time_s


def test_every_shipped_device_and_a_model_give_a_finite_time():
    """All devices, with the fallbacks that each takes: a positive finite step, or a missing peak that is named."""
    for name in rk.list_devices():
        step = rk.Deployment("llama-3.2-1b", name).decode(1000)
        assert 0 < step.floor_s <= step.memory_time_s * (1 + 1e-12) or step.timing.missing or step.bound == "compute"
        if not step.timing.missing:
            assert step.floor_s <= step.time_s < 10


@pytest.mark.parametrize("device", ["mi300x", "b200-sxm"])
def test_every_shipped_model_gives_a_finite_time(device):
    """Prefill and decode are positive, finite and above their floors; a 4-bit rate that a card has not is named."""
    for name in rk.list_models():
        d = rk.Deployment(name, device, memory_check=False)
        steps = d.prefill(500), d.decode(500), d.step((300, 200, 2, 0), (1, 900, 7))
        if d.timing.missing:
            assert (device, d.timing.missing) == ("mi300x", ("fp4",))
            assert "nvfp4" in d.precision.described
        for step in steps:
            assert 0 < step.floor_s < math.inf
            if d.timing.missing:
                with pytest.raises(rk.MissingFigureError, match="mi300x has no datasheet peak for fp4"):
                    _ = step.time_s
            else:
                assert step.floor_s < step.time_s < 1000


def test_sources_name_device_model_and_efficiency():
    """The figures behind an estimate are listed with where they are from."""
    lines = "\n".join(QWEN.decode(1).sources())
    for said in (
        "gb10 bandwidth = 273 GB/s: ",
        "gb10 bf16 peak = 125 TFLOP/s: ",
        "qwen3-8b figures: ",
        "attention.launch_us",
    ):
        assert said in lines
    measured = "\n".join(QWEN.with_(efficiency="measured").decode(1).sources())
    assert "gb10 memory_read_gb_per_s = 241" in measured


# ---- requests


@pytest.mark.parametrize(
    ("prompt", "output", "batch", "cached"), [(2048, 65, 1, 0), (100, 2, 8, 0), (500, 300, 3, 128)]
)
def test_a_request_is_its_prefill_and_the_explicit_sum_of_its_steps(prompt, output, batch, cached):
    """Decode is integrated over the growing context: the k-th step holds prompt + k tokens, not the final length."""
    r = QWEN.request(prompt, output_tokens=output, batch=batch, cached_tokens=cached)
    steps = [QWEN.decode(prompt + k, batch=batch) for k in range(output - 1)]
    assert r.prefill.time_s == QWEN.prefill(prompt, cached_tokens=cached, batch=batch).time_s
    assert r.decode.time_s == pytest.approx(sum(step.time_s for step in steps), rel=1e-12)
    assert r.decode.kv_bytes == sum(step.kv_bytes for step in steps)
    assert r.decode.weight_bytes == (output - 1) * steps[0].weight_bytes
    assert r.time_to_first_token_s == r.prefill.time_s
    assert r.time_per_output_token_s == pytest.approx(r.decode.time_s / (output - 1), rel=1e-15)
    assert r.end_to_end_s == r.prefill.time_s + r.decode.time_s
    assert len(r.decode.steps) == output - 1


def test_requests_of_unequal_outputs_broadcast():
    """Each point of a sweep sums its own steps, one of a single output token among them."""
    prompts, outputs = [100, 2000], [[1], [2], [40]]
    r = QWEN.request(prompts, output_tokens=outputs, batch=4)
    assert r.decode.time_s.shape == r.end_to_end_s.shape == r.time_per_output_token_s.shape == (3, 2)
    for i, (output,) in enumerate(outputs):
        for j, prompt in enumerate(prompts):
            single = QWEN.request(prompt, output_tokens=output, batch=4)
            assert r.decode.time_s[i, j] == pytest.approx(single.decode.time_s, rel=1e-9)
            assert r.decode.flops[i, j] == single.decode.flops
            assert r.end_to_end_s[i, j] == pytest.approx(single.end_to_end_s, rel=1e-12)
    assert np.isnan(r.time_per_output_token_s[0]).all()


def test_one_output_token_is_the_prefill_alone():
    """The prefill samples the first token: no decode step, no time between tokens."""
    r = QWEN.request(2048, output_tokens=1)
    assert r.end_to_end_s == r.time_to_first_token_s == QWEN.prefill(2048).time_s
    assert r.decode.time_s == r.decode.flops == r.decode.bytes == 0
    assert r.decode.passes.tolist() == [0]
    assert math.isnan(r.time_per_output_token_s)
    assert "nan" not in repr(r)


def test_a_sweep_of_single_output_tokens_has_no_decode_step():
    """All points without a decode step: zeros of the right shape."""
    r = QWEN.request([100, 200], output_tokens=1)
    assert r.decode.time_s.tolist() == [0, 0]
    assert r.end_to_end_s.tolist() == r.prefill.time_s.tolist()


def test_a_sweep_of_requests_has_one_shape():
    """Whichever argument is swept, prefix and load among them, the request says its points in one line."""
    sweeps = [
        QWEN.request(100, output_tokens=[1, 2]),
        QWEN.request([100, 200], output_tokens=2),
        QWEN.request(100, output_tokens=3, cached_tokens=[0, 50]),
        QWEN.request(100, output_tokens=3, busy_s=[0, 1]),
    ]
    for sweep in sweeps:
        assert re.fullmatch(r"request: .*2.* points \(gb10/vllm-0\.31/bf16\)", repr(sweep))
        assert np.shape(sweep.end_to_end_s) == np.shape(sweep.decode.time_s) == (2,)
    for index, cached in enumerate((0, 50)):
        single = QWEN.request(100, output_tokens=3, cached_tokens=cached)
        assert sweeps[2].end_to_end_s[index] == pytest.approx(single.end_to_end_s, rel=1e-12)


# ---- where the phases turn


def test_the_closed_form_crossover_of_the_three_pairs_of_peaks():
    """94 over 273 gives 344, 94 over 241 gives 390, 125 over 273 gives 458; FP8 weights halve it."""
    pairs = ((94e12, 273e9), (94e12, 241e9), (125e12, 273e9))
    found = [rk.crossover_tokens(flops_per_s=flops, bytes_per_s=rate) for flops, rate in pairs]
    assert [round(tokens) for tokens in found] == [344, 390, 458]
    halved = rk.crossover_tokens(flops_per_s=94e12, bytes_per_s=[241e9], bytes_per_weight=1)
    assert halved.tolist() == [pytest.approx(found[1] / 2)]
    assert round(QWEN.with_(efficiency="measured").crossover().closed_form_tokens) == 390
    assert round(QWEN.with_(efficiency="datasheet").crossover().closed_form_tokens) == 458


@pytest.mark.parametrize("efficiency", ["measured", "datasheet", "calibrated"])
def test_at_the_crossover_both_times_agree(efficiency):
    """The products' compute time equals their memory time at the root, and their peaks are named."""
    d = QWEN.with_(efficiency=efficiency)
    found = d.crossover()
    rows = [d.prefill(found.tokens).operator(name) for name in ("qkv_proj", "o_proj", "gate_up_proj", "down_proj")]
    assert sum(row.compute_time_s for row in rows) == pytest.approx(sum(row.memory_time_s for row in rows), rel=1e-9)
    assert found.tokens > found.closed_form_tokens
    assert found.peaks


def test_a_small_model_never_leaves_the_memory_roof():
    """Counting every operator, Qwen3-0.6B on GB10 has no crossover: infinity, with the reason."""
    found = rk.Deployment("qwen3-0.6b", "gb10", efficiency="datasheet").crossover(scope="pass")
    assert math.isinf(found.tokens) == bool(found.reason)
    assert ("never" in repr(found)) == math.isinf(found.tokens)


def test_kv_parity_is_where_the_bytes_agree():
    """At the parity context a step reads as many bytes of K and V as of weights."""
    context = QWEN.kv_parity_tokens(batch=[1, 32])
    step = QWEN.with_(memory_check=False, model=QWEN.model.model_copy(update={"max_context_tokens": None}))
    found = step.decode(context, batch=[1, 32])
    assert found.kv_bytes == pytest.approx(found.weight_bytes, rel=1e-9)


def test_the_compute_bound_batch_is_where_the_times_agree():
    """Above it the arithmetic of a step takes longer than its memory traffic; a long context puts it out of reach."""
    d = rk.Deployment("qwen3-8b", "h200-sxm", efficiency="datasheet", memory_check=False)
    batch = d.compute_bound_batch(context_tokens=128)
    for many, above in ((batch * 0.99, False), (batch * 1.01, True)):
        rows = d.decode(128, batch=many).operators
        assert (sum(row.compute_time_s for row in rows) > sum(row.memory_time_s for row in rows)) == above
    assert d.compute_bound_batch(context_tokens=[128, 30_000])[1] == math.inf


def test_devices_compare_in_one_table():
    """A row a device: times where there are peaks, the reason where there are none, and whether it fits."""
    table = rk.compare_devices("qwen3-8b", ["gb10", "cpu-ddr5-5600-dual", "rtx-3060-12gb"]).set_index("device")
    assert table.loc["gb10", "prefill_s"] == pytest.approx(QWEN.prefill(2048).time_s)
    assert table.loc["gb10", "decode_tokens_per_s"] == pytest.approx(QWEN.decode(2048).tokens_per_s)
    assert math.isnan(table.loc["cpu-ddr5-5600-dual", "prefill_s"])
    assert "no datasheet peak for bf16" in table.loc["cpu-ddr5-5600-dual", "note"]
    assert bool(table.loc["gb10", "fits"])
    assert not table.loc["rtx-3060-12gb", "fits"]


@pytest.mark.parametrize("kind", [np.int64, np.float64, np.float32, np.asarray])
def test_numpy_scalars_are_single_points(kind):
    """A count taken out of an array or a table is a number like any other, and gives a Python float."""
    step = QWEN.decode(kind(2048), batch=kind(4))
    assert step.time_s == QWEN.decode(2048, batch=4).time_s
    assert type(step.time_s) is float
    assert step.bound == "memory"
    assert QWEN.prefill(kind(2048)).label == "prefill 2,048 tokens"
    assert (
        QWEN.request(kind(100), output_tokens=kind(3)).end_to_end_s == QWEN.request(100, output_tokens=3).end_to_end_s
    )
    assert str(QWEN.decode(kind(2048)).explain()) == str(QWEN.decode(2048).explain())
    assert type(QWEN.kv_cache_bytes(kind(2048))) is float
    assert type(QWEN.kv_parity_tokens(kind(4))) is float


def test_explain_names_weights_kv_and_small_kernels():
    """The first level of the tree is what a planner asks first, and its shares sum to the pass."""
    tree = QWEN.decode(2048).explain()
    assert [part.label for part in tree.children] == [
        "weights: linear layers and experts",
        "KV: attention",
        "small kernels",
    ]
    assert sum(part.value for part in tree.children) == pytest.approx(tree.value, rel=1e-12)
    assert [part.shown.split(", ")[1] for part in tree.children] == [
        "97.3% of the pass",
        "2.1% of the pass",
        "0.6% of the pass",
    ]


def test_a_sweep_cannot_be_changed_in_place():
    """What an estimate hands out stays what it computed."""
    step = QWEN.decode([1, 2])
    with pytest.raises(ValueError, match="read-only"):
        step.time_s[:] = 0


@pytest.mark.parametrize("choice", [{"weights": 16}, {"engine": ""}, {"kv_cache": ""}, {"compute": 3}])
def test_a_choice_is_a_name(choice):
    """A number or an empty text is refused, not taken for the default."""
    with pytest.raises(rk.InvalidInputError, match=r"expected a name$"):
        QWEN.with_(**choice)


def test_an_unknown_choice_is_named():
    """The message says what a deployment of one device has."""
    with pytest.raises(rk.InvalidInputError, match=r"^gpus: no such choice; a deployment has mod"):
        rk.Deployment("qwen3-8b", "gb10", gpus=2)


def test_a_step_without_sequences_is_refused():
    """An absent group costs nothing, but a step has to hold something."""
    with pytest.raises(rk.InvalidInputError, match="at least one sequence"):
        QWEN.step((1, 0, 0))
    assert QWEN.step((512, 0, 0), (1, 100, 4)).flops == QWEN.decode(100, batch=4).flops


def test_without_a_peak_a_batch_curve_has_its_floors():
    """Times are missing, counts and bounds are there, and a request can be held."""
    d = rk.Deployment("qwen3-8b", "cpu-ddr5-5600-dual")
    curve = d.batch_curve(2048, batch=[1, 8])
    assert curve["step_s"].isna().all()
    assert (curve["floor_s"] > 0.1).all()
    assert set(curve["bound"]) == {"memory alone"}
    assert "lacks an arithmetic peak" in repr(d.request(10, output_tokens=3))
