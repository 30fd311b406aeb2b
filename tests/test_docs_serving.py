"""The pages on serving show what their commands print today."""

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SPEC = importlib.util.spec_from_file_location("outputs_tool", ROOT / "tools/outputs.py")
tool = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(tool)


@pytest.mark.parametrize("page", tool.PAGES, ids=lambda page: page.name)
def test_outputs_are_fresh(page):
    """`python tools/outputs.py` writes them anew."""
    text = page.read_text(encoding="utf-8")
    with tool.elsewhere():
        assert tool.fresh(text) == text


@pytest.mark.parametrize("page", tool.PAGES, ids=lambda page: page.name)
def test_a_page_begins_with_a_command_and_draws_its_pictures(page):
    """The first block is a command with its output; each picture is drawn by a command of the page."""
    text = page.read_text(encoding="utf-8")
    assert text.index("```console") == text.index("```")
    assert tool.shown(text)
    for name in re.findall(r"\(images/(\w+\.png)\)", text):
        assert any(command.endswith(f"--png {name}") for command in tool.shown(text))


def test_a_stale_output_is_noticed():
    """Another number is another page."""
    text = "```console\n$ rooflinekit crossover qwen3-8b gb10\n```\n\n```text\nold\n```\n"
    with tool.elsewhere():
        made = tool.fresh(text)
    assert "old" not in made
    assert made.startswith(text[: text.index("old")])
    assert made.endswith("\n```\n")
