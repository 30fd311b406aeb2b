"""Capacity against cases B1, B2, B5 and B8 of shared/reference and numbers worked out by hand."""

import numpy as np
import pytest

import rooflinekit as rk
from rooflinekit.errors import DoesNotFitError, InvalidInputError
from rooflinekit.serving import capacity, load_engine, more_room
from rooflinekit.serving.pages import LayerKind, PageGroup, Pages, lay_out
from rooflinekit.serving.share import StateFormat, gpu_share

GIB = 2**30


def held(model, device="h100-sxm", **settings):
    """Size a deployment; `weights`, `kv_cache` and `tensor_parallel` belong to it, the rest to the engine."""
    own = {name: settings.pop(name) for name in ("weights", "kv_cache", "tensor_parallel") if name in settings}
    return capacity(rk.Deployment(model, device, memory_check=False, **own), **settings)


# ---- bytes of a request

# B1: 2 x 28 layers x 4 KV heads x 128 x 2 bytes, whatever the weights are held in; pages of 16 divide 3,072.
# B4: MHA 2 x 32 x 32 x 128 x 2, GQA with 8 of 32 heads a quarter, MQA (Falcon 7B) 2 x 32 x 1 x 64 x 2.
# B5: 61 layers x (512 + 64) x 2, K and V share the latent; on 8 GPUs each holds it whole.
# fmt: off
BYTES = [
    # ours                                                                          published  quantity
    (held("qwen2.5-7b", weights="int8", tensor_parallel=1).bytes_per_token,            57_344, "B1 a token"),
    (held("qwen2.5-7b", weights="int8").reserved_bytes(3072),                     176_160_768, "B1 a request of 3,072"),
    (held("llama-2-7b").bytes_per_token,                                              524_288, "B4 MHA"),
    (held("llama-3.1-8b").bytes_per_token,                                            131_072, "B4 GQA"),
    (held("falcon-7b").bytes_per_token,                                                 8_192, "B4 MQA"),
    (held("deepseek-v3", "h200-sxm", tensor_parallel=8).bytes_per_token,               70_272, "B5 MLA, 8 GPUs"),
    (held("deepseek-v3", "h200-sxm", tensor_parallel=8).reserved_bytes(65_536), 4_605_345_792, "B5 65,536 tokens"),
    (held("llama-3.1-70b", tensor_parallel=8, weights="fp8").bytes_per_token,          40_960, "one KV head a GPU"),
    (held("llama-3.1-70b", tensor_parallel=16, weights="fp8").bytes_per_token,         40_960, "KV heads are copied"),
    (held("llama-3.1-8b").reserved_bytes(17),                                       4_194_304, "two pages of 16"),
    (held("llama-3.1-8b", kv_cache="fp8").bytes_per_token,                             65_536, "its own dtype"),
]
# fmt: on


@pytest.mark.parametrize(("ours", "published", "quantity"), BYTES)
def test_bytes_of_requests(ours, published, quantity):
    """KV heads, not query heads; one latent; the cache's own dtype; pages round up; per GPU."""
    assert ours == published, quantity


# ---- B2

# fmt: off
LOGGED = [
    # pool of the log   tokens   blocks   quantity
    (3.81,              31_232,   1_952,  "the pool that the comment gets"),
    (2.89,              23_648,   1_478,  "the pool with a longer max_model_len"),
]
# fmt: on


@pytest.mark.parametrize(("gib", "tokens", "blocks", "quantity"), LOGGED)
def test_b2_tokens_of_a_logged_pool(gib, tokens, blocks, quantity):
    """131,072 bytes a token: within the 0.2% that a pool printed to 0.01 GiB leaves."""
    found = held("llama-3.1-8b", "rtx-3090", engine="vllm-0.12", kv_bytes=gib * GIB)
    assert found.kv_tokens == pytest.approx(tokens, rel=2e-3), quantity
    assert found.blocks == pytest.approx(blocks, rel=2e-3), quantity


