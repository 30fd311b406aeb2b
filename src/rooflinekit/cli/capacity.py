"""``rooflinekit capacity``: what one GPU's memory leaves for K and V, and the requests that it holds at once."""

from typing import TYPE_CHECKING, Annotated

import typer

from rooflinekit.cli import options
from rooflinekit.cli.names import naming
from rooflinekit.cli.output import EYES, deploy, remark, say, show
from rooflinekit.cli.server import profile_of

if TYPE_CHECKING:
    from rooflinekit.serving import Capacity

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

#: Told where nobody asks, as far as the engine takes them.
_LENGTHS = "2048,8192,32768"


def capacity(
    model: options.ModelName,
    device: options.DeviceName,
    *,
    engine: Profile = "vllm",
    tokens: Lengths = _LENGTHS,
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

    profile = profile_of(engine, budget, max_num_seqs, utilization, max_model_len)
    deployment = deploy(model, device, assume=assume, weights=weights, kv_cache=kv_cache, memory_check=False)
    held = serving.capacity(deployment, engine=profile, tensor_parallel=tensor_parallel)
    lengths = _lengths(held, tokens)
    beyond = _beyond(held)
    if form not in EYES:
        show(report.tidy(held, lengths), form)
        remark(form, *beyond)
        return
    requests, levers = report.request_rows(held, lengths), report.lever_rows(held, lengths[0])
    show(report.term_rows(held), form, title=report.title(held))
    remark(form, *report.remarks(held), *beyond)
    say()
    show(requests, form, title="requests at a length")
    if levers:
        say()
        show(levers, form, title=f"what would free how much, in requests of {lengths[0]:,} tokens")


def _beyond(held: "Capacity") -> list[str]:
    """Say that a length which was asked for is more than the model's own limit."""
    own, longest, model = held.deployment.model.max_context_tokens, held.engine.max_model_len, held.deployment.model.id
    if own is None or longest is None or longest <= own:
        return []
    told = (
        f"note: --max-model-len {longest:,} is above the {own:,} of {model}: engines refuse it unless told otherwise "
        "(vLLM: VLLM_ALLOW_LONG_MAX_MODEL_LEN=1)"
    )
    return [told]


def _lengths(held: "Capacity", tokens: str) -> list[float]:
    """Read the lengths; of those that nobody asked for, leave out what the engine refuses."""
    from rooflinekit.serving.capacity import refuse_longer  # noqa: PLC0415 - as above

    lengths, longest = options.sizes(tokens, "--tokens"), held.limits.max_model_len
    if tokens == _LENGTHS and longest is not None:
        return [length for length in lengths if length <= longest] or [longest]
    with naming("--tokens"):
        refuse_longer(held.deployment, held.engine, max(lengths))
    return lengths
