"""The work of a pass, operator by operator, against counts done by hand from the shapes that the papers print."""

from functools import cache

import numpy as np
import pytest

from rooflinekit.operators.cost import QUANTITIES
from rooflinekit.operators.forward import features, plan
from rooflinekit.phases.memory import stored_weight_bytes
from rooflinekit.specs.catalog import list_models, load_model
from rooflinekit.specs.mixers import GroupedQueryAttention, LatentAttention
from rooflinekit.specs.precision import Precision, weight_format
from rooflinekit.specs.quantisation import Quantisation
from rooflinekit.specs.step import Group

PLAIN = Quantisation(default="plain")
BF16 = Precision(weight_format("bf16"), PLAIN, "bf16", "bf16")
PROMPT = Group(2048)
STEP = Group(1, 2048)
#: A step with so many tokens that every expert of every mixture is touched: the chance of one being missed is below
#: the last digit of a float.
CROWD = Group(1, 2048, 100_000)
#: Every model but the summaries: none of the shipped files is one.
MODELS = list_models()


@cache
def layout(name, precision=BF16):
    """Plan of a shipped model."""
    return plan(load_model(name), precision)


def amount(name, quantity, *groups, operator=None, precision=BF16):
    """Count one quantity of a step, of one operator or of all."""
    laid = layout(name, precision)
    rows = getattr(laid, quantity) @ features(laid.features, groups)
    if operator is None:
        return rows.sum()
    return rows[[row.name for row in laid.rows].index(operator), 0]


