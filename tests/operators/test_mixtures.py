"""Mixtures, windows and quantised checkpoints, against counts done by hand from the shapes that the papers print."""

import itertools
from functools import cache
from statistics import mean

import numpy as np
import pytest

import rooflinekit as rk
from rooflinekit.operators.attention import chunked_rows_read, chunked_scores
from rooflinekit.operators.moe import distinct_experts

pytestmark = pytest.mark.filterwarnings("ignore::rooflinekit.errors.ContextLengthWarning")


@cache
def deployment(name, weights="bf16", skew=0.0):
    """Deployment of a model at 16 bits, or of its checkpoint where `weights` is None."""
    return rk.Deployment(name, "b200-sxm", weights=weights, routing_skew=skew, memory_check=False)


# ---- how many distinct experts


@pytest.mark.parametrize(("experts", "chosen", "tokens"), [(4, 2, 1), (4, 2, 2), (4, 1, 3), (5, 2, 3), (3, 3, 2)])
def test_uniform_routing_is_the_mean_over_all_choices(experts, chosen, tokens):
    """The closed form is the number of distinct experts, averaged over every choice that the tokens can make."""
    choices = list(itertools.combinations(range(experts), chosen))
    counted = mean(len(set().union(*drawn)) for drawn in itertools.product(choices, repeat=tokens))
    assert distinct_experts(tokens, experts, chosen) == pytest.approx(counted, rel=1e-14)


TOUCHED = [
    # tokens  distinct of 128, 8 a token
    (1,       8.0),
    (2,       15.5),
    (3,       22.53125),
    (16,      128 * (1 - (15 / 16) ** 16)),
    (64,      128 * (1 - (15 / 16) ** 64)),
    (1000,    128.0),
]  # fmt: skip


@pytest.mark.parametrize(("tokens", "touched"), TOUCHED)
def test_a_step_reads_the_experts_that_its_tokens_touch(tokens, touched):
    """Qwen3-30B-A3B: 48 layers of 128 experts of three matrices of 2,048 x 768; 8 a token, never fewer, never more."""
    row = deployment("qwen3-30b-a3b").decode(500, batch=tokens).operator("experts")
    assert row.weight_bytes == pytest.approx(48 * 2 * 3 * 2048 * 768 * touched, rel=1e-12)
    assert row.flops == tokens * 48 * 2 * 8 * 3 * 2048 * 768


def test_one_token_reads_its_own_experts_exactly():
    """One token touches as many experts as it goes through, to the byte."""
    assert deployment("qwen3-30b-a3b").decode(500).operator("experts").weight_bytes == 48 * 2 * 8 * 3 * 2048 * 768
    assert deployment("llama-4-scout").decode(500).operator("experts").weight_bytes == 48 * 2 * 3 * 5120 * 8192


def test_the_tokens_of_a_mixed_step_share_their_experts():
    """A chunk of 20 and 12 decoding sequences touch what 32 tokens touch, not the sum of both."""
    d = deployment("qwen3-30b-a3b")
    mixed = d.step((20, 1000, 1, 0), (1, 700, 12)).operator("experts").weight_bytes
    assert (
        mixed
        == d.decode(10, batch=32).operator("experts").weight_bytes
        == d.prefill(32).operator("experts").weight_bytes
    )


SKEWS = (0.0, 0.3, 1.0, 2.0, 10.0, 1000.0)


@pytest.mark.parametrize(("experts", "chosen"), [(128, 8), (256, 8), (512, 10), (16, 1), (8, 2)])
@pytest.mark.parametrize("tokens", [1, 2, 7, 64, 5000])
def test_skewed_routing_lies_between_the_experts_of_one_token_and_uniform(experts, chosen, tokens):
    """The more uneven the choice, the fewer distinct experts: from the uniform figure down to those of one token."""
    touched = [distinct_experts(tokens, experts, chosen, skew) for skew in SKEWS]
    assert all(more >= less * (1 - 1e-12) for more, less in itertools.pairwise(touched))
    assert touched[0] == pytest.approx(experts * (1 - (1 - chosen / experts) ** tokens), rel=1e-12)
    assert touched[-1] == pytest.approx(chosen, rel=1e-9)
    assert all(np.isfinite(touched))


