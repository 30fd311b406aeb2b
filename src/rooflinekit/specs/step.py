"""The Step: what one forward pass works on. Prefill, decode, chunks, mixed steps and verification are all Steps."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rooflinekit.errors import InvalidInputError

#: A count for one point, or one for each point of a sweep.
Real = float | Sequence[float] | NDArray[np.float64] | NDArray[np.int64]


_LARGEST = float(np.finfo(np.float64).max)


class Group(NamedTuple):
    """`sequences` sequences that each bring `new_tokens` and already hold `context_tokens` in the cache.

    ``sampled_tokens`` is how many positions of each sequence go through the output layer: 1 for a decode step and for
    the end of a prompt, 0 for an earlier chunk of it, k + 1 when k speculated tokens are verified.
    """

    new_tokens: Real
    context_tokens: Real = 0
    sequences: Real = 1
    sampled_tokens: Real = 1


def checked(
    name: str,
    value: Real,
    *,
    minimum: float = 0.0,
    positive: bool = False,
    infinite: bool = False,
    whole: bool = False,
) -> Real:
    """Return the value, or raise one error that names it when it is too small, not a number, infinite or not whole."""
    most = np.inf if infinite else _LARGEST
    if type(value) in (int, float):  # the fast path of a single point
        bad = not minimum <= value <= most or (positive and value == 0)  # type: ignore[operator]
    else:
        array = _array(name, value)
        numeric = array.dtype.kind in "iuf" and array.size > 0
        finite = np.ones(array.shape, dtype=bool) if infinite or not numeric else np.isfinite(array)
        bad = not numeric or not bool(np.all(finite & (array >= minimum) & ((array > 0) | (not positive))))
    if bad or (whole and bool(np.any(np.mod(value, 1)))):
        expected = f"{'above 0' if positive else f'{minimum:g} or more'}{', whole' if whole else ''}"
        message = f"{name}={value!r}: expected a number, {expected}{'' if infinite else ' and finite'}"
        raise InvalidInputError(message)
    return value


def _array(name: str, value: Real) -> NDArray[np.float64]:
    """Return the value as an array; rows of unequal length and masked values are none."""
    try:
        array = np.asarray(value)
    except ValueError:
        message = f"{name}={value!r}: expected rows of equal length"
        raise InvalidInputError(message) from None
    if np.ma.is_masked(value):
        message = f"{name} holds masked values: expected a number at every point"
        raise InvalidInputError(message)
    return array


def checked_group(group: object) -> Group:
    """Return the group with its four counts checked."""
    if not isinstance(group, tuple | list) or not 1 <= len(group) <= len(Group._fields):
        message = f"{group!r}: expected (new_tokens, context_tokens, sequences), or a Group"
        raise InvalidInputError(message)
    whole = group if isinstance(group, Group) else Group(*group)
    checked("new_tokens", whole.new_tokens, positive=True)
    for name, value in zip(Group._fields[1:], whole[1:], strict=True):
        checked(name, value)
    sampled, new = whole.sampled_tokens, whole.new_tokens
    if isinstance(sampled, int | float) and isinstance(new, int | float):  # the fast path of a single point
        many = sampled > max(new, 1)
    else:
        many = bool(np.any(np.greater(amount(sampled), np.maximum(amount(new), 1.0))))
    if many:
        message = f"sampled_tokens={sampled!r}: expected no more than new_tokens={new!r}"
        raise InvalidInputError(message)
    return whole


def amount(value: Real) -> float | NDArray[np.float64]:
    """Return a float for a single number, else an array that broadcasts."""
    if type(value) in (int, float):
        return float(value)  # type: ignore[arg-type]
    array = np.asarray(value, dtype=np.float64)
    return float(array) if array.ndim == 0 else array


def all_positive(value: float | NDArray[np.float64]) -> bool:
    """Tell whether a count is above 0 at every point."""
    return value > 0 if isinstance(value, float) else bool(np.all(value > 0))


def points_shape(*values: Real) -> tuple[int, ...]:
    """Broadcast shape of all arguments; () for a single point."""
    if all(type(value) in (int, float) for value in values):
        return ()
    shapes = [np.shape(value) for value in values]
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        message = f"the arguments' shapes do not broadcast: {', '.join(map(str, shapes))}"
        raise InvalidInputError(message) from None


def describe(groups: tuple[Group, ...]) -> str:
    """Name a step by its groups, for its one-line repr."""
    if points_shape(*(value for group in groups for value in group)) != ():
        return f"step of {len(groups)} group{'s' if len(groups) > 1 else ''}"
    parts = (f"{g.sequences:,} x ({g.new_tokens:,} new, {g.context_tokens:,} held)" for g in groups)
    return "step " + " + ".join(parts)
