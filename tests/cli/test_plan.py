"""``rooflinekit plan``: what it prints, and what it refuses."""

import json

import pytest


def test_layouts_for_eyes(rooflinekit):
    """A row a layout with what messages cost, the memory of one device, and why others cannot be."""
    result = rooflinekit("plan qwen3-8b --device h100-sxm --gpus 3")
    assert result.exit_code == 0
    assert "qwen3-8b on 3 x h100-sxm, batch 1" in result.output
    assert "PP3" in result.output
    assert "TP3: TP3 of qwen3-8b: heads=32 of 'full' does not divide among 3 ranks" in result.output


def test_layouts_for_programs(rooflinekit):
    """Full precision in base units, the reason in a column."""
    result = rooflinekit("plan qwen3-8b --device h100-sxm --gpus 2 --format json")
    rows = json.loads(result.output)
    assert [row["layout"] for row in rows] == ["TP2", "PP2"]
    assert all(row["fits"] and row["note"] == "" and row["decode_step_s"] > 0 for row in rows)


# fmt: off
WRONG = [
    ("--gpus 0",                      "Invalid value for '--gpus': "),
    ("--gpus 2 --interconnect nvlnk", "--interconnect='nvlnk' is not in"),
    ("--weights fp7",                 "--weights='fp7' is not known"),
    ("--routing-skew -1",             "--routing-skew=-1: expected a number, 0 or more"),
    ("--context -1",                  "--context=-1: expected a number, 0 or more"),
    ("--device h1oo",                 "--device: h1oo is not in hardware_db"),
]
# fmt: on


@pytest.mark.parametrize(("arguments", "told"), WRONG)
def test_a_wrong_choice_is_one_line(rooflinekit, arguments, told):
    """As every command says it, rather than as a reason beside each layout."""
    result = rooflinekit(f"plan qwen3-8b --device h100-sxm {arguments}")
    assert (result.exit_code, result.stdout) == (2, "")
    assert told in result.stderr
