"""Questions and reports of people who do this job: each must get a right answer.

A case is named by its number in our collection and by the public issue it comes from; configurations are in our words.
"""

import numpy as np
import pytest

import rooflinekit as rk
from rooflinekit.operators.moe import distinct_experts
from rooflinekit.serving.capacity import capacity

GIB = 1024**3


def deploy(model, device="h200-sxm", **choices):
    """Make a deployment whose memory is not checked: the cases ask for bytes and times."""
    return rk.Deployment(model, device, memory_check=False, **choices)


# ---- B1: vllm-project/vllm issue 22291


@pytest.mark.parametrize("weights", [None, "int8", "int8-weight-only", "int4"])
def test_b1_quantised_weights_leave_the_cache_alone(weights):
    """Qwen2.5-7B holds 56 KiB a token whatever its weights: 3,072 tokens are the 0.16 GB measured, not 4.59 GB."""
    deployment = deploy("qwen2.5-7b", weights=weights)
    assert deployment.kv_bytes_per_token == 2 * 28 * 4 * 128 * 2 == 57_344
    assert deployment.kv_cache_bytes(3_072) == 176_160_768
    assert deployment.kv_cache_bytes(3_072) / GIB == pytest.approx(0.164, abs=5e-4)


# ---- B2: vllm-project/vllm issue 10517


@pytest.mark.parametrize(("free_gib", "tokens", "blocks"), [(3.81, 31_211, 1_952), (2.89, 23_675, 1_478)])
def test_b2_tokens_that_fit(free_gib, tokens, blocks):
    """Llama-3.1-8B on an RTX 3090: free memory over 131,072 bytes is the reported blocks of 16 within 0.2 %."""
    deployment = deploy("llama-3.1-8b", "rtx-3090")
    fit = free_gib * GIB / deployment.kv_bytes_per_token
    assert fit == pytest.approx(tokens, abs=1)
    assert fit == pytest.approx(16 * blocks, rel=2e-3)


@pytest.mark.parametrize(("budget", "logged_gib"), [(20_000, 3.81), (29_000, 2.89)])
def test_b2_free_memory_depends_on_the_token_budget(budget, logged_gib):
    """At 0.90 of 23.6 GiB the weights leave 6.6 GiB; a pass of 20,000 or 29,000 tokens leaves 3.8 or 2.9 of them."""
    deployment = deploy("llama-3.1-8b", "rtx-3090")
    found = capacity(deployment, engine="vllm-0.10", max_num_batched_tokens=budget, gpu_memory_utilization=0.9)
    naive = 0.9 * deployment.device.memory_bytes - deployment.weights_bytes
    assert naive / GIB == pytest.approx(6.64, abs=5e-3)
    assert found.pool_bytes / GIB == pytest.approx(logged_gib, abs=0.06)


@pytest.mark.parametrize(
    ("free_gib", "length", "fits"), [(3.81, 29_000, True), (2.89, 29_000, False), (2.89, 20_000, True)]
)
def test_b2_a_length_that_no_cache_holds(free_gib, length, fits):
    """23,675 tokens refuse a request of 29,000."""
    deployment = deploy("llama-3.1-8b", "rtx-3090")
    found = capacity(deployment, engine="vllm-0.10", kv_bytes=free_gib * GIB, max_model_len=length)
    assert (found.max_concurrency >= 1) is fits


# ---- B4: jranaraki/vllm-fit issue 14


@pytest.mark.parametrize(
    ("model", "layers", "kv_heads", "head_dim"),
    [("llama-2-7b", 32, 32, 128), ("llama-3.1-8b", 32, 8, 128), ("falcon-7b", 32, 1, 64)],
    ids=["multi-head", "grouped", "multi-query"],
)
def test_b4_the_cache_counts_kv_heads(model, layers, kv_heads, head_dim):
    """Two values a KV head and channel, and no factor of the query heads."""
    assert deploy(model, kv_cache="bf16").kv_bytes_per_token == 2 * layers * kv_heads * head_dim * 2


# ---- B5: LMCache/LMCache pull request 694; gpustack/gguf-parser-go issue 8


