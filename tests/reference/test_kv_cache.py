"""What a sequence holds in memory: published bytes per token, and a table of eighteen architectures.

The cache is 16-bit, states are 32-bit with 16-bit convolution inputs, and nothing is rounded to blocks.
"""

import pytest

from rooflinekit import Deployment

# fmt: off
PER_TOKEN = [
    # model                           bytes    source
    ("qwen3-8b",                      147_456),  # 144 KiB: "Prefill vs. Decode"; kaito-project/kaito generator_test.go
    ("llama-3.1-8b",                  131_072),  # 128 KiB: paper-digest.app/en/papers/hn_47558733
    ("deepseek-v3",                   70_272),   # kaito generator_test.go; 70 KB in reviews of arXiv 2505.09343
    ("llama-3.1-405b",                516_096),  # 516 KB in reviews of arXiv 2505.09343
    ("qwen2.5-72b",                   327_680),  # from memory (arXiv 2505.09343 table), unverified
    ("gpt2-xl",                       307_200),  # 300 KiB for "GPT-2": paper-digest.app/en/papers/hn_47558733
    ("phi-4-mini",                    131_072),  # kaito generator_test.go
    ("phi-4",                         204_800),  # kaito generator_test.go
    ("falcon-7b",                     8_192),    # kaito generator_test.go (multi-query)
    ("gemma-3-4b",                    139_264),  # kaito generator_test.go (windowed layers counted as full)
    ("qwen3-30b-a3b",                 98_304),   # kaito generator_test.go (Qwen3-Coder-30B-A3B, same shape)
    ("mistral-7b-v0.3",               131_072),  # kaito generator_test.go
    ("devstral-small-2507",           163_840),  # measured in vLLM 0.11.0 for Mistral-Small-3.2-24B, the same text
                                                 # shape: llm-d-planner docs/empirical-vllm-memory-results.md
    ("glm-5.2",                       89_856),   # inference-sim glm_model_shape_test.go: latents, see INDEX
    ("deepseek-v2-lite",              31_104),   # inference-sim/inference-sim sim/latency/kv_capacity_test.go
    ("glm-4.7-flash",                 54_144),   # 47 x 576 x 2, a public test whose repository is not recorded
    ("seed-oss-36b",                  262_144),  # 256 KiB: the same test
    ("nemotron-3.5-lightning-30b-a3b", 6_144),   # 6 x 2 x 128 x 2 x 2: the same test
]

#: Keys of the sparse indexer that the published figure leaves out: 21 layers, 128 bytes and a 32-bit scale each.
INDEX = {"glm-5.2": 21 * (128 + 4)}

TABLE = [
    # model                          full     windowed (window)   state        MiB at 8k  MiB at 128k
    ("qwen3-8b",                     147_456, {},                 0,           1152.0,    18432.0),
    ("gpt-oss-20b",                  24_576,  {128: 24_576},      0,           195.0,     3075.0),
    ("gpt-oss-120b",                 36_864,  {128: 36_864},      0,           292.5,     4612.5),
    ("gemma-2-9b",                   172_032, {4096: 172_032},    0,           2016.0,    22176.0),
    ("gemma-3-27b",                  81_920,  {1024: 425_984},    0,           1056.0,    10656.0),
    ("gemma-4-e2b",                  6_144,   {512: 12_288},      0,           54.0,      774.0),
    ("llama-4-scout",                49_152,  {8192: 147_456},    0,           1536.0,    7296.0),
    ("deepseek-v3",                  70_272,  {},                 0,           549.0,     8784.0),
    ("deepseek-v3.2",                78_324,  {},                 0,           611.9,     9790.5),  # 8,052 index keys
    ("qwen3-next-80b-a3b",           24_576,  {},                 77_266_944,  265.7,     3145.7),
    ("qwen3.5-27b",                  65_536,  {},                 153_944_064, 658.8,     8338.8),
    ("nemotron-3-nano-30b-a3b",      6_144,   {},                 49_082_368,  94.8,      814.8),
    ("granite-4.0-h-small",          16_384,  {},                 152_819_712, 273.7,     2193.7),
    ("jamba-v0.1",                   16_384,  {},                 16_056_320,  143.3,     2063.3),
    ("mamba-codestral-7b",           0,       {},                 272_367_616, 259.8,     259.8),
    ("minimax-m1",                   40_960,  {},                 293_601_280, 600.0,     5400.0),
    ("mimo-v2-flash",                23_040,  {128: 199_680},     0,           204.4,     2904.4),
    ("llama-3.3-nemotron-super-49b", 200_704, {},                 0,           1568.0,    25088.0),
]
# fmt: on

MIB = 1024**2


def held(model):
    """Hold a model's cache at 16 bits on a device that need not be large enough for its weights."""
    return Deployment(model, "h200-sxm", kv_cache="bf16", memory_check=False)


@pytest.mark.parametrize(("model", "published"), PER_TOKEN)
def test_bytes_per_token(model, published):
    """One token adds the published bytes, every layer counted, and the keys of an indexer beside them."""
    assert held(model).kv_bytes_per_token == published + INDEX.get(model, 0)


@pytest.mark.parametrize(("model", "full", "windowed", "state"), [row[:4] for row in TABLE])
def test_parts_of_the_cache(model, full, windowed, state):
    """Bytes per token, by window, and the bytes of the state are the table's to the byte."""
    cache = held(model).cache
    assert dict(cache.bytes_by_window) == {**({None: full} if full else {}), **windowed}
    assert cache.state_bytes == state


@pytest.mark.parametrize(("model", "short", "long"), [(row[0], *row[4:]) for row in TABLE])
def test_cache_of_a_sequence(model, short, long):
    """What 8k and 128k tokens hold is the table's to the tenth of a MiB that it prints."""
    deployment = held(model)
    assert deployment.kv_cache_bytes(8 * 1024) / MIB == pytest.approx(short, abs=0.0501)
    assert deployment.kv_cache_bytes(128 * 1024) / MIB == pytest.approx(long, abs=0.0501)


@pytest.mark.parametrize(
    ("model", "full"), [("gemma-3-27b", 81_920), ("llama-4-scout", 49_152), ("mimo-v2-flash", 23_040)]
)
def test_a_windowed_cache_stops_growing(model, full):
    """Beyond the window one token adds the bytes of the full layers alone."""
    deployment = held(model)
    assert deployment.kv_cache_bytes(100_001) - deployment.kv_cache_bytes(100_000) == full


def test_layers_that_share_keys_and_values_hold_none():
    """The last 15 of 35 layers of Gemma 3n read another layer's cache: 20 x 2 x 2 x 256 values are left."""
    assert held("gemma-3n-e4b").kv_bytes_per_token == 20 * 2 * 2 * 256 * 2
