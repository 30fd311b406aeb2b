"""What is refused, and how: one line that names file, key, value and what was expected, never a silent dense model."""

import json
from pathlib import Path

import pytest

from rooflinekit.errors import SpecError
from rooflinekit.specs.catalog import load_model
from rooflinekit.specs.huggingface import load_config, model_from_config
from rooflinekit.specs.huggingface.file import LARGEST_BYTES

LLAMA = {
    "model_type": "llama",
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_attention_heads": 16,
    "num_hidden_layers": 4,
    "vocab_size": 32000,
}
ROWS = json.loads((Path(__file__).parents[2] / "fixtures" / "configs" / "configs.json").read_text(encoding="utf-8"))
CONFIGS = {row["id"]: row["config"] for row in ROWS}


def refusal(config, assume=()):
    """Give the one line with which a config is refused."""
    with pytest.raises(SpecError) as error:
        model_from_config(config, "some/config.json", assume)
    message = str(error.value)
    assert message.startswith("some/config.json: ")
    assert "\n" not in message
    return message.removeprefix("some/config.json: ")


# ---- figures


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": None}, "missing key `hidden_size` (or n_embd, d_model, n_embed)"),
        ({"hidden_size": -1}, "`hidden_size` = -1: expected a whole number of 1 or more"),
        ({"hidden_size": "wide"}, "`hidden_size` = 'wide': expected a whole number of 1 or more"),
        ({"hidden_size": [1024]}, "`hidden_size` = [1024]: expected a whole number of 1 or more"),
        ({"hidden_size": True}, "`hidden_size` = true: expected a whole number of 1 or more"),
        ({"hidden_size": float("inf")}, "`hidden_size` = inf: expected a whole number of 1 or more"),
        ({"hidden_size": float("nan")}, "`hidden_size` = nan: expected a whole number of 1 or more"),
        ({"hidden_size": 1023.5}, "`hidden_size` = 1023.5: expected a whole number of 1 or more"),
        ({"hidden_size": 10**40}, "`hidden_size` = 1000"),
        ({"hidden_size": 1000}, "`head_dim` = null: expected a figure, as hidden_size (1000) is no multiple of heads"),
        ({"num_hidden_layers": 100_000_000}, "`num_hidden_layers` = 100000000: expected at most 2000"),
        ({"num_key_value_heads": 5}, "heads (16) must be a multiple of kv_heads (5)"),
        ({"tie_word_embeddings": "perhaps"}, "`tie_word_embeddings` = 'perhaps': expected true or false"),
        ({"hidden_act": "sparkle"}, "`hidden_act` = 'sparkle': expected one of silu"),
        ({"hidden_act": {"name": "silu"}}, "`hidden_act` = {'name': 'silu'}: expected a string"),
        ({"torch_dtype": "float7"}, "`torch_dtype` = 'float7': expected one of bfloat16"),
        ({"layer_types": ["full_attention"]}, "`layer_types` = ['full_attention']: expected a list of 4 entries"),
        ({"layer_types": ["wavy"] * 4}, "`layer_types` = 'wavy': expected one of full_attention"),
        ({"layer_types": ["mamba"] * 4}, "`layer_types` = 'linear': expected one of window, full: this family"),
    ],
)
def test_impossible_figures(changes, message):
    """A figure that cannot be is named with its value and what it should be."""
    assert message in refusal({**LLAMA, **changes})


def test_nested_keys_bear_their_place():
    """A fault inside text_config says so."""
    nested = {"model_type": "llava", "text_config": {**LLAMA, "vocab_size": 0}}
    assert refusal(nested).startswith("`text_config.vocab_size` = 0: expected a whole number")


# ---- keys that nothing explains


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("n_routed_experts", 64),
        ("num_local_experts", 8),
        ("kv_lora_rank", 512),
        ("ssm_state_size", 128),
        ("linear_num_key_heads", 16),
        ("sliding_window", 4096),
        ("index_topk", 2048),
        ("num_kv_shared_layers", 2),
        ("block_configs", [{}]),
        ("a_key_that_nobody_knows", 7),
        ("num_nextn_predict_layers", 1),
        ("is_encoder_decoder", True),
    ],
)
def test_a_key_that_may_change_a_count_refuses_the_file(key, value):
    """A dense reader does not drop experts, latents, states or windows: it names them, and how to go on."""
    message = refusal({**LLAMA, key: value})
    assert message.startswith(f"`{key}` may change a count, and the reader of this family does not explain it")
    assert f"assume=['{key}'] (`--assume {key}`)" in message
    assert model_from_config({**LLAMA, key: value}, "x", [key]).notes == (
        f"read under the assumption that these change no count: {key}",
    )


