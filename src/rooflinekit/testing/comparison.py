"""A row compared with what is predicted now, and the lines that say so where it misses."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isclose, isfinite

from rooflinekit import units
from rooflinekit.errors import MissingFigureError
from rooflinekit.phases.deployment import Deployment
from rooflinekit.phases.estimate import Estimate
from rooflinekit.phases.request import Request
from rooflinekit.testing.reference_file import QUANTITIES, Asked, Row
from rooflinekit.testing.results import Result

#: Rounding of a product of floats: a tolerance of 0 means equal, not equal to the last bit.
_ROUNDING = 1e-12
_FROZEN = {"measured": "measured", "predicted": "frozen"}
#: Counts whose parts are shown beside the time.
_COUNTS = ("flops", "bytes", "weight_bytes", "kv_bytes")
_OF_REQUEST = {"time_to_first_token_s": ("prefill",), "time_per_output_token_s": ("decode",)}


@dataclass(frozen=True)
class Comparison:
    """One row, and its value as it is predicted now."""

    row: Row
    deployment: Deployment
    asked: Asked
    predicted: float | str

    @property
    def difference(self) -> float | None:
        """Predicted / expected - 1; None for a word."""
        return relative(self.predicted, self.row.value)

    @property
    def within(self) -> bool:
        """Whether the prediction lies within the tolerance; a word must be the same."""
        if self.difference is None or self.row.tolerance is None:
            return self.predicted == self.row.value
        return abs(self.difference) <= self.row.tolerance + _ROUNDING

    @property
    def result(self) -> Result:
        """The line of the table."""
        verdict = "within" if self.within else "missed"
        return {
            **_facts(self.row, self.deployment),
            "predicted": self.predicted,
            "difference": self.difference,
            "verdict": verdict,
        }

    @property
    def headline(self) -> str:
        """Name quantity, both values and the difference: pytest repeats this line in its summary."""
        what = self.deployment.model.id if self.asked is None else _label(self.asked)
        now, then = _shown(self.predicted, self.row.quantity), _shown(self.row.value, self.row.quantity)
        off = "" if self.difference is None else f" ({self.difference:+.2%})"
        return f"{self.row.quantity} of {what}: {now} against {then}{off}"

    def lines(self) -> Iterator[str]:
        """Yield what is told of a miss: both values, the difference, the operators and the largest of them."""
        row, quantity = self.row, self.row.quantity
        yield f"  {_FROZEN[row.kind]:<12}{_shown(row.value, quantity)}{f'  ({row.source})' if row.source else ''}"
        yield f"  {'predicted':<12}{_shown(self.predicted, quantity)}  ({self.deployment.timing.laws.basis})"
        if self.difference is not None and row.tolerance is not None:
            yield f"  {'difference':<12}{self.difference:+.2%} against a tolerance of {row.tolerance:.2%}"
        if row.note:
            yield f"  {'note':<12}{row.note}"
        for step in _passes(self.asked, quantity):
            yield ""
            yield from operator_lines(step, quantity)


def compare(row: Row, deployment: Deployment) -> Comparison:
    """Predict a row's quantity."""
    asked = None if row.step is None else row.step.ask(deployment)
    predicted = QUANTITIES[row.quantity].of(deployment, asked)
    return Comparison(row, deployment, asked, predicted if isinstance(predicted, str) else float(predicted))


def failed(row: Row, deployment: Deployment, error: str) -> Result:
    """Give the line of the table of a row that cannot be predicted."""
    return {**_facts(row, deployment), "predicted": None, "difference": None, "verdict": "error", "error": error}


def relative(predicted: float | str, expected: float | str) -> float | None:
    """Give predicted / expected - 1, None for words; against nought anything else is infinitely off.

    >>> relative(1.5, 1.0), relative(0.0, 0.0), relative(1.0, 0.0), relative("memory", "compute")
    (0.5, 0.0, inf, None)
    """
    if isinstance(predicted, str) or isinstance(expected, str):
        return None
    if expected == 0 or not isfinite(predicted):
        return 0.0 if isclose(predicted, expected) else float("inf")
    return float(predicted / expected - 1.0)


def _facts(row: Row, deployment: Deployment) -> dict[str, str | float | None]:
    return {
        "id": row.id,
        "model": deployment.model.id,
        "device": deployment.device.id,
        "basis": deployment.timing.laws.basis,
        "quantity": row.quantity,
        "kind": row.kind,
        "expected": row.value,
        "tolerance": row.tolerance,
        "source": row.source,
        "note": row.note,
    }


def _label(asked: Estimate | Request) -> str:
    return asked.label if isinstance(asked, Estimate) else f"a request: {asked.prefill.label}, {asked.decode.label}"


def _shown(value: float | str, quantity: str) -> str:
    """Show a value with its unit, in digits enough to see a difference."""
    unit = QUANTITIES[quantity].unit
    if isinstance(value, str):
        return value
    if unit == "s":
        return units.duration(value, 4)
    if unit in ("FLOP", "B"):
        return units.si(value, unit, 4)
    return f"{units.significant(value, 4)} {unit}"


def _passes(asked: Asked, quantity: str) -> tuple[Estimate, ...]:
    if isinstance(asked, Request):
        names = _OF_REQUEST.get(quantity, ("prefill", "decode"))
        return tuple(getattr(asked, name) for name in names if getattr(asked, name).x.shape[1])
    return () if asked is None else (asked,)


def operator_lines(step: Estimate, quantity: str) -> Iterator[str]:
    """Yield the operators of a pass with what each contributes, and name the largest."""
    name = quantity if quantity in _COUNTS else "time_s"
    rows = [row for row in step.operators if row.launches]
    try:
        parts = [float(getattr(row, name)) for row in rows]
        bounds = ["" if name in _COUNTS else str(row.bound) for row in rows]
    except MissingFigureError as error:
        yield f"no table of operators: {error}"
        return
    shares = [part / sum(parts) if sum(parts) else 0.0 for part in parts]
    cells = [
        (row.name, _shown(part, name), f"{share:.1%}", bound)
        for row, part, share, bound in zip(rows, parts, shares, bounds, strict=True)
        if part
    ]
    yield step.label
    yield from _aligned([("operator", name, "share", "bound" if any(bounds) else ""), *cells])
    largest = max(range(len(rows)), key=shares.__getitem__)
    of = f", {bounds[largest]}-bound" if bounds[largest] else ""
    yield f"largest contributor: {rows[largest].name}, {shares[largest]:.1%}{of}"


def _aligned(cells: Sequence[tuple[str, str, str, str]]) -> Iterator[str]:
    name, value, share, _ = (max(len(row[column]) for row in cells) for column in range(4))
    for row in cells:
        yield f"  {row[0]:<{name}}  {row[1]:>{value}}  {row[2]:>{share}}  {row[3]}".rstrip()
