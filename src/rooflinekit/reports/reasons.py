"""Why rows of the validation sets miss: rules found by looking into the worst of them."""

from fnmatch import fnmatch
from typing import NamedTuple

import pandas as pd


def words(column: pd.Series) -> "pd.Series[str]":
    """Give a column of names, nothing where there is none."""
    return column.astype(object).fillna("").astype(str)


class Reason(NamedTuple):
    """Why rows miss: a condition in the columns of a frame, and one line on it."""

    where: str
    why: str


_LLAMA = "engine.str.startswith('llama.cpp')"
_WHOLE = "set.isin(['h200-steps', 'h200-mixed-steps', 'h200-fp8-steps'])"
_NARROW = "model.isin(['qwen3-0.6b', 'qwen3-1.7b', 'llama-3.2-1b'])"
# fmt: off
# ruff: noqa: E501 - a rule of the table is one line and its reason another
#: The first condition that holds gives a row its reason; all were found by looking into the rows.
REASONS = (
    Reason("abs(log_error) < 0.05", "within 5%: no cause sought"),
    Reason("set == 'gb10-trace' and op.str.contains('matrix-vector')",
           "two kernels for one law: they run at 225 and 165 GB/s, one constant serves both"),
    Reason(f"{_WHOLE} and mixture and phase == 'prefill'", "the mixture's law lies 8-20% above its own kernel rows where experts turn from memory to compute"),
    Reason(f"{_WHOLE} and {_NARROW}", "a model of 1B: pauses and small kernels are most of a step, and all models share them"),
    Reason("set == 'h200-mixed-steps' and tokens >= 2048", "grows with the held context: the kernel table has no row of a chunk over a held context"),
    Reason("set == 'h200-mixed-steps'", "a small chunk beside decoding sequences is slower than the sum of its kernels: cause not found"),
    Reason("set == 'h200-tensor-parallel' and phase == 'decode'",
           "the one-shot all-reduce saves 3 us a launch alone and 1 us or less in these steps: the GPUs wait for each other (inferred)"),
    Reason("set == 'h200-llama.cpp' and phase == 'prefill' and batch == 1 and tokens == 512", "the first prompt of a run of the bench: its warm-up is inside"),
    Reason("set == 'h200-llama.cpp' and phase == 'prefill' and tokens <= 64", "a prompt of a few tokens runs other kernels than a long one"),
    Reason("set == 'h200-llama.cpp' and phase == 'decode' and batch == 1", "one rate serves steps of one and of many sequences: the kernels of batches pull it down"),
    Reason("device == 'b200-sxm' and id.str.startswith('MR8') and phase == 'prefill'",
           "in this source the B200 lags its datasheet: slower than the H100 at short prompts (a fixed cost of about 10 ms), 1.1-1.4 times as fast at long ones"),
    Reason("engine == 'mistral.rs' and phase == 'prefill' and not weights.isin(['', 'bf16', 'fp16'])",
           "unpacks to 16 bits and calls cuBLAS, or not, by device: its rate does not follow from other devices"),
    Reason("model.str.startswith('gemma-4')", "heads of 512: no flash kernel takes them, engines fall back"),
    Reason(f"tier == 'no other device' and {_LLAMA} and id.str.startswith('LHL') and phase == 'prefill' and engine == 'llama.cpp-rocm' and tokens <= 256",
           "no other device to fit on; HIP changes kernels near 64 tokens"),
    Reason("tier == 'no other device' and id.str.startswith('LHL') and engine == 'llama.cpp-vulkan'",
           "no other device to fit on; probably AMDVLK, slower than RADV (inferred by the source)"),
    Reason("tier == 'no other device'", "no other device of the vendor runs the engine: the constants that a fit begins with"),
    Reason(f"{_LLAMA} and id.str.startswith('XJD') and phase == 'prefill' and tokens >= 4096",
           "build of May 2024 before flash attention, at a long prompt"),
    Reason(f"{_LLAMA} and phase == 'prefill' and device.isin(['rtx-6000-ada', 'rtx-5000-ada', 'l40s', 'a40'])",
           "power limit of a workstation card"),
    Reason(f"{_LLAMA} and phase == 'prefill' and weights == 'fp16' and device.str.contains('rtx-[34]0')",
           "FP16 products accumulate in FP16, at up to twice the rate of the datasheet's BF16, not alike on all cards"),
    Reason(f"{_LLAMA} and phase == 'prefill' and batch > 1 and tokens < 2048",
           "prompts of a batch share a micro-batch of 2,048: read here as one after another, each reads the weights"),
    Reason(f"{_LLAMA} and phase == 'prefill' and tokens <= 64", "kernel switch between matrix-vector and matrix kernels at small prompts"),
    Reason(f"{_LLAMA} and phase == 'decode' and mixture and batch >= 16", "experts are chosen less evenly than at random, fewer are read (source)"),
    Reason(f"{_LLAMA} and phase == 'decode' and batch >= 2 and batch <= 8", "switches between matrix-vector and matrix kernels at batch 2-8"),
    Reason("op == 'attention' and device.str.startswith('a100') and phase == 'decode' and batch <= 4", "vLLM 0.14 does not split the KV cache over the GPU at few sequences"),
    Reason("device == 'arc-pro-b60' and op == 'attention' and phase == 'decode' and batch <= 64",
           "vLLM 0.20 on Xe2 leaves bandwidth unused where sequences times KV heads are few: no split of the KV cache"),
    Reason("device == 'arc-pro-b60' and op == 'attention' and phase == 'prefill' and batch == 8 and tokens == 512",
           "one row of the table, ten times slower than its neighbours (4 heads of 128)"),
    Reason("engine == 'autoawq'", "two kernels under one entry: GEMM shares weights among sequences, GEMV does not (notes of the source)"),
    Reason("device == 'h100-sxm-80gb' and weights == 'fp8' and op == 'product' and tokens > 64 and tokens % 16 != 0",
           "row counts that are no multiple of 16 run slower FP8 kernels"),
    Reason("device == 'gb200' and weights == 'bf16' and op == 'product'", "vLLM 0.24 differs from other engines on the same GPU by 9-19% in the source, most at many rows"),
    Reason("op == 'attention' and kv_cache == 'fp8' and device.str.contains('h100|h200|h20')", "an FP8 cache is read at half rate on Hopper"),
    Reason("set == 'closed-form'", "a closed form keeps means: of lengths, of chunks, of what comes together"),
    Reason("set == 'collectives' and engine == 'own_kernel' and tokens >= 524288", "near the size where the engine's kernel changes from one round to two: one constant serves both"),
    Reason("set == 'collectives' and engine == 'own_kernel'", "kernels of a few microseconds: their latency differs by version and by who waits for whom"),
    Reason("set == 'collectives' and device.str.startswith('rtx-pro')", "over PCIe the library changes protocol near half a megabyte; one latency and one rate serve all sizes"),
    Reason("set == 'collectives'", "the library changes protocol at this size"),
    Reason("set == 'served' and id == 's0141'", "by our count the pool holds a part of the 2,048 requests; the measured run hardly waits"),
    Reason("set == 'served' and engine == 'tensorrt-llm' and model == 'deepseek-v3'", "its prefill takes several times what any law gives, at every length: release candidates of 2025 (inferred)"),
    Reason("set == 'served' and engine == 'sglang'", "17 rows of one model: no other tells the host's time, and none of its kernels are in the tables"),
    Reason("set == 'served' and phase.str.startswith('TTFT') and batch >= 32 and measured_s > 3 * predicted_s", "the pool was full (noted in the source, or seen in the time): by our count the requests fit"),
    Reason("set == 'served' and device.str.startswith('h') and model == 'llama-3.3-70b' and phase.str.startswith('TTFT')", "host times of MiniMax-M2.5, fitted on newer versions: these rows show none"),
    Reason("set == 'served' and model.str.startswith('minimax-m2.5') and phase.str.startswith('TPOT') and not model.str.contains('nvfp4')", "kernels for FP8 in blocks are in no table: what they launch is missing at small batches"),
    Reason("set == 'served' and model.str.contains('nvfp4')", "exchange between attention groups is priced as a latency kernel's; this engine gathers"),
    Reason("set == 'served'", "host times come from another model"),
    Reason("tier == 'universal'", "the only device of its generation in the tables: universal constants"),
    Reason("op == 'product'", "cuBLAS or CUTLASS chose another kernel for this shape than for its neighbours"),
)
# fmt: on
UNKNOWN = "not explained"


