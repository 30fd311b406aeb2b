"""Compare the laws of rooflinekit with what they are without one of their parts, on data that no fit has seen.

    python tools/compare_laws.py               # every class: a quarter of an hour
    python tools/compare_laws.py products-bf16 # some

Each class has a table in docs/laws.md, between two markers: what is run is replaced, all else stays. The figure
docs/images/laws.png is drawn from the tables of the page. Errors are |predicted / measured - 1|.
"""
# ruff: noqa: INP001, T201 - a script: no package, prints how far it is

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rooflinekit.calibration import engines, entries
from rooflinekit.calibration.entries import Stage, none, select
from rooflinekit.calibration.fit import fit, shipped_fallbacks
from rooflinekit.calibration.observations import Observations
from rooflinekit.calibration.references import gb10_trace, h200_steps, kernel_tables, rates
from rooflinekit.reports.drawing import COLOURS, GREY, MARKERS, new_figure, save
from rooflinekit.roofline.laws import Laws
from rooflinekit.specs.efficiency import Efficiency

ROOT = Path(__file__).parents[1]
PAGE, PICTURE = ROOT / "docs" / "laws.md", ROOT / "docs" / "images" / "laws.png"
FOLDS = 5
Errors = NDArray[np.float64]
Rows = Sequence[Observations]


class Result(NamedTuple):
    """One line of a table: a law, what was fitted in it, the errors of both columns, and whether it is the code's."""

    name: str
    constants: str
    columns: tuple[Errors, Errors]
    kept: bool


class Comparison(NamedTuple):
    """One table: what its two columns hold, what its rows are, and how its lines are found."""

    title: str
    columns: tuple[str, str]
    rows: str
    results: Callable[[], Iterator[Result]]


# ---- fits


def changed(entry: Efficiency, field: str, value: object) -> Efficiency:
    """Give a copy with one constant set: ``products.bf16.launch_us``."""
    first, *rest = field.split(".", 1)
    inner: Any = changed(getattr(entry, first), rest[0], value) if rest else value
    return entry.model_copy(update={first: inner})


def errors(rows: Rows, entry: Efficiency, fallbacks: Callable[..., tuple[Efficiency, ...]] = none) -> Errors:
    """Predict rows and say how far off that is."""
    parts = [one.predicted_s(Laws((entry, *fallbacks(one.device)), "own")) / one.seconds for one in rows]
    return np.abs(np.concatenate(parts) - 1.0) if parts else np.zeros(0)


def folds(one: Observations) -> NDArray[np.int64]:
    """Deal the shapes of a table into folds, all rows of a shape into one."""
    row = one.row if one.row is not None else np.arange(len(one))
    order = np.random.default_rng(0).permutation(int(row.max()) + 1)
    return np.asarray(order[row] % FOLDS)


# ---- kernels of eight devices


class Law(NamedTuple):
    """A law of kernels: which constants are fitted, which are held at a value, and what is counted in another way.

    ``own`` are fitted only where a device has kernels of its own. Of several ways to count, the one with the least
    misfit on the rows that are fitted is taken.
    """

    name: str
    free: tuple[str, ...]
    held: Mapping[str, float | None] = {}
    own: tuple[str, ...] = ()
    kept: bool = False
    said: str = ""
    counts: tuple[Callable[[Observations], Observations], ...] = (lambda one: one,)


class Kernels(NamedTuple):
    """A class of kernels: where its constants are, the rows to fit, the stages before, and the rows that are judged."""

    place: str
    rows: Callable[[Rows], list[Observations]]
    before: Callable[[Rows, bool], list[Stage]] = lambda _rows, _own: []
    judged: Callable[[Rows], list[Observations]] | None = None


def fitted(kind: Kernels, law: Law, kernels: Rows, begin: Efficiency, *, own: bool) -> tuple[Efficiency, Any]:
    """Fit a law to the kernels of its class, and say by which count."""
    fields = (*law.free, *(law.own if own else ()))
    for field, value in law.held.items():
        begin = changed(begin, f"{kind.place}.{field}", value)
    best: tuple[float, Efficiency, Any] | None = None
    for count in law.counts:
        rows = [count(one) for one in kind.rows(kernels)]
        entry, residuals = begin, np.zeros(1)
        if fields:
            places = {field: [f"{kind.place}.{field}"] for field in fields}
            weights = entries.equal_by_generation(rows)
            found = fit(rows, begin, places, weights=weights, checked=False, fallbacks=none)
            entry, residuals = found.efficiency, weights * np.minimum(np.abs(found.residuals), 1.0)
        if best is None or residuals.mean() < best[0]:
            best = float(residuals.mean()), entry, count
    if best is None:
        raise ValueError(law)
    return best[1], best[2]