# fmt: off
# 2 bytes a value. The triangle of a prompt of n tokens: n (n + 1) / 2 query-key pairs of one head.
TRIANGLE = 2048 * 2049 / 2
COUNTS = [
    # model          step    operator          quantity            by hand
    # Qwen3-8B: hidden 4,096; 32 query and 8 KV heads of 128; feed-forward 12,288, gated; vocabulary 151,936, untied
    ("qwen3-8b",     PROMPT, "qkv_proj",       "flops",            36 * 2 * 2048 * 4096 * (4096 + 2 * 1024)),
    ("qwen3-8b",     PROMPT, "o_proj",         "flops",            36 * 2 * 2048 * 4096 * 4096),
    ("qwen3-8b",     PROMPT, "gate_up_proj",   "flops",            36 * 2 * 2048 * 4096 * 2 * 12288),
    ("qwen3-8b",     PROMPT, "down_proj",      "flops",            36 * 2 * 2048 * 12288 * 4096),
    ("qwen3-8b",     PROMPT, "attention",      "flops",            36 * 4 * 32 * 128 * TRIANGLE),
    ("qwen3-8b",     PROMPT, "attention",      "scores",           36 * 32 * TRIANGLE),
    ("qwen3-8b",     PROMPT, "lm_head",        "flops",            2 * 4096 * 151936),
    ("qwen3-8b",     PROMPT, None,             "flops",            29_688_662_589_440),
    ("qwen3-8b",     PROMPT, "gate_up_proj",   "weight_bytes",     36 * 2 * 4096 * 24576),
    ("qwen3-8b",     PROMPT, "gate_up_proj",   "activation_bytes", 36 * 2 * 2048 * (4096 + 24576)),
    ("qwen3-8b",     PROMPT, "silu_mul",       "activation_bytes", 36 * 2 * 2048 * 3 * 12288),
    ("qwen3-8b",     PROMPT, "block_norm",     "activation_bytes", 72 * 2 * 2048 * 4 * 4096),
    ("qwen3-8b",     PROMPT, "block_norm",     "launches",         72),
    ("qwen3-8b",     PROMPT, "block_norm",     "weight_bytes",     72 * 2 * 4096),
    ("qwen3-8b",     PROMPT, "qk_norm_rotary", "activation_bytes", 36 * 2 * 2048 * 2 * (4096 + 1024)),
    ("qwen3-8b",     PROMPT, "qk_norm_rotary", "weight_bytes",     36 * 2 * (128 + 128)),
    ("qwen3-8b",     PROMPT, "kv_write",       "activation_bytes", 36 * 2048 * 2 * 8 * 128 * (2 + 2)),
    ("qwen3-8b",     PROMPT, "embedding",      "activation_bytes", 2048 * 4096 * (2 + 2)),
    ("qwen3-8b",     PROMPT, "embedding",      "weight_bytes",     0),
    ("qwen3-8b",     PROMPT, "final_norm",     "activation_bytes", 2 * 2048 * 4 * 4096),
    ("qwen3-8b",     PROMPT, "sampling",       "activation_bytes", 2 * 151936),
    ("qwen3-8b",     STEP,   "attention",      "flops",            36 * 4 * 32 * 128 * 2049),
    ("qwen3-8b",     STEP,   "attention",      "kv_bytes",         36 * 2 * 2 * 8 * 128 * 2049),
    ("qwen3-8b",     STEP,   "attention",      "activation_bytes", 36 * 2 * 32 * (128 + 128)),
    ("qwen3-8b",     STEP,   None,             "weight_bytes",     2 * (8_190_735_360 - 4096 * 151936)),
    ("qwen3-8b",     STEP,   None,             "kv_bytes",         147_456 * 2049),
    ("qwen3-8b",     STEP,   None,             "launches",         36 * 8 + 72 + 4),
    # Llama 3.1 8B: as above but feed-forward 14,336, vocabulary 128,256, no norm of queries and keys
    ("llama-3.1-8b", PROMPT, "gate_up_proj",   "flops",            32 * 2 * 2048 * 4096 * 2 * 14336),
    ("llama-3.1-8b", PROMPT, "rotary",         "weight_bytes",     0),
    ("llama-3.1-8b", PROMPT, "rotary",         "activation_bytes", 32 * 2 * 2048 * 2 * (4096 + 1024)),
    ("llama-3.1-8b", STEP,   None,             "kv_bytes",         131_072 * 2049),
    ("llama-3.1-8b", STEP,   None,             "weight_bytes",     2 * (8_030_261_248 - 4096 * 128256)),
    ("llama-3.1-8b", PROMPT, None,             "flops",            32 * (2 * 2048 * 218_103_808 + 16384 * TRIANGLE)
                                                                   + 2 * 4096 * 128256),
    # GPT-2 XL: hidden 1,600; 25 heads of 64; feed-forward 6,400, not gated; biases; learned positions; tied
    ("gpt2-xl",      PROMPT, "qkv_proj",       "flops",            48 * 2 * 2048 * 1600 * 4800),
    ("gpt2-xl",      STEP,   "qkv_proj",       "weight_bytes",     48 * 2 * (1600 * 4800 + 4800)),
    ("gpt2-xl",      STEP,   "o_proj",         "weight_bytes",     48 * 2 * (1600 * 1600 + 1600)),
    ("gpt2-xl",      STEP,   "up_proj",        "weight_bytes",     48 * 2 * (1600 * 6400 + 6400)),
    ("gpt2-xl",      STEP,   "down_proj",      "weight_bytes",     48 * 2 * (6400 * 1600 + 1600)),
    ("gpt2-xl",      STEP,   "gelu",           "activation_bytes", 48 * 2 * 2 * 6400),
    ("gpt2-xl",      STEP,   "block_norm",     "weight_bytes",     96 * 2 * 2 * 1600),
    ("gpt2-xl",      STEP,   "embedding",      "activation_bytes", 1600 * (2 + 2 + 2)),
    ("gpt2-xl",      STEP,   "lm_head",        "weight_bytes",     2 * 1600 * 50257),
    ("gpt2-xl",      STEP,   None,             "kv_bytes",         307_200 * 2049),
    # Falcon 7B: hidden 4,544; 71 query heads of 64 and one KV head; one norm a block; feed-forward 18,176; tied
    ("falcon-7b",    PROMPT, "qkv_proj",       "flops",            32 * 2 * 2048 * 4544 * (4544 + 2 * 64)),
    ("falcon-7b",    STEP,   "attention",      "kv_bytes",         32 * 2 * 2 * 64 * 2049),
    ("falcon-7b",    STEP,   "attention",      "flops",            32 * 4 * 71 * 64 * 2049),
    ("falcon-7b",    STEP,   "block_norm",     "launches",         32),
    ("falcon-7b",    STEP,   "rotary",         "activation_bytes", 32 * 2 * 2 * (4544 + 64)),
    ("falcon-7b",    STEP,   "up_proj",        "flops",            32 * 2 * 4544 * 18176),
    ("falcon-7b",    STEP,   None,             "weight_bytes",     2 * 6_921_720_704),
    # OPT 6.7B: hidden 4,096; 32 heads of 128; feed-forward 16,384 with ReLU; biases; 2,050 learned positions; tied
    ("opt-6.7b",     STEP,   "relu",           "activation_bytes", 32 * 2 * 2 * 16384),
    ("opt-6.7b",     STEP,   "up_proj",        "weight_bytes",     32 * 2 * (4096 * 16384 + 16384)),
    ("opt-6.7b",     STEP,   "attention",      "kv_bytes",         32 * 2 * 2 * 32 * 128 * 2049),
    ("opt-6.7b",     STEP,   None,             "weight_bytes",     2 * (6_658_473_984 - 2050 * 4096)),
]

