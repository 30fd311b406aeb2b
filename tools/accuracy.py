# ruff: noqa: E501, INP001, T201 - a script, not a package; it says what it is at; a sentence of the page is one line
"""Write docs/accuracy.md, its picture and the accuracy block of the README from the validation sets.

    python tools/accuracy.py                    # predicts every set anew: five minutes
    python tools/accuracy.py --keep FOLDER      # keeps the predictions, and takes those made from the same inputs

The page holds a fingerprint of the references, the catalogue of devices and the code that predicts; a test compares it.
"""

import argparse
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from blocks import Block

from rooflinekit.calibration.memory_check import check_logged, check_settings, summary
from rooflinekit.calibration.references import rate_table
from rooflinekit.calibration.validate import SETS, WITHOUT_INTERVALS
from rooflinekit.reports import validation as of
from rooflinekit.reports.accuracy_plot import accuracy_png
from rooflinekit.reports.reasons import device_reason
from rooflinekit.reports.tables import cell, heading
from rooflinekit.testing.published import load_section

ROOT = Path(__file__).parents[1]
PAGE, PICTURE, README = ROOT / "docs/accuracy.md", ROOT / "docs/images/accuracy.png", ROOT / "README.md"
BEGIN, END = "<!-- accuracy: made by tools/accuracy.py -->", "<!-- accuracy: end -->"
PLACE = Block(README, BEGIN, END)
with_block = PLACE.put
#: Of the serving room, what predicts a served row: not what asks it about prices, limits or changes.
SERVING = (
    "arrivals", "capacity", "engine", "host", "loaded_steps", "pages", "pool", "profile_files", "room", "scheduler", "serve",
    "share", "simulate", "steady_state", "step_timer",
)  # fmt: skip
#: What the page depends on.
INPUTS = (
    "src/rooflinekit/references/**/*.csv",
    "src/rooflinekit/references/**/*.yaml",
    "hardware_db/**/*.yaml",
    "src/rooflinekit/operators/**/*.py",
    "src/rooflinekit/roofline/**/*.py",
    "src/rooflinekit/calibration/**/*.py",
    "src/rooflinekit/serving/profiles/*.yaml",
    *(f"src/rooflinekit/serving/{name}.py" for name in SERVING),
)
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
#: Sets that lose fit inputs, yet not all, without whole steps.
ABLATED = ("h200-steps", "h200-mixed-steps", "h200-fp8-steps", "h200-tensor-parallel")
#: Devices of a part that are explained.
EXPLAINED = 3
#: What KV tokens of uniform models are to reach from the settings alone.
POOLS_TARGET = 0.04

INTRO = """\
Every figure here is that of a prediction which has not seen its measurement: what a set holds out is said beside it.
An error is predicted / measured - 1; a table gives the median and the 90th percentile (p90) of its size, and the bias,
which is the median with its sign (below 0: predicted too fast). *Below floor* counts measurements faster than the physical
floor, *inside* is the part of the measurements that 80% intervals hold, *half width* how far these reach on the slow
side. Targets were set before the first fit; a miss stays in the table, and its reason is beside the rows that cause it.
"""


