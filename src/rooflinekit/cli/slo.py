"""``rooflinekit slo``: the largest rate that keeps an objective, or the fewest GPUs that keep it at a rate."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from rooflinekit.cli import options
from rooflinekit.cli.names import naming
from rooflinekit.cli.output import EYES, remark, say, show
from rooflinekit.cli.progress import counting
from rooflinekit.cli.server import devices_of, lengths_of, price_of, profile_of, refuse_idle, server_of
from rooflinekit.errors import InvalidInputError
from rooflinekit.specs.precision import one_of

if TYPE_CHECKING:
    from rooflinekit.phases.deployment import Deployment
    from rooflinekit.serving.objectives import Objective
    from rooflinekit.specs.device import Device


def _limit(flag: str, what: str) -> typer.models.OptionInfo:
    shown = f"Of the {what}: 0.5 or 500ms, or 500ms:p99 with a statistic of its own."
    option: typer.models.OptionInfo = typer.Option(flag, metavar="LIMIT", help=shown)
    return option


def slo(
    context: typer.Context,
    model: options.ModelName,
    device: options.DeviceName,
    *,
    prompt: options.Prompt = 2048,
    output: options.Output = 200,
    first: Annotated[str | None, _limit("--ttft", "time to first token")] = None,
    each: Annotated[str | None, _limit("--tpot", "time per output token")] = None,
    gap: Annotated[str | None, _limit("--itl", "inter-token latency")] = None,
    whole: Annotated[str | None, _limit("--e2e", "whole request")] = None,
    statistic: options.Statistic = "mean",
    rate: options.Rate = None,
    gpus_each: Annotated[
        str, typer.Option("--gpus-each", metavar="LIST", help="GPUs of one server that are tried with --rate.")
    ] = "1,2,4,8",
    instead: Annotated[
        str,
        typer.Option("--instead", metavar="LIST", help="Further devices and their prices: h200-sxm=3.5,l40s=0.9."),
    ] = "",
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
    """Find the largest rate that keeps limits on latency; with --rate, the fewest GPUs that keep them at that rate.

    With --instead a row a device, the cheapest first.
    """
    objective = objective_of((first, each, gap, whole), statistic)
    profile = profile_of(engine, chunk, max_num_seqs, utilization)
    layout = (tensor_parallel, pipeline_parallel, expert_parallel, attention_groups)
    _refuse_two_questions(context, rate, instead, layout)
    choices: dict[str, Any] = {
        "weights": weights, "kv_cache": kv_cache, "compute": compute, "efficiency": efficiency, "routing_skew": skew,
    }  # fmt: skip
    deployment = server_of(
        (model, device), profile, layout, engine=engine, assume=assume, memory_check=False, **choices
    )
    settings = {**choices, "engine": deployment.engine}
    work: dict[str, Any] = {
        "prompt_tokens": lengths_of(prompt, range_ratio), "output_tokens": lengths_of(output, range_ratio),
        "burstiness": burstiness, "requests": requests, "cached_tokens": cached, "engine": profile,
        "method": "simulation" if simulate else "auto", "seed": seed,
    }  # fmt: skip
    with counting("requests of the run that is simulated", requests or 1000) as progress:
        work["progress"] = progress
        if instead:
            devices = {deployment.device: usd_per_hour, **_devices(instead)}
            _print_candidates(
                deployment, objective, {**work, "settings": {**settings, **options.layout(*layout)}}, devices, form
            )
        elif rate is None:
            _print_rate(deployment, objective, work, usd_per_hour, form)
        else:
            _print_fleets(deployment, objective, {**work, "rate_per_s": rate, "settings": settings}, gpus_each, form)


def _refuse_two_questions(context: typer.Context, rate: float | None, instead: str, layout: tuple[int, ...]) -> None:
    """Refuse what belongs to another of the three questions."""
    if rate is None:
        refuse_idle(context, ("gpus_each",), "GPUs are counted at a --rate")
        return
    refuse_idle(context, ("usd_per_hour",), "--rate counts GPUs, whatever they cost")
    if max(layout) > 1:
        message = "--rate tries every layout of --gpus-each: leave the layout out"
        raise InvalidInputError(message)
    if instead:
        message = "--rate counts GPUs of one device, --instead compares devices: give one of the two"
        raise InvalidInputError(message)


def objective_of(limits: tuple[str | None, ...], statistic: str) -> "Objective":
    """Make the objective of the limits that are given."""
    from rooflinekit.serving.objectives import METRICS, Objective  # noqa: PLC0415 - loaded when asked for

    flags = zip(METRICS, ("--ttft", "--tpot", "--itl", "--e2e"), limits, strict=True)
    given = {name: _limit_of(flag, one) for name, flag, one in flags if one is not None}
    if not given:
        message = "an objective without a limit: give one of --ttft, --tpot, --itl, --e2e"
        raise InvalidInputError(message)
    named = {name: seconds if of is None else (seconds, of) for name, (seconds, of) in given.items()}
    return Objective(**named, statistic=statistic)


def _limit_of(flag: str, text: str) -> tuple[float, str | None]:
    """Read a limit."""
    from rooflinekit.serving.objectives import STATISTICS  # noqa: PLC0415 - loaded when asked for

    with naming(flag):
        time_s, statistic = options.limit(text)
    if statistic is not None:
        one_of(f"{flag} after the colon", statistic, STATISTICS)
    return time_s, statistic


def _print_rate(
    deployment: "Deployment",
    objective: "Objective",
    work: dict[str, Any],
    usd_per_hour: float | None,
    form: str,
) -> None:
    """Print the largest rate, what clients then see, and what tokens cost at it."""
    from rooflinekit.reports import serving as report  # noqa: PLC0415 - loaded when asked for
    from rooflinekit.serving.cost import cost, price_of  # noqa: PLC0415 - as above
    from rooflinekit.serving.objectives import max_rate  # noqa: PLC0415 - as above

    price_of(deployment, usd_per_hour)  # refused before a search that takes seconds
    found = max_rate(deployment, objective, **work)
    rate = found.rate_per_s
    priced = cost(deployment, usd_per_hour=usd_per_hour, rate_per_s=rate, **work) if rate else None
    costs = [] if priced is None else report.cost_rows(priced)
    if form not in EYES:
        kept = {"part": "objective", "item": str(objective), "quantity": "max_requests_per_s", "value": rate}
        show([kept, *report.tidy(found.serving), *report.parted("cost", costs, "token")], form)
        remark(form, *report.rate_lines(found), *(report.cost_remarks(priced) if priced else ()))
        return
    say(*report.rate_lines(found), "")
    show(report.latency_rows(found.serving), form, title=report.title(found.serving, "" if rate else "one request"))
    remark(form, *report.remarks(found.serving))
    if priced is not None and costs:
        say()
        show(costs, form, title="one token at that rate")
        remark(form, *report.cost_remarks(priced))


def _devices(text: str) -> "dict[Device, float | None]":
    """Read further devices, each with its price or without."""
    pairs = [one.partition("=") for one in text.split(",") if one]
    devices = devices_of("--instead", (name for name, _, _ in pairs))
    prices = [price_of("--instead", name, usd) if usd else None for name, _, usd in pairs]
    return dict(zip(devices, prices, strict=True))


def _print_candidates(
    deployment: "Deployment",
    objective: "Objective",
    work: dict[str, Any],
    devices: "dict[Device, float | None]",
    form: str,
) -> None:
    """Print what each device carries and costs."""
    from rooflinekit.reports import serving as report  # noqa: PLC0415 - loaded when asked for
    from rooflinekit.serving.candidates import candidates  # noqa: PLC0415 - as above

    compared = candidates(deployment.model, devices, objective, **work)
    rows = report.candidate_rows(compared)
    if rows or form not in EYES:
        columns = report.CANDIDATE_COLUMNS if form in EYES else ()
        show(rows, form, title=report.candidates_title(deployment, compared), columns=columns)
    remark(form, *report.candidate_remarks(compared))


def _print_fleets(
    deployment: "Deployment", objective: "Objective", work: dict[str, Any], gpus_each: str, form: str
) -> None:
    """Print the fleets that keep the objective at the rate."""
    from rooflinekit.reports import serving as report  # noqa: PLC0415 - loaded when asked for
    from rooflinekit.serving.min_gpus import min_gpus  # noqa: PLC0415 - as above

    counts = tuple(options.sizes(gpus_each, "--gpus-each"))
    rate = work.pop("rate_per_s")
    fleets = min_gpus(deployment.model, deployment.device, rate, objective, gpus_each=counts, **work)
    rows = report.fleet_rows(fleets)
    title = f"{deployment.model.id} on {deployment.device.id} at {rate:g} requests/s: {objective}"
    if rows:
        show(rows, form, title=title)
    else:
        say(title) if form in EYES else show(rows, form)
    remark(form, *report.fleet_remarks(fleets))