class Split(NamedTuple):
    """Kernels to fit, those to predict, and the entry that fits begin with where all others were fitted first."""

    train: list[Observations]
    kin: list[Observations]
    test: list[Observations]
    own: bool


@cache
def splits() -> tuple[Split, ...]:
    """Split the tables: each device by shapes, and each device left out."""
    tables, found = kernel_tables(), []
    for device in dict.fromkeys(one.device for one in tables):
        mine = [(one, folds(one)) for one in tables if one.device.id == device.id]
        for fold in range(FOLDS):
            train = [one.take(dealt != fold) for one, dealt in mine]
            found.append(Split(train, [], [one.take(dealt == fold) for one, dealt in mine], own=True))
        rest = [one for one in tables if one.device.id != device.id]
        kin = [one for one in rest if one.device.generation == device.generation]
        found.append(Split(rest, kin, [one for one, _ in mine], own=False))
    return tuple(found)


#: Entries after the stages before a class, by class and split: the same for all of its laws.
_BEFORE: dict[tuple[str, int, bool], Efficiency] = {}


def before(kind: Kernels, number: int, kin: bool) -> Efficiency:  # noqa: FBT001 - part of a key
    """Fit the stages before a class, once."""
    key = (kind.place, number, kin)
    if key not in _BEFORE:
        split = splits()[number]
        begin = before(kind, number, False) if kin else entries.kernel_start()  # noqa: FBT003
        stages = kind.before(split.kin if kin else split.train, split.own)
        _BEFORE[key] = entries.run(stages, begin, none)[0]
    return _BEFORE[key]


def kernel_result(kind: Kernels, law: Law) -> Result:
    """Judge one law of kernels: on other shapes of each device, and on each device left out."""
    own: list[Errors] = []
    left: list[Errors] = []
    for number, split in enumerate(splits()):
        test = (kind.judged or kind.rows)(split.test)
        if not test or not kind.rows(split.train):
            continue
        begin = before(kind, number, False)  # noqa: FBT003 - as there
        entry, count = fitted(kind, law, split.train, begin, own=split.own)
        if kind.rows(split.kin):
            start = before(kind, number, True)  # noqa: FBT003 - as there
            for field in (*law.free, *law.held):
                value: Any = entry
                for part in f"{kind.place}.{field}".split("."):
                    value = getattr(value, part)
                start = changed(start, f"{kind.place}.{field}", value)
            entry, count = fitted(kind, law, split.kin, start, own=False)
        (own if split.own else left).append(errors([count(one) for one in test], entry))
    free = law.said or ", ".join(law.free) or "none"
    more = f"; own devices: {', '.join(law.own)}" if law.own else ""
    return Result(law.name, free + more, (np.concatenate(own), np.concatenate(left)), law.kept)


def kernel_results(kind: Kernels, laws: Iterable[Law]) -> Iterator[Result]:
    """Judge laws of one class."""
    return (kernel_result(kind, law) for law in laws)


def by_bandwidth(one: Observations) -> Observations:
    """Count elements to quantise in units of time at the bandwidth: a price in picoseconds becomes one in bytes."""
    factor = 8e12 / one.rates.bytes_per_s
    return replace(one, plan=replace(one.plan, input_elements=one.plan.input_elements * factor))


def further(tokens: float, one: Observations) -> Observations:
    """Let every sequence hold some tokens more: a context offset."""
    groups = tuple(group._replace(context_tokens=np.asarray(group.context_tokens) + tokens) for group in one.groups)
    return replace(one, groups=groups)