def main() -> None:
    """Predict, and write the page, the picture and the README's block."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", type=Path, help="folder for predictions, by the fingerprint of their inputs")
    kept = parser.parse_args().keep
    frames = {name: predicted(name, kept) for name in SETS}
    ablated = {name: predicted(name, kept, ablate=True) for name in SETS if name in ABLATED}
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_bytes(accuracy_png(frames.values()))
    PAGE.write_text(page(frames, ablated), encoding="utf-8")
    PLACE.write(readme_block(contract(frames)))


@cache
def fingerprint() -> str:
    """Hash the names and contents of all inputs, once: whatever changes while this runs makes the page stale."""
    digest = hashlib.sha256()
    for path in sorted({path for pattern in INPUTS for path in ROOT.glob(pattern)}):
        digest.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def predicted(name: str, kept: Path | None, *, ablate: bool = False) -> pd.DataFrame:
    """Predict a set, or take what was kept of the same inputs."""
    file = kept / f"{name}-{ablate}-{fingerprint()[:16]}.pkl" if kept else None
    if file is not None and file.exists():
        return pd.read_pickle(file)  # noqa: S301 - our own file
    print(name, "without totals" if ablate else "", flush=True)
    frame = of.load_set(name, ablate=ablate)
    if frame is None:
        raise AssertionError(name)
    if file is not None:
        file.parent.mkdir(exist_ok=True)
        frame.to_pickle(file)
    return frame


# ---- the targets


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
    below = [row for frame in frames.values() for row in of.below_floor(frame)]
    every = sum(map(len, frames.values()))
    verdict = "reached" if not below else "reached: explained"
    yield {
        "set": "all sets",
        "part": "floor",
        "rows": every,
        "found": f"{len(below)} faster",
        "target": "none, or explained",
        "verdict": verdict,
    }
    frames = with_intervals(frames)
    pooled, groups = of.pooled_coverage(frames.values()), of.coverage_groups(frames.values())
    low, high = of.POOLED
    yield {
        "set": "all sets", "part": "80% intervals, pooled", "rows": sum(len(of.with_parts(frame)) for frame in frames.values()),
        "found": f"hold {pooled:.1%}", "target": f"{low:.0%} to {high:.0%}", "verdict": "reached" if low <= pooled <= high else "missed",
    }  # fmt: skip
    for part, target, fault in (
        ("each class, tier and phase", "{:.0%} to {:.0%}".format(*of.EACH), "too"),
        ("half width", "2 x median error", "half-width"),
    ):
        fine = sum(fault not in line["verdict"] for line in groups)
        verdict = "reached" if fine == len(groups) else f"missed: by {len(groups) - fine} groups"
        yield {
            "set": "all sets",
            "part": f"80% intervals, {part}",
            "rows": len(groups),
            "found": f"{fine} of {len(groups)} groups",
            "target": target,
            "verdict": verdict,
        }


def with_intervals(frames: Mapping[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """Leave out the sets whose predictions carry none."""
    return {name: frame for name, frame in frames.items() if name not in WITHOUT_INTERVALS}


# ---- the page


def page(frames: Mapping[str, pd.DataFrame], ablated: Mapping[str, pd.DataFrame]) -> str:
    """Write the whole page."""
    alt = "Measured against predicted times of prefills, decode steps and requests, by class of device, with a band of 10%"
    parts = [
        "# Accuracy",
        f"<!-- made by tools/accuracy.py; fingerprint of its inputs: {fingerprint()} -->",
        INTRO,
        f"![{alt}](images/accuracy.png)",
        APU,
        *section("Targets", "Median / 90th percentile of errors.", contract(frames)),
        *section(
            "What is held out",
            "",
            [
                {"set": f"`{one.name}`", "rows": len(frames[one.name]), "what": one.title, "held out": one.held_out}
                for one in SETS.values()
            ],
        ),
        *section("Every set and part", KERNELS, [line for frame in frames.values() for line in of.summary(frame)]),
        *section("Kernel classes of the GB10 trace", CLASSES, classes(frames)),
        *section("KV pools", POOLS, pools()),
        *devices(frames),
        *section("Intervals", INTERVALS, of.coverage_groups(with_intervals(frames).values())),
        *section(
            "Without totals", ABLATION, [line for frame in ablated.values() for line in without_totals(frame, frames)]
        ),
        *worst(frames),
        *section(
            "Faster than the floor",
            FLOOR,
            [floor_line(row) for frame in frames.values() for row in of.below_floor(frame)],
        ),
        *section("Left out", LEFT_OUT, of.excluded(rate_table())),
        RERUN,
    ]
    return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"


# fmt: off
APU = "AMD's APU is the only device of its vendor in these data: nothing could be fitted for its engines, and its points show what the constants that a fit begins with are worth."
POOLS = "`references/serving/kvlog.csv` holds figures of 53 public startup logs. One constant of the rules, the memory outside weights and pool, was fitted on some of them; on the 16 logs of uniform models that were not used it errs by 3.5% / 20%."
KERNELS = "Kernels count where they come from memory, with both widths of a product at 512 or more, attention's prefill where it computes; kernels that the cache or the launch bounds are predicted too (`--rows`) and judged nowhere."
CLASSES = "The two matrix-vector kernels run at 225 and 165 GB/s and one constant serves both: that residual is printed, not fitted away. Decode classes sum 64 steps."
INTERVALS = "What 80% intervals hold by set, class, tier and phase, in groups of twelve rows and more. Spreads come from rows of other devices, models or folds than the one predicted."
ABLATION = "`--ablate totals` refits without any whole step or phase. Sets of engines whose kernels no table shows have nothing left then; of the H200's steps only the power limit was fitted on totals."
FLOOR = "Measurements faster than what datasheet, highest clock and compulsory bytes allow."
LEFT_OUT = "Public measurements that are no service time of one device, by reason; they stay in `references/measurements/rows.csv`."
# fmt: on
RERUN = """\
## Run it again

