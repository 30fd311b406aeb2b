# ruff: noqa: INP001 - a script, not a package
"""Write the confusion matrix of diagnosis into docs/diagnosing.md: 200 runs a fault, with 5% noise.

    python tools/confusion.py              # some minutes
    python tools/confusion.py --count 20   # a glance

A test compares the page's figures with what issue 5 asks for, and a slow one diagnoses all runs anew.
"""

import argparse
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from blocks import Block
from rich.console import Console
from rich.progress import Progress

from rooflinekit.calibration.injected import FAULTS, judged

PAGE = Path(__file__).parents[1] / "docs/diagnosing.md"
BEGIN, END = "<!-- confusion: made by tools/confusion.py -->", "<!-- confusion: end -->"
PLACE = Block(PAGE, BEGIN, END)
with_block = PLACE.put
#: What the matrix calls the faults: its columns are narrow.
SHORT = {
    "none": "none", "queueing": "queue", "cache full": "full", "prefix hits": "hits", "chunk interference": "chunks",
    "wrong peaks or power limit": "peaks", "host-bound": "host", "quantisation without a fast kernel": "kernel",
    "smaller batch than thought": "batch", "measurement above the ceiling": "above", "cannot tell": "cannot tell",
}  # fmt: skip
Found = Mapping[str, tuple[Counter[str], int]]


def main() -> None:
    """Diagnose, and write what was found between the page's markers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200, help="runs a fault")
    count = parser.parse_args().count
    found = diagnosed(count)
    PLACE.write(block(found, count))
    Console().print(block(found, count), markup=False, highlight=False, soft_wrap=True)


def diagnosed(count: int) -> Found:
    """Diagnose so many runs of each fault: what was ranked first, and how often the fault was among the first two."""
    found = {}
    with Progress(console=Console(stderr=True)) as progress:
        task = progress.add_task("", total=count * len(FAULTS))
        for fault in FAULTS:
            progress.update(task, description=fault)
            told, among = Counter[str](), 0
            for first, both in judged(fault, count):
                told[first] += 1
                among += both
                progress.advance(task)
            found[fault] = told, among
    return found


def block(found: Found, count: int) -> str:
    """Write figures and matrix as Markdown between the markers."""
    return "\n".join([BEGIN, "", *figures(found, count), "", *matrix(found), "", END])


def figures(found: Found, count: int) -> Iterator[str]:
    """Say the three figures that are asked for."""
    faults = [fault for fault in FAULTS if fault != "none"]
    first = sum(found[fault][0][fault] for fault in faults) / count / len(faults)
    among = sum(found[fault][1] for fault in faults) / count / len(faults)
    healthy = found["none"][0]["none"] / count
    least = min(faults, key=lambda fault: found[fault][0][fault])
    yield f"Of {count} runs a fault:"
    yield ""
    yield f"- the right cause is ranked first in {first:.1%} (at least {found[least][0][least] / count:.1%}: {least}),"
    yield f"- and is among the first two in {among:.1%};"
    yield f"- a healthy run gets no verdict in {healthy:.1%}."


def matrix(found: Found) -> Iterator[str]:
    """Lay out what was ranked first, fault by fault."""
    yield f"| fault put in | {' | '.join(SHORT.values())} | first two |"
    yield f"| :--- |{' ---: |' * (len(SHORT) + 1)}"
    for fault, (told, among) in found.items():
        cells = [str(told[name]) if told[name] else "" for name in SHORT]
        yield f"| {fault} | {' | '.join(cells)} | {among} |"


if __name__ == "__main__":
    main()
