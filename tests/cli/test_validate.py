# ruff: noqa: E501 - a line of an output is one line
"""``rooflinekit validate``: whole outputs on predictions made by hand, and small sets and tables for real."""

import csv
import io
import json
from importlib import import_module

import numpy as np
import pandas as pd
import pytest

from rooflinekit.calibration import validate as sets
from rooflinekit.calibration.references import FOLDER

H200 = FOLDER / "h200"


def lines(result):
    """Return the lines of a command that went well."""
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout.rstrip("\n").split("\n")


def made(name, *, ablate=False):
    """Make six predictions of two models, one of them above its floor."""
    ratios = np.array([1.02, 0.99, 1.01, 0.97, 1.1, 1.3])
    text = {
        "set": name,
        "tier": "own",
        "device": "h200-sxm",
        "engine": "",
        "weights": "bf16",
        "kv_cache": "",
        "op": "",
        "regime": "",
        "id": "",
    }
    numbers = {
        "measured_s": 0.01,
        "predicted_s": 0.01 * ratios,
        "floor_s": [0.005] * 5 + [0.011],
        "log_error": np.log(ratios),
    }
    facts = {
        "model": ["one", "two"] * 3,
        "phase": ["decode"] * 4 + ["prefill"] * 2,
        "mixture": False,
        "bound": "memory",
    }
    sizes = {
        "batch": 1,
        "tokens": np.nan,
        "context": [512, 512, 2048, 2048, np.nan, np.nan],
        "log_std": 0.02 if ablate else 0.03,
    }
    return pd.DataFrame({**text, **facts, **sizes, **numbers})


@pytest.fixture
def by_hand(monkeypatch):
    """Take predictions made by hand for those of every set."""
    monkeypatch.setattr(sets, "predictions", made)


@pytest.mark.usefixtures("by_hand")
def test_one_set_as_a_whole(rooflinekit):
    """A line a phase: errors, bias, floor, intervals, the target and whether it is reached."""
    assert lines(rooflinekit("validate --set h200-steps")) == [
        "set         part     rows  median  p90    bias    below floor  inside  half width  target    verdict",
        "-" * 111,
        "h200-steps  decode      4   1.5%    2.7%   +0.0%            0  100.0%  3.9%        3% / 6%   reached",
        "h200-steps  prefill     2  20.0%   28.0%  +20.0%            1    0.0%  3.9%        5% / 10%  missed: median by",
        " " * 93 + "15.0 points, p90",
        " " * 93 + "by 18.0 points",
        "targets (median / p90): 1 reached, 1 missed",
    ]


@pytest.mark.usefixtures("by_hand")
def test_grouped_as_a_whole(rooflinekit):
    """`--by` groups inside each set and part, the worst first."""
    assert lines(rooflinekit("validate --set h200-steps --by model")) == [
        "h200-steps",
        "part     model  rows  median  p90    bias    below floor  inside  half width",
        "----------------------------------------------------------------------------",
        "decode   two       2   2.0%    2.8%   -2.0%            0  100.0%  3.9%",
        "decode   one       2   1.5%    1.9%   +1.5%            0  100.0%  3.9%",
        "prefill  two       1  30.0%   30.0%  +30.0%            1    0.0%  3.9%",
        "prefill  one       1  10.0%   10.0%  +10.0%            0    0.0%  3.9%",
    ]


@pytest.mark.usefixtures("by_hand")
def test_rows_as_a_whole(rooflinekit):
    """`--rows` prints measured, predicted, error, and whether the floor is violated."""
    title, _, _, first, *_, last = lines(rooflinekit("validate --set h200-steps --rows"))
    assert title == "h200-steps"
    assert first.split() == [
        "decode",
        "h200-sxm",
        "one",
        "bf16",
        "1",
        "-",
        "512",
        "memory",
        "10.0",
        "ms",
        "10.2",
        "ms",
        "+2.0%",
        "kept",
    ]
    assert last.split() == [
        "prefill",
        "h200-sxm",
        "two",
        "bf16",
        "1",
        "-",
        "-",
        "memory",
        "10.0",
        "ms",
        "13.0",
        "ms",
        "+30.0%",
        "violated",
    ]


@pytest.mark.usefixtures("by_hand")
def test_programs_get_one_table_unrounded(rooflinekit):
    """JSON and CSV hold fractions, one table for all sets; remarks go to standard error."""
    rows = json.loads(rooflinekit("validate --set h200-steps --set h200-fp8-steps --format json").stdout)
    assert [row["set"] for row in rows] == ["h200-steps"] * 2 + ["h200-fp8-steps"] * 2
    result = rooflinekit("validate --set h200-steps --format csv")
    first = next(csv.DictReader(io.StringIO(result.stdout)))
    assert float(first["median"]) == pytest.approx(0.015)
    assert result.stderr == "targets (median / p90): 1 reached, 1 missed\n"


@pytest.mark.usefixtures("by_hand")
def test_markdown(rooflinekit):
    """A table of Markdown with the set's name above it."""
    text = lines(rooflinekit("validate --set h200-steps --by phase --format markdown"))
    assert text[0] == "### h200-steps"
    assert text[2].startswith("| part | phase | rows |")


@pytest.mark.usefixtures("by_hand")
def test_leave_one_device_out(rooflinekit):
    """Only the sets that hold devices out, device by device."""
    shown = lines(rooflinekit("validate --leave-one-device-out"))
    assert [line for line in shown if line in sets.SETS] == ["kernels-left-out", "streams-left-out"]
    assert any("h200-sxm" in line for line in shown)


