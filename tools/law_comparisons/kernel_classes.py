"""Classes of kernels: the rows of each, the stages that are fitted before it, and the laws that were tried."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from law_comparisons.judging import Rows
from law_comparisons.kernels import Law
from rooflinekit.calibration import entries
from rooflinekit.calibration.entries import Stage, select
from rooflinekit.calibration.observations import Observations


def products(form: str) -> Callable[[Rows], list[Observations]]:
    """Give the rows of products in a format that come from memory."""
    return lambda rows: select(rows, op="product", weights=form, regime="dram")


def decoding(rows: Rows, held: str = "bf16") -> list[Observations]:
    """Give the rows of attention in decode: from memory, or too short to matter."""
    return select(rows, op="attention", kv_cache=held, phase="decode", regime=("dram", "overhead"))


def prefilling(rows: Rows, held: str = "bf16") -> list[Observations]:
    """Give the rows of attention in prefill that are long enough to compute."""
    return select(rows, op="attention", kv_cache=held, phase="prefill", regime=("compute", "dram"))


def mixtures(form: str) -> Callable[[Rows], list[Observations]]:
    """Give the rows of fused mixtures in a format."""
    return lambda rows: select(rows, op="mixture", weights=form)


def before_attention(rows: Rows, own: bool) -> list[Stage]:  # noqa: FBT001 - handed on by position
    """Fit products, at whose rate attention computes."""
    return [Stage(entries.product_free("bf16", own=own), products("bf16")(rows))]


def before_prefill(rows: Rows, own: bool) -> list[Stage]:  # noqa: FBT001 - as above
    """Fit what decode says of attention."""
    free = entries.attention_free("attention", "memory", "tile_tokens", "launch_us")
    return [*before_attention(rows, own), Stage(free, decoding(rows))]


def before_fp8(rows: Rows, own: bool) -> list[Stage]:  # noqa: FBT001 - as above
    """Fit attention over a BF16 cache."""
    free = entries.attention_free("attention", "activation", "softmax_flops_per_score")
    return [*before_prefill(rows, own), Stage(free, prefilling(rows))]


def by_bandwidth(one: Observations) -> Observations:
    """Count elements to quantise in units of time at the bandwidth: a price in picoseconds becomes one in bytes."""
    factor = 8e12 / one.rates.bytes_per_s
    return replace(one, plan=replace(one.plan, input_elements=one.plan.input_elements * factor))


def further(tokens: float, one: Observations) -> Observations:
    """Let every sequence hold some tokens more: a context offset."""
    groups = tuple(group._replace(context_tokens=np.asarray(group.context_tokens) + tokens) for group in one.groups)
    return replace(one, groups=groups)


TWO = ("compute", "memory")
THREE = (*TWO, "launch_us")
FOUR = (*THREE, "inner_ns_per_element")
QUANTISATION = "quantisation_ps_per_element"
INFINITE = float("inf")
BARE = {"inner_ns_per_element": 0.0, QUANTISATION: 0.0}
ROOFLINE = Law(
    "datasheet roofline", (), {"compute": 1.0, "memory": 1.0, "launch_us": 0.0, "exponent": INFINITE, **BARE}
)
JOINED = (
    ROOFLINE,
    Law("parts of the peaks", TWO, {"launch_us": 0.0, "exponent": INFINITE, **BARE}),
    Law("+ launch", THREE, {"exponent": INFINITE, **BARE}),
    Law("+ launch, sum", THREE, {"exponent": 1.0, **BARE}),
    Law("+ launch, p = 2", THREE, {"exponent": 2.0, **BARE}),
    Law("+ launch, p free", (*THREE, "exponent"), {"exponent": 2.0, **BARE}),
)
PLAIN = (
    *JOINED,
    Law("+ launch, p free on own", THREE, {"exponent": 2.0, **BARE}, ("exponent",), kept=True),
    Law("the same, + inner sums", FOUR, {"exponent": 2.0, QUANTISATION: 0.0}, ("exponent",)),
    Law("p = 2, + inner sums", FOUR, {"exponent": 2.0, QUANTISATION: 0.0}),
)
QUANTISED = (
    *JOINED,
    Law("p = 2, + inner sums", FOUR, {"exponent": 2.0, QUANTISATION: 0.0}),
    Law("p = 2, + quantisation", (*THREE, QUANTISATION), {"exponent": 2.0, "inner_ns_per_element": 0.0}),
    Law("p = 2, + both", (*FOUR, QUANTISATION), {"exponent": 2.0}, kept=True),
    Law(
        "the same, quantisation in bytes",
        (*FOUR, QUANTISATION),
        {"exponent": 2.0},
        counts=(by_bandwidth,),
        said=", ".join((*FOUR, "quantisation bytes per element")),
    ),
    Law("p free, + both", (*FOUR, QUANTISATION, "exponent"), {"exponent": 2.0}),
)
STREAM = ("memory", "launch_us")
DECODE = (
    Law("datasheet roofline", (), {"compute": 1.0, "memory": 1.0, "launch_us": 0.0, "tile_tokens": 0.0}),
    Law("launch and bandwidth, no tile", STREAM, {"tile_tokens": 0.0}),
    Law("+ tile of 128", STREAM, {"tile_tokens": 128.0}),
    Law(
        "+ context offset, no tile",
        STREAM,
        {"tile_tokens": 0.0},
        counts=tuple(partial(further, tokens) for tokens in (0.0, 16.0, 32.0, 48.0, 64.0, 96.0, 128.0)),
        said="memory, launch_us, offset",
    ),
    Law("+ tile, free", (*STREAM, "tile_tokens"), {"tile_tokens": 100.0}, kept=True),
)
PREFILL = (
    Law("no softmax, one stream", (), {"softmax_flops_per_score": 0.0, "activation": None}),
    Law("the same, arithmetic free", ("compute",), {"softmax_flops_per_score": 0.0, "activation": None}),
    Law("no softmax", ("activation",), {"softmax_flops_per_score": 0.0}),
    Law("the same, arithmetic free", ("compute", "activation"), {"softmax_flops_per_score": 0.0}),
    Law("softmax, one stream", ("softmax_flops_per_score",), {"activation": None}),
    Law("softmax, outputs apart", ("activation", "softmax_flops_per_score"), kept=True),
    Law("the same, arithmetic free", ("compute", "activation", "softmax_flops_per_score")),
)
MIXTURES = (
    Law("datasheet roofline", (), {"compute": 1.0, "memory": 1.0, "launch_us": 0.0, "exponent": INFINITE}),
    Law("sum, no launch", TWO, {"launch_us": 0.0, "exponent": 1.0}),
    Law("larger of the two", THREE, {"exponent": INFINITE}),
    Law("p = 2", THREE, {"exponent": 2.0}),
    Law("sum", THREE, {"exponent": 1.0}, kept=True),
    Law("p free", (*THREE, "exponent"), {"exponent": 1.2}),
)
