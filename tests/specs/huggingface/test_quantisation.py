"""Every form of quantization_config, and the stored sizes of checkpoints that are known."""

import json
from pathlib import Path

import pytest

from rooflinekit.errors import InvalidInputError, SpecError
from rooflinekit.phases.memory import stored_weight_bytes
from rooflinekit.specs.huggingface import model_from_config
from rooflinekit.specs.precision import Precision, weight_format
from rooflinekit.specs.quantisation import Quantisation

ROWS = json.loads((Path(__file__).parents[2] / "fixtures" / "configs" / "configs.json").read_text(encoding="utf-8"))
CONFIGS = {row["id"]: row["config"] for row in ROWS}
LLAMA = {
    "model_type": "llama",
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "num_hidden_layers": 4,
    "vocab_size": 32000,
    "torch_dtype": "bfloat16",
}
MIXTURE = {
    **LLAMA,
    "model_type": "qwen3_moe",
    "moe_intermediate_size": 512,
    "num_experts": 8,
    "num_experts_per_tok": 2,
}


def scheme(told, base=LLAMA, key="quantization_config"):
    """Read a quantisation over a small model."""
    return model_from_config({**base, key: told}, "x").quantisation


def group(weights, activations=None, targets=("Linear",), **more):
    """Write one group of compressed-tensors."""
    return {"targets": list(targets), "weights": weights, "input_activations": activations, **more}


INT4 = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128, "symmetric": True}
INT8 = {"num_bits": 8, "type": "int", "strategy": "channel", "symmetric": True}
FP8 = {"num_bits": 8, "type": "float", "strategy": "channel"}
FP4 = {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16}
MX4 = {"num_bits": 4, "type": "float", "strategy": "group", "group_size": 32}


def compressed(*groups, **more):
    """Write a compressed-tensors mapping."""
    named = {f"group_{number}": entry for number, entry in enumerate(groups)}
    return {"quant_method": "compressed-tensors", "config_groups": named, **more}


