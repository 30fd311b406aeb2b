"""Every example runs, prints what it says it prints, and draws where it is told to."""

import importlib.util
import os
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

import rooflinekit as rk

EXAMPLES = Path(__file__).parents[2] / "examples"
SCRIPTS = {
    "one_layer_two_shapes": (
        "measured roof: 94.0 TFLOP/s (bf16), 241 GB/s, ridge at 390 FLOP/byte",
        "2,048 rows: 412 GFLOP over 319 MB, 1,290 FLOP/byte, under the arithmetic roof",
        "1 row: 201 MFLOP over 201 MB, 1.00 FLOP/byte, under the memory roof",
    ),
    "one_request_on_gb10": (
        "the article measured 412 ms",
        "the article measured 74.4 ms",
        "request: TTFT",
        "weight bytes = 7.248 GB",
    ),
    "kv_over_context": ("KV cache and states of one sequence", "8.58 GiB", "states alone"),
    "batch_curve_on_three_devices": ("gb10: batch 1:", "h200-sxm: batch 1:", "rtx-4090: batch 1:"),
}
NOTEBOOK = EXAMPLES / "prefill_and_decode.ipynb"


def load(name):
    """Import an example from its file."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_example_is_listed_here():
    """A new example is tested too."""
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(SCRIPTS)
    assert set(EXAMPLES.glob("*.ipynb")) == {NOTEBOOK}


@pytest.mark.parametrize("name", SCRIPTS)
def test_script_prints_its_answer_and_writes_nothing(name, capsys, tmp_path, monkeypatch):
    """Without --png there is text only."""
    monkeypatch.chdir(tmp_path)
    load(name).main([])
    printed = capsys.readouterr().out
    assert [line for line in SCRIPTS[name] if line not in printed] == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", SCRIPTS)
def test_script_draws_where_it_is_told(name, tmp_path):
    """--png writes a picture."""
    load(name).main(["--png", str(tmp_path / "drawn.png")])
    assert (tmp_path / "drawn.png").read_bytes().startswith(b"\x89PNG")


def test_notebook_is_stored_without_outputs():
    """Outputs are made, not kept: they would go stale and fill the history."""
    cells = [cell for cell in nbformat.read(NOTEBOOK, as_version=4).cells if cell.cell_type == "code"]
    assert all(cell.outputs == [] and cell.execution_count is None for cell in cells)


# The kernel's own start, not ours: pyzmq or ipykernel may warn about loops, files or unencrypted ports.
@pytest.mark.filterwarnings("default")
def test_notebook_runs_and_draws(tmp_path):
    """All cells run, and three of them show a figure."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    client = NotebookClient(notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": tmp_path}})
    client.execute(env={**os.environ, "PYTHONPATH": str(Path(rk.__file__).parents[1])})  # the package under test
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 3
    assert not [output for output in outputs if output.output_type == "error" or output.get("name") == "stderr"]
    assert any("a decoded token costs" in output.get("text", "") for output in outputs)
