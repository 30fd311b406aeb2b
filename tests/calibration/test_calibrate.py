"""Calibrating a device from files: kernel rows first and frozen, nothing lost in silence, and a file that works."""

import sys

import numpy as np
import pandas as pd
import pytest
import yaml

from rooflinekit import Deployment, InvalidInputError, SpecError, UnknownNameError, load_device
from rooflinekit.calibration import calibrate, read_table
from rooflinekit.calibration.calibrate import ALONE, complete
from rooflinekit.calibration.entries import GB10_FREE
from rooflinekit.calibration.fit import constant, most, with_constants
from rooflinekit.calibration.inputs import stem
from rooflinekit.calibration.kernels import kernel_observations
from rooflinekit.calibration.ordered import trace_free
from rooflinekit.calibration.references import FOLDER, gb10_trace
from rooflinekit.calibration.writing import device_yaml, explain
from rooflinekit.errors import CalibrationError
from rooflinekit.phases.resolve import resolve_laws
from rooflinekit.roofline.laws import Laws

CARD = "h200-sxm"
H200 = load_device(CARD)
#: What the synthetic card does: every constant of this is to come back from files.
TRUTH = complete(resolve_laws(H200, None, "bf16", "calibrated").chain)
TRUTH = with_constants(
    TRUTH.model_copy(update={"name": "truth"}),
    {
        name: [name]
        for name in (
            *(f"products.bf16.{field}" for field in ("compute", "memory", "launch_us")),
            *(f"attention.{field}" for field in ("compute", "memory", "launch_us")),
            *("gap_us", "burst_ms", "sustained", "norm.memory"),
        )
    },
    [0.72, 0.83, 4.5, 0.72, 0.80, 9.0, 0.6, 9.0, 0.8, 0.55],
)
GEMM = pd.DataFrame(
    [
        (m, n, k)
        for n, k in ((4096, 4096), (24576, 4096), (4096, 12288), (1024, 2048))
        for m in (1, 32, 256, 1024, 8192)
    ],
    columns=["m", "n", "k"],
)
HEADS = {"heads": 32, "kv_heads": 8, "head_dim": 128}
ATTENTION = pd.DataFrame(
    [("attn_decode", batch, 1, held) for batch in (1, 8, 64) for held in (64, 1024, 8192, 32768)]
    + [("attn_prefill", 1, new, new) for new in (128, 512, 2048, 8192, 16384)],
    columns=["op", "batch", "query_tokens", "kv_tokens"],
).assign(**HEADS)
STEPS = pd.DataFrame(
    [("decode", batch, None, held) for batch in (1, 8, 64) for held in (16, 2048, 16384)]
    + [("prefill", 1, prompt, None) for prompt in (64, 1024, 4096, 16384, 32768)],
    columns=["phase", "batch", "prompt_tokens", "context_tokens"],
)


def timed(table, tmp_path, name):
    """Write a table of kernels with the seconds that the truth gives."""
    path = tmp_path / name
    table.assign(seconds=1.0).to_csv(path, index=False)
    alone = TRUTH.model_copy(update=ALONE)
    seen = kernel_observations(read_table(path), H200)
    table.assign(seconds=seen.predicted_s(Laws((alone,), "own"))).to_csv(path, index=False)
    return path


def stepped(tmp_path, table=STEPS, *, model="qwen3-8b", name="steps.csv", factor=1.0, entry=TRUTH):
    """Write whole steps with the seconds that the truth gives; a decode row's context holds the new token."""
    card = Deployment(model, CARD, efficiency=entry, memory_check=False)
    times = [
        card.decode(context_tokens=line.context_tokens - 1, batch=line.batch).time_s
        if line.phase == "decode"
        else card.prefill(prompt_tokens=line.prompt_tokens, batch=line.batch).time_s
        for line in table.itertuples()
    ]
    path = tmp_path / name
    table.assign(model=model, seconds=np.array(times, dtype=float) * factor).to_csv(path, index=False)
    return path


