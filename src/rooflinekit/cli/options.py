"""Arguments and options, each declared once. Their values are checked by the library, which knows what they may be."""

from collections.abc import Iterator
from typing import Annotated

import typer

from rooflinekit.errors import InvalidInputError

#: A list of sizes is laid out in memory; a longer one is a slip.
_MOST_SIZES = 100_000


def number(text: object) -> float:
    """Read a number: an integer where it is written as one, so that labels and JSON show one.

    >>> number("2048"), number("1e3")
    (2048, 1000.0)
    """
    written = str(text)
    try:
        return int(written) if written.strip().lstrip("+-").isdecimal() else float(written)
    except ValueError:
        message = f"{written!r} is no number"
        raise typer.BadParameter(message) from None


def sizes(text: str) -> list[float]:
    """Read a list of sizes: numbers, and ranges FIRST:LAST or FIRST:LAST:STEP with both ends included.

    >>> sizes("1,2,4"), sizes("1:4"), sizes("8,16:32:8")
    ([1, 2, 4], [1, 2, 3, 4], [8, 16, 24, 32])
    """
    found: list[float] = []
    for part in text.split(","):
        found += _range(part)
        if len(found) > _MOST_SIZES:
            message = f"{text!r} lists more than {_MOST_SIZES:,} sizes: use a larger step, FIRST:LAST:STEP"
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


def _number(flag: str, metavar: str, text: str) -> typer.models.OptionInfo:
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

Prompt = Annotated[float, _number("--prompt", "TOKENS", "Tokens of each prompt, a cached prefix included.")]
Output = Annotated[float, _number("--output", "TOKENS", "Tokens of each answer; the prefill samples the first.")]
Batch = Annotated[float, _number("--batch", "N", "Equal requests that run together.")]
Cached = Annotated[float, _number("--cached", "TOKENS", "Prefix of the prompt that the KV cache already holds.")]
Chunk = Annotated[
    float | None,
    _number("--chunk", "TOKENS", "Read the prompt in passes of so many tokens at most (vLLM: max_num_batched_tokens)."),
]
Busy = Annotated[
    float, _number("--busy", "SECONDS", "Compute-bound work just before: 0 after a rest, inf in a loaded server.")
]
Context = Annotated[float, _number("--context", "TOKENS", "Tokens that each sequence holds before the step.")]
Tokens = Annotated[float, _number("--tokens", "TOKENS", "Tokens of each sequence.")]
Sequences = Annotated[float, _number("--sequences", "N", "Sequences held.")]
Sizes = Annotated[str, _word("--batch", "LIST", "Batch sizes: 1,2,4 or a range, 1:64 or 8:64:8, both ends included.")]

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
    float, _number("--routing-skew", "S", "How unevenly a mixture's experts are chosen: 0 is evenly, 1 very unevenly.")
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
Format = Annotated[
    str, _word("--format", "FORMAT", "table, markdown, csv or json; the last two in base units, unrounded.")
]
