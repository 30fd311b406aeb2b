"""Layers with a state, layers that are half a layer, and what else some models have, against counts done by hand."""

from functools import cache

import pytest

import rooflinekit as rk
from rooflinekit.operators.recurrent import convolution_flops, state_traffic_bytes

pytestmark = pytest.mark.filterwarnings("ignore::rooflinekit.errors.ContextLengthWarning")


@cache
def deployment(name):
    """Deployment of a model at 16 bits."""
    return rk.Deployment(name, "b200-sxm", weights="bf16", memory_check=False)


# fmt: off
ROWS = [
    # model              step     operator      quantity            by hand
    # Qwen3-Next: 36 layers of Gated DeltaNet, 16 key and 32 value heads of 128, a convolution over 4 tokens
    ("qwen3-next-80b-a3b", (1, 500), "scan", "flops",               36 * 8 * 32 * 128 * 128),
    ("qwen3-next-80b-a3b", (1, 500), "scan", "weight_bytes",        36 * 2 * (2 * 32 + 128)),
    ("qwen3-next-80b-a3b", (1, 500), "scan", "state_bytes",         36 * 2 * 4 * 32 * 128 * 128),
    ("qwen3-next-80b-a3b", (1, 500), "scan", "activation_bytes",    36 * 2 * (8192 + 2 * 4096)),
    ("qwen3-next-80b-a3b", (1, 500), "conv", "flops",               36 * 2 * 8192 * 4),
    ("qwen3-next-80b-a3b", (1, 500), "conv", "weight_bytes",        36 * 2 * 8192 * 4),
    ("qwen3-next-80b-a3b", (1, 500), "conv", "state_bytes",         36 * 2 * 2 * 3 * 8192),
    ("qwen3-next-80b-a3b", (1, 500), "conv", "activation_bytes",    36 * 2 * 2 * 8192),
    ("qwen3-next-80b-a3b", (1, 500), "in_proj_qkvz", "flops",       36 * 2 * 2048 * (2 * 2048 + 2 * 4096)),
    ("qwen3-next-80b-a3b", (1, 500), "in_proj_ba", "weight_bytes",  36 * 2 * 2048 * 64),
    ("qwen3-next-80b-a3b", (1, 500), "out_proj", "flops",           36 * 2 * 4096 * 2048),
    # its 12 attention layers: the query projection yields a gate too
    ("qwen3-next-80b-a3b", (1, 500), "qkv_proj", "flops",           12 * 2 * 2048 * (2 * 4096 + 2 * 512)),
    ("qwen3-next-80b-a3b", (1, 500), "attention_gate", "activation_bytes", 12 * 2 * 3 * 4096),
    ("qwen3-next-80b-a3b", (1, 500), "attention", "kv_bytes",       12 * 2 * 2 * 2 * 256 * 501),
    # Codestral Mamba: 64 layers of Mamba-2, 128 heads of 64, 8 groups, a state of 128; no attention, no feed-forward
    ("mamba-codestral-7b", (1, 500), "scan", "flops",               64 * 6 * 8192 * 128),
    ("mamba-codestral-7b", (1, 500), "scan", "state_bytes",         64 * 2 * 4 * 8192 * 128),
    ("mamba-codestral-7b", (1, 500), "scan", "activation_bytes",    64 * 2 * (8192 + 2 * 8 * 128 + 2 * 8192)),
    ("mamba-codestral-7b", (1, 500), "in_proj", "flops",            64 * 2 * 4096 * (2 * 8192 + 2 * 8 * 128 + 128)),
    ("mamba-codestral-7b", (1, 500), "conv", "flops",               64 * 2 * (8192 + 2 * 8 * 128) * 4),
    ("mamba-codestral-7b", (1, 500), "block_norm", "launches",      64),
    # Jamba: 28 layers of Mamba-1 with 8,192 channels of a state of 16, a time step of rank 256
    ("jamba-v0.1", (1, 500), "scan", "flops",                       28 * 6 * 8192 * 16),
    ("jamba-v0.1", (1, 500), "x_proj", "flops",                     28 * 2 * 8192 * (256 + 32)),
    ("jamba-v0.1", (1, 500), "dt_proj", "weight_bytes",             28 * 2 * (256 * 8192 + 8192)),
    ("jamba-v0.1", (1, 500), "in_proj", "flops",                    28 * 2 * 4096 * 2 * 8192),
    # four attention layers without positions; every other layer is a mixture, 2 of 16 experts
    ("jamba-v0.1", (1, 500), "attention", "kv_bytes",               4 * 2 * 2 * 8 * 128 * 501),
    ("jamba-v0.1", (1, 500), "gate_up_proj", "launches",            16),
    ("jamba-v0.1", (1, 500), "experts", "weight_bytes",             16 * 2 * 2 * 3 * 4096 * 14336),
    # Nemotron 3 Nano: 52 layers that are each a mixer or a feed-forward: 23 Mamba-2, 6 attention, 23 mixtures
    ("nemotron-3-nano-30b-a3b", (1, 500), "block_norm", "launches", 52),
    ("nemotron-3-nano-30b-a3b", (1, 500), "scan", "launches",       23),
    ("nemotron-3-nano-30b-a3b", (1, 500), "attention", "launches",  6),
    ("nemotron-3-nano-30b-a3b", (1, 500), "experts", "launches",    23),
    ("nemotron-3-nano-30b-a3b", (1, 500), "experts", "flops",       23 * 2 * 6 * 2 * 2688 * 1856),
    ("nemotron-3-nano-30b-a3b", (1, 500), "in_proj", "flops",       23 * 2 * 2688 * (2 * 4096 + 2 * 8 * 128 + 64)),
    # MiniMax-M1: 70 of 80 layers are lightning attention, 64 heads of 128, with an output gate and no convolution
    ("minimax-m1", (1, 500), "scan", "flops",                       70 * 4 * 64 * 128 * 128),
    ("minimax-m1", (1, 500), "output_gate", "flops",                70 * 2 * 6144 * 8192),
    ("minimax-m1", (1, 500), "attention", "kv_bytes",               10 * 2 * 2 * 8 * 128 * 501),
    # LFM2: 10 short convolutions over 3 tokens of 2,048 channels, with a state of 2 tokens and no scan
    ("lfm2-1.2b", (1, 500), "conv", "flops",                        10 * 2 * 2048 * 3),
    ("lfm2-1.2b", (1, 500), "conv", "state_bytes",                  10 * 2 * 2 * 2 * 2048),
    ("lfm2-1.2b", (1, 500), "conv", "activation_bytes",             10 * 2 * 2 * 2048),
    ("lfm2-1.2b", (1, 500), "in_proj", "weight_bytes",              10 * 2 * 2048 * 3 * 2048),
    # Gemma 3n E4B: 35 layers; per-layer inputs of 256, looked up and added by one projection to all layers
    ("gemma-3n-e4b", (1, 500), "per_layer_embedding", "activation_bytes", 35 * 256 * (2 + 2)),
    ("gemma-3n-e4b", (1, 500), "per_layer_embedding", "weight_bytes", 0),
    ("gemma-3n-e4b", (1, 500), "per_layer_model_proj", "flops",     2 * 2048 * 35 * 256),
    ("gemma-3n-e4b", (1, 500), "per_layer_input_gate", "flops",     35 * 2 * 2048 * 256),
    ("gemma-3n-e4b", (1, 500), "per_layer_proj", "weight_bytes",    35 * 2 * 256 * 2048),
    ("gemma-3n-e4b", (1, 500), "per_layer_norm", "weight_bytes",    2 * (256 + 35 * 2048)),
    # four parallel copies of the residual stream, and a low-rank residual of 64
    ("gemma-3n-e4b", (1, 500), "altup_router", "flops",             35 * 2 * 2048 * 4),
    ("gemma-3n-e4b", (1, 500), "laurel_left", "flops",              35 * 2 * 2048 * 64),
    ("gemma-3n-e4b", (1, 500), "altup_proj", "flops",               2 * 3 * 2048 * 2048),
    ("gemma-3n-e4b", (1, 500), "altup_unembed_proj", "launches",    1),
    # the last 15 layers use K and V of earlier ones: they write none and project none, but read as the others do
    ("gemma-3n-e4b", (1, 500), "kv_write", "launches",              20),
    ("gemma-3n-e4b", (1, 500), "qkv_proj", "flops",                 20 * 2 * 2048 * (2048 + 2 * 512)),
    ("gemma-3n-e4b", (1, 500), "q_proj", "flops",                   15 * 2 * 2048 * 2048),
    ("gemma-3n-e4b", (1, 500), "attention[window]", "kv_bytes",     28 * 2 * 2 * 2 * 256 * 501),
    ("gemma-3n-e4b", (1, 5000), "attention[window]", "kv_bytes",    28 * 2 * 2 * 2 * 256 * 512),
    ("gemma-3n-e4b", (1, 5000), "attention[full]", "kv_bytes",      7 * 2 * 2 * 2 * 256 * 5001),
    # Gemma 4 31B: the full layers take V from the K projection, and cache both
    ("gemma-4-31b", (1, 500), "qkv_proj[full]", "flops",            10 * 2 * 5376 * (32 + 4) * 512),
    ("gemma-4-31b", (1, 500), "qkv_proj[window]", "flops",          50 * 2 * 5376 * (32 + 2 * 16) * 256),
    ("gemma-4-31b", (1, 500), "attention[full]", "kv_bytes",        10 * 2 * 2 * 4 * 512 * 501),
    ("gemma-4-31b", (1, 500), "kv_write[full]", "activation_bytes", 10 * 2 * 4 * 512 * (2 + 2)),
]
# fmt: on


