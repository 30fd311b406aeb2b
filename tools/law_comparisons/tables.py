"""All comparisons by the names of their tables in docs/laws.md."""

from collections.abc import Mapping

from law_comparisons.engine_entries import PACKED, VENDOR, engine_results, pooled_results
from law_comparisons.fp8_cache import fp8_cache
from law_comparisons.judging import Comparison
from law_comparisons.kernel_classes import (
    DECODE,
    MIXTURES,
    PLAIN,
    PREFILL,
    QUANTISED,
    before_attention,
    before_prefill,
    decoding,
    mixtures,
    prefilling,
    products,
)
from law_comparisons.kernels import Kernels, kernel_results
from law_comparisons.steps import small_results, step_results
from rooflinekit.calibration.entries import select

OWN_LEFT = ("other shapes", "device left out")
PHASES = ("prefill", "decode")
EIGHT = "kernels of eight devices"
NARROW = Kernels(
    "products.bf16", products("bf16"), judged=lambda rows: select(rows, op="product", weights="bf16", regime="narrow")
)
ATTENTION = Kernels("attention", decoding, before_attention, lambda rows: select(decoding(rows), regime="dram"))
COMPARISONS: Mapping[str, Comparison] = {
    "products-bf16": Comparison(
        "Products, BF16",
        OWN_LEFT,
        EIGHT,
        lambda: kernel_results(Kernels("products.bf16", products("bf16")), PLAIN),
    ),
    "products-narrow": Comparison(
        "Products, BF16, narrow",
        OWN_LEFT,
        "products below 512 in width or inner width, fitted on the others",
        lambda: kernel_results(NARROW, (*PLAIN[4:5], *PLAIN[6:])),
    ),
    "products-fp8": Comparison(
        "Products, FP8",
        OWN_LEFT,
        EIGHT,
        lambda: kernel_results(Kernels("products.fp8", products("fp8")), QUANTISED),
    ),
    "products-fp4": Comparison(
        "Products, FP4",
        OWN_LEFT,
        EIGHT,
        lambda: kernel_results(Kernels("products.fp4", products("nvfp4")), QUANTISED),
    ),
    "attention-decode": Comparison("Attention, decode", OWN_LEFT, EIGHT, lambda: kernel_results(ATTENTION, DECODE)),
    "attention-prefill": Comparison(
        "Attention, prefill",
        OWN_LEFT,
        EIGHT,
        lambda: kernel_results(Kernels("attention", prefilling, before_prefill), PREFILL),
    ),
    "attention-fp8": Comparison("Attention, FP8 cache", OWN_LEFT, EIGHT, fp8_cache),
    "mixtures-bf16": Comparison(
        "Mixtures, BF16",
        OWN_LEFT,
        EIGHT,
        lambda: kernel_results(Kernels("mixtures.bf16", mixtures("bf16")), MIXTURES),
    ),
    "mixtures-fp8": Comparison(
        "Mixtures, FP8",
        OWN_LEFT,
        EIGHT,
        lambda: kernel_results(Kernels("mixtures.fp8", mixtures("fp8")), MIXTURES),
    ),
    "small": Comparison(
        "Small kernels",
        ("for their width", "for any size"),
        "of the H200, every fifth in turn predicted by the others",
        small_results,
    ),
    "steps": Comparison(
        "Whole steps, H200", PHASES, "steps of ten models, each model predicted by the others", step_results
    ),
    "engine-packed": Comparison(
        "llama.cpp, q4_k on NVIDIA",
        PHASES,
        "single-stream rates, each device predicted by the others",
        lambda: engine_results("llama.cpp", "q4_k", PACKED),
    ),
    "engine-vendor": Comparison(
        "vLLM, BF16 on NVIDIA",
        PHASES,
        "single-stream rates, each device predicted by the others",
        lambda: engine_results("vllm", "bf16", VENDOR),
    ),
    "engine-pooled": Comparison(
        "One entry for all engines",
        PHASES,
        "rates of llama.cpp (q4_k) on the GB10, each model predicted by the others",
        pooled_results,
    ),
}
