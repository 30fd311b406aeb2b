"""``rooflinekit calibrate``: fit a device's constants to files of measured times, and say what these leave open."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from rooflinekit.cli import options
from rooflinekit.cli.output import named, remark, show

# fmt: off
_Files = Annotated[
    list[Path], typer.Argument(metavar="FILE...", help="CSV tables of kernels, steps or rates; YAML kernel traces.")
]
_Model = Annotated[str | None, typer.Option("--model", metavar="NAME", help="Whose rows count.")]
_Engine = Annotated[str | None, typer.Option("--engine", metavar="NAME", help="Whose rows count; the entry is for it.")]
_Weights = Annotated[
    str | None, typer.Option("--weights", metavar="FORMAT", help="Format whose rows count.")
]
_Name = Annotated[str | None, typer.Option("--name", metavar="NAME", help="Of the new entry. [DEVICE/ENGINE/FORMAT]")]
_Write = Annotated[
    Path | None, typer.Option("--write", metavar="FILE", help="Write the device with the new entry as a YAML file.")
]
_Force = Annotated[bool, typer.Option("--force", help="Overwrite a file that is there.")]
# fmt: on


def calibrate(
    device: options.DeviceName,
    files: _Files,
    *,
    model: _Model = None,
    engine: _Engine = None,
    weights: _Weights = None,
    name: _Name = None,
    write: _Write = None,
    force: _Force = False,
    form: options.Format = "table",
) -> None:
    """Fit a device's efficiency to measured times, each constant with its uncertainty and what would shrink it."""
    from rooflinekit.calibration import calibrate as fitted  # noqa: PLC0415 - pandas and SciPy load when asked for

    found = fitted(named(device), files, model=model, engine=engine, weights=weights, name=name)
    written = None if write is None else found.write(write, overwrite=force)
    show(found.rows(), form, title=f"{found.efficiency.name}: fitted on {found.points:,} rows")
    remark(form, *_left_out(found.skipped), *map(str, found.weaknesses))
    if written is not None:
        remark(form, f"written to {written}")


def _left_out(skipped: Mapping[str, int]) -> list[str]:
    """Say how many rows were not used, and why."""
    whole = sum(skipped.values())
    reasons = (f"  {count:,} {reason}" for reason, count in sorted(skipped.items(), key=lambda one: -one[1]))
    return [f"{whole:,} rows are not used:", *reasons] if whole else []
