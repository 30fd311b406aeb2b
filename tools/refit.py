"""Fit every shipped efficiency entry on the shipped references, and write them into the catalogue's YAML.

    python tools/refit.py            # generations, engines, and the entries of devices

Kernel tables come first; what they determine is frozen. Single-stream rates fit engines whose kernels no table shows,
and of the others only pauses. Whole steps fit the power limit alone. The file of a device is changed in its block
``efficiency:`` and nowhere else.
"""
# ruff: noqa: INP001, T201 - a script: no package, prints what it writes

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from rooflinekit.calibration.engines import LEAST_ROWS, Key, by_entry, engine_name, fit_own, fit_shared
from rooflinekit.calibration.entries import (
    H200,
    fit_gb10,
    fit_h200,
    fit_kernels,
    fit_llama_cpp,
    kernel_start,
    pooled_generations,
)
from rooflinekit.calibration.fit import Fit
from rooflinekit.calibration.references import h200_llama_cpp, h200_steps, kernel_tables, rates
from rooflinekit.calibration.spreads import kernel_spread, pass_spread, spread
from rooflinekit.calibration.validate import judged, predictions
from rooflinekit.calibration.writing import dump, evidence_of, indented
from rooflinekit.roofline.laws import same_engine
from rooflinekit.specs.catalog import clear_cache, load_device, load_generation
from rooflinekit.specs.efficiency import Efficiency, Evidence, Spread

ROOT = Path(__file__).parents[1]
DATABASE = ROOT / "hardware_db"
TABLES = "ai-dynamo/aiconfigurator kernel tables (commit 095f58a, Apache-2.0)"
#: Kernel tables of these devices, by the engine whose kernels they time.
ENGINES = {"a100-sxm-80gb": "vllm-0.14", "arc-pro-b60": "vllm-0.20"}
NEWEST = "vllm-0.24"
#: Engines whose packed formats are of their own: the entry serves the format where no engine is named.
FILE_FORMATS = ("llama.cpp", "mlx")
BLOCK = re.compile(r"^efficiency:\n(?:[ -].*\n)*", re.MULTILINE)


def main() -> None:
    """Fit and write, in the order in which entries lean on each other; spreads last, once every constant stands."""
    pooled = generations()
    clear_cache()
    shared, rated = engine_entries()
    fitted: dict[str, list[Efficiency]] = {}
    for device, entry in [*kernel_entries(), *trace_entries(), *rated]:
        fitted.setdefault(device, []).append(entry)
    spreads = Spreads.measured()
    write_generations({name: with_spread(entry, spreads.generation(name)) for name, entry in pooled.items()})
    write_engines([with_spread(entry, spreads.shared(entry)) for entry in shared])
    for device, entries in fitted.items():
        write_device(device, [with_spread(entry, spreads.own(device, entry)) for entry in entries])
        print(device, ", ".join(entry.name for entry in entries))


# ---- which entries there are


def generations() -> dict[str, Efficiency]:
    """Fit the entry of every generation that kernel tables hold, and the universal one with equal weight for each."""
    found = {}
    for name, (entry, fits) in pooled_generations().items():
        evidence = (*evidence_of(fits, TABLES, None), *entry.evidence)
        found[name] = entry.model_copy(update={"name": name, "evidence": evidence})
    write_generations(found)
    return found


def write_generations(entries: Mapping[str, Efficiency]) -> None:
    """Write a file for each generation, and the universal one."""
    for name, entry in entries.items():
        write(DATABASE / "generations" / f"{name}.yaml", dump(entry))


def kernel_entries() -> list[tuple[str, Efficiency]]:
    """Fit the entry of every device that has kernel tables of its own."""
    found = []
    tables = kernel_tables()
    for device in dict.fromkeys(one.device.id for one in tables):
        engine = ENGINES.get(device, NEWEST)
        start = kernel_start().model_copy(update={"name": f"{device}/{engine}/bf16", "engine": engine, "default": True})
        entry, fits = fit_kernels([one for one in tables if one.device.id == device], start, own=True)
        kept = only_fitted(entry, fits)
        found.append((device, kept.model_copy(update={"evidence": evidence_of(fits, TABLES, load_device(device))})))
    return found