def test_b2_the_peak_grows_with_the_budget():
    """Free memory is not "total x 0.9 - weights": a pass over 29,000 tokens takes some 3 GiB of it."""
    small, large = (
        held("llama-3.1-8b", "rtx-3090", engine="vllm-0.12", max_num_batched_tokens=budget, max_num_seqs=64)
        for budget in (2048, 29_000)
    )
    # (29,000 - 2,048) tokens x 1.7 x (4,096 + 28,672) x 2 bytes
    assert small.pool_bytes - large.pool_bytes == pytest.approx(26_952 * 1.7 * 32_768 * 2)
    assert large.pool_bytes / GIB == pytest.approx(2.89, abs=0.1)
    plain = 0.9 * 24 * GIB - small.share.weight_bytes
    assert plain - small.pool_bytes > 0.8 * GIB


# ---- B8 and other hybrids, digit by digit

# Qwen3.5-27B: 48 states (48 x 128 x 128 x 4 bytes + 3 x 10,240 x 2) and 16 layers of 4,096 bytes a token: a page of
# attention must hold 3,207,168 bytes, so 49 x 16 = 784 tokens; groups of 16: 1 of attention, 3 of states.
# 1,487 blocks: 1,487 // 4 x 784 = 290,864 tokens; 32,768 tokens take 42 + 3 blocks: 33.04 requests.


def test_b8_a_hybrid_prints_tokens_that_are_none():
    """Tokens x concurrency do not fit together: a request has a constant part and a slope, and both are told."""
    pool = 1487 * 16 * 784 * 4096
    found = held("qwen3.5-27b", "h20-141gb", engine="vllm-0.19", kv_bytes=pool, max_model_len=32_768)
    assert (found.pages.block_tokens, len(found.pages.groups), found.blocks) == (784, 4, 1487)
    assert found.kv_tokens == 290_864
    assert found.max_concurrency == pytest.approx(33.04, abs=0.005)
    assert found.max_concurrency * 32_768 > 3.7 * found.kv_tokens
    assert (found.bytes_per_token, found.state_bytes) == (65_536, 48 * 3_207_168)


BUDGET = {"max_num_batched_tokens": 2048}
# fmt: off
HYBRIDS = [
    # model                     settings                                                            tokens   concurrency
    # gpt-oss-20b: 12 + 12 layers of 2,048 bytes: pages of 393,216; 1,024 and a window's ceil(2,175/16) + 1 = 137
    ("gpt-oss-20b",             {"kv": 7.12, "engine": "vllm-0.12", "max_model_len": 16_384, **BUDGET},
                                                                                                    155_536,  16.75),
    # gemma-3-12b: 8 full and 40 window layers of 8,192 bytes: 6 groups of 8; 619 + 5 x (ceil(3,071/16) + 1 = 193)
    ("gemma-3-12b",             {"kv": 16.25, "engine": "vllm-0.11", "max_model_len": 9900, **BUDGET},
                                                                                                     44_368,  10.51),
    # Qwen3-Next on 2 GPUs: states of 548,864 bytes, pages of 544 tokens; 31 + 3
    ("qwen3-next-80b-a3b",      {"kv": 7.09, "engine": "vllm-0.11", "max_model_len": 16_384, "state_value_bytes": 2,
                                 "tensor_parallel": 2},                                             154_496,  33.47),
    # Qwen3.5-122B in FP8: pages of 4,176 tokens; 32 + 3 x 2
    ("qwen3.5-122b-a10b-nvfp4", {"kv": 21.43, "engine": "vllm-0.18", "max_model_len": 131_072, "state_blocks": 2},
                                                                                                    467_712,  11.79),
    # the same with a drafter: 13 layers of attention, one more input of the convolution, one more page a state: 63 + 9
    ("qwen3.5-122b-a10b-nvfp4", {"kv": 24.05, "engine": "vllm-0.18", "max_model_len": 262_144, "state_blocks": 2,
                                 "speculative_tokens": 1},                                          482_080,   6.42),
    # Qwen3.6-35B-A3B with an FP8 cache: pages of 2,096 tokens; 63 + 3 x 2 = 69: tokens are now 13/3 x 131,072
    ("qwen3.6-35b-a3b-nvfp4",   {"kv": 5.98, "engine": "vllm-0.24", "max_model_len": 131_072, "kv_cache": "fp8"},
                                                                                                    567_978,   4.33),
]
# fmt: on


