"""The suite notices the mistakes that calculators of this kind make: each is made in a copy, and a test must fail."""

import importlib.util
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[1] / "tools" / "mutants.py"
SPEC = importlib.util.spec_from_file_location("mutants", TOOL)
mutants = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(mutants)
NAMED = [pytest.param(mutant, id=f"{mutant.number}: {mutant.mistake}") for mutant in mutants.MUTANTS]


def test_every_mistake_that_the_suite_must_notice_has_a_mutant():
    """Mistakes 1 to 28, each at least once."""
    assert {mutant.number for mutant in mutants.MUTANTS} == {*map(str, range(1, 29)), "23b", "23c"}


@pytest.mark.parametrize("mutant", NAMED)
def test_a_patch_applies(mutant):
    """The text that a mistake replaces stands in its file exactly once."""
    assert (mutants.ROOT / mutant.file).read_text(encoding="utf-8").count(mutant.old) == 1


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """Copy of the checkout in which the killing tests pass."""
    place = tmp_path_factory.mktemp("checkout")
    mutants.copy_checkout(place)
    status, output = mutants.run_tests(place, mutants.killers(mutants.MUTANTS))
    assert status == 0, output
    return place


@pytest.mark.slow
@pytest.mark.parametrize("mutant", NAMED)
def test_a_mistake_is_noticed(mutant, copy):
    """With the mistake made, at least one of the tests named for it fails."""
    assert mutants.killer(mutant, copy), f"{mutant.mistake}: no test noticed"
