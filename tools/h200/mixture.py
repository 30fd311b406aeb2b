"""A mixture of experts on its own kernels, and the part that measures it alone."""
# ruff: noqa: ANN001, PLR2004 - of tensors; sizes that were tried

import statistics
from pathlib import Path
from typing import NamedTuple

import torch
import triton

from h200.mixture_kernels import (
    down_kernel,
    gate_up_kernel,
    place_few_kernel,
    place_kernel,
    rank_kernel,
    route_kernel,
    sum_kernel,
)
from h200.tables import MIXTURE_COLUMNS, Clock, Table
from h200.timing import BF16, DEVICE, clean, noise, timed


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
        """Sort the pairs, run both products, and sum over the experts of each token."""
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
        """Return the sizes of blocks worth a try for so many tokens."""
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
            print(sizes)  # noqa: T201 - what was fastest is no column
            table.add("bf16", 2**power, hidden, inter, topk, experts, met, median, best)
        del mixture, layers
        clean()
