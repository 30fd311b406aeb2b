"""``rooflinekit serve``: latencies of a loaded server, what it carries, and what its tokens cost."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rooflinekit.cli import options
from rooflinekit.cli.output import EYES, remark, say, show
from rooflinekit.cli.progress import counting
from rooflinekit.cli.server import lengths_of, profile_of, refuse_idle, server_of
from rooflinekit.errors import InvalidInputError

if TYPE_CHECKING:
    from rooflinekit.serving.arrivals import Trace
    from rooflinekit.serving.cost import Cost

#: What a trace says itself.
_TRACED = ("prompt", "output", "requests", "burstiness", "range_ratio")


def serve(
    context: typer.Context,
    model: options.ModelName,
    device: options.DeviceName,
    *,
    prompt: options.Prompt = 2048,
    output: options.Output = 200,
    rate: options.Rate = None,
    concurrency: options.Concurrency = None,
    trace: Annotated[
        Path | None,
        typer.Option("--trace", metavar="FILE", help="CSV of arrival_s, prompt_tokens, output_tokens, instead."),
    ] = None,
    burstiness: options.Burstiness = 1,
    requests: options.Requests = None,
    range_ratio: options.RangeRatio = 1,
    cached: options.Cached = 0,
    engine: options.Profile = None,
    chunk: options.TokenBudget = None,
    max_num_seqs: options.MostSequences = None,
    utilization: options.MemoryPart = None,
    simulate: options.Simulate = False,
    seed: options.Seed = 0,
    usd_per_hour: options.UsdPerHour = None,
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
    """Estimate what a server delivers under load: latencies with percentiles, throughput, the rate it could carry.

    By the closed form where it is valid, by a simulation elsewhere. Latencies hold queue, scheduler and host.
    """
    from rooflinekit.serving.cost import cost  # noqa: PLC0415 - loaded when asked for

    _refuse_two_loads(context, rate, concurrency, trace)
    profile = profile_of(engine, chunk, max_num_seqs, utilization)
    layout = (tensor_parallel, pipeline_parallel, expert_parallel, attention_groups)
    deployment = server_of(
        (model, device), profile, layout, engine=engine, assume=assume, weights=weights, kv_cache=kv_cache,
        compute=compute, efficiency=efficiency, routing_skew=skew,
    )  # fmt: skip
    read = _trace(trace)
    with counting("requests simulated", _count(read, requests, concurrency)) as progress:
        priced = cost(
            deployment,
            usd_per_hour=usd_per_hour,
            prompt_tokens=None if trace else lengths_of(prompt, range_ratio),
            output_tokens=None if trace else lengths_of(output, range_ratio),
            rate_per_s=rate,
            concurrency=concurrency,
            burstiness=burstiness,
            requests=requests,
            trace=read,
            engine=profile,
            cached_tokens=cached,
            method="simulation" if simulate else "auto",
            seed=seed,
            progress=progress,
        )
    _print(priced, form)


def _refuse_two_loads(context: typer.Context, rate: float | None, concurrency: int | None, trace: Path | None) -> None:
    """Refuse two loads at once, and what has no effect beside a trace."""
    if sum(one is not None for one in (rate, concurrency, trace)) != 1:
        message = "give one of --rate (open arrivals), --concurrency (a closed client) and --trace (a file)"
        raise InvalidInputError(message)
    if trace is not None:
        refuse_idle(context, _TRACED, "--trace says when its requests come and how long they are")


def _trace(path: Path | None) -> "Trace | None":
    from rooflinekit.serving.arrivals import read_trace  # noqa: PLC0415 - loaded when asked for

    return None if path is None else read_trace(path)


def _count(trace: "Trace | None", requests: int | None, concurrency: int | None) -> int:
    if trace is not None:
        return trace.requests
    return requests or (1000 if concurrency is None else 10 * concurrency)


def _print(priced: "Cost", form: str) -> None:
    """Print latencies, what else is known, and cost; all of it as one tidy table for programs."""
    from rooflinekit.reports import serving as report  # noqa: PLC0415 - loaded when asked for
    from rooflinekit.reports.tables import listing  # noqa: PLC0415 - as above

    serving, costs = priced.serving, report.cost_rows(priced)
    if form not in EYES:
        show([*report.tidy(serving), *report.parted("cost", costs, "token")], form)
        remark(form, *report.remarks(serving), *report.cost_remarks(priced))
        return
    rows = report.latency_rows(serving)
    if rows:
        show(rows, form, title=report.title(serving))
    else:
        say(report.title(serving))
    remark(form, *report.remarks(serving))
    say()
    show(listing(report.carried(serving, eyes=True)), form)
    if costs:
        say()
        show(costs, form, title="one token")
    if costs or priced.price is not None:
        remark(form, *report.cost_remarks(priced))
