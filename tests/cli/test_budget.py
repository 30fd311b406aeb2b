"""``rooflinekit budget``: the ledger, and what alone would close the gap."""

import json

import pytest

import rooflinekit as rk

LINE = "budget llama-3.1-8b l40s --prompt 1500 --output 20"
SERVER = rk.Deployment("llama-3.1-8b", "l40s")
SIZES = {"prompt_tokens": 1500, "output_tokens": 20}


def lines(result):
    """Return the lines of a command that went well."""
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout.rstrip("\n").split("\n")


def test_a_request_that_misses_its_limit(rooflinekit):
    """A row a line and the whole; then a row a change, those that cannot included."""
    told = lines(rooflinekit(f"{LINE} --limit 350ms --network 20ms --instead h100-sxm,rtx-3060-12gb"))
    found = rk.budget(SERVER, 0.35, network_s=0.02, devices=["h100-sxm", "rtx-3060-12gb"], **SIZES)
    assert told[0] == "llama-3.1-8b on l40s: one request alone, 1,500 in, 20 out"
    assert [line.split("  ")[0] for line in told[3:8]] == ["network", "queue", "prefill", "decode", "end to end"]
    assert told[3].split() == ["network", "20.0", "ms", f"{0.02 / found.ledger.total_s:.1%}"]
    assert told[8].startswith("misses 350 ms by ")
    assert told[9] == f"service time only: no queue ({found.basis})"
    assert told[10].startswith("note: rtx-3060-12gb instead: llama-3.1-8b does not fit on rtx-3060-12gb")
    rows = told[told.index("what alone would close the gap") + 3 :]
    assert [row.split("  ")[0] for row in rows] == [change.change for change in found.changes]
    assert [("cannot alone" not in row) for row in rows] == [change.closes for change in found.changes]


def test_a_request_within_its_limit(rooflinekit):
    """By how much; nothing to change."""
    told = lines(rooflinekit(f"{LINE} --limit 5s"))
    assert told[8].startswith("within 5.00 s, by 4.")
    assert told[-1].startswith("service time only")


def test_a_loaded_server(rooflinekit):
    """The queue of what comes besides, and fewer requests among the changes."""
    told = lines(rooflinekit(f"{LINE} --limit 600ms --rate 2"))
    assert told[0] == "llama-3.1-8b on l40s under vllm-0.32: 2 requests/s, 1,500 in, 20 out"
    assert told[8].startswith("misses 600 ms by ")
    assert told[8].endswith("(mean)")
    assert any(line.startswith("fewer requests") for line in told)


def test_an_overloaded_server(rooflinekit):
    """No number for what has no end."""
    told = lines(rooflinekit(f"{LINE} --limit 700ms --rate 1000"))
    assert told[4].split() == ["queue", "inf", "-"]
    assert told[8].startswith("overloaded: it could carry ")


def test_figures_for_programs(rooflinekit):
    """One tidy table in base units."""
    rows = json.loads(rooflinekit(f"{LINE} --limit 0.35 --format json").stdout)
    found = rk.budget(SERVER, 0.35, **SIZES)
    ledger = {row["item"]: row["value"] for row in rows if row["part"] == "ledger"}
    assert ledger == {**{name.removesuffix("_s"): value for name, value in found.ledger._asdict().items()},
                      "end to end": found.ledger.total_s}  # fmt: skip
    changes = {row["item"]: row["value"] for row in rows if row["part"] == "change"}
    assert changes == {change.change: change.to for change in found.changes}


@pytest.mark.parametrize("form", ["markdown", "csv"])
def test_other_formats(rooflinekit, form):
    """Both begin with what they are."""
    text = rooflinekit(f"{LINE} --limit 0.35 --format {form}").stdout
    assert text.startswith({"markdown": "### llama-3.1-8b on l40s", "csv": "part,item,quantity,value\n"}[form])


BAD = [
    # line                                       part of the error
    ("",                                         "Missing option '--limit'"),
    ("--limit 0",                                "--limit=0.0: expected a number, above 0"),
    ("--limit soon",                             "'soon' is no number"),
    ("--limit 1s --network -1",                  "--network=-1.0"),
    ("--limit 1s --rate 4 --concurrency 3",      "give one of --rate (open) and --concurrency (closed), or neither"),
    ("--limit 1s --instead l40x",                "--instead: l40x is not in hardware_db"),
    ("--limit 1s --statistic median",            "statistic='median' is not known"),
    ("--limit 1s --requests 9 --simulate",       "--rate and --concurrency: leave --requests, --simulate out"),
    ("--limit 1s --prompt 131053",               "a request of 131,073 tokens is longer than the 131,072"),
    ("--limit 1s --output 0",                    "--output=0"),
    ("--limit 1s --cached 1500",                 "expected fewer than --prompt=1500"),
    ("--limit 1s --format xml",                  "--format='xml'"),
    ("--limit 1s --weights fp3",                 "fp3"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "part"), BAD, ids=[line for line, _ in BAD])
def test_wrong_lines_are_told_in_one(rooflinekit, line, part):
    """One line on stderr, status 2."""
    result = rooflinekit(f"{LINE} {line}")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("rooflinekit: error: ")
    assert part in result.stderr
    assert result.stderr.count("\n") == 1
