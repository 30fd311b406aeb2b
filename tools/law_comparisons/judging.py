"""How a law is judged: an entry with its constants changed, and how far off its predictions are."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rooflinekit.calibration.entries import none
from rooflinekit.calibration.fit import shipped_fallbacks
from rooflinekit.calibration.observations import Observations
from rooflinekit.roofline.laws import Laws
from rooflinekit.specs.efficiency import Efficiency

FOLDS = 5
Errors = NDArray[np.float64]
Rows = Sequence[Observations]


class Result(NamedTuple):
    """One line of a table: a law, what was fitted in it, the errors of both columns, and whether it is the code's."""

    name: str
    constants: str
    columns: tuple[Errors, Errors]
    kept: bool


class Comparison(NamedTuple):
    """One table: what its two columns hold, what its rows are, and how its lines are found."""

    title: str
    columns: tuple[str, str]
    rows: str
    results: Callable[[], Iterator[Result]]


def changed(entry: Efficiency, field: str, value: object) -> Efficiency:
    """Give a copy with one constant set: ``products.bf16.launch_us``."""
    first, *rest = field.split(".", 1)
    inner: Any = changed(getattr(entry, first), rest[0], value) if rest else value
    return entry.model_copy(update={first: inner})


def errors(rows: Rows, entry: Efficiency, fallbacks: Callable[..., tuple[Efficiency, ...]] = none) -> Errors:
    """Predict rows and say how far off that is."""
    parts = [one.predicted_s(Laws((entry, *fallbacks(one.device)), "own")) / one.seconds for one in rows]
    return np.abs(np.concatenate(parts) - 1.0) if parts else np.zeros(0)


def folds(one: Observations) -> NDArray[np.int64]:
    """Deal the shapes of a table into folds, all rows of a shape into one."""
    row = one.row if one.row is not None else np.arange(len(one))
    order = np.random.default_rng(0).permutation(int(row.max()) + 1)
    return np.asarray(order[row] % FOLDS)


def by_phase(found: tuple[list[Errors], list[Errors]], rows: Rows, entry: Efficiency) -> None:
    """Judge passes, prefill and decode apart; whole requests are decode for the most part."""
    for one in rows:
        wrong = errors([one], entry, shipped_fallbacks)
        prefill = (one.facts["phase"] == "prefill").to_numpy()
        found[0].append(wrong[prefill])
        found[1].append(wrong[~prefill])


def model_of(one: Observations) -> str:
    """Name the model of some steps."""
    return str(one.facts["model"].iloc[0])
