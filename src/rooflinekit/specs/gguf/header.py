"""The header of a GGUF file: keys and tensor list, read by hand, every length checked against what the file holds.

The package ``gguf`` tells the block types. Its own reader is not used: it makes two arrays of each of a tokenizer's
300,000 strings (seconds), and follows an absurd length for ever.
"""

import mmap
import struct
from collections.abc import Callable, Mapping
from math import prod
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from rooflinekit.errors import SpecError

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_STRING, _ARRAY = 8, 9
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_FEWEST_KEY_BYTES, _FEWEST_TENSOR_BYTES, _FEWEST_STRING_BYTES = 13, 24, 8
_MOST_DIMENSIONS = 4
_LONGEST_NAME = 65_535
_LONGEST_TEXT = 1 << 26  # a whole tokenizer may be one key
_LONGEST_KEPT_ARRAY = 65_536  # longer ones are a tokenizer's
_MOST_STRINGS = 1 << 24
_MOST_ELEMENTS = 1 << 63


class BlockType(NamedTuple):
    """A storage type of GGUF: `size` weights in `stored_bytes`."""

    name: str
    size: int
    stored_bytes: int


class Tensor(NamedTuple):
    """One tensor of the list; `shape` as the file gives it, the innermost dimension (the input width) first."""

    name: str
    shape: tuple[int, ...]
    type: str
    stored_bytes: int

    @property
    def elements(self) -> int:
        """Weights of the tensor."""
        return prod(self.shape)


class Header(NamedTuple):
    """Keys and tensors of a file, or of all parts of a split one. Strings of tokenizers are passed over."""

    path: Path
    keys: Mapping[str, Any]
    tensors: tuple[Tensor, ...]

    @property
    def stored_bytes(self) -> int:
        """Bytes of all tensors."""
        return sum(tensor.stored_bytes for tensor in self.tensors)


def block_types() -> Mapping[int, BlockType]:
    """Give the storage types by their number, as the package ``gguf`` lists them."""
    try:
        from gguf import GGML_QUANT_SIZES  # noqa: PLC0415 - an extra: imported only where a file is read
    except ImportError:
        message = "GGUF files are read with the package gguf, which is not installed: pip install 'rooflinekit[gguf]'"
        raise SpecError(message) from None
    return {int(kind): BlockType(kind.name, *sizes) for kind, sizes in GGML_QUANT_SIZES.items()}


def read_header(path: Path) -> Header:
    """Read keys and tensor list of one file; no tensor data is touched."""
    types = block_types()
    try:
        with path.open("rb") as file, _mapped(file.fileno(), path) as data:
            return _Reader(path, data, types).header()
    except OSError as error:
        message = f"{path}: cannot be read ({error.strerror}): expected a GGUF file"
        raise SpecError(message) from None


def _mapped(descriptor: int, path: Path) -> mmap.mmap:
    try:
        return mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
    except ValueError:
        message = f"{path}: is empty: expected a GGUF file"
        raise SpecError(message) from None


