"""``rooflinekit validate``: every shipped reference predicted, held out as its set says, beside the targets."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rooflinekit.cli import options
from rooflinekit.cli.output import EYES, remark, say, show
from rooflinekit.errors import InvalidInputError

if TYPE_CHECKING:
    import pandas as pd

    from rooflinekit.calibration.observations import Observations
    from rooflinekit.roofline.laws import Laws

_KERNELS = ("product", "attention", "mixture", "small")
_ROWS = (
    "part", "device", "engine", "model", "weights", "batch", "tokens", "context", "id", "bound", "measured_s",
    "predicted_s", "error", "floor",
)  # fmt: skip


def validate(
    *,
    sets: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME", help="A set, or a CSV file of your own; may be repeated. [all sets]"),
    ] = None,
    by: Annotated[
        str | None,
        typer.Option("--by", metavar="FACT", help="device, model, engine, phase, bound, tier, op or weights."),
    ] = None,
    leave_one_device_out: Annotated[
        bool, typer.Option("--leave-one-device-out", help="Only the sets that hold devices out, device by device.")
    ] = False,
    ablate: Annotated[
        str | None, typer.Option("--ablate", metavar="WHAT", help="totals: refit without any whole step or phase.")
    ] = None,
    rows: Annotated[bool, typer.Option("--rows", help="Every row: measured, predicted, error, floor.")] = False,
    html: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write a page of it too.")] = None,
    device: Annotated[
        str | None, typer.Option("--device", metavar="DEVICE", help="Of a CSV file that has no column of it.")
    ] = None,
    form: options.Format = "table",
) -> None:
    """Predict measurements by constants that have not seen them, and compare: errors, floors, intervals, targets."""
    from rooflinekit.reports import validation as of  # noqa: PLC0415 - data frames load when asked for

    _require_scipy()
    names = _names(sets, leave_one_device_out=leave_one_device_out)
    if device is not None and not any(name.endswith(".csv") for name in names):
        message = f"--device {device}: of a CSV file that has no column of it, and --set names no file"
        raise InvalidInputError(message)
    fact = _checked(by, of.FACTS, "by") or ("device" if leave_one_device_out else None)
    _checked(ablate, ("totals",), "ablate")
    frames = dict(_frames(names, device, ablate=ablate is not None))
    found = {name: frame for name, frame in frames.items() if frame is not None}
    if rows:
        _print(form, {name: of.rows_of(frame) for name, frame in found.items()}, _ROWS)
    elif fact:
        _print(form, {name: of.grouped(frame, fact) for name, frame in found.items()})
    else:
        _summarise(form, [line for frame in found.values() for line in of.summary(frame)])
    remark(form, *(f"{name}: nothing left without totals" for name, frame in frames.items() if frame is None))
    if html is not None:
        _write(html, list(found.values()), fact)
        remark(form, f"written to {html}")


# ---- what is asked for


def _require_scipy() -> None:
    """Say what to install: sets are fitted anew without the rows that they predict."""
    if find_spec("scipy") is None:
        message = "validate fits what it predicts with, which needs scipy: pip install 'rooflinekit[calibrate]'"
        raise InvalidInputError(message)


def _checked(value: str | None, allowed: Sequence[str], name: str) -> str | None:
    if value is not None and value not in allowed:
        message = f"{name}={value!r} is not known: expected {'one of ' * (len(allowed) > 1)}{', '.join(allowed)}"
        raise InvalidInputError(message)
    return value


def _names(sets: Sequence[str] | None, *, leave_one_device_out: bool) -> tuple[str, ...]:
    """List the sets asked for; whatever ends in .csv is a file."""
    from rooflinekit.calibration.validate import SETS  # noqa: PLC0415 - as above
    from rooflinekit.reports.validation import DEVICES_LEFT_OUT  # noqa: PLC0415 - as above

    for name in sets or ():
        if name not in SETS and not name.endswith(".csv"):
            message = f"set={name!r} is not known: expected one of {', '.join(SETS)}, or a CSV file"
            raise InvalidInputError(message)
    chosen = tuple(dict.fromkeys(sets or (DEVICES_LEFT_OUT if leave_one_device_out else SETS)))
    wrong = [name for name in chosen if leave_one_device_out and name not in DEVICES_LEFT_OUT]
    if wrong:
        message = f"set={wrong[0]!r} holds no devices out: expected one of {', '.join(DEVICES_LEFT_OUT)}"
        raise InvalidInputError(message)
    return chosen


def _frames(names: Sequence[str], device: str | None, *, ablate: bool) -> Iterator[tuple[str, "pd.DataFrame | None"]]:
    """Predict the sets one after another; a terminal sees which one is at work."""
    from rich.console import Console  # noqa: PLC0415 - loads when there is something to show

    from rooflinekit.reports.validation import load_set  # noqa: PLC0415 - as above

    console = Console(stderr=True)
    for at, name in enumerate(names, start=1):
        with console.status(f"{name}, set {at} of {len(names)}"):
            yield name, _own(Path(name), device) if name.endswith(".csv") else load_set(name, ablate=ablate)


# ---- what is shown


def _print(form: str, tables: Mapping[str, list[dict[str, Any]]], columns: Sequence[str] = ()) -> None:
    """Print a table a set for eyes, and one for programs."""
    from rooflinekit.reports.validation import for_eyes  # noqa: PLC0415 - as above

    if form not in EYES:
        show([line for lines in tables.values() for line in lines], form)
        return
    for name, lines in tables.items():
        shown = [{key: value for key, value in line.items() if key != "set"} for line in for_eyes(lines)]
        show(shown, form, title=name, columns=columns)
        say()


def _summarise(form: str, lines: list[dict[str, Any]]) -> None:
    """Print one line a set and part, and how many targets are reached."""
    from rooflinekit.reports.validation import for_eyes  # noqa: PLC0415 - as above

    show(for_eyes(lines) if form in EYES else lines, form)
    counts = Counter(line["verdict"].split(":")[0] for line in lines)
    if any(line["target"] for line in lines):
        remark(form, f"targets (median / p90): {counts['reached']} reached, {counts['missed']} missed")


def _write(path: Path, frames: "Sequence[pd.DataFrame]", fact: str | None) -> None:
    from rooflinekit.reports import validation as of  # noqa: PLC0415 - as above
    from rooflinekit.reports.accuracy_plot import accuracy_png  # noqa: PLC0415 - matplotlib loads when it draws

    sections = [("By set and part", [line for frame in frames for line in of.summary(frame)])]
    if fact:
        sections += [(f"{frame['set'].iloc[0]}, by {fact}", of.grouped(frame, fact)) for frame in frames]
    sections += [(f"{frame['set'].iloc[0]}: the worst ten", of.worst(frame)) for frame in frames]
    sections += [("Faster than the floor", [line for frame in frames for line in of.below_floor(frame)])]
    path.write_text(of.html_page("Predicted against measured", sections, accuracy_png(frames)), encoding="utf-8")


# ---- a table of the user's own


def _own(path: Path, device: str | None) -> "pd.DataFrame":
    """Predict a CSV file by the entries that ship, with the spreads that they carry."""
    import pandas as pd  # noqa: PLC0415 - as above

    from rooflinekit.calibration.validate import COLUMNS, judged  # noqa: PLC0415 - as above
    from rooflinekit.phases.resolve import resolve_laws  # noqa: PLC0415 - as above

    frames = []
    for one in _observations(path, device):
        facts = one.facts.iloc[0]
        laws = resolve_laws(one.device, facts.get("engine") or None, str(facts.get("weights")), "calibrated")
        lead, *rest = laws.chain
        (frame,) = judged([one], lead, laws.tier or "universal", lambda _, rest=tuple(rest): rest)
        spreads = [_spread(laws, *row) for row in zip(frame["op"], frame["phase"], strict=True)]
        frames.append(frame.assign(log_std=spreads))
    return pd.concat(frames, ignore_index=True).assign(set=path.name)[[*COLUMNS]]


def _spread(laws: "Laws", op: str, phase: str) -> float:
    """Give the spread of a kernel's class by the nearest entry that has one, or that of a pass; mixed is prefill."""
    from rooflinekit.roofline.laws import spread_name  # noqa: PLC0415 - as above

    name = spread_name(op, phase) if op else phase if phase == "decode" else "prefill"
    of_class = (getattr(entry.spread, name, None) for entry in laws.chain)
    return next((value for value in of_class if value), float("nan")) if op else laws.spread(name) or float("nan")


