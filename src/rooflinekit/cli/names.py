"""What an error calls things: options as they are typed, where the library names its arguments."""

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

import typer

from rooflinekit.errors import InvalidInputError, RooflinekitError

#: Argument of the library -> options that give it, where they are called otherwise; a command has one of them at most.
OPTIONS = {
    "budgets": ("--chunk",),
    "busy_s": ("--busy",),
    "cached_tokens": ("--cached",),
    "compared_by": ("--by",),
    "context_tokens": ("--context",),
    "end_to_end_s": ("--e2e",),
    "format": ("--format-of",),
    "gpu_memory_utilization": ("--utilization",),
    "inter_token_latency_s": ("--itl",),
    "limit_s": ("--limit",),
    "link_latency_s": ("--link-latency",),
    "max_num_batched_tokens": ("--chunk", "--budget"),
    "network_s": ("--network",),
    "output_tokens": ("--output",),
    "prompt_tokens": ("--prompt",),
    "rate_per_s": ("--rate",),
    "time_per_output_token_s": ("--tpot",),
    "time_to_first_token_s": ("--ttft",),
    "token_budget": ("--chunk",),
}
#: A name before its value, `name=value`, or between ticks, `name=` or `name` = value. Columns, paths and keys of files,
#: which have no value or hold a slash or a dot, are none.
_NAMED = re.compile(r"(?<![\w./'\"-])(`?)([a-z]\w*)(=?)\1( = )?")
#: An argument, with or without a value, and behind it the option that gives it: one of them is enough.
_TWICE = re.compile(r"`?(--[a-z][\w-]*)(?:=(?:\[[^\]]*\])?)?`? \(`?(\1(?![\w-])[^)`]*)`?\)")
#: A name before its values in words: `tensor_parallel of 1, 2`.
_OF = re.compile(r"\b([a-z]+(?:_[a-z]+)+)(?= of \d)")
#: What stands behind a name that is mentioned and has no value there.
_ENDS = frozenset(" ,;:)")


def options_of(flags: Iterable[str]) -> dict[str, str]:
    """
    Give for the arguments of the library the options of a command.

    Examples
    --------
    >>> options_of(["--prompt", "--kv-cache", "-h"])
    {'prompt': '--prompt', 'kv_cache': '--kv-cache', 'prompt_tokens': '--prompt'}
    """
    own = [flag for flag in flags if flag.startswith("--")]
    others = {name: flag for name, known in OPTIONS.items() for flag in known if flag in own}
    return {**{flag.removeprefix("--").replace("-", "_"): flag for flag in own}, **others}


def as_typed(message: str, options: Mapping[str, str]) -> str:
    """
    Put options into the place of arguments.

    Examples
    --------
    >>> as_typed("prompt_tokens=0: expected a number; or use `kv_cache=`", options_of(["--prompt", "--kv-cache"]))
    '--prompt=0: expected a number; or use --kv-cache'
    >>> as_typed("name it with model= (--model); tensor_parallel of 1, 2", options_of(["--model", "--tensor-parallel"]))
    'name it with --model; --tensor-parallel of 1, 2'
    """

    def typed(found: re.Match[str]) -> str:
        tick, name, equals, then = found.groups(default="")
        option = options.get(name)
        if option is None or not (equals or (tick and then)):
            return found[0]
        valued = then or (not tick and message[found.end() : found.end() + 1] not in {"", *_ENDS})
        return f"{option}=" if valued else option

    told = _OF.sub(lambda found: options.get(found[1], found[1]), _NAMED.sub(typed, message))
    return _TWICE.sub(r"\2", told)


@contextmanager
def naming(option: str) -> Iterator[None]:
    """
    Put an option before what is wrong with its value, where the library would name the value alone.

    Examples
    --------
    >>> with naming("--instead"):
    ...     raise InvalidInputError("'h101' is no device")
    Traceback (most recent call last):
    rooflinekit.errors.InvalidInputError: --instead: 'h101' is no device
    """
    try:
        yield
    except RooflinekitError as error:
        message = f"{option}: {error}"
        raise type(error)(message) from error
    except OSError as error:
        message = f"{option}: {error.filename}: {error.strerror}"
        raise InvalidInputError(message) from error
    except typer.BadParameter as error:
        message = f"{option}: {error.message}"
        raise InvalidInputError(message) from error
