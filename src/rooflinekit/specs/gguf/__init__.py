"""GGUF files: a model from the header alone, with the format of each matrix, checked against the tensor list."""

from rooflinekit.specs.gguf.header import Header, Tensor, read_header
from rooflinekit.specs.gguf.model import load_gguf
from rooflinekit.specs.gguf.parts import read_parts

__all__ = ["Header", "Tensor", "load_gguf", "read_header", "read_parts"]
