"""Format: how a file format is told and read."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from rooflinekit.measurements.record import Measurement, Setting, Skipped
from rooflinekit.measurements.source import Source

Item = Measurement | Setting | Skipped


@dataclass(frozen=True)
class Format:
    """
    One format of one tool.

    ``matches`` looks at the head of a source and tells whether it is of this format; ``read`` yields what it holds, in
    base units, one item after another, and computes nothing that the file does not say. ``asks`` names facts beyond
    the common ones that a file of this format never holds, and without which its records mean nothing.
    """

    name: str
    title: str
    matches: Callable[[Source], bool]
    read: Callable[[Source], Iterator[Item]]
    asks: tuple[str, ...] = ()
