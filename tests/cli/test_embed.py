"""``rooflinekit embed``: models that only read."""

import csv
import io
import json

import pytest

import rooflinekit as rk

LINE = "embed qwen3-8b h100-sxm --tokens 512"


def test_for_eyes(rooflinekit):
    """A row a figure, what is not in them, the price and the power."""
    result = rooflinekit(f"{LINE} --usd-per-hour 2")
    assert (result.exit_code, result.stderr) == (0, "")
    told = result.stdout.splitlines()
    assert told[0] == "qwen3-8b on h100-sxm-80gb under vllm-0.32: texts of 512 tokens"
    assert [line.split("  ")[0] for line in told[3:10]] == [
        "tokens/s", "texts/s", "texts in a pass", "pass", "one text alone", "a million", "energy of a token, at most",
    ]  # fmt: skip
    assert told[5].split() == ["texts", "in", "a", "pass", "16"]
    basis = "(h100-sxm-80gb/vllm-0.24/bf16, vllm-0.32)"
    assert told[10:] == [
        f"no output layer, no decode, no cache kept; a server that never waits {basis}",
        "at $2 an hour and GPU (given)",
        "energy: 700 W all the time, an upper bound",
    ]


@pytest.mark.parametrize("form", ["json", "csv"])
def test_for_programs(rooflinekit, form):
    """One row with the figures of Python, unrounded."""
    result = rooflinekit(f"{LINE} --tensor-parallel 2 --chunk 4096 --usd-per-hour 2 --format {form}")
    (row,) = json.loads(result.stdout) if form == "json" else csv.DictReader(io.StringIO(result.stdout))
    two = rk.Deployment("qwen3-8b", "h100-sxm", tensor_parallel=2)
    read = rk.embed(two, 512, engine=rk.load_engine("vllm", max_num_batched_tokens=4096), usd_per_hour=2)
    assert read.texts == float(row["texts_in_a_pass"]) == 8
    assert float(row["tokens_per_s"]) == read.tokens_per_s
    assert float(row["usd_per_million"]) == read.usd_per_million


def test_markdown_and_no_price(rooflinekit):
    """A table, and one line that says what to give."""
    text = rooflinekit(f"{LINE} --format markdown").stdout
    assert "| tokens/s | " in text
    assert "no cost: h100-sxm-80gb has no dated price in its file" in text
    assert "a million" not in text


BAD = [
    # line                                                     part of the error
    ("embed qwen3-8b h100-sxm --tokens 0",                     "--tokens=0: expected a number, 1 or more"),
    ("embed qwen3-8b h100-sxm --tokens x",                     "'x' is no number"),
    ("embed qwen3-8b h100-sxm --usd-per-hour 0",               "--usd-per-hour=0"),
    ("embed qwen3-8b h100-sxm --engine tensorrt-llm --tokens 20000", "does not cut texts"),
    ("embed llama-3.1-70b l4",                                 "does not fit on l4"),
    ("embed qwen3-8b h100-sxm --tensor-parallel 3",            "does not divide among 3 ranks"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "part"), BAD, ids=[part for _, part in BAD])
def test_wrong_lines_are_told_in_one(rooflinekit, line, part):
    """One line on stderr, status 2."""
    result = rooflinekit(line)
    assert (result.exit_code, result.stdout) == (2, "")
    assert part in result.stderr
    assert result.stderr.count("\n") == 1
