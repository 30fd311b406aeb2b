"""``rooflinekit estimate``: prefill, decode step, request and memory of a model on a device."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from rooflinekit.cli import options
from rooflinekit.cli.output import EYES, deploy, say, table
from rooflinekit.errors import InvalidInputError

if TYPE_CHECKING:
    from rooflinekit.reports.summary import Summary

_TIMES = ("phase", "time_s", "floor_s", "bound", "flops", "bytes", "weight_bytes", "kv_bytes", "intensity")
_COUNTS = ("phase", "memory_time_s", "floor_s", "bound", "flops", "bytes", "weight_bytes", "kv_bytes", "intensity")
_OPERATORS = (
    "operator",
    "launches",
    "flops",
    "weight_bytes",
    "bytes",
    "message_bytes",
    "intensity",
    "time_s",
    "share",
    "bound",
)


def estimate(
    model: options.ModelName,
    device: options.DeviceName,
    *,
    prompt: options.Prompt = 2048,
    output: options.Output = 200,
    batch: options.Batch = 1,
    cached: options.Cached = 0,
    chunk: options.Chunk = None,
    assume: options.Assume = None,
    weights: options.Weights = None,
    kv_cache: options.KvCache = None,
    compute: options.Compute = None,
    engine: options.Engine = None,
    efficiency: options.Efficiency = "calibrated",
    skew: options.Skew = 0,
    tensor_parallel: options.TensorParallel = 1,
    pipeline_parallel: options.PipelineParallel = 1,
    expert_parallel: options.ExpertParallel = 1,
    attention_groups: options.AttentionGroups = 1,
    busy: options.Busy = 0,
    form: options.Format = "table",
    unchecked: options.Unchecked = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Print the tree behind both phases and its sources.")
    ] = False,
) -> None:
    """Estimate requests on one device: both phases with their operators, the request, and memory.

    Times are service times: no queue, no network. The decode step is the first one, at the prompt's context.
    """
    from rooflinekit.reports.summary import Summary, Workload  # noqa: PLC0415 - loaded when asked for

    work = Workload(prompt, output, batch, cached, chunk, busy)
    choices = {"weights": weights, "kv_cache": kv_cache, "compute": compute, "engine": engine, "efficiency": efficiency}
    layout = options.layout(tensor_parallel, pipeline_parallel, expert_parallel, attention_groups)
    deployment = deploy(
        model, device, assume=assume, **choices, **layout, routing_skew=skew, memory_check=not unchecked
    )
    summary = Summary(deployment, work)
    # Rendered whole before the first line is printed: an error leaves no half of an answer behind.
    say(*(_blocks if form in EYES else _records)(summary, form, explain=explain))


def _records(summary: "Summary", form: str, *, explain: bool) -> Iterator[str]:
    """Give everything that Python holds, for programs."""
    from rooflinekit.reports import summary as figures  # noqa: PLC0415 - as above
    from rooflinekit.reports.tables import to_json  # noqa: PLC0415 - as above

    if explain and form != "json":
        message = f"--explain gives a tree, which {form} cannot hold: expected --format table, markdown or json"
        raise InvalidInputError(message)
    whole = figures.document(summary)
    if explain:
        whole["explain"] = {name: figures.tree(step.explain()) for name, step in summary.phases.items()}
    yield to_json(whole) if form == "json" else table(figures.tidy(whole), form)


def _blocks(summary: "Summary", form: str, *, explain: bool) -> Iterator[str]:
    """Give what an engineer reads: both phases side by side, the request, memory, then operators or trees."""
    from rooflinekit.reports import summary as figures  # noqa: PLC0415 - as above
    from rooflinekit.reports.tables import listing  # noqa: PLC0415 - as above

    rows = [{"phase": name, **figures.phase(step)} for name, step in summary.phases.items()]
    yield table(rows, form, title=repr(summary.deployment), columns=_TIMES if summary.timed else _COUNTS)
    notes = [f"note: {note}" for note in figures.notes(summary)]
    yield from ["", *notes] if notes and form == "markdown" else notes  # apart, else they were rows of the table
    yield ""
    yield table(listing(figures.request(summary)), form, title=f"request: {summary.workload}; service time only")
    yield ""
    yield table(
        listing(figures.memory(summary)), form, title=f"memory of {summary.deployment.device.id} at the last token"
    )
    yield from (_trees if explain else _operators)(summary, form)


def _operators(summary: "Summary", form: str) -> Iterator[str]:
    from rooflinekit.reports import summary as figures  # noqa: PLC0415 - as above

    for step in summary.phases.values():
        rows = [row for row in figures.operators(step) if row["launches"]]  # of two forms of attention, the one used
        sent = any(row["message_bytes"] for row in rows)
        columns = [name for name in _OPERATORS if name in rows[0] and (sent or name != "message_bytes")]
        yield ""
        yield table([*rows, figures.total(rows)], form, title=step.label, columns=columns)


def _trees(summary: "Summary", form: str) -> Iterator[str]:
    fence = ["```"] if form == "markdown" else []
    for step in summary.phases.values():
        yield from ["", *fence, str(step.explain()), *fence]
    sources = dict.fromkeys(line for step in summary.phases.values() for line in step.sources())
    yield from ["", "sources", "", *(f"- {line}" for line in sources)]