def test_b5_a_latent_is_held_once():
    """DeepSeek-V3 holds one latent and one rotary key a layer: 70,272 bytes, where 2 x 512 would give 124,928."""
    deployment = deploy("deepseek-v3", kv_cache="bf16")
    assert deployment.kv_bytes_per_token == 61 * (512 + 64) * 2 == 70_272
    assert deployment.kv_bytes_per_token < (61 * 2 * 512 * 2) / 1.7
    assert deployment.kv_cache_bytes(65_536) / GIB == pytest.approx(4.29, abs=5e-3)


# ---- B7: vllm-project/vllm-metal issue 782


def test_b7_windowed_layers_read_no_more_than_their_window():
    """From 4K to 32K the 25 windowed layers of Gemma 4 26B-A4B read the same, the other 5 eight times as much."""
    short, long = (deploy("gemma-4-26b-a4b", "apple-m3-ultra").decode(tokens) for tokens in (4_095, 32_767))
    assert short.operator("attention[window]").launches == 25
    assert long.operator("attention[window]").kv_bytes == short.operator("attention[window]").kv_bytes
    assert long.operator("attention[window]").kv_bytes == 25 * 1_024 * 2 * 8 * 256 * 2
    assert long.operator("attention[full]").kv_bytes == 8 * short.operator("attention[full]").kv_bytes


def test_b7_the_step_is_nearly_flat_in_context():
    """On the datasheet's roofline a step at 32K takes less than 1.1 times one at 4K; reading all would make it 1.6."""
    deployment = deploy("gemma-4-26b-a4b", "apple-m3-ultra", efficiency="datasheet")
    short, long = deployment.decode(4_095), deployment.decode(32_767)
    assert long.time_s < 1.1 * short.time_s
    unwindowed = 31 * long.operator("attention[window]").memory_time_s
    assert (long.time_s + unwindowed) / short.time_s > 1.6


# ---- B8: vllm-project/vllm issue 40691


def test_b8_a_hybrid_holds_a_constant_and_a_slope():
    """Qwen3.5-35B-A3B holds 20,480 bytes a token in 10 layers and a state in 30: one figure a token would be wrong."""
    deployment = deploy("qwen3.5-35b-a3b", "h20")
    state = 30 * (32 * 128 * 128 * 4 + 3 * (2 * 16 + 32) * 128 * 2)
    assert deployment.kv_bytes_per_token == 10 * 2 * 2 * 256 * 2 == 20_480
    assert deployment.cache.state_bytes == deployment.kv_cache_bytes(0) == state == 64_389_120
    assert deployment.kv_cache_bytes(32_768) == state + 20_480 * 32_768
    assert deployment.kv_cache_bytes(32_768, sequences=33) == 33 * deployment.kv_cache_bytes(32_768)


# ---- B10: NVIDIA/dgx-spark-playbooks pull request 91 (issue 79)


def test_b10_ceiling_of_a_dense_model_in_nvfp4():
    """Llama-3.3-70B reads 38.50 GB with its block scales and 2.10 GB of 16-bit head a token: 6.72 tokens/s on GB10."""
    deployment = deploy("llama-3.3-70b", "gb10", weights="nvfp4", efficiency="datasheet")
    step = deployment.decode(context_tokens=0)
    assert step.operator("lm_head").weight_bytes / 1e9 == pytest.approx(2.10, abs=5e-3)
    assert (step.weight_bytes - step.operator("lm_head").weight_bytes) / 1e9 == pytest.approx(38.50, abs=1e-2)
    assert step.weight_bytes / 1e9 == pytest.approx(40.61, abs=5e-3)
    assert deployment.decode_ceiling_tokens_per_s == pytest.approx(6.72, abs=5e-3)


def test_b10_a_mixture_is_no_dense_model():
    """A mixture of more parameters reads an eighth of the bytes a token, and its ceiling is eight times as high."""
    dense = deploy("llama-3.3-70b", "gb10", weights="nvfp4", efficiency="datasheet")
    mixture = deploy("gpt-oss-120b", "gb10", efficiency="datasheet")
    assert mixture.weights_bytes > dense.weights_bytes
    assert mixture.decode_ceiling_tokens_per_s > 8 * dense.decode_ceiling_tokens_per_s


