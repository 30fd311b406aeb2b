"""``rooflinekit slo``: the largest rate under limits, and the fewest GPUs at a rate."""

import json

import pytest

import rooflinekit as rk

LINE = "slo llama-3.1-8b h100-sxm --prompt 2000 --output 200"
SERVER = rk.Deployment("llama-3.1-8b", "h100-sxm")
LOAD = {"prompt_tokens": 2000, "output_tokens": 200}


def lines(result):
    """Return the lines of a command that went well."""
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout.rstrip("\n").split("\n")


def test_the_largest_rate(rooflinekit):
    """The objective, the rate and what stops it; what clients see at it, and what tokens cost."""
    told = lines(rooflinekit(f"{LINE} --tpot 15ms --ttft 1s:p99 --usd-per-hour 2"))
    objective = rk.Objective(time_per_output_token_s=0.015, time_to_first_token_s=(1.0, "p99"))
    found = rk.max_rate(SERVER, objective, **LOAD)
    assert told[0] == "objective: p99 time to first token up to 1.00 s, mean time per output token up to 15.0 ms"
    assert told[1] == (
        f"it keeps the objective up to {found.rate_per_s:.3g} requests/s (to 1%); above that {found.limited_by}"
    )
    assert told[3].endswith(f": {found.rate_per_s:.3g} requests/s, 2,000 in, 200 out")
    assert "one token at that rate" in told
    assert told[-2] == "at $2 an hour and GPU (given), idle time included"


def test_no_rate_at_all(rooflinekit):
    """What one request alone takes."""
    told = lines(rooflinekit(f"{LINE} --ttft 1ms --statistic mean"))
    assert told[0] == "objective: mean time to first token up to 1.00 ms"
    assert told[1].startswith("no rate keeps the objective: for one request alone mean time to first token is ")
    assert told[3].endswith(": one request, 2,000 in, 200 out")
    assert "one token at that rate" not in told


def test_figures_for_programs(rooflinekit):
    """The rate is that of Python, unrounded; prices beside it."""
    result = rooflinekit(f"{LINE} --tpot 0.015 --usd-per-hour 2 --format json")
    rows = {(row["part"], row["item"], row["quantity"]): row["value"] for row in json.loads(result.stdout)}
    found = rk.max_rate(SERVER, rk.Objective(time_per_output_token_s=0.015), **LOAD)
    assert rows["objective", "mean time per output token up to 15.0 ms", "max_requests_per_s"] == found.rate_per_s
    priced = rk.cost(SERVER, usd_per_hour=2.0, rate_per_s=found.rate_per_s, **LOAD)
    assert rows["cost", "output", "usd_per_million"] == priced.usd_per_million.output
    assert "it keeps the objective up to" in result.stderr


def test_the_fewest_gpus(rooflinekit):
    """A row a layout that keeps the objective, the smallest first; the others with their reasons."""
    told = lines(rooflinekit(f"{LINE} --tpot 20ms --rate 30 --gpus-each 1,2,3"))
    fleets = rk.min_gpus(
        "llama-3.1-8b", "h100-sxm", 30, rk.Objective(time_per_output_token_s=0.020), gpus_each=(1, 2, 3), **LOAD
    )
    assert told[0] == "llama-3.1-8b on h100-sxm-80gb at 30 requests/s: mean time per output token up to 20.0 ms"
    assert told[3].split()[:2] == ["one", "device"]
    assert int(told[3].split()[2]) == fleets.gpus
    assert "mean time per" in told[3]
    assert "the limit" not in told[3]
    assert any(line.startswith(f"fewest: {fleets.gpus} GPUs: ") for line in told)
    assert any(line.startswith("note: TP3: ") and "does not divide" in line for line in told)


def test_fleets_for_programs(rooflinekit):
    """A row a layout."""
    rows = json.loads(rooflinekit(f"{LINE} --tpot 20ms --rate 30 --gpus-each 1,2 --format json").stdout)
    assert [row["layout"] for row in rows] == ["one device", "TP2"]
    assert all(row["gpus"] >= row["servers"] > 0 for row in rows)


@pytest.mark.parametrize("form", ["table", "json"])
def test_no_fleet(rooflinekit, form):
    """Nothing keeps it: the reasons, and an empty table for programs."""
    result = rooflinekit(f"{LINE} --ttft 1ms --rate 3 --gpus-each 1,2 --format {form}")
    assert result.exit_code == 0
    told = result.stdout if form == "table" else result.stderr
    assert "no layout keeps the objective: mean time to first token up to 1.00 ms" in told
    assert "note: TP2: mean time to first token is " in told
    assert form == "table" or json.loads(result.stdout) == []


DEVICES = "--tpot 25ms --usd-per-hour 2.5 --instead a100-sxm-80gb=1.3,h200-sxm,rtx-3060-12gb=0.1"


def test_which_device(rooflinekit):
    """A row a device that serves, the cheapest first; a price that nobody knows and a card too small are notes."""
    told = lines(rooflinekit(f"{LINE} {DEVICES}"))
    title = "llama-3.1-8b: mean time per output token up to 25.0 ms; dollars of a million tokens (1M)"
    assert told[0] == title
    assert [line.split()[0] for line in told[3:6]] == ["h100-sxm-80gb", "a100-sxm-80gb", "h200-sxm"]
    assert told[5].split()[2:5] == ["-"] * 3
    assert told[6].startswith("h100-sxm-80gb: at $2.5 an hour and GPU (given), h100-sxm-80gb/vllm-")
    assert any(line.startswith("note: h200-sxm has no dated price in its file") for line in told)
    assert any(line.startswith("note: rtx-3060-12gb: llama-3.1-8b leaves no room") for line in told)


