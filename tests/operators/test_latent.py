"""Latent attention against counts done by hand: one latent for all heads, and two forms of the same attention."""

from functools import cache

import numpy as np
import pytest

import rooflinekit as rk
from rooflinekit.operators.forward import features

pytestmark = pytest.mark.filterwarnings("ignore::rooflinekit.errors.ContextLengthWarning")

#: DeepSeek-V3: 128 heads, latent of 512 and rotary key of 64, key width 128 + 64, value width 128.
ABSORBED = 128 * 2 * (512 + 64 + 512)  # operations a key and layer: 278,528
EXPANDED = 128 * 2 * (128 + 64 + 128)  # 81,920
LIFT = 2 * 512 * 128 * (128 + 128)  # of kv_b_proj, for a token or a row: 33,554,432


@cache
def deployment(name="deepseek-v3", **chosen):
    """Deployment of a model at 16 bits."""
    return rk.Deployment(name, "b200-sxm", memory_check=False, **{"weights": "bf16", **chosen})


def attention(step, quantity="flops"):
    """Work of attention in both forms, the expansion included."""
    return sum(
        getattr(step.operator(name), quantity) for name in ("kv_b_proj", "attention_absorbed", "attention_expanded")
    )


def test_the_figures_of_the_two_forms():
    """1,088 multiply-adds a head and key where absorbed, 320 where expanded: 3.4 times as many."""
    assert (ABSORBED // 128 // 2, EXPANDED // 128 // 2) == (1088, 320)
    assert ABSORBED == 278_528


# fmt: off
TRIANGLE = 2048 * 2049 / 2
SEEN = 2048 * 6000 + TRIANGLE
COUNTS = [
    # step               operator              quantity       by hand, 61 layers
    # decode: absorbed, the latent read once for all heads, kv_b_proj over the one new token
    ((1, 2048),          "attention_absorbed", "flops",          61 * ABSORBED * 2049),
    ((1, 2048),          "attention_absorbed", "kv_bytes",       61 * 2 * (512 + 64) * 2049),
    ((1, 2048),          "attention_absorbed", "activation_bytes", 61 * 2 * 128 * (512 + 64 + 512)),
    ((1, 2048),          "attention_absorbed", "launches",       61),
    ((1, 2048),          "attention_expanded", "flops",          0),
    ((1, 2048),          "attention_expanded", "launches",       0),
    ((1, 2048),          "kv_b_proj",          "flops",          61 * LIFT),
    ((1, 2048),          "kv_b_proj",          "kv_bytes",       0),
    ((1, 2048),          "kv_b_proj",          "weight_bytes",   61 * 2 * 512 * 128 * 256),
    # queries into the latent's space (128 -> 512 a head) and sums of latents out of it (512 -> 128)
    ((1, 2048),          "kv_b_proj",          "activation_bytes", 61 * 2 * 128 * (128 + 512 + 512 + 128)),
    # prefill: expanded, kv_b_proj over every row, keys and values written and read at full width
    ((2048, 0),          "attention_expanded", "flops",          61 * EXPANDED * TRIANGLE),
    ((2048, 0),          "attention_expanded", "kv_bytes",       0),
    ((2048, 0),          "attention_expanded", "activation_bytes",
                                               61 * 2 * (2048 * 128 * (192 + 128) + 2048 * 128 * (128 + 128))),
    ((2048, 0),          "attention_absorbed", "launches",       0),
    ((2048, 0),          "kv_b_proj",          "flops",          61 * LIFT * 2048),
    ((2048, 0),          "kv_b_proj",          "kv_bytes",       61 * 2 * (512 + 64) * 2048),
    ((2048, 0),          "kv_b_proj",          "activation_bytes", 61 * 2 * 2048 * 128 * (128 + 128)),
    # a chunk expands what is held too
    ((2048, 6000),       "kv_b_proj",          "flops",          61 * LIFT * 8048),
    ((2048, 6000),       "attention_expanded", "flops",          61 * EXPANDED * SEEN),
    # a few tokens over a long context, as speculation verifies them: absorbed
    ((5, 6000),          "attention_absorbed", "flops",          61 * ABSORBED * (5 * 6000 + 15)),
    ((5, 6000),          "kv_b_proj",          "flops",          61 * LIFT * 5),
    # the low-rank products
    ((1, 2048),          "q_a_proj",           "flops",          61 * 2 * 7168 * 1536),
    ((1, 2048),          "q_b_proj",           "flops",          61 * 2 * 1536 * 128 * 192),
    ((1, 2048),          "kv_a_proj",          "weight_bytes",   61 * 2 * 7168 * 576),
    ((1, 2048),          "o_proj",             "weight_bytes",   61 * 2 * 128 * 128 * 7168),
    ((1, 2048),          "qk_norm_rotary",     "weight_bytes",   61 * 2 * (1536 + 512)),
    ((1, 2048),          "kv_write",           "activation_bytes", 61 * 576 * (2 + 2)),
]
# fmt: on


@pytest.mark.parametrize(("step", "operator", "quantity", "by_hand"), COUNTS)
def test_counts_by_hand(step, operator, quantity, by_hand):
    """Each operator's work follows from the shapes, to the last FLOP and byte."""
    assert getattr(deployment().step(step).operator(operator), quantity) == by_hand


@pytest.mark.parametrize("step", [(1, 2048), (2048, 0), (2048, 6000), (5, 6000)])
def test_every_step_reads_the_latents_of_its_context_once(step):
    """In either form 576 values a token and layer are read: not per head, not twice for K and V."""
    assert deployment().step(step).kv_bytes == 61 * 2 * 576 * sum(step)
    assert deployment().kv_bytes_per_token == 61 * 2 * 576 == 70_272


def test_an_eight_bit_cache_halves_what_is_read():
    """The latent has the cache's dtype."""
    assert deployment(kv_cache="fp8").decode(999).kv_bytes == 61 * 576 * 1000


RIDGE = 2250e12 / 7.7e12  # operations that a B200 does while it moves a byte
ROW = 2 * 2 * 128 * (128 + 128)  # bytes of an expanded row, written and read: 131,072


@pytest.mark.parametrize("context", [0, 1, 72, 5000, 100_000])
def test_a_group_uses_the_form_that_takes_less_time_at_the_peaks(context):
    """At every length: operations, and the bytes of expanded rows at what the device computes meanwhile."""
    new = np.arange(1, 600)
    scores = new * context + new * (new + 1) / 2
    absorbed = ABSORBED * scores + LIFT * new
    expanded = EXPANDED * scores + LIFT * (new + context)
    chosen = np.where(absorbed <= expanded + RIDGE * ROW * (new + context), absorbed, expanded)
    assert np.array_equal(attention(deployment().step((new, context))), 61 * chosen)


@pytest.mark.parametrize("context", [20_000, 100_000])
def test_the_floor_takes_the_form_with_fewer_operations(context):
    """What nothing can beat does not depend on the form chosen: it counts the lesser of both, and never falls."""
    new = np.arange(1, 600)
    d = deployment(kv_cache="fp8")
    scores = new * context + new * (new + 1) / 2
    least = np.minimum(ABSORBED * scores + LIFT * new, EXPANDED * scores + LIFT * (new + context))
    step = d.step((new, context))
    rest = step.flops - attention(step)
    assert np.array_equal(
        d.floor.plan.flops.sum(axis=0) @ features(d.floor.plan.features, step.groups), rest + 61 * least
    )
    assert (np.diff(step.floor_s) >= 0).all()


@pytest.mark.parametrize("context", [20_000, 100_000])
def test_the_form_changes_at_the_366th_token_or_so(context):
    """Over a long context the expansion pays from about (LIFT + RIDGE x ROW) / (278,528 - 81,920) new tokens on."""
    launched = [deployment().step((new, context)).operator("attention_expanded").launches for new in range(340, 400)]
    first = 340 + launched.index(61)
    assert first == pytest.approx((LIFT + RIDGE * ROW) / (ABSORBED - EXPANDED), rel=0.03)
    assert set(launched[: launched.index(61)]) == {0}
    assert set(launched[launched.index(61) :]) == {61}


@pytest.mark.parametrize("weights", ["bf16", "fp8-block"])
def test_the_time_does_not_double_where_the_form_changes(weights):
    """Between two numbers of new tokens the time moves by less than a quarter, in either direction."""
    new = np.arange(1, 600)
    step = rk.Deployment("deepseek-v3", "h200-sxm", memory_check=False, weights=weights).step((new, 100_000))
    assert np.abs(np.diff(step.time_s) / step.time_s[:-1])[20:].max() < 0.25


@pytest.mark.parametrize("context", [0, 1, 10, 1000, 100_000])
@pytest.mark.parametrize("name", ["deepseek-v3", "deepseek-v3.2", "glm-5.2"])
def test_from_one_to_two_new_tokens_nothing_jumps(context, name):
    """A second token adds no more operations and cached bytes than the first needed, and what it sees of the first."""
    one, two = (deployment(name).step((new, context)) for new in (1, 2))
    for row, more in zip(one.operators, two.operators, strict=True):
        assert row.flops <= more.flops <= 2 * row.flops + 80 * ABSORBED
        assert row.kv_bytes <= more.kv_bytes <= 2 * row.kv_bytes + 80 * 2 * 576
    assert one.time_s <= two.time_s <= 2 * one.time_s


def test_groups_of_a_mixed_step_choose_each_for_itself():
    """A long chunk is expanded while decoding sequences beside it are absorbed; both kernels run."""
    chunk, decode = (1024, 0, 1, 0), (1, 2048, 32)
    d = deployment()
    mixed, apart = d.step(chunk, decode), (d.step(chunk), d.step(decode))
    for name in ("kv_b_proj", "attention_absorbed", "attention_expanded"):
        for quantity in ("flops", "activation_bytes", "kv_bytes"):
            assert getattr(mixed.operator(name), quantity) == sum(getattr(s.operator(name), quantity) for s in apart)
    assert mixed.operator("attention_absorbed").launches == mixed.operator("attention_expanded").launches == 61
    assert mixed.operator("kv_b_proj").weight_bytes == apart[0].operator("kv_b_proj").weight_bytes


def test_a_sweep_across_the_change_of_form_is_each_point_alone():
    """Points of both forms in one call get the numbers that they have one by one."""
    d, new, contexts = deployment(), np.array([[1], [100], [400]]), np.array([0, 60, 3000])
    sweep = d.step((new, contexts))
    for i, n in enumerate(new[:, 0]):
        for j, context in enumerate(contexts):
            single = d.step((int(n), int(context)))
            assert (sweep.flops[i, j], sweep.bytes[i, j]) == (single.flops, single.bytes)
            assert sweep.time_s[i, j] == pytest.approx(single.time_s, rel=1e-13)


# ---- sparse selection

# fmt: off
SPARSE = [
    # DeepSeek-V3.2: an indexer of 64 heads of 128 picks 2,048 tokens; its keys are FP8 with a 32-bit scale
    ((1, 1000),    "attention_absorbed", "flops",        61 * ABSORBED * 1001),
    ((1, 50_000),  "attention_absorbed", "flops",        61 * ABSORBED * 2048),
    ((1, 50_000),  "attention_absorbed", "kv_bytes",     61 * 2 * 576 * 2048),
    ((1, 50_000),  "indexer",            "flops",        61 * 2 * 64 * 128 * 50_001),
    ((1, 50_000),  "indexer",            "kv_bytes",     61 * 132 * 50_001),
    ((1, 50_000),  "indexer",            "weight_bytes", 61 * 2 * 2 * 128),
    ((1, 50_000),  "index_q_proj",       "flops",        61 * 2 * 1536 * 64 * 128),
    ((1, 50_000),  "index_k_proj",       "flops",        61 * 2 * 7168 * 128),
    ((1, 50_000),  "index_weights_proj", "weight_bytes", 61 * 2 * 7168 * 64),
    ((1, 50_000),  "kv_write",           "activation_bytes", 61 * (576 * (2 + 2) + 132)),
    # expanded, every row of the context is, since some token may pick it
    ((4000, 0),    "attention_expanded", "flops",        61 * EXPANDED * (2048 * 2049 / 2 + 1952 * 2048)),
    ((4000, 0),    "kv_b_proj",          "flops",        61 * LIFT * 4000),
    # a chunk far into a long context: few keys, so that expanding all rows would not pay
    ((1000, 50_000), "attention_absorbed", "flops",      61 * ABSORBED * 1000 * 2048),
    ((1000, 50_000), "kv_b_proj",        "flops",        61 * LIFT * 1000),
]
# fmt: on


@pytest.mark.parametrize(("step", "operator", "quantity", "by_hand"), SPARSE)
def test_counts_of_sparse_attention_by_hand(step, operator, quantity, by_hand):
    """Attention sees the selected tokens, the indexer all of them."""
    assert getattr(deployment("deepseek-v3.2").step(step).operator(operator), quantity) == by_hand


@pytest.mark.parametrize("step", [(1, 50_000), (4000, 0), (1000, 50_000), (1000, 3000), (400, 9000)])
def test_all_parts_of_sparse_attention_agree_on_the_form(step):
    """One form alone does all the work of a group: its launches, operations, queries and cached bytes."""
    estimate = deployment("deepseek-v3.2").step(step)
    rows = [estimate.operator(f"attention_{form}") for form in ("absorbed", "expanded")]
    used, idle = sorted(rows, key=lambda row: -row.launches)
    assert (used.launches, idle.launches) == (61, 0)
    assert used.flops * used.activation_bytes > 0 == idle.flops == idle.activation_bytes == idle.kv_bytes


def test_layers_that_reuse_an_indexer_have_none():
    """GLM-5.2: 21 of 78 layers have an indexer; the others see what an earlier layer picked."""
    d = deployment("glm-5.2")
    step = d.decode(50_000)
    assert step.operator("indexer").launches == step.operator("index_k_proj").launches == 21
    assert step.operator("indexer").kv_bytes == 21 * 132 * 50_001
    assert step.operator("attention_absorbed").kv_bytes == 78 * 2 * 576 * 2048
    assert d.kv_bytes_per_token == 78 * 2 * 576 + 21 * 132
