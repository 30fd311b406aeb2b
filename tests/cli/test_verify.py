"""``rooflinekit verify``: commands for eyes, and the same for programs."""

import json

import pytest

import rooflinekit as rk


def test_commands_for_eyes(rooflinekit):
    """Each command after a prompt, below it what to expect."""
    result = rooflinekit("verify qwen3-8b gb10 --prompt 512 --output 20")
    assert (result.exit_code, result.stderr) == (0, "")
    whole = rk.Deployment("qwen3-8b", "gb10").verify_commands(512, 20)
    assert result.stdout == f"{whole}\n"
    assert [line.split(" --")[0] for line in result.stdout.splitlines() if line.startswith("$ ")][:3] == [
        "$ vllm bench latency", "$ vllm bench latency", "$ vllm serve Qwen/Qwen3-8B",
    ]  # fmt: skip


def test_commands_for_programs(rooflinekit):
    """JSON holds command and expectation."""
    rows = json.loads(rooflinekit("verify qwen3-8b gb10 --weights q4_k_m --batch 4 --format json").stdout)
    (row,) = rows
    assert sorted(row) == ["command", "expects"]
    assert row["command"].startswith("llama-batched-bench -m MODEL.gguf ")


def test_a_layout_for_programs(rooflinekit):
    """The options of the layout reach the commands."""
    line = "verify qwen3-30b-a3b h200-sxm --tensor-parallel 2 --expert-parallel 2 --format json"
    first, *_ = json.loads(rooflinekit(line).stdout)
    assert " --tensor-parallel-size 2 --enable-expert-parallel " in first["command"]


def test_bad_input(rooflinekit):
    """Sizes are whole and not nought."""
    for line, part in {
        "--batch 1.5": "--batch=1.5",
        "--output 0": "--output=0",
        "--format xml": "--format='xml'",
    }.items():
        result = rooflinekit(f"verify qwen3-8b gb10 {line}")
        assert (result.exit_code, result.stdout) == (2, "")
        assert part in result.stderr
        assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("command", ["verify", "estimate"])
@pytest.mark.parametrize(("engine", "meant"), [("trt", "tensorrt-llm"), ("vlm", "vllm"), ("mine", None)])
def test_an_engine_that_nobody_knows_is_taken_and_told(rooflinekit, command, engine, meant):
    """Anyone may measure an engine of their own; a near name is asked for."""
    result = rooflinekit(f"{command} llama-3.1-8b h100-sxm --engine {engine}")
    assert result.exit_code == 0
    (note,) = (line for line in result.stdout.splitlines() if line.startswith("note: no constants of engine"))
    assert f"{engine!r} for h100-sxm-80gb" in note
    assert note.endswith(f"; did you mean {meant}?") if meant else "did you mean" not in note


def test_an_engine_that_is_known_has_no_note(rooflinekit):
    """Nothing is said where the constants are its own."""
    assert "note: no constants" not in rooflinekit("verify llama-3.1-8b h100-sxm --engine vllm").stdout
