"""A whole decoder with random weights, as a serving engine runs it."""
# ruff: noqa: ANN001, ANN201 - of tensors, one or two

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from h200.fused import (
    add_norm,
    add_norm_fp8,
    norm_rotary,
    quantise_tensor,
    quantise_token,
    quantised,
    rotary,
    silu_mul,
    silu_mul_fp8,
    sized,
)
from h200.mixture import Mixture
from h200.shapes import Row, Shape
from h200.tables import Clock, Table
from h200.timing import BF16, DEVICE, FP8, noise, timed

BACKENDS = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION]  # cuDNN refuses to attend to one token
USABLE_BYTES = 132e9


class Product(NamedTuple):
    """Weights of a linear layer; FP8 ones have a scale."""

    weight: torch.Tensor
    scale: torch.Tensor | None = None

    def __call__(self, operand: tuple[torch.Tensor, torch.Tensor | None]) -> torch.Tensor:
        """Multiply an operand, an FP8 one by its scale too."""
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
        """Return weights of a norm."""
        return 1.0 + noise(width, scale=0.1)

    def product(self, outputs: int, inputs: int) -> Product:
        """Return random weights in the format of this decoder."""
        if self.how == "bf16":
            return Product(noise(outputs, inputs, scale=inputs**-0.5))
        columns = (1, outputs) if self.how == "fp8-dynamic-token" else ()
        return Product(noise(outputs, inputs, dtype=FP8), torch.full(columns, inputs**-0.5, device=DEVICE))

    def layer(self) -> Layer:
        """Return the weights of one layer."""
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
        """Return the norm of the sum as an operand of a product, and the sum."""
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
        """Turn every head by its position, after its norm where the model has one."""
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
                print(self.shape.name, self.how, "stopped before", row)  # noqa: T201 - rows are missing then
                return
            work = self.prepared(row)
            with sdpa_kernel(BACKENDS, set_priority=True):
                taken = timed(work, 7 if row.prefill else 9)
            table.add(self.shape.name, self.how, *row.cells(), *taken)
