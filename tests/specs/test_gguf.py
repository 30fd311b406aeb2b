"""GGUF files as llama.cpp's converter writes them, made here: headers at full size without data, and small whole files.

Shapes and totals are those of the published models; the totals come from the transformers model classes.
"""

import struct
import sys
import time
from math import prod

import gguf
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import rooflinekit as rk
from rooflinekit.errors import RooflinekitError, SpecError
from rooflinekit.specs.catalog import load_model
from rooflinekit.specs.gguf import load_gguf, read_header
from rooflinekit.specs.gguf.architectures import ARCHITECTURES
from rooflinekit.specs.gguf.formats import format_name
from rooflinekit.specs.model import Model
from rooflinekit.specs.precision import WEIGHT_FORMATS

TYPES = {kind.name: kind for kind in gguf.GGMLQuantizationType}
RMS, LAYER_NORM = {"attention.layer_norm_rms_epsilon": 1e-6}, {"attention.layer_norm_epsilon": 1e-5}


class File:
    """Keys and tensors of a file. A shape is (input width, columns, ...), as GGUF counts; a type may follow."""

    def __init__(self, architecture, hidden, layers, vocabulary, norm=RMS, **keys):
        self.architecture = architecture
        self.keys = {"block_count": layers, "embedding_length": hidden, "context_length": 4096, **norm}
        self.keys |= {name.replace("__", "."): value for name, value in keys.items()}
        self.tensors = {}
        self.add(token_embd=(hidden, vocabulary), output_norm=(hidden,))

    def add(self, prefix="", kind="F16", **parts):
        """Add tensors: matrices in `kind` unless they name their own, vectors in F32; `_b` at the end is a bias."""
        for name, shape in parts.items():
            *dimensions, own = (*shape, kind) if isinstance(shape[-1], int) else shape
            stem, end = (name[:-2], "bias") if name.endswith("_b") and len(dimensions) == 1 else (name, "weight")
            suffix = "" if name in {"ssm_a", "ssm_d"} else f".{end}"
            full = f"{prefix}{stem.replace('__', '.')}{suffix}"
            self.tensors[full] = (tuple(dimensions), "F32" if len(dimensions) == 1 else own)
        return self

    def layers(self, which, **parts):
        """Add the same tensors to several layers."""
        for index in which:
            self.add(f"blk.{index}.", **parts)
        return self

    def write(self, path, *, data=True, **options):
        """Write the file, its quantised data as zeros; without data, keys and tensor list alone."""
        writer = gguf.GGUFWriter(path, self.architecture, **options)
        for name, value in self.keys.items():
            own = name.startswith(("general.", "tokenizer.", "split."))
            _add_key(writer, name if own else f"{self.architecture}.{name}", value)
        for name, (shape, kind) in self.tensors.items():
            _add_tensor(writer, name, shape, TYPES[kind], data=data)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file() if data else writer.write_ti_data_to_file()
        writer.close()
        return path


def _add_key(writer, name, value):
    kinds = {bool: writer.add_bool, str: writer.add_string, float: writer.add_float32, list: writer.add_array}
    kinds.get(type(value), writer.add_uint32)(name, value)


