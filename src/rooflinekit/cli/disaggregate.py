"""``rooflinekit disaggregate``: GPUs of their own for prefill and decode against the same GPUs together."""

from typing import TYPE_CHECKING, Annotated

import typer

from rooflinekit import units
from rooflinekit.cli import options
from rooflinekit.cli.output import EYES, remark, say, show
from rooflinekit.cli.server import devices_of, profile_of, server_of
from rooflinekit.specs.step import checked

if TYPE_CHECKING:
    from rooflinekit.serving.disaggregation import Disaggregation


def disaggregate(
    model: options.ModelName,
    device: options.DeviceName,
    *,
    rate: Annotated[float, options.number_option("--rate", "PER_S", "Requests that come per second, to all GPUs.")],
    prompt: options.Prompt = 2048,
    output: options.Output = 200,
    cached: options.Cached = 0,
    gpus: Annotated[int, typer.Option("--gpus", metavar="N", help="GPUs in all.")] = 2,
    prefill_gpus: Annotated[
        int | None,
        typer.Option("--prefill-gpus", metavar="N", help="Of them for prefill. [the split that carries most]"),
    ] = None,
    decode_device: Annotated[
        str | None, typer.Option("--decode-device", metavar="DEVICE", help="Another device for decode. [the same]")
    ] = None,
    link: Annotated[
        float | None,
        options.number_option("--link", "GB_PER_S", "Between a GPU of either side, one way. [the device's own link]"),
    ] = None,
    link_latency: Annotated[
        float | None,
        typer.Option("--link-latency", metavar="TIME", help="Of a transfer: 0.001 or 1ms.", parser=options.seconds),
    ] = None,
    overlap: Annotated[
        float,
        options.number_option("--overlap", "PART", "Of the transfer that runs while the prompt is read: 0 to 1."),
    ] = 0,
    compared_by: Annotated[
        str, typer.Option("--by", metavar="NAME", help="What break-evens compare: end_to_end, ttft or tpot.")
    ] = "end_to_end",
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
    form: options.Format = "table",
) -> None:
    """Compare prefill and decode on GPUs of their own with the same GPUs together; tell from which link and load on.

    The layout is that of one replica.
    """
    from rooflinekit.serving.disaggregation import disaggregate as of  # noqa: PLC0415 - loaded when asked for

    profile = profile_of(engine, chunk, max_num_seqs, utilization)
    layout = (tensor_parallel, pipeline_parallel, expert_parallel, attention_groups)
    deployment = server_of(
        (model, device), profile, layout, engine=engine, assume=assume, weights=weights, kv_cache=kv_cache,
        compute=compute, efficiency=efficiency, routing_skew=skew,
    )  # fmt: skip
    other = None
    if decode_device is not None:
        (spec,) = devices_of("--decode-device", [decode_device])
        other = deployment.with_(device=spec)
    if link is not None:
        checked("link", link, positive=True)  # in the unit that was typed
    found = of(
        deployment,
        prompt_tokens=prompt,
        output_tokens=output,
        rate_per_s=rate,
        gpus=gpus,
        prefill_gpus=prefill_gpus,
        decode=other,
        engine=profile,
        cached_tokens=cached,
        link_bytes_per_s=None if link is None else link * units.GIGA,
        link_latency_s=link_latency,
        overlap=overlap,
        compared_by=compared_by,
    )
    _print(found, form)


def _print(found: "Disaggregation", form: str) -> None:
    """Print both arrangements, what the comparison rests on, and the break-evens."""
    from rooflinekit.reports import choices as report  # noqa: PLC0415 - loaded when asked for
    from rooflinekit.reports.tables import listing  # noqa: PLC0415 - as above

    if form not in EYES:
        show(report.split_tidy(found), form)
        remark(form, *report.split_remarks(found))
        return
    show(found.table(), form, title=report.split_title(found))
    say()
    show(listing(report.split_figures(found)), form)
    remark(form, *report.split_remarks(found))
