"""Headers of safetensors files, written by hand and by the library itself."""

import json
import struct

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from rooflinekit.errors import SpecError
from rooflinekit.specs.catalog import load_model
from rooflinekit.specs.safetensors import INDEX, check_against, exact_weight_bytes, read_checkpoint, read_tensors

BYTES = {"BF16": 2, "F32": 4, "F8_E4M3": 1, "U8": 1, "I32": 4}
#: 4 x 8 table, one layer of 8 wide, output layer tied.
MODEL = {
    "id": "tiny", "hidden_size": 8, "vocabulary": 4, "tied_embeddings": True,
    "mixers": [{"name": "full", "heads": 2, "kv_heads": 1, "head_dim": 4}],
    "feedforwards": [{"name": "dense", "intermediate_size": 16}], "layers": [["full", "dense", 1]],
}  # fmt: skip
LAYER = "model.layers.0."
PARAMETERS = 32 + 8 + 16 + 192 + 384


def write(path, shapes, dtype="BF16", **other):
    """Write one file by hand: the length, the header, zeros; `other` gives dtypes by the end of a name."""
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, shape in shapes.items():
        kind = next((kind for end, kind in other.items() if name.endswith(end)), dtype)
        size = int(np.prod(shape)) * BYTES[kind]
        header[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(at))


def test_bytes_and_elements(tmp_path, tiny_shapes):
    """Exact bytes, and elements by dtype."""
    write(tmp_path / "model.safetensors", tiny_shapes, **{"norm.weight": "F32"})
    checkpoint = read_checkpoint(tmp_path)
    assert checkpoint.elements_by_dtype == {"BF16": PARAMETERS - 24, "F32": 24}
    assert exact_weight_bytes(tmp_path) == 2 * PARAMETERS + 48
    assert exact_weight_bytes(tmp_path) == sum(checkpoint.bytes_by_dtype.values())
    assert checkpoint.elements == PARAMETERS


def test_against_the_library(tmp_path):
    """A file of the safetensors library is read as what it is."""
    save_file({"a": np.zeros((3, 5), np.float16), "b": np.zeros(7, np.float32)}, tmp_path / "x.safetensors")
    assert exact_weight_bytes(tmp_path) == 30 + 28
    assert read_checkpoint(tmp_path).elements_by_dtype == {"F16": 15, "F32": 7}


def test_index(tmp_path, tiny_shapes):
    """The index names the files, and its total is told where it differs from what is stored."""
    names = list(tiny_shapes)
    parts = {"a.safetensors": names[:5], "b.safetensors": names[5:]}
    for file, held in parts.items():
        write(tmp_path / file, {name: tiny_shapes[name] for name in held})
    write(tmp_path / "consolidated.safetensors", tiny_shapes)  # a second copy that the index does not name
    index = {
        "metadata": {"total_size": 1234},
        "weight_map": {name: file for file, held in parts.items() for name in held},
    }
    (tmp_path / INDEX).write_text(json.dumps(index))
    assert exact_weight_bytes(tmp_path) == 2 * PARAMETERS
    assert read_checkpoint(tmp_path).claimed_bytes == 1234
    said = f"tiny: {2 * PARAMETERS} bytes stored ({INDEX} says 1234); {PARAMETERS} parameters in both"
    assert check_against(load_model(MODEL), tmp_path) == said
    (tmp_path / "b.safetensors").unlink()
    with pytest.raises(SpecError, match=r"b.safetensors of its index is missing"):
        read_checkpoint(tmp_path)


# fmt: off
SURPLUS = [
    # tensors                                            what is said
    ({"lm_head.weight": (4, 8)},                         "(+32): 32 in a copy of the tied output layer"),
    ({f"{LAYER}self_attn.rotary_emb.inv_freq": (2,)},    "(+2): 2 in buffers"),
    ({"model.layers.1.eh_proj.weight": (8, 16)},         "(+128): 128 in a prediction module"),
    ({"visual.patch_embed.weight": (3, 8)},              "(+24): 24 in vision and audio towers"),
    ({f"{LAYER}mlp.up_proj.weight_scale_inv": (1, 1)},   "(+1): 1 in scales"),
    ({"model.strange": (5,)},                            "(+5): +5 that nothing here explains"),
    ({"model.strange": (5,), "lm_head.weight": (4, 8)},
     "(+37): 32 in a copy of the tied output layer, +5 that nothing here explains"),
]
# fmt: on


