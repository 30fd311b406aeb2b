"""The headers of a folder's safetensors files: stored bytes and elements by dtype, exactly. No weights are read.

A file begins with the length of its header in 8 bytes, little-endian, and the header, a JSON mapping of tensor names to
``dtype``, ``shape`` and ``data_offsets``. Nothing but the standard library is needed.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeGuard

from rooflinekit.errors import SpecError

if TYPE_CHECKING:
    from rooflinekit.specs.model import Model

INDEX = "model.safetensors.index.json"
_LENGTH_BYTES = 8
_LONGEST_HEADER = 100_000_000  # the limit of the safetensors library itself
_LONGEST_INDEX = 200_000_000
_MOST_NAMED = 3
_ENDS_OF_DATA = 2
#: Dtypes that hold one weight an element: a count of parameters can be told from them.
_WHOLE = ("F64", "F32", "F16", "BF16", "F8_E4M3", "F8_E5M2", "I8")

_TOWERS = (
    *("visual.", "vision_tower.", "vision_model.", "multi_modal_projector.", "audio_tower.", "embed_vision."),
    *("model.visual.", "model.vision_tower.", "model.multi_modal_projector.", "model.audio_tower."),
)
_ROUTER_BIASES = ("e_score_correction_bias", "expert_bias")
_ENDS = {"buffers": ("inv_freq", ".masked_bias", ".attn.bias", "attention.bias"), "scales": ("_scale", "_scale_inv")}


class Stored(NamedTuple):
    """One tensor: its dtype as the file spells it (``BF16``, ``F8_E4M3``, ``U8``), elements, and bytes."""

    name: str
    dtype: str
    elements: int
    stored_bytes: int


class Checkpoint(NamedTuple):
    """All tensors of a folder, and the total that its index claims, where it has one."""

    folder: Path
    tensors: tuple[Stored, ...]
    claimed_bytes: int | None = None

    @property
    def stored_bytes(self) -> int:
        """Bytes of all tensors, headers left out."""
        return sum(tensor.stored_bytes for tensor in self.tensors)

    @property
    def elements(self) -> int:
        """Elements of all tensors; packed ones hold several weights in each."""
        return sum(tensor.elements for tensor in self.tensors)

    @property
    def elements_by_dtype(self) -> Mapping[str, int]:
        """Elements by dtype, as the Hub shows them."""
        return self._by_dtype("elements")

    @property
    def bytes_by_dtype(self) -> Mapping[str, int]:
        """Bytes by dtype."""
        return self._by_dtype("stored_bytes")

    def _by_dtype(self, what: str) -> Mapping[str, int]:
        sums: Counter[str] = Counter()
        for tensor in self.tensors:
            sums[tensor.dtype] += getattr(tensor, what)
        return dict(sums)


def exact_weight_bytes(folder: str | Path) -> int:
    """Bytes of all tensors of a folder's safetensors files, from their headers."""
    return read_checkpoint(folder).stored_bytes


def read_checkpoint(folder: str | Path) -> Checkpoint:
    """Read the headers of the files that a folder's index names, or of all its safetensors files where it has none."""
    root = Path(folder).expanduser()
    index = root / INDEX
    claimed, names = _index(index) if index.is_file() else (None, None)
    paths = [root / name for name in names] if names is not None else sorted(root.glob("*.safetensors"))
    missing = [path.name for path in paths if not path.is_file()]
    if missing or not paths:
        named = f"{', '.join(missing[:_MOST_NAMED])} of its index is missing" if missing else "holds no *.safetensors"
        _refuse(root, f"{named}: download the whole checkpoint")
    return Checkpoint(root, _distinct(root, (tensor for path in paths for tensor in read_tensors(path))), claimed)


def _distinct(root: Path, tensors: Iterator[Stored]) -> tuple[Stored, ...]:
    found: dict[str, Stored] = {}
    for tensor in tensors:
        if tensor.name in found:
            _refuse(root, f"tensor `{tensor.name}` is in two files: leave one copy of the checkpoint in the folder")
        found[tensor.name] = tensor
    return tuple(found.values())


def _index(path: Path) -> tuple[int | None, tuple[str, ...]]:
    """Read the total and the file names of an index."""
    if path.stat().st_size > _LONGEST_INDEX:
        _refuse(path, f"is larger than {_LONGEST_INDEX} bytes: expected an index of tensor names")
    data = _json(path, path.read_bytes())
    files = data.get("weight_map")
    if not isinstance(files, dict) or not all(map(_is_file_name, files.values())):
        _refuse(path, "`weight_map` is no mapping of tensor names to files of this folder")
    metadata = data.get("metadata")
    total = metadata.get("total_size") if isinstance(metadata, dict) else None
    return int(total) if isinstance(total, int | float) else None, tuple(sorted(set(files.values())))


def _is_file_name(name: object) -> bool:
    return isinstance(name, str) and Path(name).name == name


# ---- one file


