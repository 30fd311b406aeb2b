"""``rooflinekit dial``: token budgets with the worst gap, the picture, and what a wrong line is told."""

import json

import pytest

import rooflinekit as rk

LINE = "dial qwen3-8b gb10 --prompt 10000 --output 100 --rate 0.02"


def lines(result):
    """Return the lines of a command that went well."""
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout.rstrip("\n").split("\n")


def test_dial_as_a_whole(rooflinekit):
    """A row a budget: 10,000 tokens under 2,048 are five passes; the engine's own budget and the gap without chunks."""
    title, head, _, *rows, default, whole = lines(rooflinekit(f"{LINE} --chunk 512,2048"))
    assert title == "qwen3-8b on gb10 under vllm-0.32: 0.02 requests/s, 10,000 in, 100 out"
    assert head.split()[:4] == ["token", "budget", "chunks", "TTFT"]
    assert [row.split()[:2] for row in rows] == [["512", "20"], ["2,048", "5"]]
    assert default.startswith("default of vllm-0.32 on gb10: 2,048 tokens; by ")
    assert whole.startswith("without chunks a prompt stops the answers for 2.")


def test_json_is_the_curve_of_python(rooflinekit):
    """The same numbers, unrounded."""
    rows = json.loads(rooflinekit(f"{LINE} --chunk 1024,4096 --format json").stdout)
    curve = rk.budget_curve(rk.Deployment("qwen3-8b", "gb10"), 10_000, 100, 0.02, budgets=[1024, 4096])
    assert rows == curve.to_dict("records")


def test_an_overload_is_told(rooflinekit):
    """A rate that the small budget does not carry: no latencies there, and its name."""
    told = lines(rooflinekit(f"{LINE} --chunk 64,2048 --rate 0.15"))
    assert told[-1] == "overloaded: 64"
    assert told[3].split()[2] == "inf"


def test_it_draws(rooflinekit, tmp_path):
    """`--png` writes a picture and says where."""
    path = tmp_path / "dial.png"
    result = rooflinekit([*LINE.split(), "--chunk", "512,2048", "--png", str(path)])
    assert lines(result)[-1] == f"drawn in {path}"
    assert path.read_bytes().startswith(b"\x89PNG")


# fmt: off
WRONG = [
    ("dial qwen3-8b gb10",                  "--rate"),
    (f"{LINE} --chunk 0",                   "--chunk=[0]: expected a number, 1 or more"),
    (f"{LINE} --chunk x",                   "'x' is no size"),
    (f"{LINE} --engine sglang",             "reads prompts whole or apart from decoding"),
    (f"{LINE} --rate 0",                    "rate"),
    (f"{LINE} --rate 100 --png a.png",      "every budget is overloaded: at most "),
    (f"{LINE} --cached 10000",              "--cached=10000: expected fewer than the prompt's 10000"),
]
# fmt: on


@pytest.mark.parametrize(("line", "told"), WRONG)
def test_wrong_lines_are_told_in_one(rooflinekit, line, told):
    """One line on stderr, status 2."""
    result = rooflinekit(line)
    assert (result.exit_code, result.stdout) == (2, "")
    assert told in result.stderr
    assert result.stderr.count("\n") == 1