LONG_PROMPT, LONG_STEP, CHUNK = Group(8192), Group(1, 8000), Group(2048, 6000)
WINDOWED = [
    # Gemma 2 9B: 16 query and 8 KV heads of 256; every other of 42 layers looks back over 4,096 tokens
    # step         operator             quantity     by hand
    (LONG_PROMPT, "attention[full]",   "scores",    21 * 16 * 8192 * 8193 / 2),
    (LONG_PROMPT, "attention[window]", "scores",    21 * 16 * (4096 * 4097 / 2 + 4096 * 4096)),
    (LONG_PROMPT, "attention[window]", "kv_bytes",  21 * 2 * 2 * 8 * 256 * 8192),
    (LONG_STEP,   "attention[full]",   "kv_bytes",  21 * 2 * 2 * 8 * 256 * 8001),
    (LONG_STEP,   "attention[window]", "kv_bytes",  21 * 2 * 2 * 8 * 256 * 4096),
    (LONG_STEP,   "attention[full]",   "flops",     21 * 4 * 16 * 256 * 8001),
    (LONG_STEP,   "attention[window]", "flops",     21 * 4 * 16 * 256 * 4096),
    (STEP,        "attention[window]", "kv_bytes",  21 * 2 * 2 * 8 * 256 * 2049),
    (CHUNK,       "attention[window]", "scores",    21 * 16 * 2048 * 4096),
    (CHUNK,       "attention[window]", "kv_bytes",  21 * 2 * 2 * 8 * 256 * (2048 + 4095)),
    (LONG_STEP,   "block_norm",        "launches",  42 * 4),
    (LONG_STEP,   "qkv_proj",          "flops",     42 * 2 * 3584 * (4096 + 2 * 2048)),
    (LONG_STEP,   "o_proj",            "flops",     42 * 2 * 4096 * 3584),
    (LONG_STEP,   "gelu_mul",          "launches",  42),
    (LONG_STEP,   "lm_head",           "flops",     2 * 3584 * 256000),
    (LONG_STEP,   None,                "weight_bytes", 2 * 9_241_705_984),
]
# fmt: on


@pytest.mark.parametrize(("name", "step", "operator", "quantity", "by_hand"), COUNTS)
def test_counts_by_hand(name, step, operator, quantity, by_hand):
    """Each operator's work follows from the shapes, to the last FLOP and byte."""
    assert amount(name, quantity, step, operator=operator) == by_hand


@pytest.mark.parametrize(("step", "operator", "quantity", "by_hand"), WINDOWED)
def test_counts_of_windowed_layers_by_hand(step, operator, quantity, by_hand):
    """A windowed layer sees its window and no more, in scores, FLOPs and bytes; a full one the whole context."""
    assert amount("gemma-2-9b", quantity, step, operator=operator) == by_hand


@pytest.mark.parametrize("name", MODELS)
def test_a_step_reads_every_parameter_but_the_rows_it_does_not_gather(name):
    """With all experts touched, weight bytes and the rows of tables not read are the parameters times their bytes."""
    model = load_model(name)
    tables = model.position_rows or 0
    tables += 0 if model.tied_embeddings else model.vocabulary
    gathered = model.hidden_size * tables + model.parameters.lookup
    assert amount(name, "weight_bytes", CROWD) + 2 * gathered == 2 * model.parameters.total
    assert stored_weight_bytes(model, BF16) == 2 * model.parameters.total


