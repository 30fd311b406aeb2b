"""What must hold whatever the model, the device and the step: identities, monotony, scaling, sums that add up."""

import itertools
import math
import warnings
from functools import cache

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from rooflinekit import ContextLengthWarning, Deployment, Efficiency, load_model
from rooflinekit.operators.moe import distinct_experts
from rooflinekit.phases.explain import explain

pytestmark = pytest.mark.filterwarnings("ignore::rooflinekit.errors.ContextLengthWarning")

CARD = {"bandwidth_gb_per_s": 1000, "peak_dense_tflops": {"bf16": 200, "fp8": 400}, "last_level_cache_mib": 40}
LUMP = {"summary": {"parameters": 8_000_000_000, "layers": 32, "kv_heads": 8, "head_dim": 128, "heads": 32}}
#: A card that slows down after 20 ms of compute-bound work, with constants of its own in every class.
LIMITED = Efficiency(
    name="limited",
    products={"bf16": {"compute": 0.8, "memory": 0.9, "launch_us": 4}},
    attention={"compute": 0.6, "memory": 0.8, "activation": 0.4, "launch_us": 9, "softmax_flops_per_score": 100},
    norm={"memory": 0.5, "launch_us": 2},
    rotary={"memory": 0.4, "launch_us": 2},
    activation={"memory": 0.3, "launch_us": 2},
    cache_write={"memory": 0.6, "launch_us": 2},
    burst_ms=20,
    sustained=0.8,
)
DENSE = ("qwen3-8b", "gemma-2-9b", "gpt2-xl", "falcon-7b", "lump")
#: A mixture; windows, sinks and a quantised checkpoint; two hybrids; layers with a view of one chunk; latent attention.
CHUNKED_VIEW, LATENT = "llama-4-scout", "deepseek-v3"
ONE_FORM = (*DENSE, "qwen3-30b-a3b", "gpt-oss-20b", "jamba-v0.1", "qwen3-next-80b-a3b", CHUNKED_VIEW)
MODELS = (*ONE_FORM, LATENT)
# fmt: off
CHOICES = {
    "own":        ("gb10",     {}),
    "generation": ("h200-sxm", {}),
    "universal":  ("mi300x",   {}),
    "fp8":        ("h200-sxm", {"weights": "fp8", "kv_cache": "fp8"}),
    "int4":       ("gb10",     {"weights": "int4"}),
    "datasheet":  ("gb10",     {"efficiency": "datasheet"}),
    "limited":    ("h200-sxm", {"efficiency": LIMITED}),
}
# fmt: on


@cache
def deployment(model, choice):
    """One deployment of each kind, built once; memory is not checked, so that any size can be drawn."""
    device, chosen = CHOICES[choice]
    return Deployment(LUMP if model == "lump" else model, device, memory_check=False, **chosen)


def card(bandwidth=1.0, arithmetic=1.0, cache_mib=40):
    """Device with its two peaks scaled."""
    peaks = {dtype: peak * arithmetic for dtype, peak in CARD["peak_dense_tflops"].items()}
    return {"bandwidth_gb_per_s": 1000 * bandwidth, "peak_dense_tflops": peaks, "last_level_cache_mib": cache_mib}


def deployments(models):
    """Draw deployments of these models, each with every choice."""
    return st.builds(deployment, st.sampled_from(models), st.sampled_from(tuple(CHOICES)))


DEPLOYMENTS = deployments(MODELS)
TOKENS = st.integers(1, 5000)
CONTEXTS = st.integers(0, 9000)
BATCHES = st.integers(1, 300)
GROUPS = st.tuples(st.integers(1, 700), CONTEXTS, st.integers(1, 40), st.integers(0, 1))


def never_less(more, less):
    """Whether `more` is at least `less`, but for rounding."""
    return more >= less * (1 - 1e-12)


def same_form(*steps):
    """Whether steps run the same kernels: latent attention changes its form with tokens and context, and only there.

    Where it does, both forms take the same arithmetic, and not the same bytes: time may fall as it may rise.
    """
    return len({tuple(row.launches > 0 for row in step.operators) for step in steps}) == 1


