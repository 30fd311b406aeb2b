# ruff: noqa: INP001, T201 - a script, not a package; it says what it is at
"""Write what commands print into the pages that show them, and the pictures that they draw into docs/images.

    python tools/outputs.py                  # write
    python tools/outputs.py --check          # end with status 1 where a page is stale

A console block with one command, and after it a text block: the text is what the command prints.
"""

import argparse
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from typer.testing import CliRunner

ROOT = Path(__file__).parents[1]
_NAMES = ("levers", "chunk", "split", "users", "gpu", "course")
PAGES = tuple(ROOT / "docs" / f"serving_{name}.md" for name in _NAMES)
IMAGES = ROOT / "docs" / "images"
_SHOWN = re.compile(
    r"(?P<head>^```console\n\$ rooflinekit (?P<command>[^\n`]*(?:\\\n[^\n`]*)*)\n```\n\n```text\n)"
    r"(?P<text>.*?)(?=^```$)",
    re.MULTILINE | re.DOTALL,
)


@contextmanager
def elsewhere() -> Iterator[Path]:
    """Work in an empty folder, with nothing on the screen and tables of any width."""
    before = Path.cwd()
    os.environ |= {"MPLBACKEND": "Agg", "COLUMNS": "500"}
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            yield Path(folder)
        finally:
            os.chdir(before)


def output(command: str) -> str:
    """Run a command line as it stands on a page."""
    from rooflinekit.cli import app  # noqa: PLC0415 - only where a page shows one

    result = CliRunner().invoke(app, shlex.split(command.replace("\\\n", " ")), prog_name="rooflinekit")
    if result.exit_code:
        message = f"{command}: status {result.exit_code}: {result.output}"
        raise RuntimeError(message)
    return result.output


def fresh(text: str) -> str:
    """Give the text of a page with what its commands print today."""
    return _SHOWN.sub(lambda match: match["head"] + output(match["command"]), text)


def shown(text: str) -> list[str]:
    """List the commands of a page whose output it shows."""
    return [match["command"] for match in _SHOWN.finditer(text)]


def main() -> int:
    """Write or check every page."""
    parser = argparse.ArgumentParser(description="Outputs of commands on pages.")
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    stale = []
    with elsewhere() as folder:
        for page in PAGES:
            text = page.read_text(encoding="utf-8")
            made = fresh(text)
            stale += [page.name] if made != text else []
            if not check:
                page.write_text(made, encoding="utf-8")
        if not check:
            for picture in folder.glob("*.png"):
                (IMAGES / picture.name).write_bytes(picture.read_bytes())
    if check and stale:
        print(f"stale: {', '.join(stale)}; run python tools/outputs.py", file=sys.stderr)
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