TWO = ("compute", "memory")
THREE = (*TWO, "launch_us")
FOUR = (*THREE, "inner_ns_per_element")
QUANTISATION = "quantisation_ps_per_element"
INFINITE = float("inf")
BARE = {"inner_ns_per_element": 0.0, QUANTISATION: 0.0}
ROOFLINE = Law(
    "datasheet roofline", (), {"compute": 1.0, "memory": 1.0, "launch_us": 0.0, "exponent": INFINITE, **BARE}
)
JOINED = (
    ROOFLINE,
    Law("parts of the peaks", TWO, {"launch_us": 0.0, "exponent": INFINITE, **BARE}),
    Law("+ launch", THREE, {"exponent": INFINITE, **BARE}),
    Law("+ launch, sum", THREE, {"exponent": 1.0, **BARE}),
    Law("+ launch, p = 2", THREE, {"exponent": 2.0, **BARE}),
    Law("+ launch, p free", (*THREE, "exponent"), {"exponent": 2.0, **BARE}),
)
PLAIN = (
    *JOINED,
    Law("+ launch, p free on own", THREE, {"exponent": 2.0, **BARE}, ("exponent",), kept=True),
    Law("the same, + inner sums", FOUR, {"exponent": 2.0, QUANTISATION: 0.0}, ("exponent",)),
    Law("p = 2, + inner sums", FOUR, {"exponent": 2.0, QUANTISATION: 0.0}),
)
QUANTISED = (
    *JOINED,
    Law("p = 2, + inner sums", FOUR, {"exponent": 2.0, QUANTISATION: 0.0}),
    Law("p = 2, + quantisation", (*THREE, QUANTISATION), {"exponent": 2.0, "inner_ns_per_element": 0.0}),
    Law("p = 2, + both", (*FOUR, QUANTISATION), {"exponent": 2.0}, kept=True),
    Law(
        "the same, quantisation in bytes",
        (*FOUR, QUANTISATION),
        {"exponent": 2.0},
        counts=(by_bandwidth,),
        said=", ".join((*FOUR, "quantisation bytes per element")),
    ),
    Law("p free, + both", (*FOUR, QUANTISATION, "exponent"), {"exponent": 2.0}),
)
STREAM = ("memory", "launch_us")
DECODE = (
    Law("datasheet roofline", (), {"compute": 1.0, "memory": 1.0, "launch_us": 0.0, "tile_tokens": 0.0}),
    Law("launch and bandwidth, no tile", STREAM, {"tile_tokens": 0.0}),
    Law("+ tile of 128", STREAM, {"tile_tokens": 128.0}),
    Law(
        "+ context offset, no tile",
        STREAM,
        {"tile_tokens": 0.0},
        counts=tuple(partial(further, tokens) for tokens in (0.0, 16.0, 32.0, 48.0, 64.0, 96.0, 128.0)),
        said="memory, launch_us, offset",
    ),
    Law("+ tile, free", (*STREAM, "tile_tokens"), {"tile_tokens": 100.0}, kept=True),
)
PREFILL = (
    Law("no softmax, one stream", (), {"softmax_flops_per_score": 0.0, "activation": None}),
    Law("the same, arithmetic free", ("compute",), {"softmax_flops_per_score": 0.0, "activation": None}),
    Law("no softmax", ("activation",), {"softmax_flops_per_score": 0.0}),
    Law("the same, arithmetic free", ("compute", "activation"), {"softmax_flops_per_score": 0.0}),
    Law("softmax, one stream", ("softmax_flops_per_score",), {"activation": None}),
    Law("softmax, outputs apart", ("activation", "softmax_flops_per_score"), kept=True),
    Law("the same, arithmetic free", ("compute", "activation", "softmax_flops_per_score")),
)
MIXTURES = (
    Law("datasheet roofline", (), {"compute": 1.0, "memory": 1.0, "launch_us": 0.0, "exponent": INFINITE}),
    Law("sum, no launch", TWO, {"launch_us": 0.0, "exponent": 1.0}),
    Law("larger of the two", THREE, {"exponent": INFINITE}),
    Law("p = 2", THREE, {"exponent": 2.0}),
    Law("sum", THREE, {"exponent": 1.0}, kept=True),
    Law("p free", (*THREE, "exponent"), {"exponent": 1.2}),
)


def products(form: str) -> Callable[[Rows], list[Observations]]:
    """Give the rows of products in a format that come from memory."""
    return lambda rows: select(rows, op="product", weights=form, regime="dram")


def decoding(rows: Rows, held: str = "bf16") -> list[Observations]:
    """Give the rows of attention in decode: from memory, or too short to matter."""
    return select(rows, op="attention", kv_cache=held, phase="decode", regime=("dram", "overhead"))


def prefilling(rows: Rows, held: str = "bf16") -> list[Observations]:
    """Give the rows of attention in prefill that are long enough to compute."""
    return select(rows, op="attention", kv_cache=held, phase="prefill", regime=("compute", "dram"))


