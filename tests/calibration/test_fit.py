"""Fitting: the shipped GB10 constants come out of the trace's kernel rows, and out of nothing else."""

from importlib.resources import files
from pathlib import Path

import pytest

from rooflinekit import Deployment, InvalidInputError, SpecError
from rooflinekit.calibration.fit import KernelRow, fit_efficiency, load_kernels

TRACE = Path(str(files("rooflinekit"))) / "references" / "gb10_trace.yaml"
TABLE = load_kernels(TRACE)
GB10 = Deployment(TABLE.model, TABLE.device)
SHIPPED = GB10.device.efficiency[0]
#: What was free in the shipped fit; every other constant was frozen.
FREE = {
    "products.compute": ["products.bf16.compute"],
    "products.memory": ["products.bf16.memory"],
    "attention.activation": ["attention.activation"],
    "attention.launch_us": ["attention.launch_us"],
    "norm.memory": ["norm.memory", "rotary.memory", "cache_write.memory"],
    "activation.memory": ["activation.memory"],
}


def get(efficiency, field):
    """Read a constant by its dotted name."""
    for part in field.split("."):
        efficiency = getattr(efficiency, part)
    return efficiency


def changed(factor):
    """Return the shipped entry with every free constant moved by a factor."""
    data = SHIPPED.model_dump()
    for fields in FREE.values():
        for field in fields:
            *path, last = field.split(".")
            place = data
            for part in path:
                place = place[part]
            place[last] *= factor
    return type(SHIPPED).model_validate(data)


@pytest.fixture(scope="module")
def refit():
    """Fit the trace's rows from a start that is 20% off."""
    return fit_efficiency(GB10, TABLE.rows, changed(0.8), FREE)


@pytest.mark.parametrize("constant", FREE)
def test_the_trace_gives_the_shipped_constants(refit, constant):
    """Each constant of the shipped entry is what the kernel rows determine, to half a percent, from another start."""
    for field in FREE[constant]:
        assert get(refit.efficiency, field) == pytest.approx(get(SHIPPED, field), rel=5e-3)
    assert refit.constants[constant] == get(refit.efficiency, FREE[constant][0])


def test_frozen_constants_stay(refit):
    """What is not free is not touched."""
    freed = {field for fields in FREE.values() for field in fields}
    for field in ("products.bf16.launch_us", "attention.compute", "attention.memory", "norm.launch_us"):
        assert field not in freed
        assert get(refit.efficiency, field) == get(SHIPPED, field)


def test_residuals_are_what_the_entry_says(refit):
    """The two kernel names of the decode products are left over at +7.5% and -22.5%; the rest fits."""
    left = refit.residuals
    assert left["decode matrix-vector products of the first name"] == pytest.approx(0.075, abs=0.01)
    assert left["decode matrix-vector products of the second name"] == pytest.approx(-0.225, abs=0.03)
    others = [value for name, value in left.items() if "matrix-vector" not in name]
    assert max(map(abs, others)) < 0.03


def test_no_total_is_among_the_rows():
    """Only kernel classes are fitted on: no row spans a whole pass, and the rows of a phase stay below its total."""
    published = {"prefill": 0.412, "decode": 64 * 0.0746}
    for phase, total in published.items():
        rows = [row for row in TABLE.rows if row.phase == phase]
        assert max(row.seconds for row in rows) < 0.8 * total
        assert sum(row.seconds for row in rows) < total
    covered = {name for row in TABLE.rows for name in row.operators}
    assert not any(covered <= set(row.operators) for row in TABLE.rows)
    words = " ".join(row.name for row in TABLE.rows)
    assert not any(word in words for word in ("total", "pass", "step", "TTFT", "prefill", "whole"))


def test_every_fitted_constant_has_its_evidence():
    """The shipped entry says for each constant where it is from, frozen or fitted."""
    named = {evidence.constant for evidence in SHIPPED.evidence}
    assert {field for fields in FREE.values() for field in fields} <= named
    assert all(evidence.source for evidence in SHIPPED.evidence)