@pytest.mark.parametrize(
    "name", [name for name in MODELS if not any(f.routed[0] for f in load_model(name).feedforwards)]
)
def test_a_decode_step_without_experts_reads_every_parameter(name):
    """Where no layer is a mixture, one token reads what a crowd reads."""
    assert amount(name, "weight_bytes", STEP) == amount(name, "weight_bytes", CROWD)


def idle_matrices(model):
    """Matrix parameters of the experts that one token does not go through, from the three widths of an expert."""
    mixtures = [(run.times, run.feedforward) for run in model.layer_runs if run.feedforward.kind == "moe"]
    return sum(
        times * (one.experts - one.experts_per_token) * one.intermediate_size
        * (3 if one.gated else 2) * (one.latent_size or model.hidden_size)
        for times, one in mixtures
    )  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_linear_layers_do_two_operations_an_active_parameter_and_token(name):
    """FLOPs of products and experts are 2 x active matrix parameters x tokens, whatever the architecture."""
    laid, model = layout(name), load_model(name)
    flops = laid.flops @ features(laid.features, (Group(7, 3, 5),))
    blocks = [row.op_class in ("product", "mixture") and row.name != "lm_head" for row in laid.rows]
    assert flops[blocks].sum() == 2 * 35 * (model.parameters.block_matrices - idle_matrices(model))


def row_bytes(mixer):
    """Bytes that attention of one layer reads for one token of context, at 16 bits, from the widths alone."""
    if isinstance(mixer, GroupedQueryAttention):
        return 2 * mixer.kv_heads * (mixer.head_dim + (mixer.value_dim or mixer.head_dim))
    if isinstance(mixer, LatentAttention):  # one latent for all heads; an FP8 key and its scale where there is an index
        return 2 * (mixer.kv_rank + mixer.rope_dim) + (mixer.indexer.head_dim + 4 if mixer.indexer else 0)
    return 0


@pytest.mark.parametrize("name", MODELS)
def test_a_step_reads_kv_for_kv_heads_only(name):
    """Without a window in reach, a step reads KV heads x widths, latents once, and of recurrent layers nothing."""
    each = sum(run.times * row_bytes(run.mixer) for run in load_model(name).layer_runs)
    assert amount(name, "kv_bytes", Group(1, 100, 3)) == each * 101 * 3


MERGED = [
    ("qwen3-8b", 36, 13),
    ("llama-3.1-405b", 126, 13),
    ("gpt2-xl", 48, 12),  # no rotary kernel
    ("gemma-2-9b", 42, 14),  # attention twice: with a window and without
    ("gemma-4-31b", 60, 18),  # two head widths: qkv, rotary, cache write, attention and o twice
    ("bloom-560m", 24, 13),  # a norm behind the embedding, and no rotary kernel
]


@pytest.mark.parametrize(("name", "layers", "rows"), MERGED)
def test_identical_layers_merge_into_one_row(name, layers, rows):
    """The plan has one row for each distinct operator, its launches count the layers, and no two share a name."""
    laid = layout(name)
    assert len(laid.rows) == len({row.name for row in laid.rows}) == rows
    assert amount(name, "launches", STEP, operator="down_proj") == layers


@pytest.mark.parametrize("name", ["qwen3-8b", "gemma-2-9b", "gpt2-xl"])
def test_merging_layers_changes_no_total(name):
    """Launches and work of all rows are those of the layers counted one by one."""
    model = load_model(name)
    apart = [plan(model.model_copy(update={"layers": ((mixer, block, 1),)}), BF16) for mixer, block, _ in model.layers]
    counts = [times for _, _, times in model.layers]
    ends = plan(model.model_copy(update={"layers": ()}), BF16)
    for quantity in QUANTITIES:
        outside = (getattr(ends, quantity) @ features(ends.features, (STEP,))).sum()
        layers = [(getattr(one, quantity) @ features(one.features, (STEP,))).sum() - outside for one in apart]
        assert outside + np.dot(counts, layers) == amount(name, quantity, STEP)


