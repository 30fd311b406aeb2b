"""``rooflinekit levers``: the texts' claims in its table, the figures of Python, and wrong lines."""

import csv
import io
import json

import pytest

import rooflinekit as rk

SEED = "levers qwen3-8b gb10 --prompt 2048 --output 256"


def lines(result):
    """Return the lines of a command that went well."""
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout.rstrip("\n").split("\n")


@pytest.fixture(scope="module")
def seed():
    """Give the rows of the seed's case: change -> cells."""
    from typer.testing import CliRunner  # noqa: PLC0415 - the fixture of the folder is one of a function

    from rooflinekit.cli import app  # noqa: PLC0415 - as above

    told = CliRunner().invoke(app, SEED.split(), prog_name="rooflinekit").stdout.split("\n")
    rows = [line[: len("weights in FP8, 16-bit arithmetic  ")] for line in told]
    return {row.strip(): line[len(row) :].split() for row, line in zip(rows, told, strict=True)}


# fmt: off
CLAIMS = [
    # change                              prefill, decode, TTFT, TPOT; in brackets: does not move
    ("2x memory bandwidth",               ["()", "", "()", ""]),
    ("weights in FP8, 16-bit arithmetic", ["()", "", "()", ""]),
    ("weights in INT4",                   ["()", "", "()", ""]),
    ("2x arithmetic (FLOPS)",             ["", "()", "", "()"]),
    ("half the prompt",                   ["", "()", "", "()"]),
    ("prefix hit 50%",                    ["", "()", "", "()"]),
]
# fmt: on


@pytest.mark.parametrize(("change", "brackets"), CLAIMS)
def test_what_moves_which_phase(seed, change, brackets):
    """Bytes move decode and not prefill, arithmetic prefill and not decode: as the table shows it."""
    assert ["()" if cell.startswith("(") else "" for cell in seed[change][:4]] == brackets


def test_how_the_table_is_read(rooflinekit):
    """Title, threshold, notes of rows that cannot be told, elasticities."""
    told = lines(rooflinekit(SEED))
    assert told[0] == "qwen3-8b on gb10 under vllm-0.32: 1 in flight, 2,048 in, 256 out"
    assert told[3].startswith("now ")
    assert any(line.startswith("after over before; in brackets: does not move, within 20%; gb10/") for line in told)
    assert any(line.startswith("note: speculation: needs your acceptance rate; 4 drafted tokens pay") for line in told)
    at = told.index("elasticities, d ln t / d ln x: a prefill of one prompt, a decode step of 1")
    assert told[at + 3].split()[:2] == ["memory", "bandwidth"]
    assert float(told[at + 3].split()[3]) < -0.95


def test_csv_and_json_hold_the_figures_of_python(rooflinekit):
    """One tidy table in base units, unrounded."""
    line = "levers llama-3.1-8b h100-sxm --prompt 1000 --output 50 --rate 1 --instead l40s --acceptance 0.6"
    made = rk.levers(
        rk.Deployment("llama-3.1-8b", "h100-sxm"), 1000, 50, rate_per_s=1, devices=("l40s",), acceptance=0.6
    )
    rows = json.loads(rooflinekit(f"{line} --format json").stdout)
    found = {(row["part"], row["item"], row["quantity"]): row for row in rows}
    assert found["now", "", "TTFT"]["value"] == made.base.time_to_first_token_s
    assert found["ratio", "on l40s", "decode"]["value"] == made["on l40s"].ratios["decode"]
    assert found["ratio", "2x memory bandwidth", "decode"]["moves"] == "moves"
    assert found["elasticity", "batch", "decode"]["value"] == made.elasticities["decode"].iloc[-1]
    assert len(list(csv.DictReader(io.StringIO(rooflinekit(f"{line} --format csv").stdout)))) == len(rows)


def test_prices_of_both_devices(rooflinekit):
    """With a price a device the cost of another one is compared, in dollars a million tokens."""
    line = "levers qwen3-8b gb10 --output 50 --usd-per-hour gb10=0.36 --usd-per-hour h100-sxm=2.7"
    told = lines(rooflinekit(line))
    assert " a million" in told[3]
    assert not any("cost unknown" in row for row in told)


def test_it_draws(rooflinekit, tmp_path):
    """`--png` writes a picture and says where; markdown works beside it."""
    path = tmp_path / "levers.png"
    result = rooflinekit(["levers", "qwen3-8b", "gb10", "--output", "20", "--png", str(path), "--format", "markdown"])
    assert lines(result)[-1] == f"drawn in {path}"
    assert path.read_bytes().startswith(b"\x89PNG")


def test_an_overloaded_base_is_told_so(rooflinekit):
    """A word in place of times without end; the rate that it could carry stands below."""
    result = rooflinekit("levers qwen3-8b gb10 --output 20 --rate 1000 --instead gb10")
    now = next(line for line in lines(result) if line.startswith("now "))
    assert now.split()[5:8] == ["overloaded"] * 3
    assert "inf" not in result.stdout.split()
    assert "overloaded: carries" in result.stdout


# fmt: off
WRONG = [
    ("--acceptance 1.5",               "acceptance=1.5: expected a number from 0 to 1"),
    ("--rate 1 --concurrency 2",       "one of --rate (open) and --concurrency (closed)"),
    ("--instead gb11",                 "--instead: gb11 is not in hardware_db; did you mean gb10"),
    ("--usd-per-hour 2.5",             "--usd-per-hour 2.5: expected DEVICE=USD"),
    ("--usd-per-hour gb10=x",          "--usd-per-hour: 'x' is no number"),
    ("--usd-per-hour gb10=-1",         "--usd-per-hour: gb10=-1.0: expected a number, above 0"),
    ("--usd-per-hour gb11=1",          "--usd-per-hour: gb11 is not in hardware_db; did you mean gb10"),
    ("--prompt 50000",                 "a request of 50,200 tokens is longer than the 40,960"),
    ("--draft qwen9 --acceptance 0.5", "--draft qwen9: expected mtp, the cost of a drafted token"),
    ("--threshold -1",                 "threshold"),
    ("--tensor-parallel 3",            "does not divide"),
    ("--prompt 0",                     "--prompt=0"),
    ("--png here.xls --output 20",     "cannot draw '.xls'"),
]
# fmt: on


@pytest.mark.parametrize(("wrong", "told"), WRONG)
def test_wrong_lines_are_told_in_one(rooflinekit, wrong, told):
    """One line on stderr, status 2."""
    result = rooflinekit(f"levers qwen3-8b gb10 {wrong}")
    assert (result.exit_code, result.stdout) == (2, "")
    assert told in result.stderr
    assert result.stderr.count("\n") == 1
