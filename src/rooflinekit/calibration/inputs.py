"""Files of measured times, as observations of one device; every row that is not read is counted with the reason."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from rooflinekit.calibration.engines import ONE_FORMAT, engine_name
from rooflinekit.calibration.kernels import kernel_observations
from rooflinekit.calibration.observations import Observations
from rooflinekit.calibration.passes import READINGS, rate_observations, step_observations
from rooflinekit.calibration.tables import DEVICES, read_table
from rooflinekit.calibration.trace import load_trace, trace_observations
from rooflinekit.errors import InvalidInputError
from rooflinekit.phases.deployment import Deployment
from rooflinekit.roofline.laws import ANY, format_kind
from rooflinekit.specs.catalog import load_model, normalise
from rooflinekit.specs.device import Device
from rooflinekit.specs.recipes import recipe_of

KERNELS = ("product", "attention", "mixture", "small")
TRACES = (".yaml", ".yml")
#: Columns that hold numbers above 0, by the kind of row.
_POSITIVE = {
    "product": ("seconds", "new_tokens", "n", "k"),
    "attention": ("seconds", "new_tokens", "sequences", "heads", "kv_heads", "head_dim"),
    "mixture": ("seconds", "new_tokens", "hidden_size", "inter_size", "topk", "num_experts"),
    "small": ("seconds", "new_tokens", "bytes_per_token"),
    "step": ("seconds", "batch"),
    "mixed": ("seconds",),
    "rate": ("value",),
}


class Asked(NamedTuple):
    """What the user said: the model, engine and format whose rows count; None is not said."""

    model: str | None = None
    engine: str | None = None
    weights: str | None = None


@dataclass(frozen=True)
class Inputs:
    """What the files hold of one device, engine and format."""

    kernels: tuple[Observations, ...]
    traces: tuple[Observations, ...]
    passes: tuple[Observations, ...]
    engine: str | None
    format: str
    skipped: Mapping[str, int]

    def __len__(self) -> int:
        """Count the rows that are read."""
        return sum(map(len, (*self.kernels, *self.traces, *self.passes)))


def read_inputs(device: Device, files: Sequence[str | Path], asked: Asked) -> Inputs:
    """
    Read files of measured times.

    Parameters
    ----------
    device : Device
        The rows of other devices are left out.
    files : sequence of path
        CSV tables of any shape that :func:`~rooflinekit.calibration.tables.read_table` knows, YAML kernel traces.
    asked : Asked
        Rows of another model, engine or format are left out; rows that name none are taken to be of these.

    Raises
    ------
    InvalidInputError
        A file or row that is none, rows of several engines or formats where none is asked for, or no row left.
    """
    skipped: Counter[str] = Counter()
    paths = [Path(file) for file in files]
    tables, engine = _tables([path for path in paths if path.suffix not in TRACES], device, asked.engine, skipped)
    whole = _filled(_of_model(table, asked, skipped) for table in tables if _op(table) not in KERNELS)
    form, passes = _of_format(whole, device, asked.weights, engine, skipped)
    inputs = Inputs(
        kernels=tuple(kernel_observations(table, device) for table in tables if _op(table) in KERNELS),
        traces=tuple(_traces([path for path in paths if path.suffix in TRACES], device, asked, skipped)),
        passes=tuple(one for table in passes for one in _passes(table, device)),
        engine=engine,
        format=form,
        skipped=skipped,
    )
    if not len(inputs):
        message = f"{', '.join(map(str, paths)) or 'no file'}: no row to calibrate {device.id} with: {told(skipped)}"
        raise InvalidInputError(message)
    return inputs


def _tables(
    paths: Sequence[Path], device: Device, asked: str | None, skipped: Counter[str]
) -> tuple[list[pd.DataFrame], str | None]:
    """Read the tables' rows of the device and of one engine, and name the engine."""
    read = _filled(_read(path, skipped) for path in paths)
    mine = _filled(_mine(table, device, skipped) for table in read)
    engine = _engine(mine, asked)
    tables = _filled(_of_engine(table, engine, skipped) for table in mine)
    return _filled(_of_backend(table, engine, skipped) for table in tables), engine


def told(skipped: Mapping[str, int]) -> str:
    """Say in one line how many rows were left out, and why."""
    return "; ".join(f"{count} {reason}" for reason, count in skipped.items()) or "the files hold no row"


# ---- reading


def _read(path: Path, skipped: Counter[str]) -> pd.DataFrame:
    """Read one table; every row that its shape has no use for is counted."""
    try:
        table = read_table(path)
        lines = len(pd.read_csv(path))
    except KeyError as fault:
        message = f"{path}: has no column {fault}: add it, tables of this shape need it"
        raise InvalidInputError(message) from None
    except (TypeError, pd.errors.IntCastingNaNError) as fault:
        message = f"{path}: holds text where numbers belong ({fault})"
        raise InvalidInputError(message) from None
    _count(skipped, lines - len(table), "of a kind that is not read (expert parallelism, kernels of no class)")
    table = table.assign(line=[f"{path}, line {number + 2}" for number in table.index])
    table = _one_device(table, skipped).reset_index(drop=True)
    return _checked(table) if len(table) else table