```shell
rooflinekit validate                                    # all sets, five minutes
rooflinekit validate --set h200-steps --by model
rooflinekit validate --set h200-steps --ablate totals
rooflinekit validate --leave-one-device-out
rooflinekit validate --set streams-left-out --rows --format csv
rooflinekit validate --set my_steps.csv --device h200-sxm
rooflinekit validate --html accuracy.html
python tools/accuracy.py                                # this page
```"""


def section(title: str, words: str, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Write a heading, a paragraph and a table."""
    return [f"## {title}", words, table(rows)]


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Write a table of Markdown whose figures stand right."""
    shown = of.for_eyes(rows)
    names = list(dict.fromkeys(name for row in shown for name in row))
    cells = [[cell(name, row).strip().replace("|", "\\|") for name in names] for row in shown]
    rules = ["---:" if all(figure(line[i]) for line in cells) else ":---" for i in range(len(names))]
    lines = [[heading(name) for name in names], rules, *cells]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) if rows else "None."


def figure(text: str) -> bool:
    """Tell whether a cell is a figure, or a dash in place of one.

    >>> figure("+1.2%"), figure("3.1 ms"), figure("-"), figure("8 of 8")
    (True, True, True, False)
    """
    return bool(re.fullmatch(r"-|[+-]?[\d,.]+(%| [a-z]{1,2})?", text))


def devices(frames: Mapping[str, pd.DataFrame]) -> Iterator[str]:
    """Write the devices left out, one table a part that has a target, the three worst explained."""
    yield "## Device by device"
    yield "Each device predicted without its own measurements, the largest median error first; the three worst are explained."
    for name in of.DEVICES_LEFT_OUT:
        lines = of.grouped(frames[name], "device")
        for part in dict.fromkeys(line["part"] for line in lines if of.target_of(name, line["part"])):
            mine = [
                {key: value for key, value in line.items() if key not in ("set", "part")}
                for line in lines
                if line["part"] == part
            ]
            yield f"### {NAMES[name].capitalize()}: {part}"
            reasons = [device_reason(part, line["device"]) if at < EXPLAINED else "" for at, line in enumerate(mine)]
            yield table([{**line, "reason": why} for line, why in zip(mine, reasons, strict=True)])


def without_totals(frame: pd.DataFrame, frames: Mapping[str, pd.DataFrame]) -> Iterator[dict[str, Any]]:
    """Compare the figures of a set with those without totals."""
    whole = of.summary(frames[str(frame["set"].iloc[0])])
    for line, other in zip(of.summary(frame), whole, strict=True):
        both = {
            "with totals": f"{other['median']:.1%} / {other['p90']:.1%}",
            "without totals": f"{line['median']:.1%} / {line['p90']:.1%}",
        }
        yield {
            "set": line["set"],
            "part": line["part"],
            "rows": line["rows"],
            **both,
            "target": line["target"],
            "without totals, verdict": line["verdict"],
        }


def worst(frames: Mapping[str, pd.DataFrame]) -> Iterator[str]:
    """Write the worst ten of each set, those of engines that no other device runs apart."""
    yield "## The worst ten of each set"
    yield "By the ratio of predicted and measured."
    for name, frame in frames.items():
        yield f"### `{name}`"
        yield table([worst_line(row) for row in of.worst(frame)])
        apart = of.worst(frame, apart=True)
        if apart:
            yield "Engines that no other device of the vendor runs:"
            yield table([worst_line(row) for row in apart])


def worst_line(row: Mapping[str, Any]) -> dict[str, Any]:
    """Lay out one of the worst rows: what it is, times, error, reason."""
    sizes = {"batch": "batch", "tokens": "new", "context": "held"}
    known = [f"{word} {row[key]:,.0f}" for key, word in sizes.items() if row[key] == row[key] and float(row[key]) > 0]
    what = " ".join(str(row[name]) for name in ("model", "weights") if row[name])
    who = " ".join(str(row[name]) for name in ("device", "engine") if row[name])
    facts = {
        "part": row["part"].partition(";")[0],
        "where": who,
        "what": what,
        "size": ", ".join(known),
        "id": row["id"] or "-",
    }
    return {**facts, **{name: row[name] for name in ("measured_s", "predicted_s", "error", "reason")}}


def floor_line(row: Mapping[str, Any]) -> dict[str, Any]:
    """Lay out a measurement that is faster than the floor."""
    names = ("set", "device", "engine", "model", "weights", "phase", "id", "measured_s", "floor_s")
    return {name: row[name] for name in names}


# ---- the README


def readme_block(lines: of.Records) -> str:
    """Write the table of targets as the README shows it."""
    rows = [{name: line[name] for name in ("set", "part", "found", "target", "verdict")} for line in lines]
    return f"{BEGIN}\n\n{table(rows)}\n\n{END}"


if __name__ == "__main__":
    main()
