"""``rooflinekit crossover``: the prompt length at which prefill leaves the memory roof, under each pair of peaks."""

from typing import Annotated, Any

import typer

from rooflinekit.cli import options
from rooflinekit.cli.output import deploy, show
from rooflinekit.errors import MissingFigureError
from rooflinekit.phases.deployment import Deployment
from rooflinekit.phases.resolve import EFFICIENCIES

_COLUMNS = ("efficiency", "tokens", "closed_form_tokens", "flops_per_s", "bytes_per_s", "peaks")


def crossover(
    model: options.ModelName,
    device: options.DeviceName,
    *,
    scope: Annotated[
        str, typer.Option("--scope", metavar="SCOPE", help="products of the blocks, or the whole pass.")
    ] = "products",
    assume: options.Assume = None,
    weights: options.Weights = None,
    compute: options.Compute = None,
    engine: options.Engine = None,
    efficiency: options.AnyEfficiency = None,
    form: options.Format = "table",
) -> None:
    """Find the prompt length at which compute time equals memory time, and name the peaks that it is found under."""
    asked = EFFICIENCIES if efficiency is None else (efficiency,)
    choices = {"weights": weights, "compute": compute, "engine": engine, "efficiency": asked[0]}
    base = deploy(model, device, assume=assume, **choices)
    found = [_row(base, name, scope) for name in asked]
    rows = [row for row in found if not isinstance(row, MissingFigureError)]
    if not rows:
        raise next(row for row in found if isinstance(row, MissingFigureError))
    show(rows, form, title=f"{base.model.id} on {base.device.id}: crossover of the {scope}", columns=_COLUMNS)


def _row(base: Deployment, efficiency: str, scope: str) -> dict[str, Any] | MissingFigureError:
    """Give the crossover under one pair of peaks, or why there is none."""
    try:
        found = base.with_(efficiency=efficiency).crossover(scope)
    except MissingFigureError as error:
        return error
    names = ("tokens", "closed_form_tokens", "flops_per_s", "bytes_per_s", "scope", "reason")
    said = found.peaks if not found.reason else f"{found.peaks}; {found.reason}"
    return {"efficiency": efficiency, **{name: getattr(found, name) for name in names}, "peaks": said}
