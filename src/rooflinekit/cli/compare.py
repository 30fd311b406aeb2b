"""``rooflinekit compare``: what was measured beside what is predicted, pass by pass or kernel by kernel."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rooflinekit.cli import measured, options
from rooflinekit.cli.names import naming
from rooflinekit.cli.output import EYES, remark, say, show, table
from rooflinekit.errors import InvalidInputError

if TYPE_CHECKING:
    from rooflinekit.calibration.compare_kernels import KernelComparison
    from rooflinekit.measurements.reading import Reading

# fmt: off
_Files = Annotated[list[str], typer.Argument(metavar="FILE...", help="What tools wrote; `-` is standard input.")]
_Steps = Annotated[int, typer.Option("--steps", metavar="N", help="Decode steps in a summary of kernels.")]
_Minus = Annotated[
    str | None, typer.Option("--minus", metavar="FILE", help="Kernels of the prefill alone, which are taken away.")
]
_Table = Annotated[
    str | None, typer.Option("--table", metavar="TEXT", help="Words of a table's title, where a file holds several.")
]
# fmt: on


def compare(
    files: _Files,
    *,
    format_of: measured.FormatOf = None,
    model: measured.Model = None,
    device: measured.Device = None,
    engine: measured.Engine = None,
    weights: measured.Weights = None,
    kv_cache: measured.KvCache = None,
    compute: options.Compute = None,
    tensor_parallel: measured.Parallel = None,
    prompt: measured.Prompt = None,
    output: measured.Output = None,
    context: measured.Context = None,
    batch: measured.Batch = None,
    steps: _Steps = 0,
    minus: _Minus = None,
    which: _Table = None,
    efficiency: options.Efficiency = "calibrated",
    form: options.Format = "table",
) -> None:
    """Compare measurements with predictions: error, floor, and the parts of the datasheet's peaks in use (MFU, MBU).

    A summary of kernels is compared with the model's operators: --prompt says that a prefill is in it, --steps that
    decode steps are.
    """
    lengths = measured.lengths(batch=batch, prompt_tokens=prompt, output_tokens=output, context_tokens=context)
    choices = measured.given(
        model=model, device=device, engine=engine, weights=weights, kv_cache=kv_cache, compute=compute,
        tensor_parallel=tensor_parallel, efficiency=efficiency,
    )  # fmt: skip
    readings = measured.read_files(files, format_of, lengths)
    kernels = [any(one.quantity == "kernel_time_s" for one in reading.records) for reading in readings]
    if any(kernels) and not all(kernels):
        message = "FILE...: summaries of kernels and other measurements are compared apart"
        raise InvalidInputError(message)
    if not all(kernels):
        _refuse(steps=steps or None, minus=minus, table=which)
        _passes(readings, choices, form)
        return
    with naming("--minus"):
        taken = None if minus is None else measured.read_file(minus, None, {})
    work = {"prompt_tokens": prompt, "context_tokens": context, "batch": batch or 1, "steps": steps}
    found = [_kernels(reading, choices, work, taken, which) for reading in readings]
    _show_kernels(readings, found, form)


def _refuse(**of_kernels: object) -> None:
    given = [name for name, value in of_kernels.items() if value is not None]
    if given:
        message = f"--{given[0]} is of summaries of kernels, and no file is one"
        raise InvalidInputError(message)


# ---- passes


def _passes(readings: "list[Reading]", choices: Mapping[str, Any], form: str) -> None:
    from rooflinekit.calibration.compare import compare as compared  # noqa: PLC0415 - loaded when asked for
    from rooflinekit.reports import comparison as of  # noqa: PLC0415 - as above

    groups = [(reading.file, group) for reading in readings for group in measured.groups(reading, choices)]
    found = [(file, compared(group.records, group.deployment)) for file, group in groups]
    rows = [row for file, one in found for row in of.pass_rows(one, file if len(readings) > 1 else "")]
    left = Counter[str]()
    for skipped in (*(one.skipped for _, one in found), *(reading.skipped for reading in readings)):
        left.update(skipped)
    reasons = [f"not compared: {count:,} x {why}" for why, count in left.items()]
    if not rows:
        message = f"{readings[0].file}: nothing to compare: {'; '.join(reasons) or 'no record'}"
        raise InvalidInputError(message)
    titles = dict.fromkeys(repr(group.deployment) for _, group in groups)
    show(rows, form, title="; ".join(titles), columns=of.shown(rows, of.PASSES))
    remark(form, *reasons)


# ---- kernels


def _kernels(
    reading: "Reading", choices: Mapping[str, Any], work: Mapping[str, Any], minus: "Reading | None", which: str | None
) -> "KernelComparison":
    from rooflinekit.calibration.compare_kernels import compare_kernels  # noqa: PLC0415 - as above

    if work["prompt_tokens"] is None and not work["steps"]:
        message = f"{reading.file}: a summary of kernels: --prompt says that a prefill is in it, --steps that decode is"
        raise InvalidInputError(message)
    group = measured.only(reading, choices)
    taken = () if minus is None else minus.records
    return compare_kernels(_of_table(reading, which), group.deployment, **work, minus=taken)


def _of_table(reading: "Reading", which: str | None) -> list[Any]:
    kernels = [one for one in reading.records if one.quantity == "kernel_time_s"]
    chosen = [one for one in kernels if which is None or which.casefold() in one.includes.casefold()]
    titles = list(dict.fromkeys(one.includes for one in chosen or kernels))
    if not chosen or len(titles) > 1:
        message = f"{reading.file}: --table takes one of these by its words: {'; '.join(titles)}"
        raise InvalidInputError(message)
    return chosen


def _show_kernels(readings: "list[Reading]", found: "list[KernelComparison]", form: str) -> None:
    if form not in EYES:
        show(list(_tidy(readings, found)), form)
        return
    for reading, one in zip(readings, found, strict=True):
        say(*_blocks(reading.file, one, form))
        notes = (*one.notes, *(f"skipped: {count:,} x {why}" for why, count in reading.skipped.items()))
        remark(form, *(f"note: {note}" for note in notes))


def _blocks(file: str, found: "KernelComparison", form: str) -> Iterator[str]:
    from rooflinekit.reports import comparison as of  # noqa: PLC0415 - as above

    yield table(of.kernel_rows(found, eyes=True), form, title=f"{file}: kernels", columns=of.KERNELS)
    yield ""
    yield table(of.family_rows(found), form, title=of.ceilings(found), columns=of.FAMILIES)
    if found.unlisted:
        yield ""
        yield table(of.unlisted_rows(found), form, title=of.unlisted(found), columns=of.UNLISTED)


def _tidy(readings: "list[Reading]", found: "list[KernelComparison]") -> Iterator[dict[str, Any]]:
    """Give the three tables as one for programs, each row with what it is."""
    from rooflinekit.reports import comparison as of  # noqa: PLC0415 - as above

    for reading, one in zip(readings, found, strict=True):
        for what, rows in (
            ("kernel", of.kernel_rows(one)), ("family", of.family_rows(one)), ("not listed", of.unlisted_rows(one)),
        ):  # fmt: skip
            yield from ({"row": what, "file": reading.file, **row} for row in rows)