@pytest.mark.parametrize(("more", "said"), SURPLUS)
def test_differences_are_named(tmp_path, more, said, tiny_shapes):
    """A difference is told with its causes, never silently."""
    write(tmp_path / "model.safetensors", {**tiny_shapes, **more})
    line = check_against(load_model(MODEL), tmp_path)
    assert line.endswith(f"{PARAMETERS + sum(map(int, map(np.prod, more.values())))} elements against "
                         f"{PARAMETERS} parameters {said}")  # fmt: skip


def test_missing_weights_are_named(tmp_path, tiny_shapes):
    """Fewer elements than parameters is said too."""
    write(tmp_path / "model.safetensors", {name: shape for name, shape in tiny_shapes.items() if "gate" not in name})
    assert check_against(load_model(MODEL), tmp_path).endswith("(-128): -128 that nothing here explains")


def test_packed_weights_are_not_compared(tmp_path, tiny_shapes):
    """Elements of packed dtypes are no weights: bytes alone are told."""
    write(tmp_path / "model.safetensors", tiny_shapes, **{"gate_proj.weight": "U8"})
    said = "elements of U8 are no single weights: counts are not compared"
    assert check_against(load_model(MODEL), tmp_path) == f"tiny: {2 * PARAMETERS - 128} bytes stored; {said}"


def header(text, behind=b""):
    """Put a length before a header."""
    return struct.pack("<Q", len(text)) + text + behind


# fmt: off
DAMAGED = [
    (b"",                                                    "is no safetensors file, or truncated"),
    (b"PK\x03\x04" + bytes(100),                             "is no safetensors file, or truncated"),
    (struct.pack("<Q", 1 << 62) + b"{}",                     "a header of 4611686018427387904 bytes, 2 follow"),
    (header(b"[1, 2]"),                                      "its header is no JSON mapping"),
    (header(b"{" * 50_000),                                  "its header is no JSON mapping"),
    (header(b"[" * 50_000),                                  "its header is no JSON mapping"),
    (header(b'{"a": 1}'),                                    "tensor `a` lacks dtype, shape or data_offsets"),
    (header(b'{"a": {"dtype": "F32", "shape": [true], "data_offsets": [0, 4]}}', bytes(4)), "tensor `a` lacks"),
    (header(b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}'), "tensor `a` lies at bytes 0 to 4 of 0"),
    (header(b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}', bytes(9)), "holds 9 bytes of tensors"),
]
# fmt: on


@pytest.mark.parametrize(("raw", "said"), DAMAGED)
def test_damaged_files(tmp_path, raw, said):
    """Each is refused in one line that names the file."""
    (tmp_path / "bad.safetensors").write_bytes(raw)
    with pytest.raises(SpecError, match=said) as caught:
        exact_weight_bytes(tmp_path)
    assert "bad.safetensors" in str(caught.value)


def test_folders_without_weights(tmp_path):
    """An empty folder, a damaged index, a name that leaves the folder, and a tensor in two files are refused."""
    with pytest.raises(SpecError, match=r"holds no \*.safetensors"):
        exact_weight_bytes(tmp_path)
    for text in ("{", '{"weight_map": []}', '{"weight_map": {"a": "../../etc/passwd"}}'):
        (tmp_path / INDEX).write_text(text)
        with pytest.raises(SpecError, match=r"no JSON mapping|`weight_map` is no mapping"):
            exact_weight_bytes(tmp_path)
    (tmp_path / INDEX).unlink()
    for name in ("a", "b"):
        write(tmp_path / f"{name}.safetensors", {"x": (2,)})
    with pytest.raises(SpecError, match="tensor `x` is in two files"):
        exact_weight_bytes(tmp_path)


@settings(max_examples=200, deadline=1000, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(at=st.floats(0, 1), data=st.binary(min_size=1, max_size=8), kept=st.floats(0, 1) | st.just(1.0))
def test_mutated_headers(tmp_path, at, data, kept, tiny_shapes):
    """Any bytes give tensors that fill the file, or our error."""
    path = tmp_path / "fuzz.safetensors"
    write(path, tiny_shapes)
    raw = bytearray(path.read_bytes())
    place = int(at * (len(raw) - 2 * PARAMETERS))
    raw[place : place + len(data)] = data
    path.write_bytes(raw[: int(kept * len(raw))])
    try:
        tensors = read_tensors(path)
    except SpecError as error:
        assert "\n" not in str(error)  # noqa: PT017 - either is right
    else:
        assert sum(tensor.stored_bytes for tensor in tensors) < len(raw)