def test_skewed_routing_is_the_sum_over_the_experts_chances():
    """Popularity 1, 1/2, 1/3, 1/4, two of four experts a token: 24/25 and so on, none above 1, in the sum 2."""
    chances = [2 * p / (25 / 12) for p in (1, 1 / 2, 1 / 3, 1 / 4)]
    for tokens in (1, 2, 5):
        counted = sum(1 - (1 - chance) ** tokens for chance in chances)
        assert distinct_experts(tokens, 4, 2, skew=1.0) == pytest.approx(counted, rel=1e-14)


def test_an_expert_that_every_token_takes_leaves_the_rest_to_the_others():
    """Popularity 1, 1/4, 1/9, two of three experts: the first is always chosen, the others share one by 9 to 4."""
    counted = 1 + sum(1 - (1 - chance) ** 3 for chance in (9 / 13, 4 / 13))
    assert distinct_experts(3, 3, 2, skew=2.0) == pytest.approx(counted, rel=1e-14)


def test_a_sweep_of_skewed_steps_gives_each_point_its_own_figure():
    """Arrays broadcast, whatever the skew, and no tokens touch nothing."""
    tokens = np.array([[0, 1, 2], [64, 2, 0]])
    for skew in (0.0, 1.0):
        single = [[distinct_experts(int(n), 128, 8, skew) for n in row] for row in tokens]
        assert np.array_equal(distinct_experts(tokens, 128, 8, skew), single)
        assert single[0][0] == 0


def test_routing_skew_is_a_choice_of_the_deployment():
    """Uneven routing reads fewer weights of a large batch, the same for one sequence, and changes no other row."""
    even, uneven = (deployment("qwen3-30b-a3b", skew=skew) for skew in (0.0, 1.0))
    one, many = even.decode(100), even.decode(100, batch=64)
    assert uneven.decode(100).weight_bytes == pytest.approx(one.weight_bytes, rel=1e-12)
    assert one.weight_bytes < uneven.decode(100, batch=64).weight_bytes < many.weight_bytes
    assert uneven.decode(100, batch=64).flops == many.flops
    assert uneven.decode(100, batch=64).time_s < many.time_s


@pytest.mark.parametrize("skew", [-0.1, float("nan"), float("inf"), "1", [0.0, 1.0]])
def test_a_bad_skew_is_refused(skew):
    """The error names the argument."""
    with pytest.raises(rk.InvalidInputError, match=r"^routing_skew="):
        rk.Deployment("qwen3-30b-a3b", "b200-sxm", routing_skew=skew, memory_check=False)


def test_explain_shows_the_distinct_experts():
    """The tree names the term: how many experts there are, how many a token takes, and the number touched."""
    text = str(deployment("qwen3-30b-a3b").decode(100, batch=2).explain())
    assert "distinct experts[8 of 128 a token]" in text
    assert f"{48 * 2 * 3 * 2048 * 768} * 15.5" in text


# ---- what stands beside the routed experts


