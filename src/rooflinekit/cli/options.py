"""Arguments and options, each declared once. Their values are checked by the library, which knows what they may be."""

from collections.abc import Iterator
from math import inf
from pathlib import Path
from typing import Annotated

import typer

from rooflinekit.cli.names import naming
from rooflinekit.errors import InvalidInputError
from rooflinekit.units import MICRO, MILLI

#: A list of sizes is laid out in memory; a longer one is a slip.
_MOST_SIZES = 100_000
#: A larger number of anything is a slip too, and a smaller one.
_MOST, _LEAST = 1e15, 1e-15


def number(text: object) -> float:
    """Read a number: an integer where it is written as one, so that labels and JSON show one.

    >>> number("2048"), number("1e3")
    (2048, 1000.0)
    """
    written = str(text)
    try:
        value = int(written) if written.strip().lstrip("+-").isdecimal() else float(written)
    except ValueError:
        message = f"{written!r} is no number"
        raise typer.BadParameter(message) from None
    if _MOST < abs(value) < inf:
        message = f"{written!r} is too large: expected {_MOST:g} at most"
        raise typer.BadParameter(message)
    if 0 < abs(value) < _LEAST:
        message = f"{written!r} is too small: expected {_LEAST:g} at least, or 0"
        raise typer.BadParameter(message)
    return value


def seconds(text: object) -> float:
    """Read a time: seconds, or a number with s, ms or us.

    >>> seconds("0.5"), seconds("300ms")
    (0.5, 0.3)
    """
    written = str(text).strip()
    scale, bare = next(
        ((factor, written.removesuffix(end)) for end, factor in _SECONDS.items() if written.endswith(end)),
        (1.0, written),
    )
    return float(number(bare)) * scale


_SECONDS = {"ms": MILLI, "us": MICRO, "s": 1.0}


def limit(text: object) -> tuple[float, str | None]:
    """Read a limit: a time, and after a colon the statistic that it is of.

    >>> limit("500ms"), limit("0.05:p99")
    ((0.5, None), (0.05, 'p99'))
    """
    time, _, statistic = str(text).partition(":")
    return seconds(time), statistic or None


def sizes(text: str, option: str = "--batch") -> list[float]:
    """Read an option's list of sizes: numbers, and ranges FIRST:LAST or FIRST:LAST:STEP with both ends included.

    >>> sizes("1,2,4"), sizes("1:4"), sizes("8,16:32:8")
    ([1, 2, 4], [1, 2, 3, 4], [8, 16, 24, 32])
    """
    found: list[float] = []
    for part in text.split(","):
        with naming(option):
            found += _range(part)
        if len(found) > _MOST_SIZES:
            message = f"{option}: {text!r} lists more than {_MOST_SIZES:,} sizes: use a larger step, FIRST:LAST:STEP"
            raise InvalidInputError(message)
    return found


