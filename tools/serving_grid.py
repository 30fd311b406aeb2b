# ruff: noqa: INP001 - a script, not a package
"""Simulate the 300 workloads of the grid, write their table, and the page that compares the closed form with it.

    python tools/serving_grid.py            # simulates anew: half an hour on two cores
    python tools/serving_grid.py --page     # the page and its picture, from the stored table

The table is calibration's (`references/serving/grid.csv`); whoever changes the laws of the H100 or the profile of vLLM
simulates anew, and a test says so.
"""

import argparse
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
from blocks import Block
from rich.console import Console
from rich.progress import track

from rooflinekit.calibration import grid
from rooflinekit.calibration.closed_form import compared
from rooflinekit.reports.grid_plot import grid_figure
from rooflinekit.serving.serve import MOST_UTILISATION

ROOT = Path(__file__).parents[1]
PAGE, PICTURE = ROOT / "docs/serving_closed_form.md", ROOT / "docs/images/serving_grid.png"
BEGIN, END = "<!-- grid: made by tools/serving_grid.py -->", "<!-- grid: end -->"
#: Column -> what the page calls it.
NAMES = {
    "time_per_output_token_s": "time per output token",
    "time_to_first_token_s": "mean time to first token",
    "time_to_first_token_p99_s": "its 99th percentile",
}


def main() -> None:
    """Simulate, unless told not to, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--page", action="store_true", help="the page alone")
    parser.add_argument("--workers", type=int, default=2)
    asked = parser.parse_args()
    if not asked.page:
        simulated(asked.workers).to_csv(grid.TABLE, index=False, float_format="%.6g")
    table = compared()
    PICTURE.write_bytes(grid_figure(table))
    Block(PAGE, BEGIN, END).write(block(table))
    Console().print(block(table), markup=False, highlight=False, soft_wrap=True)


def simulated(workers: int) -> pd.DataFrame:
    """Simulate all workloads, a line each."""
    cells = grid.workloads()
    with ProcessPoolExecutor(workers) as pool:
        found = pool.map(_one, cells)
        rows = [{**cell._asdict(), **one} for cell, one in zip(cells, track(found, total=len(cells)), strict=False)]
    return pd.DataFrame(rows)


def _one(cell: grid.Workload) -> dict[str, float | bool]:
    found = grid.figures(cell, "simulation")
    return {name: found[name] for name in grid.FIGURES}


def block(table: pd.DataFrame) -> str:
    """Write the errors by kind of arrivals and lengths as Markdown between the markers."""
    lines = ["| requests come | lengths | load | workloads | " + " | ".join(NAMES.values()) + " |"]
    lines += ["| :--- | :--- | :--- | ---: |" + " ---: |" * len(NAMES)]
    lines += [_line(*key, rows) for key, rows in parts(table)]
    return "\n".join([BEGIN, "", *lines, "", "*Median / 90th percentile of the errors of the closed form.*", "", END])


def parts(table: pd.DataFrame) -> Iterator[tuple[tuple[str, str, str], pd.DataFrame]]:
    """Split by arrivals and lengths; open ones by load too."""
    for (how, kind), rows in table.groupby(["arrivals", "lengths"], sort=False):
        if how == "closed":
            yield (str(how), str(kind), "all"), rows
            continue
        low = rows["utilisation"] < MOST_UTILISATION
        yield (str(how), str(kind), f"under {MOST_UTILISATION:g}"), rows[low]
        yield (str(how), str(kind), f"{MOST_UTILISATION:g} and more"), rows[~low]


def _line(how: str, kind: str, load: str, rows: pd.DataFrame) -> str:
    cells = []
    for name in NAMES:
        errors = (rows[f"closed_{name}"] / rows[name] - 1.0).abs().dropna()
        cells.append(f"{np.median(errors):.1%} / {np.quantile(errors, 0.9):.1%}" if len(errors) else "-")
    return f"| {how} | {kind} | {load} | {len(rows)} | {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
