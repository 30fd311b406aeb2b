"""Measure one NVIDIA GPU as src/rooflinekit/references/h200/MEASURED.md tells.

``python tools/measure_h200.py FOLDER PART [PART ...] [--seconds LIMIT]`` adds rows to the tables in FOLDER, which
exists. Parts: ``check``, ``reproduce``, ``small-empty``, ``small-sized-1024`` and so on, ``steps``, ``fixed``,
``fp8``, ``mixture``, ``moe-steps``; give each a process of its own. Needs PyTorch with CUDA and Triton.
"""
# ruff: noqa: INP001, T201 - a script: no package, prints what it measures
# ruff: noqa: ANN001, ANN201, ANN202, N803, PLR0917, PLR2004 - Triton kernels take bare pointers and sizes
# ruff: noqa: D102 - a method's name says it

import argparse
import csv
import functools
import gc
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as nn
import triton
import triton.language as tl
from torch.nn.attention import SDPBackend, sdpa_kernel

BF16, FP8 = torch.bfloat16, torch.float8_e4m3fn
FP8_MAX = 448.0
EPS = 1e-6
DEVICE = "cuda"
BACKENDS = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION]  # cuDNN refuses to attend to one token
USABLE_BYTES = 132e9
BUFFERS = 8  # input sets of a small kernel; as many outputs are kept alive
DECODE_BATCHES, DECODE_CONTEXTS = (1, 8, 32, 64), (512, 2048, 8192)
PREFILLS = (1, 16, 128, 512, 1024, 2048, 4096, 8192)
STEP_COLUMNS = (
    "model", "weights", "phase", "batch", "prompt_tokens", "context_tokens", "seconds", "seconds_best", "seconds_worst",
)  # fmt: skip
SMALL_COLUMNS = (
    "kernel", "compiled", "tokens", "width", "heads", "kv_heads", "head_dim", "launches", "bytes_moved", "seconds",
    "seconds_best",
)  # fmt: skip
MIXTURE_COLUMNS = (
    "dtype", "num_tokens", "hidden_size", "inter_size", "topk", "num_experts", "distinct_experts_mean", "seconds",
    "seconds_best",
)  # fmt: skip


class Shape(NamedTuple):
    """Sizes of one decoder."""

    name: str
    layers: int
    hidden: int
    inter: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    qk_norm: bool = True
    tied: bool = False
    experts: int = 0
    topk: int = 0


QWEN_8B = Shape("qwen3-8b", 36, 4096, 12288, 32, 8, 128, 151936)
LLAMA_8B = Shape("llama-3.1-8b", 32, 4096, 14336, 32, 8, 128, 128256, qk_norm=False)
QWEN_MOE = Shape("qwen3-30b-a3b", 48, 2048, 768, 32, 4, 128, 151936, experts=128, topk=8)
MODELS = (
    Shape("qwen3-0.6b", 28, 1024, 3072, 16, 8, 128, 151936, tied=True),
    Shape("qwen3-1.7b", 28, 2048, 6144, 16, 8, 128, 151936, tied=True),
    Shape("qwen3-4b", 36, 2560, 9728, 32, 8, 128, 151936, tied=True),
    Shape("llama-3.2-1b", 16, 2048, 8192, 32, 8, 64, 128256, qk_norm=False, tied=True),
    Shape("llama-3.2-3b", 28, 3072, 8192, 24, 8, 128, 128256, qk_norm=False, tied=True),
    Shape("qwen3-14b", 40, 5120, 17408, 40, 8, 128, 151936),
    Shape("qwen3-32b", 64, 5120, 25600, 64, 8, 128, 151936),
)


class Row(NamedTuple):
    """One step: ``new`` tokens for each of ``batch`` sequences that hold ``context`` tokens afterwards."""

    batch: int
    new: int
    context: int

    @property
    def prefill(self) -> bool:
        return self.batch == 1 and self.new == self.context

    def cells(self) -> tuple[object, ...]:
        if self.prefill:
            return "prefill", 1, self.new, ""
        return "decode", self.batch, "", self.context


