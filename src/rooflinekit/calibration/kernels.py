"""Tables of kernels: one product, attention or mixture a line, each timed as the row of a plan that a model has."""

from collections.abc import Callable, Hashable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from rooflinekit.calibration.observations import Observations
from rooflinekit.operators.cost import TOKENS, Operator, Plan, assemble
from rooflinekit.operators.forward.feedforward import experts
from rooflinekit.operators.forward.grouped import attention
from rooflinekit.operators.forward.rows import elementwise, linear
from rooflinekit.phases.resolve import resolve_rates
from rooflinekit.specs.device import Device
from rooflinekit.specs.feedforwards import MixtureFeedForward
from rooflinekit.specs.mixers import GroupedQueryAttention
from rooflinekit.specs.mixers.base import Module, Product
from rooflinekit.specs.precision import Precision, weight_format
from rooflinekit.specs.quantisation import PLAIN_FORMAT, Quantisation
from rooflinekit.specs.step import Group

Line = Mapping[Hashable, Any]
#: Columns that give a kernel its shape: lines that agree in them are one row of the plan.
SHAPES = {
    "product": ("weights", "n", "k"),
    "attention": ("kv_cache", "heads", "kv_heads", "head_dim"),
    "mixture": ("weights", "hidden_size", "inter_size", "topk", "num_experts"),
    "small": ("op_class", "bytes_per_token"),
}


def kernel_observations(table: pd.DataFrame, device: Device) -> Observations:
    """
    Observe a table of kernels on one device.

    Parameters
    ----------
    table : DataFrame
        Columns ``op`` (product, attention, mixture, small), ``seconds``, ``new_tokens``, ``context_tokens``,
        ``sequences`` and those of :data:`SHAPES`; more columns are kept as facts.
    device : Device
        What it was measured on.

    Returns
    -------
    observations : Observations
    """
    lines = table.reset_index(drop=True)
    needed = dict.fromkeys(column for op in lines["op"].unique() for column in SHAPES[op])
    shape = lines.groupby(["op", *needed], dropna=False, sort=False).ngroup()  # numbered as they come
    row, first = np.asarray(shape, dtype=np.int64), lines.loc[~shape.duplicated()]
    expected, least = (_plan(first, skew) for skew in (0.0, np.inf))
    new, context, sequences = (
        lines[name].to_numpy(dtype=np.float64) for name in ("new_tokens", "context_tokens", "sequences")
    )
    one, points = Group(new, context, sequences, np.ones(len(lines))), np.arange(len(lines))
    seconds = lines["seconds"].to_numpy(dtype=np.float64)
    rates = resolve_rates(device, "calibrated")
    return Observations(lines, seconds, device, expected, rates, (one,), points, np.ones(len(lines)), least, row=row)


def _plan(shapes: pd.DataFrame, skew: float) -> Plan:
    """Lay out one row a shape; under an infinite skew a mixture touches the fewest experts that it can."""
    lines = shapes.to_dict("records")
    return assemble([_BUILD[line["op"]](line, skew)._replace(name=str(i)) for i, line in enumerate(lines)])


def _precision(weights: str, kv_cache: str = "bf16", skew: float = 0.0) -> Precision:
    default = PLAIN_FORMAT if weights == "bf16" else weights
    return Precision(weight_format(weights), Quantisation(default=default), kv_cache, "bf16", routing_skew=skew)


def _product(line: Line, _: float) -> Operator:
    inner, columns = int(line["k"]), int(line["n"])
    shape = Product("product", inner, columns, modules=(Module("mlp.down_proj", columns),))
    return linear(shape, _precision(line["weights"]), None)


def _attention(line: Line, _: float) -> Operator:
    heads, kv_heads, width = (int(line[name]) for name in ("heads", "kv_heads", "head_dim"))
    mixer = GroupedQueryAttention(name="full", heads=heads, kv_heads=kv_heads, head_dim=width)
    return attention(mixer, _precision("bf16", line["kv_cache"]))


def _mixture(line: Line, skew: float) -> Operator:
    many, each, width = (int(line[name]) for name in ("num_experts", "topk", "inter_size"))
    block = MixtureFeedForward(name="moe", experts=many, experts_per_token=each, intermediate_size=width)
    return experts(int(line["hidden_size"]), block, _precision(line["weights"], skew=skew), None)


def _small(line: Line, _: float) -> Operator:
    return elementwise("small", line["op_class"], _precision("bf16"), {TOKENS: float(line["bytes_per_token"])})


_BUILD: dict[str, Callable[[Line, float], Operator]] = {
    "product": _product,
    "attention": _attention,
    "mixture": _mixture,
    "small": _small,
}
