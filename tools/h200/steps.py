"""The parts that measure whole steps of decoders."""
# ruff: noqa: T201 - a profile is printed

from pathlib import Path

import torch
from torch.nn.attention import sdpa_kernel

from h200.decoder import BACKENDS, Decoder
from h200.fused import fixed
from h200.shapes import LLAMA_8B, MODELS, QWEN_8B, QWEN_MOE, Row, decodes, prefills
from h200.tables import STEP_COLUMNS, Clock, Table
from h200.timing import clean


def measure_steps(folder: Path, clock: Clock) -> None:
    """Measure whole BF16 steps of further models."""
    table = Table(folder / "more_steps.csv", STEP_COLUMNS)
    for shape in MODELS:
        Decoder(shape).measure(prefills() + decodes(), table, clock)
        clean()


def measure_fp8(folder: Path, clock: Clock) -> None:
    """Measure steps with FP8 weights."""
    table = Table(folder / "more_steps.csv", STEP_COLUMNS)
    rows = prefills((512, 2048)) + decodes()
    for shape in (QWEN_8B, LLAMA_8B):
        for weights in ("fp8-dynamic", "fp8-static", "fp8-dynamic-token"):
            Decoder(shape, weights).measure(rows, table, clock)
            clean()


def measure_moe_steps(folder: Path, clock: Clock) -> None:
    """Measure whole steps of a mixture."""
    table = Table(folder / "more_steps.csv", STEP_COLUMNS)
    rows = prefills((128, 512, 2048, 4096)) + decodes()
    Decoder(QWEN_MOE).measure(rows, table, clock)
    clean()


def measure_fixed(folder: Path, clock: Clock) -> None:
    """Measure fewer BF16 steps with small kernels compiled for their widths."""
    table = Table(folder / "fixed_width_steps.csv", STEP_COLUMNS)
    rows = prefills((1, 128, 512, 2048, 8192)) + decodes(contexts=(2048,))
    for shape in (*MODELS, QWEN_8B, LLAMA_8B):
        Decoder(shape, compiled=fixed).measure(rows, table, clock)
        clean()


def reproduce(folder: Path, clock: Clock) -> None:
    """Measure steps of models that have been measured before, and list the kernels of three of them."""
    table = Table(folder / "reproduced_steps.csv", STEP_COLUMNS)
    for shape in (QWEN_8B, LLAMA_8B):
        decoder = Decoder(shape)
        decoder.measure(prefills() + decodes(), table, clock)
        if shape is QWEN_8B:
            for row in (Row(1, 2048, 2048), Row(1, 1, 2048), Row(32, 1, 2048)):
                profile(decoder, row)
        del decoder
        clean()


def profile(decoder: Decoder, row: Row) -> None:
    """Print the sums of the kernels of one eager step."""
    work = decoder.prepared(row)
    with sdpa_kernel(BACKENDS, set_priority=True):
        work()
        torch.cuda.synchronize()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
            work()
            torch.cuda.synchronize()
    print(row)
    for kernel in sorted(seen.key_averages(), key=lambda one: -one.device_time_total)[:14]:
        print(f"  {kernel.key[:90]:90} {kernel.count:4} {kernel.device_time_total:10.1f}")
