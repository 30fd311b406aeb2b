"""``rooflinekit dial``: what the token budget of a step trades, time to first token against gaps between tokens."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rooflinekit.cli import options
from rooflinekit.cli.names import naming
from rooflinekit.cli.output import remark, show
from rooflinekit.cli.server import profile_of, server_of

if TYPE_CHECKING:
    import pandas as pd

_COLUMNS = (
    "token_budget", "chunks", "ttft_mean_s", "ttft_p99_s", "itl_mean_s", "itl_p99_s", "worst_gap_s",
    "unchunked_gap_s", "full_budget_gap_s", "most_requests_per_s",
)  # fmt: skip


def dial(
    model: options.ModelName,
    device: options.DeviceName,
    *,
    rate: Annotated[float, options.number_option("--rate", "PER_S", "Requests that come per second.")],
    prompt: options.Prompt = 2048,
    output: options.Output = 200,
    cached: options.Cached = 0,
    chunk: Annotated[
        str, typer.Option("--chunk", metavar="LIST", help="Token budgets to try (vLLM: max_num_batched_tokens).")
    ] = "256,512,1024,2048,4096,8192,16384",
    requests: options.Requests = None,
    engine: options.Profile = None,
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
    png: options.Png = None,
    form: options.Format = "table",
) -> None:
    """Tabulate chunk sizes: small ones keep the gaps of running answers short, large ones bring the first token sooner.

    The worst gap is a step with the largest chunk of one prompt; without chunks, one with the whole prompt.
    """
    from rooflinekit.reports import choices as report  # noqa: PLC0415 - loaded when asked for
    from rooflinekit.serving.dial import budget_curve  # noqa: PLC0415 - as above

    profile = profile_of(engine, None, max_num_seqs, utilization)
    layout = (tensor_parallel, pipeline_parallel, expert_parallel, attention_groups)
    deployment = server_of(
        (model, device), profile, layout, engine=engine, assume=assume, weights=weights, kv_cache=kv_cache,
        compute=compute, efficiency=efficiency, routing_skew=skew,
    )  # fmt: skip
    table = budget_curve(
        deployment,
        prompt,
        output,
        rate,
        budgets=options.sizes(chunk, "--chunk"),
        engine=profile,
        cached_tokens=cached,
        method="simulation" if simulate else "auto",
        requests=requests,
        seed=seed,
    )
    heading = report.budget_title(deployment, profile, (prompt, output), rate)
    told = tuple(report.budget_remarks(table, profile, deployment.device))
    if png is not None:
        _draw(table, heading, told[0], profile.token_budget(deployment.device), png)
        told = (*told, f"drawn in {png}")
    show(table, form, title=heading, columns=_COLUMNS)
    remark(form, *told)


def _draw(table: "pd.DataFrame", heading: str, beneath: str, default: int, png: Path) -> None:
    from rooflinekit.reports.plots import budget_figure, save  # noqa: PLC0415 - matplotlib loads when it draws

    place, _, load = heading.partition(": ")
    beneath = f"{load}; {beneath}"
    with naming("--png"):
        save(budget_figure(table, heading=f"Which chunk size: {place}", beneath=beneath, default=default), png)
