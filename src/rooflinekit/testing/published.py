"""The published table and its evaluator: each row's own call, run and compared with what the text prints."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from pydantic import model_validator

import rooflinekit as rk
from rooflinekit.errors import InvalidInputError
from rooflinekit.specs.spec import Identifier, NotNegative, Positive, Spec
from rooflinekit.specs.yamlfile import check, read_mapping

Verdict = Literal["reproduced", "missed", "not computed"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
Number = float | tuple[float, ...]
_ROWS_OWN = "the row's"  # a deployment on the device that each row names


class Row(Spec):
    """One printed number (or statement), and the call whose value it is compared with."""

    id: Identifier
    kind: Literal["arithmetic", "measured", "print", "claim"]
    quantity: str
    value: Number | None = None
    unit: str = ""
    tolerance: NotNegative | None = None
    call: str | None = None
    device: str | None = None
    bandwidth_gb_per_s: Positive | None = None
    note: str = ""

    @model_validator(mode="after")
    def _comparable(self) -> "Row":
        if self.call is not None and (self.value is None or self.tolerance is None):
            message = f"{self.id} has a call: it needs a value and a tolerance"
            raise ValueError(message)
        return self


class Section(Spec):
    """The rows of one text, its conditions, and the deployments that its calls name."""

    conditions: str
    device: Mapping[str, Positive] = {}
    deployments: Mapping[str, Mapping[str, Any]]
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Result:
    """
    One row compared.

    ``difference`` is ours / published - 1, the largest in size where there are several values; None without a call.
    """

    id: str
    kind: str
    quantity: str
    published: Number | None
    ours: Number | None
    difference: float | None
    tolerance: float | None
    unit: str
    verdict: Verdict


@cache
def titles() -> Mapping[str, str]:
    """Section -> title of the text that prints its numbers.

    >>> tuple(titles())
    ('second-token', 'course', 'token-one', 'kubecon')
    """
    return dict(_published()["sources"])


@cache
def load_section(name: str) -> Section:
    """Load the rows of one text.

    >>> load_section("kubecon").rows[0].value
    0.004
    """
    if name not in titles():
        message = f"section={name!r} is not published here: expected one of {', '.join(titles())}, or all"
        raise InvalidInputError(message)
    return check(Section, _published()[name], f"published.yaml, {name}")


def reproduce(section: str) -> tuple[Result, ...]:
    """Run every call of a section and compare.

    >>> {result.verdict for result in reproduce("kubecon")}
    {'reproduced'}
    """
    whole = load_section(section)
    return tuple(compare(row, whole.deployments) for row in whole.rows)


def compare(row: Row, deployments: Mapping[str, Mapping[str, Any]]) -> Result:
    """Compare one row with the value of its call; a row without one is not computed."""
    ours = difference = None
    verdict: Verdict = "not computed"
    if row.call is not None and row.value is not None and row.tolerance is not None:
        ours = _evaluate(row.call, row.device, deployments)
        difference = _difference(ours, row.value)
        verdict = "reproduced" if abs(difference) <= row.tolerance else "missed"
    return Result(
        id=row.id,
        kind=row.kind,
        quantity=row.quantity,
        published=row.value,
        ours=ours,
        difference=difference,
        tolerance=row.tolerance,
        unit=row.unit,
        verdict=verdict,
    )


def _evaluate(call: str, device: str | None, deployments: Mapping[str, Mapping[str, Any]]) -> Number:
    """Give the value of a call, which sees rooflinekit, its section's deployments, `sum` and `len`."""
    names: dict[str, Any] = {"__builtins__": {"sum": sum, "len": len}, "rk": rk}
    for name, choices in deployments.items():
        if device or choices["device"] != _ROWS_OWN:
            names[name] = _deployment(choices, device)
    value = eval(call, names)  # noqa: S307 - a file of this package, and the calls are what it publishes
    return tuple(map(float, value)) if isinstance(value, list) else float(value)


def _deployment(choices: Mapping[str, Any], device: str | None) -> rk.Deployment:
    taken = device if choices["device"] == _ROWS_OWN else choices["device"]
    return rk.Deployment(**{**choices, "device": taken})


def _difference(ours: Number, published: Number) -> float:
    relative = np.atleast_1d(np.divide(ours, published) - 1.0)
    return float(relative[np.abs(relative).argmax()])


@cache
def _published() -> Mapping[str, Any]:
    return read_mapping(Path(str(files("rooflinekit.references") / "published.yaml")))