#: What the file says, the format that it means, its bits with scales.
FORMS = {
    "awq": ({"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}, "int4", 4.15625),
    "awq, older names": ({"quant_method": "awq", "w_bit": 4, "q_group_size": 64}, "int4-g64-zp", 4.3125),
    "gptq": ({"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False}, "int4", 4.15625),
    "gptq, older names": ({"quant_method": "gptq", "bits": 3, "groupsize": 32}, "int3-g32-zp", 3.59375),
    "gptq, one group a row": ({"quant_method": "gptq", "bits": 8, "group_size": -1}, "int8-weight-only", 8),
    "gptq 4 bits, one group a row": ({"quant_method": "gptq", "bits": 4, "group_size": -1}, "int4-row", 4),
    "AutoRound": ({"quant_method": "auto-round", "bits": 2, "group_size": 64}, "int2-g64-zp", 2.28125),
    "bitsandbytes 4 bits": ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "nf4", 4.5),
    "bitsandbytes, double": (
        {"quant_method": "bitsandbytes", "_load_in_4bit": True, "bnb_4bit_use_double_quant": True},
        "nf4-double",
        4.126953125,
    ),
    "bitsandbytes 8 bits": ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "int8", 8),
    "fp8 per tensor": ({"quant_method": "fp8", "weight_block_size": None}, "fp8", 8),
    "fp8 per block": ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8-block", 8 + 32 / 128**2),
    "fp8 per other block": ({"quant_method": "fp8", "weight_block_size": [64, 64]}, "fp8-block-64x64", 8 + 32 / 64**2),
    "fbgemm_fp8": ({"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0}, "fp8", 8),
    "compressed-tensors pack": (compressed(group(INT4), format="pack-quantized"), "int4-g128", 4.125),
    "compressed-tensors pack, zero points": (compressed(group({**INT4, "symmetric": False})), "int4", 4.15625),
    "compressed-tensors pack, groups of 32": (compressed(group({**INT4, "group_size": 32})), "int4-g32", 4.5),
    "compressed-tensors W4A8": (compressed(group(INT4, {"num_bits": 8, "type": "int"})), "int4-g128-int8", 4.125),
    "compressed-tensors int8": (
        compressed(group(INT8, {"num_bits": 8, "type": "int"}), format="int-quantized"),
        "int8",
        8,
    ),
    "compressed-tensors W8A16": (compressed(group(INT8)), "int8-weight-only", 8),
    "compressed-tensors fp8": (
        compressed(group(FP8, {"num_bits": 8, "type": "float"}), format="float-quantized"),
        "fp8",
        8,
    ),
    "compressed-tensors fp8, weights only": (compressed(group(FP8)), "fp8-weight-only", 8),
    "compressed-tensors fp8 block": (
        compressed(
            group({**FP8, "strategy": "block", "block_structure": [128, 128]}, {"num_bits": 8, "type": "float"})
        ),
        "fp8-block",
        8 + 32 / 128**2,
    ),
    "compressed-tensors mxfp4": (compressed(group(MX4), format="mxfp4-pack-quantized"), "mxfp4", 4.25),
    "compressed-tensors nvfp4": (
        compressed(group(FP4, {"num_bits": 4, "type": "float"}), format="nvfp4-pack-quantized"),
        "nvfp4",
        4.5,
    ),
    "compressed-tensors nvfp4, weights only": (compressed(group(FP4)), "nvfp4-weight-only", 4.5),
    "modelopt FP8": ({"quant_method": "modelopt", "quant_algo": "FP8"}, "fp8", 8),
    "modelopt without quant_method": ({"quant_algo": "FP8", "producer": {"name": "modelopt"}}, "fp8", 8),
    "modelopt NVFP4": ({"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16}, "nvfp4", 4.5),
    "modelopt AWQ": ({"quant_method": "modelopt", "quant_algo": "W4A16_AWQ", "group_size": 128}, "int4-g128", 4.125),
    "modelopt, one level down": ({"quant_method": "modelopt", "quantization": {"quant_algo": "FP8"}}, "fp8", 8),
    "torchao by name": (
        {"quant_method": "torchao", "quant_type": "int4_weight_only", "quant_type_kwargs": {"group_size": 64}},
        "int4-g64-zp16",
        4.5,
    ),
    "torchao by class": (
        {
            "quant_method": "torchao",
            "quant_type": {"default": {"_type": "Int4WeightOnlyConfig", "_data": {"group_size": 128}}},
        },
        "int4-g128-zp16",
        4.25,
    ),
    "torchao fp8": (
        {"quant_method": "torchao", "quant_type": {"default": {"_type": "Float8DynamicActivationFloat8WeightConfig"}}},
        "fp8",
        8,
    ),
    "torchao W4A8": (
        {"quant_method": "torchao", "quant_type": "int8_dynamic_activation_int4_weight"},
        "int4-g32-int8",
        4.5,
    ),
    "eetq": ({"quant_method": "eetq"}, "int8-weight-only", 8),
}


@pytest.mark.parametrize(("told", "name", "bits"), FORMS.values(), ids=FORMS)
def test_forms(told, name, bits):
    """A form gives the format of all linear layers; table and output layer stay plain but for compressed-tensors."""
    found = scheme(told)
    assert (found.default, weight_format(found.default).bits) == (name, bits)
    assert found.format_of("layers.3.mlp.down_proj") == name
    assert found.embedding == "plain"
    assert found.head == (name if told.get("quant_method") == "compressed-tensors" else "plain")


def test_weight_only_formats_compute_in_the_models_own_dtype():
    """int4, mxfp4, nf4 and MLX weights meet 16-bit activations; fp8 and nvfp4 do not."""
    names = ("int4", "int4-g32-zp", "int8-weight-only", "mxfp4", "nf4-double", "mlx-4bit-g32", "nvfp4-weight-only")
    assert [weight_format(name).arithmetic for name in names] == [None] * len(names)
    names = ("fp8-block", "nvfp4", "int8", "int4-g128-int8")
    assert [weight_format(name).arithmetic for name in names] == ["fp8", "fp4", "int8", "int8"]


# ---- MLX, mxfp4: what belongs to them alone


def test_mlx_quantises_the_table_too():
    """A top-level `quantization` is MLX's; single modules may differ, or be left alone."""
    found = scheme({"group_size": 64, "bits": 4}, key="quantization")
    assert (found.method, found.default, found.head, found.embedding) == ("mlx", *["mlx-4bit"] * 3)
    told = {
        "group_size": 32,
        "bits": 4,
        "lm_head": False,
        "model.layers.1.mlp.down_proj": {"bits": 8, "group_size": 64},
    }
    found = scheme(told, key="quantization")
    assert (found.default, found.head) == ("mlx-4bit-g32", "plain")
    assert found.rules == (("layers.1.mlp.down_proj", "mlx-8bit"),)
    assert weight_format(found.default).bits == 5.0


def test_mlx_writes_both_keys():
    """Newer MLX files repeat the mapping under the usual key, without a method."""
    told = {"group_size": 64, "bits": 6}
    assert (
        model_from_config({**LLAMA, "quantization": told, "quantization_config": told}, "x").quantisation.default
        == "mlx-6bit"
    )


def test_mxfp4_is_the_experts():
    """gpt-oss: only the routed experts are quantised, whatever else the file leaves out."""
    found = scheme({"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}, MIXTURE)
    assert found.format_of("layers.0.mlp.experts") == "mxfp4"
    assert found.format_of("layers.0.self_attn.q_proj") == "plain"


# ---- what is left out


LEFT_OUT = [
    # pattern                                   matrix                          format
    (["model.layers.1.self_attn"], "layers.1.self_attn.q_proj", "plain"),
    (["model.layers.1.self_attn"], "layers.2.self_attn.q_proj", "fp8"),
    (["model.layers.1*"], "layers.1.mlp.up_proj", "plain"),
    (["model.layers.*.self_attn"], "layers.3.self_attn.o_proj", "plain"),
    (["*self_attn*"], "layers.3.self_attn.o_proj", "plain"),
    (["re:.*self_attn.*"], "layers.0.self_attn.k_proj", "plain"),
    (["re:model\\.layers\\.(0|3)\\.mlp.*"], "layers.3.mlp.gate_proj", "plain"),
    (["re:model\\.layers\\.(0|3)\\.mlp.*"], "layers.2.mlp.gate_proj", "fp8"),
    (["language_model.model.layers.2.mlp.down_proj"], "layers.2.mlp.down_proj", "plain"),
    (["down_proj"], "layers.0.mlp.down_proj", "plain"),
    (["mlp.down"], "layers.0.mlp.down_proj", "fp8"),
    (["model.layers.0.mlp.gate_up_proj"], "layers.0.mlp.up_proj", "plain"),
    (["model.layers.0.feed_forward.w2"], "layers.0.mlp.down_proj", "plain"),
    (["visual.layers.0.mlp.down_proj", "mtp*", "mtp.layers.0*"], "layers.0.mlp.down_proj", "fp8"),
]


@pytest.mark.parametrize(("patterns", "path", "form"), LEFT_OUT)
def test_what_is_left_out(patterns, path, form):
    """Plain paths, wildcards and regular expressions speak of the checkpoint's names, at any depth."""
    for key in ("ignore", "exclude_modules", "modules_to_not_convert"):
        assert scheme({"quant_method": "modelopt", "quant_algo": "FP8", key: patterns}).format_of(path) == form


def test_experts_and_shared_experts_under_their_many_names():
    """block_sparse_moe, numbered experts, the singular shared_expert."""
    base = {**MIXTURE, "model_type": "qwen2_moe", "shared_expert_intermediate_size": 512}
    told = {"quant_method": "modelopt", "quant_algo": "NVFP4"}
    found = scheme({**told, "ignore": ["*.mlp.shared_expert.*"]}, base)
    assert found.rules == (("mlp.shared_experts", "plain"),)
    found = scheme({**told, "ignore": ["re:.*experts\\.\\d+\\.gate_proj"]}, base)
    assert found.format_of("layers.2.mlp.experts") == "plain"
    found = scheme({**told, "ignore": ["model.layers.3.block_sparse_moe.experts"]}, base)
    assert found.rules == (("layers.3.mlp.experts", "plain"),)


def test_rules_are_short():
    """A layer left out whole is one rule; a module left out everywhere is one rule."""
    told = {
        "quant_method": "modelopt",
        "quant_algo": "NVFP4",
        "ignore": ["model.layers.0*", "model.layers.*.self_attn*"],
    }
    assert scheme(told).rules == (("layers.0", "plain"), ("self_attn", "plain"))


def test_several_groups():
    """Groups with targets of their own go before the one of all linear layers."""
    experts = group(FP4, {"num_bits": 4, "type": "float"}, ["re:.*experts.*"])
    found = scheme(compressed(group(FP8, {"num_bits": 8, "type": "float"}), experts, ignore=["lm_head"]), MIXTURE)
    assert found.format_of("layers.0.mlp.experts") == "nvfp4"
    assert found.format_of("layers.0.self_attn.q_proj") == "fp8"
    assert found.head == "plain"


def test_mixed_precision_lists_matrices():
    """MIXED_PRECISION: what the list names has its own format, what it does not name is plain."""
    layers = {f"model.layers.{index}.mlp.{name}": {"quant_algo": "NVFP4", "group_size": 16}
              for index in range(4) for name in ("gate_proj", "up_proj", "down_proj")}  # fmt: skip
    layers["model.layers.2.self_attn.q_proj"] = {"quant_algo": "FP8"}
    layers["lm_head"] = {"quant_algo": "W4A16_NVFP4"}
    found = scheme({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": layers})
    assert (found.default, found.head) == ("nvfp4", "nvfp4-weight-only")
    assert found.rules == (("layers.2.self_attn.q_proj", "fp8"), ("self_attn", "plain"))


@pytest.mark.parametrize(
    ("told", "cache"),
    [
        ({"kv_cache_scheme": {"num_bits": 8, "type": "float"}}, "fp8"),
        ({"kv_cache_scheme": {"num_bits": 8, "type": "int"}}, "int8"),
        ({"kv_cache_scheme": "FP8"}, "fp8"),
        ({"kv_cache_quant_algo": "FP8"}, "fp8"),
        ({"kv_cache_scheme": None}, None),
        ({}, None),
    ],
)
def test_kv_cache(told, cache):
    """The cache has a scheme of its own: the weights' format never decides it."""
    assert scheme({"quant_method": "modelopt", "quant_algo": "NVFP4", **told}).kv_cache == cache


def test_nested_in_the_language_model():
    """The mapping may stand inside text_config."""
    nested = {**LLAMA, "quantization_config": {"quant_method": "fp8"}}
    assert model_from_config({"model_type": "llava", "text_config": nested}, "x").quantisation.default == "fp8"


@pytest.mark.parametrize(
    ("told", "message"),
    [
        (
            {"quant_method": "sparkle"},
            "`quantization_config.quant_method` = 'sparkle': expected one of auto-round, awq",
        ),
        ({"quant_method": "gptq", "bits": "many"}, "`quantization_config.bits` = 'many': expected a whole number"),
        ({"quant_method": "gptq", "bits": 5, "group_size": 1.5}, "`quantization_config.group_size` = 1.5"),
        ({"quant_method": "awq", "group_size": 1_000_000}, "`quantization_config.group_size` = 1000000"),
        ({"quant_method": "bitsandbytes"}, "`quantization_config.load_in_4bit` = false: expected true"),
        (
            {"quant_method": "modelopt", "quant_algo": "FP3"},
            "`quantization_config.quant_algo` = 'FP3': expected one of",
        ),
        ({"quant_method": "fp8", "kv_cache_scheme": {"num_bits": 4}}, "`quantization_config.kv_cache_scheme` ="),
        ({"quant_method": "fp8", "weight_block_size": [0, 128]}, "`quantization_config.weight_block_size`"),
        ({"quant_method": "compressed-tensors"}, "missing key `quantization_config.config_groups`"),
        (compressed(group({"num_bits": 6, "type": "float"})), "float 6"),
        ({"quant_method": "fp8", "ignore": [3]}, "a list of module names"),
        ({"quant_method": "fp8", "ignore": ["re:("]}, "a regular expression"),
        ([4], "a mapping"),
    ],
)
def test_refused(told, message):
    """A form that is not known is one line with key, value and expectation; assumed away, the model is read plain."""
    with pytest.raises(SpecError) as error:
        scheme(told)
    assert message in str(error.value)
    assert "\n" not in str(error.value)
    assert model_from_config({**LLAMA, "quantization_config": told}, "x", ["quantization_config"]).quantisation is None


# ---- stored sizes


AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}
FP8_DYNAMIC = compressed(group(FP8, {"num_bits": 8, "type": "float"}), ignore=["lm_head"])
# fmt: off
SIZES = [
    # model                                          quantised    tower        MTP    GiB     what the file is
    ("Qwen/Qwen3-8B",                                AWQ,         0,           False, 5.68),   # Qwen3-8B-AWQ
    ("deepseek-ai/DeepSeek-V3",                      None,        0,           True,  641.30),  # MTP and its copies
    ("deepseek-ai/DeepSeek-V3.2",                    None,        0,           True,  642.14),  # with an indexer
    ("zai-org/GLM-5.2-FP8",                          None,        0,           True,  703.75),  # MTP, no copies
    ("MiniMaxAI/MiniMax-M2.7",                       None,        0,           False, 214.34),  # fp8 in blocks
    ("moonshotai/Kimi-K2.5",                         None,        471_143_920, False, 554.32),  # int4 experts
    ("meta-llama/Llama-3.3-70B-Instruct",            FP8_DYNAMIC, 0,           False, 67.72),   # as vLLM logs it
    ("nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-FP8", None,        0,           True,  230.25),  # the bf16 file, MTP
    ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",   None,        0,           False, 58.82),   # bf16
    ("google/gemma-3-27b-it",                        None,        423_060_336, False, 51.10),   # bf16, vision tower
    ("Qwen/Qwen3-32B",                               None,        0,           False, 61.03),   # as vLLM logs it
]
# fmt: on


def stored_gib(name, told=None, tower=0, *, prediction=False):
    """Bytes of a checkpoint: the language model, its prediction module, and a tower of 16-bit weights."""
    config = CONFIGS[name] if told is None else {**CONFIGS[name], "quantization_config": told}
    model = model_from_config(config, "x")
    held = model.quantisation or Quantisation(default="plain")
    precision = Precision(weight_format(held.default.replace("plain", "bf16")), held, "bf16", "bf16")
    stored = stored_weight_bytes(model, precision) + 2 * tower
    if prediction:
        copies = 2 * model.hidden_size * model.vocabulary * model.prediction_module.stores_copies
        own = model.parameters.prediction_module - copies
        stored += own * precision.weights.bytes_per_weight + 2 * copies
    return stored / 2**30


@pytest.mark.parametrize(("name", "told", "tower", "prediction", "gib"), SIZES)
def test_stored_size(name, told, tower, prediction, gib):
    """The stored bytes are those of the checkpoint within half a percent."""
    assert stored_gib(name, told, tower, prediction=prediction) == pytest.approx(gib, rel=5e-3)


@pytest.mark.parametrize(("name", "gib"), [("openai/gpt-oss-20b", 13.47), ("openai/gpt-oss-120b", 64.38)])
def test_gpt_oss_is_padded_by_the_engine(name, gib):
    """With the width to which vLLM pads the experts, 3,072 for 2,880, our figure is the measured one."""
    model = model_from_config(CONFIGS[name], "x")
    experts = sum(run.times * run.feedforward.routed[0] for run in model.layer_runs)
    padding = experts * model.feedforwards[0].expert_matrices(2880) * (3072 / 2880 - 1) * 4.25 / 8
    ours = stored_gib(name)
    assert ours == pytest.approx(gib, rel=6e-2)
    assert ours + padding / 2**30 == pytest.approx(gib, rel=5e-3)


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"sparsity_config": {"format": "sparse-24-bitmask", "sparsity_structure": "2:4"}}, "sparsity_config"),
        ({"sparsity_config": {"sparsity_structure": "2:4"}}, "sparsity_config"),
        ({"format": "marlin-24"}, "format"),
        ({"config_groups": {"group_0": {"weights": INT4, "format": "marlin-24"}}}, "config_groups.group_0.format"),
    ],
)
def test_sparse_weights_are_not_read_as_dense(changes, key):
    """Weights that are stored sparsely refuse the file, unless the user vouches for it."""
    told = {**compressed(group(INT4)), **changes}
    name = f"quantization_config.{key}"
    with pytest.raises(SpecError, match=f"`{name}` may change a count.*`--assume {name}`"):
        model_from_config({**LLAMA, "quantization_config": told}, "x")
    assert model_from_config({**LLAMA, "quantization_config": told}, "x", [name]).quantisation.default == "int4-g128"
    with pytest.raises(SpecError, match="is a key that the reader of this family reads"):
        model_from_config({**LLAMA, "quantization_config": told}, "x", [name, "quantization_config.quant_method"])


def test_dense_weights_that_mention_sparsity():
    """A sparsity_config that says dense, or nothing, is no reason."""
    for said in ({"format": "dense"}, {}, None):
        told = {**compressed(group(INT4)), "sparsity_config": said}
        assert model_from_config({**LLAMA, "quantization_config": told}, "x").quantisation.default == "int4-g128"


@pytest.mark.parametrize("name", ["int4-g0", "int4-g0-zp", "fp8-block-0x0", "fp8-block-128x0", "mlx-4bit-g0"])
def test_no_group_of_zero(name):
    """A name with an empty group or block is no format."""
    with pytest.raises(InvalidInputError, match="is not known"):
        weight_format(name)


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ({"group_size": 0}, "`quantization_config.group_size` = 0: expected a whole number of 1 or more, or -1"),
        ({"bits": 5}, "`quantization_config.bits` = 5: expected one of 2, 3, 4, 8"),
        ({"bits": 16}, "`quantization_config.bits` = 16: expected one of 2, 3, 4, 8"),
    ],
)
def test_gptq_that_cannot_be(told, message):
    """GPTQ packs 2, 3, 4 or 8 bits, in groups of at least one weight."""
    config = {"quant_method": "gptq", "bits": 4, "group_size": 128, **told}
    with pytest.raises(SpecError, match=message):
        model_from_config({**LLAMA, "quantization_config": config}, "x")
