"""Every snippet of the README and of the docs runs: Python as one program a page, console lines as commands."""

import re
import shlex
import textwrap
from pathlib import Path

import pytest
from typer.testing import CliRunner

ROOT = Path(__file__).parents[1]
PAGES = [path for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))) if path.is_file()]
BLOCK = re.compile(r"^(?P<indent> *)```(?P<kind>\w+)[^\n]*\n(?P<body>.*?)^(?P=indent)```", re.MULTILINE | re.DOTALL)


def blocks(page, kind):
    """Texts of a page's fenced blocks of one kind, each after as many empty lines as it has before it on the page."""
    text = page.read_text(encoding="utf-8")
    found = (match for match in BLOCK.finditer(text) if match["kind"] == kind)
    return [(text.count("\n", 0, match.start("body")), textwrap.dedent(match["body"])) for match in found]


def commands(page):
    """Lines of the console blocks that call rooflinekit, continued lines joined."""
    joined = "\n".join(body.replace("\\\n", " ") for _, body in blocks(page, "console"))
    return [line.removeprefix("$ rooflinekit ") for line in joined.split("\n") if line.startswith("$ rooflinekit ")]


PROGRAMS = [page for page in PAGES if blocks(page, "python")]
COMMANDS = [(page, command) for page in PAGES for command in commands(page)]


def named(value):
    """Name a case by its page or its command."""
    return str(value.relative_to(ROOT)) if isinstance(value, Path) else value


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch, tmp_path):
    """Run in an empty folder, and draw off screen."""
    monkeypatch.setenv("MPLBACKEND", "Agg")
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("page", PROGRAMS, ids=named)
def test_the_python_of_a_page_runs(page):
    """The blocks of one page are one program, top to bottom; a fault is reported at its line of the page."""
    namespace = {"__name__": "__main__"}
    for line, body in blocks(page, "python"):
        exec(compile("\n" * line + body, str(page), "exec"), namespace)  # noqa: S102 - our own pages


@pytest.mark.parametrize(("page", "command"), COMMANDS, ids=named)
def test_the_commands_of_a_page_run(page, command):
    """Each command that a page shows ends with status 0."""
    from rooflinekit.cli import app  # noqa: PLC0415 - only where a page shows a command

    shown = shlex.split(command, comments=True)
    assert not {"|", ">", "<", "&&"} & set(shown), f"{page.name}: a shell's work is not run here: {command}"
    result = CliRunner().invoke(app, shown)
    assert result.exit_code == 0, result.output


def test_snippets_are_found():
    """The pages are read: an empty list of snippets would pass in silence."""
    assert len(PROGRAMS) >= 3
    assert COMMANDS