# ---- B11: antirez/ds4 issue 773


@pytest.mark.parametrize(("gigabytes", "measured", "milliseconds", "share"), [(10, 234, 43, 0.77), (13, 231, 56, 1.01)])
def test_b11_the_byte_count_decides(gigabytes, measured, milliseconds, share):
    """10 to 13 GB a token over a bandwidth that the user measured: 55.5 ms are 77% to 100% of it."""
    lump = {"summary": {"parameters": gigabytes * 10**9, "layers": 43, "kv_heads": 1, "head_dim": 512}}
    card = {"bandwidth_gb_per_s": measured, "peak_dense_tflops": {"bf16": 125, "fp8": 250}}
    deployment = deploy(lump, card, weights="fp8", efficiency="datasheet")
    assert 1e3 / deployment.decode_ceiling_tokens_per_s == pytest.approx(milliseconds, abs=0.5)
    step = rk.Measurement(quantity="decode_step_s", value=0.0555, batch=1, context_tokens=0)
    (row,) = rk.compare([step], deployment).rows
    assert row.mbu == pytest.approx(share, abs=5e-3)


# ---- B13: vllm-project/vllm pull request 54228

TOKENS = [1, 2, 4, 8, 16, 32, 64]
DISTINCT = [8, 15.5, 29.1, 51.6, 82.4, 111.8, 125.9]


def test_b13_distinct_experts_are_an_expectation():
    """Of 128 experts a batch touches 128 (1 - (1 - 8/128)^T) by uniform routing; min(8 T, 128) is its upper bound."""
    expected = distinct_experts(np.array(TOKENS), 128, 8)
    assert expected == pytest.approx(DISTINCT, abs=0.05)
    assert np.all(expected <= np.minimum(8 * np.array(TOKENS), 128))


def test_b13_a_step_reads_the_distinct_experts():
    """The expert bytes of a step of Qwen3-30B-A3B are those of the experts touched, in 48 layers."""
    step = deploy("qwen3-30b-a3b").decode(context_tokens=128, batch=TOKENS)
    expert = 48 * 3 * 2_048 * 768 * 2
    assert step.operator("experts").weight_bytes / expert == pytest.approx(DISTINCT, abs=0.05)


# ---- B17: foundation-model-stack/fms-fsdp issue 89


def test_b17_peaks_are_dense():
    """The 1,979 TFLOPS of an H100 are its 2:4-sparse BF16 rate: the dense one is 989, and FP8 is twice that."""
    peaks = rk.load_device("h100-sxm").flops_per_s
    assert peaks["bf16"] / 1e12 == pytest.approx(989, abs=1)
    assert peaks["fp8"] == pytest.approx(2 * peaks["bf16"], rel=1e-3)


def test_b17_mfu_is_of_the_dense_peak():
    """The 24% that the user finds with the sparse rate are the 48% of the dense one."""
    deployment = deploy("llama-2-7b", "h100-sxm")
    seconds = deployment.prefill(4_096).flops / (0.24 * 1_979e12)
    seen = rk.Measurement(quantity="prefill_time_s", value=seconds, batch=1, prompt_tokens=4_096)
    assert rk.compare([seen], deployment).rows[0].mfu == pytest.approx(0.48, abs=1e-3)


# ---- B18: tenstorrent/tt-metal issue 23477; tenstorrent/vllm issue 138


@pytest.mark.parametrize(
    ("bandwidth", "ideal", "at_85_percent"), [(576, 90.0, 76.5), (288, 45.0, 38.25)], ids=["both chips", "one chip"]
)
def test_b18_ceiling_of_6_4_gigabytes(bandwidth, ideal, at_85_percent):
    """6.4 GB of weights over 2 x 288 GB/s are 90 tokens/s, 76 at 85 %; the published target of 38 is one chip's."""
    device = {"bandwidth_gb_per_s": bandwidth}
    lump = {"summary": {"parameters": 6_400_000_000, "layers": 28, "kv_heads": 4, "head_dim": 128}}
    ceiling = deploy(lump, device, weights="fp8", efficiency="datasheet").decode_ceiling_tokens_per_s
    assert ceiling == pytest.approx(ideal)
    assert 0.85 * ceiling == pytest.approx(at_85_percent)