def read_tensors(path: Path) -> tuple[Stored, ...]:
    """Read the tensor list of one file from its header, and check that the file holds what the header says."""
    header, data_bytes = _header(path)
    entries = {name: entry for name, entry in header.items() if name != "__metadata__"}
    tensors = tuple(_stored(path, name, entry, data_bytes) for name, entry in entries.items())
    total = sum(tensor.stored_bytes for tensor in tensors)
    if total != data_bytes:
        _refuse(path, f"holds {data_bytes} bytes of tensors, its header names {total}: download it again")
    return tensors


def _header(path: Path) -> tuple[Mapping[str, Any], int]:
    """Read a file's header and the number of bytes behind it."""
    try:
        with path.open("rb") as file:
            size, length = path.stat().st_size, int.from_bytes(file.read(_LENGTH_BYTES), "little")
            left = size - _LENGTH_BYTES
            if length > min(left, _LONGEST_HEADER):
                _refuse(
                    path, f"is no safetensors file, or truncated: a header of {length} bytes, {max(left, 0)} follow"
                )
            return _json(path, file.read(length)), left - length
    except OSError as error:
        _refuse(path, f"cannot be read ({error.strerror}): expected a safetensors file")


def _json(path: Path, text: bytes) -> Mapping[str, Any]:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        data = None
    if not isinstance(data, dict):
        _refuse(path, "its header is no JSON mapping: download it again")
    return data


def _stored(path: Path, name: str, entry: object, data_bytes: int) -> Stored:
    found = entry if isinstance(entry, dict) else {}
    kind, shape, offsets = (found.get(key) for key in ("dtype", "shape", "data_offsets"))
    if not isinstance(kind, str) or not _counts(shape) or not _counts(offsets) or len(offsets) != _ENDS_OF_DATA:
        _refuse(path, f"tensor `{name}` lacks dtype, shape or data_offsets")
    begin, end = offsets
    if not begin <= end <= data_bytes:
        _refuse(path, f"tensor `{name}` lies at bytes {begin} to {end} of {data_bytes}")
    return Stored(name, kind, prod(shape), end - begin)


def _counts(value: object) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(type(number) is int and number >= 0 for number in value)


def _refuse(path: Path, text: str) -> NoReturn:
    message = f"{path}: {text}"
    raise SpecError(message) from None


# ---- against a model


def check_against(model: "Model", folder: str | Path) -> str:
    """
    Say in one line how a model's count differs from what a folder stores.

    Packed dtypes (``U8``, ``I32``) hold several weights an element: then only bytes are told. A stored copy of a tied
    output layer, a prediction module, and what is no weight (masks, rotary tables, scales) are named where they explain
    the difference.

    Parameters
    ----------
    model : Model
        The model that is to be checked.
    folder : str or Path
        The folder with ``*.safetensors``.

    Returns
    -------
    line : str
        Begins with the model's id; never empty.
    """
    checkpoint = read_checkpoint(folder)
    packed = sorted(set(checkpoint.elements_by_dtype) - set(_WHOLE))
    difference = checkpoint.elements - model.parameters.total
    said = f"{model.id}: {checkpoint.stored_bytes} bytes stored{_claimed(checkpoint)}"
    if packed:
        return f"{said}; elements of {', '.join(packed)} are no single weights: counts are not compared"
    if not difference:
        return f"{said}; {checkpoint.elements} parameters in both"
    counts = f"{checkpoint.elements} elements against {model.parameters.total} parameters ({difference:+d})"
    return f"{said}; {counts}{_why(model, checkpoint)}"


def _claimed(checkpoint: Checkpoint) -> str:
    if checkpoint.claimed_bytes in (None, checkpoint.stored_bytes):
        return ""
    return f" ({INDEX} says {checkpoint.claimed_bytes})"


def _why(model: "Model", checkpoint: Checkpoint) -> str:
    """Name what accounts for a difference, cause by cause, and what is left."""
    causes: Counter[str] = Counter()
    for tensor in checkpoint.tensors:
        if cause := _surplus(model, tensor.name):
            causes[cause] += tensor.elements
    left = checkpoint.elements - model.parameters.total - causes.total()
    named = [f"{count} in {cause}" for cause, count in causes.items()]
    return f": {', '.join([*named, f'{left:+d} that nothing here explains'] if left else named)}"


def _surplus(model: "Model", name: str) -> str | None:
    """Say what a stored tensor is, if the model's parameters do not count it."""
    layer = re.search(r"(?:^|\.)layers\.(\d+)\.", name)
    if name.startswith(_TOWERS):
        return "vision and audio towers"
    if name.startswith("mtp.") or (layer and int(layer[1]) >= model.layer_count):
        return "a prediction module"
    if name == "lm_head.weight" and model.tied_embeddings:
        return "a copy of the tied output layer"
    if name.endswith(_ROUTER_BIASES) and not any(getattr(block, "router_bias", False) for block in model.feedforwards):
        return "router biases"
    return next((cause for cause, ends in _ENDS.items() if name.endswith(ends)), None)
