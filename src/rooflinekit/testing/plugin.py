"""The pytest plugin: every row of a ``*.roofline.yaml`` is a test, and ``--roofline-report`` writes the table of all.

It loads at the start of every pytest run of an environment, so it imports nothing that takes time: what reads and
estimates loads when such a file is collected.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rooflinekit.testing.results import SUFFIX, WRITERS, Result, summary

#: Name of the property by which a result travels on the report of its test, from a worker of pytest-xdist too.
PROPERTY = "rooflinekit"
_NAME = "rooflinekit-results"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the one option."""
    group = parser.getgroup("rooflinekit", "reference rows of *.roofline.yaml files")
    group.addoption(
        "--roofline-report",
        metavar="FILE",
        help=f"Write measured or frozen against predicted of every row: {' or '.join(WRITERS)}.",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Collect results in the process that reports: with pytest-xdist the controller, not its workers."""
    name = config.getoption("--roofline-report")
    if name is not None and Path(name).suffix not in WRITERS:
        message = f"--roofline-report {name}: expected a file that ends in {' or '.join(WRITERS)}"
        raise pytest.UsageError(message)
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Results(None if name is None else Path(name).absolute()), _NAME)


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Take files by the end of their name."""
    if not file_path.name.endswith(SUFFIX):
        return None
    from rooflinekit.testing.items import RowsFile  # noqa: PLC0415 - reading and estimating load here

    collector: pytest.Collector = RowsFile.from_parent(parent, path=file_path)
    return collector


class Results:
    """The results of a run, and what is made of them at its end."""

    def __init__(self, path: Path | None) -> None:
        """Remember where the table goes."""
        self.path = path
        self.found: dict[str, Result] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the result of a row; of a row that runs again, the last."""
        if report.when == "call":
            result = dict(report.user_properties).get(PROPERTY)
            if isinstance(result, dict):
                self.found[report.nodeid] = result

    @property
    def ordered(self) -> list[Result]:
        """The results in the order of their files, whichever worker was first."""
        return sorted(self.found.values(), key=lambda result: (result["file"], result["position"]))

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        """Write the table."""
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_text(WRITERS[self.path.suffix](self.ordered), encoding="utf-8")

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say in one line what came of the rows."""
        for line in self._lines():
            terminalreporter.write_line(line)

    def _lines(self) -> Iterator[str]:
        if self.found or self.path is not None:
            written = "" if self.path is None else f"; table in {self.path}"
            yield f"rooflinekit: {summary(self.ordered)}{written}"