def test_devices_for_programs(rooflinekit):
    """The figures of Python; a price that is not known is null."""
    rows = json.loads(rooflinekit(f"{LINE} {DEVICES} --format json").stdout)
    prices = {"h100-sxm": 2.5, "a100-sxm-80gb": 1.3}
    compared = rk.candidates("llama-3.1-8b", prices, rk.Objective(time_per_output_token_s=0.025), **LOAD)
    for row, one in zip(rows, compared.options, strict=False):
        assert row["max_requests_per_s"] == one.max_rate_per_s
        assert row["output_usd_per_million"] == one.cost.usd_per_million.output
        assert row["usd_per_thousand_requests"] == pytest.approx(1000 * one.usd_per_request)
    assert rows[-1]["device"] == "h200-sxm"
    assert rows[-1]["output_usd_per_million"] is None


def test_no_device(rooflinekit):
    """None keeps it: each with what one request alone takes."""
    told = lines(rooflinekit(f"{LINE} --ttft 1ms --instead h200-sxm=3"))
    assert told[0] == "no device keeps the objective: mean time to first token up to 1.00 ms"
    assert [line.split(":")[1].strip() for line in told[1:]] == ["h100-sxm-80gb", "h200-sxm"]


@pytest.mark.parametrize("form", ["markdown", "csv"])
def test_other_formats(rooflinekit, form):
    """Both begin with what they are."""
    text = rooflinekit(f"{LINE} --tpot 15ms --format {form}").stdout
    assert text.startswith({"markdown": "objective: ", "csv": "part,item,quantity,value\n"}[form])


BAD = [
    # line                                     part of the error
    ("",                                       "an objective without a limit: give one of --ttft, --tpot, --itl"),
    ("--ttft 0",                               "--ttft=0.0: expected a number, above 0"),
    ("--ttft soon",                            "--ttft: 'soon' is no number"),
    ("--ttft 1s --gpus-each 2",                "GPUs are counted at a --rate: leave --gpus-each out"),
    ("--ttft 1s --rate 3 --usd-per-hour 2",    "--rate counts GPUs, whatever they cost: leave --usd-per-hour out"),
    ("--ttft 1s --prompt 131000",              "a request of 131,200 tokens is longer than the 131,072"),
    ("--ttft 1s:p42",                          "--ttft after the colon='p42' is not known"),
    ("--ttft 1s --statistic max",              "statistic='max' is not known"),
    ("--ttft 1s --rate 3 --tensor-parallel 2", "--rate tries every layout of --gpus-each"),
    ("--ttft 1s --rate 3 --instead l40s",      "--instead compares devices: give one of the two"),
    ("--ttft 1s --instead l40x=1",             "--instead: l40x is not in hardware_db"),
    ("--ttft 1s --instead l40s=cheap",         "--instead: 'cheap' is no number"),
    ("--ttft 1s --instead l40s=0",             "--instead: l40s=0.0: expected a number, above 0"),
    ("--ttft 1s --rate 0",                     "--rate=0"),
    ("--ttft 1s --rate 3 --gpus-each 0",       "--gpus-each=0: expected a number, 1 or more, whole"),
    ("--ttft 1s --rate 3 --gpus-each 1.5",     "--gpus-each=1.5"),
    ("--ttft 1s --output 0",                   "--output=0"),
    ("--ttft 1s --usd-per-hour -2",            "--usd-per-hour=-2"),
    ("--ttft 1s --cached 2000",                "--cached=2000: expected fewer"),
    ("--ttft 1s --format xml",                 "--format='xml'"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "part"), BAD, ids=[line for line, _ in BAD])
def test_wrong_lines_are_told_in_one(rooflinekit, line, part):
    """One line on stderr, status 2."""
    result = rooflinekit(f"{LINE} {line}")
    assert result.exit_code == 2
    assert result.stderr.startswith("rooflinekit: error: ")
    assert part in result.stderr
    assert result.stderr.count("\n") == 1


def test_what_does_not_fit(rooflinekit):
    """One GPU holds no 70B model in 16 bits; with --rate the larger servers are tried."""
    result = rooflinekit("slo llama-3.1-70b h100-sxm --e2e 60")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "leaves no room for K and V" in result.stderr
    told = lines(rooflinekit("slo llama-3.1-70b h100-sxm --e2e 60 --rate 1 --gpus-each 1,4 --requests 50"))
    assert told[3].startswith("TP4 ")
    assert any(line.startswith("note: one device: llama-3.1-70b leaves no room") for line in told)


def test_gpus_that_make_no_layout_name_their_option(rooflinekit):
    """The layout once, and what to leave out."""
    told = lines(rooflinekit(f"{LINE} --ttft 1s --rate 3 --gpus-each 3"))
    (note,) = (line for line in told if line.startswith("note: TP3: "))
    assert note.startswith("note: TP3: llama-3.1-8b: heads=32")
    assert note.endswith("; or leave 3 out of gpus_each (--gpus-each)")