# fmt: off
ROWS = [
    # model              operator                      quantity       one token, by hand
    ("qwen3-30b-a3b",    "router",                     "flops",         48 * 2 * 2048 * 128),
    ("qwen3-30b-a3b",    "router",                     "weight_bytes",  48 * 2 * 2048 * 128),
    ("qwen3-30b-a3b",    "experts",                    "activation_bytes", 48 * 2 * (2 * 2048 + 8 * 3 * (2048 + 768))),
    # DeepSeek-V3: three leading dense layers of 18,432, then 58 of 256 experts and one shared expert of 2,048
    ("deepseek-v3",      "gate_up_proj",               "weight_bytes",  3 * 2 * 7168 * 2 * 18432),
    ("deepseek-v3",      "down_proj",                  "flops",         3 * 2 * 18432 * 7168),
    ("deepseek-v3",      "router",                     "weight_bytes",  58 * 2 * 7168 * 256),
    ("deepseek-v3",      "shared_expert_gate_up_proj", "weight_bytes",  58 * 2 * 7168 * 2 * 2048),
    ("deepseek-v3",      "shared_expert_down_proj",    "flops",         58 * 2 * 2048 * 7168),
    ("deepseek-v3",      "shared_expert_activation",   "activation_bytes", 58 * 2 * 3 * 2048),
    ("deepseek-v3",      "experts",                    "weight_bytes",  58 * 2 * 8 * 3 * 7168 * 2048),
    ("deepseek-v3",      "experts",                    "launches",      58),
    # Llama 4 Maverick: dense and mixture layers alternate
    ("llama-4-maverick", "gate_up_proj",               "weight_bytes",  24 * 2 * 5120 * 2 * 16384),
    ("llama-4-maverick", "experts",                    "flops",         24 * 2 * 3 * 5120 * 8192),
    ("llama-4-maverick", "shared_expert_gate_up_proj", "flops",         24 * 2 * 5120 * 2 * 8192),
    # Qwen3-Next: the shared expert has a gate of one column
    ("qwen3-next-80b-a3b", "shared_expert_gate",       "weight_bytes",  48 * 2 * 2048),
    # gpt-oss-20b: biases of router and experts, gate and up and down
    ("gpt-oss-20b",      "router",                     "weight_bytes",  24 * 2 * (2880 * 32 + 32)),
    ("gpt-oss-20b",      "experts",                    "weight_bytes",  24 * 2 * 4 * (3 * 2880**2 + 3 * 2880)),
    # Nemotron 3 Super: 22 of 512 ungated experts work on a latent of 1,024, the shared one on the hidden 4,096
    ("nemotron-3-super-120b-a12b", "latent_down_proj", "flops",         40 * 2 * 4096 * 1024),
    ("nemotron-3-super-120b-a12b", "latent_up_proj",   "weight_bytes",  40 * 2 * 4096 * 1024),
    ("nemotron-3-super-120b-a12b", "experts",          "weight_bytes",  40 * 2 * 22 * 2 * 1024 * 2688),
    ("nemotron-3-super-120b-a12b", "shared_expert_up_proj", "weight_bytes", 40 * 2 * 4096 * 5376),
    # Gemma 4 26B-A4B: a dense block beside the mixture, and scales of the router
    ("gemma-4-26b-a4b",  "router",                     "weight_bytes",  30 * 2 * (2816 * 128 + 2816 + 128)),
    ("gemma-4-26b-a4b",  "shared_expert_gate_up_proj", "weight_bytes",  30 * 2 * 2816 * 2 * 2112),
    ("gemma-4-26b-a4b",  "block_norm",                 "launches",      30 * 7),
]
# fmt: on


@pytest.mark.parametrize(("name", "operator", "quantity", "by_hand"), ROWS)
def test_counts_of_one_token_by_hand(name, operator, quantity, by_hand):
    """Each operator's work follows from the shapes, to the last FLOP and byte."""
    assert getattr(deployment(name).decode(100).operator(operator), quantity) == pytest.approx(by_hand, rel=1e-15)


@pytest.mark.parametrize("name", ["deepseek-v3", "llama-4-scout", "qwen3-next-80b-a3b", "nemotron-3-nano-30b-a3b"])
def test_shared_experts_and_routers_are_read_whatever_the_tokens(name):
    """One token or a thousand read the same bytes of them, and do work in proportion."""
    few, many = deployment(name).decode(100), deployment(name).decode(100, batch=1000)
    for row, same in zip(few.operators, many.operators, strict=True):
        if row.name == "router" or row.name.startswith("shared_expert"):
            assert (row.weight_bytes, 1000 * row.flops) == (same.weight_bytes, same.flops)


@pytest.mark.parametrize("name", ["qwen3-30b-a3b", "deepseek-v3", "mixtral-8x7b", "gpt-oss-120b", "llama-4-maverick"])
def test_a_decode_step_of_one_token_reads_the_active_parameters(name):
    """At batch 1 the bytes read are those of the active parameters without the table of embeddings."""
    d = deployment(name)
    assert d.decode(100).weight_bytes == pytest.approx(2 * d.model.parameters.active_without_embedding, rel=1e-12)


# ---- windows


def seen(context, new, width):
    """Keys that new tokens see where the view starts anew every `width` tokens, one token at a time."""
    return sum(position % width + 1 for position in range(context, context + new))


@pytest.mark.parametrize(
    ("context", "new"), [(0, 1), (0, 8192), (0, 8193), (8191, 1), (8192, 1), (5000, 9000), (20_000, 700)]
)
def test_chunks_of_llama_4_scout_by_brute_force(context, new):
    """36 layers see their chunk of 8,192 tokens, 12 see all: scores, FLOPs and rows, token by token."""
    step = deployment("llama-4-scout").step((new, context))
    chunked, full = step.operator("attention[chunked]"), step.operator("attention[full]")
    assert chunked.flops == 36 * 40 * 4 * 128 * seen(context, new, 8192)
    assert full.flops == 12 * 40 * 4 * 128 * seen(context, new, 10**9)
    first = context - context % 8192  # where the chunk of the first new token begins
    assert chunked.kv_bytes == 36 * 2 * 2 * 8 * 128 * (context + new - first)
    assert full.kv_bytes == 12 * 2 * 2 * 8 * 128 * (context + new)