def before_attention(rows: Rows, own: bool) -> list[Stage]:  # noqa: FBT001 - handed on by position
    """Fit products, at whose rate attention computes."""
    return [Stage(entries.product_free("bf16", own=own), products("bf16")(rows))]


def before_prefill(rows: Rows, own: bool) -> list[Stage]:  # noqa: FBT001 - as above
    """Fit what decode says of attention."""
    free = entries.attention_free("attention", "memory", "tile_tokens", "launch_us")
    return [*before_attention(rows, own), Stage(free, decoding(rows))]


def mixtures(form: str) -> Callable[[Rows], list[Observations]]:
    """Give the rows of fused mixtures in a format."""
    return lambda rows: select(rows, op="mixture", weights=form)


def before_fp8(rows: Rows, own: bool) -> list[Stage]:  # noqa: FBT001 - as above
    """Fit attention over a BF16 cache."""
    free = entries.attention_free("attention", "activation", "softmax_flops_per_score")
    return [*before_prefill(rows, own), Stage(free, prefilling(rows))]


def fp8_cache() -> Iterator[Result]:
    """Predict attention over an FP8 cache by the constants of a BF16 cache, by its own, and by those of kin alone."""
    judged: dict[str, Callable[[Rows], list[Observations]]] = {
        "decode": lambda rows: select(decoding(rows, "fp8"), regime="dram"),
        "prefill": lambda rows: prefilling(rows, "fp8"),
    }
    laws: dict[str, Callable[[Split], bool]] = {
        "constants of a BF16 cache": lambda _: False,
        "its own": lambda _: True,
        "its own, not universal": lambda split: split.own or bool(split.kin),
    }
    for phase, rows_of in judged.items():
        for name, wanted in laws.items():
            found: tuple[list[Errors], list[Errors]] = ([], [])
            for number, split in enumerate(splits()):
                if test := rows_of(split.test):
                    found[0 if split.own else 1].append(errors(test, _fp8_entry(number, own=wanted(split))))
            free = (
                "none" if name == "constants of a BF16 cache" else ", ".join(STREAMED if phase == "decode" else PRICED)
            )
            columns = np.concatenate(found[0]), np.concatenate(found[1])
            yield Result(f"{phase}, {name}", free, columns, name == "its own, not universal")


STREAMED, PRICED = ("memory", "tile_tokens", "launch_us"), ("activation", "softmax_flops_per_score")


@cache
def _fp8_entry(number: int, *, own: bool) -> Efficiency:
    """Fit attention over a BF16 cache, and over an FP8 cache where that is to have constants of its own."""
    split, entry = splits()[number], entries.kernel_start()
    for rows in (split.train, split.kin) if split.kin else (split.train,):
        stages = before_fp8(rows, split.own)
        if own and decoding(rows, "fp8"):
            stages.append(Stage(entries.attention_free("attention_fp8", *STREAMED), decoding(rows, "fp8")))
            stages.append(Stage(entries.attention_free("attention_fp8", *PRICED), prefilling(rows, "fp8")))
        entry = entries.run(stages, entry, none)[0]
    return entry if own else entry.model_copy(update={"attention_fp8": None})


# ---- small kernels of the H200


def small_results() -> Iterator[Result]:
    """Predict a fifth of the small kernels by the others, the four classes apart."""
    laws = {
        "part of the bandwidth": (("memory",), {"launch_us": 0.0}),
        "launch alone": (("launch_us",), {"memory": 1e6}),
        "launch and bytes": (("memory", "launch_us"), {}),
    }
    for name, (free, held) in laws.items():
        columns = tuple(_small(compiled, free, held) for compiled in ("fixed", "sized"))
        yield Result(name, ", ".join(free), (columns[0], columns[1]), name == "launch and bytes")


def _small(compiled: str, free: Sequence[str], held: Mapping[str, float]) -> Errors:
    found = []
    for stage in entries.small_stages(compiled):
        place = next(iter(stage.free)).split(".")[0]
        entry = Efficiency(name="small").model_copy(update=entries.small_start())
        for field, value in held.items():
            entry = changed(entry, f"{place}.{field}", value)
        for fold in range(FOLDS):
            dealt = [np.arange(len(one)) % FOLDS for one in stage.rows]
            train = [one.take(part != fold) for one, part in zip(stage.rows, dealt, strict=True)]
            test = [one.take(part == fold) for one, part in zip(stage.rows, dealt, strict=True)]
            places = {field: [f"{place}.{field}"] for field in free}
            found.append(errors(test, fit(train, entry, places, checked=False, fallbacks=none).efficiency))
    return np.concatenate(found)


