"""How a command ends: each error and each warning is one line on stderr; a closed pipe ends it quietly."""

import os
import sys
import warnings
from collections.abc import Sequence
from typing import Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup

from rooflinekit.cli.names import as_typed, options_of
from rooflinekit.errors import ContextLengthWarning, RooflinekitError
from rooflinekit.specs.precision import one_of

BAD_INPUT = 2
#: The base of what typer raises for a wrong command line; click's, or that of typer's own copy of it.
_USAGE_FAULT: type[Exception] = typer.BadParameter.__mro__[2]


class Command(TyperCommand):
    """One command, whose faults name the options that it has and not the arguments of Python."""

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 - the context of click, or of typer's own copy of it
        """Run it; a format that is none is told before there is a picture or a file."""
        from rooflinekit.reports.tables import FORMATS  # noqa: PLC0415 - rich loads when there is something to print

        try:
            one_of("--format", ctx.params.get("form", FORMATS[0]), FORMATS)
            return super().invoke(ctx)
        except RooflinekitError as error:
            options = options_of(flag for parameter in self.params for flag in parameter.opts)
            raise type(error)(as_typed(str(error), options)) from error


class Commands(TyperGroup):
    """The group of all commands, which tells faults in one line and without a traceback."""

    def main(self, *args: Any, **extra: Any) -> NoReturn:  # noqa: ANN401 - handed on as they come
        """Run one command line and exit with its status."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            status = self._run(*args, **{**extra, "standalone_mode": False})
        for warning in _distinct(caught) if status != BAD_INPUT else ():  # a fault is told alone: there is no answer
            _say("warning", warning.message)
        sys.exit(status)

    def _run(self, *args: Any, **extra: Any) -> int:  # noqa: ANN401 - handed on as they come
        try:
            status = super().main(*args, **extra)
            sys.stdout.flush()
        except BrokenPipeError:
            return _quiet()
        except (RooflinekitError, OSError, MemoryError, OverflowError, typer.Abort, _USAGE_FAULT) as error:
            return _say("error", _told(error))
        return status if isinstance(status, int) else 0


def _told(error: BaseException) -> str:
    if isinstance(error, MemoryError):
        return "more points than memory holds: ask for fewer tokens or a shorter range"
    if isinstance(error, OverflowError):
        return "a number too large to compute with: write a smaller one"
    if isinstance(error, typer.Abort):
        return "aborted"
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    usage = getattr(error, "format_message", None)
    return str(error if usage is None else usage())


def _distinct(caught: Sequence[warnings.WarningMessage]) -> list[warnings.WarningMessage]:
    """Keep each warning once, and of the context lengths of one request the last, which is the longest."""
    kept = {one.category if one.category is ContextLengthWarning else str(one.message): one for one in caught}
    return list(kept.values())


def _say(what: str, message: object) -> int:
    """Print one line, whatever the message holds, and give the status of bad input."""
    line = " ".join(str(message).split())
    typer.echo(f"rooflinekit: {what}: {line}", err=True)
    return BAD_INPUT


def _quiet() -> int:
    """Leave Python nothing to flush into the closed pipe when it exits; typer ends with the same status."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 1