@pytest.mark.parametrize(("name", "step", "operator", "quantity", "by_hand"), ROWS)
def test_counts_by_hand(name, step, operator, quantity, by_hand):
    """Each operator's work follows from the shapes, to the last FLOP and byte."""
    assert getattr(deployment(name).step(step).operator(operator), quantity) == by_hand


RECURRENT = [
    "qwen3-next-80b-a3b",
    "mamba-codestral-7b",
    "jamba-v0.1",
    "nemotron-3-nano-30b-a3b",
    "minimax-m1",
    "lfm2-1.2b",
]


@pytest.mark.parametrize("name", RECURRENT)
def test_states_do_not_depend_on_the_context(name):
    """Convolution and scan move and do the same whatever the context, and read no K and V."""
    near, far = deployment(name).decode(0, batch=3), deployment(name).decode(200_000, batch=3)
    rows = [(row, same) for row, same in zip(near.operators, far.operators, strict=True) if row.op_class == "scan"]
    assert rows
    for row, same in rows:
        assert (row.flops, row.bytes, row.time_s) == (same.flops, same.bytes, same.time_s)
        assert row.kv_bytes == 0


#: Bytes of the states of one sequence over all layers, fp32 states and 16-bit inputs of the convolutions.
STATES = [
    ("qwen3-next-80b-a3b", 36 * (32 * 128 * 128 * 4 + 3 * 8192 * 2), 77_266_944),
    ("nemotron-3-nano-30b-a3b", 23 * (4096 * 128 * 4 + 3 * (4096 + 2048) * 2), 49_082_368),
    ("jamba-v0.1", 28 * (8192 * 16 * 4 + 3 * 8192 * 2), 16_056_320),
    ("mamba-codestral-7b", 64 * (8192 * 128 * 4 + 3 * (8192 + 2048) * 2), 272_367_616),
    ("minimax-m1", 70 * 64 * 128 * 128 * 4, 293_601_280),
    ("lfm2-1.2b", 10 * 2 * 2048 * 2, 81_920),
]  # fmt: skip


