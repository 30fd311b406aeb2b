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


@pytest.mark.parametrize("arguments", ["--gpus 0", "--gpus 2 --interconnect nvlnk"])
def test_a_wrong_choice_is_one_line(rooflinekit, arguments):
    """As every command says it."""
    result = rooflinekit(f"plan qwen3-8b --device h100-sxm {arguments}")
    assert result.exit_code == 2