def _one_device(table: pd.DataFrame, skipped: Counter[str]) -> pd.DataFrame:
    """Leave out rows that the table itself leaves out, and those of several devices that share a pass.

    Layers split over devices take a single stream no longer than one device does: those rows stay.
    """
    if "excluded" in table:
        for reason, count in table["excluded"].value_counts().items():
            _count(skipped, int(count), f"left out by their table: {reason}")
        table = table[table["excluded"].isna()]
    column = "tensor_parallel" if "tensor_parallel" in table else "gpus"
    ranks = table[column].fillna(1) if column in table else pd.Series(1, index=table.index)
    return _kept(table, ranks <= 1, "of several devices", skipped)


def _checked(table: pd.DataFrame) -> pd.DataFrame:
    """Refuse rows without their size or time: no size is taken as nought."""
    op = _op(table)
    everywhere = pd.Series(data=True, index=table.index)
    for column in _POSITIVE[op]:
        _numbers(table, column, everywhere)
    if op == "step":
        _known(table, "phase", ("prefill", "decode"))
        _numbers(table, "prompt_tokens", table["phase"] == "prefill")
        _numbers(table, "context_tokens", table["phase"] == "decode")
    if op == "rate":
        _known(table, "reading", tuple(READINGS))
        _numbers(table, "prompt_tokens", ~table["reading"].str.startswith("decode"))
    return table


def _numbers(table: pd.DataFrame, column: str, where: "pd.Series[bool]") -> None:
    if not where.any():
        return
    values = pd.to_numeric(table[column] if column in table else pd.Series(index=table.index), errors="coerce")
    bad = where & ~((values > 0) & np.isfinite(values))
    if bad.any():
        line = table[bad].iloc[0]
        message = f"{line['line']}: {column} = {line.get(column, 'missing')}: expected a number above 0"
        raise InvalidInputError(message)


def _known(table: pd.DataFrame, column: str, names: Sequence[str]) -> None:
    bad = ~table[column].isin(names)
    if bad.any():
        line = table[bad].iloc[0]
        message = f"{line['line']}: {column} = {line[column]}: expected one of {', '.join(names)}"
        raise InvalidInputError(message)


# ---- whose rows they are


def _count(skipped: Counter[str], count: int, reason: str) -> None:
    if count:
        skipped[reason] += count


def _kept(table: pd.DataFrame, chosen: "pd.Series[bool]", reason: str, skipped: Counter[str]) -> pd.DataFrame:
    _count(skipped, int((~chosen).sum()), reason)
    return table[chosen]


def _text(table: pd.DataFrame, column: str, default: str | None = None) -> "pd.Series[str]":
    """Give a column of names; "" (or the default) where a row names none."""
    given = table[column] if column in table else pd.Series(None, index=table.index, dtype=object)
    named = given.astype(object).where(given.notna(), "").astype(str)
    return named.mask(named == "", default or "")


def _mine(table: pd.DataFrame, device: Device, skipped: Counter[str]) -> pd.DataFrame:
    """Keep the rows of the device, by any of its names, and those that name none."""
    names = {"", *map(normalise, (device.id, *device.names))}
    spelt = _text(table, "device").replace(DEVICES).map(normalise)
    return _kept(table, spelt.isin(names), "of other devices", skipped).reset_index(drop=True)


def stem(engine: str) -> str:
    """Name an engine without its version or its usual back end.

    >>> stem("vllm-0.24.0"), stem("llama.cpp-cuda"), stem("llama.cpp-vulkan"), stem("pytorch-2.11")
    ('vllm', 'llama.cpp', 'llama.cpp-vulkan', 'pytorch')
    """
    return re.sub(r"-\d.*", "", engine_name(engine))


def _engine(tables: Iterable[pd.DataFrame], asked: str | None) -> str | None:
    """Settle the engine: the one asked for, else the one of the whole passes, else the one of the kernels."""
    if asked is not None:
        return engine_name(asked)
    found: dict[bool, set[str]] = {True: set(), False: set()}
    for table in tables:
        found[_op(table) in KERNELS] |= set(_text(table, "engine")) - {""}
    passes = {engine_name(name) for name in found[False]}
    if len({stem(name) for name in passes}) > 1:
        message = f"the rows are of several engines ({', '.join(sorted(passes))}): choose one with engine= (--engine)"
        raise InvalidInputError(message)
    named = passes or found[True]
    return named.pop() if len(named) == 1 else next(iter({stem(name) for name in passes}), None)


def _of_engine(table: pd.DataFrame, engine: str | None, skipped: Counter[str]) -> pd.DataFrame:
    """Keep the rows of an engine, whatever its version, and those that name none."""
    if engine is None:
        return table
    chosen = _text(table, "engine").map(lambda name: not name or stem(name) == stem(engine))
    return _kept(table, chosen, "of other engines", skipped)