# ---- whole steps of the H200


def step_results() -> Iterator[Result]:
    """Predict the steps of each model by kernels, and by what the other models' steps show."""
    sized, summed = (_h200(inner_sums=which) for which in (False, True))
    fixed = entries.run(entries.small_stages("fixed"), sized, none)[0]
    small = ("norm", "rotary", "activation", "cache_write")
    nothing = {name: getattr(sized, name).model_copy(update={"launch_us": 0.0}) for name in small}
    limit = ("burst_ms", "sustained")
    whole = changed(changed(sized, "burst_ms", 0.0), "sustained", 0.9)
    burst = changed(changed(sized, "burst_ms", 15.0), "sustained", 0.88)
    paused = changed(burst, "gap_us", 0.3)
    small_fixed = changed(changed(fixed, "burst_ms", 15.0), "sustained", 0.88)
    summed = changed(changed(summed, "burst_ms", 15.0), "sustained", 0.88)
    yield from (
        _steps("kernels alone", sized, ()),
        _steps("+ one slower rate, no budget", whole, ("sustained",)),
        _steps("+ power limit", burst, limit, kept=True),
        _steps("+ power limit and pause", paused, (*limit, "gap_us")),
        _steps("limit, small kernels for their width", small_fixed, limit),
        _steps("limit, BF16 products with inner sums", summed, limit),
        _steps("limit, small kernels without launch", burst.model_copy(update=nothing), limit),
    )


def _h200(*, inner_sums: bool) -> Efficiency:
    """Fit the kernels of the H200, BF16 products with or without a price of their inner sums."""
    first, *others = entries.h200_stages("cudnn")
    field = "products.bf16.inner_ns_per_element"
    free = {name: at for name, at in first.free.items() if name != field} | ({field: [field]} if inner_sums else {})
    begin = changed(entries.h200_kernel_entry()[0], field, 0.1 if inner_sums else 0.0)
    return entries.run([Stage(free, first.rows), *others], begin, none)[0]


def _steps(name: str, begin: Efficiency, free: Sequence[str], *, kept: bool = False) -> Result:
    found: tuple[list[Errors], list[Errors]] = ([], [])
    fits = []
    for model in dict.fromkeys(map(_model, h200_steps())):
        rest = [one for one in h200_steps() if _model(one) != model]
        entry = begin
        if free:
            entry = fit(rest, begin, {field: [field] for field in free}, checked=False).efficiency
            fits.append([getattr(entry, field) for field in free])
        _by_phase(found, [one for one in h200_steps() if _model(one) == model], entry)
    median = np.median(fits, axis=0) if fits else ()
    said = ", ".join(f"{field} ({value:.3g})" for field, value in zip(free, median, strict=True))
    return Result(name, said or "none on steps", (np.concatenate(found[0]), np.concatenate(found[1])), kept)


def _by_phase(found: tuple[list[Errors], list[Errors]], rows: Rows, entry: Efficiency) -> None:
    """Judge passes, prefill and decode apart; whole requests are decode for the most part."""
    for one in rows:
        wrong = errors([one], entry, shipped_fallbacks)
        prefill = (one.facts["phase"] == "prefill").to_numpy()
        found[0].append(wrong[prefill])
        found[1].append(wrong[~prefill])


def _model(one: Observations) -> str:
    return str(one.facts["model"].iloc[0])


# ---- engines


class Change(NamedTuple):
    """What is taken from an engine's entry: constants held at a value, and those fitted in their stead."""

    name: str
    held: Mapping[str, object] = {}
    dropped: tuple[str, ...] = ()
    kept: bool = False
    added: tuple[str, ...] = ()


