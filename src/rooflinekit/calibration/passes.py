"""Whole passes as observations: steps of a trace, single-stream rates, kernel classes of a trace's passes."""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from rooflinekit import units
from rooflinekit.calibration.observations import Observations
from rooflinekit.phases.deployment import Deployment
from rooflinekit.roofline.laws import format_kind
from rooflinekit.specs.device import Device
from rooflinekit.specs.step import Group

Line = Mapping[Hashable, Any]


class Point(NamedTuple):
    """One step, how often it counts, and the row of the plan that is meant (None: the whole pass)."""

    groups: tuple[Group, ...]
    weight: float = 1.0
    row: int | None = None


def observe(
    deployment: Deployment,
    facts: pd.DataFrame,
    seconds: Sequence[float],
    points: Sequence[Sequence[Point]],
    busy_s: float = 0.0,
) -> Observations:
    """
    Observe measured values that are sums of steps of one deployment.

    Parameters
    ----------
    deployment : Deployment
        Model, device and formats.
    facts : DataFrame
        One line a measured value.
    seconds : sequence of float
        The measured values. [s]
    points : sequence of sequence of Point
        The steps that each value sums.
    busy_s : float
        Compute work just before. [s]
    """
    flat = [(owner, point) for owner, several in enumerate(points) for point in several]
    rows = np.array([-1 if point.row is None else point.row for _, point in flat])
    return Observations(
        facts=facts.reset_index(drop=True),
        seconds=np.asarray(seconds, dtype=np.float64),
        device=deployment.device,
        plan=deployment.plan,
        rates=deployment.timing.rates,
        groups=_stacked([point.groups for _, point in flat]),
        owner=np.array([owner for owner, _ in flat]),
        weight=np.array([point.weight for _, point in flat], dtype=np.float64),
        floor_plan=deployment.floor.plan,
        row=None if (rows < 0).all() else rows,
        busy_s=busy_s,
    )


def _stacked(several: Sequence[tuple[Group, ...]]) -> tuple[Group, ...]:
    """Lay steps of few and of many groups side by side; a group that a step lacks has no sequences."""
    width = max(len(groups) for groups in several)
    absent = Group(1.0, 0.0, 0.0, 0.0)
    padded = [(*groups, *[absent] * (width - len(groups))) for groups in several]
    columns = np.array(padded, dtype=np.float64)  # (points, groups, fields)
    return tuple(Group(*columns[:, i].T) for i in range(width))


# ---- what a line of a table means in steps


def decode_point(held: float, batch: float = 1.0) -> Point:
    """One decode step of sequences that hold so many tokens."""
    return Point((Group(1.0, held, batch),))


def prefill_points(prompt: float, held: float = 0.0, batch: float = 1.0, micro_batch: float = np.inf) -> list[Point]:
    """Give the passes of a prompt that goes in by micro-batches; only the last is sampled."""
    whole, rest = divmod(prompt, micro_batch) if np.isfinite(micro_batch) else (0.0, prompt)
    sizes = [micro_batch] * int(whole) + ([rest] if rest else [])
    starts = held + np.cumsum([0.0, *sizes[:-1]])
    last = len(sizes) - 1
    chunks = enumerate(zip(sizes, starts, strict=True))
    return [Point((Group(size, start, batch, float(i == last)),)) for i, (size, start) in chunks]


