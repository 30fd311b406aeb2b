"""docs/accuracy.md and the README's table are made from today's references, catalogue and code."""

import importlib.util
import re
from pathlib import Path

import pytest
from accuracy_page.sections import table
from accuracy_page.targets import NAMES

from rooflinekit.calibration.references import rate_table
from rooflinekit.calibration.validate import SETS
from rooflinekit.reports import validation as of

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/accuracy.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def tool():
    """Load the script that writes the page."""
    spec = importlib.util.spec_from_file_location("accuracy_tool", ROOT / "tools/accuracy.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def cells(text):
    """Split the lines of tables into cells."""
    return [
        [cell.strip() for cell in line.strip("|").split(" | ")] for line in text.split("\n") if line.startswith("|")
    ]


def targets():
    """Rows of the page's table of targets, as the README shows them: all but the number of rows."""
    rows = cells(PAGE.partition("## Targets")[2].partition("\n## ")[0])
    return [[*row[:2], *row[3:]] for row in rows]


def test_the_page_is_fresh(tool):
    """Whoever changes references, catalogue or laws runs tools/accuracy.py again."""
    (said,) = re.findall(r"fingerprint of its inputs: ([0-9a-f]{64})", PAGE)
    assert said == tool.fingerprint(), (
        "docs/accuracy.md is stale: run `python tools/accuracy.py` and commit what it writes"
    )


def test_the_readme_shows_the_table_of_the_page(tool):
    """The block between the markers holds the page's targets, row by row."""
    block = README.partition(tool.BEGIN)[2].partition(tool.END)[0]
    assert len(targets()) > 15
    assert cells(block) == targets()


def test_every_target_is_on_the_page():
    """A miss is not lost on the way."""
    shown = {(row[0], row[1]) for row in targets()}
    parts = {part for _, part in shown}
    for target in of.TARGETS:
        for name in target.sets:
            assert any(first == NAMES[name] for first, _ in shown), name
        assert target.part in parts or not target.part
    verdicts = {row[-1].partition(":")[0] for row in targets()[2:]}
    assert verdicts <= {"reached", "missed"}


def test_every_set_has_its_worst_ten():
    """All sets are on the page: what they hold out, their figures, and their worst rows with a reason each."""
    for name in SETS:
        assert f"| `{name}` |" in PAGE
        worst = cells(PAGE.partition(f"### `{name}`")[2].partition("\n#")[0])
        assert worst[0][-1] == "reason"
        assert len(worst) >= 5
        assert all(row[-1] for row in worst)


def test_excluded_rows_are_counted():
    """The reasons of the table of public measurements, with the number of rows of each."""
    section = PAGE.partition("## Left out")[2].partition("\n## ")[0]
    assert {tuple(row) for row in cells(section)[2:]} == {
        (one["reason"], str(one["rows"])) for one in of.excluded(rate_table())
    }


def test_figures_in_tables_stand_right():
    """Percentages, times and counts are right-aligned, words are not."""
    text = table([{"part": "a | b", "rows": 3, "median": 0.015, "found": "8 of 8"}]).split("\n")
    assert text == [
        "| part | rows | median | found |",
        "| :--- | ---: | ---: | :--- |",
        "| a \\| b | 3 | 1.5% | 8 of 8 |",
    ]
    assert table([]) == "None."


def test_the_block_replaces_what_is_between_the_markers(tool):
    """The rest of the README stays as it is."""
    text = f"before\n{tool.BEGIN}\nold\n{tool.END}\nafter\n"
    assert tool.PLACE.put(text, f"{tool.BEGIN}\nnew\n{tool.END}") == f"before\n{tool.BEGIN}\nnew\n{tool.END}\nafter\n"
    with pytest.raises(ValueError, match="expected the lines"):
        tool.PLACE.put("no markers", "block")


@pytest.mark.slow
def test_a_set_recomputed_gives_the_printed_figures():
    """The H200 steps, predicted anew, print as on the page."""
    expected = cells(table(of.summary(of.load_set("h200-steps"))))[2:]
    section = cells(PAGE.partition("## Every set and part")[2].partition("\n## ")[0])
    assert [row for row in section if row[0] == "h200-steps"] == expected