PACKED = (
    Change(
        "part of the 16-bit peak",
        {"peak": None, "vector_flops_per_flop": 0.0, "compute": 0.6, "unpack_flops_per_weight": 0.0},
    ),
    Change("16-bit peak, + unpacking", {"peak": None, "vector_flops_per_flop": 0.0, "compute": 0.6}),
    Change("part of the int8 peak, + unpacking", {"peak": "int8", "vector_flops_per_flop": 0.0, "compute": 0.3}),
    Change("vector units, no unpacking", {"unpack_flops_per_weight": 0.0}),
    Change("vector units, no pause", {"gap_us": 0.0}, ("gap_us",)),
    Change("vector units, unpacking, pause", kept=True),
)
BOTH = ("gap_us", "step_us")
VENDOR = (
    Change("kernels alone", {"gap_us": 0.0, "step_us": 0.0}, BOTH),
    Change("+ pause of each launch", {"gap_us": 1.0, "step_us": 0.0}, BOTH, added=("gap_us",)),
    Change("+ host's time of a pass", {"gap_us": 0.0, "step_us": 100.0}, BOTH, added=("step_us",), kept=True),
    Change("+ both", {"gap_us": 1.0, "step_us": 100.0}, BOTH, added=BOTH),
)


def engine_results(engine: str, form: str, changes: Iterable[Change]) -> Iterator[Result]:
    """Predict the rates of each device by the same engine and format on other devices of the vendor."""
    key = engines.Key(engine, "NVIDIA", form)
    rows = engines.by_entry(rates())[key]
    for change in changes:
        begin = altered(engines.start(key), change)
        free = chosen(begin, rows, change)
        found: tuple[list[Errors], list[Errors]] = ([], [])
        for device in dict.fromkeys(one.device.id for one in rows):
            rest = [one for one in rows if one.device.id != device]
            constants = chosen(begin, rest, change)
            weights = engines.equal_by_device(rest)
            entry = fit(rest, begin, constants, weights=weights, prior=engines.SHARED_PRIOR, checked=False).efficiency
            _by_phase(found, [one for one in rows if one.device.id == device], entry)
        columns = np.concatenate(found[0]), np.concatenate(found[1])
        yield Result(change.name, _short(free), columns, change.kept)


def chosen(begin: Efficiency, rows: Rows, change: Change) -> dict[str, Sequence[str]]:
    """List what is fitted of an engine's entry under a change."""
    found = {name: at for name, at in engines.free(begin, rows).items() if name not in change.dropped}
    return {**{name: [name] for name in change.added}, **found}


def altered(begin: Efficiency, change: Change) -> Efficiency:
    """Set what a change holds: in the entry, or in its products and mixtures."""
    for field, value in change.held.items():
        if field in Efficiency.model_fields:
            begin = changed(begin, field, value)
            continue
        for place in ("products.bf16", "mixtures.bf16"):
            begin = changed(begin, f"{place}.{field}", value)
    return begin


def _short(free: Iterable[str]) -> str:
    """List constants, those of products and mixtures once."""
    return ", ".join(dict.fromkeys(name.replace("products.bf16.", "").replace("mixtures.bf16.", "") for name in free))


def pooled_results() -> Iterator[Result]:
    """Predict llama.cpp on the GB10, each model in turn: by vLLM's constants, by one set for both, by its own."""
    key = engines.Key("llama.cpp", "NVIDIA", "q4_k")
    known = engines.by_entry(rates())
    mine = [one for one in known[key] if one.device.id == "gb10"]
    vllm = [one for one in known[engines.Key("vllm", "NVIDIA", "bf16")] if one.device.id == "gb10"]
    others = [one for one in known[key] if one.device.id != "gb10"]
    trace, _ = entries.fit_gb10()
    found: dict[str, tuple[list[Errors], list[Errors]]] = {name: ([], []) for name in ("vllm", "pooled", "own")}
    for model in dict.fromkeys(map(_model, mine)):
        test, rest = [one for one in mine if _model(one) == model], [one for one in mine if _model(one) != model]
        _by_phase(found["vllm"], test, trace)
        shared = engines.fit_shared(key, [*others, *rest]).efficiency
        _by_phase(found["pooled"], test, engines.fit_own(shared, [*rest, *vllm, gb10_trace()]).efficiency)
        _by_phase(found["own"], test, engines.fit_own(shared, rest).efficiency)
    said = {
        "vllm": ("vLLM's entry", "none"),
        "pooled": ("one entry for both engines", "all of llama.cpp's"),
        "own": ("an entry for each engine", "all of llama.cpp's"),
    }
    for name, (prefill, decode) in found.items():
        yield Result(*said[name], (np.concatenate(prefill), np.concatenate(decode)), name == "own")


# ---- the page


