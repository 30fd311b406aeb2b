# ruff: noqa: E501 - a row of a table is one line
"""The pytest plugin: rows become tests, misses tell why, broken files are one line, reports are whole."""

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest

import rooflinekit as rk
from rooflinekit.testing.comparison import compare
from rooflinekit.testing.items import RowsFile
from rooflinekit.testing.reference_file import load_reference_file

pytest_plugins = ["pytester"]
SOURCES = Path(rk.__file__).parents[1]

#: As in tests/conftest.py: the package may be on the path without its entry point.
CONFTEST = """
from rooflinekit.testing import plugin

def pytest_addoption(pluginmanager):
    if not pluginmanager.has_plugin("rooflinekit"):
        pluginmanager.register(plugin, "rooflinekit")
"""
HEAD = "model: qwen3-8b\ndevice: gb10\n"
GOOD = (
    "- {id: decode, step: {decode: {context_tokens: 2048}}, quantity: time_s, measured: 0.0744, tolerance: 0.03}\n"
    "- {id: bound, step: {decode: {context_tokens: 2048}}, quantity: bound, measured: memory}\n"
    "- {id: kv, quantity: kv_bytes_per_token, predicted: 147456, tolerance: 0}\n"
)
MISSED = (
    "- {id: slow, step: {prefill: {prompt_tokens: 2048}}, quantity: time_s, %s: 0.38, tolerance: 0.03, source: bench}\n"
)


@pytest.fixture(scope="module", autouse=True)
def _loaded(tmp_path_factory):
    """Load what a run loads: pytester forgets the modules that a run within this process loaded, and NumPy loads once."""
    path = tmp_path_factory.mktemp("loaded") / "plan.roofline.yaml"
    path.write_text(f"{HEAD}rows:\n{GOOD}", encoding="utf-8")
    whole, deployment = load_reference_file(path)
    assert issubclass(RowsFile, pytest.File)
    assert all(compare(row, deployment).within for row in whole.rows)


@pytest.fixture
def run(pytester):
    """Run pytest on one file of rows, in this process."""
    pytester.makeconftest(CONFTEST)

    def of(rows, *more, head=HEAD, name="plan.roofline.yaml"):
        (pytester.path / name).write_text(f"{head}rows:\n{rows}", encoding="utf-8")
        return pytester.runpytest_inprocess("-p", "no:cacheprovider", *more)

    return of


def test_each_row_is_a_test(run):
    """Rows have their ids, and one line sums them up."""
    result = run(GOOD, "-v")
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(["*plan.roofline.yaml::decode PASSED*", "*::kv PASSED*"])
    result.stdout.fnmatch_lines(["rooflinekit: 3 reference rows: 3 within tolerance"])


def test_rows_are_chosen_as_tests_are(run):
    """`-k` and node ids work on rows."""
    run(GOOD, "-k", "bound").assert_outcomes(passed=1, deselected=2)
    run(GOOD, "plan.roofline.yaml::kv").assert_outcomes(passed=1)


@pytest.mark.parametrize(("kind", "word"), [("measured", "measured"), ("predicted", "frozen")])
def test_a_miss_tells_why(run, kind, word):
    """Both values, the difference, the operators and the largest contributor, without a traceback."""
    result = run(MISSED % kind)
    result.assert_outcomes(failed=1)
    now = rk.Deployment("qwen3-8b", "gb10").prefill(2048)
    share = now.operator("gate_up_proj").time_s / sum(row.time_s for row in now.operators)
    difference = now.time_s / 0.38 - 1
    result.stdout.fnmatch_lines([
        f"time_s of prefill 2,048 tokens: {1000 * now.time_s:.4g} ms against 380.0 ms ({difference:+.2%})",
        "*slow in *plan.roofline.yaml",
        f"  {word}*380.0 ms  (bench)",
        f"  predicted*{1000 * now.time_s:.4g} ms  (gb10/vllm-0.31/bf16)",
        f"  difference*{difference:+.2%} against a tolerance of 3.00%",
        "  operator*time_s*share*bound",
        f"  gate_up_proj*{share:.1%}*compute",
        f"largest contributor: gate_up_proj, {share:.1%}, compute-bound",
        "rooflinekit: 1 reference row: 1 missed",
    ])  # fmt: skip
    result.stdout.no_fnmatch_line("*Traceback*")


