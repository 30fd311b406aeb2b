"""``rooflinekit reproduce``: published numbers against ours, row by row."""

from collections import Counter
from dataclasses import asdict
from typing import Annotated

import typer

from rooflinekit.cli import options
from rooflinekit.cli.output import EYES, remark, say, show

_COLUMNS = ("quantity", "published", "ours", "difference", "tolerance", "verdict")


def reproduce(
    section: Annotated[str, typer.Argument(metavar="SECTION", help="second-token, course, token-one, kubecon or all.")],
    form: options.Format = "table",
) -> None:
    """Compare every published number of a text with ours; the status is 1 where one misses."""
    from rooflinekit.testing import published  # noqa: PLC0415 - the table is read when asked for

    sections = tuple(published.titles()) if section == "all" else (section,)
    results = {name: published.reproduce(name) for name in sections}
    if form in EYES:
        for name, found in results.items():
            show([asdict(one) for one in found], form, title=f'"{published.titles()[name]}"', columns=_COLUMNS)
            say()
    else:
        show([{"section": name, **asdict(one)} for name, found in results.items() for one in found], form)
    counts = Counter(one.verdict for found in results.values() for one in found)
    remark(form, ", ".join(f"{counts[verdict]} {verdict}" for verdict in published.VERDICTS))
    if counts["missed"]:
        raise typer.Exit(1)