def _of_backend(table: pd.DataFrame, engine: str | None, skipped: Counter[str]) -> pd.DataFrame:
    """Keep one attention kernel of several that a table compares: the one that the engine names, else the fastest.

    Of small kernels those count that are compiled for their width, where a table has both.
    """
    if _op(table) == "small":
        both = {"fixed", "sized"} <= set(_text(table, "compiled"))
        return _kept(table, ~(both & (_text(table, "compiled") == "fixed")), "of kernels of a fixed size", skipped)
    backends = _text(table, "backend")
    if len(set(backends)) <= 1 or _op(table) != "attention":
        return table
    named = [name for name in backends.unique() if engine and engine.endswith(f"-{name}")]
    means = table["seconds"].astype(float).map(np.log).groupby(backends).mean()
    best = named[0] if named else str(means.idxmin())
    return _kept(table, backends == best, f"of other attention kernels than {best}", skipped)


def _of_model(table: pd.DataFrame, asked: Asked, skipped: Counter[str]) -> pd.DataFrame:
    """Keep the rows of the model asked for, and those that name none."""
    named = _text(table, "model", asked.model)
    if (named == "").any():
        line = table[named == ""]["line"].iloc[0]
        message = f"{line}: names no model: add a column `model`, or name it with model= (--model)"
        raise InvalidInputError(message)
    if asked.model is None:
        return table.assign(model=named)
    names = {normalise(asked.model), normalise(load_model(asked.model).id)}
    return _kept(table, named.map(normalise).isin(names), "of other models", skipped).assign(model=asked.model)


def _of_format(
    tables: Sequence[pd.DataFrame], device: Device, asked: str | None, engine: str | None, skipped: Counter[str]
) -> tuple[str, list[pd.DataFrame]]:
    """Settle the format of the weights, and keep the rows of it; an engine of one entry takes them all."""
    kinds = [_with_kind(table, device, asked) for table in tables]
    found = sorted({str(kind) for table in kinds for kind in table["kind"]})
    if engine in ONE_FORMAT:
        return ANY, kinds
    if asked is None and len(found) > 1:
        message = f"the rows are of weights in {', '.join(found)}: choose one with weights= (--weights)"
        raise InvalidInputError(message)
    form = kind_of(asked) if asked else (*found, "bf16")[0]
    kept = (_kept(table, table["kind"] == form, "of other formats of the weights", skipped) for table in kinds)
    return form, _filled(kept)


def _with_kind(table: pd.DataFrame, device: Device, asked: str | None) -> pd.DataFrame:
    """Fill in formats: steps of a trace are BF16 unless it says otherwise, rates of the checkpoint's own format."""
    weights = _text(table, "weights", asked or ("" if _op(table) == "rate" else "bf16"))
    kinds = [_kind(name, str(model), device) for name, model in zip(weights, table["model"].astype(str), strict=True)]
    return table.assign(weights=weights.mask(weights == ""), kind=kinds)


def _kind(weights: str, model: str, device: Device) -> str:
    """Name the kind of a format; a name that is none stays, and is refused if its rows are to count."""
    try:
        return kind_of(weights) if weights else _own_kind(model, device)
    except InvalidInputError:
        return weights


@cache
def kind_of(weights: str) -> str:
    """Name the kind of format that an entry is kept under.

    >>> kind_of("q4_k_m"), kind_of("fp16"), kind_of("bf16")
    ('q4_k', 'bf16', 'bf16')
    """
    return format_kind(recipe_of(weights).default)


@cache
def _own_kind(model: str, device: Device) -> str:
    return format_kind(Deployment(model, device, memory_check=False).precision.weights.name)


# ---- observing


def _filled(tables: Iterable[pd.DataFrame]) -> list[pd.DataFrame]:
    """Leave out tables of which no row is left."""
    return [table.reset_index(drop=True) for table in tables if len(table)]


def _op(table: pd.DataFrame) -> str:
    return str(table["op"].iloc[0])


def _passes(table: pd.DataFrame, device: Device) -> Iterable[Observations]:
    """Observe whole passes."""
    if _op(table) != "rate":
        return step_observations(table, device)
    needed = dict.fromkeys((*table, "kv_cache", "engine"))
    return rate_observations(table.reindex(columns=list(needed)).assign(device=device.id), device)


def _traces(paths: Sequence[Path], device: Device, asked: Asked, skipped: Counter[str]) -> Iterable[Observations]:
    """Observe kernel traces of the device and model."""
    for path in paths:
        trace = load_trace(path)
        if normalise(trace.device) not in map(normalise, (device.id, *device.names)):
            _count(skipped, len(trace.rows), "of other devices")
        elif asked.model is not None and normalise(load_model(asked.model).id) != normalise(load_model(trace.model).id):
            _count(skipped, len(trace.rows), "of other models")
        else:
            seen = trace_observations(trace, device)
            yield replace(seen, facts=seen.facts.assign(file=path.name, engine=""))