@pytest.fixture
def kernels(tmp_path):
    """Write tables of products and attention of the synthetic card."""
    return [timed(GEMM.assign(dtype="bf16"), tmp_path, "gemm.csv"), timed(ATTENTION, tmp_path, "attention.csv")]


# ---- constants come back


@pytest.mark.parametrize(
    "name", ["products.bf16.compute", "products.bf16.memory", "products.bf16.launch_us", "attention.memory"]
)
def test_kernel_files_give_the_constants_of_the_card(kernels, name):
    """Products and attention of a card that differs from the shipped entry: its constants, to 1%."""
    found = calibrate(CARD, kernels)
    assert constant(found.efficiency, name) == pytest.approx(constant(TRUTH, name), rel=1e-2)
    assert found.points == len(GEMM) + len(ATTENTION)
    assert not found.skipped


def test_small_kernels_are_fitted_by_class(tmp_path):
    """A table of one class leaves the other three alone."""
    rows = pd.DataFrame(
        {"kernel": "add_rmsnorm", "tokens": [1, 16, 256, 4096], "bytes_moved": [4e4, 64e4, 1024e4, 16384e4]}
    )
    found = calibrate(CARD, [timed(rows, tmp_path, "small.csv")])
    assert found.efficiency.norm.memory == pytest.approx(0.55, rel=1e-2)
    assert {row["constant"] for row in found.rows()} == {"norm.memory", "norm.launch_us"}


def test_steps_beside_kernels_fit_the_power_limit_and_the_gap_alone(kernels, tmp_path):
    """What no kernel row shows comes from steps; what one shows is frozen."""
    found = calibrate(CARD, [*kernels, stepped(tmp_path)])
    assert set(found.fits[-1].constants) == {"gap_us", "burst_ms", "sustained"}
    for name, tolerance in (("gap_us", 0.05), ("burst_ms", 0.05), ("sustained", 0.01)):
        assert constant(found.efficiency, name) == pytest.approx(constant(TRUTH, name), rel=tolerance)


def test_no_step_moves_a_constant_of_a_kernel(kernels, tmp_path):
    """Steps that are 15% slower than their kernels change the pauses between, never the kernels."""
    alone = calibrate(CARD, kernels).efficiency
    beside = calibrate(CARD, [*kernels, stepped(tmp_path, factor=1.15)]).efficiency
    assert beside.products == alone.products
    assert beside.attention == alone.attention


def test_a_power_limit_that_no_step_shows_is_not_invented(kernels, tmp_path):
    """Decode steps say nothing of it: the nearest entry's stays, and nothing is fitted."""
    found = calibrate(CARD, [*kernels, stepped(tmp_path, STEPS[STEPS["phase"] == "decode"])])
    assert set(found.fits[-1].constants) == {"gap_us"}
    nearest = H200.efficiency[0]
    assert (found.efficiency.burst_ms, found.efficiency.sustained) == (nearest.burst_ms, nearest.sustained)


def test_steps_alone_fit_what_they_determine(tmp_path):
    """Without kernels the nearest entry is the prior; predictions come to 3% of the steps."""
    limit = {"burst_ms": H200.efficiency[0].burst_ms, "sustained": H200.efficiency[0].sustained, "gap_us": 0.0}
    path = stepped(tmp_path, entry=TRUTH.model_copy(update=limit))
    found = calibrate(CARD, [path])
    assert {"products.bf16.memory", "products.bf16.compute", "attention.memory"} <= set(found.fits[0].constants)
    assert found.fits[0].residual < 0.03
    assert found.efficiency.products.bf16.memory == pytest.approx(0.83, rel=0.05)