def test_b18_tensor_parallel_divides_the_weights():
    """Two chips read half of the weights each, at their own 288 GB/s: the ceiling doubles, as at 576 on one."""
    chip = {"bandwidth_gb_per_s": 288, "peak_dense_tflops": {"bf16": 100, "fp8": 100}}
    one = deploy("qwen2.5-7b", chip, weights="fp8", efficiency="datasheet")
    both = one.with_(tensor_parallel=2, interconnect={"one_way_gb_per_s": 32})
    assert both.decode(0).weight_bytes / one.decode(0).weight_bytes == pytest.approx(0.5, abs=2e-3)
    assert both.decode_ceiling_tokens_per_s / one.decode_ceiling_tokens_per_s == pytest.approx(2.0, abs=0.01)


def test_b18_a_rate_above_the_ceiling_is_a_measuring_fault():
    """77.4 tokens/s where 69 are the limit: flagged beside the prediction, and the verdict of a diagnosis."""
    lump = {"summary": {"parameters": 70_600_000_000, "layers": 80, "kv_heads": 8, "head_dim": 128}}
    card = {"bandwidth_gb_per_s": 69 * 70.6, "peak_dense_tflops": {"fp8": 2000}}
    deployment = deploy(lump, card, weights="fp8", efficiency="datasheet")
    facts = {"phase": "decode", "batch": 1, "prompt_tokens": 128, "output_tokens": 128, "count": 127}
    for rate, fault in ((77.4, True), (68.0, False)):
        seen = [rk.Measurement(quantity="output_tokens_per_s", value=rate, **facts)]
        assert rk.compare(seen, deployment).rows[0].below_floor is fault
        assert (rk.diagnose(seen, deployment).cause == "measurement above the ceiling") is fault


# ---- B19: vllm-project/vllm issue 770


def test_b19_a_short_prompt_costs_one_read_of_the_weights():
    """Eight tokens on an A5000: 16.06 GB over 768 GB/s are 21 ms; the other 41 of the 62 ms are the host's."""
    card = {"bandwidth_gb_per_s": 768, "memory_gib": 24, "peak_dense_tflops": {"bf16": 111}}
    deployment = deploy("llama-3-8b", card, efficiency="datasheet")
    assert deployment.weights_bytes / 768e9 == pytest.approx(0.021, abs=5e-4)
    prefill = deployment.prefill(8)
    assert prefill.bound == "memory"
    assert prefill.time_s == pytest.approx(0.0197, abs=5e-4)  # the input table is gathered from, not read: 1.05 GB
    first = rk.Measurement(quantity="time_to_first_token_s", value=0.062, prompt_tokens=8, output_tokens=64, batch=1)
    found = rk.diagnose([first], deployment)
    assert found.verdict.startswith("cannot tell which: host-bound or cold start")
    assert found.findings[0].severity == pytest.approx((0.062 - prefill.time_s,), abs=5e-4)
    assert found.symptoms[0].expected == pytest.approx(prefill.time_s)


# ---- B21: casper-hansen/AutoAWQ issue 106; NVIDIA/TensorRT-LLM issue 2329; vllm-project/llm-compressor issue 2793


def test_b21_weight_only_int4_turns_at_a_quarter_of_the_batch():
    """INT4 weights cut bytes, not arithmetic: compute takes over at about a quarter of the 16-bit batch and prompt."""
    plain = deploy("llama-2-13b", "a100-sxm-80gb", efficiency="datasheet")
    awq = plain.with_(weights="int4")
    assert awq.compute_bound_batch(0) / plain.compute_bound_batch(0) == pytest.approx(0.26, abs=0.02)
    ratio = awq.crossover().closed_form_tokens / plain.crossover().closed_form_tokens
    assert ratio == pytest.approx(4.15625 / 16)