def values_reread(model, start):
    """Values that a chunk starting here reads again: in each layer the held context that its view reaches."""
    if model.summary:
        return 2 * model.summary.layers * model.summary.kv_heads * model.summary.head_dim * start
    return sum(run.times * layer_reread(run.mixer, start) for run in model.layer_runs)


def layer_reread(mixer, start):
    """Count them for one layer; a latent is read whole in either form, and a state is no context."""
    if mixer.kind == "mla":
        return start * (mixer.kv_rank + mixer.rope_dim)
    if mixer.kind != "gqa":
        return 0
    reach = start % mixer.window if mixer.chunked else min(start, (mixer.window or math.inf) - 1)
    return reach * mixer.read_per_token


def experts_read(d, tokens):
    """Bytes of the distinct experts that so many tokens touch, over all layers; 0 without a mixture."""
    mixtures = [run for run in d.model.layer_runs if run.feedforward.kind == "moe"] if not d.model.summary else []
    if not mixtures:
        return 0.0
    one = d.step((1, 0)).operator("experts").weight_bytes / mixtures[0].feedforward.experts_per_token
    return one * distinct_experts(tokens, *mixtures[0].feedforward.routed)


# ---- chunks


@given(DEPLOYMENTS, st.integers(1, 6000), st.integers(64, 3000), st.integers(0, 2000))
def test_chunks_sum_to_the_whole_prompt(d, new, budget, cached):
    """FLOPs and activations are those of one prefill, exactly; weights are read once a chunk, K, V and states again.

    Latent attention is the exception: it has two forms, chosen for each chunk, and the expanded one expands the held
    context again in every chunk. What is exact there has a test of its own.
    """
    whole = d.prefill(cached + new, cached_tokens=cached)
    chunks = d.chunked_prefill(cached + new, token_budget=budget, cached_tokens=cached)
    sizes = [min(budget, new - start) for start in range(0, new, budget)]
    again = len(sizes) - 1
    if d.model.id != LATENT:
        assert chunks.flops == whole.flops
        assert chunks.activation_bytes == whole.activation_bytes
        assert chunks.state_bytes == whole.state_bytes + again * 2 * d.cache.state_bytes
    head = 0.0 if d.model.summary else whole.operator("lm_head").weight_bytes
    once = whole.weight_bytes - head - experts_read(d, new)
    read = len(sizes) * once + head + sum(experts_read(d, size) for size in sizes)
    assert chunks.weight_bytes == pytest.approx(read, rel=1e-13)
    reread = sum(values_reread(d.model, cached + i * budget) for i in range(1, len(sizes))) * d.precision.kv_bytes
    assert chunks.kv_bytes == whole.kv_bytes + reread


@given(deployments(ONE_FORM), st.lists(st.integers(1, 4000), min_size=1, max_size=6))
def test_any_cut_of_a_prompt_has_the_same_flops(d, cuts):
    """Chunks of any lengths, not only equal ones, sum to the FLOPs of the whole, exactly."""
    starts = [0, *itertools.accumulate(cuts)]
    last = len(cuts) - 1
    steps = [d.step((new, starts[i], 1, int(i == last))) for i, new in enumerate(cuts)]
    assert sum(step.flops for step in steps) == d.prefill(starts[-1]).flops


@given(st.sampled_from(tuple(CHOICES)), st.lists(st.integers(1, 4000), min_size=1, max_size=6), st.integers(0, 9000))
def test_any_cut_of_a_prompt_over_latents_has_the_same_flops_but_for_what_is_expanded_again(choice, cuts, cached):
    """All rows but attention's are exact. Attention is exact within a form; a chunk that is expanded adds its context.

    The form may change with the length of a chunk and the context before it: a short chunk is absorbed, a long one not.
    """
    d = deployment(LATENT, choice)
    starts = [cached, *itertools.accumulate(cuts, initial=cached)][1:]
    steps = [d.step((new, start, 1, 0)) for new, start in zip(cuts, starts, strict=False)]
    whole = d.step((sum(cuts), cached, 1, 0))
    forms = ("kv_b_proj", "attention_absorbed", "attention_expanded")
    for row in whole.operators:
        if row.name not in forms:
            assert sum(step.operator(row.name).flops for step in steps) == row.flops
    absorbed = [step.operator("attention_absorbed").launches > 0 for step in [*steps, whole]]
    if len(set(absorbed)) == 1:
        for name in forms[1:]:
            assert sum(step.operator(name).flops for step in steps) == whole.operator(name).flops
        again = 0 if absorbed[0] else sum(starts[: len(cuts)]) - cached
        lifted = whole.operator("kv_b_proj").flops / (sum(cuts) + (0 if absorbed[0] else cached))
        assert (
            sum(step.operator("kv_b_proj").flops for step in steps)
            == whole.operator("kv_b_proj").flops + again * lifted
        )