class _Reader:
    """A cursor in the mapped file."""

    def __init__(self, path: Path, data: mmap.mmap, types: Mapping[int, BlockType]) -> None:
        self._path, self._data, self._types = path, data, types
        self._at, self._size = 0, len(data)

    def header(self) -> Header:
        """Read everything up to the tensors' data."""
        self._check_start()
        tensors, keys = self._number("Q", "the number of tensors"), self._number("Q", "the number of keys")
        self._need(keys * _FEWEST_KEY_BYTES + tensors * _FEWEST_TENSOR_BYTES, f"{keys} keys and {tensors} tensors")
        pairs = self._collect(keys, self._pair, "key")
        offsets = self._collect(tensors, self._tensor, "tensor")
        self._check_data(pairs.get("general.alignment", 32), offsets)
        return Header(self._path, pairs, tuple(tensor for tensor, _ in offsets.values()))

    def _check_start(self) -> None:
        magic = self._take(4, "the magic number")
        if magic != _MAGIC:
            self._refuse(f"is no GGUF file: it begins with {magic!r}, not {_MAGIC!r}")
        version = self._number("I", "the version")
        if version and not version & 0xFFFF:
            self._refuse("is a big-endian GGUF file: only little-endian ones are read; convert it with gguf's own")
        if version not in _VERSIONS:
            known = " and ".join(map(str, _VERSIONS))
            self._refuse(f"is GGUF of version {version}: versions {known} are read; convert the model again")

    def _collect(self, count: int, read: Callable[[], tuple[str, Any]], what: str) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for _ in range(count):
            name, value = read()
            if name in found:
                self._refuse(f"holds the {what} `{name}` twice")
            found[name] = value
        return found

    def _pair(self) -> tuple[str, Any]:
        name = self._string("a key's name")
        return name, self._value(self._number("I", f"the type of `{name}`"), name)

    def _value(self, kind: int, name: str) -> Any:  # noqa: ANN401 - whatever the file holds
        if kind == _STRING:
            return self._string(f"`{name}`", _LONGEST_TEXT)
        if kind == _ARRAY:
            return self._array(name)
        return self._number(self._scalar(kind, name), f"`{name}`")

    def _scalar(self, kind: int, name: str) -> str:
        if kind not in _SCALARS:
            self._refuse(f"`{name}` has the type {kind}, which GGUF does not know")
        return _SCALARS[kind]

    def _array(self, name: str) -> tuple[Any, ...] | None:
        """Read an array of numbers; one of strings, or a long one, is passed over."""
        kind, count = self._number("I", f"`{name}`"), self._number("Q", f"the length of `{name}`")
        if kind == _STRING:
            self._pass_strings(count, name)
            return None
        form = self._scalar(kind, name)
        self._need(count * struct.calcsize(form), f"`{name}` with {count} values")
        taken = self._take(count * struct.calcsize(form), f"`{name}`", copied=count <= _LONGEST_KEPT_ARRAY)
        return struct.unpack(f"<{count}{form}", taken) if count <= _LONGEST_KEPT_ARRAY else None

    def _pass_strings(self, count: int, name: str) -> None:
        self._need(count * _FEWEST_STRING_BYTES, f"`{name}` with {count} strings")
        if count > _MOST_STRINGS:
            self._refuse(f"`{name}` has {count} strings: more than any vocabulary")
        unpack, at, end = struct.Struct("<Q").unpack_from, self._at, self._size
        for _ in range(count):
            if at + _FEWEST_STRING_BYTES > end:
                break
            at += _FEWEST_STRING_BYTES + unpack(self._data, at)[0]
        self._need(at - self._at, f"`{name}` with {count} strings")
        self._at = at

    def _tensor(self) -> tuple[str, tuple[Tensor, int]]:
        name = self._string("a tensor's name")
        dimensions = self._number("I", f"the dimensions of `{name}`")
        if not 0 < dimensions <= _MOST_DIMENSIONS:
            self._refuse(f"tensor `{name}` has {dimensions} dimensions: 1 to {_MOST_DIMENSIONS} were expected")
        shape = struct.unpack(f"<{dimensions}Q", self._take(8 * dimensions, f"the shape of `{name}`"))
        block = self._block(self._number("I", f"the type of `{name}`"), name)
        offset = self._number("Q", f"the offset of `{name}`")
        return name, (Tensor(name, shape, block.name, self._stored(name, shape, block)), offset)

    def _block(self, kind: int, name: str) -> BlockType:
        if kind not in self._types:
            self._refuse(f"tensor `{name}` has the type {kind}, which the package gguf does not know: update it")
        return self._types[kind]

    def _stored(self, name: str, shape: tuple[int, ...], block: BlockType) -> int:
        if not 0 < prod(shape) < _MOST_ELEMENTS or shape[0] % block.size:
            self._refuse(f"tensor `{name}` has the shape {shape}, which {block.name} cannot hold")
        return prod(shape) // block.size * block.stored_bytes

    def _check_data(self, alignment: object, offsets: Mapping[str, tuple[Tensor, int]]) -> None:
        """Refuse a file that was cut in its data; one that holds the header alone is read."""
        if type(alignment) is not int or alignment < 1 or alignment & (alignment - 1):
            self._refuse(f"`general.alignment` = {alignment!r}: a power of two was expected")
        start = -(-self._at // alignment) * alignment
        if self._size <= start:
            return
        end, last = max(
            ((offset + tensor.stored_bytes, name) for name, (tensor, offset) in offsets.items()), default=(0, "")
        )
        if start + end > self._size:
            self._refuse(f"is truncated: `{last}` ends at byte {start + end}, the file at {self._size}")

    # ---- bytes

    def _number(self, form: str, what: str) -> Any:  # noqa: ANN401 - a number of any kind
        return struct.unpack(f"<{form}", self._take(struct.calcsize(form), what))[0]

    def _string(self, what: str, longest: int = _LONGEST_NAME) -> str:
        length = self._number("Q", what)
        if length > longest:
            self._refuse(f"{what} is {length} bytes long: {longest} at most were expected")
        try:
            return self._take(length, what).decode("utf-8")
        except UnicodeDecodeError:
            self._refuse(f"{what} is no UTF-8 text")

    def _take(self, count: int, what: str, *, copied: bool = True) -> bytes:
        self._need(count, what)
        start, self._at = self._at, self._at + count
        return self._data[start : self._at] if copied else b""

    def _need(self, count: int, what: str) -> None:
        if count > self._size - self._at:
            left = self._size - self._at
            self._refuse(f"ends within {what}: {count} bytes from byte {self._at} on were expected, {left} are left")

    def _refuse(self, text: str) -> NoReturn:
        message = f"{self._path}: {text}"
        raise SpecError(message) from None
