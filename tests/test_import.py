"""What `import rooflinekit` costs: no heavy package, no file of the catalogue, and names that load on demand."""

import subprocess
import sys

import pytest

import rooflinekit as rk

HEAVY = ("pandas", "matplotlib", "scipy", "rich", "typer")
#: What a pytest run pays for that has no file of ours.
PLUGIN = "rooflinekit.testing.plugin"

IMPORTS = """
import sys
opened = []
sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event == "open" else None)
import {module}
print(*sorted({{name.split(".")[0] for name in sys.modules}}))
print(*[path for path in opened if path.endswith((".yaml", ".yml", ".json"))])
"""


def fresh(code):
    """Run code in a new interpreter and return its lines."""
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603 - our own interpreter
    return done.stdout.split("\n")


@pytest.fixture(scope="module")
def imported():
    """Return the packages loaded and the data files opened by a bare import."""
    packages, opened, *_ = fresh(IMPORTS.format(module="rooflinekit"))
    return packages.split(), opened.split()


@pytest.mark.parametrize("package", HEAVY)
def test_the_import_loads_nothing_heavy(imported, package):
    """Tables, plots, fits and the command line load on first use."""
    assert package not in imported[0]
    assert "rooflinekit" in imported[0]


def test_the_plugin_loads_neither_numpy_nor_pydantic():
    """Every pytest run of an environment imports the plugin: names of the package load on first use."""
    packages = fresh(IMPORTS.format(module=PLUGIN))[0].split()
    assert "rooflinekit" in packages
    assert not {"numpy", "pydantic", "yaml", *HEAVY[:-2]} & set(packages)


def test_public_names_are_listed_before_they_load():
    """`dir` completes names that have not been asked for."""
    names = fresh("import rooflinekit; print(*dir(rooflinekit))")[0].split()
    assert set(rk.__all__) <= set(names)


def test_the_import_reads_no_yaml(imported):
    """The catalogue is read on first use."""
    assert imported[1] == []


def test_one_device_is_one_file():
    """Loading by id opens that file and no other."""
    code = IMPORTS.format(module="rooflinekit").replace(
        "print(*sorted", "rooflinekit.load_device('gb10')\nprint(*sorted"
    )
    opened = fresh(code)[1].split()
    assert [path.rsplit("/", 1)[-1] for path in opened] == ["gb10.yaml"]


def test_estimates_load_nothing_heavy():
    """An estimate, its floor, bound, tree and sources need neither pandas nor matplotlib."""
    code = (
        "import sys, rooflinekit as rk\n"
        "d = rk.Deployment('qwen3-8b', 'gb10')\n"
        "s = d.decode(context_tokens=2048)\n"
        "str(s.explain()), s.sources(), s.bound, s.floor_s, repr(s), d.crossover(), d.request(5, output_tokens=5)\n"
        f"print([name for name in {HEAVY} if name in sys.modules])"
    )
    assert fresh(code)[0] == "[]"


def test_every_public_name_is_there():
    """What `__all__` lists can be had, and another name is an error in Python's own words."""
    assert sorted(set(rk.__all__)) == list(rk.__all__)
    assert all(getattr(rk, name).__doc__ for name in rk.__all__)
    with pytest.raises(AttributeError, match="module 'rooflinekit' has no attribute 'compare_models'"):
        _ = rk.compare_models


def test_every_error_is_a_rooflinekit_error():
    """One base class catches all that is raised on purpose, and each error is a kind of Python's own too."""
    errors = [getattr(rk, name) for name in rk.__all__ if name.endswith("Error")]
    assert all(issubclass(error, rk.RooflinekitError) for error in errors)
    assert issubclass(rk.InvalidInputError, ValueError)
    assert issubclass(rk.UnknownNameError, LookupError)
    assert issubclass(rk.ContextLengthWarning, UserWarning)
