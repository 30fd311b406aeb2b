"""Real config.json files, boiled down to the keys that decide a count, against counts that are not ours.

The transformers 5.24.0 class built from the same file gives the parameters; where no class exists, another
implementation of the shapes does. Caches and states come from that implementation too.
"""

import json
from pathlib import Path

import pytest

from rooflinekit.errors import SpecError
from rooflinekit.specs.catalog import load_model
from rooflinekit.specs.huggingface import load_config, model_from_config
from rooflinekit.specs.huggingface.families import FAMILIES

ROWS = json.loads((Path(__file__).parents[2] / "fixtures" / "configs" / "configs.json").read_text(encoding="utf-8"))
#: Two files are there twice: as found and as rebuilt from the class.
TABLE = [pytest.param(row, id=f"{row['id']}{'' if 'repo' in row['source'] else ' (rebuilt)'}") for row in ROWS]

#: The prediction module in our reading minus the other implementation's, and why.
PREDICTION = {
    "Qwen/Qwen3-Next-80B-A3B-Instruct": (-1_650_471_424, "the checkpoint holds it, config.json does not name it"),
    "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-FP8": (2_942_324_736, "*E in the file; not modelled there"),
    "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4": (2_942_324_736, "*E in the file; not modelled there"),
    "nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16": (11_215_609_856, "*E in the file; not modelled there"),
    "nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-FP8": (11_215_609_856, "*E in the file; not modelled there"),
    "nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-NVFP4": (11_215_609_856, "*E in the file; not modelled there"),
    "nvidia/NVIDIA-Nemotron-3.5-Lightning-30B-A3B-NVFP4": (1_335_325_824, "*E in the file; not modelled there"),
}
#: Active parameters in our count minus the other's: the biases of experts that a token does not go through.
ACTIVE = {
    "openai/gpt-oss-20b": -24 * (32 - 4) * (2 * 2880 + 2880),
    "openai/gpt-oss-120b": -36 * (128 - 4) * (2 * 2880 + 2880),
}


def read(row):
    """Read a row's config as a file of that name."""
    return model_from_config(row["config"], f"{row['id']}/config.json")


@pytest.mark.parametrize("row", TABLE)
def test_parameters(row):
    """Total and active parameters equal the reference to the last one, but for the listed exceptions."""
    found = read(row).parameters
    assert found.total == row["expected"]["total"]
    assert found.active - row["expected"]["active"] == ACTIVE.get(row["id"], 0)


@pytest.mark.parametrize("row", TABLE)
def test_prediction_module(row):
    """The prediction module is counted apart, copies of the tables not included."""
    model = read(row)
    module = model.prediction_module
    copies = 2 * model.hidden_size * model.vocabulary if module and module.stores_copies else 0
    difference = model.parameters.prediction_module - copies - row["expected"].get("mtp", 0)
    assert difference == PREDICTION.get(row["id"], (0, ""))[0]


@pytest.mark.parametrize("row", TABLE)
def test_cache_and_state(row):
    """What a token adds to the cache over all layers, and what a sequence holds whatever its length, to the byte."""
    runs = read(row).layer_runs
    assert sum(2 * run.times * run.mixer.cached_per_token for run in runs) == row["expected"]["kv_per_token"]
    state = sum(run.times * held.values * held.bytes_per_value for run in runs for held in run.mixer.states)
    assert state == row["expected"]["state"]


def test_how_many():
    """213 rows are counted by transformers, which is 211 models and two that are there twice."""
    counted = [row for row in ROWS if row["expected"]["counted_by"] == "transformers 5.24.0"]
    assert (len(ROWS), len(counted), len({row["id"] for row in counted})) == (225, 213, 211)


def test_most_families_have_a_file():
    """Families without a real file are few and named here: they are read as their nearest kin."""
    seen = {read(row).family for row in ROWS}
    assert set(FAMILIES) - seen == {
        "cohere2",
        "gemma3n",
        "gemma3",
        "gemma4",
        "glm4",
        "minimax_text_01",
        "ministral",
        "qwen2_5_vl_text",
        "qwen2_vl",
        "qwen2_vl_text",
    }


# ---- the traps


LLAMA = {
    "model_type": "llama",
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_hidden_layers": 16,
    "vocab_size": 128256,
    "tie_word_embeddings": True,
}


def test_numbers_as_strings_and_floats():
    """32, 32.0 and "32" are one number."""
    plain = model_from_config(LLAMA, "x")
    assert model_from_config({**LLAMA, "num_attention_heads": 32.0, "hidden_size": "2048"}, "x") == plain


def test_missing_dtype():
    """A file without torch_dtype is read; its dtype stays unsaid. The newer key is read as well."""
    assert model_from_config(LLAMA, "x").dtype is None
    assert model_from_config({**LLAMA, "dtype": "bfloat16"}, "x").dtype == "bf16"


def test_infinity(tmp_path):
    """`Infinity` in a file is no fault: it is a limit of time steps."""
    (tmp_path / "config.json").write_text(json.dumps({**LLAMA, "time_step_limit": [0.0, float("inf")]}))
    assert load_config(tmp_path).parameters.total == 1_235_814_400