@pytest.mark.parametrize("width", [1, 2, 3, 7])
def test_chunked_formulas_by_brute_force(width):
    """Every small context and length: keys seen, and the union of the rows that they are."""
    for context, new in itertools.product(range(10), range(1, 12)):
        assert chunked_scores(new, context, width) == seen(context, new, width)
        rows = {key for p in range(context, context + new) for key in range(p - p % width, p + 1)}
        assert chunked_rows_read(new, context, width) == len(rows)
    contexts = np.arange(10)
    assert chunked_scores(5, contexts, width).tolist() == [seen(c, 5, width) for c in contexts]


GPT_OSS = [
    # step          operator              quantity     by hand: 64 query and 8 KV heads of 64, 12 layers of each kind
    ((1, 100),    "attention[window]", "kv_bytes",     12 * 2 * 2 * 8 * 64 * 101),
    ((1, 5000),   "attention[window]", "kv_bytes",     12 * 2 * 2 * 8 * 64 * 128),
    ((1, 5000),   "attention[full]",   "kv_bytes",     12 * 2 * 2 * 8 * 64 * 5001),
    ((1, 5000),   "attention[window]", "flops",        12 * 4 * 64 * 64 * 128),
    ((1000, 0),   "attention[window]", "flops",        12 * 4 * 64 * 64 * (128 * 129 / 2 + 872 * 128)),
    ((1000, 0),   "attention[full]",   "flops",        12 * 4 * 64 * 64 * 1000 * 1001 / 2),
    ((1000, 500), "attention[window]", "kv_bytes",     12 * 2 * 2 * 8 * 64 * 1127),
    ((1, 5000),   "attention[window]", "weight_bytes", 12 * 2 * 64),  # one sink a head
    ((1, 5000),   "attention[full]",   "weight_bytes", 12 * 2 * 64),
    ((1, 5000),   "qkv_proj",          "weight_bytes", 24 * 2 * (2880 + 1) * (64 * 64 + 2 * 8 * 64)),
    ((1, 5000),   "o_proj",            "weight_bytes", 24 * 2 * (64 * 64 + 1) * 2880),
]  # fmt: skip


@pytest.mark.parametrize(("step", "operator", "quantity", "by_hand"), GPT_OSS)
def test_windows_and_sinks_of_gpt_oss_by_hand(step, operator, quantity, by_hand):
    """Windowed layers see 128 tokens at most, full ones all; sinks are one weight a head and no work."""
    assert getattr(deployment("gpt-oss-20b").step(step).operator(operator), quantity) == by_hand


# ---- formats


def test_the_experts_of_gpt_oss_are_mxfp4_and_all_else_16_bits():
    """4.25 bits a weight of an expert, its biases at 16; it computes at 16 bits, as all else does."""
    own, plain = deployment("gpt-oss-20b", None), deployment("gpt-oss-20b")
    each = 3 * 2880**2 * 4.25 / 8 + 2 * 3 * 2880
    assert own.decode(100).operator("experts").weight_bytes == pytest.approx(24 * 4 * each, rel=1e-15)
    for row, same in zip(own.decode(100).operators, plain.decode(100).operators, strict=True):
        assert row.dtype == same.dtype == "bf16"
        assert row.name == "experts" or row.weight_bytes == same.weight_bytes
    assert own.decode(100).flops == plain.decode(100).flops


def test_every_linear_layer_of_deepseek_v3_is_fp8_but_router_and_output():
    """8 bits and a 32-bit scale for a block of 128 x 128; FP8 arithmetic; the cache stays at 16 bits."""
    own, plain = deployment("deepseek-v3", None), deployment("deepseek-v3")
    kept = {"router", "lm_head"}
    for row, same in zip(own.decode(100).operators, plain.decode(100).operators, strict=True):
        quantised = row.op_class in ("product", "mixture") and row.name not in kept
        assert row.dtype == ("fp8" if quantised else "bf16")
        size = (1 + 4 / 128**2) / 2 if quantised else 1
        assert row.weight_bytes == pytest.approx(same.weight_bytes * size, rel=1e-15)
        assert row.kv_bytes == same.kv_bytes