def test_a_miss_of_a_count_shows_the_count(run):
    """K and V are read by attention alone."""
    row = "- {id: kv, step: {decode: {context_tokens: 2048}}, quantity: kv_bytes, measured: 3.0e+8, tolerance: 0.001}\n"
    result = run(row)
    result.stdout.fnmatch_lines(["  operator*kv_bytes*share", "largest contributor: attention, 100.0%"])
    result.stdout.no_fnmatch_line("*gate_up_proj*")


def test_a_miss_of_a_request_shows_both_passes(run):
    """End to end is a prefill and decode steps; the time to the first token is the prefill alone."""
    step = "step: {request: {prompt_tokens: 100, output_tokens: 4}}"
    result = run(
        f"- {{id: whole, {step}, quantity: end_to_end_s, measured: 9, tolerance: 0}}\n"
        f"- {{id: first, {step}, quantity: time_to_first_token_s, measured: 9, tolerance: 0}}\n"
    )
    text = result.stdout.str()
    assert text.count("\nprefill 100 tokens\n") == 2
    assert text.count("\n3 decode steps\n") == 1


@pytest.mark.parametrize("workers", [(), ("-n", "1")], ids=["alone", "xdist"])
def test_the_summary_has_one_line_a_miss_on_a_ci_too(run, monkeypatch, workers):
    """Where pytest sees a CI it repeats whole messages in its summary: ours stays the headline."""
    monkeypatch.setenv("CI", "true")
    summary = run(MISSED % "measured", *workers).stdout.str().partition("short test summary info")[2]
    assert "FAILED plan.roofline.yaml::slow - time_s of prefill" in summary
    assert "gate_up_proj" not in summary


def test_a_wrong_word_is_missed(run):
    """A bound is compared as a word."""
    result = run("- {id: bound, step: {decode: {context_tokens: 2048}}, quantity: bound, measured: compute}\n")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["bound of decode at 2,048 tokens of context: memory against compute"])


def test_what_cannot_be_predicted_fails_in_one_line(run):
    """A step that does not fit is the library's own line, and stands in the report as not computed."""
    row = "- {id: big, step: {decode: {context_tokens: 20480, batch: 4000}}, quantity: time_s, measured: 1, tolerance: 1}\n"
    result = run(row, "--roofline-report", "all.csv")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*plan.roofline.yaml: big: qwen3-8b does not fit on gb10*"])
    result.stdout.no_fnmatch_line("*Traceback*")
    result.stdout.fnmatch_lines(["rooflinekit: 1 reference row: 1 not computed; table in *all.csv"])


BROKEN = [
    # head                                  rows                                               part of the line
    (HEAD, "- {id: a, step: {prefil: {prompt_tokens: 1}}, quantity: time_s, measured: 1, tolerance: 0}\n",
     "unknown key `rows.0.step.prefil`: did you mean `prefill`?"),
    (HEAD, "- {id: a, step: {prefill: {prompt_tokens: -1}}, quantity: time_s, measured: 1, tolerance: 0}\n",
     "`rows.0.step.prefill.prompt_tokens` = -1"),
    ("model: qwen3-8c\ndevice: gb10\n", GOOD, "qwen3-8c is not in model_configs; did you mean qwen3-8b"),
    ("model: qwen3-8b\ndevice: ./no.yaml\n", GOOD, "no.yaml: cannot be read (No such file or directory)"),
    ("model: qwen3-8b\n", GOOD, "missing key `device`: add it"),
    (HEAD + "settings: {weights: fp7}\n", GOOD, "weights='fp7' is not known"),
]  # fmt: skip


@pytest.mark.parametrize(("head", "rows", "part"), BROKEN, ids=[part for *_, part in BROKEN])
def test_a_broken_file_is_one_line(run, head, rows, part):
    """A fault of the file names file, key and value, and is an error of collection."""
    result = run(rows, head=head)
    result.assert_outcomes(errors=1)
    (line,) = [line for line in result.stdout.lines if part in line]
    assert "plan.roofline.yaml: " in line
    result.stdout.no_fnmatch_line("*Traceback*")


def test_a_file_that_is_no_yaml(pytester):
    """The text itself may be at fault."""
    pytester.makeconftest(CONFTEST)
    (pytester.path / "plan.roofline.yaml").write_text("rows: [", encoding="utf-8")
    result = pytester.runpytest_inprocess()
    result.stdout.fnmatch_lines(["*plan.roofline.yaml: is no YAML file*"])