class Table:
    """A CSV file that is complete after every row."""

    def __init__(self, path: Path, columns: tuple[str, ...]) -> None:
        self.path = path
        if not path.exists():
            self._write(columns)

    def add(self, *cells: object) -> None:
        self._write([f"{cell:.6g}" if isinstance(cell, float) else cell for cell in cells])
        print(self.path.stem, *cells, flush=True)

    def _write(self, cells) -> None:
        with self.path.open("a", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerow(cells)


class Clock:
    """The time that a part may take."""

    def __init__(self, seconds: float) -> None:
        self.end = time.monotonic() + seconds

    def over(self) -> bool:
        return time.monotonic() > self.end


def noise(*shape: int, scale: float = 1.0, dtype: torch.dtype = BF16) -> torch.Tensor:
    """Return random normal numbers; never zeros, which run faster."""
    made = torch.empty(shape, dtype=BF16, device=DEVICE).normal_(0.0, scale)
    return made if dtype == BF16 else made.to(dtype)


# --- timing ----------------------------------------------------------------------------------------------------------


def capture(work: Callable[[], object]) -> torch.cuda.CUDAGraph:
    """Call the work twice, then record it as a graph."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            work()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph


def replay(graph: torch.cuda.CUDAGraph, times: int, calls: int = 1) -> tuple[float, float, float]:
    """Return the median, best and worst time of one call, over replays without a pause. [s]"""
    for _ in range(2):
        graph.replay()
    events = [torch.cuda.Event(enable_timing=True) for _ in range(2 * times)]
    for start, end in zip(events[::2], events[1::2], strict=True):
        start.record()
        graph.replay()
        end.record()
    torch.cuda.synchronize()
    taken = [start.elapsed_time(end) / 1e3 / calls for start, end in zip(events[::2], events[1::2], strict=True)]
    return statistics.median(taken), min(taken), max(taken)


def timed(work: Callable[[], object], times: int, calls: int = 1) -> tuple[float, float, float]:
    """Capture the work and time its replays. [s]"""
    graph = capture(work)
    taken = replay(graph, times, calls)
    graph.reset()
    return taken


def clean() -> None:
    """Forget compiled functions and give memory back: the next model starts as the first did."""
    torch._dynamo.reset()  # noqa: SLF001 - the only way to start dynamic shapes afresh
    gc.collect()
    torch.cuda.empty_cache()


# --- small kernels, fused by torch.compile ---------------------------------------------------------------------------


def add_norm(x, residual, weight):
    """Return the RMS norm of the sum, and the sum."""
    total = x.float() + residual.float()
    scaled = total * torch.rsqrt(total.pow(2).mean(-1, keepdim=True) + EPS)
    return scaled.to(BF16) * weight, total.to(BF16)


def norm_rotary(x, weight, cosine, sine):
    """Norm every head, then turn it by its position."""
    wide = x.float()
    wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + EPS)
    wide = wide.to(BF16) * weight
    left, right = wide.chunk(2, -1)
    return (wide * cosine + torch.cat((-right, left), -1) * sine).to(BF16)


def rotary(x, cosine, sine):
    """Turn every head by its position."""
    left, right = x.chunk(2, -1)
    return (x * cosine + torch.cat((-right, left), -1) * sine).to(BF16)


def silu_mul(x):
    """Return SiLU of the first half times the second half."""
    gate, up = x.chunk(2, -1)
    return nn.silu(gate) * up


def quantised(x, inverse):
    """Return FP8 by a known scale."""
    return (x.float() * inverse).clamp(-FP8_MAX, FP8_MAX).to(FP8)


def add_norm_fp8(x, residual, weight, inverse):
    """As add_norm, with the norm leaving as FP8."""
    normed, total = add_norm(x, residual, weight)
    return quantised(normed, inverse), total


def silu_mul_fp8(x, inverse):
    """As silu_mul, leaving as FP8."""
    return quantised(silu_mul(x), inverse)


def quantise_tensor(x):
    """Return FP8 and its scale, from the largest number of the tensor."""
    scale = (x.abs().amax().float() / FP8_MAX).clamp(min=1e-12)
    return quantised(x, 1.0 / scale), scale


def quantise_token(x):
    """Return FP8 and its scales, from the largest number of every row."""
    scale = (x.abs().amax(-1, keepdim=True).float() / FP8_MAX).clamp(min=1e-12)
    return quantised(x, 1.0 / scale), scale


@functools.cache
def sized(function):
    """Compile so that every size is an argument of the kernel, the width too."""
    return torch.compile(function, dynamic=True)


@functools.cache
def fixed(function):
    """Compile for the widths met; the count of tokens becomes an argument at its second value."""
    return torch.compile(function)


@triton.jit
def empty_kernel(x):
    """Do nothing."""


# --- a mixture of experts: route, sort, two grouped products, sum ----------------------------------------------------


@triton.jit
def route_kernel(logits, ids, shares, EXPERTS: tl.constexpr, TOPK: tl.constexpr, WIDE: tl.constexpr):
    """Softmax, the best experts of one token, and their shares, which sum to 1."""
    row = tl.program_id(0)
    expert, slot = tl.arange(0, EXPERTS), tl.arange(0, WIDE)
    left = tl.load(logits + row * EXPERTS + expert).to(tl.float32)
    left = tl.exp(left - tl.max(left, 0))
    chosen, share = tl.zeros([WIDE], tl.int32), tl.zeros([WIDE], tl.float32)
    for k in tl.static_range(TOPK):
        best = tl.argmax(left, 0)
        chosen = tl.where(slot == k, best, chosen)
        share = tl.where(slot == k, tl.max(left, 0), share)
        left = tl.where(expert == best, -1.0, left)
    tl.store(ids + row * TOPK + slot, chosen, mask=slot < TOPK)
    tl.store(shares + row * TOPK + slot, share / tl.sum(share, 0), mask=slot < TOPK)


@triton.jit
def _write_blocks(count, blocks, b, room, EXPERTS: tl.constexpr, BM: tl.constexpr):
    expert = tl.arange(0, EXPERTS)
    first = tl.cumsum(count, 0) - count
    own = (count + BM - 1) // BM
    upto = tl.cumsum(own, 0)
    owner = tl.sum((upto[None, :] <= b[:, None]).to(tl.int32), 1)
    mine = expert[None, :] == owner[:, None]
    row = tl.sum(tl.where(mine, first[None, :] + (b[:, None] - (upto - own)[None, :]) * BM, 0), 1)
    end = tl.sum(tl.where(mine, (first + count)[None, :], 0), 1)
    tl.store(blocks + b, owner, mask=b < room)
    tl.store(blocks + room + b, row, mask=b < room)
    tl.store(blocks + 2 * room + b, end, mask=b < room)


@triton.jit
def place_few_kernel(
    ids, order, blocks, pairs, room,
    EXPERTS: tl.constexpr, PAIRS: tl.constexpr, BM: tl.constexpr, ROOM: tl.constexpr,
):  # fmt: skip
    """Sort a few pairs by expert in one program, by comparing each with each."""
    i = tl.arange(0, PAIRS)
    mine = tl.load(ids + i, mask=i < pairs, other=EXPERTS)
    same = (mine[None, :] == mine[:, None]) & (i[None, :] < i[:, None])
    before = (mine[None, :] < mine[:, None]) | same
    tl.store(order + tl.sum(before.to(tl.int32), 1), i, mask=i < pairs)
    count = tl.sum((mine[:, None] == tl.arange(0, EXPERTS)[None, :]).to(tl.int32), 0)
    _write_blocks(count, blocks, tl.arange(0, ROOM), room, EXPERTS, BM)


@triton.jit
def rank_kernel(ids, counts, ranks, pairs, SPAN: tl.constexpr):
    """Count the pairs of every expert; a pair's rank is the count it found."""
    i = tl.program_id(0) * SPAN + tl.arange(0, SPAN)
    expert = tl.load(ids + i, mask=i < pairs, other=0)
    tl.store(ranks + i, tl.atomic_add(counts + expert, 1, mask=i < pairs), mask=i < pairs)


@triton.jit
def place_kernel(
    ids, counts, ranks, order, blocks, pairs, room, EXPERTS: tl.constexpr, SPAN: tl.constexpr, BM: tl.constexpr
):
    """Sort pairs by expert, given their ranks."""
    program, expert = tl.program_id(0), tl.arange(0, EXPERTS)
    count = tl.load(counts + expert)
    first = tl.cumsum(count, 0) - count
    i = program * SPAN + tl.arange(0, SPAN)
    mine = tl.load(ids + i, mask=i < pairs, other=EXPERTS)
    start = tl.sum(tl.where(mine[:, None] == expert[None, :], first[None, :], 0), 1)
    tl.store(order + start + tl.load(ranks + i, mask=i < pairs, other=0), i, mask=i < pairs)
    _write_blocks(count, blocks, program * 32 + tl.arange(0, 32), room, EXPERTS, BM)


@triton.jit
def _tile(m_blocks, n_blocks, GROUP: tl.constexpr):
    pid = tl.program_id(0)
    group = pid // (GROUP * n_blocks)
    size = min(m_blocks - group * GROUP, GROUP)
    inside = pid % (GROUP * n_blocks)
    return group * GROUP + inside % size, inside // size


@triton.jit
def gate_up_kernel(
    x, w, out, order, blocks, room, N, K,
    TOPK: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """Gate and up products of one block of sorted pairs, then SiLU-mul."""
    m, n = _tile(room, tl.cdiv(N, BN), GROUP)
    row, end = tl.load(blocks + room + m), tl.load(blocks + 2 * room + m)
    if row >= end:
        return
    expert = tl.load(blocks + m).to(tl.int64)
    rows, columns, k = row + tl.arange(0, BM), n * BN + tl.arange(0, BN), tl.arange(0, BK)
    here = rows < end
    token = tl.load(order + rows, mask=here, other=0) // TOPK
    a = x + token[:, None] * K + k[None, :]
    g = w + expert * 2 * N * K + (columns % N)[None, :] * K + k[:, None]
    u = g + N * K
    gate, up = tl.zeros([BM, BN], tl.float32), tl.zeros([BM, BN], tl.float32)
    for _ in range(0, K, BK):
        part = tl.load(a, mask=here[:, None], other=0.0)
        gate = tl.dot(part, tl.load(g), gate)
        up = tl.dot(part, tl.load(u), up)
        a += BK
        g += BK
        u += BK
    made = gate * tl.sigmoid(gate) * up
    tl.store(out + rows[:, None] * N + columns[None, :], made.to(tl.bfloat16), here[:, None] & (columns < N)[None, :])


@triton.jit
def down_kernel(
    x, w, out, order, shares, blocks, room, N, K,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """Down product of one block of sorted pairs, times the share of each, back at its pair's place."""
    m, n = _tile(room, tl.cdiv(N, BN), GROUP)
    row, end = tl.load(blocks + room + m), tl.load(blocks + 2 * room + m)
    if row >= end:
        return
    expert = tl.load(blocks + m).to(tl.int64)
    rows, columns, k = row + tl.arange(0, BM), n * BN + tl.arange(0, BN), tl.arange(0, BK)
    here = rows < end
    a = x + rows[:, None] * K + k[None, :]
    b = w + expert * N * K + (columns % N)[None, :] * K + k[:, None]
    total = tl.zeros([BM, BN], tl.float32)
    for _ in range(0, K, BK):
        total = tl.dot(tl.load(a, mask=here[:, None], other=0.0), tl.load(b), total)
        a += BK
        b += BK
    pair = tl.load(order + rows, mask=here, other=0)
    total *= tl.load(shares + pair, mask=here, other=0.0)[:, None]
    tl.store(out + pair[:, None] * N + columns[None, :], total.to(tl.bfloat16), here[:, None] & (columns < N)[None, :])


@triton.jit
def sum_kernel(x, out, N, TOPK: tl.constexpr, BN: tl.constexpr):
    """Sum the weighted outputs of one token's experts."""
    row, n = tl.program_id(0), tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros([BN], tl.float32)
    for k in tl.static_range(TOPK):
        total += tl.load(x + (row * TOPK + k) * N + n, mask=n < N, other=0.0).to(tl.float32)
    tl.store(out + row * N + n, total.to(tl.bfloat16), mask=n < N)


class Blocks(NamedTuple):
    """Sizes of the blocks of the two grouped products; the down product takes twice the columns."""

    rows: int
    columns: int
    depth: int
    group: int
    warps: int
    stages: int


FEW = (Blocks(16, 64, 128, 1, 4, 4), Blocks(16, 32, 128, 1, 4, 4), Blocks(16, 128, 64, 1, 4, 4))
SOME = (Blocks(32, 64, 128, 1, 4, 3), Blocks(64, 64, 64, 8, 4, 4), Blocks(64, 128, 64, 8, 8, 3))
MANY = (Blocks(128, 64, 64, 8, 8, 4), Blocks(128, 128, 64, 8, 8, 3), Blocks(64, 128, 64, 8, 4, 3))


def block_choices(pairs: int, experts: int) -> tuple[Blocks, ...]:
    """Return the sizes worth a try for so many rows per expert."""
    rows = pairs / experts
    return (FEW if rows < 24 else ()) + (SOME if 3 <= rows <= 128 else ()) + (MANY if rows >= 40 else ())


def _power(number: int, least: int = 16) -> int:
    return max(least, triton.next_power_of_2(number))


class Mixture:
    """Experts of one layer's shape, with scratch for so many tokens."""

    def __init__(self, hidden: int, inter: int, topk: int, experts: int, tokens: int) -> None:
        self.hidden, self.inter, self.topk, self.experts = hidden, inter, topk, experts
        pairs = tokens * topk
        self.blocks_made = torch.empty(3 * (pairs + experts + 64), dtype=torch.int32, device=DEVICE)
        self.order, self.ranks, self.counts = (
            torch.zeros(size, dtype=torch.int32, device=DEVICE) for size in (pairs, pairs, experts)
        )
        self.inner = torch.empty(pairs, inter, dtype=BF16, device=DEVICE)
        self.outer = torch.empty(pairs, hidden, dtype=BF16, device=DEVICE)

    def weights(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return one layer's gate/up and down weights."""
        gate_up = noise(self.experts, 2 * self.inter, self.hidden, scale=self.hidden**-0.5)
        return gate_up, noise(self.experts, self.hidden, self.inter, scale=self.inter**-0.5)

    def route(self, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the experts of every token and their shares."""
        size = (len(logits), self.topk)
        ids = torch.empty(size, dtype=torch.int32, device=DEVICE)
        shares = torch.empty(size, dtype=torch.float32, device=DEVICE)
        route_kernel[len(logits),](logits, ids, shares, self.experts, self.topk, _power(self.topk, 2), num_warps=1)
        return ids, shares

    def place(self, ids: torch.Tensor, rows: int) -> int:
        """Sort pairs by expert and return the most blocks of ``rows`` that they can need."""
        pairs = ids.numel()
        room = min(pairs, self.experts + pairs // rows)
        if pairs <= 128:
            sizes = (self.experts, _power(pairs), rows, _power(room))
            place_few_kernel[1,](ids, self.order, self.blocks_made, pairs, room, *sizes, num_warps=8)
            return room
        self.counts.zero_()
        rank_kernel[triton.cdiv(pairs, 256),](ids, self.counts, self.ranks, pairs, 256)
        grid = max(triton.cdiv(pairs, 128), triton.cdiv(room, 32))
        made = (ids, self.counts, self.ranks, self.order, self.blocks_made)
        place_kernel[grid,](*made, pairs, room, self.experts, 128, rows)
        return room

    def __call__(self, x, ids, shares, weights, sizes: Blocks) -> torch.Tensor:
        room = self.place(ids, sizes.rows)
        how = {"num_warps": sizes.warps, "num_stages": sizes.stages}
        depths = [sizes.depth if k % sizes.depth == 0 else 64 for k in (self.hidden, self.inter)]
        grid = room * triton.cdiv(self.inter, sizes.columns)
        gate_up_kernel[grid,](
            x, weights[0], self.inner, self.order, self.blocks_made, room, self.inter, self.hidden,
            self.topk, sizes.rows, sizes.columns, depths[0], sizes.group, **how,
        )  # fmt: skip
        grid = room * triton.cdiv(self.hidden, 2 * sizes.columns)
        down_kernel[grid,](
            self.inner, weights[1], self.outer, self.order, shares, self.blocks_made, room, self.hidden, self.inter,
            sizes.rows, 2 * sizes.columns, depths[1], sizes.group, **how,
        )  # fmt: skip
        out = torch.empty_like(x)
        sum_kernel[(len(x), triton.cdiv(self.hidden, 1024))](self.outer, out, self.hidden, self.topk, 1024)
        return out

    def best(self, tokens: int, layers: list) -> Blocks:
        """Return the fastest sizes of blocks for so many tokens."""
        tried = {sizes: self.seconds(tokens, layers, sizes, 3)[0] for sizes in self.choices(tokens)}
        return min(tried, key=tried.__getitem__)

    def choices(self, tokens: int) -> tuple[Blocks, ...]:
        return block_choices(tokens * self.topk, self.experts)

    def seconds(self, tokens: int, layers: list, sizes: Blocks, times: int) -> tuple[float, float, float]:
        """Return the time of one call and how many experts it meets. [s, s, experts]"""
        calls = 4 * len(layers) if tokens <= 512 else len(layers)
        sets = [(noise(tokens, self.hidden), *self.uniform(tokens)) for _ in range(calls)]

        def work() -> None:
            for number, given in enumerate(sets):
                self(*given, layers[number % len(layers)], sizes)

        median, best, _ = timed(work, times, calls)
        return median, best, statistics.fmean(ids.unique().numel() for _, ids, _ in sets)

    def uniform(self, tokens: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Route every token to experts drawn evenly."""
        return self.route(torch.rand(tokens, self.experts, device=DEVICE))


# --- a whole decoder -------------------------------------------------------------------------------------------------


class Product(NamedTuple):
    """Weights of a linear layer; FP8 ones have a scale."""

    weight: torch.Tensor
    scale: torch.Tensor | None = None

    def __call__(self, operand: tuple[torch.Tensor, torch.Tensor | None]) -> torch.Tensor:
        x, scale = operand
        if self.scale is None:
            return nn.linear(x, self.weight)
        return torch._scaled_mm(  # noqa: SLF001 - the product of FP8 matrices has no public name
            x, self.weight.t(), scale_a=scale, scale_b=self.scale, out_dtype=BF16, use_fast_accum=True
        )


class Layer(NamedTuple):
    """Weights of one layer."""

    norms: tuple[torch.Tensor, torch.Tensor]
    head_norms: tuple[torch.Tensor, torch.Tensor]
    qkv: Product
    out: Product
    gate_up: Product | None
    down: Product | None
    router: Product | None
    experts: tuple[torch.Tensor, torch.Tensor] | None


class Decoder:
    """A decoder as a serving engine runs it, with random weights."""

    def __init__(self, shape: Shape, weights: str = "bf16", compiled: Callable = sized) -> None:
        self.shape, self.how, self.compiled = shape, weights, compiled
        self.one = torch.ones((), device=DEVICE)
        self.mixture = self.sizes = None
        if shape.experts:
            self.mixture = Mixture(shape.hidden, shape.inter, shape.topk, shape.experts, 4096)
        self.embedding = noise(shape.vocabulary, shape.hidden)
        scale = shape.hidden**-0.5
        self.head = self.embedding if shape.tied else noise(shape.vocabulary, shape.hidden, scale=scale)
        self.norm = self.gain(shape.hidden)
        self.layers = [self.layer() for _ in range(shape.layers)]

    def gain(self, width: int) -> torch.Tensor:
        return 1.0 + noise(width, scale=0.1)

    def product(self, outputs: int, inputs: int) -> Product:
        if self.how == "bf16":
            return Product(noise(outputs, inputs, scale=inputs**-0.5))
        columns = (1, outputs) if self.how == "fp8-dynamic-token" else ()
        return Product(noise(outputs, inputs, dtype=FP8), torch.full(columns, inputs**-0.5, device=DEVICE))

    def layer(self) -> Layer:
        s, wide = self.shape, self.shape.heads * self.shape.head_dim
        dense = not s.experts
        return Layer(
            norms=(self.gain(s.hidden), self.gain(s.hidden)),
            head_norms=(self.gain(s.head_dim), self.gain(s.head_dim)),
            qkv=self.product(wide + 2 * s.kv_heads * s.head_dim, s.hidden),
            out=self.product(s.hidden, wide),
            gate_up=self.product(2 * s.inter, s.hidden) if dense else None,
            down=self.product(s.hidden, s.inter) if dense else None,
            router=None if dense else self.product(s.experts, s.hidden),
            experts=None if dense else self.mixture.weights(),
        )

    def quantise(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return an operand of a product, by a pass of its own."""
        if self.how == "bf16":
            return x, None
        if self.how == "fp8-static":
            return self.compiled(quantised)(x, self.one), self.one
        return self.compiled(quantise_token if self.how == "fp8-dynamic-token" else quantise_tensor)(x)

    def normed(self, x, residual, weight):
        if self.how == "fp8-static":
            out, residual = self.compiled(add_norm_fp8)(x, residual, weight, self.one)
            return (out, self.one), residual
        out, residual = self.compiled(add_norm)(x, residual, weight)
        return self.quantise(out), residual

    def forward_part(self, operand, layer: Layer, number: int) -> torch.Tensor:
        """Feed-forward of one layer."""
        if layer.experts:
            layer.router(operand)  # random weights would route unevenly: the experts are drawn instead
            ids, shares = self.mixture.route(self.draws[number])
            return self.mixture(operand[0], ids, shares, layer.experts, self.sizes)
        inner = layer.gate_up(operand)
        if self.how == "fp8-static":
            return layer.down((self.compiled(silu_mul_fp8)(inner, self.one), self.one))
        return layer.down(self.quantise(self.compiled(silu_mul)(inner)))

    def turned(self, x, weight, tables):
        if self.shape.qk_norm:
            return self.compiled(norm_rotary)(x, weight, *tables)
        return self.compiled(rotary)(x, *tables)

    def attention(self, qkv, layer: Layer, number: int, row: Row, tables) -> torch.Tensor:
        """Rotary, KV write and attention."""
        s, rows = self.shape, row.batch * row.new
        queries = s.heads * s.head_dim
        q, k, v = (part.unflatten(-1, (-1, s.head_dim)) for part in qkv.split(
            [queries, s.kv_heads * s.head_dim, s.kv_heads * s.head_dim], -1
        ))  # fmt: skip
        q, k = self.turned(q, layer.head_norms[0], tables), self.turned(k, layer.head_norms[1], tables)
        held = []
        for new, flat in zip((k, v), self.cache[number], strict=True):
            cache = flat[: row.batch * row.context * s.kv_heads * s.head_dim]
            cache = cache.view(row.batch, row.context, s.kv_heads, s.head_dim)
            cache[:, row.context - row.new :] = new.unflatten(0, (row.batch, row.new))
            held.append(cache.transpose(1, 2))
        q = q.unflatten(0, (row.batch, row.new)).transpose(1, 2)
        out = nn.scaled_dot_product_attention(q, *held, is_causal=row.new > 1, enable_gqa=True)
        return out.transpose(1, 2).reshape(rows, queries)

    def step(self, tokens: torch.Tensor, row: Row, tables) -> torch.Tensor:
        """Return the next token of every sequence."""
        x = nn.embedding(tokens, self.embedding)
        residual = torch.zeros_like(x)
        for number, layer in enumerate(self.layers):
            operand, residual = self.normed(x, residual, layer.norms[0])
            mixed = self.attention(layer.qkv(operand), layer, number, row, tables)
            x = layer.out(self.quantise(mixed))
            operand, residual = self.normed(x, residual, layer.norms[1])
            x = self.forward_part(operand, layer, number)
        x, _ = self.compiled(add_norm)(x, residual, self.norm)
        last = x.unflatten(0, (row.batch, row.new))[:, -1]
        return nn.linear(last, self.head).argmax(-1)

    def kv_elements(self, row: Row) -> int:
        """Return the numbers of K, or of V, that one layer holds."""
        return row.batch * row.context * self.shape.kv_heads * self.shape.head_dim

    def fits(self, row: Row) -> bool:
        """Tell whether the cache of a row fits beside the weights."""
        return torch.cuda.memory_allocated() + 4 * self.shape.layers * self.kv_elements(row) < USABLE_BYTES

    def rows(self, rows: list[Row]) -> list[Row]:
        """Make room for the largest row that fits, and return those that do."""
        kept = [row for row in rows if self.fits(row)]
        most = max(map(self.kv_elements, kept))
        self.cache = [(noise(most), noise(most)) for _ in self.layers]
        return kept

    def prepared(self, row: Row) -> Callable[[], torch.Tensor]:
        """Return the step of a row as a call without arguments."""
        count = row.batch * row.new
        tokens = torch.randint(self.shape.vocabulary, (count,), device=DEVICE)
        angles = torch.rand(count, 1, self.shape.head_dim, device=DEVICE) * 6.283
        tables = angles.cos().to(BF16), angles.sin().to(BF16)
        if self.mixture:
            self.draws = [noise(count, self.shape.experts) for _ in self.layers]
            self.sizes = self.mixture.best(count, [layer.experts for layer in self.layers[:4]])
        return lambda: self.step(tokens, row, tables)

    def measure(self, rows: list[Row], table: Table, clock: Clock) -> None:
        """Time each row that fits, in order."""
        for row in self.rows(rows):
            if clock.over():
                print(self.shape.name, self.how, "stopped before", row)
                return
            work = self.prepared(row)
            with sdpa_kernel(BACKENDS, set_priority=True):
                taken = timed(work, 7 if row.prefill else 9)
            table.add(self.shape.name, self.how, *row.cells(), *taken)


def prefills(tokens=PREFILLS) -> list[Row]:
    """Return rows of one prompt."""
    return [Row(1, number, number) for number in tokens]


def decodes(batches=DECODE_BATCHES, contexts=DECODE_CONTEXTS) -> list[Row]:
    """Return rows of one new token a sequence, contexts rising, then batches."""
    return [Row(batch, 1, context) for context in contexts for batch in batches]


# --- parts -----------------------------------------------------------------------------------------------------------


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


def measure_mixture(folder: Path, clock: Clock) -> None:
    """Measure mixtures alone: sorting, both products, SiLU-mul and the weighted sum."""
    table = Table(folder / "mixture.csv", MIXTURE_COLUMNS)
    for hidden, inter, topk, experts in ((2048, 768, 8, 128), (4096, 14336, 2, 8), (2880, 2880, 4, 32)):
        mixture = Mixture(hidden, inter, topk, experts, 4096)
        layers = [mixture.weights() for _ in range(4)]
        for power in range(13):
            if clock.over():
                return
            sizes = mixture.best(2**power, layers)
            median, best, met = mixture.seconds(2**power, layers, sizes, 11)
            print(sizes)
            table.add("bf16", 2**power, hidden, inter, topk, experts, met, median, best)
        del mixture, layers
        clean()


def check(_folder: Path, _clock: Clock) -> None:
    """Compare the mixture with a plain one in FP32, and try the FP8 products."""
    for tokens in (1, 3, 16, 40, 300):
        mixture = Mixture(256, 192, 4, 32, 512)
        layer, x = mixture.weights(), noise(tokens, 256)
        ids, shares = mixture.route(noise(tokens, 32))
        want = plain_mixture(x, ids, shares, layer)
        for sizes in (*FEW, *SOME, *MANY):
            if sizes.depth * 2 <= 256:
                got = mixture(x, ids, shares, layer, sizes).float()
                print("mixture", tokens, sizes, f"{((got - want).norm() / want.norm()).item():.2e}")
    if DEVICE == "cuda":
        check_fp8()


def plain_mixture(x, ids, shares, layer) -> torch.Tensor:
    """Return the mixture computed pair by pair in FP32."""
    out = torch.zeros_like(x, dtype=torch.float32)
    for token in range(len(x)):
        for expert, share in zip(ids[token].tolist(), shares[token].tolist(), strict=True):
            gate, up = (layer[0][expert].float() @ x[token].float()).chunk(2)
            out[token] += share * (layer[1][expert].float() @ (nn.silu(gate) * up))
    return out


def check_fp8() -> None:
    """Print the times of FP8 products by rows and kind of scale."""
    weights = [noise(24576, 4096, dtype=FP8) for _ in range(4)]
    for rows in (1, 8, 16, 32, 2048):
        x = noise(rows, 4096, dtype=FP8)
        for a, b in (((), ()), ((rows, 1), (1, 24576))):
            scales = torch.ones(a, device=DEVICE), torch.ones(b, device=DEVICE)
            try:
                taken = timed(lambda x=x, s=scales: [Product(w, s[1])((x, s[0])) for w in weights], 9, 4)
            except RuntimeError as error:
                print("fp8", rows, a, "refused:", str(error)[:200])
            else:
                print("fp8", rows, a, taken)


PARTS = {
    "check": check,
    "reproduce": reproduce,
    "small-empty": measure_empty,
    **{
        f"small-{how.__name__}-{width}": functools.partial(measure_small, how, width)
        for how in (sized, fixed)
        for width in (1024, 2048, 4096, 8192)
    },
    "steps": measure_steps,
    "fixed": measure_fixed,
    "fp8": measure_fp8,
    "mixture": measure_mixture,
    "moe-steps": measure_moe_steps,
}


def main() -> None:
    """Run the parts that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("parts", nargs="+", choices=PARTS)
    parser.add_argument("--seconds", type=float, default=1e9, help="start no further row after so long")
    given = parser.parse_args()
    torch.set_grad_enabled(False)
    torch._dynamo.config.recompile_limit = 64  # noqa: SLF001 - no public name
    clock = Clock(given.seconds)
    for part in given.parts:
        start = time.monotonic()
        PARTS[part](given.folder, clock)
        print(part, f"took {time.monotonic() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