def test_b21_weight_only_int4_gains_at_small_batch_alone():
    """Three times as fast for one sequence, no faster once compute-bound: at 256 sequences, or in a prompt of 3,000."""
    plain = deploy("llama-2-13b", "a100-sxm-80gb", efficiency="datasheet")
    awq = plain.with_(weights="int4")
    alone, few, many = plain.decode(128, batch=[1, 32, 256]).time_s / awq.decode(128, batch=[1, 32, 256]).time_s
    assert 3 < alone < 4
    assert 2 < few < alone
    assert many == pytest.approx(1.0, abs=0.01)
    assert plain.prefill(3_000).time_s / awq.prefill(3_000).time_s == pytest.approx(1.0, abs=0.01)


# ---- B23: turboderp-org/exllamav2 issue 734; exllamav3 issue 295


def test_b23_a_prompt_sends_two_messages_a_layer():
    """Llama-3.3-70B on two ranks: 2 x 80 x 8,192 x 2 bytes, 2.6 MB a token; between stages a state and a residual."""
    two = deploy("llama-3.3-70b", "rtx-3090", weights="int4-g32", tensor_parallel=2)
    assert two.prefill(4_096).message_bytes / 4_096 == pytest.approx(2 * 80 * 8_192 * 2, rel=0.01)
    staged = deploy("llama-3.3-70b", "rtx-3090", weights="int4-g32", pipeline_parallel=2)
    assert staged.prefill(4_096).message_bytes / 4_096 == 2 * 8_192 * 2


# fmt: off
B23 = [
    # link, one way             without messages the prefill would be so many times as fast
    ({"one_way_gb_per_s": 4.0}, 2.0),    # PCIe 3.0 x4 or a chipset's lanes: the reports' machines
    ({"one_way_gb_per_s": 50},  1.0),    # an NVLink bridge
]
# fmt: on


@pytest.mark.parametrize(("link", "times"), B23)
def test_b23_without_messages_a_slow_link_is_wrong_by_a_factor(link, times):
    """Over slow PCIe the messages take more than half of a long prompt, and splitting layers is quicker."""
    two = deploy("llama-3.3-70b", "rtx-3090", weights="int4-g32", tensor_parallel=2, interconnect=link).prefill(4_096)
    alone_s = two.time_s - two.parts["communication"]
    staged = deploy("llama-3.3-70b", "rtx-3090", weights="int4-g32", pipeline_parallel=2).prefill(4_096)
    assert times < two.time_s / alone_s < times + 1.5
    assert (two.time_s > staged.time_s) == (times == 2.0)


def test_b23_the_first_token_comes_later_with_tensor_parallelism():
    """27B on two cards behind slow PCIe, served: a long prompt divided by products takes longer than by layers."""
    load = {"prompt_tokens": 16_000, "output_tokens": 100, "rate_per_s": 1e-3}
    cards = {"weights": "int4-g32", "interconnect": {"one_way_gb_per_s": 4.0}}
    divided, staged = (
        rk.serve(deploy("gemma-3-27b", "rtx-3090", **cards, **layout), **load).time_to_first_token_s.mean
        for layout in ({"tensor_parallel": 2}, {"pipeline_parallel": 2})
    )
    assert divided > 1.1 * staged


# ---- B25: tenstorrent/tt-xla issue 4891


def test_b25_a_batch_helps_decode_and_not_prefill():
    """Prompts of 128 tokens on 512 GB/s: from 4 of them on prefill grows with the batch; 32 steps cost 1.06 of one."""
    card = {"bandwidth_gb_per_s": 512, "peak_dense_tflops": {"bf16": 150}}
    deployment = deploy("llama-3.1-8b", card, efficiency="datasheet")
    batch = np.array([1, 4, 8, 16, 32])
    first, *rest = deployment.prefill(128, batch=batch).time_s
    assert 128 < deployment.crossover().closed_form_tokens < 4 * 128
    assert np.divide(rest[1:], rest[:-1]) == pytest.approx(2, abs=0.04)
    assert 10 < rest[-1] / first < 32
    steps = deployment.decode(128, batch=batch).time_s
    assert steps[-1] / steps[0] == pytest.approx(1.06, abs=0.01)


