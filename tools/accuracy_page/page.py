# ruff: noqa: E501 - a sentence of the page is one line
"""The whole page, section by section."""

from collections.abc import Iterator, Mapping

import pandas as pd

from accuracy_page.sections import devices, floor_line, section, without_totals, worst
from accuracy_page.targets import classes, contract, pools, with_intervals
from rooflinekit.calibration.references import rate_table
from rooflinekit.calibration.validate import SETS
from rooflinekit.reports import validation as of

Frames = Mapping[str, pd.DataFrame]

INTRO = """\
Figures are those of predictions that have not seen their measurement, and what each set holds out is said beside it; two hold
nothing out and say so: GB10's kernel classes and messages between GPUs are how well a fit meets its own data.
An error is predicted / measured - 1; a table gives the median and the 90th percentile (p90) of its size, and the bias,
which is the median with its sign (below 0: predicted too fast). *Below floor* counts measurements faster than the physical
floor, *inside* is the part of the measurements that 80% intervals hold, *half width* how far these reach on the slow
side. Targets were set before the first fit; a miss stays in the table, and its reason is beside the rows that cause it.
"""
# fmt: off
ALT = "Measured against predicted times of prefills, decode steps and requests, by class of device, with a band of 10%"
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


def page(frames: Frames, ablated: Frames, fingerprint: str) -> str:
    """Write the whole page."""
    parts = (
        *opening(fingerprint),
        *section("Targets", "Median / 90th percentile of errors.", contract(frames)),
        *section("What is held out", "", [held_out(name, frames) for name in SETS]),
        *figures(frames),
        *section("Intervals", INTERVALS, of.coverage_groups(with_intervals(frames).values())),
        *misses(frames, ablated),
        *section("Left out", LEFT_OUT, of.excluded(rate_table())),
        RERUN,
    )
    return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"


def opening(fingerprint: str) -> Iterator[str]:
    """Say what the page was made from, and show its picture."""
    yield "# Accuracy"
    yield f"<!-- made by tools/accuracy.py; fingerprint of its inputs: {fingerprint} -->"
    yield INTRO
    yield f"![{ALT}](images/accuracy.png)"
    yield APU


def held_out(name: str, frames: Frames) -> dict[str, object]:
    """Say what a set is and what its predictions have not seen."""
    one = SETS[name]
    return {"set": f"`{name}`", "rows": len(frames[name]), "what": one.title, "held out": one.held_out}


def figures(frames: Frames) -> Iterator[str]:
    """Write the errors: by set and part, of kernel classes, of KV pools, and by device."""
    lines = [line for frame in frames.values() for line in of.summary(frame)]
    yield from section("Every set and part", KERNELS, lines)
    yield from section("Kernel classes of the GB10 trace", CLASSES, classes(frames))
    yield from section("KV pools", POOLS, pools())
    yield from devices(frames)


def misses(frames: Frames, ablated: Frames) -> Iterator[str]:
    """Write what fits without totals lose, the worst rows, and measurements faster than the floor."""
    lines = [line for frame in ablated.values() for line in without_totals(frame, frames)]
    yield from section("Without totals", ABLATION, lines)
    yield from worst(frames)
    faster = [floor_line(row) for frame in frames.values() for row in of.below_floor(frame)]
    yield from section("Faster than the floor", FLOOR, faster)
