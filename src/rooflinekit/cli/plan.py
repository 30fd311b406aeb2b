"""``rooflinekit plan``: the layouts of a model over several devices, with what each costs."""

from typing import Annotated, Any

import typer

from rooflinekit.cli import options
from rooflinekit.cli.names import naming
from rooflinekit.cli.output import EYES, model_of, named, remark, show
from rooflinekit.phases.deployment import Deployment
from rooflinekit.specs.catalog import load_device

_COLUMNS = (
    "layout", "prefill_s", "decode_step_s", "prefill_communication_share", "decode_communication_share",
    "weights_bytes", "kv_room_bytes", "fits",
)  # fmt: skip


def plan(
    model: options.ModelName,
    *,
    device: Annotated[
        str, typer.Option("--device", metavar="DEVICE", help="Id, unique prefix, alias or YAML file of the device.")
    ],
    gpus: Annotated[int, typer.Option("--gpus", metavar="N", min=1, help="Devices to lay the model out on.")] = 8,
    prompt: options.Prompt = 2048,
    context: Annotated[
        float | None,
        options.number_option("--context", "TOKENS", "Tokens held before the decode step. [the prompt]"),
    ] = None,
    batch: options.Batch = 1,
    assume: options.Assume = None,
    weights: options.Weights = None,
    kv_cache: options.KvCache = None,
    compute: options.Compute = None,
    engine: options.Engine = None,
    efficiency: options.Efficiency = "calibrated",
    skew: options.Skew = 0,
    interconnect: Annotated[
        str | None,
        typer.Option("--interconnect", metavar="LINK", help="Link between the devices: pcie, ... [the device's own]"),
    ] = None,
    form: options.Format = "table",
) -> None:
    """List the layouts of a model over several devices: tensor, pipeline, expert and data-parallel attention.

    Bytes are of the busiest device. Layouts that do not fit, or cannot be, come last and say why.
    """
    from rooflinekit.phases.layouts import plan_layouts  # noqa: PLC0415 - pandas loads when asked for

    choices: dict[str, Any] = {
        "weights": weights,
        "kv_cache": kv_cache,
        "compute": compute,
        "engine": engine,
        "efficiency": efficiency,
        "routing_skew": skew,
        "interconnect": interconnect,
    }
    with naming("--device"):
        card = load_device(named(device))
    one = Deployment(model_of(model, assume), card, memory_check=False, **choices)  # a wrong choice is told once
    rows = plan_layouts(
        one.model, card, gpus=gpus, prompt_tokens=prompt, context_tokens=context, batch=batch, **choices
    )
    show(rows, form, title=f"{model} on {gpus} x {device}, batch {batch:,}", columns=_COLUMNS)
    if form in EYES:
        told = zip(rows["layout"], rows["note"], strict=True)
        notes = [f"{layout!s}: {note!s}" for layout, note in told if note]
        remark(form, *notes)
