"""One layer, two shapes: the gate and up product of Qwen3-8B with 2,048 rows and with one, on GB10.

    python examples/one_layer_two_shapes.py [--png one_layer.png]

The numbers are those of "Prefill vs. Decode", section "The same layer, two shapes": 412 billion FLOPs and 319 MB
against 0.2 billion and 201 MB, so 1,300 FLOPs a byte against one.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import rooflinekit as rk
from rooflinekit import units
from rooflinekit.operators.matmul import matmul_activation_elements, matmul_flops, matmul_weight_bytes
from rooflinekit.reports.drawing import legend, line, log_axes, new_figure, title
from rooflinekit.reports.plots import save
from rooflinekit.reports.roofline_plot import Roof, device_roofs, draw_roofs

INNER, COLUMNS = 4096, 24576  # hidden size, gate and up side by side
BYTES_PER_VALUE = 2  # BF16


class Shape(NamedTuple):
    """The product with so many rows."""

    rows: int
    flops: float
    bytes: float

    @property
    def intensity(self) -> float:
        """FLOP/byte."""
        return self.flops / self.bytes


def shape(rows: int) -> Shape:
    """Count the work: the matrix is read once whatever the rows, the activations grow with them."""
    values = matmul_activation_elements(rows, INNER, COLUMNS)
    moved = matmul_weight_bytes(INNER, COLUMNS, BYTES_PER_VALUE) + BYTES_PER_VALUE * values
    return Shape(rows, float(matmul_flops(rows, INNER, COLUMNS)), float(moved))


def name(product: Shape) -> str:
    """Name a shape by its rows and its work."""
    rows = "1 row" if product.rows == 1 else f"{product.rows:,} rows"
    return f"{rows}: {units.si(product.flops, 'FLOP')} over {units.si(product.bytes, 'B')}"


def sentence(product: Shape, roof: Roof) -> str:
    """Say what one shape does and which of the two peaks limits it."""
    rate = float(roof.rate(product.intensity))
    limit = "arithmetic" if rate == roof.flops_per_s else "memory"
    per_byte = units.significant(product.intensity)
    best = units.duration(product.flops / rate)
    return f"{name(product)}, {per_byte} FLOP/byte, under the {limit} roof: {best} at best"


def draw(products: Sequence[Shape], roofs: Sequence[Roof], path: Path) -> None:
    """Draw both shapes on the roofs."""
    figure = new_figure()
    axes = figure.add_subplot()
    log_axes(axes)
    axes.set_xlim(0.3, 10_000)
    draw_roofs(axes, roofs)
    for index, product in enumerate(products):
        style, rate = line(index), roofs[-1].rate(product.intensity)
        axes.plot(product.intensity, rate, style.marker, color=style.colour, markersize=9, label=name(product))
    axes.set_xlabel("arithmetic intensity [FLOP/byte]")
    axes.set_ylabel("attainable rate [FLOP/s]")
    title(axes, "One layer, two shapes", "gate and up product of Qwen3-8B on GB10, at the measured roof")
    legend(figure)
    save(figure, path)


def main(argv: Sequence[str] | None = None) -> None:
    """Print both shapes and, if asked, draw them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--png", type=Path, help="where to draw (.png, .svg or .pdf)")
    arguments = parser.parse_args(argv)
    roofs = device_roofs(rk.load_device("gb10"), ["bf16"])
    products = [shape(2048), shape(1)]
    print(roofs[-1])
    for product in products:
        print(sentence(product, roofs[-1]))
    if arguments.png:
        draw(products, roofs, arguments.png)


if __name__ == "__main__":
    main()