def test_b25_prompts_that_come_together_wait_for_each_other():
    """32 prompts of 128 tokens at once: their mean TTFT is many times that of one, the gaps between tokens are not."""
    server = deploy("llama-3.1-8b", "h100-sxm")
    load = {"prompt_tokens": 128, "output_tokens": 64, "method": "simulation"}
    one, many = (rk.serve(server, concurrency=n, requests=n, **load) for n in (1, 32))
    assert many.time_to_first_token_s.mean > 1.5 * one.time_to_first_token_s.mean
    assert many.time_per_output_token_s.mean < 1.6 * one.time_per_output_token_s.mean


# ---- B26: NVIDIA/TensorRT-LLM issue 2648


def test_b26_throughput_is_set_by_the_batch():
    """Llama-3-8B on an A100: the 2,000 to 6,553 tokens/s of the reports are the same curve at other batches."""
    batch = np.array([1, 8, 16, 32, 64, 128, 256, 512, 1_024])
    deployment = deploy("llama-3-8b", "a100-sxm-80gb", efficiency="datasheet")
    rate = 250 * batch / deployment.request(35, output_tokens=250, batch=batch).end_to_end_s
    assert np.all(np.diff(rate) > 0)
    assert 1 < np.interp(2_000, rate, batch) < np.interp(5_500, rate, batch) < np.interp(6_553, rate, batch) < 128
    assert rate[4] > 0.8 * 64 * rate[0]
    assert 128 < deployment.compute_bound_batch(160) < 256
    assert rate[-1] == pytest.approx(rate[6], rel=1e-3)


def test_b26_a_served_batch_is_a_setting():
    """The same A100 with 16 sequences at most gives the first figure, with 256 several times as many tokens."""
    server = deploy("llama-3-8b", "a100-sxm-80gb")
    few, many = (
        rk.serve(
            server, prompt_tokens=35, output_tokens=250, concurrency=n, engine=rk.load_engine("vllm", max_num_seqs=n)
        ).output_tokens_per_s
        for n in (16, 256)
    )
    assert few < 2_000
    assert many > 5_500
    assert 3 < many / few < 16


# ---- B27: redhat-performance/configiq issues 8 and 112


def test_b27_two_definitions_of_tpot():
    """Without the first token, or all time over all tokens: two quantities, each with a prediction of its own."""
    request = deploy("llama-3.1-8b").request(2_048, output_tokens=128)
    whole = request.end_to_end_s / 128
    assert request.time_per_output_token_s == pytest.approx(
        (request.end_to_end_s - request.time_to_first_token_s) / 127
    )
    facts = {"batch": 1, "prompt_tokens": 2_048, "output_tokens": 128}
    seen = [
        rk.Measurement(quantity="time_per_output_token_s", value=request.time_per_output_token_s, **facts),
        rk.Measurement(quantity="request_per_token_s", value=whole, **facts),
    ]
    assert whole > 1.03 * request.time_per_output_token_s
    assert [row.error for row in rk.compare(seen, deploy("llama-3.1-8b")).rows] == pytest.approx([0, 0], abs=1e-3)


@pytest.mark.parametrize(("kv_cache", "per_token"), [("bf16", 131_072), ("fp8", 65_536)])
def test_b27_the_cache_has_a_dtype_of_its_own(kv_cache, per_token):
    """Half the bytes at FP8, whatever the weights are in."""
    assert deploy("llama-3.1-8b", weights="int4", kv_cache=kv_cache).kv_bytes_per_token == per_token


# ---- B28: kvcache-ai/ktransformers issue 1156


@pytest.mark.parametrize(
    ("weights", "flops_per_byte"),
    [("bf16", 1.0), ("fp8", 2.0), ("mxfp4", 2 * 8 / 4.25), ("nvfp4", 2 * 8 / 4.5)],
)
def test_b28_a_mixture_is_as_intense_as_a_dense_layer(weights, flops_per_byte):
    """One token reads its own experts alone: 1 FLOP a byte at 16 bits, 2 at 8, and at 4 bits 4 but for the scales."""
    experts = deploy("qwen3-30b-a3b", weights=weights).decode(context_tokens=0).operator("experts")
    assert experts.flops / experts.weight_bytes == pytest.approx(flops_per_byte)
