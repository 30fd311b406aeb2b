"""The command line: parse, call, render. Every command takes ``--format table|markdown|csv|json``."""

from typing import Annotated

import typer

import rooflinekit
from rooflinekit.cli.budget import budget
from rooflinekit.cli.calibrate import calibrate
from rooflinekit.cli.capacity import capacity
from rooflinekit.cli.catalog import devices, models, schema
from rooflinekit.cli.compare import compare
from rooflinekit.cli.crossover import crossover
from rooflinekit.cli.curve import curve
from rooflinekit.cli.diagnose import diagnose
from rooflinekit.cli.dial import dial
from rooflinekit.cli.disaggregate import disaggregate
from rooflinekit.cli.embed import embed
from rooflinekit.cli.estimate import estimate
from rooflinekit.cli.freeze import freeze
from rooflinekit.cli.importing import models_import
from rooflinekit.cli.kv import kv
from rooflinekit.cli.levers import levers
from rooflinekit.cli.plan import plan
from rooflinekit.cli.read import read
from rooflinekit.cli.reproduce import reproduce
from rooflinekit.cli.serve import serve
from rooflinekit.cli.shell import Command, Commands
from rooflinekit.cli.slo import slo
from rooflinekit.cli.speculate import speculate
from rooflinekit.cli.validate import validate
from rooflinekit.cli.verify import verify

app = typer.Typer(
    name="rooflinekit",
    cls=Commands,
    invoke_without_command=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (
    estimate,
    curve,
    crossover,
    kv,
    capacity,
    plan,
    serve,
    slo,
    budget,
    levers,
    dial,
    speculate,
    disaggregate,
    embed,
    schema,
    reproduce,
    validate,
    calibrate,
    read,
    compare,
    diagnose,
    freeze,
    verify,
):
    app.command(cls=Command)(command)
models.command("import", cls=Command)(models_import)
app.add_typer(devices, name="devices")
app.add_typer(models, name="models")


def _version(asked: bool) -> None:  # noqa: FBT001 - the shape of an option's callback
    if asked:
        typer.echo(f"rooflinekit {rooflinekit.__version__}")
        raise typer.Exit


@app.callback()
def commands(
    context: typer.Context,
    *,
    version: Annotated[  # noqa: ARG001 - its callback answers
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Tell how long LLM inference takes, and why, from two YAML files: a device and a model."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def main() -> None:
    """Run the command line of the process."""
    app()
