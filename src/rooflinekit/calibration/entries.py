"""How each shipped entry is fitted: which constants are free on which rows, in which order, from which start."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rooflinekit.calibration.fit import Fit, Free, fit
from rooflinekit.calibration.observations import Observations
from rooflinekit.specs.efficiency import Efficiency

#: Part of a table of kernels -> (op, phase, regimes) that its constants are fitted on.
_ATTENTION_DECODE = {"memory": ["attention.memory"], "tile": ["attention.tile_tokens"], "launch": ["attention.launch_us"]}
_ATTENTION_PREFILL = {"activation": ["attention.activation"], "softmax": ["attention.softmax_flops_per_score"]}
_QUANTISED = ("fp8", "fp4")


class Stage(NamedTuple):
    """One step of a fit: the free constants, and the rows that determine them."""

    free: Free
    rows: Sequence[Observations]


def product_free(dtype: str) -> Free:
    """Give the constants that a table of products determines."""
    fields = ["compute", "memory", "launch_us"]
    if dtype in _QUANTISED:
        fields += ["quantisation_ps_per_element", "inner_ns_per_element"]
    return {f"products.{dtype}.{field}": [f"products.{dtype}.{field}"] for field in fields}


def mixture_free(dtype: str) -> Free:
    """Give the constants that a table of fused mixtures determines."""
    return {f"mixtures.{dtype}.{field}": [f"mixtures.{dtype}.{field}"] for field in ("compute", "memory", "launch_us")}


def select(observations: Iterable[Observations], **wanted: str | tuple[str, ...]) -> list[Observations]:
    """Keep the rows whose facts are among those wanted."""
    kept = []
    for one in observations:
        chosen = np.ones(len(one), dtype=bool)
        for column, values in wanted.items():
            names = (values,) if isinstance(values, str) else values
            chosen &= one.facts[column].isin(names).to_numpy() if column in one.facts else False
        if chosen.any():
            kept.append(one.take(chosen))
    return kept


def equal_weights(observations: Sequence[Observations], by: str) -> NDArray[np.float64]:
    """Weigh rows so that each value of a fact counts alike, however many rows it has."""
    names = np.concatenate([np.full(len(one), str(getattr(one.device, by) or one.device.id)) for one in observations])
    _, where, counts = np.unique(names, return_inverse=True, return_counts=True)
    weights: NDArray[np.float64] = 1.0 / np.sqrt(counts[where])
    return weights / weights.mean()


#: Dtype of a product or mixture by the format that its table names.
DTYPES = {"bf16": "bf16", "fp8": "fp8", "nvfp4": "fp4"}


def kernel_stages(kernels: Sequence[Observations]) -> list[Stage]:
    """List the stages by which tables of kernels are fitted: each class on its own rows, attention's two in turn."""
    stages = []
    for form, dtype in DTYPES.items():
        stages.append(Stage(product_free(dtype), select(kernels, op="product", weights=form, regime="dram")))
    decode = select(kernels, op="attention", phase="decode", kv_cache="bf16", regime=("dram", "overhead"))
    prefill = select(kernels, op="attention", phase="prefill", kv_cache="bf16", regime=("compute", "dram"))
    stages += [Stage(_ATTENTION_DECODE, decode), Stage(_ATTENTION_PREFILL, prefill)]
    for form, dtype in DTYPES.items():
        stages.append(Stage(mixture_free(dtype), select(kernels, op="mixture", weights=form)))
    return [stage for stage in stages if stage.rows]


def fit_kernels(kernels: Sequence[Observations], start: Efficiency, *, checked: bool = False) -> tuple[Efficiency, list[Fit]]:
    """
    Fit what tables of kernels determine, of one device or of several with equal weight for each generation.

    Attention's arithmetic is held at the rate of the products: its own is not to be told from the softmax.
    """
    entry, fits = start, []
    for stage in kernel_stages(kernels):
        weights = equal_weights(stage.rows, "generation")
        found = fit(stage.rows, entry, stage.free, weights=weights, checked=checked)
        fits.append(found)
        entry = _held(found.efficiency)
    return entry, fits


def _held(entry: Efficiency) -> Efficiency:
    """Hold attention's arithmetic at the products'."""
    if entry.attention is None or entry.products.bf16 is None:
        return entry
    attention = entry.attention.model_copy(update={"compute": entry.products.bf16.compute})
    return entry.model_copy(update={"attention": attention})
