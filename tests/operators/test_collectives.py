"""What ranks send each other and what one of them works on, by hand."""

import numpy as np
import pytest

import rooflinekit as rk
from rooflinekit.operators.forward import features, plan
from rooflinekit.operators.moe import distinct_experts
from rooflinekit.specs.parallelism import Parallelism


def sent(model, groups, **layout):
    """Count launches and message bytes of every collective of a step."""
    d = rk.Deployment(model, "h200-sxm", memory_check=False)
    rows = plan(d.model, d.precision, Parallelism(**layout))
    x = features(rows.features, groups)
    launches, sizes = rows.launches @ x, rows.message_bytes @ x
    return {
        row.name: (float(launches[i, 0]), float(sizes[i, 0]), row.ranks, row.nodes)
        for i, row in enumerate(rows.rows)
        if row.op_class == "collective"
    }


STEP = (rk.Group(1, 2048, 8),)
STREAM = 8 * 4096 * 2
# fmt: off
MESSAGES = [
    # model, layout, name -> (launches, bytes of all, ranks, nodes)
    ("qwen3-8b", {"tensor_parallel": 2}, {
        "all_reduce": (73, 73 * STREAM, 2, 1), "gather_logits": (1, 8 * 151936 * 2, 2, 1)}),
    ("qwen3-8b", {"tensor_parallel": 16}, {
        "all_reduce": (73, 73 * STREAM, 16, 2), "gather_logits": (1, 8 * 151936 * 2, 16, 2)}),
    ("qwen3-8b", {"pipeline_parallel": 4}, {"send": (3, 3 * 2 * STREAM, 2, 1)}),
    ("qwen3-8b", {"tensor_parallel": 8, "pipeline_parallel": 2}, {
        "all_reduce": (73, 73 * STREAM, 8, 1), "gather_logits": (1, 8 * 151936 * 2, 8, 1),
        "send_between_nodes": (1, 2 * STREAM, 2, 2)}),
    ("qwen3-8b", {"tensor_parallel": 4, "pipeline_parallel": 4}, {
        "all_reduce": (73, 73 * STREAM, 4, 1), "gather_logits": (1, 8 * 151936 * 2, 4, 1),
        "send": (2, 2 * 2 * STREAM, 2, 1), "send_between_nodes": (1, 2 * STREAM, 2, 2)}),
    # tokens are on every tensor-parallel rank: experts send nothing more than the sum
    ("qwen3-30b-a3b", {"tensor_parallel": 4, "expert_parallel": 4}, {
        "all_reduce": (97, 97 * 8 * 2048 * 2, 4, 1), "gather_logits": (1, 8 * 151936 * 2, 4, 1)}),
    # one sequence a group, and a token to 7 other ranks: of 8 experts it goes through
    ("qwen3-30b-a3b", {"data_parallel_attention": 8, "expert_parallel": 8}, {
        "dispatch": (48, 48 * 1 * 7 * 2048 * 2, 8, 1), "combine": (48, 48 * 1 * 7 * 2048 * 2, 8, 1)}),
    ("qwen3-30b-a3b", {"data_parallel_attention": 16, "expert_parallel": 16}, {
        "dispatch": (48, 48 * 1 * 8 * 2048 * 2, 16, 2), "combine": (48, 48 * 1 * 8 * 2048 * 2, 16, 2)}),
    # experts divided by width: all tokens come to every rank, and their sums go back
    ("qwen3-30b-a3b", {"data_parallel_attention": 4}, {
        "gather_tokens": (48, 48 * 8 * 2048 * 2, 4, 1), "scatter_tokens": (48, 48 * 8 * 2048 * 2, 4, 1)}),
]
# fmt: on


@pytest.mark.parametrize(("model", "layout", "rows"), MESSAGES)
def test_messages_by_hand(model, layout, rows):
    """Two sums of the residual stream a layer and one of the embedding; the logits once; the stages' hand-over."""
    assert sent(model, STEP, **layout) == rows