def test_nested_text_config():
    """The language model of a multimodal file is read; what stands around it is only the tie and the dtype."""
    nested = {**LLAMA, "rope_theta": 1e4}
    tied = nested.pop("tie_word_embeddings")
    file = {"model_type": "llava", "text_config": nested, "tie_word_embeddings": tied, "vision_config": {"depth": 32}}
    model = model_from_config(file, "x")
    assert model.parameters == model_from_config(LLAMA, "x").parameters
    assert model.notes == ("the language model only: vision and audio towers are not described",)


def test_head_width_is_not_hidden_over_heads():
    """The explicit head_dim rules."""
    assert model_from_config({**LLAMA, "head_dim": 128}, "x").mixers[0].head_dim == 128


@pytest.mark.parametrize(
    ("changes", "window"),
    [
        ({"sliding_window": 4096, "max_position_embeddings": 32768}, 4096),
        ({"sliding_window": 32768, "max_position_embeddings": 32768}, None),
        ({"sliding_window": 4096, "use_sliding_window": False}, None),
        ({"sliding_window": None}, None),
    ],
)
def test_windows_that_do_not_apply(changes, window):
    """A window is none where it is switched off, or no shorter than the context."""
    assert model_from_config({**LLAMA, "model_type": "mistral", **changes}, "x").mixers[0].window == window


def test_the_folder_names_the_model(tmp_path):
    """A folder gives id and name; a snapshot of the Hub's cache gives the Hub id too."""
    folder = tmp_path / "models--acme--Some-Model-1B" / "snapshots" / "0123abc"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(LLAMA))
    model = load_model(folder)
    assert (model.id, model.name, model.hub_ids) == ("some-model-1b", "Some-Model-1B", ("acme/Some-Model-1B",))


def test_modelopt_file_beside_the_config(tmp_path):
    """ModelOpt's own file in the folder tells the formats where config.json does not."""
    told = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}}
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    (tmp_path / "hf_quant_config.json").write_text(json.dumps(told))
    found = load_config(tmp_path).quantisation
    assert (found.default, found.kv_cache) == ("fp8", "fp8")


def test_small_layers_are_equal_whatever_the_order_of_keys():
    """The reading does not depend on the order of the file."""
    assert model_from_config(dict(reversed(LLAMA.items())), "x") == model_from_config(LLAMA, "x")


YARN = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}


@pytest.mark.parametrize("key", ["rope_scaling", "rope_parameters"])
@pytest.mark.parametrize(
    ("scaling", "context"),
    [
        (YARN, 131_072),
        ({**YARN, "type": None, "rope_type": "yarn"}, 131_072),
        ({"full_attention": YARN, "sliding_attention": {"rope_type": "default"}}, 131_072),
        ({**YARN, "factor": 0.5}, 40_960),
        ({"type": "yarn", "factor": 4.0}, 40_960),
        ({"rope_type": "linear", "factor": 2.0}, 81_920),
        ({"rope_type": "linear", "factor": 4, "original_max_position_embeddings": 16384}, 65_536),
        ({**YARN, "type": "longrope"}, 40_960),
        ({**YARN, "type": "llama3"}, 40_960),
        (None, 40_960),
    ],
)
def test_scaled_rotations_reach_further(key, scaling, context):
    """The context is what yarn or linear scaling reaches, where the file's positions are those before it."""
    config = {**LLAMA, "max_position_embeddings": 40_960, key: scaling}
    assert model_from_config(config, "x").max_context_tokens == context


def test_scaling_that_is_counted_already():
    """Gemma 3 files give the positions after scaling; a factor that is no number is refused."""
    scaling = {"rope_type": "linear", "factor": 8.0}
    gemma = {**LLAMA, "model_type": "gemma3_text", "max_position_embeddings": 131_072, "rope_scaling": scaling}
    assert model_from_config(gemma, "x").max_context_tokens == 131_072
    with pytest.raises(SpecError, match=r"`rope_scaling.factor` = 'much': expected a number above 0"):
        model_from_config({**gemma, "model_type": "llama", "rope_scaling": {**scaling, "factor": "much"}}, "x")


@pytest.mark.parametrize("name", ["LlamaForSequenceClassification", "LlamaForTokenClassification", "LlamaModel"])
def test_a_class_without_an_output_layer(name):
    """The output layer that is counted all the same stands in a note, with its parameters."""
    untied = {**LLAMA, "tie_word_embeddings": False, "architectures": [name]}
    told = f"an output layer is counted that {name} does not have"
    assert model_from_config(untied, "x").notes == (f"{told}: 262,668,288 parameters",)
    tied = {**untied, "tie_word_embeddings": True}
    assert model_from_config(tied, "x").notes == (f"{told}: it is the embedding table, no parameters more",)


@pytest.mark.parametrize("name", ["LlamaForCausalLM", "GPT2LMHeadModel", "LlamaForConditionalGeneration"])
def test_a_class_with_an_output_layer(name):
    """No note where the class has one."""
    assert model_from_config({**LLAMA, "architectures": [name]}, "x").notes == ()