def _add_tensor(writer, name, shape, kind, *, data):
    size, stored = gguf.GGML_QUANT_SIZES[kind]
    rows = (*shape[:0:-1], shape[0] // size * stored)
    if data:
        writer.add_tensor(name, np.zeros(rows, np.uint8), raw_dtype=kind)
    else:
        writer.add_tensor_info(name, rows, np.dtype("uint8"), prod(rows), raw_dtype=kind)


# ---- published models, header only


def attention(hidden, heads, kv_heads, width):
    """Shapes of Q, K, V and output."""
    return {
        "attn_norm": (hidden,), "attn_q": (hidden, heads * width), "attn_k": (hidden, kv_heads * width),
        "attn_v": (hidden, kv_heads * width), "attn_output": (heads * width, hidden),
    }  # fmt: skip


def dense(hidden, width):
    """Shapes of a gated feed-forward."""
    return {"ffn_norm": (hidden,), "ffn_gate": (hidden, width), "ffn_up": (hidden, width), "ffn_down": (width, hidden)}


def experts(hidden, width, many):
    """Shapes of a router and its gated experts."""
    return {
        "ffn_norm": (hidden,), "ffn_gate_inp": (hidden, many, "F32"), "ffn_gate_exps": (hidden, width, many),
        "ffn_up_exps": (hidden, width, many), "ffn_down_exps": (width, hidden, many),
    }  # fmt: skip


def shared(hidden, width):
    """Shapes of shared experts."""
    return {"ffn_gate_shexp": (hidden, width), "ffn_up_shexp": (hidden, width), "ffn_down_shexp": (width, hidden)}


def heads(many, kv_heads, width=None):
    """Keys of attention."""
    keys = {"attention__head_count": many, "attention__head_count_kv": kv_heads}
    return keys | ({"attention__key_length": width, "attention__value_length": width} if width else {})


def llama():
    """Make Llama 3.1 8B."""
    file = File("llama", 4096, 32, 128_256, **heads(32, 8), feed_forward_length=14_336)
    file.add(output=(4096, 128_256), rope_freqs=(64,))
    return file.layers(range(32), **attention(4096, 32, 8, 128), **dense(4096, 14_336))


def qwen3():
    """Make Qwen3 0.6B, its output layer tied."""
    norms = {"attn_q_norm": (128,), "attn_k_norm": (128,)}
    file = File("qwen3", 1024, 28, 151_936, **heads(16, 8, 128))
    return file.layers(range(28), **attention(1024, 16, 8, 128), **norms, **dense(1024, 3072))


def gemma2():
    """Make Gemma 2 2B."""
    norms = {"post_attention_norm": (2304,), "post_ffw_norm": (2304,)}
    file = File("gemma2", 2304, 26, 256_000, **heads(8, 4, 256), attention__sliding_window=4096)
    return file.layers(range(26), **attention(2304, 8, 4, 256), **norms, **dense(2304, 9216))


def gemma3():
    """Make Gemma 3 1B."""
    norms = {"post_attention_norm": (1152,), "post_ffw_norm": (1152,), "attn_q_norm": (256,), "attn_k_norm": (256,)}
    file = File("gemma3", 1152, 26, 262_144, **heads(4, 1, 256), attention__sliding_window=512)
    return file.layers(range(26), **attention(1152, 4, 1, 256), **norms, **dense(1152, 6912))


def mixtral():
    """Make Mixtral 8x7B."""
    file = File("llama", 4096, 32, 32_000, **heads(32, 8), expert_count=8, expert_used_count=2)
    file.add(output=(4096, 32_000))
    return file.layers(range(32), **attention(4096, 32, 8, 128), **experts(4096, 14_336, 8))


def qwen3moe():
    """Make Qwen3 30B-A3B."""
    norms = {"attn_q_norm": (128,), "attn_k_norm": (128,)}
    file = File("qwen3moe", 2048, 48, 151_936, **heads(32, 4, 128), expert_count=128, expert_used_count=8)
    file.add(output=(2048, 151_936))
    return file.layers(range(48), **attention(2048, 32, 4, 128), **norms, **experts(2048, 768, 128))


def deepseek2(*, absorbed=True):
    """DeepSeek-V2-Lite; newer files split the latent's projection and keep the absorbed form's widths."""
    latent = {
        "attn_norm": (2048,), "attn_q": (2048, 16 * 192), "attn_kv_a_mqa": (2048, 576), "attn_kv_a_norm": (512,),
        "attn_output": (2048, 2048),
    }  # fmt: skip
    split = {"attn_k_b": (128, 512, 16), "attn_v_b": (512, 128, 16)}
    latent |= split if absorbed else {"attn_kv_b": (512, 16 * 256)}
    widths = {"attention__key_length_mla": 192, "attention__value_length_mla": 128} if absorbed else {}
    file = File(
        "deepseek2", 2048, 27, 102_400, **(heads(16, 1, 576) if absorbed else heads(16, 16, 192)), **widths,
        attention__kv_lora_rank=512, rope__dimension_count=64, expert_count=64, expert_used_count=6,
    )  # fmt: skip
    if not absorbed:
        file.keys["attention.value_length"] = 128
    file.add(output=(2048, 102_400)).layers([0], **latent, **dense(2048, 10_944))
    return file.layers(range(1, 27), **latent, **experts(2048, 1408, 64), **shared(2048, 2816))


def deepseek3():
    """Make DeepSeek-V3: queries through a low rank too, experts chosen with a bias that is no weight."""
    latent = {
        "attn_norm": (7168,), "attn_q_a": (7168, 1536), "attn_q_a_norm": (1536,), "attn_q_b": (1536, 128 * 192),
        "attn_kv_a_mqa": (7168, 576), "attn_kv_a_norm": (512,), "attn_k_b": (128, 512, 128),
        "attn_v_b": (512, 128, 128), "attn_output": (16_384, 7168),
    }  # fmt: skip
    file = File(
        "deepseek2", 7168, 61, 129_280, **heads(128, 1, 576), attention__key_length_mla=192,
        attention__value_length_mla=128, attention__kv_lora_rank=512, attention__q_lora_rank=1536,
        rope__dimension_count=64, expert_count=256, expert_used_count=8,
    )  # fmt: skip
    file.add(output=(7168, 129_280)).layers(range(3), **latent, **dense(7168, 18_432))
    block = experts(7168, 2048, 256) | shared(7168, 2048)
    return file.layers(range(3, 61), **latent, **block, exp_probs_b_b=(256,))


def gpt_oss():
    """Make gpt-oss 20B."""
    file = File(
        "gpt-oss", 2880, 24, 201_088, **heads(64, 8, 64), expert_count=32, expert_used_count=4,
        attention__sliding_window=128,
    )  # fmt: skip
    block = attention(2880, 64, 8, 64) | experts(2880, 2880, 32)
    block["post_attention_norm"] = block.pop("ffn_norm")
    biases = {"attn_q_b": (4096,), "attn_k_b": (512,), "attn_v_b": (512,), "attn_output_b": (2880,)}
    stacked = {"ffn_gate_exps.bias": (2880, 32), "ffn_up_exps.bias": (2880, 32), "ffn_down_exps.bias": (2880, 32)}
    file.add(output=(2880, 201_088)).layers(range(24), **block, **biases, attn_sinks=(64,), ffn_gate_inp_b=(32,))
    for index in range(24):
        file.tensors |= {f"blk.{index}.{name}": (shape, "F32") for name, shape in stacked.items()}
    for name, (shape, _) in list(file.tensors.items()):
        if name.endswith("_exps.weight"):
            file.tensors[name] = (shape, "MXFP4")
    return file


def falcon():
    """Make Falcon 7B."""
    file = File("falcon", 4544, 32, 65_024, LAYER_NORM, **heads(71, 1))
    file.add(output_norm_b=(4544,))
    return file.layers(
        range(32), attn_norm=(4544,), attn_norm_b=(4544,), attn_qkv=(4544, 73 * 64), attn_output=(4544, 4544),
        ffn_up=(4544, 18_176), ffn_down=(18_176, 4544),
    )  # fmt: skip


def phi3():
    """Make Phi-3 mini, Q, K and V in one matrix, gate and up in another."""
    file = File("phi3", 3072, 32, 32_064, **heads(32, 32), attention__sliding_window=2047)
    file.add(output=(3072, 32_064), rope_factors_long=(48,), rope_factors_short=(48,))
    return file.layers(
        range(32), attn_norm=(3072,), attn_qkv=(3072, 9216), attn_output=(3072, 3072), ffn_norm=(3072,),
        ffn_up=(3072, 16_384), ffn_down=(8192, 3072),
    )  # fmt: skip


def starcoder2():
    """Make StarCoder2 3B."""
    biases = {
        "attn_norm_b": (3072,), "attn_q_b": (3072,), "attn_k_b": (256,), "attn_v_b": (256,), "attn_output_b": (3072,),
        "ffn_norm_b": (3072,), "ffn_up_b": (12_288,), "ffn_down_b": (3072,),
    }  # fmt: skip
    block = {"ffn_norm": (3072,), "ffn_up": (3072, 12_288), "ffn_down": (12_288, 3072)}
    file = File("starcoder2", 3072, 30, 49_152, LAYER_NORM, **heads(24, 2), attention__sliding_window=4096)
    file.add(output_norm_b=(3072,))
    return file.layers(range(30), **attention(3072, 24, 2, 128), **block, **biases)


def gpt2():
    """Make GPT-2."""
    file = File("gpt2", 768, 12, 50_257, LAYER_NORM, **heads(12, 12))
    file.add(position_embd=(768, 1024), output_norm_b=(768,))
    return file.layers(
        range(12), attn_norm=(768,), attn_norm_b=(768,), attn_qkv=(768, 2304), attn_qkv_b=(2304,),
        attn_output=(768, 768), attn_output_b=(768,), ffn_norm=(768,), ffn_norm_b=(768,), ffn_up=(768, 3072),
        ffn_up_b=(3072,), ffn_down=(3072, 768), ffn_down_b=(768,),
    )  # fmt: skip


SSM = {"ssm__conv_kernel": 4, "ssm__inner_size": 1536, "ssm__state_size": 16, "ssm__time_step_rank": 48}


def mamba():
    """Make Mamba 130M."""
    return File("mamba", 768, 24, 50_280, **SSM).layers(
        range(24), attn_norm=(768,), ssm_in=(768, 3072), ssm_conv1d=(4, 1536), ssm_conv1d_b=(1536,),
        ssm_x=(1536, 80), ssm_dt=(48, 1536), ssm_dt_b=(1536,), ssm_a=(16, 1536), ssm_d=(1536,), ssm_out=(1536, 768),
    )  # fmt: skip


def mamba2():
    """Make Codestral Mamba 7B."""
    file = File(
        "mamba2", 4096, 64, 32_768, ssm__conv_kernel=4, ssm__inner_size=8192, ssm__state_size=128,
        ssm__time_step_rank=128, ssm__group_count=8,
    )  # fmt: skip
    return file.add(output=(4096, 32_768)).layers(
        range(64), attn_norm=(4096,), ssm_in=(4096, 18_560), ssm_conv1d=(4, 10_240), ssm_conv1d_b=(10_240,),
        ssm_dt_b=(128,), ssm_a=(1, 128), ssm_d=(1, 128), ssm_norm=(1024, 8), ssm_out=(8192, 4096),
    )  # fmt: skip


def lfm2():
    """Make LFM2 1.2B."""
    whole = (2, 5, 8, 10, 12, 14)
    kv_heads = [8 if layer in whole else 0 for layer in range(16)]
    file = File("lfm2", 2048, 16, 65_536, **heads(32, kv_heads), shortconv__l_cache=3)
    file.tensors["token_embd_norm.weight"] = file.tensors.pop("output_norm.weight")
    norms = {"attn_q_norm": (64,), "attn_k_norm": (64,)}
    conv = {"attn_norm": (2048,), "shortconv__conv": (3, 2048), "shortconv__in_proj": (2048, 6144)}
    conv |= {"shortconv__out_proj": (2048, 2048)}
    file.layers(whole, **attention(2048, 32, 8, 64), **norms, **dense(2048, 8192))
    return file.layers(sorted({*range(16)} - {*whole}), **conv, **dense(2048, 8192))


def qwen3next():
    """Make Qwen3-Next 80B-A3B."""
    file = File(
        "qwen3next", 2048, 48, 151_936, **heads(16, 2, 256), expert_count=512, expert_used_count=10,
        ssm__conv_kernel=4, ssm__inner_size=4096, ssm__state_size=128, ssm__time_step_rank=32, ssm__group_count=16,
    )  # fmt: skip
    block = experts(2048, 512, 512) | shared(2048, 512) | {"ffn_gate_inp_shexp": (2048,)}
    block["post_attention_norm"] = block.pop("ffn_norm")
    whole = attention(2048, 16, 2, 256) | {"attn_q": (2048, 8192), "attn_q_norm": (256,), "attn_k_norm": (256,)}
    linear = {
        "attn_norm": (2048,), "attn_qkv": (2048, 8192), "attn_gate": (2048, 4096), "ssm_ba": (2048, 64),
        "ssm_conv1d": (4, 8192), "ssm_dt_b": (32,), "ssm_a": (32,), "ssm_norm": (128,), "ssm_out": (4096, 2048),
    }  # fmt: skip
    file.add(output=(2048, 151_936)).layers(range(3, 48, 4), **whole, **block)
    return file.layers([layer for layer in range(48) if layer % 4 != 3], **linear, **block)


# fmt: off
PUBLISHED = [
    # file         parameters        catalogue's id
    (llama,         8_030_261_248,    "llama-3.1-8b"),
    (qwen3,         596_049_920,      "qwen3-0.6b"),
    (gemma2,        2_614_341_888,    "gemma-2-2b"),
    (gemma3,        999_885_952,      "gemma-3-1b"),
    (mixtral,       46_702_792_704,   "mixtral-8x7b"),
    (qwen3moe,      30_532_122_624,   "qwen3-30b-a3b"),
    (deepseek2,     15_706_484_224,   "deepseek-v2-lite"),
    (deepseek3,     671_026_404_352,  "deepseek-v3"),
    (gpt_oss,       20_914_757_184,   "gpt-oss-20b"),
    (falcon,        6_921_720_704,    "falcon-7b"),
    (phi3,          3_821_079_552,    "phi-3-mini-4k"),
    (starcoder2,    3_030_371_328,    "starcoder2-3b"),
    (gpt2,          124_439_808,      "gpt2"),
    (mamba,         129_135_360,      "mamba-130m"),
    (mamba2,        7_285_403_648,    "mamba-codestral-7b"),
    (lfm2,          1_170_340_608,    "lfm2-1.2b"),
    (qwen3next,     79_674_391_296,   "qwen3-next-80b-a3b"),
]
# fmt: on


@pytest.fixture(scope="session")
def published(tmp_path_factory):
    """Read the header-only file of a builder, once."""
    folder, models = tmp_path_factory.mktemp("gguf"), {}

    def read(make):
        if make not in models:
            models[make] = load_gguf(make().write(folder / f"{make.__name__}.gguf", data=False))
        return models[make]

    return read


@pytest.mark.parametrize(("make", "parameters", "name"), PUBLISHED, ids=[row[0].__name__ for row in PUBLISHED])
def test_published_totals(published, make, parameters, name):
    """Parameters are those of the published model, and layers those of the catalogue's file."""
    model = published(make)
    assert model.parameters.total == parameters
    assert expanded(model) == expanded(load_model(name))
    same = ("hidden_size", "vocabulary", "tied_embeddings", "norm", "parallel_block", "position")
    assert {key: getattr(model, key) for key in same} == {key: getattr(load_model(name), key) for key in same}


def expanded(model):
    """Each layer's blocks without their names."""
    plain = [
        (run.mixer.model_copy(update={"name": ""}), run.feedforward.model_copy(update={"name": ""}), run.times)
        for run in model.layer_runs
    ]
    return [pair for *pair, times in plain for _ in range(times)]


def test_both_forms_of_a_latent_projection(published, tmp_path):
    """Older files keep one projection, newer ones split it, some hold both: the mixers agree."""
    older = load_gguf(deepseek2(absorbed=False).write(tmp_path / "older.gguf", data=False))
    both = deepseek2()
    both.layers(range(27), attn_kv_b=(512, 16 * 256))
    read = load_gguf(both.write(tmp_path / "both.gguf", data=False))
    assert expanded(older) == expanded(published(deepseek2)) == expanded(read)
    assert any("attn_k_b.weight, attn_v_b.weight" in note for note in read.notes)


def test_untied_copy_is_counted(tmp_path):
    """A file that stores the tied output layer again holds it, and an engine reads it."""
    model = load_gguf(gpt2().add(output=(768, 50_257)).write(tmp_path / "gpt2.gguf", data=False))
    assert not model.tied_embeddings
    assert model.parameters.total == 124_439_808 + 50_257 * 768


def test_windows(published, tmp_path):
    """The pattern is the file's, or else the architecture's; a window without either is refused."""
    assert [run.mixer.window for run in published(gemma3).layer_runs][:3] == [512, None, 512]
    assert [run.times for run in published(gemma3).layer_runs][:3] == [5, 1, 5]
    file = gemma3()
    file.keys["attention.sliding_window_pattern"] = [True, False] * 13
    assert [run.times for run in load_gguf(file.write(tmp_path / "own.gguf", data=False)).layer_runs] == [1] * 26
    file = qwen3()
    file.keys["attention.sliding_window"] = 512
    with pytest.raises(SpecError, match=r"qwen3.attention.sliding_window` = 512: the file does not say which layers"):
        load_gguf(file.write(tmp_path / "none.gguf", data=False))


def test_layers_of_one_half(tmp_path):
    """Nemotron-H: each layer is a mixer or a feed-forward, with one norm."""
    keys = {"ssm__conv_kernel": 4, "ssm__inner_size": 128, "ssm__state_size": 16, "ssm__time_step_rank": 8}
    file = File("nemotron_h", 64, 3, 96, **heads(4, [0, 2, 0], 16), **keys, ssm__group_count=2).add(output=(64, 96))
    file.layers(
        [0], attn_norm=(64,), ssm_in=(64, 328), ssm_conv1d=(4, 192), ssm_conv1d_b=(192,), ssm_dt_b=(8,),
        ssm_a=(1, 8), ssm_d=(1, 8), ssm_norm=(64, 2), ssm_out=(128, 64),
    ).layers([1], **attention(64, 4, 2, 16))  # fmt: skip
    file.layers([2], attn_norm=(64,), ffn_up=(64, 256), ffn_down=(256, 64))
    model = load_gguf(file.write(tmp_path / "nemotron.gguf", data=False))
    kinds = [(run.mixer.kind, run.mixer.norms, run.feedforward.kind, run.feedforward.norms) for run in model.layer_runs]
    assert kinds == [("mamba2", 1, "none", 0), ("gqa", 1, "none", 0), ("none", 0, "dense", 1)]
    assert (model.feedforwards[1].activation, model.feedforwards[1].gated, model.position) == ("relu2", False, "none")


def test_norms_of_the_whole_projection(tmp_path):
    """OLMo 2 normalises whole projections, and behind each half alone."""
    norms = {"attn_q_norm": (64,), "attn_k_norm": (32,), "post_attention_norm": (64,), "post_ffw_norm": (64,)}
    file = File("olmo2", 64, 2, 96, **heads(4, 2)).add(output=(64, 96))
    file.layers(range(2), **attention(64, 4, 2, 16), **dense(64, 128), **norms)
    for index in range(2):
        del file.tensors[f"blk.{index}.attn_norm.weight"], file.tensors[f"blk.{index}.ffn_norm.weight"]
    (run,) = load_gguf(file.write(tmp_path / "olmo.gguf", data=False)).layer_runs
    assert (run.mixer.qk_norm, run.mixer.norms, run.feedforward.norms) == ("full", 1, 1)


def test_layers_without_rotation(tmp_path):
    """Every fourth layer of SmolLM3, and the layers of Llama 4 that see everything."""
    file = File("smollm3", 64, 8, 96, **heads(4, 2)).layers(range(8), **attention(64, 4, 2, 16), **dense(64, 128))
    smol = load_gguf(file.write(tmp_path / "smol.gguf", data=False))
    assert [(run.mixer.rotary, run.times) for run in smol.layer_runs] == [(True, 3), (False, 1)] * 2
    file.architecture = "llama4"
    scout = load_gguf(file.write(tmp_path / "scout.gguf", data=False))
    seen = [(run.mixer.rotary, run.mixer.window, run.mixer.chunked, run.times) for run in scout.layer_runs]
    assert seen == [(True, 8192, True, 3), (False, None, False, 1)] * 2


def test_prediction_module(tmp_path):
    """Layers that predict ahead come last and are counted apart."""
    norms = {"nextn__enorm": (64,), "nextn__hnorm": (64,), "nextn__shared_head_norm": (64,)}
    block = attention(64, 4, 2, 16) | experts(64, 32, 8) | {"exp_probs_b_b": (8,)}
    block["post_attention_norm"] = block.pop("ffn_norm")
    file = File("glm4moe", 64, 3, 96, **heads(4, 2, 16), expert_count=8, expert_used_count=2, nextn_predict_layers=1)
    file.add(output=(64, 96)).layers([0], **attention(64, 4, 2, 16), **dense(64, 128)).layers([1, 2], **block)
    file.layers([2], nextn__eh_proj=(128, 64), **norms)
    model = load_gguf(file.write(tmp_path / "glm.gguf", data=False))
    assert model.layer_count == 2
    layer = 64 * (64 + 64 + 64) + 64 * 64 + 8 * 64 + 8 * 3 * 64 * 32 + 2 * 64 - 64 * 64
    assert model.parameters.prediction_module == layer + 2 * 64 * 64 + 3 * 64
    assert "not counted as weights: exp_probs_b.bias" in model.notes


# ---- formats


def test_every_block_type_has_its_bits():
    """Bits per weight are those of the package's own table."""
    ours = {kind.name: WEIGHT_FORMATS[format_name(kind.name)].bits for kind in gguf.GGML_QUANT_SIZES}
    assert ours == {kind.name: 8 * stored / size for kind, (size, stored) in gguf.GGML_QUANT_SIZES.items()}


def q4_k_m():
    """Llama 3.1 8B as llama-quantize mixes Q4_K_M: more bits for V and down in half of the layers."""
    file, more = llama(), {layer for layer in range(32) if layer < 4 or layer >= 28 or (layer - 4) % 3 == 2}
    for name, (shape, _) in list(file.tensors.items()):
        wide = name == "output.weight" or any(
            name in {f"blk.{layer}.attn_v.weight", f"blk.{layer}.ffn_down.weight"} for layer in more
        )
        if len(shape) > 1:
            file.tensors[name] = (shape, "Q6_K" if wide else "Q4_K")
    return file, more


def test_mixed_types_become_few_rules(tmp_path):
    """Each matrix has its own tensor's format, from a rule for each kind of matrix."""
    file, more = q4_k_m()
    path = file.write(tmp_path / "llama.gguf", data=False)
    model = load_gguf(path)
    scheme = model.quantisation
    assert (scheme.default, scheme.head, scheme.embedding, len(scheme.rules)) == ("q4_k", "q6_k", "q4_k", 2)
    for layer in range(32):
        expected = "q6_k" if layer in more else "q4_k"
        assert scheme.format_of(f"layers.{layer}.mlp.down_proj") == expected
        assert scheme.format_of(f"layers.{layer}.self_attn.v_proj") == expected
        assert scheme.format_of(f"layers.{layer}.mlp.gate_proj") == "q4_k"


def test_weights_of_a_deployment_are_the_files_bytes(tmp_path):
    """A known Q4_K_M file of 4.92 GB, whose tensors our rules give to a hundredth of a percent (norms stand in F32)."""
    path = q4_k_m()[0].write(tmp_path / "llama.gguf", data=False)
    stored = read_header(path).stored_bytes
    assert stored == pytest.approx(4.92e9, rel=2e-3)  # size of the public files, their vocabulary included
    assert rk.Deployment(load_gguf(path), "h100-sxm").weights_bytes == pytest.approx(stored, rel=2e-4)


def test_plain_files_have_a_dtype_and_no_rules(published, tmp_path):
    """F16 or BF16 matrices beside F32 norms are the model's own dtype."""
    assert (published(llama).dtype, published(llama).quantisation) == ("fp16", None)
    file = qwen3()
    file.tensors = {name: (shape, "BF16" if len(shape) > 1 else kind) for name, (shape, kind) in file.tensors.items()}
    model = load_gguf(file.write(tmp_path / "bf16.gguf", data=False))
    assert (model.dtype, model.quantisation) == ("bf16", None)


def test_experts(published, tmp_path):
    """Experts have a common path; a format of their own for down stands below it, and is said."""
    scheme = published(gpt_oss).quantisation
    assert scheme.format_of("layers.3.mlp.experts") == "mxfp4"
    assert scheme.format_of("layers.3.self_attn.q_proj") == "fp16"
    file = qwen3moe()
    for name, (shape, _) in list(file.tensors.items()):
        if name.endswith("_exps.weight"):
            file.tensors[name] = (shape, "Q6_K" if "down" in name else "Q4_K")
    model = load_gguf(file.write(tmp_path / "moe.gguf", data=False))
    paths = ("mlp.experts", "mlp.experts.gate_up_proj", "mlp.experts.down_proj", "self_attn.o_proj")
    formats = [model.quantisation.format_of(f"layers.7.{path}") for path in paths]
    assert formats == ["q4_k", "q4_k", "q6_k", "fp16"]
    assert any("counted in the one that holds most: mlp.experts" in note for note in model.notes)


# ---- files


def small():
    """Two layers of Llama, 256 wide: small enough to be written whole, wide enough for blocks of 256."""
    file = File(
        "llama", 256, 2, 512, **heads(4, 2), general__name="Small", tokenizer__ggml__scores=[0.0, 1.0],
        tokenizer__ggml__tokens=["a", "b", "c"],
    )  # fmt: skip
    file.add(output=(256, 512, "Q6_K")).layers(range(2), kind="Q4_K", **attention(256, 4, 2, 64), **dense(256, 512))
    return file


@pytest.fixture(scope="session")
def whole(tmp_path_factory):
    """Give a small whole file."""
    return small().write(tmp_path_factory.mktemp("gguf") / "Small-Q4_K_M.gguf")


def test_a_whole_file(whole):
    """Names, context, parameters, and the header as the package's own reader sees it."""
    model, header, other = load_gguf(whole), read_header(whole), gguf.GGUFReader(whole)
    assert (model.id, model.name, model.family, model.max_context_tokens) == ("small-q4-k-m", "Small", "llama", 4096)
    assert model.parameters.total == sum(int(tensor.n_elements) for tensor in other.tensors)
    ours = [(tensor.name, tensor.shape, tensor.type, tensor.stored_bytes) for tensor in header.tensors]
    theirs = [(row.name, tuple(map(int, row.shape)), row.tensor_type.name, row.n_bytes) for row in other.tensors]
    assert ours == theirs
    assert header.keys["llama.attention.head_count"] == other.get_field("llama.attention.head_count").contents()


def test_a_model_from_a_file_survives_its_own_mapping(whole, published):
    """What is read can be written as a mapping and read again."""
    for model in (load_gguf(whole), published(gpt_oss), published(lfm2)):
        assert Model.model_validate(model.model_dump()) == model


def test_split_files(tmp_path):
    """All parts are read, whichever is named; a missing one is named."""
    small().write(tmp_path / "small.gguf", split_max_tensors=8)
    parts = sorted(tmp_path.glob("small-*-of-*.gguf"))
    assert len(parts) == 3
    models = [load_gguf(part) for part in parts]
    assert models[0].layers == models[2].layers
    assert models[0].id == "small"
    parts[1].unlink()
    with pytest.raises(SpecError, match=r"1 of its 3 parts are not beside it \(small-00002-of-00003.gguf\)"):
        load_gguf(parts[0])


def test_a_part_under_another_name(tmp_path):
    """A part that does not bear its number is refused."""
    small().write(tmp_path / "small.gguf", split_max_tensors=8)
    path = next(tmp_path.glob("small-00001*")).rename(tmp_path / "renamed.gguf")
    with pytest.raises(SpecError, match="is one of 3 parts, but 1 bear its name"):
        load_gguf(path)


def set_bytes(path, target, at, data):
    """Write a copy with some bytes replaced."""
    raw = bytearray(path.read_bytes())
    raw[at : at + len(data)] = data
    target.write_bytes(raw)
    return target


# fmt: off
DAMAGED = [
    # at   bytes                         what is said
    (0,    b"GGML",                      "is no GGUF file: it begins with b'GGML'"),
    (4,    struct.pack("<I", 1),         "is GGUF of version 1: versions 2 and 3 are read"),
    (4,    struct.pack("<I", 99),        "is GGUF of version 99"),
    (4,    struct.pack(">I", 3),         "is a big-endian GGUF file"),
    (8,    struct.pack("<Q", 1 << 60),   "ends within .* keys and 1152921504606846976 tensors"),
    (16,   struct.pack("<Q", 1 << 63),   "ends within 9223372036854775808 keys"),
    (24,   struct.pack("<Q", 1 << 40),   "a key's name is 1099511627776 bytes long"),
    (32,   b"\xff\xfe",                  "a key's name is no UTF-8 text"),
]
# fmt: on


@pytest.mark.parametrize(("at", "data", "said"), DAMAGED)
def test_damaged_headers(whole, tmp_path, at, data, said):
    """Each is refused in one line that names the file."""
    with pytest.raises(SpecError, match=said) as caught:
        load_gguf(set_bytes(whole, tmp_path / "damaged.gguf", at, data))
    assert "\n" not in str(caught.value)
    assert "damaged.gguf" in str(caught.value)


def test_absurd_array_length(whole, tmp_path):
    """An array of 2**61 values is refused at once."""
    at = whole.read_bytes().index(b"tokenizer.ggml.scores") + len(b"tokenizer.ggml.scores") + 8
    path = set_bytes(whole, tmp_path / "array.gguf", at, struct.pack("<Q", 1 << 61))
    with pytest.raises(SpecError, match=r"ends within `tokenizer.ggml.scores` with 2305843009213693952 values"):
        load_gguf(path)


def test_truncated(whole, tmp_path):
    """A file cut in its data is refused; one that holds the header alone is read."""
    raw, path = whole.read_bytes(), tmp_path / "cut.gguf"
    path.write_bytes(raw[:-100])
    with pytest.raises(SpecError, match=r"is truncated: `blk.1.ffn_down.weight` ends at byte"):
        load_gguf(path)
    path.write_bytes(raw[:200])
    with pytest.raises(SpecError, match=r"cut.gguf: ends within"):
        load_gguf(path)


def test_no_file(tmp_path):
    """A missing file, an empty one and a folder are refused."""
    (tmp_path / "empty.gguf").touch()
    for name, said in (("none.gguf", "No such file"), ("empty.gguf", "is empty"), ("", "Is a directory")):
        with pytest.raises(SpecError, match=said):
            load_gguf(tmp_path / name)


def without(name):
    """Take a tensor out."""

    def change(file):
        del file.tensors[name]

    return change


def with_key(name, value):
    """Change a key."""

    def change(file):
        file.keys[name] = value

    return change


# fmt: off
UNFIT = [
    (without("blk.1.ffn_up.weight"), r"tensors do not fit a llama: `blk.1.ffn_up.weight` is missing"),
    (without("blk.0.attn_norm.weight"), r"`blk.0.attn_norm.weight` is missing"),
    (without("blk.0.ffn_norm.weight"), r"`blk.0.ffn_norm.weight` is missing"),
    (without("blk.1.ffn_gate.weight"), r"`blk.1.ffn_gate.weight` is missing"),
    (lambda file: file.layers([1], attn_q_b=(256,)), r"`attn_q.bias` is in some layers and not in others"),
    (without("token_embd.weight"), r"`token_embd.weight` is missing"),
    (lambda file: file.layers([1], cross_attn_q=(256, 256)), r"`blk.1.cross_attn_q.weight` is not accounted for"),
    (lambda file: file.layers([1], ffn_gate_inp=(256, 4)), r"the key `llama.expert_count` is missing"),
    (lambda file: file.layers([0], attn_q=(256, 512)), r"`blk.0.attn_q.weight` holds 131072 weights, not 65536"),
    (lambda file: file.layers([0], ffn_up=(256, 768)), r"`blk.0.ffn_up.weight` holds 196608 weights, not 131072"),
    (lambda file: file.layers([5], attn_norm=(256,)), r"`llama.block_count` = 2, but 3 layers have tensors"),
    (with_key("block_count", 4_000_000_000), r"`llama.block_count` = 4000000000, but 2 layers have tensors"),
    (with_key("attention.head_count", 0), r"`llama.attention.head_count` = 0: a count of at least 1"),
    (with_key("attention.head_count", "four"), r"`llama.attention.head_count` = four: a count"),
    (with_key("attention.head_count_kv", 3), r"must be a multiple of kv_heads"),
    (with_key("attention.head_count_kv", 4), r"`blk.0.attn_k.weight` holds 32768 weights, not 65536"),
]
# fmt: on


@pytest.mark.parametrize(("change", "said"), UNFIT)
def test_tensors_and_keys_that_do_not_fit(tmp_path, change, said):
    """Never a silent dense model: what does not fit is named."""
    file = small()
    change(file)
    with pytest.raises(SpecError, match=said):
        load_gguf(file.write(tmp_path / "unfit.gguf", data=False))


def test_architectures_that_are_not_read(tmp_path):
    """An unknown architecture is refused by name; all that are listed exist."""
    file = small()
    file.architecture = "rwkv7"
    with pytest.raises(SpecError, match="architecture 'rwkv7' is not read: expected one of afmoe"):
        load_gguf(file.write(tmp_path / "rwkv.gguf", data=False))
    assert set(ARCHITECTURES) <= set(gguf.MODEL_ARCH_NAMES.values())


def test_without_the_package(whole, monkeypatch):
    """The error says what to install."""
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(SpecError, match=r"pip install 'rooflinekit\[gguf\]'"):
        load_gguf(whole)


def test_a_large_tokenizer_costs_little(tmp_path):
    """A header with 150,000 tokens and 300,000 merges is read in a fraction of a second."""
    file = qwen3()
    file.keys |= {"tokenizer.ggml.tokens": ["token"] * 150_000, "tokenizer.ggml.merges": ["a b"] * 300_000}
    path = file.write(tmp_path / "large.gguf", data=False)
    begun = time.perf_counter()
    load_gguf(path)
    assert time.perf_counter() - begun < 1.0


CHANGES = st.one_of(
    st.tuples(st.just("key"), st.integers(0, 30), st.integers(0, 70_000) | st.sampled_from(["text", 1.5, [1, 0, 2]])),
    st.tuples(st.just("size"), st.integers(0, 400), st.integers(1, 20_000)),
    st.tuples(st.just("without"), st.integers(0, 400), st.none()),
    st.tuples(st.just("renamed"), st.integers(0, 400), st.integers(0, 400)),
)


def changed(file, kind, index, value):
    """Change one key, one dimension, or take a tensor away, or give it another's name."""
    names, keys = list(file.tensors), list(file.keys)
    name = names[index % len(names)]
    if kind == "key":
        file.keys[keys[index % len(keys)]] = value
    else:
        shape, _ = file.tensors.pop(name)
        if kind == "size":
            file.tensors[name] = ((value, *shape[1:]), "F32")
        elif kind == "renamed":
            file.tensors[names[value % len(names)]] = (shape, "F32")
    return file


def set_aside(name):
    """Tell whether a tensor is no weight."""
    return "rope_" in name or "exp_probs_b" in name


@settings(max_examples=150, deadline=2000, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(make=st.sampled_from([row[0] for row in PUBLISHED]), changes=st.lists(CHANGES, min_size=1, max_size=2))
def test_changed_models(tmp_path, make, changes):
    """Wrong keys and shapes give our error, or a model that holds all of the tensors' weights."""
    file = make()
    for change in changes:
        changed(file, *change)
    path = file.write(tmp_path / "changed.gguf", data=False)
    try:
        model = load_gguf(path)
    except SpecError as error:
        assert "\n" not in str(error)  # noqa: PT017 - either is right
    else:
        counted = model.parameters.total + model.parameters.prediction_module
        assert counted == sum(tensor.elements for tensor in read_header(path).tensors if not set_aside(tensor.name))


MUTATION = st.lists(st.tuples(st.floats(0, 1), st.binary(min_size=1, max_size=8)), min_size=1, max_size=4)


@settings(max_examples=300, deadline=1000, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(mutations=MUTATION, kept=st.floats(0, 1) | st.just(1.0))
def test_mutated_headers(whole, tmp_path, mutations, kept):
    """Any bytes give a model whose parameters are the tensors', or our error, and quickly."""
    raw = bytearray(whole.read_bytes())
    header = raw.index(b"blk.1.ffn_down.weight") + 60
    for place, data in mutations:
        at = int(place * header)
        raw[at : at + len(data)] = data
    path = tmp_path / "mutated.gguf"
    path.write_bytes(raw[: max(1, int(kept * len(raw)))])
    try:
        model = load_gguf(path)
    except RooflinekitError as error:
        assert "\n" not in str(error)  # noqa: PT017 - either is right
    else:
        assert model.parameters.total <= sum(tensor.elements for tensor in read_header(path).tensors)