OWN_LEFT = ("other shapes", "device left out")
PHASES = ("prefill", "decode")
EIGHT = "kernels of eight devices"
NARROW = Kernels(
    "products.bf16", products("bf16"), judged=lambda rows: select(rows, op="product", weights="bf16", regime="narrow")
)
ATTENTION = Kernels("attention", decoding, before_attention, lambda rows: select(decoding(rows), regime="dram"))
COMPARISONS: Mapping[str, Comparison] = {
    "products-bf16": Comparison(
        "Products, BF16",
        OWN_LEFT,
        EIGHT,
        lambda: kernel_results(Kernels("products.bf16", products("bf16")), PLAIN),
    ),
    "products-narrow": Comparison(
        "Products, BF16, narrow",
        OWN_LEFT,
        "products below 512 in width or inner width, fitted on the others",
        lambda: kernel_results(NARROW, (*PLAIN[4:5], *PLAIN[6:])),
    ),
    "products-fp8": Comparison(
        "Products, FP8",
        OWN_LEFT,
        EIGHT,
        lambda: kernel_results(Kernels("products.fp8", products("fp8")), QUANTISED),
    ),
    "products-fp4": Comparison(
        "Products, FP4",
        OWN_LEFT,
        EIGHT,
        lambda: kernel_results(Kernels("products.fp4", products("nvfp4")), QUANTISED),
    ),
    "attention-decode": Comparison("Attention, decode", OWN_LEFT, EIGHT, lambda: kernel_results(ATTENTION, DECODE)),
    "attention-prefill": Comparison(
        "Attention, prefill",
        OWN_LEFT,
        EIGHT,
        lambda: kernel_results(Kernels("attention", prefilling, before_prefill), PREFILL),
    ),
    "attention-fp8": Comparison("Attention, FP8 cache", OWN_LEFT, EIGHT, fp8_cache),
    "mixtures-bf16": Comparison(
        "Mixtures, BF16",
        OWN_LEFT,
        EIGHT,
        lambda: kernel_results(Kernels("mixtures.bf16", mixtures("bf16")), MIXTURES),
    ),
    "mixtures-fp8": Comparison(
        "Mixtures, FP8",
        OWN_LEFT,
        EIGHT,
        lambda: kernel_results(Kernels("mixtures.fp8", mixtures("fp8")), MIXTURES),
    ),
    "small": Comparison(
        "Small kernels",
        ("for their width", "for any size"),
        "of the H200, every fifth in turn predicted by the others",
        small_results,
    ),
    "steps": Comparison(
        "Whole steps, H200", PHASES, "steps of ten models, each model predicted by the others", step_results
    ),
    "engine-packed": Comparison(
        "llama.cpp, q4_k on NVIDIA",
        PHASES,
        "single-stream rates, each device predicted by the others",
        lambda: engine_results("llama.cpp", "q4_k", PACKED),
    ),
    "engine-vendor": Comparison(
        "vLLM, BF16 on NVIDIA",
        PHASES,
        "single-stream rates, each device predicted by the others",
        lambda: engine_results("vllm", "bf16", VENDOR),
    ),
    "engine-pooled": Comparison(
        "One entry for all engines",
        PHASES,
        "rates of llama.cpp (q4_k) on the GB10, each model predicted by the others",
        pooled_results,
    ),
}


def percent(found: Errors) -> str:
    """Write median and 90th percentile."""
    if not len(found):
        return ""
    return f"{100 * np.median(found):.1f}% / {100 * np.quantile(found, 0.9):.1f}%"


def table(comparison: Comparison) -> Iterator[str]:
    """Write the lines of a table; the law of the code is in bold type."""
    first, second = comparison.columns
    head = [f"| law | constants fitted | {first} | {second} |", "|---|---|---|---|"]
    counts: tuple[int, int] = (0, 0)
    lines = []
    for result in comparison.results():
        columns = [percent(one) for one in result.columns]
        name = f"**{result.name}**" if result.kept else result.name
        lines.append(f"| {name} | {result.constants} | {columns[0]} | {columns[1]} |")
        print(lines[-1], flush=True)
        counts = len(result.columns[0]), len(result.columns[1])
    many = f"{counts[0]:,}" if counts[0] == counts[1] else f"{counts[0]:,} and {counts[1]:,}"
    when = datetime.now(UTC).date()
    yield from (*head, *lines, "", f"*{many} rows: {comparison.rows}. Run on {when}.*")