def test_without_totals_nothing_is_left_in_silence(rooflinekit):
    """A set that is fitted on whole steps alone says so."""
    shown = lines(rooflinekit("validate --set h200-llama.cpp --set gb10-trace --ablate totals"))
    assert shown[-1] == "h200-llama.cpp: nothing left without totals"
    assert any(line.startswith("gb10-trace") and line.endswith("reached") for line in shown)


def test_ablation_refits(rooflinekit):
    """H200 steps without the power limit that steps show: the same table, other figures."""
    with_, without = (
        rooflinekit(f"validate --set h200-mixed-steps --format json{more}") for more in ("", " --ablate totals")
    )
    first, second = (json.loads(result.stdout)[0] for result in (with_, without))
    assert first.keys() == second.keys()
    assert first["rows"] == second["rows"]
    assert first["median"] != second["median"]


def test_the_page(rooflinekit, tmp_path):
    """`--html` writes one file with tables, the worst rows and the picture."""
    path = tmp_path / "page.html"
    assert (
        lines(rooflinekit(["validate", "--set", "h200-steps", "--by", "model", "--html", str(path)]))[-1]
        == f"written to {path}"
    )
    text = path.read_text(encoding="utf-8")
    for part in (
        "By set and part",
        "h200-steps, by model",
        "h200-steps: the worst ten",
        "Faster than the floor",
        "data:image/png",
    ):
        assert part in text


OWN = [
    # file                                          options                part                              at most
    (H200 / "gemm.csv",                             "--device h200-sxm",   "BF16 products",                  0.10),
    (H200 / "qwen3-8b_steps.csv",                   "--device h200-sxm",   "decode",                         0.05),
    (H200 / "attention.csv",                        "--device h200-sxm",   "prefill attention, BF16 cache",  0.50),
    (H200 / "qwen3-8b_mixed_steps.csv",             "--device h200-sxm",   "mixed",                          0.20),
    (FOLDER / "kernels" / "measured_gemm.csv",      "",                    "FP8 products",                   0.15),
]  # fmt: skip


@pytest.mark.parametrize(("path", "more", "part", "at_most"), OWN, ids=[path.stem for path, *_ in OWN])
def test_a_table_of_ones_own(rooflinekit, path, more, part, at_most):
    """Kernels and steps of a CSV file are predicted by the shipped entries, and shown in the same table."""
    result = rooflinekit(f"validate --set {path} {more} --format json")
    assert (result.exit_code, result.stderr) == (0, "")
    found = {row["part"]: row for row in json.loads(result.stdout)}
    assert found[part]["median"] < at_most
    assert found[part]["set"] == path.name


def test_rates_of_ones_own(rooflinekit, tmp_path):
    """Rates need a reading, a model and sizes; rows that the table leaves out are not predicted."""
    path = tmp_path / "rates.csv"
    path.write_text(
        "device,model,weights,engine,reading,batch,held_tokens,output_tokens,value,excluded\n"
        "rtx-4090,llama-3-8b,q4_k_m,llama.cpp-cuda,decode_rate,1,0,512,127.74,\n"
        "rtx-4090,llama-3-8b,q4_k_m,llama.cpp-cuda,decode_rate,1,0,512,1.0,warm-up inside\n"
    )
    (row,) = json.loads(rooflinekit(f"validate --set {path} --rows --format json").stdout)
    assert (row["model"], row["engine"], row["floor"]) == ("llama-3-8b", "llama.cpp-cuda", "kept")
    assert abs(row["error"]) < 0.2


BAD = [
    # command                                          part of the line
    ("validate --set nope",                            "--set='nope' is not known: expected one of gb10-trace"),
    ("validate --by colour",                           "--by='colour' is not known: expected one of device, model"),
    ("validate --ablate steps",                        "--ablate='steps' is not known: expected totals"),
    ("validate --set h200-steps --device gb10",        "--device gb10: of a CSV file that has no column of it"),
    ("validate --format xml",                          "--format='xml' is not known"),
    ("validate --set h200-steps --leave-one-device-out", "--set='h200-steps' holds no devices out"),
    ("validate --set nowhere.csv",                     "nowhere.csv: expected a CSV table of measured times"),
    ("validate --set {short} --device gb10",           "a table of this shape needs more: 'seconds'"),
    ("validate --set {empty}",                         "its columns are a, b; expected a table with one of these sets"),
    ("validate --set {steps}",                         "add a column `device`, or give --device"),
    ("validate --set {steps} --device h300",           "h300 is not in hardware_db"),
]  # fmt: skip


@pytest.mark.parametrize(("command", "part"), BAD)
def test_bad_input(rooflinekit, tmp_path, command, part):
    """One line that says what to do, status 2, nothing on standard output."""
    (tmp_path / "short.csv").write_text("m,n,k\n1,512,512\n")
    (tmp_path / "empty.csv").write_text("a,b\n1,2\n")
    files = {"short": tmp_path / "short.csv", "empty": tmp_path / "empty.csv", "steps": H200 / "qwen3-8b_steps.csv"}
    result = rooflinekit(command.format(**files))
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("rooflinekit: error: ")
    assert part in result.stderr
    assert result.stderr.count("\n") == 1


def test_without_scipy_the_command_says_what_to_install(rooflinekit, monkeypatch):
    """Sets are fitted anew, which needs an extra: one line names it."""
    monkeypatch.setattr(import_module("rooflinekit.cli.validate"), "find_spec", lambda _: None)
    result = rooflinekit("validate --set h200-steps")
    assert result.exit_code == 2
    assert "needs scipy: pip install 'rooflinekit[calibrate]'" in result.stderr
    assert result.stderr.count("\n") == 1
