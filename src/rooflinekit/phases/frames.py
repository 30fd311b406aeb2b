"""Tidy DataFrames of estimates; the only file here that needs pandas, loaded on first use."""

import html
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from rooflinekit import units
from rooflinekit.errors import MissingFigureError
from rooflinekit.phases.estimate import Estimate
from rooflinekit.phases.row import OperatorEstimate
from rooflinekit.specs.device import Device
from rooflinekit.specs.step import Real, checked

if TYPE_CHECKING:
    from rooflinekit.phases.deployment import Deployment

_COUNTS = (
    "launches", "flops", "weight_bytes", "activation_bytes", "kv_bytes", "state_bytes", "message_bytes", "bytes",
    "intensity",
)  # fmt: skip
_TIMES = ("compute_time_s", "memory_time_s", "launch_time_s", "serial_time_s", "time_s", "bound")


def operator_table(estimate: Estimate) -> pd.DataFrame:
    """One row an operator and point: counts always, times where the device has the peak they need."""
    columns = (*_COUNTS, *(() if estimate.timing.missing else _TIMES))
    table = pd.concat([_operator_rows(row, columns) for row in estimate.operators], ignore_index=True)
    if not estimate.timing.missing:
        table["share"] = table["time_s"] / table.groupby("point")["time_s"].transform("sum")
    return table.drop(columns="point") if estimate.shape == () else table


def _operator_rows(row: OperatorEstimate, columns: Sequence[str]) -> pd.DataFrame:
    values = {name: np.ravel(getattr(row, name)) for name in columns}
    points = len(next(iter(values.values())))
    return pd.DataFrame({"operator": row.name, "class": row.op_class, "point": np.arange(points), **values})


def operator_html(estimate: Estimate) -> str:
    """Render the one-line form and the operator table with rounded figures, for notebooks."""
    title = f"<p>{html.escape(repr(estimate))}</p>"
    if estimate.shape != ():
        return title
    table = operator_table(estimate)
    renders = {
        "launches": units.count,
        "flops": lambda value: units.si(value, "FLOP"),
        "intensity": units.significant,
        "share": lambda value: f"{value:.1%}",
        **{name: lambda value: units.si(value, "B") for name in table.columns if name.endswith("bytes")},
        **{name: units.duration for name in table.columns if name.endswith("_s")},
    }
    notes = "".join(f"<p>{html.escape(note)}</p>" for note in estimate.notes)
    return title + table.to_html(formatters=renders, index=False, border=0) + notes


def batch_curve(deployment: "Deployment", context_tokens: float, batch: Sequence[float]) -> pd.DataFrame:
    """One row a batch size: the decode step, what a user and the device get, its bound, and whether it fits."""
    checked("batch", np.atleast_1d(np.asarray(batch)), positive=True)
    sizes = np.atleast_1d(np.asarray(batch, dtype=np.float64))
    step = deployment.with_(memory_check=False).decode(context_tokens=float(context_tokens), batch=sizes)
    held = deployment.kv_cache_bytes(tokens=context_tokens + 1.0, sequences=sizes)
    memory = deployment.device.memory_bytes
    unknown = np.full(len(sizes), np.nan)  # without an arithmetic peak only counts, the floor and the memory remain
    time_s = unknown if step.timing.missing else step.time_s
    return pd.DataFrame(
        {
            "batch": np.atleast_1d(np.asarray(batch)),
            "context_tokens": context_tokens,
            "step_s": time_s,
            "floor_s": step.floor_s,
            "tokens_per_s_per_user": 1.0 / time_s,
            "tokens_per_s": sizes / time_s,
            "bound": "memory alone" if step.timing.missing else step.bound,
            "kv_cache_bytes": held,
            "fits": None if memory is None else deployment.weights_bytes + held <= memory,
        }
    )


def compare_devices(
    model: object,
    devices: Sequence[object],
    *,
    prompt_tokens: Real = 2048,
    context_tokens: Real | None = None,
    batch: Real = 1,
    **choices: object,
) -> pd.DataFrame:
    """
    Tabulate one prefill and one decode step of a model on several devices: a tidy DataFrame, a row a device.

    Parameters
    ----------
    model : str, Path, mapping or Model
        As for :class:`~rooflinekit.Deployment`.
    devices : sequence
        Devices, likewise.
    prompt_tokens, context_tokens : int
        Of the prefill and of the decode step (the prompt, if not given). [token]
    batch : int
        Sequences in both. [1]
    **choices
        Further arguments of :class:`~rooflinekit.Deployment`.

    Returns
    -------
    table : DataFrame
        A device whose file lacks a needed peak has its times missing and says why in ``note``; one that is too small
        is timed all the same, with ``fits`` False.

    Examples
    --------
    >>> import rooflinekit as rk
    >>> rk.compare_devices("qwen3-8b", ["gb10", "h200-sxm"])["device"].tolist()
    ['gb10', 'h200-sxm']
    """
    from rooflinekit.phases.deployment import Deployment  # noqa: PLC0415 - it imports this file on first use

    devices = [devices] if isinstance(devices, str | Device | Mapping) else devices
    held = prompt_tokens if context_tokens is None else context_tokens
    deployments = [Deployment(model, device, memory_check=False, **choices) for device in devices]  # type: ignore[arg-type]
    return pd.DataFrame([_device_row(one, prompt_tokens, held, batch) for one in deployments])


def _device_row(deployment: "Deployment", prompt_tokens: Real, context_tokens: Real, batch: Real) -> dict[str, object]:
    prefill = deployment.prefill(prompt_tokens, batch=batch)
    decode = deployment.decode(context_tokens, batch=batch)
    memory = deployment.device.memory_bytes
    held = deployment.weights_bytes + deployment.kv_cache_bytes(np.add(context_tokens, 1.0), sequences=batch)
    times, note = _times_or_note(prefill, decode)
    return {
        "device": deployment.device.id,
        **times,
        "decode_floor_s": decode.floor_s,
        "kv_cache_bytes": held - deployment.weights_bytes,
        "fits": None if memory is None else held <= memory,
        "basis": prefill.basis,
        "note": note,
    }


def _times_or_note(prefill: Estimate, decode: Estimate) -> tuple[dict[str, object], str]:
    """Give the times, or none of them and which figure of the device is missing."""
    names = ("prefill_s", "decode_step_s", "decode_tokens_per_s")
    try:
        return dict(zip(names, (prefill.time_s, decode.time_s, decode.tokens_per_s), strict=True)), ""
    except MissingFigureError as error:
        return dict.fromkeys(names, np.nan), str(error)
