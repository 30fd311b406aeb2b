"""`rooflinekit models import`, and `--assume` wherever a command takes a model: files made here, no network."""

import json
import struct

import gguf
import numpy as np
import pytest
from huggingface_hub import constants

import rooflinekit as rk

CONFIG = {
    "model_type": "llama", "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16,
    "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256, "tie_word_embeddings": True,
    "max_position_embeddings": 131072, "torch_dtype": "bfloat16",
}  # fmt: skip
TINY = {**CONFIG, "hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
        "num_key_value_heads": 1, "vocab_size": 4}  # fmt: skip


@pytest.fixture(autouse=True)
def _fresh(tmp_path, monkeypatch):
    """Run in an empty folder, with an empty cache of the Hub and without the Hub."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)


def folder(tmp_path, config=CONFIG, name="Llama-3.2-1B"):
    """Make a model folder."""
    path = tmp_path / name
    path.mkdir()
    (path / "config.json").write_text(json.dumps(config))
    return path


def store(path, shapes):
    """Write a safetensors file of zeros."""
    header, at = {}, 0
    for name, shape in shapes.items():
        end = at + 2 * int(np.prod(shape))
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(at))


def figures(result):
    """Return the figures that a command printed as JSON; notes stand beside them."""
    assert result.exit_code == 0
    assert all(line.startswith("note: ") for line in result.stderr.splitlines())
    return {(row["block"], row["figure"]): row for row in json.loads(result.stdout)}


def fault(result):
    """Return the one line that a failed command printed."""
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert result.stderr.startswith("rooflinekit: error: ")
    return result.stderr


# ---- what was read


@pytest.mark.parametrize("form", ["folder", "file"])
def test_import_shows_what_was_read(rooflinekit, tmp_path, form):
    """Parameters, cache and weights, as `models show` has them, with the file as their source."""
    path = folder(tmp_path) if form == "folder" else folder(tmp_path) / "config.json"
    shown = figures(rooflinekit(["models", "import", str(path), "--format", "json"]))
    assert shown["model", "id"]["value"] == "llama-3.2-1b"
    assert shown["parameters", "total"]["value"] == 1_235_814_400
    assert shown["KV cache", "kv_bytes_per_token"]["value"] == 32_768
    assert shown["weights", "stored_weight_bytes"]["value"] == 2 * 1_235_814_400
    assert shown["model", "hidden_size"]["source"] == f"read from {path}"
    assert ("checkpoint", "parameters") not in shown


def test_import_for_eyes(rooflinekit, tmp_path):
    """Blocks with units: the same figures, readable."""
    text = rooflinekit(["models", "import", str(folder(tmp_path))]).stdout
    blocks = [line for line in text.split("\n") if line in {"model", "layers", "parameters", "KV cache", "weights"}]
    assert blocks == ["model", "layers", "parameters", "KV cache", "weights"]
    assert "1,235,814,400" in text
    assert "32.0 KiB" in text
    assert "2,471,628,800 bytes" in " ".join(text.split())


def test_quantised_checkpoints_tell_their_formats(rooflinekit, tmp_path):
    """The bits with scales, what they hold, and what stays plain."""
    awq = {"quant_method": "awq", "bits": 4, "group_size": 128, "modules_to_not_convert": ["self_attn"]}
    path = folder(tmp_path, {**CONFIG, "quantization_config": awq})
    shown = figures(rooflinekit(["models", "import", str(path), "--format", "json"]))
    assert shown["weights", "method"]["value"] == "awq"
    assert shown["weights", "int4"]["note"].startswith("4.15625 bits a weight; scales: group of 128")
    assert shown["weights", "bf16"]["value"] == "self_attn, embedding, output layer, norms, biases, routers"
    stored = 16 * (3 * 2048 * 8192) * 4.15625 / 8 + 2 * (1_235_814_400 - 16 * 3 * 2048 * 8192)
    assert shown["weights", "stored_weight_bytes"]["value"] == pytest.approx(stored)


def test_stored_bytes_stand_beside_the_count(rooflinekit, tmp_path, tiny_shapes):
    """Headers of safetensors files: exact bytes, and parameters in both."""
    path = folder(tmp_path, TINY, "tiny")
    store(path / "model.safetensors", tiny_shapes)
    shown = figures(rooflinekit(["models", "import", str(path), "--format", "json"]))
    total = shown["parameters", "total"]["value"]
    assert shown["checkpoint", "stored_weight_bytes"]["value"] == 2 * total
    assert shown["checkpoint", "stored_weight_bytes"]["note"] == f"{2 * total:,} bytes; +0.00% of what the formats give"
    assert shown["checkpoint", "parameters"]["value"] == f"{total} parameters in both"


def test_a_difference_is_explained(rooflinekit, tmp_path, tiny_shapes):
    """A stored copy of the tied output layer is named."""
    path = folder(tmp_path, TINY, "tiny")
    store(path / "model.safetensors", {**tiny_shapes, "lm_head.weight": (4, 8)})
    shown = figures(rooflinekit(["models", "import", str(path), "--format", "json"]))
    assert shown["checkpoint", "parameters"]["value"].endswith("32 in a copy of the tied output layer")


def test_a_damaged_checkpoint_is_not_compared(rooflinekit, tmp_path):
    """The description is shown all the same, and the fault of the weights beside it."""
    path = folder(tmp_path, TINY, "tiny")
    (path / "model.safetensors").write_bytes(b"\xff" * 20)
    shown = figures(rooflinekit(["models", "import", str(path), "--format", "json"]))
    assert "is no safetensors file, or truncated" in shown["checkpoint", "not compared"]["value"]


def test_weights_of_another_model_are_left_alone(rooflinekit, tmp_path, tiny_shapes):
    """A model of the catalogue has nothing to do with the weights in the working folder."""
    store(tmp_path / "model.safetensors", tiny_shapes)
    assert "checkpoint" not in {block for block, _ in figures(rooflinekit("models import qwen3-8b --format json"))}


def test_a_gguf_file(rooflinekit, tmp_path):
    """The header of a GGUF file is read too."""
    writer = gguf.GGUFWriter(tmp_path / "tiny.gguf", "llama")
    for key, value in {"block_count": 1, "embedding_length": 8, "context_length": 64, "feed_forward_length": 32,
                       "attention.head_count": 2, "attention.head_count_kv": 1}.items():  # fmt: skip
        writer.add_uint32(f"llama.{key}", value)
    writer.add_float32("llama.attention.layer_norm_rms_epsilon", 1e-6)
    shapes = {"attn_q": (8, 8), "attn_k": (4, 8), "attn_v": (4, 8), "attn_output": (8, 8), "attn_norm": (8,),
              "ffn_norm": (8,), "ffn_gate": (32, 8), "ffn_up": (32, 8), "ffn_down": (8, 32)}  # fmt: skip
    tables = {"token_embd": (4, 8), "output": (4, 8), "output_norm": (8,)}
    for name, shape in {**tables, **{f"blk.0.{name}": shape for name, shape in shapes.items()}}.items():
        writer.add_tensor(f"{name}.weight", np.zeros(shape, np.float16 if len(shape) == 2 else np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    shown = figures(rooflinekit("models import tiny.gguf --format json"))
    assert shown["parameters", "total"]["value"] == sum(map(np.prod, (*shapes.values(), *tables.values())))


def test_a_hub_id_is_read_from_the_cache(rooflinekit, tmp_path):
    """The repository's own file is read, also where the catalogue has a model of that name."""
    root, commit = tmp_path / "hub" / "models--Qwen--Qwen3-8B", "0123456789abcdef0123456789abcdef01234567"
    (root / "refs").mkdir(parents=True)
    (root / "refs" / "main").write_text(commit)
    (root / "snapshots" / commit).mkdir(parents=True)
    (root / "snapshots" / commit / "config.json").write_text(json.dumps(CONFIG))
    shown = figures(rooflinekit("models import Qwen/Qwen3-8B --format json"))
    assert shown["parameters", "total"]["value"] == 1_235_814_400
    assert shown["model", "hub_ids"]["value"] == "Qwen/Qwen3-8B"
    assert shown["model", "hidden_size"]["source"] == "read from Qwen/Qwen3-8B"