@pytest.mark.parametrize("value", [None, False, 0, "", [], {}])
def test_a_key_that_is_switched_off_is_no_reason(value):
    """Null, false, zero and empty say that a thing is not there."""
    assert model_from_config({**LLAMA, "n_routed_experts": value}, "x").parameters.total


def test_all_unexplained_keys_stand_in_one_message():
    """Several keys are told at once, and can be assumed at once."""
    extra = {"n_routed_experts": 64, "kv_lora_rank": 512}
    assert refusal({**LLAMA, **extra}).startswith("`n_routed_experts`, `kv_lora_rank` may change a count")
    assert model_from_config({**LLAMA, **extra}, "x", list(extra)).feedforwards[0].name == "dense"


@pytest.mark.parametrize("name", ["deepseek-ai/DeepSeek-V3", "openai/gpt-oss-20b", "Qwen/Qwen3-Next-80B-A3B-Instruct",
                                  "google/gemma-3n-E4B-it", "ai21labs/Jamba-v0.1", "LiquidAI/LFM2-1.2B",
                                  "MiniMaxAI/MiniMax-M1-80k", "mistralai/Mixtral-8x7B-v0.1"])  # fmt: skip
def test_no_silent_dense_model(name):
    """A mixture, a latent or a hybrid that calls itself llama is refused, not read as dense."""
    figures = {"intermediate_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128}
    config = {**figures, **CONFIGS[name], "model_type": "llama"}
    assert "may change a count" in refusal(config) or "expected" in refusal(config)


# ---- families


@pytest.mark.parametrize(
    ("config", "name"),
    [
        ({"model_type": "deepseek_v4"}, "DeepSeek-V4"),
        ({"model_type": "deepseek_ref", "architectures": ["DeepseekV4ForCausalLM"]}, "DeepSeek-V4"),
        ({"architectures": ["DeepseekV4ForCausalLM"]}, "DeepSeek-V4"),
        ({"model_type": "kimi_linear"}, "Kimi-Linear"),
        ({"model_type": "kimi_k3", "text_config": {"model_type": "kimi_linear"}}, "Kimi-K3"),
        ({"model_type": "minimax_m3"}, "MiniMax-M3"),
        ({"model_type": "minimax_m3_vl", "text_config": {"hidden_size": 6144}}, "MiniMax-M3"),
        ({"model_type": "step3_text"}, "Step-3"),
        ({"model_type": "step3_vl", "architectures": ["Step3VLForConditionalGeneration"]}, "Step-3"),
        ({"model_type": "step3p7"}, "Step-3.7"),
    ],
)
def test_families_that_are_not_modelled_are_named(config, name):
    """They are refused by their public name, with what is missing, whatever is assumed."""
    for assume in ((), ("model_type",)):
        message = refusal({**LLAMA, **config}, assume)
        assert message.startswith(f"{name} (")
        assert "is not supported" in message


def test_an_unknown_type_is_told_the_nearest():
    """The message names the nearest family and how to go on."""
    message = refusal({**LLAMA, "model_type": "qwen3_mo"})
    assert message.startswith("`model_type` = 'qwen3_mo' is not known: the nearest known are `qwen3_moe`, `qwen3`.")
    assert 'assume=["model_type=qwen3_moe"] (`--assume model_type=qwen3_moe`)' in message
    assert "is not known: known are bloom" not in message
    assert "known are bloom" in refusal({"model_type": "zzz"}).replace("bailing_moe, ", "")
    assert "the nearest known is `llama`" in refusal({**LLAMA, "model_type": "zzz", "num_key_value_heads": 8})


def test_an_unknown_type_of_a_known_shape_can_be_named():
    """By the name that the user gives, which a note repeats; unexplained keys refuse it all the same."""
    other = {**LLAMA, "model_type": "my_llama"}
    model = model_from_config(other, "x", ["model_type=gemma"])
    assert model.family == "gemma"
    assert model.notes == ("read as the family `gemma`, which the user assumed: the file's `model_type` is 'my_llama'",)
    assert "`qk_nope_head_dim` may change" in refusal({**other, "qk_nope_head_dim": 128}, ["model_type=llama"])
    deepseek = {**CONFIGS["deepseek-ai/DeepSeek-V3"], "model_type": "my_v3"}
    assert model_from_config(deepseek, "x", ["model_type=deepseek_v3"]).parameters.total == 671_026_404_352
    assert refusal(other, ["model_type=zzz"]).startswith("`model_type` = 'zzz' is not known")
    untold = {key: value for key, value in LLAMA.items() if key != "model_type"}
    (note,) = model_from_config(untold, "x", ["model_type=llama"]).notes
    assert note.endswith("assumed: the file has no `model_type`")


GEMMA2 = {
    "hidden_size": 3584, "intermediate_size": 14336, "num_attention_heads": 16, "num_key_value_heads": 8,
    "head_dim": 256, "num_hidden_layers": 42, "vocab_size": 256000, "sliding_window": 4096,
    "max_position_embeddings": 8192, "attn_logit_softcapping": 50.0, "hidden_activation": "gelu_pytorch_tanh",
}  # fmt: skip


def test_no_family_is_guessed():
    """A bare `model_type` names none: Gemma 2 under another name was read as Mistral, with 10.16e9 parameters."""
    shield = {**GEMMA2, "model_type": "shieldgemma", "architectures": ["ShieldGemmaForCausalLM"]}
    message = refusal(shield, ["model_type"])
    assert message.startswith(
        'assume=["model_type"] names no family, and none is guessed: the nearest known are `gemma2`'
    )
    assert 'assume=["model_type=gemma2"] (`--assume model_type=gemma2`)' in message
    assert "the nearest known are `gemma2`" in refusal(shield)
    assert model_from_config(shield, "x", ["model_type=gemma2"]).parameters.total == 9_241_705_984
    assert "names no family" in refusal(LLAMA, ["model_type="])
    assert "name several families" in refusal(LLAMA, ["model_type=llama", "model_type=gemma"])
    assert "is `llama`" in refusal({**LLAMA, "architectures": ["LlamaForCausalLM"]}, ["model_type"])


@pytest.mark.parametrize(
    ("changes", "near"),
    [
        ({"architectures": ["Qwen2ForCausalLM"]}, "`qwen2`"),
        ({"kv_lora_rank": 512}, "`deepseek_v3`"),
        ({"kv_lora_rank": 512, "index_topk": 2048}, "`deepseek_v32`"),
        ({"num_local_experts": 8}, "`mixtral`"),
        ({"sliding_window": 4096}, "`mistral`"),
    ],
)
def test_what_the_advice_looks_at(changes, near):
    """The class, then keys that few families have, then the name, then common keys."""
    assert f"the nearest known is {near}." in refusal({**LLAMA, "model_type": "zzz", **changes})


def test_a_missing_type_is_taken_from_the_class():
    """Files that name their class only are read; those that name neither, or an unknown one, are told so."""
    config = {key: value for key, value in LLAMA.items() if key != "model_type"}
    assert model_from_config({**config, "architectures": ["LlamaForCausalLM"]}, "x").family == "llama"
    assert refusal(config).startswith(
        "has neither `model_type` nor `architectures`, which name the family: the nearest"
    )
    assert len(refusal({"id": 1})) < 250
    assert refusal({}).startswith("holds no keys")
    message = refusal({"architectures": ["ZzzForCausalLM"], "hidden_size": 8})
    assert message.startswith("no `model_type`, and `architectures` = ZzzForCausalLM is not known")


def test_an_adapter_is_named(tmp_path):
    """The adapter_config.json of a LoRA is no model; in a folder it may stand alone."""
    adapter = {"peft_type": "LORA", "base_model_name_or_path": "acme/Some-8B", "r": 16}
    told = "describes an adapter (LORA) of acme/Some-8B, no model: expected the config.json of its base model"
    assert refusal(adapter) == told
    (tmp_path / "adapter_config.json").write_text(json.dumps(adapter))
    with pytest.raises(SpecError, match="describes an adapter"):
        load_config(tmp_path)


def test_halves_of_a_file_that_say_little():
    """An empty text_config is no half; one without a type is looked up by the file's."""
    assert model_from_config({**LLAMA, "text_config": {}}, "x").family == "llama"
    figures = {key: value for key, value in LLAMA.items() if key != "model_type"}
    message = refusal({"model_type": "gemma3_vlm", "text_config": figures})
    assert message.startswith(
        "`text_config` has no `model_type`, and the file's `model_type` = 'gemma3_vlm' is not known"
    )
    assert "the nearest known are `gemma3" in message


# ---- what the user vouches for


def test_only_keys_that_nothing_reads_can_be_assumed():
    """A key that the reader reads is never dropped, and one that the file does not have is a slip."""
    config = {**LLAMA, "num_key_value_heads": 8}
    assert refusal(config, ["num_key_value_heads"]).startswith("assume: `num_key_value_heads` is a key that the reader")
    assert refusal(config, ["num_kv_head"]) == "assume: the file has no key `num_kv_head`: expected a key that it has"
    nested = {"model_type": "llava", "text_config": config}
    for name in ("num_key_value_heads", "text_config.num_key_value_heads"):
        assert "is a key that the reader" in refusal(nested, [name])
    assert "has no key `quantization_config`" in refusal(config, ["quantization_config"])


def test_all_flags_to_go_on():
    """The message is what to type: every flag, and the list in Python."""
    message = refusal({**LLAMA, "lora_r": 8, "lora_alpha": 16})
    assert message.endswith("assume=['lora_r', 'lora_alpha'] (`--assume lora_r --assume lora_alpha`)")


def test_forms_that_a_family_is_not_modelled_for():
    """A switch that would need other formulas is refused by name."""
    bias = {**CONFIGS["state-spaces/mamba-130m-hf"], "use_bias": True}
    assert refusal(bias) == "`use_bias` = true: expected false: this family is not modelled with another"
    post = {**CONFIGS["facebook/opt-125m"], "do_layer_norm_before": False}
    assert refusal(post).startswith("`do_layer_norm_before` = false: expected true")


# ---- files


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"model_type": "llama", "hidden', "is no JSON file (Unterminated string"),
        ("hidden_size: 1024", "is no JSON file (Expecting value"),
        ("", "is no JSON file (Expecting value"),
        ("[1, 2]", "holds list, expected a mapping of keys to values"),
        ("[" * 200_000, "is no JSON file"),
        ('{"hidden_size": 1' + "0" * 5000 + "}", "is no JSON file (Exceeds the limit"),
        (b"\xff\xfe\x00", "is no JSON file ('utf-8' codec"),
    ],
)
def test_files_that_are_no_config(tmp_path, text, message):
    """A truncated or foreign file is refused in one line."""
    path = tmp_path / "config.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    for read in (load_config, load_model):
        with pytest.raises(SpecError) as error:
            read(path)
        assert str(error.value).startswith(f"{path}: {message}")
        assert "\n" not in str(error.value)


