"""What a set of measurements cannot tell apart, and the one that would."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

#: Parts of a constant's name -> the run that would pin it down, the most telling first.
RUNS = (
    ("attention.memory", "one decode run at 16k tokens of context"),
    ("attention.softmax", "one prefill of 16k tokens"),
    ("attention.compute", "one prefill of 16k tokens"),
    ("attention.activation", "one prefill of 2k tokens with its attention kernel apart"),
    ("attention.tile", "attention kernels of 8 sequences at 16 to 512 tokens of context"),
    ("attention.launch", "one decode run at an empty cache"),
    ("mixtures", "decode runs of a mixture at batches of 1 and 64, and one prefill of 4k tokens"),
    ("sustained", "prefills of 8k tokens back to back for some seconds"),
    ("burst", "one prefill of 2k tokens after a pause, and ten without"),
    ("unpack", "decode runs at batches of 1, 8 and 32"),
    ("quantisation", "products of 16 to 512 rows"),
    ("inner", "products of one row at inner widths of 1k and 16k"),
    ("exponent", "products of 64 to 512 rows"),
    ("compute", "one prefill of 4k tokens"),
    ("vector", "one prefill of 4k tokens"),
    ("launch", "one decode run of a model under 1 B parameters"),
    ("gap", "one decode run of a model under 1 B parameters"),
    ("step", "one decode run of a model under 1 B parameters"),
    ("products", "one decode run of a model of twice the weights"),
    ("memory", "this kernel at 8k tokens"),
)
#: Log error of one measurement, at least: repeated runs agree to 1%.
RESIDUAL = 0.01
#: What is known of a constant before any data: a factor of e either way.
PRIOR = 1.0
#: A constant whose logarithm is open by more than this is not determined.
UNDETERMINED = 0.25
#: A constant is not separated from an undetermined one if they are correlated by more than this, and if it moves with
#: the other by more than a measurement's error.
CORRELATED = 0.5


class Weakness(NamedTuple):
    """
    Constants that the data cannot separate, and one measurement that would.

    The first is not determined; ``spread`` is the standard deviation of its logarithm. The others move along with it.
    """

    constants: tuple[str, ...]
    spread: float
    measurement: str

    def __str__(self) -> str:
        """Say it in one line."""
        names = " from ".join((self.constants[0], " and ".join(self.constants[1:]))[: len(self.constants)])
        verb = "separate" if len(self.constants) > 1 else "determine"
        known = f"known to a factor of {np.exp(self.spread):.2g}"
        return f"these measurements cannot {verb} {names} ({known}): add {self.measurement}"


def weaknesses(names: Sequence[str], slopes: NDArray[np.float64], residual: float = RESIDUAL) -> tuple[Weakness, ...]:
    """
    Find the constants that can move without the data noticing, each with those that then move along.

    Parameters
    ----------
    names : sequence of str
        The free constants.
    slopes : array
        Change of the log of every predicted time by the log of each constant, (values, constants).
    residual : float
        Log error of one measurement.

    Returns
    -------
    weaknesses : tuple of Weakness
        The least known first; empty where all constants are known to 25%.

    Examples
    --------
    Two runs in which both constants move the time alike:

    >>> print(*weaknesses(["products.memory", "attention.memory"], np.array([[0.9, 0.1], [0.9, 0.1]])))
    these measurements cannot separate attention.memory from products.memory (known to a factor of 2.7): add one decode run at 16k tokens of context
    """  # noqa: E501 - printed as one line
    covariance = open_directions(slopes, residual)
    spreads = np.sqrt(np.diag(covariance))
    found: list[Weakness] = []
    for i in sorted(range(len(names)), key=lambda i: (-round(float(spreads[i]), 2), _rank(names[i]))):
        along = _along(i, covariance, names)
        named = (names[i], *along)
        if spreads[i] > UNDETERMINED and not any(names[i] in one.constants for one in found):
            found.append(Weakness(named, float(spreads[i]), _run(names[i])))
    return tuple(found)


def open_directions(slopes: NDArray[np.float64], residual: float = RESIDUAL) -> NDArray[np.float64]:
    """
    Covariance of the logarithms of the constants that data of this error, and no more than a guess before, leave open.

    Examples
    --------
    One row that two constants move alike: each stays open, and one falls as the other rises.

    >>> np.round(open_directions(np.array([[0.5, 0.5]])), 2)
    array([[ 0.5, -0.5],
           [-0.5,  0.5]])
    """
    known = np.eye(slopes.shape[1]) / PRIOR
    _, sizes, directions = np.linalg.svd(np.vstack([slopes / residual, known]), full_matrices=False)
    covariance: NDArray[np.float64] = (directions.T / sizes**2) @ directions
    return covariance


def _along(i: int, covariance: NDArray[np.float64], names: Sequence[str]) -> tuple[str, ...]:
    """List the constants that move when one does, the most moved first."""
    moved = np.abs(covariance[i]) / np.sqrt(covariance[i, i])
    correlated = moved / np.sqrt(np.diag(covariance)) > CORRELATED
    order = np.argsort(-moved, kind="stable")
    return tuple(names[j] for j in order if j != i and correlated[j] and moved[j] > RESIDUAL)


def _run(name: str) -> str:
    """Name the run that pins down a constant: for one that no run is known for, another size."""
    place = _rank(name)
    return RUNS[place][1] if place < len(RUNS) else "one more run at another size"


def _rank(name: str) -> int:
    """Find a constant among the runs: all attention is pinned down alike."""
    plain = name.replace("_wide", "").replace("_fp8", "")
    return next((place for place, (part, _) in enumerate(RUNS) if part in plain), len(RUNS))