def replaced(text: str, name: str, lines: Iterable[str]) -> str:
    """Put a table between its markers."""
    begin, end = f"<!-- {name}: written by tools/compare_laws.py -->", f"<!-- {name}: end -->"
    pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    if not pattern.search(text):
        message = f"{PAGE}: no markers for {name}: expected {begin} and {end}"
        raise ValueError(message)
    return pattern.sub(lambda _: "\n".join((begin, "", *lines, "", end)), text)


_ERROR = re.compile(r"([\d.]+)% / ([\d.]+)%")


def drawn(name: str, text: str) -> list[tuple[str, list[tuple[float, float]]]]:
    """Read a table of the page again: names of laws, and the medians and 90th percentiles of both columns."""
    _, _, after = text.partition(f"<!-- {name}: written")
    part, _, _ = after.partition(f"<!-- {name}: end")
    rows = []
    for line in part.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        values = [_ERROR.fullmatch(cell) for cell in cells[2:]]
        if values and all(values):
            rows.append((cells[0], [(float(one[1]), float(one[2])) for one in values if one]))
    return rows


def picture(text: str) -> None:
    """Draw a panel for each class: dots are medians, lines reach to the 90th percentile."""
    known = {name: rows for name in COMPARISONS if (rows := drawn(name, text))}
    names = [name for name in COMPARISONS if name in known]
    pairs = [names[i : i + 2] for i in range(0, len(names), 2)]
    heights = [max(len(known[name]) for name in pair) + 3.2 for pair in pairs]
    figure = new_figure(9.5, 0.225 * sum(heights))
    grid = figure.subplots(len(pairs), 2, squeeze=False, gridspec_kw={"height_ratios": heights})
    for i, (place, name) in enumerate(zip(grid.flat, [*names, *[""] * (len(names) % 2)], strict=True)):
        if name:
            panel(place, COMPARISONS[name], known[name], last=i >= len(names) - 2)
        else:
            place.set_visible(False)
    save(figure, PICTURE)


def panel(axes: Any, comparison: Comparison, rows: Sequence[Any], *, last: bool) -> None:  # noqa: ANN401 - of matplotlib
    """Draw the laws of one class, the code's in bold type."""
    for column, shift in ((0, 0.16), (1, -0.16)):
        heights = [len(rows) - 1 - i + shift for i in range(len(rows))]
        median, most = (np.array([values[column][part] for _, values in rows]) for part in (0, 1))
        axes.hlines(heights, median, most, color=COLOURS[column], linewidth=1.6)
        axes.plot(most, heights, "|", color=COLOURS[column], markersize=5, markeredgewidth=1.6)
        said = comparison.columns[column]
        axes.plot(median, heights, MARKERS[column], color=COLOURS[column], markersize=5, label=said)
    axes.set_yticks(range(len(rows)), [name.strip("*") for name, _ in rows[::-1]], fontsize=8.5)
    for label, (name, _) in zip(axes.get_yticklabels(), rows[::-1], strict=True):
        label.set_fontweight("bold" if name.startswith("*") else "normal")
    axes.set_ylim(-0.6, len(rows) - 0.4)
    axes.set_xscale("log")
    axes.set_xlim(1, 300)
    ticks = (1, 2, 5, 10, 20, 50, 100)
    axes.set_xticks(ticks, [f"{tick}%" for tick in ticks])
    axes.minorticks_off()
    axes.grid(visible=True, axis="x", color="0.9", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(axis="x", labelsize=7.5)
    axes.tick_params(axis="y", length=0)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.set_title(comparison.title, fontsize=10, loc="left", fontweight="bold", pad=19)
    axes.legend(
        loc="lower left",
        bbox_to_anchor=(-0.01, 1.0),
        ncols=2,
        fontsize=8,
        frameon=False,
        handletextpad=0.2,
        borderpad=0,
    )
    if last:
        axes.set_xlabel("error: dot median, line to the 90th percentile", fontsize=8, color=GREY, loc="right")


def main(wanted: Sequence[str]) -> None:
    """Run comparisons, write their tables, and draw the page's figure."""
    for name in wanted:
        print(name, flush=True)
        lines = list(table(COMPARISONS[name]))
        PAGE.write_text(replaced(PAGE.read_text(encoding="utf-8"), name, lines), encoding="utf-8")
    picture(PAGE.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main(sys.argv[1:] or list(COMPARISONS))
