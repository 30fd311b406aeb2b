"""``rooflinekit speculate``: a table over batch sizes, the figures of Python, and what a wrong line is told."""

import json

import pytest

import rooflinekit as rk
from rooflinekit.serving.speculative import speculation_table

LINE = "speculate llama-3.1-8b h100-sxm --acceptance 0.7 --context 2000"


def lines(result):
    """Return the lines of a command that went well."""
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout.rstrip("\n").split("\n")


def test_speculate_as_a_whole(rooflinekit):
    """A row a batch: the best number of tokens, what a step costs, what it gives, and from which acceptance it pays."""
    title, head, _, *rows, note = lines(rooflinekit(f"{LINE} --batch 1,256 --efficiency datasheet --draft 0.1"))
    assert title.endswith("; 2,000 tokens of context, acceptance 0.7")
    assert head.split()[:3] == ["batch", "drafted", "tokens/step"]
    assert [row.split()[0] for row in rows] == ["1", "256"]
    assert note.endswith("draft: 10% of a step; datasheet roofline of h100-sxm-80gb")


def test_json_is_the_table_of_python(rooflinekit):
    """The same numbers, unrounded, with a draft model."""
    rows = json.loads(rooflinekit(f"{LINE} --batch 1,8 --draft llama-3.2-1b --drafted 3 --format json").stdout)
    table = speculation_table(
        rk.Deployment("llama-3.1-8b", "h100-sxm"), acceptance=0.7, context_tokens=2000, batch=[1, 8], drafted=3,
        draft=rk.Deployment("llama-3.2-1b", "h100-sxm"),
    )  # fmt: skip
    assert rows == table.to_dict("records")


def test_what_never_pays(rooflinekit):
    """A draft that costs a whole step a token never pays, and why."""
    told = lines(rooflinekit(f"{LINE} --batch 1 --draft 1 --drafted 2"))
    assert told[3].split()[-1] == "never"
    assert told[-1].startswith("it never pays: draft and verification cost ")


# fmt: off
WRONG = [
    ("speculate llama-3.1-8b h100-sxm",                                  "--acceptance: give the part of drafted"),
    ("speculate llama-3.1-8b h100-sxm --acceptance 0.7",                 "llama-3.1-8b has no prediction module"),
    ("speculate llama-3.1-8b h100-sxm --acceptance 2",                   "acceptance=2: expected a number from 0 to 1"),
    ("speculate llama-3.1-8b h100-sxm --acceptance x",                   "'x' is no number"),
    (f"{LINE} --drafted 0",                                              "drafted"),
    (f"{LINE} --batch a",                                                "'a' is no size"),
    (f"{LINE} --draft llama-3.2-1c",                                     "--draft llama-3.2-1c: expected mtp"),
    (f"{LINE} --tensor-parallel 3",                                      "does not divide"),
]
# fmt: on


@pytest.mark.parametrize(("line", "told"), WRONG)
def test_wrong_lines_are_told_in_one(rooflinekit, line, told):
    """One line on stderr, status 2."""
    result = rooflinekit(line)
    assert (result.exit_code, result.stdout) == (2, "")
    assert told in result.stderr
    assert result.stderr.count("\n") == 1
