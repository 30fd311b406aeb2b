"""``rooflinekit budget``: the time of a request line by line against a limit, and what alone would close the gap."""

from typing import TYPE_CHECKING, Annotated

import typer

from rooflinekit.cli import options
from rooflinekit.cli.output import EYES, remark, say, show
from rooflinekit.cli.server import devices_of, profile_of, refuse_idle, server_of

if TYPE_CHECKING:
    from rooflinekit.serving.budget import Budget


def _time(flag: str, text: str) -> typer.models.OptionInfo:
    option: typer.models.OptionInfo = typer.Option(flag, metavar="TIME", help=text, parser=options.seconds)
    return option


#: What one request alone does not have.
_OF_A_LOAD = ("burstiness", "requests", "simulate", "seed")


def budget(
    context: typer.Context,
    model: options.ModelName,
    device: options.DeviceName,
    *,
    limit: Annotated[float, _time("--limit", "End to end: 0.3 or 300ms.")],
    prompt: options.Prompt = 2048,
    output: options.Output = 200,
    network: Annotated[float, _time("--network", "Of the network, there and back: 0.02 or 20ms.")] = 0,
    rate: options.Rate = None,
    concurrency: options.Concurrency = None,
    statistic: options.Statistic = "mean",
    instead: Annotated[
        str, typer.Option("--instead", metavar="LIST", help="Devices to try in this one's place: h100-sxm,l40s.")
    ] = "",
    burstiness: options.Burstiness = 1,
    requests: options.Requests = None,
    cached: options.Cached = 0,
    engine: options.Profile = None,
    chunk: options.TokenBudget = None,
    max_num_seqs: options.MostSequences = None,
    utilization: options.MemoryPart = None,
    simulate: options.Simulate = False,
    seed: options.Seed = 0,
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
    form: options.Format = "table",
) -> None:
    """Set a request's time, line by line, against a limit, and tell what alone would close the gap.

    Without --rate and --concurrency it is one request alone: no queue.
    """
    from rooflinekit.reports import serving as report  # noqa: PLC0415 - loaded when asked for
    from rooflinekit.serving.budget import budget as of  # noqa: PLC0415 - as above

    alone = rate is None and concurrency is None
    if alone:
        refuse_idle(context, _OF_A_LOAD, "one request alone, without --rate and --concurrency")
    method = "simulation" if simulate else "auto"
    run = {"burstiness": burstiness, "requests": requests, "method": method, "seed": seed}
    profile = profile_of(engine, chunk, max_num_seqs, utilization)
    layout = (tensor_parallel, pipeline_parallel, expert_parallel, attention_groups)
    deployment = server_of(
        (model, device), profile, layout, engine=engine, assume=assume, weights=weights, kv_cache=kv_cache,
        compute=compute, efficiency=efficiency, routing_skew=skew,
    )  # fmt: skip
    told = of(
        deployment,
        limit,
        prompt_tokens=prompt,
        output_tokens=output,
        network_s=network,
        rate_per_s=rate,
        concurrency=concurrency,
        cached_tokens=cached,
        statistic=statistic,
        engine=profile,
        devices=devices_of("--instead", instead.split(",")),
        **({} if alone else run),
    )
    _print(told, report.budget_title(deployment, told, (prompt, output)), form)


def _print(told: "Budget", title: str, form: str) -> None:
    """Print the ledger and what would close the gap; all of it as one tidy table for programs."""
    from rooflinekit.reports import serving as report  # noqa: PLC0415 - loaded when asked for

    if form not in EYES:
        show(report.budget_tidy(told), form)
        remark(form, *report.budget_remarks(told))
        return
    show(report.ledger_rows(told), form, title=title)
    remark(form, *report.budget_remarks(told))
    if told.changes:
        say()
        show(report.change_rows(told), form, title="what alone would close the gap")
