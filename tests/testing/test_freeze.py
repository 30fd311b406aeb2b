"""Frozen estimates: the text passes as it is, fails when a prediction moves, and says what it rests on."""

import re

import pytest

import rooflinekit as rk
from rooflinekit.errors import InvalidInputError, SpecError
from rooflinekit.testing.comparison import compare
from rooflinekit.testing.freeze import freeze, write_frozen
from rooflinekit.testing.reference_file import load_reference_file


@pytest.fixture
def frozen(tmp_path):
    """Write frozen estimates, read them back, and compare every row."""

    def of(*names, **choices):
        path = tmp_path / "plan.roofline.yaml"
        path.write_text(freeze(*names, **choices))
        whole, deployment = load_reference_file(path)
        return whole, [compare(row, deployment) for row in whole.rows]

    return of


def test_what_is_frozen_passes(frozen):
    """Requests and decode steps at each batch and context, and the cache of a token, within the narrowest tolerance."""
    whole, found = frozen("qwen3-8b", "gb10", batch=[1, 8], context_tokens=[512, 4096], tolerance=1e-5)
    assert all(one.within for one in found)
    assert [row.id for row in whole.rows] == [
        "time-to-first-token-batch-1", "time-per-output-token-batch-1", "end-to-end-batch-1",
        "time-to-first-token-batch-8", "time-per-output-token-batch-8", "end-to-end-batch-8",
        "decode-512-batch-1", "decode-512-batch-8", "decode-4096-batch-1", "decode-4096-batch-8", "kv-per-token",
    ]  # fmt: skip
    assert {row.kind for row in whole.rows} == {"predicted"}
    assert (whole.rows[-1].value, whole.rows[-1].tolerance) == (147456.0, 0.0)


def test_a_moved_prediction_fails(frozen):
    """The same rows under another efficiency are missed: the plan fails loudly."""
    whole, _ = frozen("qwen3-8b", "gb10")
    moved = rk.Deployment("qwen3-8b", "gb10", efficiency="datasheet")
    verdicts = {row.id: compare(row, moved).within for row in whole.rows}
    assert verdicts == {row.id: row.id == "kv-per-token" for row in whole.rows}


def test_the_source_says_version_date_and_basis(frozen):
    """Who reads a miss sees what the number rested on."""
    whole, _ = frozen("qwen3-8b", "gb10", engine="vllm")
    pattern = rf"frozen by rooflinekit {rk.__version__} on \d{{4}}-\d\d-\d\d, basis gb10/vllm-0\.31/bf16"
    assert re.fullmatch(pattern, whole.source)


def test_settings_are_kept(frozen):
    """Choices of the deployment are written, defaults are not."""
    whole, found = frozen("qwen3-30b-a3b", "h200-sxm", weights="fp8", routing_skew=0.5, efficiency="calibrated")
    assert whole.settings.model_dump(exclude_defaults=True) == {"weights": "fp8", "routing_skew": 0.5}
    assert all(one.within for one in found)
    assert "settings" not in freeze("qwen3-8b", "gb10", weights=None)


def test_a_layout_is_frozen_and_read_back(frozen):
    """Degrees and link are in the file, and its rows are those of the layout: half the cache is on each card."""
    layout = {"tensor_parallel": 2, "interconnect": {"one_way_gb_per_s": 25.0}}
    whole, found = frozen("qwen3-8b", "h200-sxm", **layout)
    assert whole.settings.model_dump(exclude_defaults=True) == layout
    assert all(one.within for one in found)
    assert whole.rows[-1].value == 147_456 / 2
    one = rk.Deployment("qwen3-8b", "h200-sxm")
    assert [compare(row, one).within for row in whole.rows] == [False] * len(whole.rows)


def test_what_a_file_cannot_hold_is_told_in_one_line():
    """An Efficiency of one's own has no name that a file could hold."""
    own = rk.load_device("gb10").efficiency[0]
    with pytest.raises(SpecError, match="settings of a file: `efficiency`") as told:
        freeze("qwen3-8b", "gb10", efficiency=own)
    assert "\n" not in str(told.value)


def test_one_output_token_has_no_time_between_tokens(frozen):
    """What is not a number is not frozen."""
    whole, _ = frozen("qwen3-8b", "gb10", output_tokens=1)
    assert [row.id for row in whole.rows][:2] == ["time-to-first-token-batch-1", "end-to-end-batch-1"]


def test_paths_are_written_as_seen_from_the_file(tmp_path, monkeypatch):
    """A device of one's own is found again from where the file lies."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "card.yaml").write_text("bandwidth_gb_per_s: 2000\npeak_dense_tflops: {bf16: 200}\n")
    path = tmp_path / "plans" / "plan.roofline.yaml"
    write_frozen(path, freeze("qwen3-8b", "card.yaml", folder=path.parent))
    assert "device: ../card.yaml\n" in path.read_text()
    whole, deployment = load_reference_file(path)
    assert compare(whole.rows[0], deployment).within


def test_nothing_is_overwritten(tmp_path):
    """A frozen plan is replaced on purpose only, and has a name that pytest collects."""
    path = tmp_path / "plan.roofline.yaml"
    write_frozen(path, "first")
    with pytest.raises(InvalidInputError, match="is there: give --force"):
        write_frozen(path, "second")
    write_frozen(path, "second", overwrite=True)
    assert path.read_text() == "second"
    with pytest.raises(InvalidInputError, match=r"expected a name that ends in \.roofline\.yaml"):
        write_frozen(tmp_path / "plan.yaml", "third")


@pytest.mark.parametrize("tolerance", [0, 1e-6, -0.1, float("nan")])
def test_a_tolerance_below_the_rounding_is_refused(tolerance):
    """Six digits cannot promise more than they hold."""
    with pytest.raises(InvalidInputError, match="tolerance="):
        freeze("qwen3-8b", "gb10", tolerance=tolerance)
