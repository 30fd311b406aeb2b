"""``rooflinekit freeze``: estimates as reference rows, which pytest compares with what is predicted later."""

from pathlib import Path
from typing import Annotated

import typer

from rooflinekit.cli import options
from rooflinekit.cli.names import naming
from rooflinekit.cli.output import named, say
from rooflinekit.errors import InvalidInputError


def freeze(
    model: options.ModelName,
    device: options.DeviceName,
    *,
    prompt: options.Prompt = 2048,
    output: options.Output = 200,
    batch: options.Sizes = "1",
    context: Annotated[
        str | None,
        typer.Option("--context", metavar="LIST", help="Contexts of decode steps, listed as --batch. [the prompt]"),
    ] = None,
    tolerance: Annotated[float, typer.Option("--tolerance", help="How far a prediction may move, relatively.")] = 0.02,
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
    unchecked: options.Unchecked = False,
    write: Annotated[
        Path | None, typer.Option("--write", metavar="FILE", help="Write it there: a name ending in .roofline.yaml.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over a file that is there.")] = False,
) -> None:
    """Freeze estimates as a file whose rows are tests: `pytest` fails where a prediction has moved.

    The rows: time to first token, time per output token and end to end of requests, decode steps, KV cache of a token.
    """
    from rooflinekit.testing import freeze as of  # noqa: PLC0415 - loaded when asked for

    if model == device == "-":
        message = "MODEL and DEVICE are both `-`: standard input holds one of them; name a file for the other"
        raise InvalidInputError(message)
    if write is not None:
        with naming("--write"):
            of.check_target(write, overwrite=force)
    text = of.freeze(
        named(model),
        named(device),
        prompt_tokens=prompt,
        output_tokens=output,
        batch=options.sizes(batch, "--batch"),
        context_tokens=() if context is None else options.sizes(context, "--context"),
        tolerance=tolerance,
        folder=None if write is None else write.parent,
        weights=weights,
        kv_cache=kv_cache,
        compute=compute,
        engine=engine,
        efficiency=efficiency,
        routing_skew=skew,
        memory_check=not unchecked,
        **options.layout(tensor_parallel, pipeline_parallel, expert_parallel, attention_groups),
    )
    if write is None:
        say(text.rstrip("\n"))
        return
    of.write_frozen(write, text, overwrite=force)
    say(f"written to {write}: {text.count('- {id: ')} rows; `pytest {write}` compares them")
