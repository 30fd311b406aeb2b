"""What came of reference rows: the record of one, and tables of all. Light: pytest loads it at its start."""

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

#: How the name of a file of reference rows ends.
SUFFIX = ".roofline.yaml"
#: A result: plain values only, so that it travels between processes.
Result = Mapping[str, Any]
#: Columns of a table of results.
COLUMNS = (
    "file", "id", "model", "device", "basis", "quantity", "kind", "expected", "predicted", "difference", "tolerance",
    "verdict", "source", "note", "error",
)  # fmt: skip
_PERCENT = {"difference": "{:+.2%}", "tolerance": "{:.2%}"}
_TRANSLATED = str.maketrans({"|": "\\|", "\n": " "})


def write_csv(results: Sequence[Result]) -> str:
    """Write results in full precision.

    >>> write_csv([{"file": "a.roofline.yaml", "id": "step", "expected": 0.0744}]).splitlines()[1]
    'a.roofline.yaml,step,,,,,,0.0744,,,,,,,'
    """
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, extrasaction="ignore", lineterminator="\n", restval="")
    writer.writeheader()
    writer.writerows(results)
    return text.getvalue()


def write_markdown(results: Sequence[Result]) -> str:
    """Write results for eyes: empty columns left out, six digits, differences in percent.

    >>> print(write_markdown([{"id": "step", "expected": 0.0744, "difference": 0.0039}]), end="")
    | id | expected | difference |
    | :--- | ---: | ---: |
    | step | 0.0744 | +0.39% |
    """
    columns = [name for name in COLUMNS if any(_cell(name, result) for result in results)] or ["file", "id", "verdict"]
    numeric = [any(isinstance(result.get(name), int | float) for result in results) for name in columns]
    lines = [columns, ["---:" if one else ":---" for one in numeric]]
    lines += [[_cell(name, result) for name in columns] for result in results]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _cell(column: str, result: Result) -> str:
    value = result.get(column)
    if isinstance(value, int | float):
        return _PERCENT.get(column, "{:.6g}").format(value)
    return str(value or "").translate(_TRANSLATED)


#: Ending of a report's name -> what writes it.
WRITERS = {".md": write_markdown, ".csv": write_csv}


def summary(results: Sequence[Result]) -> str:
    """Count the verdicts in one line.

    >>> summary([{"verdict": "within"}, {"verdict": "missed"}, {"verdict": "within"}])
    '3 reference rows: 2 within tolerance, 1 missed'
    """
    verdicts = [result["verdict"] for result in results]
    counts = {"within tolerance": "within", "missed": "missed", "not computed": "error"}
    found = [f"{verdicts.count(verdict)} {words}" for words, verdict in counts.items() if verdict in verdicts]
    return f"{len(verdicts)} reference row{'s' * (len(verdicts) != 1)}{': ' * bool(found)}{', '.join(found)}"
