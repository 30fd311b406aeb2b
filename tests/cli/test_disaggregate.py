"""``rooflinekit disaggregate``: both arrangements, break-evens in words, and what a wrong line is told."""

import json

import pytest

import rooflinekit as rk
from rooflinekit import units

LINE = "disaggregate qwen3-8b gb10 --prompt 4000 --output 200 --rate 0.5"


def lines(result):
    """Return the lines of a command that went well."""
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout.rstrip("\n").split("\n")


def test_disaggregate_as_a_whole(rooflinekit):
    """Title, two arrangements, what the comparison rests on, and from which link and load it pays."""
    told = lines(rooflinekit(LINE))
    found = rk.disaggregate(rk.Deployment("qwen3-8b", "gb10"), prompt_tokens=4000, output_tokens=200, rate_per_s=0.5)
    assert told[0] == "qwen3-8b on gb10, 2 GPUs under vllm-0.32: 0.5 requests/s, 4,000 in, 200 out"
    assert [told[row].split()[0] for row in (3, 4)] == ["together", "split"]
    assert units.duration(found.split.worst_gap_s) in told[4]
    assert "K and V that a GPU sends" in told[11]
    assert told[11].endswith("590 MB")
    even = f"{found.link_break_even.value / 1e9:.3g} GB/s"
    assert f"at 0.5 requests/s the split pays from a link of {even} on" in told
    assert told[-1].startswith("over RoCE on the device the split pays ")


def test_json_holds_the_figures_of_python(rooflinekit):
    """One tidy table in base units, unrounded; a given link is in GB/s, a latency with its unit."""
    rows = json.loads(rooflinekit(f"{LINE} --link 10 --link-latency 1ms --overlap 0.5 --format json").stdout)
    made = rk.disaggregate(
        rk.Deployment("qwen3-8b", "gb10"), prompt_tokens=4000, output_tokens=200, rate_per_s=0.5, link_bytes_per_s=10e9,
        link_latency_s=0.001, overlap=0.5,
    )  # fmt: skip
    found = {(row["part"], row["item"], row["quantity"]): row["value"] for row in rows}
    assert found["arrangement", "split", "end_to_end_s"] == made.split.end_to_end_s
    assert found["split", "", "transfer_s"] == made.transfer_s
    assert found["break-even", "from", "link_bytes_per_s"] == made.link_break_even.value


def test_an_overload_is_told(rooflinekit):
    """A rate that neither carries: both say what they carry."""
    told = lines(rooflinekit(LINE.replace("0.5", "50")))
    assert sum(": overloaded, carries " in line for line in told) == 2
    assert any("the split pays at no link: the split carries" in line for line in told)


def test_another_device_for_decode(rooflinekit):
    """Both devices are named."""
    line = "disaggregate llama-3.1-8b h100-sxm --decode-device h200-sxm --rate 4 --gpus 2 --by tpot"
    told = lines(rooflinekit(line))
    assert told[0].startswith("llama-3.1-8b on h100-sxm-80gb and h200-sxm, 2 GPUs under ")
    assert any(line.startswith("quicker by tpot (time_per_output_token_s): ") for line in told)


# fmt: off
WRONG = [
    ("disaggregate qwen3-8b gb10",               "--rate"),
    (f"{LINE} --gpus 1",                         "gpus=1: expected a multiple of 1"),
    (f"{LINE} --prefill-gpus 2",                 "--prefill-gpus=2: expected a multiple of 1 that leaves"),
    (f"{LINE} --overlap 2",                      "overlap=2: expected a part from 0 to 1"),
    (f"{LINE} --link 0",                         "--link=0: expected a number, above 0"),
    (f"{LINE} --by speed",                       "--by='speed' is not known"),
    (f"{LINE} --decode-device gb11",             "did you mean gb10"),
    (f"{LINE} --tensor-parallel 3 --gpus 6",     "does not divide"),
]
# fmt: on


@pytest.mark.parametrize(("line", "told"), WRONG)
def test_wrong_lines_are_told_in_one(rooflinekit, line, told):
    """One line on stderr, status 2."""
    result = rooflinekit(line)
    assert (result.exit_code, result.stdout) == (2, "")
    assert told in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_split_pays_up_to_what_it_carries(rooflinekit):
    """What is overloaded at 13.5 requests/s does not pay "from 0.03 on": the upper end is what the split carries."""
    line = "disaggregate llama-3.1-8b h100-sxm --rate 13.5 --prompt 3000 --output 300"
    told = lines(rooflinekit(line))
    (carries,) = (row.split()[-2] for row in told if row.startswith("split: overloaded"))
    (pays,) = (row for row in told if row.startswith("over NVLink"))
    assert f" the split pays at a load between 0.0333 and {carries} requests/s" in pays