@pytest.mark.parametrize(("model", "settings", "tokens", "concurrency"), HYBRIDS)
def test_hybrids_print_what_their_logs_print(model, settings, tokens, concurrency):
    """Groups of equal size, windows with the tokens in flight, states padded to a page."""
    made = dict(settings)
    engine = load_engine(made.pop("engine"), state_blocks=made.pop("state_blocks", None))
    found = held(model, "gb10", engine=engine, kv_bytes=made.pop("kv") * GIB, **made)
    assert found.kv_tokens == tokens
    assert found.max_concurrency == pytest.approx(concurrency, abs=0.005)


def test_windows_reserve_more_than_they_read():
    """gpt-oss-20b at 8,192 tokens: 512 + 137 pages of 393,216 bytes set aside; 8,192 and 128 tokens of 24,576 read."""
    found = held("gpt-oss-20b", engine="vllm-0.12", max_num_batched_tokens=2048)
    assert found.reserved_bytes(8192) == (512 + 137) * 393_216
    assert found.read_bytes(8192) == (8192 + 128) * 24_576


def test_states_are_read_whatever_the_length():
    """A hybrid's state is there at the first token."""
    found = held("qwen3.5-27b", "h200-sxm")
    assert found.read_bytes(0) == found.state_bytes == 48 * 3_207_168
    assert found.read_bytes(100) - found.read_bytes(0) == 100 * 65_536


# ---- pages


def test_uniform_layers_are_one_group():
    """Layers of several widths share one block where all see everything."""
    assert lay_out([LayerKind(10, 100.0), LayerKind(2, 50.0)], 16) == Pages(16 * 1100.0, (PageGroup(16),))


def test_a_model_of_windows_alone_is_one_group():
    """Every layer keeps its window."""
    pages = lay_out([LayerKind(32, 4096.0, 4096)], 16)
    assert (pages.uniform, pages.blocks_per_request(100_000.0, 2048.0)) == (True, np.ceil((4095 + 2048) / 16) + 1)


def test_nearly_equal_kinds_are_padded_up():
    """12 and 13 layers make two groups of 13, not three of 12."""
    pages = lay_out([LayerKind(12, 8.0, 128), LayerKind(13, 8.0)], 16)
    assert (len(pages.groups), pages.block_bytes) == (2, 13 * 16 * 8.0)


def test_a_narrower_kind_gets_longer_pages():
    """Half the bytes a token, twice the tokens a page; what does not divide is padded."""
    half = lay_out([LayerKind(4, 8.0), LayerKind(4, 4.0, 64)], 16)
    odd = lay_out([LayerKind(4, 8.0), LayerKind(4, 3.0, 64)], 16)
    assert [group.block_tokens for group in half.groups] == [16, 32]
    assert [group.block_tokens for group in odd.groups] == [16, 16]


def test_states_alone_take_a_fixed_number_of_blocks():
    """A model without attention holds as many requests at any length."""
    pages = lay_out([LayerKind(64, 0.0, None, 1000.0)], 16)
    assert (pages.block_bytes, pages.blocks_per_request(5.0), pages.blocks_per_request(5e6)) == (64_000.0, 1.0, 1.0)


def test_what_drafts_is_held_too():
    """The prediction module's layer caches, and every convolution keeps one more input."""
    deployment = rk.Deployment("qwen3-next-80b-a3b", "h200-sxm", memory_check=False)
    plain, drafting = gpu_share(deployment), gpu_share(deployment, StateFormat(None, 1))
    assert drafting.kv_bytes_per_token - plain.kv_bytes_per_token == 2 * 2 * 256 * 2
    assert drafting.state_bytes - plain.state_bytes == 36 * 8192 * 2


# ---- requests


def test_requests_are_vectorised_and_pages_round_up():
    """One call for many lengths; 17 tokens take what 32 take."""
    found = held("llama-3.1-8b", engine="vllm-0.12", kv_bytes=1000 * 16 * 131_072)
    assert found.requests([16, 17, 32, 160]).tolist() == [1000.0, 500.0, 500.0, 100.0]
    assert found.requests(160) == 100.0


