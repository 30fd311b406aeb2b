"""What the command line reads itself: numbers, lists of sizes, and what it loads to do so."""

import subprocess
import sys

import pytest
import typer

from rooflinekit.cli.options import number, sizes


@pytest.mark.parametrize(
    ("text", "read"),
    [("2048", 2048), ("-5", -5), ("2.5", 2.5), ("1e3", 1000.0), ("inf", float("inf"))],
)
def test_numbers(text, read):
    """An integer stays one."""
    assert (number(text), type(number(text))) == (read, type(read))


def test_no_number():
    """The word is named."""
    with pytest.raises(typer.BadParameter, match="'two' is no number"):
        number("two")


@pytest.mark.parametrize(
    ("text", "read"),
    [("1", [1]), ("1,2,4", [1, 2, 4]), ("1:4", [1, 2, 3, 4]), ("8:32:8", [8, 16, 24, 32]), ("1,4:9:2", [1, 4, 6, 8])],
)
def test_lists_of_sizes(text, read):
    """Numbers and ranges, both ends included."""
    assert sizes(text) == read


def test_parsing_loads_nothing_heavy():
    """Tables, pictures and data frames load inside the commands that need them."""
    heavy = ("pandas", "matplotlib", "scipy", "rich.table")
    code = f"import sys, rooflinekit.cli; print([name for name in {heavy} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603
    assert found.stdout == "[]\n"