def batched_prefill_points(prompt: float, held: float, batch: float, micro_batch: float) -> list[Point]:
    """Give the passes of several prompts: whole ones share a micro-batch where they fit, longer ones take turns."""
    if prompt > micro_batch:
        return [point._replace(weight=batch) for point in prefill_points(prompt, held, 1.0, micro_batch)]
    together = min(batch, micro_batch // prompt) if np.isfinite(micro_batch) else 1.0
    return [Point((Group(prompt, held, together),), batch / together)]


def decode_points(held: float, steps: float, batch: float = 1.0) -> list[Point]:
    """Give the decode steps from a context on, by the two points of Gauss: exact for times up to cubic in context."""
    if steps <= 1:
        return [decode_point(held, batch)._replace(weight=steps)] if steps else []
    middle, half = held + (steps - 1) / 2, (steps - 1) / 2 / np.sqrt(3.0)
    return [decode_point(at, batch)._replace(weight=steps / 2) for at in (middle - half, middle + half)]


def _number(line: Line, name: str, default: float = 0.0) -> float:
    value = float(line.get(name, np.nan))
    return default if np.isnan(value) else value


def _decode_rate(line: Line) -> tuple[float, list[Point]]:
    """Tokens/s of each stream, or of all, over steps from `held_tokens` on."""
    batch, steps = _number(line, "batch", 1.0), max(_number(line, "output_tokens", 1.0), 1.0)
    each = batch if line["reading"] == "decode_total_rate" else 1.0
    return steps * each / line["value"], decode_points(_number(line, "held_tokens"), steps, batch)


def _decode_step(line: Line) -> tuple[float, list[Point]]:
    batch, steps = _number(line, "batch", 1.0), max(_number(line, "output_tokens", 1.0), 1.0)
    return steps * line["value"] * units.MILLI, decode_points(_number(line, "held_tokens"), steps, batch)


def _prefill_rate(line: Line) -> tuple[float, list[Point]]:
    """Read prompt tokens/s, of one prompt or of a batch."""
    prompt, micro = _number(line, "prompt_tokens"), _number(line, "micro_batch_tokens", np.inf)
    batch = _number(line, "batch", 1.0) if line["reading"] == "prefill_total_rate" else 1.0
    return batch * prompt / line["value"], batched_prefill_points(prompt, _number(line, "held_tokens"), batch, micro)


def _time_to_first_token(line: Line) -> tuple[float, list[Point]]:
    prompt, micro = _number(line, "prompt_tokens"), _number(line, "micro_batch_tokens", np.inf)
    return line["value"] * units.MILLI, prefill_points(prompt, _number(line, "held_tokens"), 1.0, micro)


def _request(line: Line) -> tuple[float, list[Point]]:
    """Tokens over the seconds of a whole request: the prefill samples the first output token, steps the others."""
    prompt, output, batch = (_number(line, name, 1.0) for name in ("prompt_tokens", "output_tokens", "batch"))
    counted = {
        "request_rate": output,
        "request_total_rate": output * batch,
        "request_both_rate": prompt + output,
    }
    seconds = line["value"] if line["reading"] == "request_s" else counted[line["reading"]] / line["value"]
    micro = _number(line, "micro_batch_tokens", np.inf)
    points = prefill_points(prompt, 0.0, batch, micro)
    return seconds, points + decode_points(prompt, output - 1, batch)


#: Reading of a rate -> measured seconds and the steps that they sum.
READINGS: dict[str, Callable[[Line], tuple[float, list[Point]]]] = {
    "decode_rate": _decode_rate,
    "decode_total_rate": _decode_rate,
    "decode_step_ms": _decode_step,
    "prefill_rate": _prefill_rate,
    "prefill_total_rate": _prefill_rate,
    "ttft_ms": _time_to_first_token,
    "request_rate": _request,
    "request_total_rate": _request,
    "request_both_rate": _request,
    "request_s": _request,
}


def phase_of(reading: str) -> str:
    """Name the phase that a reading is of; whole requests are decode for the most part."""
    if reading.startswith(("prefill", "ttft")):
        return "prefill"
    return "decode" if reading.startswith("decode") else "request"


def rate_observations(table: pd.DataFrame, card: Device | None = None) -> Iterator[Observations]:
    """Observe single-stream rates, one deployment at a time; of a device that is no file of the catalogue, if given."""
    keys = ["device", "model", "weights", "kv_cache"]
    for (device, model, weights, cache), lines in table.groupby(keys, dropna=False):
        deployment = Deployment(
            str(model), card or str(device), weights=_given(weights), kv_cache=_given(cache), memory_check=False
        )
        read = [READINGS[line["reading"]](line) for line in lines.to_dict("records")]
        phases = [phase_of(reading) for reading in lines["reading"]]
        facts = lines.assign(phase=phases, format=format_kind(deployment.precision.weights.name))
        yield observe(deployment, facts, [seconds for seconds, _ in read], [points for _, points in read])


def _given(value: object) -> str | None:
    return value if isinstance(value, str) else None


def step_observations(table: pd.DataFrame, device: str | Device) -> Iterator[Observations]:
    """Observe steps of a trace, one model and format at a time; a decode row's context holds the new token."""
    weights = table["weights"] if "weights" in table else pd.Series("bf16", index=table.index)
    for (model, form), lines in table.assign(weights=weights).groupby(["model", "weights"]):
        deployment = Deployment(str(model), device, weights=str(form), memory_check=False)
        points = [[_step(line)] for line in lines.to_dict("records")]
        yield observe(deployment, lines, lines["seconds"].tolist(), points)


def _step(line: Line) -> Point:
    if "chunk_tokens" in line:
        chunk = Group(line["chunk_tokens"], line["chunk_context_tokens"], float(line["chunk_tokens"] > 0))
        return Point((chunk, Group(1.0, max(line["decode_context_tokens"] - 1, 0), line["decode_batch"])))
    if line["phase"] == "decode":
        return decode_point(line["context_tokens"] - 1, line["batch"])
    return Point((Group(line["prompt_tokens"], 0.0, line["batch"]),))
