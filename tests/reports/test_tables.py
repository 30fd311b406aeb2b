"""One renderer for every table: rounded with units for eyes, unrounded for programs."""

import csv
import io
import json
import math
import os

import numpy as np
import pandas as pd
import pytest

from rooflinekit.errors import InvalidInputError
from rooflinekit.reports.tables import FORMATS, listing, render, to_json

ROWS = [
    {"phase": "prefill", "time_s": 0.41234567, "bytes": 38.5e9, "fits": True, "tokens": math.inf},
    {"phase": "decode | one", "time_s": None, "bytes": 0, "fits": False, "tokens": math.nan},
]


@pytest.fixture(autouse=True)
def _terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")


def test_table_as_a_whole():
    """Figures are rounded with their units, numbers stand right, what is missing is a dash."""
    assert render(ROWS, "table", title="both phases").split("\n") == [
        "both phases",
        "phase           time    bytes  fits  tokens",
        "-------------------------------------------",
        "prefill       412 ms  38.5 GB  yes    never",
        "decode | one       -        0  no         -",
    ]


def test_markdown_as_a_whole():
    """The same cells as GitHub's tables, with the bar escaped."""
    assert render(ROWS, "markdown", title="both phases").split("\n") == [
        "### both phases",
        "",
        "| phase | time | bytes | fits | tokens |",
        "| :--- | ---: | ---: | :--- | ---: |",
        "| prefill | 412 ms | 38.5 GB | yes | never |",
        "| decode \\| one | - | 0 | no | - |",
    ]


def test_csv_as_a_whole():
    """Programs get every digit under the column's own name, and no title."""
    assert render(ROWS, "csv", title="both phases").split("\n") == [
        "phase,time_s,bytes,fits,tokens",
        "prefill,0.41234567,38500000000.0,True,inf",
        "decode | one,,0,False,",
    ]


def test_json_is_valid_where_figures_are_not_finite():
    """Not-a-number is null and infinity is text: strict readers take both."""
    read = json.loads(render(ROWS, "json"), parse_constant=pytest.fail)
    assert read[0] == {**ROWS[0], "tokens": "inf"}
    assert read[1] == {**ROWS[1], "tokens": None}


def test_frames_and_records_give_the_same():
    """A DataFrame is its records."""
    rows = [{"batch": 1, "step_s": 0.1}, {"batch": 2, "step_s": 1 / 3}]
    for form in FORMATS:
        assert render(pd.DataFrame(rows), form) == render(rows, form)


def test_numbers_survive_csv_and_json():
    """Reading back gives the very float."""
    rows = [{"time_s": 1 / 3}, {"time_s": 6.62607015e-34}]
    assert [row["time_s"] for row in json.loads(render(rows, "json"))] == [row["time_s"] for row in rows]
    read = csv.DictReader(io.StringIO(render(rows, "csv")))
    assert [float(row["time_s"]) for row in read] == [row["time_s"] for row in rows]


def test_arrays_become_lists():
    """NumPy's numbers and arrays are plain ones in JSON."""
    assert json.loads(to_json({"a": np.float64(0.5), "b": np.array([1, 2]), "c": (True, None)})) == {
        "a": 0.5,
        "b": [1, 2],
        "c": [True, None],
    }


@pytest.mark.parametrize(
    ("column", "value", "shown"),
    [
        ("time_to_first_token_s", 1.5384, "1.54 s"),
        ("weight_bytes", 15.1e9, "15.1 GB"),
        ("weights_bytes", 2.0**34, "16.0 GiB"),
        ("kv_bytes_per_token", 147456.0, "144 KiB"),
        ("flops", 28.5e12, "28.5 TFLOP"),
        ("half_flops_per_s", 989.4e12, "989 TFLOP/s"),
        ("bytes_per_s", 3350e9, "3.35 TB/s"),
        ("decode_tokens_per_s", 3339.6, "3,340"),
        ("share", 0.3527, "35.3%"),
        ("difference", -0.00123, "-0.12%"),
        ("prompt_tokens", 2048, "2,048"),
        ("parameters", 8030261248, "8.03 G"),
        ("year", 2022, "2022"),
    ],
)
def test_a_columns_name_says_its_unit(column, value, shown):
    """Suffix by suffix: rounded, with the unit that a reader expects."""
    assert render([{column: value}], "table").split("\n")[-1].strip() == shown


def test_units_by_row():
    """Ours shows one digit more than the text prints, an exact count shows them all."""
    rows = [
        {"published": 201e6, "ours": 201326592.0, "unit": "bytes"},
        {"published": 147456, "ours": 147456.0, "unit": "bytes"},
        {"published": (4673.0, 4608.0), "ours": (4673.0, 4608.0), "unit": "count"},
        {"published": None, "ours": None, "unit": ""},
    ]
    assert render(rows, "markdown").split("\n")[2:] == [
        "| 201 MB | 201.3 MB |",
        "| 147.456 kB | 147.456 kB |",
        "| 4,673, 4,608 | 4,673, 4,608 |",
        "| - | - |",
    ]


def test_listing_shows_each_figure_in_its_unit():
    """A record turned into rows keeps the units of its columns."""
    text = render(listing({"end_to_end_s": 3.45, "weights_bytes": 2.0**30}), "markdown")
    assert text.split("\n")[2:] == ["| end to end | 3.45 s |", "| weights | 1.00 GiB |"]


def test_columns_choose_for_eyes_only():
    """Programs get all columns."""
    rows = [{"batch": 1, "step_s": 0.1, "note": "x"}]
    assert render(rows, "markdown", columns=("step_s",)).split("\n")[0] == "| step |"
    assert render(rows, "csv", columns=("step_s",)).split("\n")[0] == "batch,step_s,note"


def test_long_text_wraps_at_the_terminals_width(monkeypatch):
    """Text wraps by words; figures and names never do, and in a pipe nothing does."""
    rows = [{"figure": "bandwidth_gb_per_s", "source": "a title of many words " * 8, "value": 3350}]
    assert max(map(len, render(rows, "table").split("\n"))) <= 100
    monkeypatch.setenv("COLUMNS", "20")
    assert "bandwidth_gb_per_s" in render(rows, "table")
    monkeypatch.delenv("COLUMNS")
    monkeypatch.setattr("shutil.get_terminal_size", os.terminal_size)
    assert len(render(rows, "table").split("\n")) == 3


def test_brackets_are_no_markup():
    """Names like `attention[window]` and sources in brackets are shown as they are."""
    assert "attention[window] [bold]" in render([{"operator": "attention[window] [bold]"}], "table")


def test_unknown_format():
    """The four formats are listed."""
    with pytest.raises(
        InvalidInputError, match="format='xml' is not known: expected one of table, markdown, csv, json"
    ):
        render(ROWS, "xml")
