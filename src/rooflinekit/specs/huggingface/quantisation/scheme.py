"""What a quantisation_config says, in one form for all methods."""

from typing import NamedTuple

from rooflinekit.specs.huggingface.quantisation.patterns import Name, Patterns
from rooflinekit.specs.quantisation import PLAIN_FORMAT


class Scheme(NamedTuple):
    """Formats by pattern: what is left out, then what is named (first match), then the default of linear layers."""

    method: str
    default: str
    left_out: Patterns
    named: tuple[tuple[Patterns, str], ...] = ()
    head: str = PLAIN_FORMAT
    embedding: str = PLAIN_FORMAT
    kv_cache: str | None = None

    def format_of(self, name: Name) -> str:
        """Give the format of one matrix in the layers."""
        if self.left_out.match(name):
            return PLAIN_FORMAT
        return next((form for patterns, form in self.named if patterns.match(name)), self.default)

    def format_of_top(self, default: str, *names: str) -> str:
        """Give the format of the output layer or the table."""
        if self.left_out.match_top(*names):
            return PLAIN_FORMAT
        return next((form for patterns, form in self.named if patterns.match_top(*names)), default)

    def likeness(self, layer: int) -> tuple[object, ...]:
        """Give what tells layers apart: two layers of equal blocks and equal likeness are quantised alike."""
        every = (self.left_out, *(patterns for patterns, _ in self.named))
        number = layer if any(patterns.by_number for patterns in every) else None
        return (number, *(patterns.local(layer) for patterns in every))