@given(st.integers(100, 8000), st.integers(64, 3000))
def test_chunks_share_one_burst_budget(prompt, budget):
    """Under a power limit the chunks' compute work slows down as that of one pass does: none gets a fresh budget."""
    d = deployment("qwen3-8b", "limited")
    whole, chunks = d.prefill(prompt), d.chunked_prefill(prompt, token_budget=budget)
    seconds = [sum(row.compute_time_s for row in one.operators) for one in (whole, chunks)]
    assert seconds[1] == pytest.approx(seconds[0], rel=1e-9)


# ---- monotony


@given(DEPLOYMENTS, TOKENS, st.integers(1, 5000), st.integers(0, 2000), st.integers(1, 8))
def test_time_never_falls_with_more_prompt(d, prompt, more, cached, batch):
    """A longer prompt takes no less time, and has no lower floor."""
    short = d.prefill(cached + prompt, cached_tokens=cached, batch=batch)
    long = d.prefill(cached + prompt + more, cached_tokens=cached, batch=batch)
    assert never_less(long.floor_s, short.floor_s)
    assume(same_form(short, long))
    assert never_less(long.time_s, short.time_s)


@given(
    deployments([model for model in MODELS if model != CHUNKED_VIEW]),
    st.integers(1, 200),
    CONTEXTS,
    st.integers(1, 9000),
    BATCHES,
)
def test_time_never_falls_with_more_context(d, new, context, more, sequences):
    """A longer context takes no less time, for a decode step and for a chunk."""
    short, long = d.step((new, context, sequences)), d.step((new, context + more, sequences))
    assert never_less(long.floor_s, short.floor_s)
    assume(same_form(short, long))
    assert never_less(long.time_s, short.time_s)


def test_a_view_that_starts_anew_is_cheaper_at_its_start():
    """Llama 4 Scout's layers with chunks read 8,192 rows at the end of a chunk, and one at the start of the next."""
    d = deployment(CHUNKED_VIEW, "own")
    end, start = (d.decode(context).operator("attention[chunked]") for context in (8191, 8192))
    assert end.kv_bytes == 8192 * start.kv_bytes
    assert end.flops == 8192 * start.flops
    assert end.time_s > start.time_s


@given(DEPLOYMENTS, st.integers(1, 200), CONTEXTS, BATCHES, BATCHES)
def test_time_never_falls_with_more_sequences(d, new, context, sequences, more):
    """A larger batch takes no less time, and a sequence of it no more than one alone."""
    few, many = d.step((new, context, sequences)), d.step((new, context, sequences + more))
    assert never_less(many.time_s, few.time_s)
    assert never_less(few.time_s * (sequences + more) / sequences, many.time_s) or d.timing.laws.power_limit


WEIGHT_ONLY = ("int4", "mxfp4", "int4-g32", "int8-weight-only", "bf16")


#: One set of constants for all formats: entries by format differ, and an engine's INT4 may be slower than its BF16.
ONE_FORMAT = Deployment("qwen3-8b", "gb10").device.efficiency[0]


@given(st.sampled_from(MODELS), st.sampled_from([ONE_FORMAT, "datasheet"]), GROUPS, st.integers(0, 3))
def test_time_never_falls_with_more_bytes_per_weight(model, efficiency, group, index):
    """The next wider weight-only format reads more bytes, does the same arithmetic and takes no less time."""
    narrow, wide = (
        deployment(model, "own").with_(weights=weights, efficiency=efficiency).step(group)
        for weights in WEIGHT_ONLY[index : index + 2]
    )
    assert wide.weight_bytes > narrow.weight_bytes
    assert wide.flops == narrow.flops
    assert never_less(wide.time_s, narrow.time_s)