def test_a_distribution_takes_the_mean_of_its_pages():
    """Lengths of 1 and 31 take 1 and 2 pages: 1,000 blocks hold 1,000 / 1.5 requests, not those of the mean length."""
    found = held("llama-3.1-8b", engine="vllm-0.12", kv_bytes=1000 * 16 * 131_072)
    assert found.mean_requests([1, 31]) == pytest.approx(1000 / 1.5)
    assert found.requests(16) == 1000


def test_everything_is_per_gpu():
    """Mistake 21: 4 GPUs hold a quarter of the bytes of a token each, and each keeps its own activations."""
    one = held("llama-3.1-8b", "h100-sxm", engine="vllm-0.12")
    four = held("llama-3.1-8b", "h100-sxm", engine="vllm-0.12", tensor_parallel=4)
    assert four.bytes_per_token == one.bytes_per_token / 4
    assert four.kv_tokens > 4 * one.kv_tokens  # the weights are divided too
    # capacity's own argument does the same
    again = capacity(rk.Deployment("llama-3.1-8b", "h100-sxm"), engine="vllm-0.12", tensor_parallel=4)
    assert again.kv_tokens == four.kv_tokens
    # 32 layers of two KV heads, 2 x 2 x 128 x 2 bytes each: pages of 16 such tokens in the pool of one GPU
    assert four.kv_tokens == four.pool_bytes // (16 * 32_768) * 16
    assert four.requests(1600) == four.kv_tokens / 1600


def test_every_gpu_has_a_peak_of_its_own():
    """Mistake 21: of each of 26,952 tokens more all 4 GPUs hold 1.7 x (4,096 + 28,672 / 4) x 2 bytes, not a fourth."""
    small, large = (
        held("llama-3.1-8b", engine="vllm-0.12", tensor_parallel=4, max_num_batched_tokens=budget, max_num_seqs=64)
        for budget in (2048, 29_000)
    )
    assert small.pool_bytes - large.pool_bytes == pytest.approx(26_952 * 1.7 * (4096 + 7168) * 2)


# ---- terms


def test_terms_sum_to_the_pool_and_say_why():
    """Llama-3.1-8B on an H100: (80 - 0.29 - 0.0054 x 80) x 0.92, less four named terms."""
    found = held("llama-3.1-8b", graph_bytes=GIB)
    terms = {term.name: term.bytes / GIB for term in found.terms}
    assert terms["memory"] == pytest.approx(80 - 0.29 - 0.0054 * 80)
    assert terms["left to others"] == pytest.approx(-0.08 * terms["memory"])
    assert terms["weights"] == pytest.approx(-8_030_261_248 * 2 / GIB)
    assert terms["graphs"] == -1
    assert sum(terms.values()) * GIB == pytest.approx(found.pool_bytes)
    assert all(term.reason for term in found.terms)


def test_graphs_are_on_top_before_0_21():
    """The same settings leave less from 0.21 on."""
    before, after = held("llama-3.1-8b", engine="vllm-0.20"), held("llama-3.1-8b", engine="vllm-0.21", graph_bytes=GIB)
    assert before.pool_bytes - after.pool_bytes == pytest.approx(GIB)
    assert "graphs" not in {term.name for term in before.terms}


def test_sglang_reserves_by_its_own_rule():
    """512 + 1.5 x 8,192 + 128 + 2 x 256 MiB = 13,440 of 81,920: a fraction of 0.836 for weights and pool."""
    found = held("llama-3.1-8b", engine="sglang")
    assert found.pool_bytes == pytest.approx(0.836 * 80 * GIB - 8_030_261_248 * 2)
    given = held("llama-3.1-8b", engine="sglang", gpu_memory_utilization=0.93)
    assert given.pool_bytes == pytest.approx(0.93 * 80 * GIB - 8_030_261_248 * 2)


def test_tensorrt_llm_takes_a_part_of_what_is_free():
    """Nine tenths of what weights and one pass leave."""
    found = held("llama-3.1-8b", engine="tensorrt-llm")
    taken = sum(term.bytes for term in found.terms if term.name != "left free")
    assert found.pool_bytes == pytest.approx(0.9 * taken)


