"""Every example in a docstring runs as printed."""

import doctest
import importlib
import inspect
import pkgutil
import re

import pytest

import rooflinekit

#: Importing it runs the command line.
RUNS = "rooflinekit.__main__"
MODULES = sorted(
    name for _, name, _ in pkgutil.walk_packages(rooflinekit.__path__, "rooflinekit.") if name != RUNS
)  # fmt: skip
#: What turns specs into rows of operators: it calls the formulas and holds none.
BUILDERS = ("rooflinekit.operators.forward", "rooflinekit.operators.cost")
#: Formulas whose docstring must show a worked value.
FORMULAS = [
    *(name for name in MODULES if name.startswith("rooflinekit.operators.") and not name.startswith(BUILDERS)),
    "rooflinekit.roofline.curves",
    "rooflinekit.roofline.law",
]


@pytest.fixture
def _plain(monkeypatch, tmp_path):
    """Draw off screen, and write into an empty folder."""
    monkeypatch.setenv("MPLBACKEND", "Agg")
    monkeypatch.chdir(tmp_path)


def examples(module):
    """Count the examples of a module."""
    return sum(len(test.examples) for test in doctest.DocTestFinder().find(importlib.import_module(module)))


@pytest.mark.usefixtures("_plain")
@pytest.mark.parametrize("name", ["rooflinekit", *MODULES])
def test_examples_run(name):
    """The examples of a module give what they print."""
    failed, _ = doctest.testmod(importlib.import_module(name), report=True)
    assert failed == 0


def test_there_are_examples():
    """The walk finds the examples: not one folder of them is passed over."""
    assert sum(examples(name) for name in ["rooflinekit", *MODULES]) >= 80


@pytest.mark.parametrize("name", FORMULAS)
def test_every_formula_shows_a_worked_value(name):
    """A public formula has its equation, its units and an example."""
    module = importlib.import_module(name)
    for function in (one for _, one in inspect.getmembers(module, inspect.isfunction) if one.__module__ == name):
        if not function.__name__.startswith("_"):
            assert ".. math::" in function.__doc__
            assert ">>>" in function.__doc__
            assert re.search(r"\[\S+\]", function.__doc__), function.__name__