def synthetic(truth):
    """Rows of kernel times that an efficiency gives exactly."""
    d = GB10.with_(efficiency=truth)
    rows = []
    for phase, size in (("prefill", 64), ("prefill", 512), ("prefill", 4000), ("decode", 100), ("decode", 9000)):
        key = "prompt_tokens" if phase == "prefill" else "context_tokens"
        for operator in ("gate_up_proj", "o_proj", "attention", "silu_mul", "block_norm", "qk_norm_rotary", "kv_write"):
            row = KernelRow(name=f"{operator} {size}", phase=phase, operators=(operator,), seconds=1, **{key: size})
            rows.append(row.model_copy(update={"seconds": row.predicted_s(d)}))
    return rows


def test_synthetic_constants_are_recovered():
    """From rows that an entry gives exactly, the fit finds that entry, starting elsewhere."""
    truth = changed(0.7)
    found = fit_efficiency(GB10, synthetic(truth), SHIPPED, FREE)
    for fields in FREE.values():
        for field in fields:
            assert get(found.efficiency, field) == pytest.approx(get(truth, field), rel=1e-4)
    assert max(map(abs, found.residuals.values())) < 1e-4


def test_a_fraction_never_leaves_its_range():
    """Rows faster than the datasheet press a constant against 1 and no further: a fault to be seen, not a result."""
    rows = [row.model_copy(update={"seconds": row.seconds / 3}) for row in TABLE.rows]
    found = fit_efficiency(GB10, rows, SHIPPED, FREE)
    fractions = [value for name, value in found.constants.items() if not name.endswith("launch_us")]
    assert max(fractions) == pytest.approx(1, abs=1e-3)
    assert max(fractions) <= 1
    assert found.constants["attention.launch_us"] >= 0


def test_too_few_rows_are_an_error():
    """Six constants are not determined by five rows."""
    with pytest.raises(InvalidInputError, match=r"^5 rows cannot determine 6 constants: add rows, or free fewer$"):
        fit_efficiency(GB10, TABLE.rows[:5], SHIPPED, FREE)


def test_shares_and_steps_scale_a_prediction():
    """A row of half the launches over ten steps predicts five times the operator's time."""
    row = KernelRow(name="x", phase="decode", context_tokens=100, operators=("o_proj",), steps=10, share=0.5, seconds=1)
    assert row.predicted_s(GB10) == pytest.approx(5 * GB10.decode(100).operator("o_proj").time_s, rel=1e-12)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"phase": "prefill", "seconds": 1, "operators": ["o_proj"]}, "prompt_tokens"),
        ({"phase": "decode", "seconds": 1, "operators": ["o_proj"]}, "context_tokens"),
        ({"phase": "decode", "context_tokens": 5, "seconds": 0, "operators": ["o_proj"]}, "seconds"),
        ({"phase": "decode", "context_tokens": 5, "seconds": 1, "operators": []}, "operators"),
        ({"phase": "decode", "context_tokens": 5, "seconds": 1, "operators": ["o_proj"], "share": 2}, "share"),
        ({"phase": "verify", "context_tokens": 5, "seconds": 1, "operators": ["o_proj"]}, "phase"),
    ],
)
def test_a_bad_row_is_refused(tmp_path, row, message):
    """A row without its size, its time or its operators is an error in one line: no size is taken as nought."""
    path = tmp_path / "rows.yaml"
    text = "\n".join(f"  {key}: {value}" for key, value in {"name": "x", **row}.items()).replace("  name", "- name", 1)
    path.write_text(f"source: s\nmodel: qwen3-8b\ndevice: gb10\nrows:\n{text}\n", encoding="utf-8")
    with pytest.raises(SpecError, match=rf"rows\.yaml: .*{message}"):
        load_kernels(path)


def test_an_operator_that_the_model_lacks_is_named():
    """A row about another model's operator says which operators there are."""
    row = KernelRow(name="x", phase="decode", context_tokens=100, operators=("gelu",), seconds=1)
    with pytest.raises(InvalidInputError, match="no operator 'gelu': this pass has embedding"):
        row.predicted_s(GB10)
