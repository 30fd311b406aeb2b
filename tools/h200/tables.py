"""What is written: tables that are complete after every row, for as long as a part may take."""

import csv
import time
from collections.abc import Iterable
from pathlib import Path

STEP_COLUMNS = (
    "model", "weights", "phase", "batch", "prompt_tokens", "context_tokens", "seconds", "seconds_best", "seconds_worst",
)  # fmt: skip
SMALL_COLUMNS = (
    "kernel", "compiled", "tokens", "width", "heads", "kv_heads", "head_dim", "launches", "bytes_moved", "seconds",
    "seconds_best",
)  # fmt: skip
MIXTURE_COLUMNS = (
    "dtype", "num_tokens", "hidden_size", "inter_size", "topk", "num_experts", "distinct_experts_mean", "seconds",
    "seconds_best",
)  # fmt: skip


class Table:
    """A CSV file that is complete after every row."""

    def __init__(self, path: Path, columns: tuple[str, ...]) -> None:
        self.path = path
        if not path.exists():
            self._write(columns)

    def add(self, *cells: object) -> None:
        """Write and print a row."""
        self._write([f"{cell:.6g}" if isinstance(cell, float) else cell for cell in cells])
        print(self.path.stem, *cells, flush=True)  # noqa: T201 - it says what it measures

    def _write(self, cells: Iterable[object]) -> None:
        with self.path.open("a", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerow(cells)


class Clock:
    """The time that a part may take."""

    def __init__(self, seconds: float) -> None:
        self.end = time.monotonic() + seconds

    def over(self) -> bool:
        """Tell whether the time is up."""
        return time.monotonic() > self.end