@given(st.sampled_from(MODELS), CONTEXTS, BATCHES)
def test_time_never_falls_with_more_bytes_per_cached_value(model, context, batch):
    """A 16-bit cache takes no less time than an 8-bit one at equal rates, and reads twice the bytes."""
    wide, narrow = (
        deployment(model, "datasheet").with_(kv_cache=name).decode(context, batch=batch) for name in ("bf16", "fp8")
    )
    assert wide.kv_bytes == 2 * narrow.kv_bytes
    assert never_less(wide.time_s, narrow.time_s)


@given(
    st.sampled_from(MODELS),
    st.sampled_from(["calibrated", "datasheet", LIMITED]),
    GROUPS,
    st.floats(1, 10),
    st.floats(1, 10),
)
def test_time_never_rises_with_more_bandwidth_or_flops(model, efficiency, group, bandwidth, arithmetic):
    """A faster memory, a faster arithmetic or both take no more time and have no higher floor."""
    base = deployment(model, "own").with_(device=card(), efficiency=efficiency)
    slow = base.step(group)
    for device in (card(bandwidth), card(1, arithmetic), card(bandwidth, arithmetic)):
        fast = base.with_(device=device).step(group)
        assert never_less(slow.time_s, fast.time_s)
        assert never_less(slow.floor_s, fast.floor_s)


# ---- identities


@given(st.sampled_from(MODELS), GROUPS, st.sampled_from([None, 40]))
def test_both_peaks_doubled_halve_the_floor(model, group, cache_mib):
    """The floor, and the per-operator roofline, are homogeneous in the peaks: twice both is half the time, exactly."""
    base = deployment(model, "own").with_(device=card(cache_mib=cache_mib), efficiency="datasheet")
    one, two = base.step(group), base.with_(device=card(2, 2, cache_mib)).step(group)
    assert two.floor_s == one.floor_s / 2
    assert two.time_s == one.time_s / 2


@given(DEPLOYMENTS, CONTEXTS, st.lists(BATCHES, max_size=5))
def test_batch_one_is_the_first_entry_of_the_vector(d, context, more):
    """A sweep gives each point the numbers that it has alone."""
    single, sweep = d.decode(context), d.decode(context, batch=[1, *more])
    for name in ("flops", "bytes", "weight_bytes", "activation_bytes", "kv_bytes", "tokens"):
        assert getattr(sweep, name)[0] == getattr(single, name)
    for name in ("time_s", "floor_s", "memory_time_s", "tokens_per_s", "intensity"):
        assert getattr(sweep, name)[0] == pytest.approx(getattr(single, name), rel=1e-13)
    assert sweep.bound[0] == single.bound


@given(DEPLOYMENTS, st.lists(GROUPS, min_size=1, max_size=3), st.floats(0, 0.1))
def test_operators_sum_to_the_total(d, groups, busy):
    """Counts and seconds of all rows are those of the pass, under a power limit too."""
    step = d.step(*groups, busy_s=busy)
    for name in ("flops", "bytes", "weight_bytes", "activation_bytes", "kv_bytes", "time_s", "memory_time_s"):
        assert sum(getattr(row, name) for row in step.operators) == pytest.approx(getattr(step, name), rel=1e-12)
    assert step.bytes == step.weight_bytes + step.activation_bytes + step.kv_bytes + step.state_bytes


@given(
    st.sampled_from(MODELS),
    st.sampled_from(["gb10", "h200-sxm", "h100-sxm-80gb", "mi300x", "rtx-4090", "b200-sxm", "tpu-v5e"]),
    st.sampled_from([None, "int4", "int8"]),
    GROUPS,
    st.floats(0, 1),
)
def test_the_floor_is_under_the_roofline_and_the_roofline_under_the_expected_time(model, device, weights, group, busy):
    """Floor <= per-operator roofline on datasheet peaks <= expected time, on every tier of efficiency."""
    calibrated = Deployment(load_model(LUMP) if model == "lump" else model, device, weights=weights, memory_check=False)
    assume(not calibrated.timing.missing)  # an FP8 checkpoint on a device without that rate
    roofline = calibrated.with_(efficiency="datasheet").step(group)
    limited = calibrated.with_(efficiency=LIMITED)
    assert never_less(roofline.time_s, roofline.floor_s)
    assert never_less(calibrated.step(group).time_s, roofline.time_s)
    assert never_less(limited.step(group, busy_s=busy).time_s, roofline.time_s)


