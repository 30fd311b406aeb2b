"""What one rank of a layout holds, counted by hand from the shapes that the papers print; what cannot be laid out."""

import pytest

import rooflinekit as rk
from rooflinekit.specs.parallelism import Parallelism

LLAMA_8B_LAYER = 4096 * (2048 + 2 * 512) + 2048 * 4096 + 3 * 4096 * 7168 + 2 * 4096
LLAMA_8B_HALF = 32 * LLAMA_8B_LAYER + 4096 + 2 * 4096 * 64128


def qwen3_8b(degree, kv_heads):
    """Parameters of one of so many ranks of Qwen3-8B."""
    heads, width = 32 // degree, 12288 // degree
    layer = 4096 * 128 * (heads + 2 * kv_heads) + heads * 128 * 4096 + 3 * 4096 * width + 2 * 4096 + 2 * 128
    return 36 * layer + 4096 + 2 * 4096 * (151936 // degree)


def deepseek_v3(degree, experts, expert_width):
    """Parameters of one of so many ranks of DeepSeek-V3: latents and what makes them are whole on each."""
    heads = 128 // degree
    latent = 7168 * 1536 + 7168 * (512 + 64) + 1536 + 512
    attention = latent + 1536 * heads * 192 + 512 * heads * 256 + heads * 128 * 7168
    router = 7168 * 256
    mixture = router + 3 * 7168 * (2048 // degree) + experts * 3 * 7168 * expert_width
    layers = 61 * (attention + 2 * 7168) + 3 * 3 * 7168 * (18432 // degree) + 58 * mixture
    return layers + 7168 + 2 * 7168 * (129280 // degree)


def qwen3_30b(degree, experts, expert_width):
    """Parameters of one rank of Qwen3-30B-A3B."""
    attention = 2048 * 128 * (32 + 2 * 4) // degree + 32 * 128 * 2048 // degree + 2 * 128
    layer = attention + 2 * 2048 + 2048 * 128 + experts * 3 * 2048 * expert_width
    return 48 * layer + 2048 + 2 * 2048 * (151936 // degree)


# fmt: off
RANKS = [
    # model           layout                                                     parameters of a rank
    ("llama-3.1-8b",  {"tensor_parallel": 2},                                    LLAMA_8B_HALF),
    ("qwen3-8b",      {"tensor_parallel": 1},                                    qwen3_8b(1, 8)),
    ("qwen3-8b",      {"tensor_parallel": 2},                                    qwen3_8b(2, 4)),
    ("qwen3-8b",      {"tensor_parallel": 4},                                    qwen3_8b(4, 2)),
    ("qwen3-8b",      {"tensor_parallel": 8},                                    qwen3_8b(8, 1)),
    ("qwen3-8b",      {"tensor_parallel": 16},                                   qwen3_8b(16, 1)),  # each KV head twice
    ("qwen3-8b",      {"tensor_parallel": 2, "pipeline_parallel": 4},            qwen3_8b(2, 4)),  # of all stages
    ("deepseek-v3",   {"tensor_parallel": 8},                                    deepseek_v3(8, 256, 256)),
    ("deepseek-v3",   {"tensor_parallel": 8, "expert_parallel": 8},              deepseek_v3(8, 32, 2048)),
    ("deepseek-v3",   {"tensor_parallel": 8, "expert_parallel": 4},              deepseek_v3(8, 64, 1024)),
    ("deepseek-v3",   {"data_parallel_attention": 8, "expert_parallel": 8},      deepseek_v3(1, 32, 2048)),
    ("deepseek-v3",   {"data_parallel_attention": 8},                            deepseek_v3(1, 256, 256)),
    ("deepseek-v3",   {"tensor_parallel": 2, "data_parallel_attention": 4, "expert_parallel": 8},
                                                                                 deepseek_v3(2, 32, 2048)),
    ("qwen3-30b-a3b", {"tensor_parallel": 4, "expert_parallel": 4},              qwen3_30b(4, 32, 768)),
    ("qwen3-30b-a3b", {"tensor_parallel": 4},                                    qwen3_30b(4, 128, 192)),
    ("qwen3-30b-a3b", {"data_parallel_attention": 12, "expert_parallel": 12},    qwen3_30b(1, 11, 768)),  # the fullest
]
# fmt: on


@pytest.mark.parametrize(("model", "layout", "parameters"), RANKS)
def test_parameters_of_a_rank_by_hand(model, layout, parameters):
    """Heads, widths, experts and vocabulary are divided; norms, routers and latents are whole on every rank."""
    assert Parallelism(**layout).rank_of(rk.load_model(model)).parameters.total == parameters


#: Whole on every rank: norms, and what each model adds to them.
# fmt: off
WHOLE = [
    ("qwen3-8b",           4, 36 * (2 * 4096 + 2 * 128) + 4096),
    ("deepseek-v3",        8, 61 * (2 * 7168 + 7168 * (1536 + 576) + 1536 + 512) + 58 * 7168 * 256 + 7168),
    ("qwen3-30b-a3b",      4, 48 * (2 * 2048 + 2 * 128 + 2048 * 128) + 2048),
    ("mixtral-8x7b",       8, 32 * (2 * 4096 + 4096 * 8) + 4096),
    ("llama-3.1-405b",     8, 126 * 2 * 16384 + 16384),
]
# fmt: on


@pytest.mark.parametrize(("model", "degree", "whole"), WHOLE)
def test_ranks_sum_to_the_model_and_its_copies(model, degree, whole):
    """What all ranks hold is the model, and once more for each further rank what none of them divides."""
    total = rk.load_model(model).parameters.total
    assert degree * Parallelism(tensor_parallel=degree).rank_of(rk.load_model(model)).parameters.total == (
        total + (degree - 1) * whole
    )


def test_experts_are_divided_among_ranks_to_the_last():
    """Expert-parallel ranks hold each expert once, and width-parallel ranks each a part of all: as many parameters."""
    model = rk.load_model("qwen3-30b-a3b")
    by_expert = Parallelism(tensor_parallel=4, expert_parallel=4).rank_of(model).parameters.total
    assert by_expert == Parallelism(tensor_parallel=4).rank_of(model).parameters.total


# fmt: off
DIVIDED = [
    # model                degree  block         sizes of a rank
    ("jamba-v0.1",         4,      "mamba",      {"inner": 2048}),
    ("qwen3-next-80b-a3b", 4,      "linear",     {"key_heads": 4, "value_heads": 8}),
    ("qwen3-8b",           2,      "full",       {"heads": 16, "kv_heads": 4}),
]
# fmt: on


@pytest.mark.parametrize(("name", "degree", "kind", "sizes"), DIVIDED)
def test_mixers_divide_themselves(name, degree, kind, sizes):
    """Every kind of mixer knows what of it is divided; states go with their heads or channels."""
    rank = Parallelism(tensor_parallel=degree).rank_of(rk.load_model(name))
    block = next(one for one in rank.mixers if all(hasattr(one, size) for size in sizes))
    assert {size: getattr(block, size) for size in sizes} == sizes, kind
    whole = next(one for one in rk.load_model(name).mixers if one.name == block.name)
    assert [degree * state.values for state in block.states] == [state.values for state in whole.states]


def test_state_space_groups_are_copied_where_they_are_fewer_than_ranks():
    """Mamba-2 with one group of B and C: every rank has it whole, its heads are divided."""
    from rooflinekit.specs.mixers.recurrent import Mamba2  # noqa: PLC0415 - the one test of this kind

    block = Mamba2(name="m", heads=128, head_dim=64, groups=1, state=128, conv_kernel=4).divided(8)
    assert (block.heads, block.groups, block.channels) == (16, 1, 16 * 64 + 2 * 128)
    assert block.other_parameters(0) == block.channels * 5 + 3 * 16 + 16 * 64


SUMMARY = {"summary": {"parameters": 8000000000, "layers": 32, "kv_heads": 8, "head_dim": 128}}
WIDE = {"tensor_parallel": 32, "data_parallel_attention": 16}
UNEVEN = {"tensor_parallel": 2, "expert_parallel": 2, "expert_imbalance": 3}
MIXTURE = "qwen3-30b-a3b"
# fmt: off
REFUSED = [
    ("qwen3-8b", {"tensor_parallel": 3},
     r"^TP3 of qwen3-8b: heads=32 of 'full' does not divide among 3 ranks; .* of 1, 2, 4, 8, 16, 32 would work$"),
    ("qwen2.5-7b", {"tensor_parallel": 8},
     r"heads=28 of .* does not divide among 8 ranks; tensor_parallel of 1, 2, 4 would work$"),
    (MIXTURE, WIDE, r"intermediate_size=768 of 'moe' does not divide among 512 ranks"),
    (MIXTURE, {"data_parallel_attention": 256, "expert_parallel": 256},
     r"^expert_parallel=256: qwen3-30b-a3b has 128 experts a layer; 128 or fewer would work$"),
    (MIXTURE, {"tensor_parallel": 4, "expert_parallel": 3},
     r"^expert_parallel=3 does not divide .* = 4, whose ranks hold the experts; 1, 2, 4 would work$"),
    (MIXTURE, UNEVEN, r"^expert_imbalance=3: .* between 1 and 2 times"),
    (MIXTURE, {"expert_imbalance": 1.5}, r"^expert_imbalance=1.5: the busiest of 1 expert-parallel"),
    ("qwen3-8b", {"tensor_parallel": 2, "expert_parallel": 2},
     r"^expert_parallel=2: qwen3-8b has no experts to divide; 1 would work$"),
    ("qwen3-8b", {"data_parallel_attention": 2}, r"^data_parallel_attention=2: qwen3-8b has no experts"),
    ("qwen3-8b", {"pipeline_parallel": 37},
     r"^pipeline_parallel=37: qwen3-8b has 36 layers, .*: 36 or fewer would work$"),
    (SUMMARY, {"tensor_parallel": 2}, r"^TP2: custom is a summary model"),
]
# fmt: on


@pytest.mark.parametrize(("model", "layout", "message"), REFUSED)
def test_a_layout_that_cannot_be_says_what_would_work(model, layout, message):
    """One error that names the number, and what would work in its place."""
    with pytest.raises(rk.InvalidInputError, match=message):
        rk.Deployment(model, "h200-sxm", memory_check=False, **layout)


@pytest.mark.parametrize("degree", [0, -1, 1.5, "two", None])
def test_a_degree_is_a_whole_number(degree):
    """Nothing is rounded, and nothing taken for the default."""
    with pytest.raises(rk.InvalidInputError, match=r"^tensor_parallel=.*: expected a whole number, 1 or more$"):
        rk.Deployment("qwen3-8b", "h200-sxm", tensor_parallel=degree)


STAGES = [
    # layers, stages -> layers of each: the last but one takes what is left over first, the last never
    (36, 4, [9, 9, 9, 9]),
    (36, 8, [4, 4, 4, 5, 5, 5, 5, 4]),
    (36, 5, [7, 7, 7, 8, 7]),
]


@pytest.mark.parametrize(("layers", "stages", "sizes"), STAGES)
def test_layers_of_a_pipeline(layers, stages, sizes):
    """Every layer is in one stage, in order."""
    found = Parallelism(pipeline_parallel=stages).stages(rk.load_model("qwen3-8b"))
    assert [stage.layers for stage in found] == sizes
    assert sum(sizes) == layers
    assert [stage.first_layer for stage in found] == [sum(sizes[:i]) for i in range(stages)]
    assert [(stage.is_first, stage.is_last) for stage in found][:: stages - 1] == [(True, False), (False, True)]


def test_runs_of_different_layers_are_cut_where_a_stage_ends():
    """DeepSeek-V3 begins with three dense layers: all in the first stage."""
    first, last = Parallelism(pipeline_parallel=2).stages(rk.load_model("deepseek-v3"))
    assert [times for _, _, times in first.runs] == [3, 28]
    assert [times for _, _, times in last.runs] == [30]