def test_other_files_are_left_alone(pytester):
    """YAML of another name is not ours, and nothing is said where there are no rows."""
    pytester.makeconftest(CONFTEST)
    (pytester.path / "plan.yaml").write_text("rows: [", encoding="utf-8")
    pytester.makepyfile("def test_one(): pass")
    result = pytester.runpytest_inprocess()
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("rooflinekit:*")


def test_the_report_as_csv(run, pytester):
    """One line a row, in the order of the file, unrounded."""
    run(GOOD + MISSED % "measured", "--roofline-report", "out/all.csv")
    with (pytester.path / "out" / "all.csv").open(encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    assert [line["id"] for line in lines] == ["decode", "bound", "kv", "slow"]
    assert [line["verdict"] for line in lines] == ["within", "within", "within", "missed"]
    time_s = rk.Deployment("qwen3-8b", "gb10").decode(2048).time_s
    assert float(lines[0]["predicted"]) == time_s
    assert float(lines[0]["difference"]) == pytest.approx(time_s / 0.0744 - 1)
    assert (Path(lines[0]["file"]).name, lines[3]["source"]) == ("plan.roofline.yaml", "bench")


def test_the_report_as_markdown(run, pytester):
    """A table for eyes: differences in percent, no empty columns."""
    run(MISSED % "predicted", "--roofline-report", "all.md")
    first, rule, line = (pytester.path / "all.md").read_text(encoding="utf-8").splitlines()
    assert first.startswith("| file | id | model | device | basis | quantity | kind | expected | predicted |")
    assert rule.count("---:") == 4
    assert "| predicted | 0.38 | 0.4" in line
    assert line.endswith("% | 3.00% | missed | bench |")


def test_the_report_must_be_of_a_known_kind(run):
    """Any other ending is refused before a test runs."""
    result = run(GOOD, "--roofline-report", "all.txt")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--roofline-report all.txt: expected a file that ends in .md or .csv"])


def test_with_xdist_the_controller_reports(run, pytester):
    """Results travel from the workers, and the order is that of the file."""
    pytest.importorskip("xdist")
    run(GOOD + MISSED % "measured", "-n", "2", "--roofline-report", "all.csv")
    lines = (pytester.path / "all.csv").read_text(encoding="utf-8").splitlines()
    assert [line.split(",")[1] for line in lines] == ["id", "decode", "bound", "kv", "slow"]


def python(*arguments, path, cwd):
    """Run Python with these folders on its path and nothing else of ours."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))}
    command = [sys.executable, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd, env=environment)  # noqa: S603 - our own interpreter
    return done.stdout + done.stderr


@pytest.mark.parametrize("conftest", [CONFTEST, ""], ids=["with our conftest", "by itself"])
def test_an_installed_plugin_loads_once(tmp_path, conftest):
    """The entry point alone is enough, and a conftest that asks for the plugin as well does no harm."""
    folder = tmp_path / "site" / "rooflinekit_entry-0.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: rooflinekit-entry\nVersion: 0\n")
    (folder / "entry_points.txt").write_text("[pytest11]\nrooflinekit = rooflinekit.testing.plugin\n")
    (tmp_path / "plan.roofline.yaml").write_text(f"{HEAD}rows:\n{GOOD}")
    (tmp_path / "conftest.py").write_text(conftest)
    text = python(
        "-m", "pytest", "-p", "no:cacheprovider", "plan.roofline.yaml", path=(SOURCES, folder.parent), cwd=tmp_path
    )
    assert "3 passed" in text
    assert "rooflinekit: 3 reference rows: 3 within tolerance" in text


def test_the_plugin_loads_nothing_of_its_own(tmp_path):
    """A run without such files pays for `import rooflinekit` and no more."""
    code = (
        "import pytest, csv, rooflinekit, sys; before = set(sys.modules); import rooflinekit.testing.plugin; "
        "print(*sorted(set(sys.modules) - before), 'pandas' in sys.modules, 'yaml' in sys.modules)"
    )
    expected = "rooflinekit.testing rooflinekit.testing.plugin rooflinekit.testing.results False False"
    assert python("-c", code, path=(SOURCES,), cwd=tmp_path).strip() == expected