def trace_entries() -> list[tuple[str, Efficiency]]:
    """Fit the H200's entries, of two engines, and the GB10's from its kernel classes."""
    device = load_device(H200)
    found = []
    for entry, fits in (*fit_h200(), fit_gb10()):
        source = "rooflinekit-h200" if entry.name.startswith(H200) else "seed-gb10"
        evidence = (*evidence_of(fits, source, load_device(entry.name.split("/")[0])), *entry.evidence)
        found.append((entry.name.split("/")[0], entry.model_copy(update={"evidence": evidence})))
    for one in h200_llama_cpp():
        fit = fit_llama_cpp(one)
        found.append(
            (H200, fit.efficiency.model_copy(update={"evidence": evidence_of([fit], "rooflinekit-h200", device)}))
        )
    return found


def engine_entries() -> tuple[list[Efficiency], list[tuple[str, Efficiency]]]:
    """Fit the shared entries of engines, and the own entries of devices with enough rates."""
    found: list[tuple[str, Efficiency]] = []
    shared = []
    for key, observations in by_entry(rates()).items():
        fit = fit_shared(key, observations)
        made_by = key.engine in FILE_FORMATS and key.format not in ("bf16", "fp8")
        said = {"evidence": rate_evidence(fit, observations), "default": made_by}
        entry = fit.efficiency.model_copy(update=said)
        shared.append(entry)
        found += own_entries(key, entry, observations)
    return shared, found


def write_engines(shared: Sequence[Efficiency]) -> None:
    """Write a file for each engine with the entries that devices share."""
    for engine in dict.fromkeys(str(entry.engine) for entry in shared):
        entries = sorted((entry for entry in shared if entry.engine == engine), key=lambda entry: entry.name)
        text = "".join(f"- {indented(dump(entry), 2)}" for entry in entries)
        write(DATABASE / "engines" / f"{engine}.yaml", f"entries:\n{text}")


def own_entries(key: Key, shared: Efficiency, observations: Sequence) -> list[tuple[str, Efficiency]]:
    """Fit the entry of each device that has enough rates under an engine."""
    found = []
    for device in dict.fromkeys(one.device.id for one in observations):
        mine = [one for one in observations if one.device.id == device]
        if sum(map(len, mine)) >= LEAST_ROWS and (device, key.engine, key.format) != ("gb10", "vllm", "bf16"):
            fit = fit_own(shared, mine)
            evidence = rate_evidence(fit, mine)
            found.append((device, fit.efficiency.model_copy(update={"evidence": evidence})))
    return found


def only_fitted(entry: Efficiency, fits: Sequence[Fit]) -> Efficiency:
    """Drop the laws that no table of the device determined: they come from the generation."""
    seen = {".".join(field.split(".")[:2]) for fit in fits for field in fit.constants}
    kept = {}
    for family in ("products", "mixtures"):
        laws = getattr(entry, family)
        changes = {dtype: None for dtype in type(laws).model_fields if f"{family}.{dtype}" not in seen}
        kept[family] = laws.model_copy(update=changes)
    small = dict.fromkeys(("norm", "rotary", "activation", "cache_write", "gap_us", "step_us"))
    classes = {field.split(".")[0] for fit in fits for field in fit.constants}
    attention = {name: None for name in ("attention", "attention_fp8", "attention_wide") if name not in classes}
    return entry.model_copy(update={**kept, **small, **attention})


# ---- how far their predictions stray

#: Entries fitted on whole passes have no spread of kernel classes: that of passes holds it.
NO_CLASSES = dict.fromkeys(
    [f"{op}_{phase}" for op in ("product", "attention", "mixture") for phase in ("prefill", "decode")] + ["small"], 0.0
)