WINDOWLESS = ["qwen3-8b", "gpt2-xl", "falcon-7b", "lump", "qwen3-30b-a3b", "jamba-v0.1", "qwen3-next-80b-a3b", LATENT]


@given(st.sampled_from(WINDOWLESS), st.sampled_from(tuple(CHOICES)), GROUPS)
def test_kv_read_is_kv_bytes_per_token_times_context_and_new(model, choice, group):
    """Without windows a step reads one row of K and V for every token that its sequences hold afterwards."""
    d = deployment(model, choice)
    new, context, sequences, _ = group
    assert d.step(group).kv_bytes == d.kv_bytes_per_token * (context + new) * sequences
    held = d.kv_cache_bytes(context + new, sequences=sequences)
    assert held - d.cache.state_bytes * sequences == d.step(group).kv_bytes


@given(DEPLOYMENTS, CONTEXTS, st.integers(1, 64))
def test_from_one_to_two_new_tokens_no_operator_jumps(d, context, sequences):
    """One law on both sides: an operator's time grows by no more than one token's work on its own and a launch."""
    assume(d.timing.laws.power_limit is None)
    one, two = (d.step((new, context, sequences, 1)) for new in (1, 2))
    for law, before, after in zip(d.timing.row_laws, one.operators, two.operators, strict=True):
        # the K and V of one more token, and not the difference of what the two steps count: a jump would hide in it
        added_bytes = after.activation_bytes - before.activation_bytes
        added_bytes += d.kv_bytes_per_token * sequences if before.op_class == "attention" or before.kv_bytes else 0
        added_bytes += before.weight_bytes if before.op_class == "mixture" else 0  # as many new experts, at most
        added = added_bytes / min(law.bytes_per_s, (law.activation or 1) * law.peak_bytes_per_s)
        added += after.compute_time_s - before.compute_time_s + after.serial_time_s - before.serial_time_s
        assert never_less(after.time_s, before.time_s)
        assert never_less(before.time_s + added + law.launch_s, after.time_s)


@given(DEPLOYMENTS, st.lists(GROUPS, min_size=2, max_size=4), st.randoms(use_true_random=False))
def test_groups_commute(d, groups, draw):
    """The order of the groups of a step changes nothing."""
    shuffled = draw.sample(groups, len(groups))
    first, second = d.step(*groups), d.step(*shuffled)
    assert first.flops == second.flops
    assert first.bytes == second.bytes
    assert first.time_s == pytest.approx(second.time_s, rel=1e-13)


@given(DEPLOYMENTS, GROUPS, st.integers(1, 40))
def test_equal_groups_merge(d, group, more):
    """Two groups of the same shape are one group of both their sequences."""
    new, context, sequences, sampled = group
    apart = d.step(group, (new, context, more, sampled))
    merged = d.step((new, context, sequences + more, sampled))
    assert apart.flops == merged.flops
    assert apart.bytes == merged.bytes
    assert apart.time_s == pytest.approx(merged.time_s, rel=1e-13)


@given(DEPLOYMENTS, GROUPS)
def test_a_group_without_sequences_costs_nothing(d, group):
    """An absent group leaves the step as it is."""
    absent = (700, 5000, 0, 1)
    assert d.step(group, absent).time_s == d.step(group).time_s


# ---- scaling


def slope(function, size):
    """Slope in a log-log plot between a size and its double."""
    return math.log2(function(2 * size) / function(size))


SLOPES = [
    # tokens     least    most   a prompt of this length is
    (256,        1.0,     1.03,  "linear"),
    (47_000,     1.45,    1.60,  "between: the linear layers and attention weigh the same"),
    (16_000_000, 1.99,    2.0,   "quadratic"),
]  # fmt: skip


@pytest.mark.parametrize(("tokens", "least", "most"), [pytest.param(*row[:3], id=row[3]) for row in SLOPES])
def test_prefill_is_linear_then_quadratic(tokens, least, most):
    """On a device without a memory limit, the time of a prefill rises with the prompt's length, then its square."""
    d = deployment("qwen3-8b", "own").with_(device=card(bandwidth=1e9), efficiency="datasheet")
    assert least <= slope(lambda size: d.prefill(size).time_s, tokens) <= most


