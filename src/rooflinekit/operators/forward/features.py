"""The features of a Step: the few numbers that all work is linear in."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rooflinekit.operators.attention import attention_scores, chunked_rows_read, chunked_scores, rows_read
from rooflinekit.operators.cost import Feature, Matrix
from rooflinekit.operators.moe import distinct_experts
from rooflinekit.specs.step import Group

Real = float | NDArray[np.float64]


class Amounts(NamedTuple):
    """A group's counts as numbers or arrays that broadcast."""

    new: Real
    context: Real
    sequences: Real
    sampled: Real


def features(wanted: tuple[Feature, ...], groups: tuple[Group, ...]) -> Matrix:
    """Evaluate the features of a step: (features, points), groups summed here and nowhere else."""
    if all(type(value) in (int, float) for group in groups for value in group):
        whole = tuple(Amounts(*group) for group in groups)  # type: ignore[arg-type]  # all plain numbers
        return np.array([[_total(feature, whole)] for feature in wanted], dtype=np.float64)
    arrays = [Amounts(*(np.asarray(value, dtype=np.float64) for value in group)) for group in groups]
    shape = np.broadcast_shapes(*(values.shape for group in arrays for values in group))  # type: ignore[union-attr]
    x = np.empty((len(wanted), *shape))
    for row, feature in zip(x, wanted, strict=True):
        row[...] = _total(feature, tuple(arrays))
    return x.reshape(len(wanted), -1)


def _total(feature: Feature, groups: tuple[Amounts, ...]) -> Real:
    match feature.kind:
        case "pass":
            return 1.0
        case "sampling":
            return np.minimum(_sum(groups, lambda group: group.sampled), 1.0)
        case "experts":
            return distinct_experts(_sum(groups, lambda group: group.new), *feature.detail)
        case "present":
            return np.minimum(_sum(groups, lambda group: _uses(feature, group) * np.minimum(group.new, 1.0)), 1.0)
        case _:
            return _sum(groups, lambda group: _per_sequence(feature, group))


def _sum(groups: tuple[Amounts, ...], per_sequence: Callable[[Amounts], Real]) -> Real:
    total: Real = 0.0
    for group in groups:
        total = total + group.sequences * per_sequence(group)
    return total


def _per_sequence(feature: Feature, group: Amounts) -> Real:
    count = _COUNTS[feature.kind](group, feature)
    return count * _uses(feature, group) if feature.form in _LATENT else count


def _scores(group: Amounts, feature: Feature) -> Real:
    if feature.form == "chunked" and feature.window is not None:
        return chunked_scores(group.new, group.context, feature.window)
    return attention_scores(group.new, group.context, feature.window)


def _rows(group: Amounts, feature: Feature) -> Real:
    if feature.form == "chunked" and feature.window is not None:
        return chunked_rows_read(group.new, group.context, feature.window)
    return rows_read(group.new, group.context, feature.window)


_COUNTS: dict[str, Callable[[Amounts, Feature], Real]] = {
    "tokens": lambda group, _: group.new,
    "sequences": lambda _group, _: 1.0,
    "sampled": lambda group, _: group.sampled,
    "scores": _scores,
    "rows_read": _rows,
}

_LATENT = ("absorbed", "expanded")


def _uses(feature: Feature, group: Amounts) -> Real:
    """1 where a group uses this form of latent attention: the one with fewer operations, so that none jumps."""
    score_absorbed, token_absorbed, score_expanded, row_expanded = feature.detail
    scores = attention_scores(group.new, group.context, feature.window)
    absorbed = score_absorbed * scores + token_absorbed * group.new
    expanded = score_expanded * scores + row_expanded * (group.new + group.context)
    chosen = np.asarray(absorbed <= expanded)
    return np.asarray(chosen if feature.form == "absorbed" else ~chosen, dtype=np.float64)