def test_rates_are_read_too(tmp_path):
    """Single-stream rates of one model on a card that has no entry of its own."""
    card = Deployment("qwen3-8b", CARD, efficiency=TRUTH)
    rates = pd.DataFrame(
        {
            "reading": ["decode_rate", "decode_rate", "prefill_rate"],
            "held_tokens": [0, 16384, 0],
            "prompt_tokens": [0, 0, 1024],
        }
    )
    values = [1 / card.decode(0).time_s, 1 / card.decode(16384).time_s, 1024 / card.prefill(1024).time_s]
    rates.assign(value=values).to_csv(tmp_path / "rates.csv", index=False)
    found = calibrate(CARD, [tmp_path / "rates.csv"], model="qwen3-8b", weights="bf16", engine="vllm")
    assert found.points == 3
    assert found.efficiency.name == "h200-sxm/vllm/bf16"
    assert found.fits[0].residual < 0.05


def test_the_gb10_trace_gives_the_shipped_entry():
    """The file of kernel classes that ships, to 2%, with the free constants of the shipped fit."""
    found = calibrate("gb10", [FOLDER / "gb10_trace.yaml"], engine="vllm-0.31")
    shipped = next(entry for entry in load_device("gb10").efficiency if entry.engine == "vllm-0.31")
    assert trace_free(gb10_trace(), "bf16") == {fields[0]: list(fields) for fields in GB10_FREE.values()}
    for fields in GB10_FREE.values():
        assert constant(found.efficiency, fields[0]) == pytest.approx(constant(shipped, fields[0]), rel=2e-2)


def test_the_h200_tables_give_the_shipped_products():
    """The tables that ship, through the public door: the constants of the shipped entry, to 2%."""
    found = calibrate(CARD, [FOLDER / "h200" / "gemm.csv"], engine="pytorch-2.11")
    for name in ("compute", "memory", "launch_us", "exponent"):
        field = f"products.bf16.{name}"
        assert constant(found.efficiency, field) == pytest.approx(constant(H200.efficiency[0], field), rel=2e-2)


# ---- nothing is lost in silence


def test_every_row_is_fitted_or_counted():
    """Rows of the kernel tables that ship: those of one device are fitted, the rest counted by reason."""
    paths = [FOLDER / "kernels" / f"measured_{name}.csv" for name in ("gemm", "attention", "moe")]
    found = calibrate("b300-sxm", paths)
    assert found.points + sum(found.skipped.values()) == sum(len(pd.read_csv(path)) for path in paths)
    assert "of other devices" in found.skipped
    assert any("regime narrow" in reason for reason in found.skipped)


def test_rates_of_other_devices_engines_and_formats_are_counted():
    """Of the public measurements one device's, under one engine and format; all others have their reason."""
    path = FOLDER / "measurements" / "rows.csv"
    found = calibrate("rtx-4090", [path], engine="llama.cpp", weights="q4_k")
    assert found.points + sum(found.skipped.values()) == len(pd.read_csv(path))
    for reason in ("of other devices", "of other engines", "of other formats of the weights"):
        assert found.skipped[reason] > 0
    assert any(reason.startswith("left out by their table: ") for reason in found.skipped)
    assert (found.efficiency.engine, found.efficiency.format) == ("llama.cpp", "q4_k")


def test_one_engine_and_format_an_entry():
    """Rows of several engines, or of several formats, are never fitted together."""
    path = FOLDER / "measurements" / "rows.csv"
    with pytest.raises(InvalidInputError, match=r"^the rows are of several engines \(.*llama\.cpp.*\): choose one"):
        calibrate("rtx-4090", [path])
    with pytest.raises(InvalidInputError, match=r"^the rows are of weights in bf16, q4_k: choose one with weights="):
        calibrate("rtx-4090", [path], engine="llama.cpp")


def test_rows_of_other_models_and_of_several_devices_are_counted(tmp_path):
    """A step of two ranks is no step of one."""
    one, other = stepped(tmp_path), stepped(tmp_path, model="qwen3-4b", name="other.csv")
    found = calibrate(CARD, [one, other, FOLDER / "h200" / "qwen3-8b_tp2_steps.csv"], model="qwen3-8b")
    assert found.skipped == {"of other models": len(STEPS), "of several devices": 24}
    assert found.points == len(STEPS)


