"""Kernels against operators: families by name, operators by counts, rates beside ceilings, what a table leaves out."""

from pathlib import Path

import pytest

import rooflinekit as rk
from rooflinekit.calibration.compare_kernels import subtract
from rooflinekit.calibration.kernel_families import family_of, is_cut
from rooflinekit.errors import InvalidInputError

EXAMPLES = Path(__file__).parents[2] / "examples/measurements"
GB10 = rk.Deployment("qwen3-8b", "gb10", engine="vllm-0.31")


def kernels(name):
    """Read a table that the article prints."""
    return rk.read(EXAMPLES / name).records


PREFILL, BOTH = kernels("gb10_prefill.txt"), kernels("gb10_prefill_and_64_steps.txt")


def kernel(seconds, count, name, **facts):
    """Make a record of a kernel."""
    return rk.Measurement(quantity="kernel_time_s", value=seconds, count=count, name=name, **facts)


@pytest.fixture(scope="module")
def prefill():
    """Compare the prefill's table."""
    return rk.compare_kernels(PREFILL, GB10, prompt_tokens=2048)


@pytest.fixture(scope="module")
def decode():
    """Compare 64 decode steps: one table less the other."""
    return rk.compare_kernels(BOTH, GB10, prompt_tokens=2048, steps=64, minus=PREFILL)


def family(found, name):
    """Pick a family."""
    return next(one for one in found.families if one.name == name)


# fmt: off
FAMILIES = [
    # kernel                                                             family
    ("nvjet_sm121_tst_mma_128x208x64_...",                               "product"),
    ("internal::gemvx::kernel<...>",                                     "product"),
    ("void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm>", "product"),
    ("void cublasLt::splitKreduce_kernel<32, 16, int, float>",           "product"),
    ("mul_mat_vec_q<(ggml_type)12, 1>",                                  "product"),
    ("marlin::Marlin<half, 4, 256>",                                     "product"),
    ("Cijk_Alik_Bljk_BBS_BH_MT128x128x64",                               "product"),
    ("flash::flash_fwd_splitkv_kernel<...>",                             "attention"),
    ("void flash_attn_ext_f16<128, 128, 8>",                             "attention"),
    ("kernel_unified_attention_2d",                                      "attention"),
    ("fmha_cutlassF_bf16_aligned_64x128_rf_sm80",                        "attention"),
    ("fused_moe_kernel",                                                 "mixture"),
    ("void vllm::moe::topkGatingSoftmax<8, 128>",                        "mixture"),
    ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL",                         "communication"),
    ("triton_red_fused_fused_add_rms_norm_2",                            "norm"),
    ("void rms_norm_f32<1024, true>",                                    "norm"),
    ("triton_poi_fused_mul_silu_slice_1",                                "activation"),
    ("void vllm::act_and_mul_kernel<c10::BFloat16>",                     "activation"),
    ("void vllm::rotary_embedding_kernel<c10::BFloat16, true>",          "rotary"),
    ("void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16>",         "cache_write"),
    ("void quantize_q8_1(float const*, void*, int)",                     "quantisation"),
    ("selective_scan_fwd_kernel",                                        "scan"),
    ("Memcpy DtoD (Device -> Device)",                                   "copy"),
    ("my_kernel_42",                                                     ""),
]
# fmt: on


@pytest.mark.parametrize(("name", "expected"), FAMILIES)
def test_families(name, expected):
    """A name stands for a class of operators, whichever engine gave it."""
    assert family_of(name) == expected


def test_products_of_the_prefill(prefill):
    """28.5 TFLOP in 333.4 ms: 85 TFLOPS, 91% of the 94 that were measured on the device."""
    found = family(prefill, "product")
    assert found.listed_s == pytest.approx(0.1767 + 0.1567)
    assert found.flops_per_s / 1e12 == pytest.approx(28.45 / 0.3334, rel=1e-3)
    assert found.of_compute == pytest.approx(0.91, abs=5e-3)
    assert (found.ceilings.flops_per_s, found.ceilings.described) == (94e12, "measured")


def test_products_of_the_steps(decode):
    """15.1 GB in 72.2 ms a step: 210 GB/s, 87% of the 241 that were measured on the device."""
    found = family(decode, "matrix-vector product")
    assert found.listed_s / 64 == pytest.approx(0.0722, abs=1e-4)
    assert found.bytes_per_s / 1e9 == pytest.approx(15.14 / 0.0722, rel=2e-3)
    assert found.of_memory == pytest.approx(0.87, abs=5e-3)
    assert found.ceilings.bytes_per_s == 241e9


def test_shares(prefill, decode):
    """Attention and the small kernels have their parts of what is listed: 21.3 of 388.5 ms, 103.5 of 4,730.7."""
    shares = {one.name: one.share for one in prefill.families}
    assert shares == {
        "product": pytest.approx(333.4 / 388.5), "attention": pytest.approx(21.3 / 388.5),
        "activation": pytest.approx(21.6 / 388.5), "norm": pytest.approx(12.2 / 388.5),
    }  # fmt: skip
    assert family(decode, "attention").share == pytest.approx(103.5 / 4730.7)