@pytest.mark.parametrize("tokens", [1000, 64_000])
def test_the_parts_of_a_prefill_scale_as_named(tokens):
    """Linear layers double with the prompt, attention grows fourfold, the output layer not at all."""
    d = deployment("qwen3-8b", "own")
    for operator, expected in (("gate_up_proj", 1), ("attention", 2), ("silu_mul", 1), ("lm_head", 0)):
        counted = "activation_bytes" if operator == "silu_mul" else "flops"
        found = slope(lambda size, row=operator, name=counted: getattr(d.prefill(size).operator(row), name), tokens)
        assert found == pytest.approx(expected, abs=1e-3)


def test_a_decode_step_is_affine_in_context():
    """Under the roofline each token of context adds the same time: that of its K and V."""
    d = deployment("qwen3-8b", "datasheet")
    time = d.decode([0, 4000, 8000]).time_s
    assert time[2] - time[1] == pytest.approx(time[1] - time[0], rel=1e-9)
    assert time[1] - time[0] == pytest.approx(4000 * d.kv_bytes_per_token / d.device.bytes_per_s, rel=1e-9)


def test_a_windowed_layer_stops_growing():
    """Beyond its window a layer reads the same K and V however long the context is, and a full one goes on."""
    d = deployment("gemma-2-9b", "own")
    inside, outside, further = (d.decode(context) for context in (1000, 4096, 8000))
    assert inside.operator("attention[window]").kv_bytes == inside.operator("attention[full]").kv_bytes
    assert outside.operator("attention[window]").time_s == further.operator("attention[window]").time_s
    assert outside.operator("attention[full]").time_s < further.operator("attention[full]").time_s


# ---- the power limit


@given(st.sampled_from(MODELS), GROUPS, st.floats(0, 0.05), st.floats(0, 0.05))
def test_more_work_before_a_pass_never_makes_it_faster(model, group, busy, more):
    """Time rises with `busy_s`, up to the sustained rate and no further; memory-bound work is untouched."""
    d = deployment(model, "limited")
    early, late, loaded = (d.step(group, busy_s=seconds) for seconds in (busy, busy + more, math.inf))
    assert never_less(late.time_s, early.time_s)
    assert never_less(loaded.time_s, late.time_s)
    assert loaded.memory_time_s == early.memory_time_s


@given(st.sampled_from(MODELS), GROUPS)
def test_an_endless_load_slows_compute_work_by_the_sustained_part(model, group):
    """With infinite `busy_s` every compute term runs at the sustained rate: 1 / 0.8 of its burst time."""
    d = deployment(model, "limited")
    unlimited = d.with_(efficiency=LIMITED.model_copy(update={"burst_ms": None}))
    for fast, slow in zip(unlimited.step(group).operators, d.step(group, busy_s=math.inf).operators, strict=True):
        assert slow.compute_time_s == pytest.approx(fast.compute_time_s / 0.8, rel=1e-12)


def test_a_pass_within_the_budget_runs_at_the_burst_rate():
    """A decode step takes less compute time than the budget holds, so the limit does not touch it."""
    d = deployment("qwen3-8b", "limited")
    unlimited = d.with_(efficiency=LIMITED.model_copy(update={"burst_ms": None}))
    assert d.decode(2048).time_s == unlimited.decode(2048).time_s
    assert d.prefill(8192).time_s > unlimited.prefill(8192).time_s


def test_time_under_a_power_limit_is_convex_in_the_prompt():
    """The compute part has one bend, upwards: no prompt is read faster for being longer."""
    d = deployment("lump", "limited")
    lengths = np.arange(100, 20_000, 100)
    compute = sum(row.compute_time_s for row in d.prefill(lengths).operators)
    assert np.all(np.diff(compute, 2) >= -1e-12)


# ---- the tree of terms


def evaluated(term):
    """Value of the arithmetic that a term prints."""
    return eval(term.expression, {"__builtins__": {}, "max": max})  # noqa: S307 - that it re-evaluates is the promise


