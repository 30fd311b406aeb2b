"""``rooflinekit freeze``: the file it writes passes, and no file is lost."""

import pytest

from rooflinekit.testing.comparison import compare
from rooflinekit.testing.reference_file import load_reference_file

LINE = "freeze qwen3-8b gb10 --prompt 512 --output 20 --batch 1,8"


def test_the_text_as_a_whole(rooflinekit):
    """Without --write the file is printed: its head, a row a line, sizes as they were given."""
    result = rooflinekit(f"{LINE} --context 100 --engine vllm --tolerance 0.05")
    assert (result.exit_code, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert lines[:3] == ["model: qwen3-8b", "device: gb10", "settings: {engine: vllm}"]
    assert lines[4] == "rows:"
    assert len(lines) == 5 + 2 * 3 + 2 + 1
    request = "step: {request: {prompt_tokens: 512, output_tokens: 20, batch: 8}}, quantity: end_to_end_s, predicted: "
    assert lines[10].startswith(f"- {{id: end-to-end-batch-8, {request}")
    assert lines[10].endswith(", tolerance: 0.05}")
    assert lines[-1] == "- {id: kv-per-token, quantity: kv_bytes_per_token, predicted: 147456.0, tolerance: 0}"


def test_what_is_written_passes(rooflinekit, tmp_path):
    """The file is read back and every row holds."""
    path = tmp_path / "plan.roofline.yaml"
    result = rooflinekit(f"{LINE} --weights fp8 --write {path}")
    assert result.stdout == f"written to {path}: 9 rows; `pytest {path}` compares them\n"
    whole, deployment = load_reference_file(path)
    assert deployment.weights == "fp8"
    assert all(compare(row, deployment).within for row in whole.rows)


def test_a_layout_is_written(rooflinekit, tmp_path):
    """Degrees are settings of the file, and what is read back is the same layout."""
    path = tmp_path / "pair.roofline.yaml"
    line = "freeze qwen3-8b h200-sxm --tensor-parallel 2 --pipeline-parallel 2"
    assert rooflinekit(f"{line} --write {path}").exit_code == 0
    whole, deployment = load_reference_file(path)
    assert "settings: {tensor_parallel: 2, pipeline_parallel: 2}\n" in path.read_text()
    assert deployment.layout.layout == "TP2 PP2"
    assert all(compare(row, deployment).within for row in whole.rows)


def test_a_model_from_standard_input_is_written_out(rooflinekit, tmp_path):
    """What came through a pipe has no name, so its keys go into the file."""
    path = tmp_path / "plan.roofline.yaml"
    lump = "summary: {parameters: 8000000000, layers: 32, kv_heads: 8, head_dim: 128}\n"
    assert rooflinekit(f"freeze - h200-sxm --write {path}", stdin=lump).exit_code == 0
    whole, deployment = load_reference_file(path)
    assert all(compare(row, deployment).within for row in whole.rows)


BAD = [
    # command                                             part of the line
    (f"{LINE} --write {{there}}",                         "is there: give --force (overwrite=True) to replace it"),
    (f"{LINE} --write plan.yaml",                         "plan.yaml: expected a name that ends in .roofline.yaml"),
    (f"{LINE} --tolerance 0",                             "tolerance=0.0: expected 0.00001 or more"),
    (f"{LINE} --batch 0",                                 "--batch=0: expected a number, above 0"),
    (f"{LINE} --context 4:1",                             "'4:1' is no size"),
    ("freeze - -",                                        "MODEL and DEVICE are both `-`"),
    ("freeze qwen3-8c gb10",                              "did you mean qwen3-8b"),
    ("freeze qwen3-8b cpu-ddr5-5600-dual",                "has no datasheet peak for bf16"),
]  # fmt: skip


@pytest.mark.parametrize(("command", "part"), BAD, ids=[part for _, part in BAD])
def test_bad_input(rooflinekit, tmp_path, command, part):
    """One line that says what to do, status 2, nothing on standard output."""
    there = tmp_path / "plan.roofline.yaml"
    there.write_text("first")
    result = rooflinekit(command.format(there=there))
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("rooflinekit: error: ")
    assert part in result.stderr
    assert result.stderr.count("\n") == 1
    assert there.read_text() == "first"


def test_force_replaces(rooflinekit, tmp_path):
    """A plan is frozen anew on purpose."""
    there = tmp_path / "plan.roofline.yaml"
    there.write_text("first")
    assert rooflinekit(f"{LINE} --write {there} --force").exit_code == 0
    assert there.read_text().startswith("model: qwen3-8b\n")