def test_one_device_sends_nothing():
    """Nothing is added to the plan of one device."""
    d = rk.Deployment("qwen3-8b", "h200-sxm")
    assert sent("qwen3-8b", STEP) == {}
    assert not d.plan.message_bytes.any()
    assert d.plan.rows == d.with_(tensor_parallel=1, pipeline_parallel=1).plan.rows


def test_halves_that_work_side_by_side_are_summed_once():
    """A parallel block needs one sum a layer."""
    model = rk.load_model("command-r")
    assert model.parallel_block
    assert sent("command-r", STEP, tensor_parallel=8)["all_reduce"][0] == model.layer_count + 1


def test_inner_sums_of_a_state_space_layer():
    """Mamba-1 sums B, C and the time step's low rank from all channels: 256 + 2 x 16 values of Jamba's 28 layers."""
    launches, size, *_ = sent("jamba-v0.1", STEP, tensor_parallel=4)["all_reduce_inner"]
    assert (launches, size) == (28, 28 * 8 * (256 + 2 * 16) * 2)


@pytest.mark.parametrize(("model", "sums"), [("minimax-m2.5", 62), ("olmo-2-7b", 32), ("qwen3-8b", 0)])
def test_norms_over_all_heads_are_summed_among_ranks(model, sums):
    """Two values of 32 bits a token and layer, of queries and of keys; a norm within each head needs no other rank."""
    messages = sent(model, STEP, tensor_parallel=4)
    assert messages.get("all_reduce_norm", (0,))[0] == sums
    assert not sums or messages["all_reduce_norm"][1] == sums * 8 * 2 * 4


def test_experts_of_an_fp8_checkpoint_get_their_tokens_in_fp8():
    """DeepSeek-V3 sends 8-bit values to its experts and gets 16-bit sums back."""
    rows = sent("deepseek-v3", STEP, data_parallel_attention=8, expert_parallel=8)
    assert rows["dispatch"][1] == 58 * 1 * 7 * 7168
    assert rows["combine"][1] == 2 * rows["dispatch"][1]


# ---- what a rank works on


# fmt: off
TOUCHED = [
    # tokens  distinct experts of 128, 8 a token (vLLM pull request 54228: the chance is over ALL experts)
    (1, 8.0), (2, 15.5), (4, 29.1), (8, 51.6), (16, 82.4), (32, 111.8), (64, 125.9),
]
# fmt: on


@pytest.mark.parametrize(("tokens", "distinct"), TOUCHED)
@pytest.mark.parametrize("imbalance", [1.0, 1.5])
def test_experts_that_a_rank_reads(tokens, distinct, imbalance):
    """An expert-parallel rank reads its share of the distinct experts of all tokens, the busiest so much more."""
    d = rk.Deployment("qwen3-30b-a3b", "h200-sxm", tensor_parallel=8, expert_parallel=8, expert_imbalance=imbalance)
    row = d.decode(500, batch=tokens).operator("experts")
    each = 48 * 2 * 3 * 2048 * 768
    assert row.weight_bytes / each == pytest.approx(min(distinct / 8 * imbalance, 16), rel=4e-3)
    assert row.weight_bytes == pytest.approx(
        each * min(distinct_experts(tokens, 128, 8) / 8 * imbalance, 16), rel=1e-12
    )
    assert row.flops == pytest.approx(tokens * 48 * 2 * 8 * 3 * 2048 * 768 / 8 * imbalance, rel=1e-12)


