"""What a set of measurements cannot tell apart, and the one that would."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

#: Parts of a constant's name -> the run that would pin it down.
RUNS = (
    ("attention.memory", "one decode run at 16k tokens of context"),
    ("attention.compute", "one prefill of 16k tokens"),
    ("attention.activation", "one prefill of 2k tokens with its attention kernel apart"),
    ("attention.launch", "one decode run at an empty cache"),
    ("compute", "one prefill of 4k tokens"),
    ("launch", "one decode run of a model under 1 B parameters"),
    ("gap", "one decode run of a model under 1 B parameters"),
    ("step", "one decode run of a model under 1 B parameters"),
    ("sustained", "prefills of 8k tokens back to back for some seconds"),
    ("burst", "one prefill of 2k tokens after a pause, and ten without"),
    ("memory", "one decode run of a model of twice the weights"),
)
#: A direction in the constants whose spread exceeds this factor is not determined.
UNDETERMINED = 0.25
#: Constants that take at least this part in such a direction are named.
TAKES_PART = 0.3


class Weakness(NamedTuple):
    """Constants that the data cannot separate, and one measurement that would."""

    constants: tuple[str, ...]
    spread: float
    measurement: str

    def __str__(self) -> str:
        """Say it in one line."""
        names = " from ".join(self.constants)
        verb = "separate" if len(self.constants) > 1 else "determine"
        return f"these measurements cannot {verb} {names} (spread {self.spread:.0%}): add {self.measurement}"


def weaknesses(names: Sequence[str], slopes: NDArray[np.float64], residual: float = 0.02) -> tuple[Weakness, ...]:
    """
    Find the directions in which the constants can move without the data noticing.

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

    Examples
    --------
    Two runs in which both constants move the time alike:

    >>> print(*weaknesses(["products.memory", "attention.memory"], np.array([[0.9, 0.1], [0.9, 0.1]])))
    these measurements cannot separate attention.memory from products.memory (spread 64%): add one decode run at 16k tokens of context
    """
    prior = 1.0  # a factor of e either way: what is known of a constant before any data
    _, sizes, directions = np.linalg.svd(np.vstack([slopes / residual, np.eye(len(names)) / prior]))
    found = []
    for size, direction in zip(sizes, directions, strict=True):
        spread = float(np.max(np.abs(direction))) / float(size)
        if spread > UNDETERMINED:
            order = np.argsort(-np.abs(direction))
            named = tuple(names[i] for i in order if abs(direction[i]) > TAKES_PART)
            found.append(Weakness(named, spread, _run(named[0])))
    return tuple(found)


def _run(name: str) -> str:
    return next((run for part, run in RUNS if part in name), "one more run at another size")
