"""Measurements and what they are compared with, as rows of tables: records, passes, kernels, symptoms and causes."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

from rooflinekit import units
from rooflinekit.calibration.compare import Comparison, line
from rooflinekit.calibration.compare_kernels import Family, KernelComparison, kernel_line
from rooflinekit.calibration.deviations import Symptom
from rooflinekit.calibration.diagnose import Diagnosis
from rooflinekit.calibration.symptoms import WORDS
from rooflinekit.measurements import Measurement, Reading

Rows = list[dict[str, Any]]

#: Columns for eyes; a column that is empty throughout is not shown.
RECORDS = (
    "quantity", "value", "share", "statistic", "name", "phase", "count", "batch", "prompt_tokens", "output_tokens",
    "context_tokens", "cached_tokens", "includes", "line",
)  # fmt: skip
PASSES = (
    "file", "quantity", "statistic", "batch", "prompt_tokens", "output_tokens", "context_tokens", "measured_s",
    "predicted_s", "floor_s", "error", "mfu", "mbu", "reading",
)  # fmt: skip
KERNELS = ("kernel", "family", "launches", "counted_as", "listed_s", "explained_s", "rest_s", "operators")
FAMILIES = ("family", "pass", "listed_s", "share", "flops_per_s", "of_arithmetic", "bytes_per_s", "of_memory")
UNLISTED = ("pass", "operator", "launches", "predicted_s")
SYMPTOMS = ("symptom", "observed", "expected", "floor", "deviations", "basis")
CAUSES = ("cause", "explains", "log_odds", "what it would be")

#: A kernel's name holds its template arguments, hundreds of letters of them.
_LONGEST_NAME = 60
#: Part of what is off from which eyes are shown a cause.
_SHOWN = 0.005


def shown(rows: Sequence[Mapping[str, Any]], columns: Iterable[str]) -> list[str]:
    """Choose of some columns those that hold something."""
    return [name for name in columns if any(row.get(name) not in (None, "") for row in rows)]


# ---- what a file holds


def record_rows(reading: Reading, *, eyes: bool) -> Rows:
    """Lay the records out; eyes need neither the word for a single value nor a kernel's template arguments."""
    rows = [_record(one) for one in reading.records]
    if eyes:
        return [{**row, "statistic": _statistic(row), "name": _short(row["name"])} for row in rows]
    kept = shown(rows, rows[0])
    return [{name: row[name] for name in kept} for row in rows]


def _record(one: Measurement) -> dict[str, Any]:
    row = {field.name: getattr(one, field.name) for field in fields(one)}
    return {"quantity": row.pop("quantity"), "value": row.pop("value"), "unit": one.unit, **row}


def _statistic(row: Mapping[str, Any]) -> str:
    return "" if row["statistic"] == "single" else str(row["statistic"])


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 3]}..."


# ---- passes


def pass_rows(comparison: Comparison, file: str = "") -> Rows:
    """Lay records and their predictions out; a measurement that no machine can have made says so."""
    rows = [{"file": file, **line(row)} for row in comparison.rows]
    return [{**row, "reading": _fault(row) + str(row["reading"])} for row in rows]


def _fault(row: Mapping[str, Any]) -> str:
    return "FASTER THAN THE FLOOR, a measuring fault: " if row["below_floor"] else ""


# ---- kernels


def kernel_rows(comparison: KernelComparison, *, eyes: bool = False) -> Rows:
    """Lay the listed kernels out, and their sum."""
    rows = [kernel_line(one) for one in comparison.matched]
    if not eyes:
        return rows
    total = {
        "kernel": "all listed", "listed_s": comparison.listed_s, "explained_s": comparison.predicted_s,
        "rest_s": comparison.listed_s - comparison.predicted_s,
        "operators": f"{comparison.named_share:.1%} of the time in kernels with an operator",
    }  # fmt: skip
    return [*({**row, "kernel": _short(str(row["kernel"]))} for row in rows), total]


def family_rows(comparison: KernelComparison) -> Rows:
    """Lay families of kernels out with the rates that the model's counts give them, and the parts of the ceilings."""
    return [_family(one) for one in comparison.families]


def _family(one: Family) -> dict[str, Any]:
    rates = {
        "flops_per_s": one.flops_per_s, "of_arithmetic": one.of_compute,
        "bytes_per_s": one.bytes_per_s, "of_memory": one.of_memory,
    }  # fmt: skip
    return {
        "family": one.name, "pass": one.passes, "listed_s": one.listed_s, "share": one.share,
        "predicted_s": one.predicted_s, **rates, "ceilings": one.ceilings.described,
        "ceiling_flops_per_s": one.ceilings.flops_per_s, "ceiling_bytes_per_s": one.ceilings.bytes_per_s,
    }  # fmt: skip


def unlisted_rows(comparison: KernelComparison) -> Rows:
    """Lay out the operators that no listed kernel computes, the longest first."""
    parts = sorted(comparison.unlisted, key=lambda part: -part.seconds)
    return [
        {"pass": part.passes, "operator": part.operator, "launches": part.launches, "predicted_s": part.seconds}
        for part in parts
    ]


def ceilings(comparison: KernelComparison) -> str:
    """Say what the families are parts of."""
    if not comparison.families:
        return "no family of kernels stands for an operator"
    found = comparison.families[0].ceilings
    rates = f"{units.si(found.flops_per_s, 'FLOP/s')} and {units.si(found.bytes_per_s, 'B/s')}"
    return f"families, and their parts of the {found.described} ceilings, {rates}"


def unlisted(comparison: KernelComparison) -> str:
    """Say how much the file does not list, by its own shares and by the model."""
    said = f"not listed: the model puts {units.duration(comparison.unlisted_s)} there"
    if comparison.left_out_s is None:
        return said
    whole = comparison.listed_s + comparison.left_out_s
    part = f"{comparison.left_out_s / whole:.1%} ({units.duration(comparison.left_out_s)})"
    return f"{said}; the file's own shares leave out {part} of {units.duration(whole)}"


# ---- a diagnosis


def symptom_rows(diagnosis: Diagnosis) -> Rows:
    """Lay the arithmetic of a diagnosis out."""
    return [_symptom(one) for one in diagnosis.symptoms]


def _symptom(one: Symptom) -> dict[str, Any]:
    name, unit = WORDS.get(one.name, (one.name, ""))
    return {
        "symptom": name, "observed": one.observed, "expected": one.expected, "floor": one.floor or None,
        "deviations": one.deviations, "basis": one.basis, "unit": unit,
    }  # fmt: skip


def cause_rows(diagnosis: Diagnosis, *, most: int | None = None) -> Rows:
    """Lay the causes out, the likeliest first; eyes see those that explain anything."""
    found = [one for one in diagnosis.findings if most is None or one.explains > _SHOWN][:most]
    return [
        {"cause": one.cause, "explains": one.explains, "log_odds": one.log_odds, "what it would be": one.told}
        for one in found
    ]


def document(diagnosis: Diagnosis) -> dict[str, Any]:
    """Give all of a diagnosis, for programs."""
    return {
        "verdict": diagnosis.verdict, "cause": diagnosis.cause, "symptoms": symptom_rows(diagnosis),
        "causes": [asdict(one) for one in diagnosis.findings], "change": diagnosis.change,
        "measurement": diagnosis.measurement,
    }  # fmt: skip