def test_experts_see_the_tokens_of_all_attention_groups():
    """64 sequences over 8 groups: attention of 8 sequences a rank, experts of all 64 tokens."""
    whole = rk.Deployment("qwen3-30b-a3b", "h200-sxm").decode(2000, batch=64)
    rank = rk.Deployment("qwen3-30b-a3b", "h200-sxm", data_parallel_attention=8, expert_parallel=8).decode(
        2000, batch=64
    )
    assert rank.kv_bytes == whole.kv_bytes / 8
    assert rank.operator("qkv_proj").flops == whole.operator("qkv_proj").flops / 8
    assert rank.operator("qkv_proj").weight_bytes == whole.operator("qkv_proj").weight_bytes
    assert rank.operator("experts").flops == whole.operator("experts").flops / 8
    assert rank.operator("experts").weight_bytes == pytest.approx(whole.operator("experts").weight_bytes / 8)
    assert rank.tokens == whole.tokens == 64


def test_a_prompt_is_not_divided_among_attention_groups():
    """One prompt runs on one group; nine sequences over eight leave two on one of them."""
    rank = rk.Deployment("qwen3-30b-a3b", "h200-sxm", data_parallel_attention=8, expert_parallel=8)
    whole = rk.Deployment("qwen3-30b-a3b", "h200-sxm")
    assert rank.prefill(1000).operator("attention").flops == whole.prefill(1000).operator("attention").flops
    assert rank.decode(2000, batch=9).kv_bytes == whole.decode(2000, batch=2).kv_bytes
    swept = rank.decode(2000, batch=[1, 8, 9, 64]).kv_bytes / whole.decode(2000).kv_bytes
    assert swept.tolist() == [1, 1, 2, 8]


def test_kv_heads_are_copied_where_they_are_fewer_than_ranks():
    """Qwen3-8B has 8 KV heads: 16 ranks hold one each, so all together twice the cache."""
    one, eight, sixteen = (
        rk.Deployment("qwen3-8b", "h200-sxm", tensor_parallel=degree).kv_bytes_per_token for degree in (1, 8, 16)
    )
    assert (one, eight, sixteen) == (36 * 8 * 256 * 2, one / 8, one / 8)


def test_a_latent_is_copied_to_every_rank():
    """Mistake 3: the cache of latent attention is not divided by tensor parallelism."""
    d = rk.Deployment("deepseek-v3", "h200-sxm", memory_check=False)
    many = d.with_(tensor_parallel=8)
    assert many.kv_bytes_per_token == d.kv_bytes_per_token == 61 * 576 * 2
    assert many.decode(5000).kv_bytes == d.decode(5000).kv_bytes


def test_weights_are_read_once_a_pass_by_every_rank():
    """Mistake 18, over ranks: a step of 64 sequences reads what a step of one reads."""
    d = rk.Deployment("llama-3.1-70b", "h200-sxm", tensor_parallel=8)
    assert d.decode(100, batch=64).weight_bytes == d.decode(100).weight_bytes
    whole = rk.Deployment("llama-3.1-70b", "h200-sxm", memory_check=False).decode(100).weight_bytes
    norms = 2 * (80 * 2 * 8192 + 8192)
    assert 8 * d.decode(100).weight_bytes == pytest.approx(whole + 7 * norms, rel=1e-12)


def test_sampling_reads_the_whole_vocabulary():
    """The logits are gathered before the next token is drawn from all of them."""
    row = rk.Deployment("qwen3-8b", "h200-sxm", tensor_parallel=8).decode(100, batch=3).operator("sampling")
    assert row.activation_bytes == 3 * 151936 * 2


def test_a_mixed_step_of_attention_groups():
    """A chunk is of one group, decoding sequences are shared out; the counts broadcast over a sweep."""
    d = rk.Deployment("deepseek-v3", "b200-sxm", data_parallel_attention=8, expert_parallel=8, memory_check=False)
    mixed = d.step((512, 0, 1, 0), (1, np.array([1000, 2000]), 64))
    apart = [d.step((512, 0, 1, 0), (1, held, 64)) for held in (1000, 2000)]
    assert mixed.time_s == pytest.approx([one.time_s for one in apart], rel=1e-12)
    assert apart[0].operator("q_a_proj").flops == 61 * 2 * 7168 * 1536 * (512 + 8)