def _range(part: str) -> Iterator[float]:
    """Count from the first to the last; a step that leads nowhere is as wrong as a word."""
    try:
        ends = [number(end) for end in part.split(":")]
        first, last, *more = ends * 2 if len(ends) == 1 else ends
        (step,) = more or (1,)
        steps = int((last - first) // step) + 1
    except (ValueError, ZeroDivisionError, OverflowError, typer.BadParameter):
        steps = 0
    if steps < 1:
        message = f"{part!r} is no size: expected a list like 1,2,4 or a range like 1:64 or 8:64:8"
        raise InvalidInputError(message)
    return (first + step * index for index in range(min(steps, _MOST_SIZES + 1)))


def number_option(flag: str, metavar: str, text: str) -> typer.models.OptionInfo:
    """Declare an option that is a number."""
    option: typer.models.OptionInfo = typer.Option(flag, metavar=metavar, help=text, parser=number)
    return option


def _word(flag: str, metavar: str, text: str) -> typer.models.OptionInfo:
    option: typer.models.OptionInfo = typer.Option(flag, metavar=metavar, help=text)
    return option


def _name(metavar: str, text: str) -> typer.models.ArgumentInfo:
    shown = f"{text}; `-` reads the YAML from standard input."
    argument: typer.models.ArgumentInfo = typer.Argument(metavar=metavar, help=shown)
    return argument


ModelName = Annotated[str, _name("MODEL", "Id, Hub id, alias, YAML file, config.json, its folder, or GGUF file")]
DeviceName = Annotated[str, _name("DEVICE", "Id, unique prefix, alias or YAML file")]

Assume = Annotated[
    list[str] | None,
    typer.Option(
        "--assume",
        metavar="KEY",
        help="A key of a config.json that changes no count, where its reader asks; may be repeated.",
    ),
]

Prompt = Annotated[float, number_option("--prompt", "TOKENS", "Tokens of each prompt, a cached prefix included.")]
Output = Annotated[float, number_option("--output", "TOKENS", "Tokens of each answer; the prefill samples the first.")]
Batch = Annotated[float, number_option("--batch", "N", "Equal requests that run together.")]
Cached = Annotated[float, number_option("--cached", "TOKENS", "Prefix of the prompt that the KV cache already holds.")]
Chunk = Annotated[
    float | None,
    number_option(
        "--chunk", "TOKENS", "Read the prompt in passes of so many tokens at most (vLLM: max_num_batched_tokens)."
    ),
]
Busy = Annotated[
    float, number_option("--busy", "SECONDS", "Compute-bound work just before: 0 after a rest, inf in a loaded server.")
]
Context = Annotated[float, number_option("--context", "TOKENS", "Tokens that each sequence holds before the step.")]
Tokens = Annotated[float, number_option("--tokens", "TOKENS", "Tokens of each sequence.")]
Sequences = Annotated[float, number_option("--sequences", "N", "Sequences held.")]
Sizes = Annotated[str, _word("--batch", "LIST", "Batch sizes: 1,2,4 or a range, 1:64 or 8:64:8, both ends included.")]

TensorParallel = Annotated[int, typer.Option("--tensor-parallel", metavar="N", help="Devices that divide every layer.")]
PipelineParallel = Annotated[
    int, typer.Option("--pipeline-parallel", metavar="N", help="Stages of layers, one after another.")
]
ExpertParallel = Annotated[
    int, typer.Option("--expert-parallel", metavar="N", help="Ranks among which whole experts are divided.")
]
AttentionGroups = Annotated[
    int,
    typer.Option(
        "--data-parallel-attention", metavar="N", help="Groups that hold attention whole and serve their own sequences."
    ),
]

Rate = Annotated[
    float | None, number_option("--rate", "PER_S", "Requests that come per second, whatever the server does.")
]
Concurrency = Annotated[
    int | None, typer.Option("--concurrency", metavar="N", help="Requests that a client keeps in flight, instead.")
]
Burstiness = Annotated[
    float,
    number_option("--burstiness", "SHAPE", "Of the arrivals: 1 is Poisson, less comes in bursts, inf like a clock."),
]
Requests = Annotated[
    int | None, typer.Option("--requests", metavar="N", help="Of a run. [1,000, or 10 x the concurrency]")
]
RangeRatio = Annotated[
    float,
    number_option("--range-ratio", "R", "Lengths are uniform between R x and 1 x of those given; 1 is all alike."),
]
TextTokens = Annotated[float, number_option("--tokens", "N", "Of each text; of a query and its document together.")]
Statistic = Annotated[str, _word("--statistic", "NAME", "Of the limits: mean, p50, p90 or p99.")]
UsdPerHour = Annotated[
    float | None,
    number_option("--usd-per-hour", "USD", "Price of an hour of one GPU. [the dated one of its file, if any]"),
]
Simulate = Annotated[bool, typer.Option("--simulate", help="Simulate where the closed form would do.")]
Seed = Annotated[int, typer.Option("--seed", metavar="N", help="Of a simulation.")]
Profile = Annotated[
    str | None,
    typer.Option(
        "--engine", metavar="NAME", help="Whose scheduler and constants: vllm-0.31, sglang, ... [the newest vllm]"
    ),
]
MemoryPart = Annotated[
    float | None,
    typer.Option("--utilization", metavar="PART", help="Part of the memory (vLLM: gpu_memory_utilization)."),
]
TokenBudget = Annotated[
    int | None,
    typer.Option("--chunk", metavar="TOKENS", help="Tokens of one pass at most (vLLM: max_num_batched_tokens)."),
]
MostSequences = Annotated[
    int | None, typer.Option("--max-num-seqs", metavar="N", help="Sequences of one pass at most. [the engine's]")
]

Weights = Annotated[
    str | None, _word("--weights", "FORMAT", "Of the linear layers: bf16, fp8, int8, int4, ... [the checkpoint's]")
]
KvCache = Annotated[str | None, _word("--kv-cache", "DTYPE", "Of the KV cache: bf16, fp8, ... [the model's own]")]
Compute = Annotated[
    str | None, _word("--compute", "DTYPE", "Arithmetic dtype of the products. [the one of the weights' format]")
]
Engine = Annotated[
    str | None, _word("--engine", "NAME", "Whose efficiency to prefer: vllm, vllm-0.31, ... [the device's choice]")
]
Skew = Annotated[
    float,
    number_option("--routing-skew", "S", "How unevenly a mixture's experts are chosen: 0 is evenly, 1 very unevenly."),
]
Efficiency = Annotated[
    str, _word("--efficiency", "NAME", "calibrated; or measured or datasheet: rooflines on those peaks.")
]
AnyEfficiency = Annotated[
    str | None, _word("--efficiency", "NAME", "calibrated, measured or datasheet. [all that the device has]")
]
Unchecked = Annotated[
    bool, typer.Option("--no-memory-check", help="Estimate what does not fit into the device's memory too.")
]
Acceptance = Annotated[
    float | None, number_option("--acceptance", "A", "Part of drafted tokens that is kept, 0 to 1: yours to measure.")
]
Draft = Annotated[
    str,
    _word(
        "--draft",
        "DRAFT",
        "mtp (the model's own module), a model, a drafted token's cost in steps, or module (one yet to be trained).",
    ),
]
Png = Annotated[Path | None, typer.Option("--png", metavar="FILE", help="Draw it into this file too.")]
Format = Annotated[
    str, _word("--format", "FORMAT", "table, markdown, csv or json; the last two in base units, unrounded.")
]


def layout(tensor: int, pipeline: int, expert: int, attention: int) -> dict[str, int]:
    """Name the four degrees of a layout as a deployment does."""
    names = ("tensor_parallel", "pipeline_parallel", "expert_parallel", "data_parallel_attention")
    return dict(zip(names, (tensor, pipeline, expert, attention), strict=True))
