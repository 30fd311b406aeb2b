"""``rooflinekit read``: what a file of measurements holds, what was skipped in it, and what it does not say."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from rooflinekit.cli import measured, options
from rooflinekit.cli.output import EYES, remark, show

if TYPE_CHECKING:
    from rooflinekit.measurements.reading import Reading


def read(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="What a tool wrote; gzip is unpacked, `-` is standard input.")
    ],
    *,
    format_of: measured.FormatOf = None,
    model: measured.Model = None,
    device: measured.Device = None,
    engine: measured.Engine = None,
    weights: measured.Weights = None,
    tensor_parallel: measured.Parallel = None,
    batch: measured.Batch = None,
    prompt: measured.Prompt = None,
    output: measured.Output = None,
    context: measured.Context = None,
    form: options.Format = "table",
) -> None:
    """Read the measurements of one file: records in base units, and what they do not hold.

    The format is told by what the file holds. A fact that is given replaces what the file says.
    """
    from rooflinekit.reports import comparison as of  # noqa: PLC0415 - loaded when asked for

    facts = measured.given(model=model, device=device, engine=engine, weights=weights) | measured.lengths(
        tensor_parallel=tensor_parallel, batch=batch, prompt_tokens=prompt, output_tokens=output, context_tokens=context
    )
    reading = measured.read_file(file, format_of, facts)
    rows = of.record_rows(reading, eyes=form in EYES)
    show(rows, form, title=f"{reading.file}: {reading.format}", columns=of.shown(rows, of.RECORDS))
    remark(form, *_said(reading))


def _said(reading: "Reading") -> Iterator[str]:
    """Say the facts, the settings, what was skipped, and what to give."""
    yield from _facts(reading)
    settings = ", ".join(f"{name}={value}" for name, value in reading.settings.items())
    if settings:
        yield f"settings: {settings}"
    yield from (f"skipped: {count:,} x {why}" for why, count in reading.skipped.items())
    if reading.lacks:
        flags = ", ".join(measured.FLAGS.get(name, name) for name in reading.lacks)
        yield f"not in the file: {', '.join(reading.lacks)}: give {flags}"


def _facts(reading: "Reading") -> Iterator[str]:
    for name in (*measured.CHOICES, "tool", "version"):
        found = dict.fromkeys(str(value) for one in reading.records if (value := getattr(one, name)))
        if found:
            yield f"{name}: {', '.join(found)}"
