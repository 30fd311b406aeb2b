"""``rooflinekit embed``: throughput, latency and cost of embedding and reranking models, which only read."""

from rooflinekit.cli import options
from rooflinekit.cli.output import EYES, deploy, remark, show
from rooflinekit.cli.server import profile_of


def embed(
    model: options.ModelName,
    device: options.DeviceName,
    *,
    tokens: options.TextTokens = 512,
    engine: options.Profile = None,
    chunk: options.TokenBudget = None,
    max_num_seqs: options.MostSequences = None,
    usd_per_hour: options.UsdPerHour = None,
    tensor_parallel: options.TensorParallel = 1,
    pipeline_parallel: options.PipelineParallel = 1,
    weights: options.Weights = None,
    compute: options.Compute = None,
    efficiency: options.Efficiency = "calibrated",
    assume: options.Assume = None,
    form: options.Format = "table",
) -> None:
    """Estimate what a model that only reads delivers: embedding and reranking, prefill without an output layer."""
    from rooflinekit.reports import serving as report  # noqa: PLC0415 - loaded when asked for
    from rooflinekit.reports.tables import listing  # noqa: PLC0415 - as above
    from rooflinekit.serving.embedding import embed as of  # noqa: PLC0415 - as above

    profile = profile_of(engine, chunk, max_num_seqs, None)
    choices = {"weights": weights, "compute": compute, "efficiency": efficiency, "engine": engine and profile.engine}
    layout = options.layout(tensor_parallel, pipeline_parallel, 1, 1)
    deployment = deploy(model, device, assume=assume, **choices, **layout)
    read = of(deployment, tokens, engine=profile, usd_per_hour=usd_per_hour)
    rows = report.embedding_rows(read)
    if form in EYES:
        told = {"token_energy_j" if name == "energy_j" else name: value for name, value in rows.items()}
        show(listing(told), form, title=report.embedding_title(read))
    else:
        show([rows], form)
    remark(form, *report.embedding_remarks(read))
