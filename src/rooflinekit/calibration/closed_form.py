"""The closed form against the stored simulations of the grid: side by side, and as a validation set."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from rooflinekit.calibration.grid import DEVICE, ENGINE, FIGURES, MODEL, TABLE, Workload, figures

#: What the names of the set's parts call each figure.
_SHORT = {
    "time_per_output_token_s": "TPOT", "time_to_first_token_s": "mean TTFT", "time_to_first_token_p99_s": "p99 TTFT",
}  # fmt: skip


def compared() -> pd.DataFrame:
    """Lay the stored simulations beside the closed form, a line a workload."""
    table = pd.read_csv(TABLE)
    cells = [Workload(*row) for row in table[[*Workload._fields]].itertuples(index=False)]
    predicted = pd.DataFrame([figures(one, "closed form") for one in cells])
    return pd.concat([table, predicted.pop("valid"), predicted.add_prefix("closed_")], axis=1)


def grid_frames() -> Iterator[pd.DataFrame]:
    """Yield the comparison in the columns of a validation set: measured is simulated."""
    table = compared()
    for name in FIGURES:
        if name == "time_to_first_token_p99_s":
            yield _frame(table[table["arrivals"] == "open"], name)
        else:
            yield _frame(table, name)


def _frame(table: pd.DataFrame, name: str) -> pd.DataFrame:
    kinds = [_kind(*row) for row in table[["arrivals", "lengths", "valid"]].itertuples(index=False)]
    facts: dict[str, Any] = {
        "device": DEVICE, "engine": ENGINE, "model": MODEL, "op": "", "regime": "", "weights": "", "kv_cache": "",
        "mixture": False, "batch": np.nan, "tokens": table["prompt_tokens"], "context": table["output_tokens"],
        "id": table["lengths"] + ", budget " + table["token_budget"].astype(str) + ", load "
        + table["utilisation"].astype(str), "tier": "closed form", "bound": "", "floor_s": 0.0, "log_std": np.nan,
        "phase": [f"{_SHORT[name]}, {kind}" for kind in kinds], "measured_s": table[name],
        "predicted_s": table[f"closed_{name}"],
    }  # fmt: skip
    return pd.DataFrame(facts).assign(log_error=np.log(table[f"closed_{name}"] / table[name]))


def _kind(arrivals: str, lengths: str, valid: bool) -> str:  # noqa: FBT001 - a column
    """Name the part of the set: the public client draws lengths evenly, the others are a harder test."""
    if not valid:
        return "outside validity"
    if arrivals == "open":
        return "open"
    return "the same client" if lengths == "uniform" else f"closed, {lengths} lengths"