def test_a_file_of_200_mb_is_refused_before_reading(tmp_path):
    """The size is looked at first: the file is sparse, reading it would take seconds."""
    path = tmp_path / "config.json"
    with path.open("wb") as file:
        file.truncate(200_000_000)
    with pytest.raises(
        SpecError, match=rf"holds 200,000,000 bytes: expected a config.json of at most {LARGEST_BYTES:,}"
    ):
        load_config(path)


def test_missing_files(tmp_path):
    """A path that is not there, and a folder without a config.json."""
    with pytest.raises(SpecError, match=r"cannot be read \(No such file or directory\): expected a config.json"):
        load_config(tmp_path / "no.json")
    with pytest.raises(SpecError, match=r"config\.json: cannot be read"):
        load_model(tmp_path)


def test_load_model_hands_assumptions_on(tmp_path):
    """`assume` of load_model is the reader's, and a second call without it is refused again."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**LLAMA, "kv_lora_rank": 8}))
    assert load_model(path, assume=["kv_lora_rank"]).family == "llama"
    assert load_model(path, assume="kv_lora_rank").family == "llama"
    with pytest.raises(SpecError, match="`kv_lora_rank` may change a count"):
        load_model(path)


def test_two_names_of_one_figure_must_agree():
    """A file that gives a figure twice under two names, and not the same, is refused; equal figures are no fault."""
    assert refusal({**LLAMA, "n_embd": 2048}).startswith("`n_embd` = 2048: expected 1024, which another name")
    assert model_from_config({**LLAMA, "n_embd": 1024}, "x").hidden_size == 1024


def test_keys_inside_mappings_can_be_assumed():
    """A key is assumed under the name that the error gave it."""
    config = {**CONFIGS["mosaicml/mpt-7b"]}
    config["attn_config"] = {**config["attn_config"], "wavelets": 3}
    assert refusal(config).startswith("`attn_config.wavelets` may change a count")
    assert model_from_config(config, "x", ["attn_config.wavelets"]).family == "mpt"
    nested = {"model_type": "llava", "text_config": {**LLAMA, "wavelets": 3}}
    assert refusal(nested).startswith("`text_config.wavelets` may change a count")
    for name in ("wavelets", "text_config.wavelets"):
        assert model_from_config(nested, "x", [name]).family == "llama"