def test_of_several_attention_kernels_one_counts():
    """The fastest, or the one that the engine's name ends with; the other's rows are counted."""
    path = FOLDER / "h200" / "attention.csv"
    fastest, named = calibrate(CARD, [path]), calibrate(CARD, [path], engine="pytorch-2.11-flash2")
    assert fastest.skipped == {"of other attention kernels than cudnn": 91}
    assert named.skipped == {"of other attention kernels than flash2": 91}
    assert named.efficiency.attention.memory < 0.8 * fastest.efficiency.attention.memory


def test_versions_and_usual_back_ends_are_one_engine():
    """A back end that is not the usual one is an engine of its own."""
    assert stem("vllm-0.24.0") == stem("vllm") == "vllm"
    assert stem("llama.cpp-cuda") == stem("llama.cpp")
    assert stem("llama.cpp-vulkan") == "llama.cpp-vulkan"


# ---- what is said


def test_each_constant_has_its_evidence(kernels):
    """Source, points, residual and the direct measurement; a difference above 10% is explained."""
    found = calibrate(CARD, kernels)
    for row in found.efficiency.evidence:
        if row.points:
            assert row.source in ("gemm.csv", "attention.csv")
            assert row.residual is not None
    told = {row["constant"]: row for row in found.rows()}
    compute = told["products.bf16.compute"]
    assert compute["direct_share"] == pytest.approx(0.978, abs=0.01)
    assert compute["note"]
    assert compute["points"] == len(GEMM)
    assert 0 < compute["uncertainty_share"] < 0.05
    assert found.efficiency.fitted_on == f"{found.points} rows of gemm.csv, attention.csv"
    assert explain(0.9, 0.95) == explain(0.9, None) == ""
    assert explain(1.0, 0.8) != explain(0.6, 0.8) != ""


def test_the_report_names_what_is_open_and_the_run_to_add(tmp_path):
    """Three decode runs at one context: K and V are not told from weights, and the run at 16k tokens is asked for."""
    same = pd.DataFrame({"phase": "decode", "batch": 1, "prompt_tokens": None, "context_tokens": [2048, 2049, 2050]})
    told = " / ".join(map(str, calibrate(CARD, [stepped(tmp_path, same)]).weaknesses))
    assert "these measurements cannot separate attention.memory from products.bf16.memory" in told
    assert "add one decode run at 16k tokens of context" in told


def test_laws_that_no_row_shows_are_left_where_they_are(kernels, tmp_path):
    """A law of the generation is not copied into the entry; one of the device's own stays, and says from where."""
    slower = pd.read_csv(kernels[0])
    slower.assign(seconds=slower["seconds"] * 16).to_csv(tmp_path / "l4.csv", index=False)
    found = calibrate("l4", [tmp_path / "l4.csv"]).efficiency
    assert found.products.bf16 is not None
    assert found.norm is found.attention is found.mixtures.bf16 is None
    own = calibrate(CARD, kernels).efficiency
    assert own.norm == H200.efficiency[0].norm
    assert any("norm" in row.constant and row.source == H200.efficiency[0].name for row in own.evidence)


# ---- a file that works


def test_the_written_device_is_used(kernels, tmp_path):
    """The file holds the shipped facts and the new entry, and a deployment on it predicts by that entry."""
    found = calibrate(CARD, [*kernels, stepped(tmp_path)], engine="pytorch-2.11", name="mine")
    path = found.write(tmp_path / "my_device.yaml")
    card = load_device(path)
    assert (card.id, card.datasheet, card.measured, card.sources) == (
        H200.id,
        H200.datasheet,
        H200.measured,
        H200.sources,
    )
    assert [entry.name for entry in card.efficiency if entry.default] == ["mine"]
    assert len(card.efficiency) == len(H200.efficiency)  # it took the place of the shipped one
    ours, handed = Deployment("qwen3-8b", path), Deployment("qwen3-8b", CARD, efficiency=found.efficiency)
    for ask in (lambda card: card.decode(2048), lambda card: card.prefill(2048)):
        assert ask(ours).time_s == pytest.approx(ask(handed).time_s, rel=1e-3)
        assert ask(ours).time_s == pytest.approx(ask(Deployment("qwen3-8b", CARD, efficiency=TRUTH)).time_s, rel=0.03)


