"""Triton kernels of a mixture of experts: route, sort, two grouped products, sum."""
# ruff: noqa: ANN001, ANN201, ANN202, N803, PLR0917 - Triton kernels take bare pointers and sizes

import triton
import triton.language as tl


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