class Spreads(NamedTuple):
    """Held-out errors by set, and the spread that each kind of entry takes from them."""

    kernels_own: pd.DataFrame
    kernels_left_out: pd.DataFrame
    streams_own: pd.DataFrame
    streams_left_out: pd.DataFrame
    steps: pd.DataFrame
    by_generation: pd.DataFrame
    by_other_engine: pd.DataFrame

    @classmethod
    def measured(cls) -> "Spreads":
        """Predict every set that holds something out."""
        names = ("kernels-other-shapes", "kernels-left-out", "streams-other-models", "streams-left-out", "h200-steps")
        return cls(*(predictions(name) for name in names), steps_by_generation(), rates_by_other_engines())

    def generation(self, name: str) -> Spread:
        """Give a generation's spread (or the universal one): kernels of devices left out, passes of the H200."""
        tier = "universal" if name == "universal" else "architecture generation"
        rows = self.kernels_left_out[self.kernels_left_out["tier"] == tier]
        kin = rows[[load_device(device).generation == name for device in rows["device"]]]
        classes = kernel_spread(kin if len(kin) and name != "universal" else rows)
        passes = pass_spread(self.by_generation)
        beyond = {"other_engine": round(spread(self.by_other_engine["log_error"]), 3)}
        return classes.model_copy(update={**passes, **(beyond if name == "universal" else {})})

    def shared(self, entry: Efficiency) -> Spread:
        """Give the spread of an engine's shared entry: devices left out, this engine's where they are enough."""
        known = self.streams_left_out[self.streams_left_out["tier"] == "engine"]
        mine = known[known["engine"].map(engine_name) == entry.engine]
        return Spread(**{**NO_CLASSES, **pass_spread(known), **pass_spread(mine)})

    def own(self, device: str, entry: Efficiency) -> Spread:
        """Give the spread of a device's own entry."""
        if device == H200 and str(entry.engine).startswith("pytorch"):
            return Spread(**{**NO_CLASSES, **pass_spread(self.steps)})
        if entry.name == "gb10/vllm-0.31/bf16":  # three totals say little: the spread of the H200's, fitted alike
            return Spread(**{**NO_CLASSES, **pass_spread(self.steps)})
        if any(f"{device}/{engine}/bf16" == entry.name for engine in (*ENGINES.values(), NEWEST)):
            mine = self.kernels_own[self.kernels_own["device"] == device]
            return kernel_spread(mine).model_copy(update=pass_spread(self.by_generation))
        mine = self.streams_own[self.streams_own["engine"].map(engine_name) == entry.engine]
        return Spread(**{**NO_CLASSES, **pass_spread(self.streams_own), **pass_spread(mine)})


def with_spread(entry: Efficiency, found: Spread) -> Efficiency:
    """Give the entry its spread."""
    return entry.model_copy(update={"spread": found})


def steps_by_generation() -> pd.DataFrame:
    """Predict the H200's steps by the Hopper entry: kernels of the H100 alone, small kernels of engines."""
    hopper = load_generation("hopper")
    if hopper is None:
        message = "no entry of the Hopper generation to start from"
        raise LookupError(message)
    return pd.concat(judged(h200_steps(), hopper, "architecture generation"), ignore_index=True)


def rates_by_other_engines() -> pd.DataFrame:
    """Predict rates on each device by the entries of other engines there: what a wrong engine costs."""
    frames = []
    for key, observations in by_entry(rates()).items():
        for one in observations:
            for entry in one.device.efficiency:
                if entry.format == key.format and not same_engine(entry.engine, key.engine):
                    frames += list(judged([one], entry, "other engine on this device"))
    return pd.concat(frames, ignore_index=True)


# ---- what is said of them


def rate_evidence(fit: Fit, observations: Sequence) -> tuple[Evidence, ...]:
    """Say which sources an engine's constants come from."""
    sources = sorted({str(source) for one in observations for source in one.facts["source"]})
    models = sorted({str(model) for one in observations for model in one.facts["model"]})
    devices = sorted({one.device.id for one in observations})
    constants = ", ".join(fit.constants)
    note = f"{len(devices)} devices, {len(models)} models ({', '.join(models[:4])}{', ...' if len(models) > 4 else ''})"  # noqa: PLR2004
    source = f"single-stream rates of {', '.join(sources)} (references/measurements)"
    return (
        Evidence(
            constant=constants, source=source, points=len(fit.residuals), residual=round(fit.residual, 3), note=note
        ),
    )


# ---- writing


def write_device(device: str, entries: Sequence[Efficiency]) -> None:
    """Put the entries into the block ``efficiency:`` of a device's file, one of them marked as the default."""
    path = next(DATABASE.glob(f"*/{device}.yaml"))
    plain = [entry for entry in entries if entry.format == "bf16"]
    first = next((entry for entry in entries if entry.default), (*plain, *entries)[0])
    marked = [entry.model_copy(update={"default": entry is first}) for entry in entries]
    block = "efficiency:\n" + "".join(f"  - {indented(dump(entry), 4)}" for entry in marked)
    text = path.read_text(encoding="utf-8")
    if BLOCK.search(text):
        write(path, BLOCK.sub(lambda _: block, text, count=1))
        return
    place = re.search(r"^(sources|notes):", text, re.MULTILINE)
    cut = len(text) if place is None else place.start()
    write(path, text[:cut] + block + text[cut:])


def write(path: Path, text: str) -> None:
    """Write a file."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