# fmt: off
EXPLAINED = {
    "prefill":            lambda: deployment("qwen3-8b", "own").prefill(2048),
    "decode":             lambda: deployment("qwen3-8b", "own").decode(2048, batch=3),
    "chunked":            lambda: deployment("qwen3-8b", "own").chunked_prefill(5000, token_budget=2048),
    "mixed step":         lambda: deployment("qwen3-8b", "own").step((512, 100, 1, 0), (1, 2048, 32)),
    "windows":            lambda: deployment("gemma-2-9b", "own").decode(7000),
    "learned positions":  lambda: deployment("gpt2-xl", "generation").prefill(100),
    "summary":            lambda: deployment("lump", "own").decode(2048),
    "universal":          lambda: deployment("falcon-7b", "universal").prefill(777),
    "fp8 weights":        lambda: deployment("qwen3-8b", "fp8").prefill(1000),
    "int4 weights":       lambda: deployment("qwen3-8b", "int4").decode(1000, batch=7),
    "datasheet":          lambda: deployment("qwen3-8b", "datasheet").decode(100),
    "datasheet, prefill": lambda: deployment("gemma-2-9b", "datasheet").prefill(5000),
    "power limit":        lambda: deployment("qwen3-8b", "limited").prefill(3000, busy_s=0.013),
    "loaded server":      lambda: deployment("qwen3-8b", "limited").prefill(3000, busy_s=math.inf),
    "chunks, limited":    lambda: deployment("qwen3-8b", "limited").chunked_prefill(5000, token_budget=2048),
    "decode of a request": lambda: deployment("qwen3-8b", "own").request(500, output_tokens=4).decode,
    "a single output token": lambda: deployment("qwen3-8b", "own").request(500, output_tokens=1).decode,
    "mixture, prefill":   lambda: deployment("qwen3-30b-a3b", "own").prefill(700),
    "mixture, decode":    lambda: deployment("qwen3-30b-a3b", "own").decode(2048, batch=5),
    "mixture, mixed":     lambda: deployment("qwen3-30b-a3b", "fp8").step((512, 100, 1, 0), (1, 2048, 32)),
    "mixture, skewed":    lambda: deployment("qwen3-30b-a3b", "own").with_(routing_skew=0.7).decode(99, batch=9),
    "mixture, limited":   lambda: deployment("qwen3-30b-a3b", "limited").prefill(3000, busy_s=0.013),
    "latent, prefill":    lambda: deployment(LATENT, "generation").prefill(3000),
    "latent, decode":     lambda: deployment(LATENT, "generation").decode(3000, batch=4),
    "latent, mixed":      lambda: deployment(LATENT, "generation").step((512, 100, 1, 0), (1, 2048, 32)),
    "latent, datasheet":  lambda: deployment(LATENT, "datasheet").chunked_prefill(3000, token_budget=1024),
    "sinks, prefill":     lambda: deployment("gpt-oss-20b", "own").prefill(3000),
    "sinks, decode":      lambda: deployment("gpt-oss-20b", "own").decode(3000, batch=4),
    "sinks, mixed":       lambda: deployment("gpt-oss-20b", "generation").step((512, 100, 1, 0), (1, 2048, 32)),
    "chunked view, prefill": lambda: deployment(CHUNKED_VIEW, "own").prefill(9000),
    "chunked view, decode": lambda: deployment(CHUNKED_VIEW, "own").decode(9000, batch=4),
    "chunked view, mixed": lambda: deployment(CHUNKED_VIEW, "own").step((512, 8000, 1, 0), (1, 2048, 32)),
    "Mamba, prefill":     lambda: deployment("jamba-v0.1", "own").prefill(3000),
    "Mamba, decode":      lambda: deployment("jamba-v0.1", "own").decode(3000, batch=4),
    "Mamba, mixed":       lambda: deployment("jamba-v0.1", "limited").step((512, 100, 1, 0), (1, 2048, 32)),
    "DeltaNet, prefill":  lambda: deployment("qwen3-next-80b-a3b", "own").prefill(3000),
    "DeltaNet, decode":   lambda: deployment("qwen3-next-80b-a3b", "universal").decode(3000, batch=4),
    "DeltaNet, mixed":    lambda: deployment("qwen3-next-80b-a3b", "own").step((512, 100, 1, 0), (1, 2048, 32)),
    "half layers":        lambda: deployment("nemotron-3-nano-30b-a3b", "own").decode(3000, batch=4),
    "sparse attention":   lambda: deployment("deepseek-v3.2", "generation").decode(30_000, batch=4),
    "per-layer inputs":   lambda: deployment("gemma-3n-e4b", "own").step((512, 100, 1, 0), (1, 2048, 32)),
    "lightning":          lambda: deployment("minimax-m1", "generation").prefill(3000),
    "short convolution":  lambda: deployment("lfm2-1.2b", "own").decode(3000, batch=4),
    "a chunk that samples nothing": lambda: deployment("qwen3-8b", "datasheet").step((512, 0, 1, 0)),
}
# fmt: on