def test_llama_cpp_reserves_a_context_for_all_slots():
    """8,192 cells of 131,072 bytes, which four slots share: a request of 4,096 tokens leaves room for one more."""
    found = held("llama-3.1-8b", "rtx-4090", engine="llama.cpp", max_model_len=8192)
    assert found.pool_bytes == pytest.approx(8192 * 131_072)
    assert (found.kv_tokens, found.requests(4096), found.requests(512), found.requests(10_000)) == (8192, 2, 4, 0)


def test_ollama_gives_every_slot_its_own_context():
    """Two slots of 4,096 tokens are 8,192 cells."""
    engine = load_engine("ollama", max_num_seqs=2)
    found = held("llama-3.1-8b", "rtx-4080", weights="q4_k_m", engine=engine)
    assert found.pool_bytes == pytest.approx(2 * 4096 * 131_072)
    assert (found.kv_tokens, found.requests(4096), found.requests(5000)) == (8192, 2, 0)


def test_window_cells_of_llama_cpp():
    """Gemma 3 12B: window layers keep min(4,096, 1,024 + 512) = 1,536 cells (Ollama's own test says so)."""
    found = held("gemma-3-12b", "h100-sxm", engine="llama.cpp", max_model_len=4096)
    assert found.pool_bytes == pytest.approx((8 * 4096 + 40 * 1536) * 8192)


# fmt: off
NO_ROOM = [
    # model            device      settings                                   told
    ("llama-3.1-70b", "h100-sxm",  {},                                        "leaves no room for K and V"),
    ("llama-3.1-8b",  "rtx-4090",  {"gpu_memory_utilization": 0.6},           "a higher `gpu_memory_utilization=`"),
    ("llama-3.1-8b",  "rtx-4090",  {"engine": "llama.cpp"},                   "a shorter context"),
    ("llama-3.1-8b",  "rtx-4090",  {"kv_bytes": 1.0},                         "leaves no room"),
]
# fmt: on


@pytest.mark.parametrize(("model", "device", "settings", "told"), NO_ROOM)
def test_no_room_is_an_error_with_its_terms(model, device, settings, told):
    """What is missing, and what would help under this engine."""
    with pytest.raises(DoesNotFitError, match=told):
        held(model, device, **settings)


@pytest.mark.parametrize("wrong", [{"kv_bytes": -1}, {"weight_bytes": float("nan")}, {"graph_bytes": -1}])
def test_wrong_bytes_are_refused(wrong):
    """A log's bytes are no less than nothing."""
    with pytest.raises(InvalidInputError, match=next(iter(wrong))):
        held("llama-3.1-8b", **wrong)


def test_lengths_must_be_positive():
    """A request of no tokens holds nothing."""
    with pytest.raises(InvalidInputError, match="tokens"):
        held("llama-3.1-8b").requests(0)


# ---- what would free how much


def test_levers_are_computed_anew():
    """FP8 K and V halve a token; FP8 weights free a byte a block parameter; 0.05 of the memory; half a budget."""
    found = held("llama-3.1-8b", "rtx-4090", engine="vllm-0.12")
    gains = {lever.change: lever for lever in more_room(found, 8192)}
    assert gains["K and V in fp8"].more_bytes == 0
    assert gains["K and V in fp8"].requests == pytest.approx(2 * found.requests(8192), rel=1e-3)
    assert gains["weights in fp8"].more_bytes == pytest.approx(found.deployment.model.parameters.block_matrices)
    assert gains["gpu_memory_utilization 0.95"].more_bytes == pytest.approx(0.05 * found.terms[0].bytes)
    assert gains["token budget 1,024"].more_bytes == pytest.approx(1024 * 1.7 * 32_768 * 2)


def test_levers_leave_out_what_is_used_already():
    """No FP8 for what is in FP8 or less; no fraction above 1; nothing that a given pool does not show."""
    used = held("llama-3.1-8b", kv_cache="fp8", weights="fp8", gpu_memory_utilization=0.98)
    assert [lever.change for lever in more_room(used, 8192)] == ["token budget 4,096"]
    given = held("llama-3.1-8b", kv_bytes=10 * GIB)
    assert [lever.change for lever in more_room(given, 8192)] == ["K and V in fp8"]
    smaller = held("gpt-oss-20b", engine="vllm-0.12")
    assert "weights in fp8" not in {lever.change for lever in more_room(smaller, 8192)}
