"""Compare the laws of rooflinekit with what they are without one of their parts, on data that no fit has seen.

    python tools/compare_laws.py               # every class: a quarter of an hour
    python tools/compare_laws.py products-bf16 # some

Each class has a table in docs/laws.md, between two markers: what is run is replaced, all else stays. The figure
docs/images/laws.png is drawn from the tables of the page. Errors are |predicted / measured - 1|. What is compared
is in ``tools/law_comparisons``.
"""
# ruff: noqa: INP001, T201 - a script: no package, prints how far it is

import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from blocks import Block
from law_comparisons.judging import Comparison, Errors
from law_comparisons.picture import picture
from law_comparisons.tables import COMPARISONS

from rooflinekit.reports.drawing import save

ROOT = Path(__file__).parents[1]
PAGE, PICTURE = ROOT / "docs" / "laws.md", ROOT / "docs" / "images" / "laws.png"


def percent(found: Errors) -> str:
    """Write median and 90th percentile."""
    if not len(found):
        return ""
    return f"{100 * np.median(found):.1f}% / {100 * np.quantile(found, 0.9):.1f}%"


def table(comparison: Comparison) -> Iterator[str]:
    """Write the lines of a table; the law of the code is in bold type."""
    first, second = comparison.columns
    head = [f"| law | constants fitted | {first} | {second} |", "|---|---|---|---|"]
    counts: tuple[int, int] = (0, 0)
    lines = []
    for result in comparison.results():
        columns = [percent(one) for one in result.columns]
        name = f"**{result.name}**" if result.kept else result.name
        lines.append(f"| {name} | {result.constants} | {columns[0]} | {columns[1]} |")
        print(lines[-1], flush=True)
        counts = len(result.columns[0]), len(result.columns[1])
    many = f"{counts[0]:,}" if counts[0] == counts[1] else f"{counts[0]:,} and {counts[1]:,}"
    when = datetime.now(UTC).date()
    yield from (*head, *lines, "", f"*{many} rows: {comparison.rows}. Run on {when}.*")


def block(name: str) -> Block:
    """Say where a table stands."""
    return Block(PAGE, f"<!-- {name}: written by tools/compare_laws.py -->", f"<!-- {name}: end -->")


def main(wanted: Sequence[str]) -> None:
    """Run comparisons, write their tables, and draw the page's figure."""
    for name in wanted:
        print(name, flush=True)
        lines, place = list(table(COMPARISONS[name])), block(name)
        place.write("\n".join((place.begin, "", *lines, "", place.end)))
    save(picture(PAGE.read_text(encoding="utf-8")), PICTURE)


if __name__ == "__main__":
    main(sys.argv[1:] or list(COMPARISONS))
