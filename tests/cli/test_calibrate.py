"""`rooflinekit calibrate`: constants with their uncertainty, what they leave open, and a device file that works."""

import csv
import io
import json

import pytest

import rooflinekit as rk
from rooflinekit.calibration.references import FOLDER

TRACE = str(FOLDER / "gb10_trace.yaml")
GEMM = str(FOLDER / "h200" / "gemm.csv")
STEPS = str(FOLDER / "h200" / "qwen3-8b_steps.csv")


def test_the_table_shows_constants_beside_direct_measurements(rooflinekit):
    """Value, uncertainty, points, residual, direct measurement; below, what the rows leave open."""
    result = rooflinekit(["calibrate", "gb10", TRACE, "--engine", "vllm-0.31"])
    assert (result.exit_code, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert lines[0] == "gb10/vllm-0.31/bf16: fitted on 8 rows"
    assert lines[1].split("  ")[0] == "constant"
    compute = next(line for line in lines if line.startswith("products.bf16.compute")).split()
    assert compute == ["products.bf16.compute", "72.5%", "2.0%", "8", "1.1%", "75.2%"]
    assert any(line.startswith("these measurements cannot determine attention.softmax") for line in lines)


def test_rows_that_are_not_used_are_counted(rooflinekit):
    """By reason, the most frequent first."""
    path = str(FOLDER / "h200" / "attention.csv")
    lines = rooflinekit(["calibrate", "h200-sxm", path]).stdout.splitlines()
    assert "91 rows are not used:" in lines
    assert "  91 of other attention kernels than cudnn" in lines


@pytest.mark.parametrize("form", ["json", "csv"])
def test_a_program_gets_full_precision(rooflinekit, form):
    """The same rows unrounded; remarks go to stderr."""
    result = rooflinekit(["calibrate", "gb10", TRACE, "--format", form])
    read = json.loads if form == "json" else lambda text: list(csv.DictReader(io.StringIO(text)))
    rows = {row["constant"]: row for row in read(result.stdout)}
    assert float(rows["products.bf16.compute"]["value"]) == pytest.approx(0.7248, rel=0.01)
    assert "cannot determine" in result.stderr


def test_a_written_device_is_a_device(rooflinekit, tmp_path):
    """The file goes wherever a device's name does; it is not overwritten without being asked."""
    path = tmp_path / "my_device.yaml"
    line = ["calibrate", "h200-sxm", GEMM, STEPS, "--engine", "pytorch-2.11", "--name", "mine", "--write", str(path)]
    result = rooflinekit(line)
    assert result.exit_code == 0, result.stderr
    assert f"written to {path}" in result.stdout
    card = rk.Deployment("qwen3-8b", str(path))
    assert card.decode(2048).time_s == pytest.approx(
        rk.Deployment("qwen3-8b", "h200-sxm").decode(2048).time_s, rel=0.05
    )
    assert "bf16 KV, mine" in rooflinekit(["estimate", "qwen3-8b", str(path)]).stdout
    again = rooflinekit(line)
    assert (again.exit_code, again.stderr.count("\n")) == (2, 1)
    assert "is there already" in again.stderr
    assert rooflinekit([*line, "--force"]).exit_code == 0


def test_a_device_from_standard_input(rooflinekit, tmp_path):
    """A card that no catalogue has: its facts and its rows."""
    rows = "m,n,k,seconds\n" + "".join(
        f"{m},8192,8192,{t}\n" for m, t in ((1, 3e-4), (16, 3.1e-4), (512, 1e-3), (4096, 7e-3))
    )
    path = tmp_path / "rows.csv"
    path.write_text(rows, encoding="utf-8")
    card = "bandwidth_gb_per_s: 600\nmemory_gib: 48\npeak_dense_tflops: {bf16: 120}\n"
    result = rooflinekit(["calibrate", "-", str(path)], card)
    assert result.exit_code == 0, result.stderr
    assert "products.bf16.memory" in result.stdout


# fmt: off
BAD = [
    (["h200-sxm", "nowhere.csv"],                         "nowhere.csv: expected a CSV table of measured times"),
    (["h200-sxm", "nowhere.yaml"],                        "nowhere.yaml: cannot be read"),
    (["h200-sxn", GEMM],                                  "h200-sxn is not in hardware_db; did you mean h200-sxm"),
    (["gb10", GEMM],                                      "gb10 products.bf16."),  # an H200's rows: a fault
    (["h200-sxm", TRACE],                                 "no row to calibrate h200-sxm with: 8 of other devices"),
    (["h200-sxm"],                                        "Missing argument 'FILE...'"),
    (["h200-sxm", STEPS, "--weights", "fp7"],             "--weights='fp7' is not known"),
    (["h200-sxm", STEPS, "--model", "qwen3-8c"],          "qwen3-8c is not in model_configs; did you mean"),
    (["h200-sxm", STEPS, "--write", "nowhere/mine.yaml"], "nowhere/mine.yaml: there is no folder"),
    (["h200-sxm", STEPS, "--write", "mine.txt"],          "mine.txt: expected the name of a YAML file"),
    (["h200-sxm", STEPS, "--format", "xml"],              "--format='xml' is not known"),
]
# fmt: on


@pytest.mark.parametrize(("line", "part"), BAD, ids=[part for _, part in BAD])
def test_bad_input_is_one_line(rooflinekit, line, part):
    """Exit status 2, and what was found and expected."""
    result = rooflinekit(["calibrate", *line])
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1].startswith("rooflinekit: error: ")
    assert part in result.stderr
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1


def test_a_column_of_text_is_one_line(rooflinekit, tmp_path):
    """Latencies with a unit behind them are named."""
    path = tmp_path / "rows.csv"
    path.write_text("m,n,k,latency_us\n1,4096,4096,12us\n", encoding="utf-8")
    result = rooflinekit(["calibrate", "h200-sxm", str(path)])
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert "rows.csv" in result.stderr
