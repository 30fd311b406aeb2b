"""Per-tensor types of a GGUF file as rules: which matrices are held in which format, in as few lines as say it."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from rooflinekit.specs.gguf.header import Tensor
from rooflinekit.specs.gguf.layer import Parts
from rooflinekit.specs.quantisation import Quantisation, Rule

#: Our names where they are not the type's own in lower case.
_RENAMED = {"F32": "fp32", "F16": "fp16", "I8": "int8-weight-only"}
_SIXTEEN_BITS = ("bf16", "fp16")
_PLAIN = (*_SIXTEEN_BITS, "fp32")


class Held(NamedTuple):
    """A matrix of one layer, and the format of each tensor that it is held in."""

    layer: int
    module: str
    tensors: tuple[Tensor, ...]

    @property
    def format(self) -> str:
        """The format that holds most of it."""
        return dominant(self.tensors)


class Formats(NamedTuple):
    """The dtype of what is not quantised, the rules (None: nothing is), and what the rules cannot say."""

    dtype: str
    quantisation: Quantisation | None
    notes: tuple[str, ...]


def format_name(kind: str) -> str:
    """Give our name of a storage type.

    >>> format_name("Q4_K"), format_name("F16")
    ('q4_k', 'fp16')
    """
    return _RENAMED.get(kind, kind.lower())


def dominant(tensors: Iterable[Tensor]) -> str:
    """Give the format of most of the weights."""
    weights: Counter[str] = Counter()
    for tensor in tensors:
        weights[format_name(tensor.type)] += tensor.elements
    return weights.most_common(1)[0][0]


def held_in(layer: int, parts: Parts, tensors: Mapping[str, Tensor]) -> list[Held]:
    """List the matrices of one layer with the tensors that hold them."""
    found: defaultdict[str, list[Tensor]] = defaultdict(list)
    for name, part in parts.items():
        for module in part.modules:
            found[module].append(tensors[name])
    return [Held(layer, module, tuple(tensors)) for module, tensors in found.items()]


def read_formats(held: Sequence[Held], head: Tensor, embedding: Tensor) -> Formats:
    """Turn the types of all tensors into a dtype and rules."""
    every = [tensor for matrix in held for tensor in matrix.tensors]
    default = dominant(every or [head])
    rules = _rules(held, default)
    dtype = default if default in _PLAIN else _plain_dtype([*every, head, embedding])
    names = format_name(head.type), format_name(embedding.type)
    if not rules and {default, *names} == {dtype}:
        return Formats(dtype, None, ())
    scheme = Quantisation(method="gguf", default=default, rules=rules, head=names[0], embedding=names[1])
    return Formats(dtype, scheme, _mixed(held))


def _plain_dtype(tensors: Iterable[Tensor]) -> str:
    """Give the 16-bit dtype beside quantised matrices: the file's own, else FP16 as llama.cpp's cache has it."""
    names = Counter(format_name(tensor.type) for tensor in tensors)
    found = [name for name, _ in names.most_common() if name in _SIXTEEN_BITS]
    return found[0] if found else "fp16"


def _rules(held: Sequence[Held], default: str) -> tuple[Rule, ...]:
    """Give the exceptions by layer, then one rule for each matrix that differs from the default."""
    by_module: defaultdict[str, dict[int, str]] = defaultdict(dict)
    for matrix in held:
        by_module[matrix.module][matrix.layer] = matrix.format
    single, general = [], []
    for module in sorted(by_module, key=lambda name: (-name.count("."), name)):  # the longer path first
        formats = by_module[module]
        parent = by_module.get(module.rpartition(".")[0])
        if parent == formats:
            continue
        counts = Counter(formats.values())
        usual = max(counts, key=lambda name: (counts[name], name == default))
        single += _exceptions(module, formats, usual)
        general += [Rule(module, usual)] if usual != default or parent is not None else []
    return (*single, *general)


def _exceptions(module: str, formats: Mapping[int, str], usual: str) -> list[Rule]:
    layers: defaultdict[str, list[str]] = defaultdict(list)
    for layer, name in formats.items():
        if name != usual:
            layers[name].append(str(layer))
    path = module.replace(".", r"\.")
    return [Rule(rf"re:layers\.({'|'.join(numbers)})\.{path}$", name) for name, numbers in layers.items()]


def _mixed(held: Iterable[Held]) -> tuple[str, ...]:
    """Name the matrices whose parts have several formats: the rules give them the one that holds most."""
    mixed = sorted({matrix.module for matrix in held if len({tensor.type for tensor in matrix.tensors}) > 1})
    if not mixed:
        return ()
    return (f"held in several formats, counted in the one that holds most: {', '.join(mixed)}",)