SMALL = {
    "hidden_size": 64,
    "vocabulary": 100,
    "mixers": [{"name": "full", "heads": 4, "kv_heads": 2, "head_dim": 16}],
    "feedforwards": [
        {"name": "dense", "intermediate_size": 128},
        {"name": "moe", "kind": "moe", "experts": 8, "experts_per_token": 2, "intermediate_size": 32},
    ],
    "layers": [["full", "dense", 2], ["full", "moe", 4]],
}


def quantised(**scheme):
    """Deployment of the small model with a scheme of its own."""
    model = {**SMALL, "quantisation": {"method": "test", **scheme}}
    return rk.Deployment(model, "b200-sxm", memory_check=False)


def bytes_of(d, operator):
    """Weight bytes of an operator under all its names, with every expert touched."""
    rows = d.decode(1, batch=10_000).operators
    return sum(row.weight_bytes for row in rows if row.name.split("[")[0] == operator)


def test_layers_left_out_by_their_index_stay_at_16_bits():
    """An exclude list that names layers 0 and 5: the rows tell theirs apart from their twins."""
    d = quantised(default="fp8", rules=[("layers.0", "plain"), ("layers.5.mlp", "plain")])
    assert bytes_of(d, "qkv_proj") == 64 * 128 * (2 + 5)
    assert bytes_of(d, "down_proj") == 128 * 64 * (2 + 1)
    assert bytes_of(d, "experts") == 8 * 3 * 64 * 32 * (1 + 1 + 1 + 2)
    assert bytes_of(d, "lm_head") == 64 * 100 * 2
    rows = {row.name: row for row in d.decode(1).operators}
    assert len(rows) == len(d.plan.rows)
    assert {row.dtype for name, row in rows.items() if name.startswith("qkv_proj")} == {"bf16", "fp8"}
    assert sum(row.launches for name, row in rows.items() if name.startswith("qkv_proj")) == 6
    assert d.weights_bytes == d.decode(1, batch=10_000).weight_bytes + 64 * 100 * 2


def test_merged_matrices_keep_each_its_own_format():
    """Where only K is left out, the merged product holds it at 16 bits, and computes at them."""
    d = quantised(default="int4", rules=[("self_attn.k_proj", "plain"), ("re:.*down_proj", "fp8")])
    assert bytes_of(d, "qkv_proj") == 6 * 64 * ((64 + 32) * (4 + 20 / 128) / 8 + 32 * 2)
    assert bytes_of(d, "down_proj") == 2 * 128 * 64
    dtypes = {row.name: row.dtype for row in d.plan.rows}
    assert (dtypes["qkv_proj"], dtypes["down_proj"], dtypes["gate_up_proj"]) == ("bf16", "fp8", "bf16")
    own = 8 * 64 * 32 * (2 * (4 + 20 / 128) / 8 + 1)
    assert bytes_of(d, "experts") == pytest.approx(4 * own, rel=1e-15)


def test_output_layer_and_table_have_formats_of_their_own():
    """A checkpoint may quantise the output layer; its table is gathered row by row, and only stored."""
    d = quantised(default="fp8", head="fp8", embedding="int8-weight-only")
    assert bytes_of(d, "lm_head") == 64 * 100
    assert {row.name: row.dtype for row in d.plan.rows}["lm_head"] == "fp8"
    assert d.weights_bytes == d.decode(1, batch=10_000).weight_bytes + 64 * 100


def test_the_cache_dtype_is_the_checkpoints_unless_another_is_asked_for():
    """A checkpoint's own cache format holds; an argument overrides it; the weights' format never matters."""
    d = quantised(default="int4", kv_cache="fp8")
    assert d.kv_bytes_per_token == 6 * 2 * 2 * 16
    assert d.decode(99).kv_bytes == 6 * 2 * 2 * 16 * 100
    assert d.with_(kv_cache="bf16").kv_bytes_per_token == 2 * d.kv_bytes_per_token
    assert quantised(default="fp8").kv_bytes_per_token == 2 * d.kv_bytes_per_token


def test_weights_asked_for_replace_the_checkpoints_scheme():
    """`weights=` means all matrices of the blocks: no rule of the checkpoint is left."""
    d = quantised(default="fp8", rules=[("layers.0", "plain")]).with_(weights="fp8")
    assert bytes_of(d, "qkv_proj") == 6 * 64 * 128
