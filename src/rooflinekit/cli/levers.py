"""``rooflinekit levers``: what moves which phase, one change at a time, and the elasticities of both."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rooflinekit.cli import options
from rooflinekit.cli.names import naming
from rooflinekit.cli.output import EYES, remark, say, show
from rooflinekit.cli.server import devices_of, price_of, profile_of, server_of
from rooflinekit.cli.speculate import draft_of
from rooflinekit.errors import InvalidInputError

if TYPE_CHECKING:
    from rooflinekit.serving.levers import Levers


def levers(
    model: options.ModelName,
    device: options.DeviceName,
    *,
    prompt: options.Prompt = 2048,
    output: options.Output = 200,
    rate: options.Rate = None,
    concurrency: options.Concurrency = None,
    cached: options.Cached = 0,
    instead: Annotated[
        str, typer.Option("--instead", metavar="LIST", help="Other devices to compare: h100-sxm,l40s. [an H100]")
    ] = "",
    acceptance: options.Acceptance = None,
    draft: options.Draft = "mtp",
    usd_per_hour: Annotated[
        list[str] | None,
        typer.Option(
            "--usd-per-hour", metavar="DEVICE=USD", help="Price of an hour of a GPU; may be repeated. [its file's]"
        ),
    ] = None,
    threshold: Annotated[
        float,
        options.number_option("--threshold", "PART", "A ratio that differs by less from 1 does not move."),
    ] = 0.2,
    engine: options.Profile = None,
    chunk: options.TokenBudget = None,
    max_num_seqs: options.MostSequences = None,
    utilization: options.MemoryPart = None,
    tensor_parallel: options.TensorParallel = 1,
    pipeline_parallel: options.PipelineParallel = 1,
    expert_parallel: options.ExpertParallel = 1,
    attention_groups: options.AttentionGroups = 1,
    weights: options.Weights = None,
    kv_cache: options.KvCache = None,
    compute: options.Compute = None,
    efficiency: options.Efficiency = "calibrated",
    skew: options.Skew = 0,
    assume: options.Assume = None,
    png: options.Png = None,
    form: options.Format = "table",
) -> None:
    """Tell what moves which phase: one change at a time, as ratios to what there is now, and the elasticities.

    One request in flight, unless --rate or --concurrency say more.
    """
    from rooflinekit.serving.levers import levers as of  # noqa: PLC0415 - loaded when asked for

    profile = profile_of(engine, chunk, max_num_seqs, utilization)
    layout = (tensor_parallel, pipeline_parallel, expert_parallel, attention_groups)
    deployment = server_of(
        (model, device), profile, layout, engine=engine, assume=assume, weights=weights, kv_cache=kv_cache,
        compute=compute, efficiency=efficiency, routing_skew=skew,
    )  # fmt: skip
    found = of(
        deployment,
        prompt,
        output,
        rate_per_s=rate,
        concurrency=concurrency,
        engine=profile,
        cached_tokens=cached,
        devices=tuple(devices_of("--instead", instead.split(","))) or None,
        acceptance=acceptance,
        draft=draft_of(draft, deployment),
        usd_per_hour=_prices(usd_per_hour or []),
        threshold=threshold,
    )
    if png is not None:
        _draw(found, png)
    _print(found, form)
    if png is not None:
        remark(form, f"drawn in {png}")


def _prices(given: list[str]) -> dict[str, float]:
    """Read DEVICE=USD pairs."""
    pairs = [one.partition("=") for one in given]
    bad = next(("".join(pair) for pair in pairs if not pair[1]), None)
    if bad is not None:
        message = f"--usd-per-hour {bad}: expected DEVICE=USD, as in h100-sxm=2.5"
        raise InvalidInputError(message)
    devices_of("--usd-per-hour", (device for device, _, _ in pairs))
    return {device: price_of("--usd-per-hour", device, usd) for device, _, usd in pairs}


def _draw(found: "Levers", png: Path) -> None:
    from rooflinekit.reports.plots import levers_figure, save  # noqa: PLC0415 - matplotlib loads when it draws

    with naming("--png"):
        save(levers_figure(found), png)


def _print(found: "Levers", form: str) -> None:
    """Print the ratios and the elasticities; all of it as one tidy table for programs."""
    from rooflinekit.reports import choices as report  # noqa: PLC0415 - loaded when asked for

    if form not in EYES:
        show(report.levers_tidy(found), form)
        remark(form, *report.lever_remarks(found))
        return
    show(report.lever_rows(found), form, title=report.levers_title(found))
    remark(form, *report.lever_remarks(found))
    say()
    title = f"elasticities, d ln t / d ln x: a prefill of one prompt, a decode step of {found.batch:.3g}"
    show(report.elasticity_rows(found), form, title=title)
