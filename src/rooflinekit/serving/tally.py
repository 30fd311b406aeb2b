"""Tally: mean and percentiles of any number of values in constant memory."""

from math import ceil, log

import numpy as np

#: Width of a bin in the logarithm: percentiles are right to within half of it.
_WIDTH = 0.005
_LEAST_S, _MOST_S = 1e-7, 1e6
_BINS = ceil(log(_MOST_S / _LEAST_S) / _WIDTH)


class Tally:
    """
    Values of one metric, each with a weight.

    Means are exact, percentiles right to 0.25%: a histogram of logarithms.

    Examples
    --------
    >>> tally = Tally()
    >>> for value in (1.0, 2.0, 3.0, 4.0):
    ...     tally.add(value)
    >>> tally.mean, round(tally.percentile(50), 1), tally.count
    (2.5, 2.0, 4.0)
    """

    __slots__ = ("_bins", "count", "largest", "total")

    def __init__(self) -> None:
        self._bins = [0.0] * (_BINS + 1)
        self.count = self.total = self.largest = 0.0

    def add(self, value: float, weight: float = 1.0) -> None:
        """Count a value so many times."""
        at = int(log(value / _LEAST_S) / _WIDTH) if value > _LEAST_S else 0
        self._bins[min(at, _BINS)] += weight
        self.count += weight
        self.total += weight * value
        self.largest = max(self.largest, value)

    @property
    def mean(self) -> float:
        """Mean; not-a-number where nothing was counted."""
        return self.total / self.count if self.count else float("nan")

    def percentile(self, percent: float) -> float:
        """Value that so many percent do not exceed."""
        if not self.count:
            return float("nan")
        running = np.cumsum(self._bins)
        at = int(np.searchsorted(running, percent / 100.0 * self.count))
        return min(float(_LEAST_S * np.exp((at + 0.5) * _WIDTH)), self.largest)
