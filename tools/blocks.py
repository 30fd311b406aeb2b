# ruff: noqa: INP001 - beside scripts, not in a package
"""Blocks of a page that a tool makes: what stands between two markers is replaced, all else stays."""

from pathlib import Path
from typing import NamedTuple


class Block(NamedTuple):
    """Where a made block stands: its page, and the lines before and after it."""

    page: Path
    begin: str
    end: str

    def put(self, text: str, made: str) -> str:
        """Put the block, its markers with it, between the markers of a text."""
        if self.begin not in text or self.end not in text:
            message = f"{self.page.name}: expected the lines {self.begin} and {self.end}"
            raise ValueError(message)
        return text[: text.index(self.begin)] + made + text[text.index(self.end) + len(self.end) :]

    def write(self, made: str) -> None:
        """Put it into the page."""
        self.page.write_text(self.put(self.page.read_text(encoding="utf-8"), made), encoding="utf-8")