def test_the_listed_time_is_named(prefill, decode):
    """At least 95% of what is listed is in kernels with an operator, and the operators explain it within 2%."""
    for found in (prefill, decode, rk.compare_kernels(BOTH, GB10, prompt_tokens=2048, steps=64)):
        assert found.named_share > 0.95
        assert found.predicted_s == pytest.approx(found.listed_s, rel=0.02)


def test_listed_explained_and_rest_are_apart(prefill):
    """What the file holds, what operators explain of it, and the difference."""
    for one in prefill.matched:
        assert one.rest_s == one.listed_s - one.explained_s
    assert sum(one.listed_s for one in prefill.matched) == pytest.approx(0.3885)


def test_what_the_prefill_does_not_list(prefill):
    """94.5% are listed: 22.6 ms are not, and the model puts the output layer and small operators there, 29.5 ms."""
    assert prefill.left_out_s == pytest.approx(0.3885 / 0.945 - 0.3885)
    assert prefill.left_out_s / (prefill.left_out_s + prefill.listed_s) == pytest.approx(0.055)
    named = {part.operator for part in prefill.unlisted}
    assert named == {"lm_head", "block_norm", "qk_norm_rotary", "kv_write", "final_norm", "embedding", "sampling"}
    assert prefill.unlisted_s == pytest.approx(sum(part.seconds for part in prefill.unlisted))
    assert prefill.unlisted_s == pytest.approx(0.0295, abs=5e-4)
    head = next(part for part in prefill.unlisted if part.operator == "lm_head")
    assert head.seconds == pytest.approx(0.007, rel=0.2)  # "That one product, a GEMV, took 7 ms"


def test_counts_of_the_prefill(prefill):
    """36 + 108 = 4 x 36: the gate and up projection alone, the three others together."""
    first, second, *_ = prefill.matched
    assert (first.count, second.count, first.count + second.count) == (36, 108, 4 * 36)
    assert first.operators == "prefill: gate_up_proj"
    assert second.operators == "prefill: qkv_proj, o_proj, down_proj"


def test_counts_of_the_steps(decode):
    """4,673 = 73 x 64 + 1: two products a layer and the output layer, and the prefill's output layer once."""
    first, second, *_ = decode.matched
    assert first.arithmetic == "73 x 64 + 1"
    assert first.operators == "decode: gate_up_proj, down_proj, lm_head; prefill: lm_head"
    assert second.arithmetic == "72 x 64"
    assert second.operators == "decode: qkv_proj, o_proj"


def test_launches_that_cancel_are_of_no_operator(decode):
    """The prefill's kernels differ by 3.6 ms between two runs; no launch is left, so no operator is named."""
    rest = [one for one in decode.matched if not one.count]
    assert sum(one.listed_s for one in rest) == pytest.approx(0.0036)
    assert {one.operators for one in rest} == {"none: the launches of two runs cancel"}
    assert not any(one.named for one in rest)


def test_a_cut_name_may_be_two_kernels(decode):
    """2,304 launches are 36 x 64 whole; less the prefill's 36 they are no steps: another kernel, so they are kept."""
    attention = next(one for one in decode.matched if one.family == "attention")
    assert (attention.count, attention.arithmetic) == (2304, "36 x 64")
    assert decode.notes[0] == (
        "flash::flash_fwd_splitkv_kernel<...>: two kernels share this cut name (2,304 and 36 launches): kept"
    )


@pytest.mark.parametrize(
    ("name", "count", "left"),
    [
        ("flash_fwd<...>", 2304, 2304),  # the difference, 2,268, is no multiple of 64
        ("flash_fwd<...>", 2340, 2304),  # the difference is: the same kernel in both
        ("flash_fwd<128>", 2304, 2268),  # a whole name is one kernel
    ],
)
def test_subtracting(name, count, left):
    """A name that was cut is judged by its counts."""
    (one,), notes = subtract([kernel(1.0, count, name)], [kernel(0.25, 36, name)], 64)
    assert (one.count, one.value) == (left, 1.0 if left == count else 0.75)
    assert bool(notes) is (left == count)


def test_cut_names():
    """Both ellipses mark a cut."""
    assert [is_cut(name) for name in ("a<...>", "direct…", "triton_poi_fused")] == [True, True, False]


def test_a_rate_above_a_measured_ceiling_is_no_fault(prefill):
    """Field mistake 28: the activation reads at 104% of 241 GB/s, so the ceiling is too low; 273 is the datasheet's."""
    assert family(prefill, "activation").of_memory == pytest.approx(1.044, abs=5e-3)
    (note,) = prefill.notes
    assert note.startswith("activation (prefill) at 104% of the measured ceiling: its data lay in a cache, or")
    assert note.endswith("the ceiling was measured too low")