def reasons(frame: pd.DataFrame) -> "pd.Series[str]":
    """Give each row the reason of the first rule that it meets."""
    names = ("set", "device", "engine", "model", "weights", "kv_cache", "op", "phase", "tier", "id")
    facts = frame.assign(**{name: words(frame[name]) for name in names})
    facts = facts.assign(
        **{name: pd.to_numeric(frame[name]) for name in ("batch", "tokens")}, mixture=frame["mixture"].astype(bool)
    )
    found = pd.Series(UNKNOWN, index=frame.index, dtype=object)
    for rule in reversed(REASONS):
        found[facts.query(rule.where, engine="python").index] = rule.why
    return found


# ---- devices

# fmt: off
#: Part and device -> why that device errs more than others when it is left out.
DEVICES = (
    ("*FP8 products",  "h100*",        "the only Hopper device: universal constants; row counts that are no multiple of 16 run slower kernels (-26% against -7%)"),
    ("*FP8 cache",     "h100*",        "the only Hopper device; it reads an FP8 cache at half rate, which no other device shows"),
    ("*FP8 cache",     "arc-pro-b60",  "the only Intel device; no split of the KV cache: bandwidth falls with few sequences times KV heads"),
    ("*attention*",    "a100*",        "the only Ampere device, and vLLM 0.14: it does not split the KV cache at few sequences"),
    ("*",              "arc-pro-b60",  "the only Intel device: universal constants, from NVIDIA's kernels"),
    ("*",              "a100*",        "the only Ampere device, and vLLM 0.14: universal constants, from newer GPUs and kernels"),
    ("*",              "rtx-pro-6000*", "the only workstation Blackwell: universal constants, from data centre GPUs"),
    ("*products",      "gb300",        "its BF16 products at many rows are slower than those of its generation (power)"),
    ("*FP8 products",  "gb200",        "as the others of its generation, 7-8%"),
    ("prefill, *",     "b200-sxm",     "Gemma-4 in one source whose B200 is slower than its H100 at short prompts: a fixed cost of about 10 ms a prefill"),
    ("prefill, *",     "rtx-6000-ada", "power limit: the card sustains less of its peak than GeForce cards of its generation"),
    ("prefill, *",     "l40s",         "power limit: the card sustains less of its peak than GeForce cards of its generation"),
    ("prefill, *",     "rtx-3080-10gb", "GeForce boosts above its datasheet clock; one constant serves it and power-limited cards (inferred)"),
    ("prefill, *",     "rtx-4080",     "FP16 products accumulate in FP16, and GeForce boosts above its datasheet clock (inferred)"),
    ("prefill, *",     "gb10",         "mistral.rs with quantised weights runs 2 to 3 times as fast here as its rate on H100 and B200 says"),
    ("decode, *",      "apple-m4-max", "five rows of one source; reaches more of its bandwidth than earlier generations"),
    ("decode, *",      "apple-m1-max", "reaches less of its bandwidth than later generations"),
    ("decode, *",      "apple-m1-7c",  "three rows; in the source its 4,096 steps are faster each than its 512 steps, which no law gives"),
    ("decode, *",      "apple-m3-max", "reaches more of its bandwidth than M1 and M2"),
    ("decode, *",      "h100*",        "measured faster than the constants shared with B200 and GB10"),
    ("decode, *",      "b200-sxm",     "measured slower than the constants shared with H100 and GB10"),
    ("decode, mix*",   "gb10",         "experts are chosen less evenly than at random: fewer are read at large batches (source)"),
)
# fmt: on


def device_reason(part: str, device: str) -> str:
    """Say why a device errs more than the others."""
    found = (why for parts, devices, why in DEVICES if fnmatch(part, parts) and fnmatch(device, devices))
    return next(found, UNKNOWN)