def test_an_unknown_hub_id(rooflinekit):
    """It says that the Hub is not reachable, in one line."""
    assert "nobody/nothing: config.json could not be fetched" in fault(rooflinekit("models import nobody/nothing"))


# ---- writing


def test_what_is_written_is_read_again(rooflinekit, tmp_path, monkeypatch):
    """The file lies in the folder of its family, names its source, and gives the same counts by its id."""
    path = folder(tmp_path)
    result = rooflinekit(["models", "import", str(path), "--write", "own"])
    assert result.stdout == "llama-3.2-1b: written to own/llama/llama-3.2-1b.yaml\n"
    monkeypatch.setenv("ROOFLINEKIT_MODEL_CONFIGS", str(tmp_path / "own"))
    written = rk.load_model("llama-3.2-1b")
    assert written.parameters == rk.load_model(path).parameters
    assert dict(written.sources) == {"figures": (f"read from {path}",)}


def test_a_file_is_not_overwritten_unless_told(rooflinekit, tmp_path):
    """A second time is an error that says how."""
    line = ["models", "import", str(folder(tmp_path)), "--write", "own"]
    assert rooflinekit(line).exit_code == 0
    written = tmp_path / "own" / "llama" / "llama-3.2-1b.yaml"
    written.write_text("mine")
    assert "is there already" in fault(rooflinekit(line))
    assert written.read_text() == "mine"
    assert rooflinekit([*line, "--force"]).exit_code == 0
    assert written.read_text().startswith("id: llama-3.2-1b\n")