@pytest.mark.parametrize("name", EXPLAINED)
def test_every_printed_expression_gives_its_value(name):
    """Evaluating the arithmetic of each term gives the term's value: passes, operators, times and counts."""
    estimate = EXPLAINED[name]()
    tree = explain(estimate)
    assert tree.value == pytest.approx(estimate.time_s, rel=1e-12)
    for term in tree.walk():
        if term.expression:
            assert evaluated(term) == pytest.approx(term.value, rel=1e-6)


@pytest.mark.parametrize("name", EXPLAINED)
def test_the_parts_of_a_total_sum_to_it(name):
    """The passes under a whole, and the operators under a pass, add up to it."""
    estimate = EXPLAINED[name]()
    tree = explain(estimate)
    passes = tree.children if len(estimate.steps) > 1 else ()
    for total in (tree, *passes):
        assert sum(child.value for child in total.children) == pytest.approx(total.value, rel=1e-9)


def test_the_tree_names_weights_kv_and_small_kernels_with_their_shares():
    """The decode step of Qwen3-8B on GB10: what takes its time can be read off the tree."""
    text = str(deployment("qwen3-8b", "own").decode(2048).explain())
    for said in ("weight bytes", "KV bytes", "silu_mul", "block_norm", "% of the pass", "launches", "attention"):
        assert said in text
    assert "datasheet bandwidth of gb10" in text


def test_a_sweep_has_no_single_tree():
    """explain() takes one point and says so."""
    with pytest.raises(ValueError, match=r"explain\(\) takes one point, not \(2,\)"):
        deployment("qwen3-8b", "own").decode([1, 2]).explain()


def test_warnings_are_only_about_context():
    """The one warning that these properties ignore is that of a context beyond the model's."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        deployment("gpt2-xl", "own").decode(5000)
    assert [warning.category for warning in caught] == [ContextLengthWarning]


@pytest.mark.parametrize("name", ["qwen3-30b-a3b", "mixtral-8x7b", "glm-4.5", "qwen3-8b", "qwen3-next-80b-a3b"])
def test_the_crossover_is_where_products_and_experts_leave_the_memory_roof(name):
    """A mixture's experts are most of its weights: on either side of the crossover the sums say which is longer."""
    d = Deployment(name, "h200-sxm", efficiency="datasheet", memory_check=False)
    tokens = d.crossover().tokens
    rows = [row for row in d.plan.rows if row.op_class in ("product", "mixture") and row.name != "lm_head"]

    def gap(prompt):
        step = d.prefill(prompt)
        return sum(step.operator(row.name).compute_time_s - step.operator(row.name).memory_time_s for row in rows)

    assert gap(tokens * 0.99) < 0 < gap(tokens * 1.01)


def test_the_floor_of_a_mixture_holds_whatever_the_routing():
    """The floor reads as few experts as tokens can agree on, so no skew beats it."""
    for name in ("glm-4.5", "gpt-oss-120b"):
        d = Deployment(name, "h200-sxm", memory_check=False)
        floor = d.decode(2048, batch=64).floor_s
        assert all(d.with_(routing_skew=skew).decode(2048, batch=64).time_s > floor for skew in (0, 1, 2, 5, 50))


def test_states_are_compulsory():
    """The floor of a recurrent model grows with its sequences: each state is read and written back."""
    d = Deployment("falcon-mamba-7b", "h200-sxm")
    one, many = d.decode(100).floor_s, d.decode(100, batch=256).floor_s
    assert many - one == pytest.approx(2 * 255 * d.cache.state_bytes / 4.8e12, rel=1e-6)