def test_a_file_is_not_overwritten_unless_asked(kernels, tmp_path):
    """Nor written where no YAML file can be."""
    found = calibrate(CARD, kernels[:1])
    path = found.write(tmp_path / "mine.yaml")
    with pytest.raises(InvalidInputError, match=r"mine\.yaml: is there already: .* --force"):
        found.write(path)
    assert found.write(path, overwrite=True) == path
    with pytest.raises(InvalidInputError, match="there is no folder"):
        found.write(tmp_path / "nowhere" / "mine.yaml")
    with pytest.raises(InvalidInputError, match="expected the name of a YAML file"):
        found.write(tmp_path / "mine.txt")


def test_a_written_device_can_be_calibrated_again(kernels, tmp_path):
    """A file of one's own is a device like any other, with rows that name it or none."""
    path = calibrate(CARD, kernels[:1]).write(tmp_path / "mine.yaml")
    again = calibrate(path, [kernels[1], stepped(tmp_path)])
    assert again.efficiency.attention.memory == pytest.approx(0.8, rel=1e-2)


@pytest.mark.parametrize("name", ["gb10", "h200-sxm", "apple-m4-max", "ryzen-ai-max-395", "cpu-ddr5-5600-dual"])
def test_a_device_survives_being_written(name):
    """Facts to the last digit, entries to four; `rooflinekit devices` reads the file as the shipped one."""
    device = load_device(name)
    read = load_device({**yaml.safe_load(device_yaml(device))})
    assert read.model_copy(update={"efficiency": ()}) == device.model_copy(update={"efficiency": ()})
    assert read.efficiency == device.efficiency
    assert device_yaml(read) == device_yaml(device)


# ---- what is refused


def test_steps_below_the_floor_are_refused(tmp_path):
    """Seconds per two steps taken for one, a batch forgotten: nothing is faster than the datasheet."""
    path = stepped(tmp_path, STEPS[STEPS["phase"] == "decode"], factor=0.4)
    told = r"steps\.csv, line \d+: .* s is below the floor of .* s on h200-sxm: a counting or data fault"
    with pytest.raises(CalibrationError, match=told):
        calibrate(CARD, [path])


def test_passes_that_no_physical_constant_meets_are_refused(tmp_path):
    """Above the floor, yet faster than launches and any rate up to the peak allow: a fault, not a calibration."""
    decode = STEPS[(STEPS["phase"] == "decode") & (STEPS["batch"] == 1)]
    path = stepped(tmp_path, decode, model="qwen3-0.6b", factor=0.45, entry=TRUTH.model_copy(update={"gap_us": 0.0}))
    with pytest.raises(CalibrationError, match=r"at the most that the datasheet and direct .* are left over"):
        calibrate(CARD, [path])


def test_kernels_that_are_too_fast_are_refused(tmp_path):
    """Products timed at twice their rate, as when a dtype or a unit is taken for another."""
    path = timed(GEMM.assign(dtype="bf16"), tmp_path, "gemm.csv")
    table = pd.read_csv(path)
    table.assign(seconds=table["seconds"] / 2).to_csv(path, index=False)
    with pytest.raises(CalibrationError, match=r"^h200-sxm products\.bf16\.\w+: .* a counting or data fault"):
        calibrate(CARD, [path])


def test_limits_are_the_datasheet_and_the_direct_measurement():
    """A GB10 reads 241 of 273 GB/s: no stream of weights may come to more than a tenth above."""
    gb10 = load_device("gb10")
    assert most("products.bf16.memory", gb10) == pytest.approx(1.1 * 241 / 273)
    assert most("attention.compute", gb10) == 1.0
    assert most("gap_us", gb10) == np.inf


