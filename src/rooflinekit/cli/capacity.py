"""``rooflinekit capacity``: what one GPU's memory leaves for K and V, and the requests that it holds at once."""

from typing import Annotated

import typer

from rooflinekit.cli import options
from rooflinekit.cli.output import EYES, deploy, remark, say, show

Profile = Annotated[
    str, typer.Option("--engine", metavar="NAME", help="vllm, vllm-0.12, vllm-offline, sglang, tensorrt-llm, ...")
]
Lengths = Annotated[
    str, typer.Option("--tokens", metavar="LIST", help="Tokens of each request: 8192, or 2048,8192 or 1024:8192:1024.")
]
Budget = Annotated[
    int | None,
    typer.Option("--budget", metavar="TOKENS", help="Tokens of one pass at most (vLLM: max_num_batched_tokens)."),
]
Longest = Annotated[
    int | None,
    typer.Option("--max-model-len", metavar="TOKENS", help="Tokens of one request at most. [the model's]"),
]


def capacity(
    model: options.ModelName,
    device: options.DeviceName,
    *,
    engine: Profile = "vllm",
    tokens: Lengths = "2048,8192,32768",
    utilization: options.MemoryPart = None,
    budget: Budget = None,
    max_model_len: Longest = None,
    max_num_seqs: options.MostSequences = None,
    tensor_parallel: options.TensorParallel = 1,
    weights: options.Weights = None,
    kv_cache: options.KvCache = None,
    assume: options.Assume = None,
    form: options.Format = "table",
) -> None:
    """Tell what one GPU's memory leaves for K and V under an engine, and how many requests that holds at once."""
    from rooflinekit import serving  # noqa: PLC0415 - loaded when asked for
    from rooflinekit.reports import capacity as report  # noqa: PLC0415 - as above

    lengths = options.sizes(tokens)
    deployment = deploy(model, device, assume=assume, weights=weights, kv_cache=kv_cache, memory_check=False)
    held = serving.capacity(
        deployment,
        engine=engine,
        gpu_memory_utilization=utilization,
        max_num_batched_tokens=budget,
        max_model_len=max_model_len,
        max_num_seqs=max_num_seqs,
        tensor_parallel=tensor_parallel,
    )
    if form not in EYES:
        show(report.tidy(held, lengths), form)
        return
    show(report.term_rows(held), form, title=report.title(held))
    remark(form, *report.remarks(held))
    say()
    show(report.request_rows(held, lengths), form, title="requests at a length")
    levers = report.lever_rows(held, lengths[0])
    if levers:
        say()
        show(levers, form, title=f"what would free how much, in requests of {lengths[0]:,} tokens")