def test_every_chain_of_a_layer_runs_in_order():
    """The rows of Qwen3-8B stand in the order of the pass, under the names that engines use."""
    assert [row.name for row in layout("qwen3-8b").rows] == [
        "embedding", "block_norm", "qkv_proj", "qk_norm_rotary", "kv_write", "attention", "o_proj",
        "gate_up_proj", "silu_mul", "down_proj", "final_norm", "lm_head", "sampling",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["qwen3-8b", "gpt2-xl", "gemma-2-9b"])
@pytest.mark.parametrize("tokens", [1, 2, 512, 2048])
def test_the_output_layer_runs_once_a_sequence(name, tokens):
    """However long the prompts, the output layer's work is that of one position for each of three sequences."""
    model = load_model(name)
    group = Group(tokens, 0, 3)
    assert amount(name, "flops", group, operator="lm_head") == 3 * 2 * model.hidden_size * model.vocabulary
    assert amount(name, "weight_bytes", group, operator="lm_head") == 2 * model.hidden_size * model.vocabulary


def test_a_chunk_that_samples_nothing_skips_the_output_layer():
    """An earlier chunk of a prompt neither runs the output layer nor reads its table nor launches it."""
    chunk = Group(512, 0, 1, 0)
    for operator in ("lm_head", "sampling"):
        for quantity in QUANTITIES:
            assert amount("qwen3-8b", quantity, chunk, operator=operator) == 0


def test_a_verification_samples_every_speculated_position():
    """Verifying four speculated tokens runs the output layer on five positions and reads its table once."""
    verify = Group(5, 2048, 1, 5)
    assert amount("qwen3-8b", "flops", verify, operator="lm_head") == 5 * 2 * 4096 * 151936
    assert amount("qwen3-8b", "weight_bytes", verify, operator="lm_head") == 2 * 4096 * 151936


def test_a_tied_table_is_read_once_as_the_output_layer_and_never_as_the_embedding():
    """Tying moves no byte of a step: the table is the output layer, and the embedding is a gather in both cases."""
    tied = load_model("gpt2-xl")
    untied = tied.model_copy(update={"tied_embeddings": False})
    for quantity in QUANTITIES:
        assert np.array_equal(getattr(plan(tied, BF16), quantity), getattr(plan(untied, BF16), quantity))
    assert untied.parameters.total - tied.parameters.total == 1600 * 50257


FORMATS = [
    # weights            bytes of a matrix weight      cached bytes
    ("fp8",              1.0,                          "fp8"),
    ("fp8-block",        1.0 + 4 / 128**2,             "bf16"),
    ("int4",             (4 + 20 / 128) / 8,           "bf16"),
    ("mxfp4",            (4 + 8 / 32) / 8,             "int8"),
    ("nvfp4",            (4 + 8 / 16) / 8,             "fp8"),
]  # fmt: skip


@pytest.mark.parametrize(("weights", "size", "cache"), FORMATS)
def test_quantised_weights_shrink_the_blocks_matrices_alone(weights, size, cache):
    """Scales are counted; output layer, norms and biases stay at 16 bits; the cache follows its own dtype."""
    precision = Precision(weight_format(weights), Quantisation(default=weights), cache, "bf16")
    parameters = load_model("gpt2-xl").parameters
    sixteen_bits = 2 * (parameters.total - parameters.block_matrices - 1024 * 1600)
    found = amount("gpt2-xl", "weight_bytes", STEP, precision=precision)
    assert found == pytest.approx(parameters.block_matrices * size + sixteen_bits, rel=1e-15)
    assert (
        amount("gpt2-xl", "kv_bytes", STEP, precision=precision) == 307_200 * 2049 * (2 if cache == "bf16" else 1) / 2
    )


def test_products_compute_in_their_format_and_the_rest_in_the_models_dtype():
    """FP8 weights make the blocks' products FP8; output layer, attention and small kernels stay BF16."""
    precision = Precision(weight_format("fp8"), Quantisation(default="fp8"), "bf16", "bf16")
    dtypes = {row.name: row.dtype for row in layout("qwen3-8b", precision).rows}
    quantised = {name for name, dtype in dtypes.items() if dtype == "fp8"}
    assert quantised == {"qkv_proj", "o_proj", "gate_up_proj", "down_proj"}
    assert set(dtypes.values()) == {"fp8", "bf16"}


