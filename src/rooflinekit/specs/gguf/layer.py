"""One layer of a GGUF file: its tensors, and what the blocks read from them claim of each."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from rooflinekit.specs.feedforwards import FeedForward
from rooflinekit.specs.gguf.header import Tensor
from rooflinekit.specs.gguf.keys import Keys
from rooflinekit.specs.mixers import Mixer


class Part(NamedTuple):
    """What a block says of one tensor: its weights, and the matrices of :class:`Product` that are held in it."""

    elements: int
    modules: tuple[str, ...] = ()


Parts = dict[str, Part]


@dataclass(frozen=True)
class Layer:
    """The tensors of one layer, their names without ``blk.<index>.``."""

    index: int
    tensors: Mapping[str, Tensor]
    keys: Keys
    hidden: int
    norm_bias: bool

    def has(self, *names: str) -> bool:
        """Tell whether one of the tensors is there."""
        return any(name in self.tensors for name in names)

    def elements(self, name: str) -> int:
        """Weights of a tensor; 0 where it is not there."""
        return self.tensors[name].elements if name in self.tensors else 0

    def dimension(self, name: str, which: int) -> int:
        """One dimension of a tensor, the input width first; 0 where it has none such."""
        shape = self.tensors[name].shape if name in self.tensors else ()
        return shape[which] if which < len(shape) else 0

    def count(self, key: str, default: int | None = None, least: int = 1) -> int:
        """Take a count of this layer from the keys."""
        return self.keys.count(key, self.index, default, least)

    def norms(self, *names: str) -> tuple[int, Parts]:
        """Count and claim the hidden-size norms among the names, each with a bias where the model's norms have one."""
        found = [name for name in names if self.has(f"{name}.weight")]
        ends = ("weight", "bias") if self.norm_bias else ("weight",)
        return len(found), {f"{name}.{end}": Part(self.hidden) for name in found for end in ends}


def matrix(name: str, inner: int, columns: int, *modules: str, biased: bool = False) -> Parts:
    """Claim a matrix, and its bias."""
    bias = {f"{name}.bias": Part(columns)} if biased else {}
    return {f"{name}.weight": Part(inner * columns, modules), **bias}


MixerHalf = tuple[Mixer, Parts]
FeedForwardHalf = tuple[FeedForward, Parts]
