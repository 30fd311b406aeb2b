"""Which layouts of a model over several devices fit, and what each costs: a tidy DataFrame, loaded on first use."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from rooflinekit.errors import DoesNotFitError, InvalidInputError, MissingFigureError
from rooflinekit.specs.catalog import load_model
from rooflinekit.specs.model import Model
from rooflinekit.specs.step import checked

if TYPE_CHECKING:
    from rooflinekit.phases.deployment import Deployment

_DEGREES = ("tensor_parallel", "pipeline_parallel", "data_parallel_attention", "expert_parallel")
Degrees = dict[str, int]


def plan_layouts(
    model: object,
    device: object,
    *,
    gpus: int = 8,
    prompt_tokens: float = 2048,
    context_tokens: float | None = None,
    batch: float = 1,
    **choices: object,
) -> pd.DataFrame:
    """
    Tabulate every layout of a model over so many devices: one prefill and one decode step, what messages cost, memory.

    Parameters
    ----------
    model, device
        As for :class:`~rooflinekit.Deployment`.
    gpus : int
        Devices: tensor x data-parallel x pipeline. [1]
    prompt_tokens, context_tokens : float
        Of the prefill and of the decode step (the prompt, if not given). [token]
    batch : float
        Sequences in both, over all devices. [1]
    **choices
        Further arguments of :class:`~rooflinekit.Deployment`: formats, engine, ``interconnect``.

    Returns
    -------
    table : DataFrame
        A row a layout, the quickest decode step first; those that do not fit, or cannot be, last with the reason in
        ``note``. ``weights_bytes``, ``kv_cache_bytes`` and ``kv_room_bytes`` are of the busiest device.

    Raises
    ------
    InvalidInputError
        The number of devices is no whole number above 0.

    Examples
    --------
    >>> import rooflinekit as rk
    >>> table = rk.plan_layouts("llama-3.1-70b", "h100-sxm", gpus=4)
    >>> table["layout"].tolist()
    ['TP4', 'TP2 PP2', 'PP4']
    """
    checked("gpus", gpus, minimum=1, whole=True)
    whole = load_model(model)  # type: ignore[arg-type]
    held = prompt_tokens if context_tokens is None else context_tokens
    rows = [
        _row(whole, device, degrees, (prompt_tokens, held, batch), choices) for degrees in _layouts(whole, int(gpus))
    ]
    table = pd.DataFrame(rows)
    order = ["fits", "decode_step_s", *_DEGREES]
    return table.sort_values(order, ascending=[False, True, False, True, True, True], ignore_index=True)


def _layouts(model: Model, gpus: int) -> Iterator[Degrees]:
    """Yield the ways to divide the devices; attention in groups and experts in ranks only where there are experts."""
    mixture = any(block.routed[0] for block in model.feedforwards)
    for stages in _divisors(gpus):
        for groups in _divisors(gpus // stages) if mixture else (1,):
            rest = gpus // stages
            for ranks in dict.fromkeys((1, rest)) if mixture else (1,):
                yield dict(zip(_DEGREES, (rest // groups, stages, groups, ranks), strict=True))


def _divisors(number: int) -> Iterator[int]:
    return (candidate for candidate in range(1, number + 1) if number % candidate == 0)


def _row(
    model: Model, device: object, degrees: Degrees, work: tuple[float, float, float], choices: dict[str, object]
) -> dict[str, Any]:
    """Estimate one layout, or say why there is none."""
    from rooflinekit.phases.deployment import Deployment  # noqa: PLC0415 - it is one of what loads on first use

    empty = dict.fromkeys(
        ("prefill_s", "decode_step_s", "prefill_communication_share", "decode_communication_share", "weights_bytes",
         "kv_cache_bytes", "kv_room_bytes"),
        np.nan,
    )  # fmt: skip
    named = " ".join(f"{short}{degrees[name]}" for short, name in _SHORT.items() if degrees[name] > 1) or "one device"
    head = {"layout": named, **degrees}
    try:
        deployment = Deployment(model, device, memory_check=False, **{**choices, **degrees})  # type: ignore[arg-type]
    except InvalidInputError as error:
        return {**head, **empty, "fits": False, "note": str(error)}
    return {**head, **empty, **_figures(deployment, work)}


_SHORT = {"DP": "data_parallel_attention", "TP": "tensor_parallel", "PP": "pipeline_parallel", "EP": "expert_parallel"}


def _figures(deployment: "Deployment", work: tuple[float, float, float]) -> dict[str, Any]:
    prompt, context, batch = work
    prefill, decode = deployment.prefill(prompt, batch=batch), deployment.decode(context, batch=batch)
    memory = deployment.device.memory_bytes
    held = float(deployment.kv_cache_bytes(context + 1.0, sequences=batch))
    figures = {
        "weights_bytes": deployment.weights_bytes,
        "kv_cache_bytes": held,
        "kv_room_bytes": np.nan if memory is None else memory - deployment.weights_bytes,
        **_fit(deployment, work),
    }
    try:
        return {
            **figures,
            "prefill_s": prefill.time_s,
            "decode_step_s": decode.time_s,
            "prefill_communication_share": prefill.communication_share,
            "decode_communication_share": decode.communication_share,
        }
    except MissingFigureError as error:
        return {**figures, "note": str(error)}


def _fit(deployment: "Deployment", work: tuple[float, float, float]) -> dict[str, Any]:
    """Tell whether both passes fit into the memory of every device, and if not, what is missing."""
    prompt, context, batch = work
    tight = deployment.with_(memory_check=True)
    try:
        tight.prefill(prompt, batch=batch)
        tight.decode(context, batch=batch)
    except DoesNotFitError as error:
        return {"fits": False, "note": str(error)}
    return {"fits": True, "note": ""}
