"""GGUF files as llama.cpp's converter writes them, made here: headers at full size without data, small ones with it."""

import gguf
import numpy as np
import pytest

TYPES = {kind.name: kind for kind in gguf.GGMLQuantizationType}
SIZES = gguf.GGML_QUANT_SIZES


class GGUFFile:
    """Keys and tensors of one file. A shape is (input width, columns, ...), as GGUF counts."""

    def __init__(self, architecture, **keys):
        self.architecture = architecture
        self.keys = {name.replace("__", "."): value for name, value in keys.items()}
        self.tensors = {}

    def add(self, name, *shape, kind="F32"):
        """Add one tensor; a bare name is that of a weight."""
        name = name if name.endswith((".bias", ".weight", "ssm_a", "ssm_d", ".scale")) else f"{name}.weight"
        self.tensors[name] = (shape, kind)
        return self

    def layer(self, index, kind="F32", **parts):
        """Add tensors of one layer: vectors in F32, matrices in `kind` unless the part names its own."""
        for name, shape in parts.items():
            own = kind
            if isinstance(shape[-1], str):
                *shape, own = shape
            vector = len(shape) == 1
            self.add(f"blk.{index}.{name.replace('__', '.')}", *shape, kind="F32" if vector else own)
        return self

    def writer(self, path):
        """Make a writer that holds everything; raw bytes of zeros stand for quantised data."""
        writer = gguf.GGUFWriter(path, self.architecture)
        for name, value in self.keys.items():
            key = name if "." in name and name.split(".")[0] in ("general", "tokenizer", "split") else None
            _add_key(writer, key or f"{self.architecture}.{name}", value)
        return writer

    def write_header(self, path):
        """Write keys and tensor list alone."""
        writer = self.writer(path)
        for name, (shape, kind) in self.tensors.items():
            writer.add_tensor_info(name, shape[::-1], np.dtype("float32"), _bytes(shape, kind), TYPES[kind])
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        writer.close()
        return path

    def write(self, path, **options):
        """Write a whole file of zeros."""
        writer = self.writer(path)
        for name, value in options.items():
            setattr(writer, name, value)
        for name, (shape, kind) in self.tensors.items():
            size, stored = SIZES[TYPES[kind]]
            rows = (*shape[:0:-1], shape[0] // size * stored)
            writer.add_tensor(name, np.zeros(rows, np.uint8), raw_dtype=TYPES[kind])
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path


def _bytes(shape, kind):
    size, stored = SIZES[TYPES[kind]]
    return int(np.prod(shape, dtype=object)) // size * stored


def _add_key(writer, name, value):
    if isinstance(value, bool):
        writer.add_bool(name, value)
    elif isinstance(value, str):
        writer.add_string(name, value)
    elif isinstance(value, float):
        writer.add_float32(name, value)
    elif isinstance(value, list):
        writer.add_array(name, value)
    else:
        writer.add_uint32(name, value)


@pytest.fixture
def small_llama():
    """Two layers of Llama, 256 wide: small enough to be written whole, wide enough for blocks of 256."""
    file = GGUFFile(
        "llama", general__name="Small", block_count=2, embedding_length=256, context_length=512,
        attention__head_count=4, attention__head_count_kv=2, feed_forward_length=512,
        attention__layer_norm_rms_epsilon=1e-5,
        tokenizer__ggml__tokens=["a", "b", "c"], tokenizer__ggml__scores=[0.0, 1.0, 2.0],
    )  # fmt: skip
    file.add("token_embd", 256, 512, kind="Q4_K").add("output", 256, 512, kind="Q6_K").add("output_norm", 256)
    file.add("rope_freqs", 32)
    for index in range(2):
        down = "Q6_K" if index == 1 else "Q4_K"
        file.layer(
            index, "Q4_K", attn_norm=(256,), attn_q=(256, 256), attn_k=(256, 128), attn_v=(256, 128, "Q6_K"),
            attn_output=(256, 256), ffn_norm=(256,), ffn_gate=(256, 512), ffn_up=(256, 512),
            ffn_down=(512, 256, down),
        )  # fmt: skip
    return file


@pytest.fixture
def gguf_file():
    """Make files."""
    return GGUFFile
