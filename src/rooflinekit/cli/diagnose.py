"""``rooflinekit diagnose``: which phase is off, by how much, the likeliest causes, one change and one measurement."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rooflinekit.cli import measured, options
from rooflinekit.cli.output import EYES, say, table
from rooflinekit.errors import InvalidInputError

if TYPE_CHECKING:
    from rooflinekit.calibration.diagnose import Diagnosis
    from rooflinekit.measurements.reading import Reading
    from rooflinekit.phases.deployment import Deployment

#: Causes that eyes are shown.
_MOST = 5

# fmt: off
_Files = Annotated[
    list[str], typer.Argument(metavar="FILE...", help="What tools wrote about one machine; `-` is standard input.")
]
_Before = Annotated[
    str | None, typer.Option("--before", metavar="FILE", help="Earlier scrape of the same metrics: their difference.")
]
_Budget = Annotated[
    float | None,
    typer.Option(
        "--token-budget", metavar="TOKENS", parser=options.number,
        help="Most tokens in a pass (vLLM: max_num_batched_tokens). [the file's, else 2048]",
    ),
]
# fmt: on


def diagnose(
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
    token_budget: _Budget = None,
    before: _Before = None,
    form: options.Format = "table",
) -> None:
    """Diagnose a run that is slower (or faster) than it should be: verdict, arithmetic, causes, what to do.

    Enough are Ollama's four counters; the more a file says, the more causes can be told apart.
    """
    from rooflinekit.calibration.diagnose import diagnose as found  # noqa: PLC0415 - loaded when asked for
    from rooflinekit.calibration.diagnose import not_judged  # noqa: PLC0415 - as above

    lengths = measured.lengths(batch=batch, prompt_tokens=prompt, output_tokens=output, context_tokens=context)
    choices = measured.given(
        model=model, device=device, engine=engine, weights=weights, kv_cache=kv_cache, compute=compute,
        tensor_parallel=tensor_parallel,
    )  # fmt: skip
    readings = _readings(files, before, format_of, lengths)
    deployment = _deployment(readings, choices)
    budget = _budget(readings) if token_budget is None else token_budget
    diagnosis = _of_memory(readings, choices, deployment)
    if diagnosis is None:
        diagnosis = found([one for reading in readings for one in reading.records], deployment, token_budget=budget)
        diagnosis = not_judged(diagnosis, _nothing_measured(readings))
    say(*(_blocks if form in EYES else _records)(diagnosis, deployment, form))


def _readings(
    files: list[str], before: str | None, format_of: str | None, lengths: Mapping[str, Any]
) -> "list[Reading]":
    from rooflinekit.measurements import read_between  # noqa: PLC0415 - as above

    if before is None:
        return measured.read_files(files, format_of, lengths)
    if len(files) > 1:
        message = "--before: expected one FILE, the later scrape"
        raise InvalidInputError(message)
    return [read_between(before, files[0], **lengths)]


def _deployment(readings: "list[Reading]", choices: Mapping[str, Any]) -> "Deployment":
    """Make the one deployment of all files: what one does not say another may."""
    records = tuple(one for reading in readings for one in reading.records)
    return measured.only(replace(readings[0], records=records), choices).deployment


def _of_memory(readings: "list[Reading]", choices: Mapping[str, Any], deployment: "Deployment") -> "Diagnosis | None":
    """Judge the memory that a vLLM log prints, where nobody says how long prompts are; None for all else."""
    from rooflinekit.calibration.memory_verdict import diagnose_memory  # noqa: PLC0415 - as above

    held = {one.quantity: one for one in readings[0].records if one.quantity != "max_concurrency"}
    if len(readings) > 1 or readings[0].format != "vllm-log" or any(one.prompt_tokens for one in held.values()):
        return None
    facts = {name: value for name, value in choices.items() if name in measured.CHOICES}
    records = tuple(replace(one, **facts) for one in readings[0].records)
    found = diagnose_memory(replace(readings[0], records=records), deployment)
    more = "; its windows of running requests are judged with --prompt and --output" * ("requests_running" in held)
    return replace(found, verdict=f"{found.verdict}{more}")


def _budget(readings: "list[Reading]") -> float | None:
    """Take the budget that a log says."""
    found = (reading.settings.get("max_num_batched_tokens") for reading in readings)
    return next((float(one) for one in found if isinstance(one, int | float) and one > 0), None)


def _nothing_measured(readings: "list[Reading]") -> dict[str, int]:
    """Count the noughts, and less, that a tool wrote where it measured nothing, by what they would be of."""
    from rooflinekit.measurements.record import of_nothing  # noqa: PLC0415 - as above

    found = Counter[str]()
    for reading in readings:
        for why, count in reading.skipped.items():
            name = of_nothing(why)
            found.update({name: count} if name else {})
    return dict(found)


# ---- what is shown


def _records(diagnosis: "Diagnosis", _: "Deployment", form: str) -> Iterator[str]:
    from rooflinekit.reports import comparison as of  # noqa: PLC0415 - as above
    from rooflinekit.reports.tables import to_json  # noqa: PLC0415 - as above

    if form == "json":
        yield to_json(of.document(diagnosis))
        return
    verdict = {"row": "verdict", "cause": diagnosis.cause, "text": diagnosis.verdict}
    symptoms = [{"row": "symptom", **row} for row in of.symptom_rows(diagnosis)]
    causes = [{"row": "cause", **row} for row in of.cause_rows(diagnosis)]
    advice = [{"row": name, "text": getattr(diagnosis, name)} for name in ("change", "measurement")]
    yield table([verdict, *symptoms, *causes, *advice], form)


def _blocks(diagnosis: "Diagnosis", deployment: "Deployment", form: str) -> Iterator[str]:
    from rooflinekit.reports import comparison as of  # noqa: PLC0415 - as above

    yield diagnosis.verdict
    if diagnosis.symptoms:
        rows = of.symptom_rows(diagnosis)
        yield ""
        yield table(rows, form, title=repr(deployment), columns=of.shown(rows, of.SYMPTOMS))
    causes = of.cause_rows(diagnosis, most=_MOST)
    if causes and not diagnosis.healthy:
        yield ""
        yield table(causes, form, title="causes, the likeliest first", columns=of.CAUSES)
    yield ""
    yield f"change: {diagnosis.change}"
    yield f"{'' if form == 'table' else chr(10)}measure: {diagnosis.measurement}"
