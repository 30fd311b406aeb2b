"""What every command does with names and rows: load the one, print the other."""

import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import typer

from rooflinekit.errors import InvalidInputError
from rooflinekit.phases.deployment import Deployment
from rooflinekit.specs.catalog import load_model
from rooflinekit.specs.device import Device
from rooflinekit.specs.model import Model
from rooflinekit.specs.yamlfile import read_mapping

if TYPE_CHECKING:
    from pathlib import Path

    from rooflinekit.reports.tables import Rows

STANDARD_INPUT = "-"
#: The formats that people read; the others are for programs.
EYES = ("table", "markdown")
_FIGURES = ("figure", "value", "source", "note")


class _StandardInput:
    """Standard input as the file that :func:`read_mapping` reads."""

    def read_text(self, encoding: str) -> str:
        """Read it whole."""
        stream = getattr(sys.stdin, "buffer", None)
        return stream.read().decode(encoding) if stream else sys.stdin.read()

    def __str__(self) -> str:
        """Name it in messages."""
        return "standard input"


def named(name: str) -> str | Mapping[str, Any]:
    """Give the name as it is, or for ``-`` the mapping that standard input holds."""
    return read_mapping(cast("Path", _StandardInput())) if name == STANDARD_INPUT else name


def model_of(name: str, assume: Collection[str] | None = None) -> Model:
    """Load the model that a command names."""
    return load_model(named(name), assume=assume or ())


def deploy(model: str, device: str, *, assume: Collection[str] | None = None, **choices: object) -> Deployment:
    """Make the deployment of a command's two arguments."""
    if model == device == STANDARD_INPUT:
        message = "MODEL and DEVICE are both `-`: standard input holds one of them; name a file for the other"
        raise InvalidInputError(message)
    return Deployment(model_of(model, assume), named(device), **choices)  # type: ignore[arg-type]


def table(rows: "Rows", form: str, *, title: str = "", columns: Sequence[str] = ()) -> str:
    """Render rows in the asked format."""
    from rooflinekit.reports.tables import render  # noqa: PLC0415 - rich loads when there is something to print

    return render(rows, form, title=title, columns=columns)


def show(rows: "Rows", form: str, *, title: str = "", columns: Sequence[str] = ()) -> None:
    """Print rows in the asked format."""
    say(table(rows, form, title=title, columns=columns))


def show_figures(spec: Device | Model, rows: Iterable[dict[str, Any]], form: str) -> None:
    """Print the figures of a device or model with their sources, block by block for eyes."""
    from rooflinekit.reports.catalog import brief  # noqa: PLC0415 - loaded when asked for

    whole = list(rows)
    if form in EYES:
        say(spec.name)
        for block in dict.fromkeys(row["block"] for row in whole):
            say()
            show(brief(row for row in whole if row["block"] == block), form, title=block, columns=_FIGURES)
    else:  # a program takes base units; how a figure is shown is none of its business
        show([{name: value for name, value in row.items() if name != "unit"} for row in whole], form)
    remark(form, *(f"note: {note}" for note in spec.notes))


def say(*lines: str) -> None:
    """Print lines, or an empty one."""
    typer.echo("\n".join(lines))


def remark(form: str, *lines: str) -> None:
    """Print lines beside a table; beside csv or json on stderr, which leaves those whole."""
    apart = ("",) if form == "markdown" else ()  # else they would be rows of the table
    if lines:
        typer.echo("\n".join((*apart, *lines)), err=form not in EYES)