def _observations(path: Path, device: str | None) -> "Iterator[Observations]":
    """Read rates, steps or kernels, as the columns say, of one device, engine and format at a time."""
    from rooflinekit.calibration.passes import rate_observations, step_observations  # noqa: PLC0415 - as above
    from rooflinekit.calibration.tables import read_table  # noqa: PLC0415 - as above

    try:
        table = _known(read_table(path), path, device)
        kind = table["op"].iloc[0]
        for (name, _), lines in table.groupby(["device", "engine"]):
            if kind in _KERNELS:
                yield from _kernels(lines, str(name))
            elif kind == "rate":
                yield from rate_observations(lines.drop(columns="op"))
            else:
                yield from step_observations(lines.drop(columns="op"), str(name))
    except (KeyError, TypeError) as fault:
        message = f"{path}: a table of this shape needs more: {fault}"
        raise InvalidInputError(message) from fault


def _kernels(table: "pd.DataFrame", device: str) -> "Iterator[Observations]":
    from rooflinekit.calibration.kernels import kernel_observations  # noqa: PLC0415 - as above
    from rooflinekit.specs.catalog import load_device  # noqa: PLC0415 - as above

    caches = table["kv_cache"] if "kv_cache" in table else table["weights"]
    for _, lines in table.groupby([table["weights"], caches], dropna=False):
        yield kernel_observations(lines, load_device(device))


def _known(table: "pd.DataFrame", path: Path, device: str | None) -> "pd.DataFrame":
    """Keep the rows that the table itself does not leave out, and name device, engine and formats of each."""
    kept = table[table["excluded"].isna()] if "excluded" in table else table
    kept = kept.reindex(columns=list(dict.fromkeys((*kept, "device", "engine", "weights", "kv_cache"))))
    named = kept.assign(device=device or kept["device"], engine=kept["engine"].astype(object).fillna(""))
    kind = named["op"].iloc[0] if len(named) else "rate"
    if kind != "rate":
        named = named.assign(weights=named["weights"].astype(object).fillna("bf16"))
    if kind == "mixed":
        named = named.assign(phase=kind)
    if kind == "attention" and (named["regime"] == "dram").all():  # it says nothing of regimes: a prompt computes
        named = named.assign(regime=named["phase"].map({"prefill": "compute", "decode": "dram"}))
    if not len(named) or (named["device"].astype(object).fillna("") == "").any():
        message = f"{path}: no row says on which device it was measured: add a column `device`, or give --device"
        raise InvalidInputError(message)
    return named