STEP, RATE = "model,phase,batch,prompt_tokens,context_tokens,seconds\n", "reading,value,model,weights\n"
PRODUCT = "m,n,k,seconds\n"
BAD = [
    # text of the file, part of the message
    (f"{PRODUCT}1,4096,4096,-1\n", r"bad\.csv, line 2: seconds = -1: expected a number above 0"),
    (f"{PRODUCT}1,4096,4096,1e-5\n0,4096,4096,1e-5\n", r"bad\.csv, line 3: new_tokens = 0"),
    (f"{PRODUCT}1,4096,4096,\n", r"line 2: seconds = nan"),
    (f"{PRODUCT}1,4096,4096,fast\n", r"line 2: seconds = fast"),
    ("m,n,k\n1,4096,4096\n", r"bad\.csv: has no column 'seconds': add it"),
    ("speed\n7\n", r"bad\.csv: its columns are speed; expected a table with one of these sets: m, n, k;"),
    ("", r"bad\.csv: expected a CSV table of measured times"),
    (PRODUCT, r"bad\.csv: no row to calibrate h200-sxm with: the files hold no row"),
    (f"{PRODUCT}1,64,64,1e-5\n", r"no row that a fit can use: 1 product rows that .* \(bf16, regime narrow\)"),
    (f"{STEP}qwen3-8b,decode,1,,0,0.01\n", r"line 2: context_tokens = 0"),
    (f"{STEP}qwen3-8b,prefill,1,,,0.01\n", r"line 2: prompt_tokens = nan"),
    (f"{STEP}qwen3-8b,verify,1,,5,0.01\n", r"line 2: phase = verify: expected one of prefill, decode"),
    (f"{STEP},decode,1,,5,0.01\n", r"line 2: names no model: add a column `model`, or name it with model="),
    (f"{RATE}decode_speed,5,qwen3-8b,\n", r"line 2: reading = decode_speed: expected one of decode_rate"),
    (f"{RATE}prefill_rate,5,qwen3-8b,\n", r"line 2: prompt_tokens = missing"),
    (f"{RATE}decode_rate,5,qwen3-8b,q9\n", r"weights='q9' is not known"),
    ("gpu,m,n,k,seconds\nb200_sxm,1,4096,4096,1e-5\n", r"no row to calibrate h200-sxm with: 1 of other devices"),
]


@pytest.mark.parametrize(("text", "message"), BAD, ids=[message for _, message in BAD])
def test_a_bad_file_is_an_error_of_one_line(tmp_path, text, message):
    """File, line, what was found and what was expected."""
    path = tmp_path / "bad.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InvalidInputError, match=message) as told:
        calibrate(CARD, [path])
    assert "\n" not in str(told.value)


def test_what_is_no_file_or_device_is_named(tmp_path):
    """Nothing to read is as wrong as nothing in it."""
    with pytest.raises(InvalidInputError, match=r"nowhere\.csv: expected a CSV table"):
        calibrate(CARD, [tmp_path / "nowhere.csv"])
    with pytest.raises(SpecError, match=r"nowhere\.yaml: cannot be read"):
        calibrate(CARD, [tmp_path / "nowhere.yaml"])
    with pytest.raises(InvalidInputError, match=r"^no file: no row to calibrate"):
        calibrate(CARD, [])
    with pytest.raises(UnknownNameError, match="did you mean h200-sxm"):
        calibrate("h200-sxn", [])


def test_a_trace_of_another_device_or_model_is_counted():
    """The GB10's kernel classes say nothing of an H200."""
    path = FOLDER / "gb10_trace.yaml"
    with pytest.raises(InvalidInputError, match="no row to calibrate h200-sxm with: 8 of other devices"):
        calibrate(CARD, [path])
    with pytest.raises(InvalidInputError, match="no row to calibrate gb10 with: 8 of other models"):
        calibrate("gb10", [path], model="qwen3-4b")


def test_without_scipy_the_remedy_is_named(monkeypatch):
    """A fit needs an extra, and says which."""
    monkeypatch.setattr(sys.modules[complete.__module__], "find_spec", lambda _: None)
    with pytest.raises(InvalidInputError, match=r"pip install 'rooflinekit\[calibrate\]'"):
        calibrate(CARD, [])
