"""The part that measures small kernels, and the launch of an empty one."""
# ruff: noqa: ANN001, ANN201, ANN202, PLR2004 - of tensors; sizes of kernels

from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import torch
import triton

from h200.fused import (
    add_norm,
    add_norm_fp8,
    fixed,
    norm_rotary,
    quantise_tensor,
    quantise_token,
    quantised,
    rotary,
    silu_mul,
)
from h200.tables import SMALL_COLUMNS, Clock, Table
from h200.timing import DEVICE, noise, timed

BUFFERS = 8  # input sets of a small kernel; as many outputs are kept alive


@triton.jit
def empty_kernel(x):
    """Do nothing."""


class Small(NamedTuple):
    """A small kernel: its name, what it is called with, how many launches a call makes, and the bytes it moves."""

    name: str
    calls: list[Callable[[], object]]
    launches: int
    moved: int


def small_kernels(how: Callable, tokens: int, width: int, head_dim: int = 128, kv_heads: int = 8) -> Iterator[Small]:
    """Yield the small kernels of a decoder of this width."""
    heads, inter = width // head_dim, 3 * width
    gain, head_gain = 1.0 + noise(width, scale=0.1), 1.0 + noise(head_dim, scale=0.1)
    pairs = [(noise(tokens, width), noise(tokens, width)) for _ in range(BUFFERS)]
    yield Small("add_rmsnorm", [lambda p=p: how(add_norm)(*p, gain) for p in pairs], 1, 2 * (4 * tokens + 1) * width)
    yield from small_fp8_kernels(how, pairs, gain)
    fused = [noise(tokens, 2 * inter) for _ in range(BUFFERS)]
    yield Small("silu_mul", [lambda x=x: how(silu_mul)(x) for x in fused], 1, 2 * 3 * tokens * inter)
    del fused
    qkv = [noise(tokens, heads + 2 * kv_heads, head_dim) for _ in range(BUFFERS)]
    tables = noise(tokens, 1, head_dim), noise(tokens, 1, head_dim)
    moved = 2 * 2 * tokens * (heads + kv_heads) * head_dim + 2 * 2 * 2 * tokens * head_dim

    def split(x):
        return x[:, :heads], x[:, heads : heads + kv_heads], x[:, heads + kv_heads :]

    def turn(x, kernel, gains=()):
        return [kernel(part, *gains, *tables) for part in split(x)[:2]]

    yield Small("head_norm_rotary", [lambda x=x: turn(x, how(norm_rotary), (head_gain,)) for x in qkv], 2, moved)
    yield Small("rotary", [lambda x=x: turn(x, how(rotary)) for x in qkv], 2, moved)
    yield kv_write(tokens, [(noise(tokens, kv_heads, head_dim), split(x)[2]) for x in qkv])


def small_fp8_kernels(how: Callable, pairs: list, gain: torch.Tensor) -> Iterator[Small]:
    """Yield the kernels that make FP8 operands; the scale of a whole tensor needs a second reading."""
    numbers, one = pairs[0][0].numel(), torch.ones((), device=DEVICE)
    yield Small("add_rmsnorm_fp8", [lambda p=p: how(add_norm_fp8)(*p, gain, one) for p in pairs], 1, 7 * numbers)
    yield Small("quantise_static", [lambda p=p: how(quantised)(p[0], one) for p in pairs], 1, 3 * numbers)
    yield Small("quantise_token", [lambda p=p: how(quantise_token)(p[0]) for p in pairs], 1, 3 * numbers)
    tensor = [lambda p=p: how(quantise_tensor)(p[0]) for p in pairs]
    yield Small("quantise_tensor", tensor, launches(tensor[0]), 5 * numbers)


def launches(call: Callable[[], object]) -> int:
    """Count the kernels of a call."""
    call()
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
        call()
        torch.cuda.synchronize()
    return sum(kernel.count for kernel in seen.key_averages() if kernel.device_time_total)


def kv_write(tokens: int, news: list) -> Small:
    """Return the KV write: one token for each sequence up to 128 tokens, one sequence beyond."""
    decode = tokens <= 128
    shape = (tokens, 64) if decode else (1, tokens)
    caches = [[noise(*shape, *part.shape[1:]) for part in parts] for parts in news]

    def write(parts, held) -> None:
        for part, cache in zip(parts, held, strict=True):
            if decode:
                cache[:, -1] = part
            else:
                cache[0] = part

    calls = [lambda p=p, c=c: write(p, c) for p, c in zip(news, caches, strict=True)]
    moved = 2 * 2 * sum(part.numel() for part in news[0])
    return Small("kv_write_decode" if decode else "kv_write_prefill", calls, 2, moved)


def repeated(small: Small) -> tuple[float, float, float]:
    """Time one call of a small kernel among many in a graph. [s]"""
    times = 64 if small.moved < 64e6 else 16

    def work() -> None:
        kept: deque[object] = deque(maxlen=BUFFERS)
        for number in range(times):
            kept.append(small.calls[number % BUFFERS]())

    return timed(work, 15, times)


def measure_empty(folder: Path, _clock: Clock) -> None:
    """Measure the launch of a kernel that does nothing."""
    x = noise(16)
    empty = Small("empty", [lambda: empty_kernel[1,](x)] * BUFFERS, 1, 0)
    cells = ("empty", "", "", "", "", "", "", 1, 0)
    Table(folder / "small_kernels.csv", SMALL_COLUMNS).add(*cells, *repeated(empty)[:2])


def measure_small(how: Callable, width: int, folder: Path, clock: Clock) -> None:
    """Measure the small kernels of one width, tokens rising."""
    table = Table(folder / "small_kernels.csv", SMALL_COLUMNS)
    for tokens in (512, 2048):  # a reduction over everything is compiled for the first counts it meets
        how(quantise_tensor)(noise(tokens, width))
    for tokens in (1, 8, 32, 128, 512, 2048, 8192):
        for small in small_kernels(how, tokens, width):
            written = small.name.startswith("kv")
            if clock.over() or (written and how is fixed):  # the KV write is not compiled
                continue
            cells = (small.name, "" if written else how.__name__, tokens, width, width // 128, 8, 128)
            table.add(*cells, small.launches, small.moved, *repeated(small)[:2])
        torch.cuda.empty_cache()
