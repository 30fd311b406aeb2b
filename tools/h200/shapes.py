"""Shapes of the decoders whose steps are measured, and the steps: prompts and batches."""

from collections.abc import Iterable
from typing import NamedTuple

DECODE_BATCHES, DECODE_CONTEXTS = (1, 8, 32, 64), (512, 2048, 8192)
PREFILLS = (1, 16, 128, 512, 1024, 2048, 4096, 8192)


class Shape(NamedTuple):
    """Sizes of one decoder."""

    name: str
    layers: int
    hidden: int
    inter: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    qk_norm: bool = True
    tied: bool = False
    experts: int = 0
    topk: int = 0


QWEN_8B = Shape("qwen3-8b", 36, 4096, 12288, 32, 8, 128, 151936)
LLAMA_8B = Shape("llama-3.1-8b", 32, 4096, 14336, 32, 8, 128, 128256, qk_norm=False)
QWEN_MOE = Shape("qwen3-30b-a3b", 48, 2048, 768, 32, 4, 128, 151936, experts=128, topk=8)
MODELS = (
    Shape("qwen3-0.6b", 28, 1024, 3072, 16, 8, 128, 151936, tied=True),
    Shape("qwen3-1.7b", 28, 2048, 6144, 16, 8, 128, 151936, tied=True),
    Shape("qwen3-4b", 36, 2560, 9728, 32, 8, 128, 151936, tied=True),
    Shape("llama-3.2-1b", 16, 2048, 8192, 32, 8, 64, 128256, qk_norm=False, tied=True),
    Shape("llama-3.2-3b", 28, 3072, 8192, 24, 8, 128, 128256, qk_norm=False, tied=True),
    Shape("qwen3-14b", 40, 5120, 17408, 40, 8, 128, 151936),
    Shape("qwen3-32b", 64, 5120, 25600, 64, 8, 128, 151936),
)


class Row(NamedTuple):
    """One step: ``new`` tokens for each of ``batch`` sequences that hold ``context`` tokens afterwards."""

    batch: int
    new: int
    context: int

    @property
    def prefill(self) -> bool:
        """Whether this is one whole prompt."""
        return self.batch == 1 and self.new == self.context

    def cells(self) -> tuple[object, ...]:
        """Return the row as the tables of steps write it."""
        if self.prefill:
            return "prefill", 1, self.new, ""
        return "decode", self.batch, "", self.context


def prefills(tokens: Iterable[int] = PREFILLS) -> list[Row]:
    """Return rows of one prompt."""
    return [Row(1, number, number) for number in tokens]


def decodes(batches: Iterable[int] = DECODE_BATCHES, contexts: Iterable[int] = DECODE_CONTEXTS) -> list[Row]:
    """Return rows of one new token a sequence, contexts rising, then batches."""
    return [Row(batch, 1, context) for context in contexts for batch in batches]
