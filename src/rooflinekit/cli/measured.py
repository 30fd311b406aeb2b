"""What the commands about measurements share: their options, how files are read, and whose deployment they are of."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from rooflinekit.cli import options
from rooflinekit.cli.names import naming
from rooflinekit.cli.output import STANDARD_INPUT, model_of
from rooflinekit.errors import InvalidInputError, RooflinekitError
from rooflinekit.phases.deployment import Deployment
from rooflinekit.specs.catalog import DEVICES, MODELS, is_listed, load_device
from rooflinekit.specs.step import checked

if TYPE_CHECKING:
    from rooflinekit.measurements import Measurement
    from rooflinekit.measurements.reading import Reading

#: Name of a record's field -> the option that gives it.
FLAGS = {
    "model": "--model", "device": "--device", "engine": "--engine", "weights": "--weights", "kv_cache": "--kv-cache",
    "tensor_parallel": "--tensor-parallel", "batch": "--batch", "prompt_tokens": "--prompt",
    "output_tokens": "--output", "context_tokens": "--context",
}  # fmt: skip
#: Engine -> the engine whose kernels it runs.
_RUNS = {"ollama": "llama.cpp"}
#: What a deployment is made of, in a record's words.
CHOICES = ("model", "device", "engine", "weights", "kv_cache", "tensor_parallel")


def _number(flag: str, text: str) -> typer.models.OptionInfo:
    option: typer.models.OptionInfo = typer.Option(flag, metavar="N", help=text, parser=options.number)
    return option


def _said(flag: str, metavar: str, text: str) -> typer.models.OptionInfo:
    option: typer.models.OptionInfo = typer.Option(flag, metavar=metavar, help=f"{text} [what the file says]")
    return option


# fmt: off
Model = Annotated[str | None, _said("--model", "MODEL", "What ran.")]
Device = Annotated[str | None, _said("--device", "DEVICE", "Where it ran.")]
Engine = Annotated[str | None, _said("--engine", "NAME", "What ran it.")]
Weights = Annotated[str | None, _said("--weights", "FORMAT", "Of the linear layers.")]
KvCache = Annotated[str | None, _said("--kv-cache", "DTYPE", "Of the KV cache.")]
Parallel = Annotated[int | None, typer.Option("--tensor-parallel", metavar="N", help="Devices that divide each layer.")]
Prompt = Annotated[float | None, _number("--prompt", "Tokens of each prompt. [what the file says]")]
Output = Annotated[float | None, _number("--output", "Tokens of each answer. [what the file says]")]
Context = Annotated[float | None, _number("--context", "Tokens in the cache before the first step.")]
Batch = Annotated[float | None, _number("--batch", "Sequences together. [what the file says]")]
FormatOf = Annotated[str | None, typer.Option("--format-of", metavar="NAME", help="Format of FILE, where unclear.")]
# fmt: on


class Group(NamedTuple):
    """Records of one deployment."""

    deployment: Deployment
    records: "tuple[Measurement, ...]"


def given(**facts: object) -> dict[str, Any]:
    """Keep the facts that were given."""
    return {name: value for name, value in facts.items() if value is not None}


def lengths(**facts: float | None) -> dict[str, Any]:
    """Keep the sizes that were given, each above 0; a cache may be empty, and devices are whole."""
    kept = given(**facts)
    for name, value in kept.items():
        checked(name, value, positive=name != "context_tokens", whole=name == "tensor_parallel")
    return kept


def read_file(name: str, format_of: str | None, facts: Mapping[str, Any]) -> "Reading":
    """Read a file, or standard input for `-`."""
    from rooflinekit.measurements import read  # noqa: PLC0415 - the readers of all formats load when asked for

    if name != STANDARD_INPUT:
        return read(name, format=format_of, **facts)
    stream = getattr(sys.stdin, "buffer", None)
    content = stream.read() if stream else sys.stdin.read().encode()
    return read("standard input", format=format_of, content=content, **facts)


def read_files(names: Sequence[str], format_of: str | None, facts: Mapping[str, Any]) -> "list[Reading]":
    """Read several files, standard input among them once."""
    if list(names).count(STANDARD_INPUT) > 1:
        message = "`-` is named twice: standard input holds one file"
        raise InvalidInputError(message)
    return [read_file(name, format_of, facts) for name in names]


# ---- whose records they are


def groups(reading: "Reading", choices: Mapping[str, Any]) -> Iterator[Group]:
    """Make the deployments that a file's records are of: as given, else as the file says, and nothing assumed."""
    for key, records in _by_facts(reading, choices).items():
        said = dict(zip(CHOICES, key, strict=True))
        yield Group(_deployment(reading.file, said, choices), tuple(records))


