"""The Plan: rows of operators and their coefficients, so that a Step is counted by one small matrix product."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]
Real = float | Matrix


class Feature(NamedTuple):
    """One number of a step that work is linear in; the other fields complete the kinds that need them.

    ``form`` is the form of attention that a group uses, ``detail`` the numbers that a kind is made from, ``tile`` the
    rows of K and V that a kernel takes at once: a timing fills it in, since it belongs to the kernel. ``shards`` is the
    number of ranks that share the sequences out among them: a feature is that of the rank with most.
    """

    kind: str
    window: int | None = None
    form: str = ""
    detail: tuple[float, ...] = ()
    tile: float = 0.0
    shards: int = 1

    def __str__(self) -> str:
        """Name it as `explain()` prints it."""
        seen = "selected" if self.form in ("absorbed", "expanded") else "window"
        details = [] if self.window is None else [f"{seen} {self.window:,}"]
        details += [self.form] if self.form else []
        if self.kind == "experts":
            experts, per_token, skew, *rank = self.detail
            details += [f"{per_token:g} of {experts:g} a token", *([f"skew {skew:g}"] if skew else [])]
            details += [f"of the {rank[0]:g} that a rank holds"] if rank else []
        details += [f"one of {self.shards} ranks"] if self.shards > 1 else []
        name = _SAID.get(self.kind, self.kind)
        return f"{name}[{', '.join(details)}]" if details else name


#: Kind of feature -> its name in words, where that is another.
_SAID = {"experts": "distinct experts", "rows_read": "rows read", "short_rows": "rows short of a tile"}
ONE = Feature("pass")
TOKENS = Feature("tokens")
SEQUENCES = Feature("sequences")
SAMPLED = Feature("sampled")
SAMPLING = Feature("sampling")

#: What is counted for each operator; every one is a (rows, features) matrix of the plan.
QUANTITIES = (
    "launches",
    "flops",
    "weight_bytes",
    "activation_bytes",
    "kv_bytes",
    "kv_row_bytes",
    "state_bytes",
    "scores",
    "input_elements",
    "inner_elements",
    "packed_weights",
    "message_bytes",
)


class Row(NamedTuple):
    """One operator: identical layers share a row, and its launches count them.

    ``variant`` tells kernels of one class apart that an engine times apart: attention over an FP8 cache, or wide heads;
    of a collective it is the operation, between so many ``ranks`` in so many ``nodes``.
    """

    name: str
    op_class: str
    dtype: str
    variant: str = ""
    ranks: int = 1
    nodes: int = 1


class Operator(NamedTuple):
    """One operator of one layer, before identical ones merge: ``work[quantity][feature]`` is a coefficient."""

    name: str
    op_class: str
    dtype: str
    work: Mapping[str, Mapping[Feature, Real]]
    times: int = 1
    part: str = ""
    variant: str = ""
    ranks: int = 1
    nodes: int = 1


@dataclass(frozen=True, eq=False)
class Plan:
    """Coefficients of every operator of a forward pass: work = coefficients @ features, exact in float64.

    ``kv_row_bytes`` is one row of K and V for each row that a sequence is short of a kernel's tile, ``inner_elements``
    the inner width of a product for each launch, ``packed_weights`` the weights that are unpacked to be computed with:
    they price what a kernel does, and are no traffic. ``message_bytes`` are those of the buffers of collectives, which
    pass between devices.
    """

    rows: tuple[Row, ...]
    features: tuple[Feature, ...]
    launches: Matrix
    flops: Matrix
    weight_bytes: Matrix
    activation_bytes: Matrix
    kv_bytes: Matrix
    kv_row_bytes: Matrix
    state_bytes: Matrix
    scores: Matrix
    input_elements: Matrix
    inner_elements: Matrix
    packed_weights: Matrix
    message_bytes: Matrix

    @property
    def bytes(self) -> Matrix:
        """Coefficients of all bytes together."""
        return self.weight_bytes + self.activation_bytes + self.kv_bytes + self.state_bytes

    def column(self, feature: Feature) -> int:
        """Return the position of a feature."""
        return self.features.index(feature)


def assemble(operators: Iterable[Operator]) -> Plan:
    """Merge identical operators into rows and lay their coefficients out as matrices.

    Two operators are identical when name, class, dtype and work agree. Where one name stands for several shapes, each
    row's name says whose it is: ``attention[window]`` and ``attention[full]``.
    """
    merged: dict[tuple[object, ...], tuple[Operator, int]] = {}
    for operator in operators:
        key = (operator.name, operator.op_class, operator.dtype, operator.nodes, _frozen(operator.work))
        first, times = merged.get(key, (operator, 0))
        merged[key] = (first, times + operator.times)
    found = (feature for one, _ in merged.values() for terms in one.work.values() for feature in terms)
    columns = dict.fromkeys((*found, SEQUENCES))
    if any(feature.shards > 1 for feature in columns):
        columns |= {TOKENS: None}  # of the whole pass, beside those of a rank
    matrices = {quantity: _matrix(quantity, merged.values(), tuple(columns)) for quantity in QUANTITIES}
    return Plan(rows=_rows([one for one, _ in merged.values()]), features=tuple(columns), **matrices)


def _frozen(work: Mapping[str, Mapping[Feature, Real]]) -> tuple[object, ...]:
    return tuple(sorted((quantity, tuple(sorted(terms.items(), key=str))) for quantity, terms in work.items()))


def _matrix(quantity: str, merged: Iterable[tuple[Operator, int]], columns: tuple[Feature, ...]) -> Matrix:
    rows = [[times * one.work.get(quantity, {}).get(feature, 0.0) for feature in columns] for one, times in merged]
    return np.array(rows, dtype=np.float64)


def _rows(operators: list[Operator]) -> tuple[Row, ...]:
    """Name the rows: by their part where the name has several, and numbered where the part has several too."""
    alone = [operator.name for operator in operators]
    named = [one.name if alone.count(one.name) == 1 else f"{one.name}[{one.part}]" for one in operators]
    rows = []
    for i, (name, one) in enumerate(zip(named, operators, strict=True)):
        label = name if named.count(name) == 1 else f"{name.removesuffix(']')} {named[: i + 1].count(name)}]"
        rows.append(Row(label, one.op_class, one.dtype, one.variant, one.ranks, one.nodes))
    return tuple(rows)
