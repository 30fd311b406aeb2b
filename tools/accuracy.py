# ruff: noqa: INP001, T201 - a script, not a package; it says what it is at
"""Write docs/accuracy.md, its picture and the accuracy block of the README from the validation sets.

    python tools/accuracy.py                    # predicts every set anew: five minutes
    python tools/accuracy.py --keep FOLDER      # keeps the predictions, and takes those made from the same inputs

The page holds a fingerprint of the references, the catalogue of devices and the code that predicts; a test compares it.
What stands on the page is in ``tools/accuracy_page``.
"""

import argparse
import hashlib
from functools import cache
from pathlib import Path

import pandas as pd
from accuracy_page.page import page
from accuracy_page.sections import table
from accuracy_page.targets import contract
from blocks import Block

from rooflinekit.calibration.validate import SETS
from rooflinekit.reports import validation as of
from rooflinekit.reports.accuracy_plot import accuracy_png

ROOT = Path(__file__).parents[1]
PAGE, PICTURE, README = ROOT / "docs/accuracy.md", ROOT / "docs/images/accuracy.png", ROOT / "README.md"
BEGIN, END = "<!-- accuracy: made by tools/accuracy.py -->", "<!-- accuracy: end -->"
PLACE = Block(README, BEGIN, END)
#: Of the serving room, what predicts a served row: not what asks it about prices, limits or changes.
SERVING = (
    "arrivals", "capacity", "engine", "host", "latency", "loaded_steps", "pages", "pool", "profile_files", "room",
    "scheduler", "serve", "share", "simulate", "steady_state", "step_timer", "tally",
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
#: Sets that lose fit inputs, yet not all, without whole steps.
ABLATED = ("h200-steps", "h200-mixed-steps", "h200-fp8-steps", "h200-tensor-parallel")


def main() -> None:
    """Predict, and write the page, the picture and the README's block."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", type=Path, help="folder for predictions, by the fingerprint of their inputs")
    kept = parser.parse_args().keep
    frames = {name: predicted(name, kept) for name in SETS}
    ablated = {name: predicted(name, kept, ablate=True) for name in SETS if name in ABLATED}
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_bytes(accuracy_png(frames.values()))
    PAGE.write_text(page(frames, ablated, fingerprint()), encoding="utf-8")
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


def readme_block(lines: of.Records) -> str:
    """Write the table of targets as the README shows it."""
    rows = [{name: line[name] for name in ("set", "part", "found", "target", "verdict")} for line in lines]
    return f"{BEGIN}\n\n{table(rows)}\n\n{END}"


if __name__ == "__main__":
    main()