@pytest.mark.parametrize(("name", "by_hand", "published"), STATES)
def test_a_pass_reads_and_writes_every_state_once_a_sequence(name, by_hand, published):
    """A step moves the state twice for each sequence, however many tokens it brings; the cache holds it once."""
    assert by_hand == published
    d = deployment(name)
    assert d.cache.state_bytes == d.kv_cache_bytes(0) == published
    for tokens, sequences in ((1, 1), (1, 7), (512, 7)):
        moved = d.step((tokens, 100, sequences)).state_bytes
        assert moved == 2 * sequences * published


@pytest.mark.parametrize("name", RECURRENT)
def test_recurrent_layers_add_nothing_to_the_cache(name):
    """K and V come from the attention layers alone; a model without any has a cache that never grows."""
    d = deployment(name)
    each = sum(
        run.times * 2 * 2 * run.mixer.kv_heads * run.mixer.head_dim
        for run in d.model.layer_runs
        if run.mixer.kind == "gqa"
    )
    assert d.kv_bytes_per_token == each
    assert d.kv_cache_bytes(10_000) - d.kv_cache_bytes(0) == 10_000 * each
    assert (each == 0) == (name == "mamba-codestral-7b")


@pytest.mark.parametrize("name", ["jamba-v0.1", "nemotron-3-nano-30b-a3b"])
def test_layers_without_positions_rotate_nothing(name):
    """Where the recurrent layers carry the order, no kernel rotates queries and keys."""
    assert not [row for row in deployment(name).plan.rows if row.op_class == "rotary"]


def test_a_half_that_is_not_there_costs_nothing():
    """Layers of mixers alone have no row of a feed-forward, and the other way round."""
    names = {row.name for row in deployment("mamba-codestral-7b").plan.rows}
    assert names == {
        "embedding",
        "block_norm",
        "in_proj",
        "conv",
        "scan",
        "out_proj",
        "final_norm",
        "lm_head",
        "sampling",
    }
    bare = {
        "hidden_size": 64,
        "vocabulary": 100,
        "position": "none",
        "mixers": [{"name": "no", "kind": "none"}],
        "feedforwards": [{"name": "no", "kind": "none"}],
        "layers": [["no", "no", 5]],
    }
    d = rk.Deployment(bare, "b200-sxm")
    assert [row.name for row in d.plan.rows] == ["embedding", "final_norm", "lm_head", "sampling"]
    assert d.kv_cache_bytes(1000) == d.decode(1000).kv_bytes == 0


def test_the_table_of_per_layer_inputs_is_stored_and_never_read():
    """Gemma 3n's table of 262,144 x 35 x 256 lies in memory; a step gathers rows of it."""
    d = deployment("gemma-3n-e4b")
    read = d.decode(100).weight_bytes
    assert d.weights_bytes - read == 2 * 262_144 * 35 * 256


def test_the_formulas_broadcast():
    """Arrays in, arrays out: a sweep over tokens and sequences."""
    tokens = [1, 2, 300]
    assert [convolution_flops(n, 8192, 4) for n in tokens] == [65536.0 * n for n in tokens]
    assert state_traffic_bytes(3, 32 * 128 * 128, 4) == 3 * 2 * 4 * 32 * 128 * 128
