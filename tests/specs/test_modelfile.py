"""A model written as YAML, read again, written again: equal models and equal text."""

import json
from pathlib import Path

import pytest
import yaml

from rooflinekit.specs.catalog import list_models, load_model
from rooflinekit.specs.huggingface import model_from_config
from rooflinekit.specs.model import Model
from rooflinekit.specs.modelfile import to_yaml

ROWS = json.loads((Path(__file__).parents[1] / "fixtures" / "configs" / "configs.json").read_text(encoding="utf-8"))


def stable(model):
    """Write, read, compare, write again, compare."""
    text = to_yaml(model)
    again = Model.model_validate(yaml.safe_load(text))
    assert again == model
    assert to_yaml(again) == text
    return text


@pytest.mark.parametrize("name", list_models())
def test_shipped_models(name):
    """Every shipped file survives."""
    stable(load_model(name))


@pytest.mark.parametrize("row", ROWS, ids=[row["id"] for row in ROWS])
def test_models_read_from_a_config(row):
    """Every model read from a config.json can be written as a file of ours; no line of blocks is too long."""
    text = stable(model_from_config(row["config"], row["id"]))
    assert max(len(line) for line in text.splitlines() if not line.startswith("  -  '")) <= 120


def test_style():
    """Defaults are left out, keys stand in the order of the schema, a block is a line."""
    config = {
        "model_type": "mistral",
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "num_hidden_layers": 32,
        "max_position_embeddings": 32768,
        "sliding_window": 4096,
        "torch_dtype": "bfloat16",
        "vocab_size": 32000,
        "quantization_config": {"quant_method": "fp8", "modules_to_not_convert": ["model.layers.0", "lm_head"]},
    }
    assert to_yaml(model_from_config(config, "acme/Small-7B/config.json")) == "\n".join([  # noqa: FLY002 - lines of a file
        "id: small-7b",
        "name: Small-7B",
        "family: mistral",
        "dtype: bf16",
        "max_context_tokens: 32768",
        "hidden_size: 4096",
        "vocabulary: 32000",
        "mixers:",
        "  - {name: window, heads: 32, kv_heads: 8, head_dim: 128, window: 4096}",
        "feedforwards:",
        "  - {name: dense, intermediate_size: 14336}",
        "layers: [[window, dense, 32]]",
        "quantisation: {method: fp8, default: fp8, rules: [[layers.0, plain]]}",
        "",
    ])  # fmt: skip
