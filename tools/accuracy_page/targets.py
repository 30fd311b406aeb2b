"""The targets: what was found for each, and whether that reaches it."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from rooflinekit.calibration.memory_check import check_logged, check_settings, summary
from rooflinekit.calibration.validate import WITHOUT_INTERVALS
from rooflinekit.reports import validation as of
from rooflinekit.testing.published import load_section

#: Sets as the tables of targets call them.
NAMES = {
    "gb10-trace": "Qwen3-8B on GB10 (vLLM), from kernel classes alone",
    "gb10-llama.cpp": "llama.cpp on GB10, other models",
    "h200-steps": "H200 steps, model left out",
    "h200-mixed-steps": "H200 steps with a prefill chunk, nothing fitted",
    "h200-tensor-parallel": "H200 steps on two GPUs, nothing fitted",
    "kernels-other-shapes": "kernels, own device, other shapes",
    "kernels-left-out": "kernels, device left out",
    "streams-left-out": "public rates, engine known, device left out",
    "collectives": "messages between GPUs, fitted on them",
    "served": "served models, host times of other models",
    "closed-form": "closed form against the simulation",
}
#: What KV tokens of uniform models are to reach from the settings alone.
POOLS_TARGET = 0.04


def contract(frames: Mapping[str, pd.DataFrame]) -> of.Records:
    """Give the targets, what was found, and whether that reaches them."""
    lines = [line for frame in frames.values() for line in of.summary(frame) if line["target"]]
    kept = ("part", "rows", "found", "target", "verdict")
    found = [{**line, "found": f"{line['median']:.1%} / {line['p90']:.1%}"} for line in lines]
    named = [{"set": NAMES[line["set"]], **{name: line[name] for name in kept}} for line in found]
    totals = [line for line in named if line["part"] == "totals"]
    for line in totals:
        line["found"] = f"at most {np.abs(np.expm1(_totals(frames)['log_error'])).max():.1%}"
    return [
        *totals,
        _classes_line(frames),
        *(line for line in named if line not in totals),
        _pools_line(),
        *_floor_and_intervals(frames),
    ]


def _totals(frames: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    frame = frames["gb10-trace"]
    return frame[frame["tier"] == "own"]


def classes(frames: Mapping[str, pd.DataFrame]) -> of.Records:
    """List the kernel classes of the GB10 trace with their published tolerances."""
    frame = frames["gb10-trace"]
    rows = frame[frame["tier"] != "own"]
    tolerances = {row.id: row.tolerance for row in load_section("second-token").rows}
    return [
        {
            "class": name, "phase": row["phase"], "measured_s": row["measured_s"], "predicted_s": row["predicted_s"],
            "error": float(np.expm1(row["log_error"])), "tolerance": tolerances[identifier],
        }
        for (name, identifier), row in zip(of.GB10_CLASSES.items(), rows.to_dict("records"), strict=True)
    ]  # fmt: skip


def _classes_line(frames: Mapping[str, pd.DataFrame]) -> dict[str, Any]:
    rows = classes(frames)
    within = sum(abs(row["error"]) <= row["tolerance"] for row in rows)
    verdict = "reached" if within == len(rows) else f"missed: by {len(rows) - within} classes"
    shared = {"set": NAMES["gb10-trace"], "part": "kernel classes", "rows": len(rows)}
    return {
        **shared,
        "found": f"{within} of {len(rows)} within",
        "target": "each within its tolerance",
        "verdict": verdict,
    }


def pools() -> of.Records:
    """List what vLLM's startup logs say of their KV pools against what the engine's rules give."""
    ways = (("from the logged pool", check_logged()), ("from the settings alone", check_settings()))
    kinds = (
        ("uniform models: tokens", True, "tokens_difference"),
        ("hybrid models: concurrency", False, "concurrency_difference"),
    )
    rows = []
    for way, checked in ways:
        for kind, uniform, column in kinds:
            found = summary(checked[checked["uniform"] == uniform], column)
            rows.append(
                {"figure": kind, "way": way, "rows": int(found["rows"]), "median": found["median"], "p90": found["p90"]}
            )
    return rows


def _pools_line() -> dict[str, Any]:
    (line,) = (
        row for row in pools() if row["way"] == "from the settings alone" and row["figure"].startswith("uniform")
    )
    found = f"{line['median']:.1%} / {line['p90']:.1%}"
    verdict = "reached" if line["median"] <= POOLS_TARGET else "missed"
    part = "KV tokens, uniform models, from the settings alone"
    return {
        "set": "vLLM's startup logs",
        "part": part,
        "rows": line["rows"],
        "found": found,
        "target": f"{POOLS_TARGET:.0%}",
        "verdict": verdict,
    }


def _floor_and_intervals(frames: Mapping[str, pd.DataFrame]) -> Iterator[dict[str, Any]]:
    """Give the lines on the floor and on intervals, over all sets."""
    yield _floor_line(frames.values())
    frames = with_intervals(frames)
    yield _pooled_line(frames.values())
    groups = of.coverage_groups(frames.values())
    yield _groups_line(groups, "each class, tier and phase", "{:.0%} to {:.0%}".format(*of.EACH), "too")
    yield _groups_line(groups, "half width", "2 x median error", "half-width")


def _floor_line(frames: Collection[pd.DataFrame]) -> dict[str, Any]:
    below = [row for frame in frames for row in of.below_floor(frame)]
    return {
        "set": "all sets",
        "part": "floor",
        "rows": sum(map(len, frames)),
        "found": f"{len(below)} faster",
        "target": "none, or explained",
        "verdict": "reached: explained" if below else "reached",
    }


def _pooled_line(frames: Collection[pd.DataFrame]) -> dict[str, Any]:
    pooled, (low, high) = of.pooled_coverage(frames), of.POOLED
    return {
        "set": "all sets",
        "part": "80% intervals, pooled",
        "rows": sum(len(of.with_parts(frame)) for frame in frames),
        "found": f"hold {pooled:.1%}",
        "target": f"{low:.0%} to {high:.0%}",
        "verdict": "reached" if low <= pooled <= high else "missed",
    }


def _groups_line(groups: of.Records, part: str, target: str, fault: str) -> dict[str, Any]:
    """Count the groups whose verdict does not speak of a fault."""
    fine = sum(fault not in line["verdict"] for line in groups)
    return {
        "set": "all sets",
        "part": f"80% intervals, {part}",
        "rows": len(groups),
        "found": f"{fine} of {len(groups)} groups",
        "target": target,
        "verdict": "reached" if fine == len(groups) else f"missed: by {len(groups) - fine} groups",
    }


def with_intervals(frames: Mapping[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """Leave out the sets whose predictions carry none."""
    return {name: frame for name, frame in frames.items() if name not in WITHOUT_INTERVALS}
