"""The features of a Step: the few numbers that all work is linear in."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rooflinekit.operators.attention import attention_scores, chunked_rows_read, chunked_scores, rows_read
from rooflinekit.operators.cost import Feature, Matrix
from rooflinekit.operators.moe import distinct_experts, rank_experts
from rooflinekit.specs import step
from rooflinekit.specs.step import Group

Real = float | NDArray[np.float64]
#: As a step has them.
Sequences = step.Real


class Amounts(NamedTuple):
    """A group's counts as numbers or arrays that broadcast."""

    new: Real
    context: Real
    sequences: Real
    sampled: Real


Groups = tuple[Amounts, ...]
#: (what the choice weighs, form of latent attention) -> the groups, with no sequences where they use the other form.
ByForm = dict[tuple[tuple[float, ...], str], Groups]


def features(wanted: tuple[Feature, ...], groups: tuple[Group, ...]) -> Matrix:
    """Evaluate the features of a step: (features, points), groups summed here and nowhere else."""
    if any(feature.shards != 1 for feature in wanted):
        return _by_shards(wanted, groups)
    if all(type(value) in (int, float) for group in groups for value in group):
        whole = tuple(Amounts(*group) for group in groups)  # type: ignore[arg-type]  # all plain numbers
        by_form = _by_form(wanted, whole)
        return np.array([[_total(f, by_form.get((f.detail, f.form), whole))] for f in wanted], dtype=np.float64)
    arrays = tuple(Amounts(*(np.asarray(value, dtype=np.float64) for value in group)) for group in groups)
    shape = np.broadcast_shapes(*(values.shape for group in arrays for values in group))  # type: ignore[union-attr]
    by_form = _by_form(wanted, arrays)
    x = np.empty((len(wanted), *(shape or (1,))))  # numpy's own scalars have no shape
    for row, feature in zip(x, wanted, strict=True):
        row[...] = _total(feature, by_form.get((feature.detail, feature.form), arrays))
    return x.reshape(len(wanted), -1)


def _by_shards(wanted: tuple[Feature, ...], groups: tuple[Group, ...]) -> Matrix:
    """Evaluate features of ranks that share the sequences out among them, each group's as evenly as they go."""
    rows: dict[Feature, Matrix] = {}
    for shards in {feature.shards for feature in wanted}:
        own = tuple(feature for feature in wanted if feature.shards == shards)
        mine = tuple(group._replace(sequences=_share_of(group.sequences, shards)) for group in groups)
        x = features(tuple(feature._replace(shards=1) for feature in own), groups if shards == 1 else mine)
        rows |= dict(zip(own, x, strict=True))
    return np.array([rows[feature] for feature in wanted])


def _share_of(sequences: Sequences, shards: int) -> Sequences:
    """Sequences of the rank that has most."""
    share: NDArray[np.float64] = np.ceil(np.divide(sequences, shards))
    return share if share.ndim else float(share)


def _total(feature: Feature, groups: Groups) -> Real:
    match feature.kind:
        case "pass":
            return 1.0
        case "sampling":
            return np.minimum(_sum(groups, lambda group: group.sampled), 1.0)
        case "experts":
            experts, chosen, skew, *rank = feature.detail
            distinct = distinct_experts(_sum(groups, lambda group: group.new), experts, chosen, skew)
            return rank_experts(distinct, experts, *rank) if rank else distinct
        case "present":
            return np.minimum(_sum(groups, lambda group: np.minimum(group.new, 1.0)), 1.0)
        case _:
            return _sum(groups, lambda group: _COUNTS[feature.kind](group, feature))


def _sum(groups: Groups, per_sequence: Callable[[Amounts], Real]) -> Real:
    parts = [group.sequences * per_sequence(group) for group in groups]
    return sum(parts[1:], parts[0]) if parts else 0.0


def _scores(group: Amounts, feature: Feature) -> Real:
    if feature.form == "chunked" and feature.window is not None:
        return chunked_scores(group.new, group.context, feature.window)
    return attention_scores(group.new, group.context, feature.window)


def _rows(group: Amounts, feature: Feature) -> Real:
    if feature.form == "chunked" and feature.window is not None:
        return chunked_rows_read(group.new, group.context, feature.window)
    return rows_read(group.new, group.context, feature.window)


def _short_rows(group: Amounts, feature: Feature) -> Real:
    return np.maximum(feature.tile - _rows(group, feature), 0.0)


_COUNTS: dict[str, Callable[[Amounts, Feature], Real]] = {
    "tokens": lambda group, _: group.new,
    "sequences": lambda _group, _: 1.0,
    "sampled": lambda group, _: group.sampled,
    "scores": _scores,
    "rows_read": _rows,
    "short_rows": _short_rows,
}


def _by_form(wanted: tuple[Feature, ...], groups: Groups) -> ByForm:
    """Part the groups by the form of latent attention that they use: once for all features of a step."""
    found: ByForm = {}
    for detail in {feature.detail for feature in wanted if feature.form == "absorbed"}:
        chosen = [_absorbed(detail, group) for group in groups]
        for form, uses in (("absorbed", chosen), ("expanded", [~use for use in chosen])):
            found[detail, form] = tuple(_share(*pair) for pair in zip(groups, uses, strict=True) if pair[1].any())
    return found


def _share(group: Amounts, use: NDArray[np.bool_]) -> Amounts:
    """Keep the sequences of the points that use a form; where all do, nothing need be multiplied."""
    return group if use.all() else group._replace(sequences=np.asarray(group.sequences * use, dtype=np.float64))


def _absorbed(detail: tuple[float, ...], group: Amounts) -> NDArray[np.bool_]:
    """Tell where attention over the latents themselves costs no more than expanding them first."""
    score_absorbed, token_absorbed, score_expanded, row_expanded, selected = detail
    scores = attention_scores(group.new, group.context, None if np.isinf(selected) else selected)
    more = (score_absorbed - score_expanded) * scores + token_absorbed * group.new
    return np.asarray(more <= row_expanded * (group.new + group.context))