def only(reading: "Reading", choices: Mapping[str, Any]) -> Group:
    """Make the one deployment that a file is of."""
    found = list(_by_facts(reading, choices))
    if len(found) > 1:
        columns = {
            name: dict.fromkeys(map(str, values))
            for name, values in zip(CHOICES, zip(*found, strict=True), strict=True)
        }
        several = [f"{name} {', '.join(values)}" for name, values in columns.items() if len(values) > 1]
        message = f"{reading.file}: holds runs of {len(found)} deployments ({'; '.join(several)}): one at a time"
        raise InvalidInputError(message)
    return next(groups(reading, choices))


def _by_facts(reading: "Reading", choices: Mapping[str, Any]) -> "dict[tuple[object, ...], list[Measurement]]":
    found: dict[tuple[object, ...], list[Measurement]] = {}
    for one in reading.records:
        key = tuple(choices.get(name, getattr(one, name)) for name in CHOICES)
        found.setdefault(key, []).append(one)
    return _joined(found)


def _joined(
    found: "dict[tuple[object, ...], list[Measurement]]",
) -> "dict[tuple[object, ...], list[Measurement]]":
    """Put records that do not say a fact to those that do, where all that do agree: memory, totals, a load time."""
    known = [key for key in found if not any(_within(key, other) for other in found if other != key)]
    joined: dict[tuple[object, ...], list[Measurement]] = {key: [] for key in known}
    for key, records in found.items():
        homes = [one for one in known if _within(key, one)]
        for home in homes:
            joined[home].extend(records)
    return joined


def _within(key: tuple[object, ...], other: tuple[object, ...]) -> bool:
    """Tell whether a key says nothing that the other does not."""
    return all(mine is None or mine == its for mine, its in zip(key, other, strict=True))


def _deployment(file: str, said: Mapping[str, Any], choices: Mapping[str, Any]) -> Deployment:
    _require(file, said, choices)
    more = {name: value for name, value in choices.items() if name not in CHOICES}
    facts = {name: said[name] for name in CHOICES[2:] if said[name] is not None}
    if facts.get("tensor_parallel") == 1:
        del facts["tensor_parallel"]
    if "engine" in facts:
        name = str(facts["engine"]).lower()
        facts["engine"] = _RUNS.get(name, name)
    with naming(FLAGS["model"] if "model" in choices else file):
        model = model_of(str(said["model"]))
    with naming(FLAGS["device"] if "device" in choices else file):
        device = load_device(str(said["device"]))
    try:
        return Deployment(model, device, **facts, **more, memory_check=False)
    except RooflinekitError as fault:
        message = f"{_read(file, facts, choices)}{fault}"
        raise type(fault)(message) from fault


def _require(file: str, said: Mapping[str, Any], choices: Mapping[str, Any]) -> None:
    """Ask for a model and a device that the file does not say, or by a name that the catalogue does not know."""
    asked = {}
    for name, kind in (("model", MODELS), ("device", DEVICES)):
        if said[name] is None:
            asked[name] = f"no {name}"
        elif name not in choices and not is_listed(kind, str(said[name])):
            asked[name] = f"{name} {said[name]!r}, which is not in the catalogue"
    if asked:
        unknown = sorted(asked.values(), key=lambda told: not told.startswith("no "))  # a clause with commas ends it
        message = f"{file}: says {' and '.join(unknown)}: give {', '.join(FLAGS[name] for name in asked)}"
        raise InvalidInputError(message)


def _read(file: str, facts: Mapping[str, Any], choices: Mapping[str, Any]) -> str:
    """Say which facts were the file's own, where one of them may be at fault."""
    own = [f"{name} {value!r} ({FLAGS[name]})" for name, value in facts.items() if name not in choices]
    return f"{file}: says {', '.join(own)}: " if own else ""