@pytest.mark.parametrize(("family", "where"), [("", "own"), ("../../Other Family", "own/other-family")])
def test_a_family_is_a_folder_inside(rooflinekit, tmp_path, family, where):
    """No family is no folder, and none leads out of it."""
    model = f'{{id: small, family: "{family}", summary: {{parameters: 8, layers: 1, kv_heads: 1, head_dim: 2}}}}'
    assert rooflinekit("models import - --write own", model).exit_code == 0
    assert (tmp_path / where / "small.yaml").is_file()


# ---- keys that nothing explains


@pytest.mark.parametrize(
    "line",
    ["models import {}", "models show {}", "estimate {} gb10", "curve {} gb10", "crossover {} gb10", "kv {}"],
)
def test_assume_goes_on_wherever_a_model_is_named(rooflinekit, tmp_path, line):
    """Each command refuses a key that may change a count, and goes on where the user knows better."""
    path = folder(tmp_path, {**CONFIG, "num_sparse_experts": 4, "expert_offset_size": 2})
    words = [word.format(path) for word in line.split()]
    told = fault(rooflinekit(words))
    assert "num_sparse_experts" in told
    assert "--assume" in told
    result = rooflinekit([*words, "--assume", "num_sparse_experts", "--assume", "expert_offset_size"])
    assert (result.exit_code, result.stderr) == (0, "")


def test_nothing_is_assumed_of_a_file_of_ours(rooflinekit):
    """A model of the catalogue says all of its figures: an assumption would have no effect, so it is refused."""
    told = fault(rooflinekit(["kv", "qwen3-8b", "--assume", "num_sparse_experts"]))
    assert "--assume=num_sparse_experts: only the keys of a config.json can be assumed" in told


def test_an_assumption_is_noted(rooflinekit, tmp_path):
    """What the user vouched for is said."""
    path = folder(tmp_path, {**CONFIG, "num_sparse_experts": 4})
    text = rooflinekit(["models", "import", str(path), "--assume", "num_sparse_experts"]).stdout
    assert "note: read under the assumption that these change no count: num_sparse_experts" in text


BAD = [
    pytest.param(b'{"model_type": "llama", "hid', "is no JSON file", id="truncated"),
    pytest.param(b"[1, 2]", "holds list, expected a mapping", id="list"),
    pytest.param(b'{"model_type": "deepseek_v4", "hidden_size": 8}', "DeepSeek-V4", id="not modelled"),
    pytest.param(b'{"model_type": "llama", "hidden_size": 8}', "missing key `num_hidden_layers`", id="figure missing"),
]


@pytest.mark.parametrize(("content", "part"), BAD)
def test_bad_configs(rooflinekit, tmp_path, content, part):
    """Each is refused in one line that names the file."""
    path = folder(tmp_path) / "config.json"
    path.write_bytes(content)
    told = fault(rooflinekit(["models", "import", str(path)]))
    assert part in told
    assert str(path) in told
