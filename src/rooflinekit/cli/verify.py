"""``rooflinekit verify``: the commands that measure, on the machine itself, what is estimated here."""

from dataclasses import asdict

from rooflinekit.cli import options
from rooflinekit.cli.output import deploy, remark, say, show


def verify(
    model: options.ModelName,
    device: options.DeviceName,
    *,
    prompt: options.Prompt = 2048,
    output: options.Output = 200,
    batch: options.Batch = 1,
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
    form: options.Format = "table",
    unchecked: options.Unchecked = False,
) -> None:
    """List benchmark commands of the deployment's engine, each with the range that it should print."""
    choices = {"weights": weights, "kv_cache": kv_cache, "compute": compute, "engine": engine, "efficiency": efficiency}
    layout = options.layout(tensor_parallel, pipeline_parallel, expert_parallel, attention_groups)
    deployment = deploy(
        model, device, assume=assume, **choices, **layout, routing_skew=skew, memory_check=not unchecked
    )
    commands = deployment.verify_commands(prompt, output, batch)  # type: ignore[arg-type]  # whole, or refused there
    if form == "table":
        say(str(commands))
    else:
        show([asdict(one) for one in commands], form)
    remark(form, *(f"note: {note}" for note in deployment.engine_notes))
