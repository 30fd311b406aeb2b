"""The pages on measurements say what the library holds: formats, quantities, causes, how often diagnosis is right."""

import importlib.util
import re
from collections import Counter
from pathlib import Path

import pytest

from rooflinekit.calibration.causes import CAUSES
from rooflinekit.calibration.injected import FAULTS
from rooflinekit.calibration.injected_served import SERVED_FAULTS
from rooflinekit.measurements.formats import FORMATS
from rooflinekit.measurements.record import QUANTITIES

ROOT = Path(__file__).parents[1]
READING = (ROOT / "docs/measurements.md").read_text(encoding="utf-8")
DIAGNOSING = (ROOT / "docs/diagnosing.md").read_text(encoding="utf-8")
FLAGS = {"batch": "`--batch`", "prompt_tokens": "`--prompt`", "output_tokens": "`--output`"}


@pytest.fixture(scope="module")
def tool():
    """Load the script that writes the matrix."""
    spec = importlib.util.spec_from_file_location("confusion_tool", ROOT / "tools/confusion.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def rows(text, heading):
    """Give the cells of the table under a heading row."""
    lines = text[text.index(heading) :].split("\n\n")[0].split("\n")[2:]
    return [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in lines]


def test_formats():
    """All that are read, in the order in which they are tried, and what to give beside them."""
    expected = [(f"`{one.name}`", one.title, ", ".join(FLAGS[name] for name in one.asks) or "-") for one in FORMATS]
    assert rows(READING, "| format | what writes it |") == expected


def test_quantities():
    """The vocabulary with units and meanings."""
    expected = [(f"`{name}`", one.unit, one.meaning) for name, one in QUANTITIES.items()]
    assert rows(READING, "| quantity | unit | meaning |") == expected


def test_fields_name_quantities_of_the_vocabulary():
    """The table of what "per token" means maps to quantities that there are."""
    named = [re.findall(r"`(\w+)`", row[1])[0] for row in rows(READING, "| tool, field | quantity |")]
    assert len(named) > 12
    assert set(named) <= {*QUANTITIES}


def test_causes():
    """Every cause that can be told has its row."""
    assert {row[0] for row in rows(DIAGNOSING, "| cause | what the run shows then |")} == {one.name for one in CAUSES}


def test_the_matrix_is_whole(tool):
    """A row a fault and a column a cause; a row sums to the runs."""
    found = rows(DIAGNOSING, "| fault put in |")
    (count,) = map(int, re.findall(r"Of (\d+) runs a fault:", DIAGNOSING))
    assert [row[0] for row in found] == [*FAULTS]
    assert [*tool.SHORT] == [*FAULTS, "cannot tell"]
    assert count == 200
    for row in found:
        assert sum(int(cell or 0) for cell in row[1:-1]) == count


def test_the_matrix_of_simulated_runs_is_whole_and_good_enough(tool):
    """A row a fault that a simulated server has; 95% of healthy ones without verdict, the right cause first in 90%."""
    text = DIAGNOSING[DIAGNOSING.index(tool.SERVED_BEGIN) :]
    found = {row[0]: [int(cell or 0) for cell in row[1:]] for row in rows(text, "| simulated with |")}
    counts = tool.served_counts(200)
    assert [*found] == [*SERVED_FAULTS]
    assert {name: sum(row[:-1]) for name, row in found.items()} == counts
    first = [found[name][[*tool.SHORT].index(name)] / counts[name] for name in SERVED_FAULTS]
    among = [found[name][-1] / counts[name] for name in SERVED_FAULTS]
    healthy, *faults = first
    said = [float(one) / 100 for one in re.findall(r"in ([\d.]+)%", text)][:3]
    assert said == pytest.approx([healthy, sum(faults) / len(faults), sum(among[1:]) / len(faults)], abs=6e-4)
    assert healthy >= 0.95
    assert said[1] >= 0.90
    assert said[2] >= 0.95


def test_the_figures_reach_what_was_asked_for():
    """First in 80%, among the first two in 95%, no verdict on 95% of healthy runs: as the matrix says."""
    found = {row[0]: [int(cell or 0) for cell in row[1:]] for row in rows(DIAGNOSING, "| fault put in |")}
    faults = [name for name in FAULTS if name != "none"]
    first = sum(found[name][[*FAULTS].index(name)] for name in faults) / 200 / len(faults)
    among = sum(found[name][-1] for name in faults) / 200 / len(faults)
    healthy = found["none"][0] / 200
    said = [float(one) / 100 for one in re.findall(r"in ([\d.]+)%", DIAGNOSING[DIAGNOSING.index("Of 200 runs") :])][:3]
    assert said == pytest.approx([first, among, healthy], abs=6e-4)
    assert first >= 0.80
    assert among >= 0.95
    assert healthy >= 0.95


def test_the_block_is_written_between_its_markers(tool):
    """Figures and matrix of what was found; the rest of the page stays."""
    found = {fault: (Counter({fault: 9, "cannot tell": 1}), 10) for fault in FAULTS}
    text = tool.with_block(f"before\n{tool.BEGIN}\nold\n{tool.END}\nafter", tool.block(found, 10))
    assert "old" not in text
    assert text.startswith("before\n")
    assert text.endswith("\nafter")
    assert "- the right cause is ranked first in 90.0% (at least 90.0%: queueing)," in text
    assert "| queueing |  | 9 |  |  |  |  |  |  |  |  | 1 | 10 |" in text
    with pytest.raises(ValueError, match="expected the lines"):
        tool.with_block("no markers", "block")
