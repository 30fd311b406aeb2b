"""``rooflinekit curve``: the decode step over batch sizes."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rooflinekit.cli import options
from rooflinekit.cli.names import naming
from rooflinekit.cli.output import deploy, remark, show

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rooflinekit.phases.deployment import Deployment

_COLUMNS = ("batch", "step_s", "floor_s", "bound", "tokens_per_s_per_user", "tokens_per_s", "kv_cache_bytes", "fits")


def curve(
    model: options.ModelName,
    device: options.DeviceName,
    *,
    context: options.Context = 2048,
    batch: options.Sizes = "1,2,4,8,16,32,64,128,256",
    assume: options.Assume = None,
    weights: options.Weights = None,
    kv_cache: options.KvCache = None,
    compute: options.Compute = None,
    engine: options.Engine = None,
    efficiency: options.Efficiency = "calibrated",
    skew: options.Skew = 0,
    png: Annotated[
        Path | None, typer.Option("--png", metavar="FILE", help="Draw the curve into this file too.")
    ] = None,
    form: options.Format = "table",
) -> None:
    """Tabulate a decode step over batch sizes: its time, what a user and the device get, and whether it fits."""
    deployment = deploy(
        model,
        device,
        assume=assume,
        weights=weights,
        kv_cache=kv_cache,
        compute=compute,
        engine=engine,
        efficiency=efficiency,
        routing_skew=skew,
    )
    batches = options.sizes(batch, "--batch")
    rows = deployment.batch_curve(context_tokens=context, batch=batches)
    if png is not None:
        _draw(deployment, context, batches, png)
    show(rows, form, title=f"{deployment!r}; decode at {context:,} tokens of context", columns=_COLUMNS)
    if png is not None:
        remark(form, f"drawn in {png}")


def _draw(deployment: "Deployment", context: float, batches: "Sequence[float]", png: Path) -> None:
    from rooflinekit.reports.plots import batch_curve_figure, save  # noqa: PLC0415 - matplotlib loads when it draws

    with naming("--png"):
        save(batch_curve_figure([deployment], context_tokens=context, batch=batches), png)
