"""What tables of the docs say is what the library holds."""

import re
from fnmatch import fnmatch
from pathlib import Path

import pytest

import rooflinekit as rk
from rooflinekit.operators.forward import plan
from rooflinekit.reports.cache import cache_precision
from rooflinekit.specs.precision import weight_format

ROOT = Path(__file__).parents[1]
FORMATS = re.findall(
    r"^\| `([\w-]+)` \| ([\d.]+) \| (.+) \|$", (ROOT / "docs/reading.md").read_text(encoding="utf-8"), re.MULTILINE
)
ROWS = re.findall(r"`([\w*]+)", (ROOT / "docs/nomenclature.md").read_text(encoding="utf-8"))


@pytest.mark.parametrize(("name", "bits", "scales"), FORMATS)
def test_bits_of_a_format(name, bits, scales):
    """Bits with scales, and what the scales are."""
    form = weight_format(name)
    assert (bits, scales) == (f"{form.bits:.6g}", form.scales)


def test_formats_are_found():
    """The page is read: an empty table would pass in silence."""
    assert len(FORMATS) >= 12


@pytest.mark.parametrize("name", rk.list_models())
def test_every_operator_has_its_row(name):
    """The nomenclature names every row that a pass of any model has."""
    model = rk.load_model(name)
    rows = {row.name.partition("[")[0] for row in plan(model, cache_precision(model)).rows}
    assert [row for row in rows if not any(fnmatch(row, named) for named in ROWS)] == []


@pytest.mark.parametrize("page", ["README.md", "CHANGELOG.md", "docs/models.md"])
def test_the_number_of_models(page):
    """Where a page counts the models it counts right."""
    said = re.findall(r"(\d+)(?: models| with total| are known by name)", (ROOT / page).read_text(encoding="utf-8"))
    assert set(said) == {str(len(rk.list_models()))}


def test_pictures_are_there_and_described():
    """Each picture of a page exists and has a text for those who do not see it."""
    found = 0
    for page in (ROOT / "docs").glob("*.md"):
        for text, path in re.findall(r"!\[([^\]]*)\]\(([^)]+)\)", page.read_text(encoding="utf-8")):
            assert len(text) > 40, page
            assert (page.parent / path).read_bytes().startswith(b"\x89PNG")
            found += 1
    assert found