CARD = {"bandwidth_gb_per_s": 1000, "peak_dense_tflops": {"bf16": 200}}
UNKNOWN = rk.Deployment("llama-3.1-8b", CARD)
CACHED = rk.Deployment("llama-3.1-8b", {**CARD, "last_level_cache_mib": 48})
#: The output layer reads 128,256 x 4,096 weights of 2 bytes once a step: 1.051 GB, 1.051 ms at 1,000 GB/s.
FAULT, CACHE = "measurement above the ceiling: ", "its data lay in a cache, or"

# fmt: off
ABOVE = [
    # device   ms    batch  the note: what may have lain in the cache is 0.050 GB of 48 MiB, or 0.537 of the largest
    (CACHED,   1.03,   1,   "matrix-vector product (decode) at 102% of the datasheet ceiling: " + CACHE),
    (CACHED,   0.80,   1,   FAULT + "matrix-vector product (decode) at 125% of the datasheet's peak"),  # 1.001 / 0.80
    (UNKNOWN,  0.80,   1,   "matrix-vector product (decode) at 131% of the datasheet ceiling: " + CACHE),
    (UNKNOWN,  0.40,   1,   FAULT + "matrix-vector product (decode) at 129% of the datasheet's peak"),  # 0.514 / 0.40
    (CACHED,   2.00, 512,   FAULT + "product (decode) at 134% of the datasheet's peak"),  # 0.538 TFLOP, 2.69 ms
]
# fmt: on


@pytest.mark.parametrize(("thought", "milliseconds", "batch", "note"), ABOVE)
def test_a_rate_above_the_datasheet(thought, milliseconds, batch, note):
    """Field mistake 28: a cache explains as much of a rate as it holds; anything beyond is a fault, with its figure."""
    listed = [kernel(milliseconds / 1e3, 1, "gemm")]
    found = rk.compare_kernels(listed, thought.with_(memory_check=False), steps=1, context_tokens=1024, batch=batch)
    assert found.matched[0].operators == "decode: lm_head"
    assert found.families[0].ceilings.described == "datasheet"
    (said,) = found.notes
    assert said.startswith(note)
    assert said.endswith("times or counts are at fault")


def test_as_a_table(prefill):
    """A line a kernel."""
    table = prefill.table()
    assert list(table["launches"]) == [36, 108, 36, 36, 36]
    assert list(table["family"]) == ["product", "product", "activation", "attention", "norm"]


@pytest.mark.parametrize("seconds", [0.0, -0.001])
def test_a_difference_may_be_nothing_or_less(seconds):
    """Two runs differ by noise: what is left of a kernel then stands for no operator."""
    found = rk.compare_kernels([*PREFILL, kernel(seconds, 36, "gemm_extra")], GB10, prompt_tokens=2048)
    assert found.matched[-1].parts == ()


def predicted_s(name):
    """Give the predicted time of a product of a prefill of 2,048 tokens, in all layers."""
    return next(row.time_s for row in GB10.prefill(2048).operators if row.name == name)


@pytest.mark.parametrize("part", [1.0, 0.7, 0.55, 1.6])
def test_kernels_of_one_count_keep_their_order(part):
    """All products of a layer at one part of their prediction: none takes the next one's operator, nearer as it is."""
    names = ("gate_up_proj", "down_proj", "qkv_proj", "o_proj")  # 173, 87, 44 and 30 ms: each is half the one before
    listed = [kernel(part * predicted_s(name), 36, f"gemm_{name}") for name in names]
    for order in (listed, listed[::-1]):
        matched = rk.compare_kernels(order, GB10, prompt_tokens=2048).matched
        told = {one.name: one.operators for one in matched}
        assert told == {f"gemm_{name}": f"prefill: {name}" for name in names}


def test_an_unknown_kernel_stays_unexplained():
    """Its time is listed, and nothing is put there."""
    found = rk.compare_kernels([*PREFILL, kernel(0.1, 7, "my_kernel_42")], GB10, prompt_tokens=2048)
    assert found.matched[-1].operators == ""
    assert found.named_share == pytest.approx(0.3885 / 0.4885)
    assert found.left_out_s is None  # one of them has no share


# fmt: off
BAD = [
    ((PREFILL, {}),                                           "prompt_tokens= or steps="),
    (((), {"prompt_tokens": 2048}),                           "needs kernels"),
    ((PREFILL, {"steps": 64}),                                "steps=64: context_tokens= or prompt_tokens="),
    (((kernel(1, 1, "a", includes="x"), kernel(1, 1, "a", includes="y")), {"prompt_tokens": 8}), "kernels of 2 tables"),
]
# fmt: on


@pytest.mark.parametrize(("arguments", "part"), BAD, ids=[part for _, part in BAD])
def test_bad_input(arguments, part):
    """Without kernels, passes, or with several tables there is nothing to compare."""
    records, passes = arguments
    with pytest.raises(InvalidInputError, match=part):
        rk.compare_kernels(records, GB10, **passes)
