"""Latency: the mean and percentiles of one metric, however they were found."""

from typing import NamedTuple

from rooflinekit.serving.tally import Tally

#: Latencies that clients see, as results call them.
METRICS = ("time_to_first_token_s", "time_per_output_token_s", "inter_token_latency_s", "end_to_end_s")


class Latency(NamedTuple):
    """
    Mean and percentiles of a latency. [s]

    Percentiles that a closed form does not give are not-a-number.
    """

    mean: float
    p50: float
    p90: float
    p99: float

    @classmethod
    def of(cls, tally: Tally) -> "Latency":
        """Take them from what a simulation counted."""
        return cls(tally.mean, *(tally.percentile(percent) for percent in (50, 90, 99)))
