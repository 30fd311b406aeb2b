"""Models that only read: their FLOPs by hand, packing of texts, chunks of long ones, and what tokens cost."""

import math

import pytest

import rooflinekit as rk
from rooflinekit.errors import DoesNotFitError, InvalidInputError

READER = rk.Deployment("qwen3-8b", "h100-sxm")
QUIET = rk.load_engine("vllm", prefill_step_host_s=0, eager_layer_s=0, request_host_s=0)


def test_flops_have_no_output_layer():
    """Products of 36 layers x 2 x (4096 x (6144 + 4096 + 24576) + 12288 x 4096), scores of half a square, no more."""
    texts, length = 16, 512
    blocks = 36 * (4096 * (6144 + 4096 + 24_576) + 12_288 * 4096)
    scores = 36 * 4 * 32 * 128 * length * (length + 1) / 2
    read = READER.step(rk.Group(length, 0, texts, 0))
    assert read.flops == pytest.approx(texts * (2 * blocks * length + scores), rel=1e-9)
    assert read.operator("lm_head").flops == 0
    assert READER.prefill(length, batch=texts).operator("lm_head").flops == 2 * texts * 4096 * 151_936


def test_a_pass_is_that_step():
    """With a host that takes no time the figures are those of the packed pass."""
    read = rk.embed(READER, 512, engine=QUIET)
    assert read.texts == 8192 / 512
    assert read.pass_s == pytest.approx(READER.step((512, 0, 16, 0), busy_s=math.inf).time_s)
    assert read.texts_per_s == pytest.approx(16 / read.pass_s)
    assert read.tokens_per_s == pytest.approx(16 * 512 / read.pass_s)
    assert read.alone_s == pytest.approx(READER.step((512, 0, 1, 0), busy_s=math.inf).time_s)


# fmt: off
PACKED = [
    # tokens  settings                                  texts
    (512,     {},                                       16),
    (500,     {},                                       16),
    (8192,    {},                                       1),
    (5000,    {},                                       1),
    (1,       {"max_num_seqs": 100},                    100),
    (512,     {"max_num_batched_tokens": 2048},         4),
]
# fmt: on


@pytest.mark.parametrize(("tokens", "settings", "texts"), PACKED)
def test_whole_texts_fill_the_budget(tokens, settings, texts):
    """As many whole ones as tokens and sequences of a pass allow."""
    assert rk.embed(READER, tokens, engine=QUIET.with_(**settings)).texts == texts


def test_a_long_text_is_read_in_chunks():
    """20,000 tokens under a budget of 8,192: three passes, the later ones after what the earlier ones left."""
    read = rk.embed(READER, 20_000, engine=QUIET)
    passes = [(8192, 0), (8192, 8192), (3616, 16_384)]
    seconds = [READER.step((new, held, 1, 0), busy_s=math.inf).time_s for new, held in passes]
    assert read.texts == 1
    assert read.pass_s == pytest.approx(sum(seconds))


def test_an_engine_that_cuts_nothing_refuses_a_long_text():
    """The line says what to change."""
    with pytest.raises(InvalidInputError, match=r"tokens=20000: tensorrt-llm.* takes 8,192 in a pass"):
        rk.embed(READER, 20_000, engine="tensorrt-llm")


def test_host_times_of_a_pass_and_of_a_request():
    """A step's are in every pass, a request's are what one text waits for."""
    slow = QUIET.with_(prefill_step_host_s=0.010, request_host_s=0.5)
    quiet, read = (rk.embed(READER, 512, engine=engine) for engine in (QUIET, slow))
    assert read.pass_s == pytest.approx(quiet.pass_s + 0.010)
    assert read.alone_s == pytest.approx(quiet.alone_s + 0.510)


def test_no_pool_is_needed():
    """Memory that holds weights and one pass, but no pool of the default settings, reads all the same."""
    card = {"bandwidth_gb_per_s": 1000, "memory_gib": 17.5, "peak_dense_tflops": {"bf16": 100}}
    tight = rk.Deployment("qwen3-8b", card)
    with pytest.raises(DoesNotFitError):
        rk.serve(tight, prompt_tokens=512, output_tokens=1, rate_per_s=1)
    assert rk.embed(tight, 512).tokens_per_s > 0
    with pytest.raises(DoesNotFitError):
        rk.embed(rk.Deployment("llama-3.1-70b", "h100-sxm"), 512)


def test_what_tokens_cost():
    """GPUs x price over tokens; energy at the power limit; no price, no dollars."""
    pair = READER.with_(tensor_parallel=2)
    read = rk.embed(pair, 512, usd_per_hour=3.0)
    assert read.usd_per_million == pytest.approx(2 * 3.0 / 3600 / read.tokens_per_s * 1e6)
    assert read.energy_j == pytest.approx(2 * 700 / read.tokens_per_s)
    assert rk.embed(READER, 512).usd_per_million is None
    assert repr(read).endswith("(h100-sxm-80gb/vllm-0.24/bf16, vllm-0.32)")


@pytest.mark.parametrize("tokens", [0, -5, math.nan, math.inf])
def test_a_text_without_tokens(tokens):
    """One line with the value."""
    with pytest.raises(InvalidInputError, match=rf"tokens={tokens}: expected a number, 1 or more"):
        rk.embed(READER, tokens)