def test_an_arithmetic_asked_for_is_that_of_the_blocks_products():
    """FP8 arithmetic on 16-bit weights leaves output layer, router and attention in the model's own dtype."""
    precision = Precision(weight_format("bf16"), PLAIN, "bf16", "bf16", compute="fp8")
    dtypes = {row.name: row.dtype for row in layout("qwen3-30b-a3b", precision).rows}
    assert {name for name, dtype in dtypes.items() if dtype == "fp8"} == {"qkv_proj", "o_proj", "experts"}
    assert dtypes["router"] == dtypes["lm_head"] == dtypes["attention"] == "bf16"


def test_groups_are_summed_and_weights_read_once():
    """A chunk and a decode group in one step: work of both, weights and launches of one pass."""
    chunk, decode = Group(512, 1024, 1, 0), Group(1, 2048, 32)
    for quantity in ("flops", "scores", "activation_bytes", "kv_bytes", "input_elements"):
        both = amount("gemma-2-9b", quantity, chunk) + amount("gemma-2-9b", quantity, decode)
        assert amount("gemma-2-9b", quantity, chunk, decode) == both
    for quantity in ("weight_bytes", "launches"):
        assert amount("gemma-2-9b", quantity, chunk, decode) == amount("gemma-2-9b", quantity, decode)


def test_a_sweep_has_one_column_a_point():
    """Arrays that broadcast give the features of each point, the same numbers as one by one."""
    laid = layout("gemma-2-9b")
    contexts, batches = np.array([0, 512, 5000]), np.array([[1], [8]])
    whole = features(laid.features, (Group(1, contexts, batches),))
    single = [features(laid.features, (Group(1, int(c), int(b)),)) for b in batches[:, 0] for c in contexts]
    assert whole.shape == (len(laid.features), 6)
    assert np.array_equal(whole, np.hstack(single))


def test_a_summary_is_one_product_and_one_attention_row():
    """The smallest model: 2 x parameters x tokens, weights once, K and V of its four numbers, and no activations."""
    lump = load_model({"summary": {"parameters": 8_000_000_000, "layers": 32, "kv_heads": 8, "head_dim": 128}})
    laid = plan(lump, BF16)
    x = features(laid.features, (Group(1, 2047, 4),))
    assert [row.name for row in laid.rows] == ["products", "attention"]
    assert (laid.flops @ x)[:, 0].tolist() == [2 * 8e9 * 4, 0]
    assert (laid.weight_bytes @ x)[:, 0].tolist() == [16e9, 0]
    assert (laid.kv_bytes @ x)[:, 0].tolist() == [0, 131_072 * 2048 * 4]
    assert not laid.activation_bytes.any()


def test_a_summary_with_heads_counts_attention():
    """Query heads, where told, add 4 x heads x width x layers operations a query-key pair."""
    shape = {"parameters": 8_000_000_000, "layers": 32, "kv_heads": 8, "head_dim": 128, "heads": 32}
    laid = plan(load_model({"summary": shape}), BF16)
    x = features(laid.features, (Group(1, 2047),))
    assert (laid.flops @ x)[1, 0] == 32 * 4 * 32 * 128 * 2048


def test_a_summary_of_a_mixture_reads_its_distinct_share():
    """One token reads the active part; many tokens approach the whole, never beyond."""
    shape = {"parameters": 8_000_000_000, "active_parameters": 2_000_000_000, "layers": 32, "kv_heads": 8}
    laid = plan(load_model({"summary": {**shape, "head_dim": 128}}), BF16)
    read = [(laid.weight_bytes @ features(laid.features, (Group(1, 0, b),))).sum() for b in (1, 2, 64)]
    assert read[0] == pytest.approx(4e9, rel=1e-12)
    assert read[1] == pytest.approx(4e9 * (1 + 3 / 4), rel=1e-12)
    assert read[2] == pytest.approx(16e9, rel=1e-7)
    assert read[2] < 16e9
    assert (laid.flops @ features(laid.features, (Group(1, 0, 2),))).sum() == 2 * 2e9 * 2
