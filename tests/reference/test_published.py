"""The published table, row by row: every call of `published.yaml` against the number that its text prints."""

import pytest

import rooflinekit as rk
from rooflinekit.errors import InvalidInputError, SpecError
from rooflinekit.specs.yamlfile import check
from rooflinekit.testing.published import Row, compare, load_section, reproduce, titles

ROWS = [(section, row) for section in titles() for row in load_section(section).rows]
CALLED = [pytest.param(section, row, id=f"{section}/{row.id}") for section, row in ROWS if row.call]


@pytest.mark.parametrize(("section", "row"), CALLED)
def test_published_value_is_reproduced(section, row):
    """The row's own call gives the printed number within the row's tolerance."""
    result = compare(row, load_section(section).deployments)
    assert result.verdict == "reproduced", f"{row.quantity}: {result.ours} against {row.value} {row.unit}"


def test_every_computable_row_has_a_call():
    """A row of kind arithmetic or measured without a call would test nothing."""
    assert [row.id for _, row in ROWS if row.kind in ("arithmetic", "measured") and not row.call] == []


def test_rows_of_kind_print_test_nothing_of_ours():
    """Two printed figures divided by each other say nothing about the library."""
    assert [row.id for _, row in ROWS if row.kind == "print" and row.call] == []


@pytest.mark.parametrize("row", [row for _, row in ROWS if row.bandwidth_gb_per_s], ids=lambda row: row.id)
def test_printed_bandwidth_is_the_catalogues(row):
    """The ceilings are computed on the bandwidth that the text prints for the device; DDR5 is rounded there."""
    assert rk.load_device(row.device).bytes_per_s / 1e9 == pytest.approx(row.bandwidth_gb_per_s, rel=0.005)


def test_a_wrong_value_is_missed():
    """A published number that our call does not give is reported as missed, with the value that we get."""
    section = load_section("second-token")
    row = next(row for row in section.rows if row.id == "kv-bytes-per-token")
    wrong = compare(row.model_copy(update={"value": 147457.0}), section.deployments)
    assert (wrong.verdict, wrong.ours, wrong.published) == ("missed", 147456.0, 147457.0)
    assert wrong.difference == pytest.approx(-1 / 147457)


def test_one_wrong_entry_of_a_list_is_missed():
    """Lists are compared entry by entry."""
    section = load_section("second-token")
    row = next(row for row in section.rows if row.id == "gemv-calls")
    wrong = compare(row.model_copy(update={"value": (4673.0, 4607.0)}), section.deployments)
    assert (wrong.verdict, wrong.ours) == ("missed", (4673.0, 4608.0))


def test_rows_without_a_call_are_not_computed():
    """Kinds print and claim stay in the table and say so."""
    verdicts = {result.id: result.verdict for result in reproduce("second-token")}
    assert (verdicts["gemm-rate"], verdicts["repeatability"]) == ("not computed", "not computed")
    assert verdicts["phase-ratio"] == "reproduced"


def test_a_call_needs_a_value():
    """A row that is computed and has nothing to be compared with is a fault of the file."""
    with pytest.raises(SpecError, match="bare has a call: it needs a value and a tolerance"):
        check(Row, {"id": "bare", "kind": "claim", "quantity": "nothing", "call": "1"}, "test")


def test_unknown_section():
    """A wrong section lists the right ones."""
    with pytest.raises(InvalidInputError, match="section='third-token' is not published here: expected one of second"):
        reproduce("third-token")
