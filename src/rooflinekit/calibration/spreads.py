"""Spreads: how far predictions lie from measurements that they have not seen, and what each entry carries of that."""

from collections.abc import Iterator, Mapping, Sequence
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from rooflinekit.specs.efficiency import Spread

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Part of the errors that an interval of this level is to hold, and how far that reaches in standard deviations.
LEVEL = 0.8
REACH = NormalDist().inv_cdf(0.5 + LEVEL / 2.0)
#: Fewer errors than this say nothing of their spread: the wider group's counts.
LEAST = 12
#: Set -> the facts that form its groups, from the narrowest, and the fact that is held out of its own spread.
_GROUPS: Mapping[str, tuple[Sequence[Sequence[str]], str]] = {
    "kernels-other-shapes": (
        (("judged", "device", "op", "phase", "weights", "kv_cache"), ("judged", "op", "phase")),
        "fold",
    ),
    "kernels-left-out": (
        (("judged", "tier", "op", "phase", "weights", "kv_cache"), ("judged", "op", "phase")),
        "device",
    ),
    "streams-other-models": ((("engine", "phase", "mixture"), ("phase", "mixture")), "model"),
    "streams-left-out": ((("tier", "engine", "phase", "mixture"), ("tier", "phase", "mixture"), ("phase",)), "device"),
}
_DEFAULT: tuple[Sequence[Sequence[str]], str] = ((("tier", "phase", "mixture"), ("phase",)), "fold")


def spread(errors: "pd.Series[float] | NDArray[np.float64]") -> float:
    """
    Give the standard deviation of the normal whose 80% interval holds 80% of these errors of logarithms.

    Examples
    --------
    >>> round(spread(np.array([-0.1, 0.1, 0.1, 0.1, 0.1])), 3)
    0.078
    """
    return float(np.quantile(np.abs(errors), LEVEL)) / REACH


def with_spreads(frame: pd.DataFrame) -> pd.DataFrame:
    """Add to each prediction the spread of its group, taken from rows of other devices, models or folds alone."""
    name = str(frame["set"].iloc[0])
    groups, held = _GROUPS.get(name, _DEFAULT)
    plain = frame.fillna(dict.fromkeys(("kv_cache", "weights", "op"), ""))
    facts = plain.assign(fold=np.arange(len(frame)) % 5, judged=plain.index.isin(judged_kernels(plain).index))
    found = pd.Series(np.nan, index=frame.index)
    for columns in groups:
        for _, lines in facts.groupby(list(columns), dropna=False):
            found = found.fillna(_from_the_others(lines, held))
    return frame.assign(log_std=found.fillna(spread(frame["log_error"])))


def _from_the_others(lines: pd.DataFrame, held: str) -> "pd.Series[float]":
    """Give every line of a group the spread of those that differ in the fact held out, where they are enough."""
    values = {}
    for value, mine in lines.groupby(held):
        others = lines.loc[lines[held] != value, "log_error"]
        if len(others) >= LEAST:
            values.update(dict.fromkeys(mine.index, spread(others)))
    return pd.Series(values, dtype=np.float64)


def coverage(frame: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Tabulate what 80% intervals hold, and their half-width against the median error, by group."""
    inside = np.abs(frame["log_error"]) <= REACH * frame["log_std"]
    facts = frame.assign(
        inside=inside, error=np.abs(np.expm1(frame["log_error"])), half_width=np.expm1(REACH * frame["log_std"])
    )
    table = facts.groupby(list(by), dropna=False).agg(
        rows=("inside", "size"),
        inside=("inside", "mean"),
        error=("error", "median"),
        half_width=("half_width", "median"),
    )
    return table.reset_index()


# ---- what entries carry


def kernel_spread(frame: pd.DataFrame) -> Spread:
    """Give the spreads of kernel classes by phase."""
    found = {
        f"{op}_{phase}": round(spread(lines["log_error"]), 3)
        for (op, phase), lines in judged_kernels(frame).groupby(["op", "phase"])
        if len(lines) >= LEAST and op != "small"
    }
    return Spread(**found)


def judged_kernels(frame: pd.DataFrame) -> pd.DataFrame:
    """Keep the kernels that a model has: from memory, of real widths; attention's prefill by its compute rows."""
    attention = (frame["op"] == "attention") & frame["regime"].isin(["dram", "compute"])
    return frame[(frame["op"].isin(["product", "mixture"]) & (frame["regime"] == "dram")) | attention]


def pass_spread(frame: pd.DataFrame) -> dict[str, float]:
    """Give the spreads of whole passes by phase; whole requests are steps for the most part."""
    phases = frame["phase"].replace({"request": "decode"})
    return {
        str(phase): round(spread(lines["log_error"]), 3)
        for phase, lines in frame.groupby(phases)
        if len(lines) >= LEAST and phase in ("prefill", "decode")
    }


def by_group(frame: pd.DataFrame, column: str) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield the rows of every value of a fact."""
    for value, lines in frame.groupby(column):
        yield str(value), lines
