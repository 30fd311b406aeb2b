"""What the commands about servers share: whose profile, what serves, lengths, and options that have no effect."""

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

import typer

from rooflinekit.cli import options
from rooflinekit.cli.names import naming
from rooflinekit.cli.output import deploy
from rooflinekit.errors import InvalidInputError
from rooflinekit.phases.deployment import Deployment
from rooflinekit.specs.step import checked

if TYPE_CHECKING:
    from rooflinekit.serving import EngineProfile
    from rooflinekit.serving.arrivals import Lengths
    from rooflinekit.specs.device import Device


def profile_of(
    engine: str | None,
    chunk: int | None,
    max_num_seqs: int | None,
    utilization: float | None,
    max_model_len: int | None = None,
) -> "EngineProfile":
    """Load the profile of an engine with what the user sets."""
    from rooflinekit.serving import load_engine  # noqa: PLC0415 - loaded when asked for

    with naming("--engine"):
        profile = load_engine(engine or "vllm")
    return profile.with_(
        max_num_batched_tokens=chunk,
        max_num_seqs=max_num_seqs,
        gpu_memory_utilization=utilization,
        max_model_len=max_model_len,
    )


def server_of(
    named: tuple[str, str],
    profile: "EngineProfile",
    layout: tuple[int, int, int, int],
    *,
    engine: str | None,
    assume: Collection[str] | None,
    **choices: object,
) -> Deployment:
    """Make what serves of a command's model and device: under the profile's engine where the user names one."""
    model, device = named
    degrees: dict[str, object] = {**options.layout(*layout)}
    return deploy(model, device, assume=assume, engine=engine and profile.engine, **degrees, **choices)


def lengths_of(tokens: float, ratio: float) -> "float | Lengths":
    """Give a length, or the uniform lengths between a part of it and all of it."""
    from rooflinekit.serving.arrivals import Lengths  # noqa: PLC0415 - loaded when asked for

    if not 0 < ratio <= 1:
        message = f"--range-ratio {ratio:g}: expected a number above 0, at most 1"
        raise InvalidInputError(message)
    return tokens if ratio == 1 else Lengths.ranged(tokens, ratio)


def devices_of(option: str, names: Iterable[str]) -> "list[Device]":
    """Load the devices that an option lists."""
    from rooflinekit.specs.catalog import load_device  # noqa: PLC0415 - loaded when asked for

    with naming(option):
        return [load_device(name.strip()) for name in names if name]


def price_of(option: str, device: str, text: str) -> float:
    """Read the price that an option gives a device."""
    with naming(option):
        usd = float(options.number(text))
        checked(device, usd, positive=True)
    return usd


def refuse_idle(context: typer.Context, names: Collection[str], why: str) -> None:
    """Refuse options that were typed and would have no effect."""
    typed = [one.opts[0] for one in context.command.params if one.name in names and _is_typed(context, one.name)]
    if typed:
        message = f"{why}: leave {', '.join(typed)} out"
        raise InvalidInputError(message)


def _is_typed(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"
