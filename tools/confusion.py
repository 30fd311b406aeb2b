# ruff: noqa: INP001 - a script, not a package
"""Write the confusion matrices of diagnosis into docs/diagnosing.md: 200 runs a fault, with 5% noise.

    python tools/confusion.py                    # half an hour
    python tools/confusion.py --count 20         # a glance
    python tools/confusion.py --only simulated   # one of the two: windows of a server at work, simulated runs

Of simulated runs a fault has a quarter as many: each is simulated twice, once to be told and once to be expected.

A test compares the page's figures with what issue 5 asks for, and a slow one diagnoses all runs anew.
"""

import argparse
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from blocks import Block
from rich.console import Console
from rich.progress import Progress

from rooflinekit.calibration.injected import FAULTS, judged
from rooflinekit.calibration.injected_served import SERVED_FAULTS, judged_served

PAGE = Path(__file__).parents[1] / "docs/diagnosing.md"
BEGIN, END = "<!-- confusion: made by tools/confusion.py -->", "<!-- confusion: end -->"
PLACE = Block(PAGE, BEGIN, END)
with_block = PLACE.put
SERVED_BEGIN, SERVED_END = "<!-- simulated: made by tools/confusion.py -->", "<!-- simulated: end -->"
SERVED_PLACE = Block(PAGE, SERVED_BEGIN, SERVED_END)
#: Of simulated runs a fault has so many times fewer; healthy ones are as many.
FEWER = 4
#: What the matrix calls the faults: its columns are narrow.
SHORT = {
    "none": "none", "queueing": "queue", "cache full": "full", "prefix hits": "hits", "chunk interference": "chunks",
    "wrong peaks or power limit": "peaks", "host-bound": "host", "quantisation without a fast kernel": "kernel",
    "smaller batch than thought": "batch", "measurement above the ceiling": "above", "cannot tell": "cannot tell",
}  # fmt: skip
Found = Mapping[str, tuple[Counter[str], int]]


def main() -> None:
    """Diagnose, and write what was found between the page's markers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200, help="runs a fault")
    parser.add_argument("--only", choices=("windows", "simulated"), help="one of the two matrices")
    given = parser.parse_args()
    if given.only != "simulated":
        shown(PLACE, block(diagnosed(given.count), given.count))
    if given.only != "windows":
        counts = served_counts(given.count)
        shown(SERVED_PLACE, served_block(diagnosed_as(judged_served, counts), counts))


def shown(place: Block, text: str) -> None:
    """Write a block into the page, and show it."""
    place.write(text)
    Console().print(text, markup=False, highlight=False, soft_wrap=True)


def served_counts(count: int) -> Mapping[str, int]:
    """Count the simulated runs of each fault."""
    return {fault: count if fault == "none" else max(count // FEWER, 1) for fault in SERVED_FAULTS}


def diagnosed(count: int) -> Found:
    """Diagnose so many runs of each fault: what was ranked first, and how often the fault was among the first two."""
    return diagnosed_as(judged, dict.fromkeys(FAULTS, count))


def diagnosed_as(judge: Callable[[str, int], Iterable[tuple[str, bool]]], counts: Mapping[str, int]) -> Found:
    """Diagnose so many runs of each fault as one judge makes them."""
    found = {}
    with Progress(console=Console(stderr=True)) as progress:
        task = progress.add_task("", total=sum(counts.values()))
        for fault, count in counts.items():
            progress.update(task, description=fault)
            told, among = Counter[str](), 0
            for first, both in judge(fault, count):
                told[first] += 1
                among += both
                progress.advance(task)
            found[fault] = told, among
    return found


def served_block(found: Found, counts: Mapping[str, int]) -> str:
    """Write the same of simulated runs."""
    faults = [fault for fault in SERVED_FAULTS if fault != "none"]
    first = sum(found[fault][0][fault] / counts[fault] for fault in faults) / len(faults)
    among = sum(found[fault][1] / counts[fault] for fault in faults) / len(faults)
    least = min(faults, key=lambda fault: found[fault][0][fault] / counts[fault])
    weakest = found[least][0][least] / counts[least]
    figures = (
        f"Of {counts['none']} simulated runs without a fault, and {counts[faults[0]]} with each:",
        "",
        f"- a healthy run gets no verdict in {found['none'][0]['none'] / counts['none']:.1%};",
        f"- the right cause is ranked first in {first:.1%} (at least {weakest:.1%}: {least}),",
        f"- and is among the first two in {among:.1%}.",
    )
    return "\n".join([SERVED_BEGIN, "", *figures, "", *matrix(found, "simulated with"), "", SERVED_END])


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


def matrix(found: Found, heading: str = "fault put in") -> Iterator[str]:
    """Lay out what was ranked first, fault by fault."""
    yield f"| {heading} | {' | '.join(SHORT.values())} | first two |"
    yield f"| :--- |{' ---: |' * (len(SHORT) + 1)}"
    for fault, (told, among) in found.items():
        cells = [str(told[name]) if told[name] else "" for name in SHORT]
        yield f"| {fault} | {' | '.join(cells)} | {among} |"


if __name__ == "__main__":
    main()
