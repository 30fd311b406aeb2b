"""What `models import` reads: the catalogue's model by name, a folder by path, an `owner/name` from here first."""

import json

import pytest

from rooflinekit.cli.importing import _is_catalogued, _local
from rooflinekit.specs.catalog import load_model

CONFIG = {
    "model_type": "llama", "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16,
    "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256, "tie_word_embeddings": True,
}  # fmt: skip


@pytest.fixture(autouse=True)
def _folders(tmp_path, monkeypatch):
    """Work beside two folders: one whose name the catalogue knows, one under its owner."""
    monkeypatch.chdir(tmp_path)
    for name in ("qwen3-8b", "Qwen/Qwen3-8B", "some-folder"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "config.json").write_text(json.dumps(CONFIG))


def test_a_folder_under_its_owner_is_read_before_the_hub():
    """The folder that is here is read, not the catalogue's model of that name."""
    assert _local("Qwen/Qwen3-8B") == "./Qwen/Qwen3-8B"
    assert load_model(_local("Qwen/Qwen3-8B")).family == "llama"


def test_a_folder_lends_its_checkpoint_to_its_own_model_only():
    """A bare name that the catalogue knows is the catalogue's: the folder of that name is another model."""
    assert _is_catalogued("qwen3-8b", load_model("qwen3-8b"))
    assert not _is_catalogued("./qwen3-8b", load_model("./qwen3-8b"))
    assert not _is_catalogued("some-folder", load_model("some-folder"))
