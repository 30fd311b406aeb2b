"""``rooflinekit speculate``: what speculation makes of a decode step, and from which acceptance it pays."""

from typing import TYPE_CHECKING, Annotated

import typer

from rooflinekit.cli import options
from rooflinekit.cli.output import deploy, model_of, remark, show
from rooflinekit.errors import InvalidInputError, UnknownNameError

if TYPE_CHECKING:
    from rooflinekit.phases.deployment import Deployment
    from rooflinekit.serving.speculative import Draft


def speculate(
    model: options.ModelName,
    device: options.DeviceName,
    *,
    acceptance: options.Acceptance = None,
    context: options.Context = 2048,
    batch: options.Sizes = "1,2,4,8,16,32,64,128",
    drafted: Annotated[
        int | None, typer.Option("--drafted", metavar="N", help="Tokens drafted for a step. [the best number up to 16]")
    ] = None,
    draft: options.Draft = "mtp",
    engine: options.Engine = None,
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
    """Tabulate speculative decoding over batch sizes: draft, verification, time per token, break-even acceptance."""
    from rooflinekit.serving.speculative import speculate as of  # noqa: PLC0415 - loaded when asked for
    from rooflinekit.serving.speculative import speculation_table  # noqa: PLC0415 - as above

    if acceptance is None:
        message = "--acceptance: give the part of drafted tokens that is kept, measured on your own requests (0 to 1)"
        raise InvalidInputError(message)
    choices = {"weights": weights, "kv_cache": kv_cache, "compute": compute, "efficiency": efficiency}
    layout = options.layout(tensor_parallel, pipeline_parallel, expert_parallel, attention_groups)
    deployment = deploy(model, device, assume=assume, engine=engine, **choices, **layout, routing_skew=skew)
    small, batches = draft_of(draft, deployment), options.sizes(batch, "--batch")
    asked = {"acceptance": acceptance, "context_tokens": context, "drafted": drafted, "draft": small}
    rows = speculation_table(deployment, batch=batches, **asked)  # type: ignore[arg-type]
    first = of(deployment, batch=batches[0], **asked)  # type: ignore[arg-type]
    show(rows, form, title=f"{deployment!r}; {context:,} tokens of context, acceptance {acceptance:g}")
    remark(form, f"times per token are means of one sequence; {first.basis}", *_never(first.reason))


def _never(reason: str) -> tuple[str, ...]:
    return (f"it never pays: {reason}",) if reason else ()


def draft_of(text: str, deployment: "Deployment") -> "Draft":
    """Read a draft: a module of the model, a number (its cost in decode steps), or a model on one of the devices."""
    from rooflinekit.phases.deployment import Deployment  # noqa: PLC0415 - loaded when asked for
    from rooflinekit.serving.speculative import IMAGINED, MODULE  # noqa: PLC0415 - as above

    if text in (MODULE, IMAGINED):
        return text
    try:
        return float(text)
    except ValueError:
        pass
    try:
        return Deployment(model_of(text), deployment.device, engine=deployment.engine)
    except UnknownNameError as error:
        message = (
            f"--draft {text}: expected mtp, the cost of a drafted token in decode steps, module, or a model: {error}"
        )
        raise InvalidInputError(message) from error
