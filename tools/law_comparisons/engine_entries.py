"""What an engine's entry holds beside its kernels, and whether engines could share one."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from law_comparisons.judging import Errors, Result, Rows, by_phase, changed, model_of
from rooflinekit.calibration import engines, entries
from rooflinekit.calibration.fit import fit
from rooflinekit.calibration.references import gb10_trace, rates
from rooflinekit.specs.efficiency import Efficiency


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
            by_phase(found, [one for one in rows if one.device.id == device], entry)
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
    for model in dict.fromkeys(map(model_of, mine)):
        test, rest = [one for one in mine if model_of(one) == model], [one for one in mine if model_of(one) != model]
        by_phase(found["vllm"], test, trace)
        shared = engines.fit_shared(key, [*others, *rest]).efficiency
        by_phase(found["pooled"], test, engines.fit_own(shared, [*rest, *vllm, gb10_trace()]).efficiency)
        by_phase(found["own"], test, engines.fit_own(shared, rest).efficiency)
    said = {
        "vllm": ("vLLM's entry", "none"),
        "pooled": ("one entry for both engines", "all of llama.cpp's"),
        "own": ("an entry for each engine", "all of llama.cpp's"),
    }
    for name, (prefill, decode) in found.items():
        yield Result(*said[name], (np.concatenate(prefill), np.concatenate(decode)), name == "own")
