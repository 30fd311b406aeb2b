"""Files and rows as pytest knows them. It needs pytest, and loads when a file is collected."""

from collections.abc import Iterator
from typing import Any

import pytest

from rooflinekit.errors import RooflinekitError
from rooflinekit.phases.deployment import Deployment
from rooflinekit.testing.comparison import Comparison, compare, failed
from rooflinekit.testing.plugin import PROPERTY
from rooflinekit.testing.reference_file import Row, load_reference_file
from rooflinekit.testing.results import Result


class MissedError(Exception):
    """A prediction lies outside of the row's tolerance; its text is what pytest shows."""


class RowsFile(pytest.File):
    """A file of reference rows: one test a row."""

    def collect(self) -> Iterator["RowItem"]:
        """Yield the rows; a fault of the file is one line that names file, key and value."""
        try:
            whole, deployment = load_reference_file(self.path)
        except RooflinekitError as error:
            raise self.CollectError(str(error)) from None
        for position, row in enumerate(whole.rows):
            sourced = row.model_copy(update={"source": row.source or whole.source})
            yield RowItem.from_parent(self, name=row.id, row=sourced, deployment=deployment, position=position)


class RowItem(pytest.Item):
    """One row."""

    def __init__(self, *, row: Row, deployment: Deployment, position: int, **rest: Any) -> None:  # noqa: ANN401 - pytest's
        """Keep what is compared."""
        super().__init__(**rest)
        self.row, self.deployment, self.position = row, deployment, position

    def runtest(self) -> None:
        """Compare, and leave the result on the report of the test."""
        try:
            found = compare(self.row, self.deployment)
        except RooflinekitError as error:
            self._keep(failed(self.row, self.deployment, str(error)))
            raise
        self._keep(found.result)
        if not found.within:
            raise MissedError(self._told(found))

    def _keep(self, result: Result) -> None:
        file = self.nodeid.partition("::")[0]
        self.user_properties.append((PROPERTY, {"file": file, "position": self.position, **result}))

    def _told(self, found: Comparison) -> str:
        return "\n".join((found.headline, f"  {'row':<12}{self.row.id} in {self.path}", *found.lines()))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], *args: Any, **more: Any) -> Any:  # noqa: ANN401 - as pytest has it
        """Show the comparison alone, or the library's own line: no traceback says more."""
        if isinstance(excinfo.value, MissedError):
            shown = excinfo.getrepr(style="value", chain=False)
            if shown.reprcrash:  # The line of the summary, which is not cut where pytest sees a CI.
                shown.reprcrash.message = str(excinfo.value).partition("\n")[0]
            return shown
        if isinstance(excinfo.value, RooflinekitError | Warning):
            return f"{self.path}: {self.row.id}: {excinfo.value}"
        return super().repr_failure(excinfo, *args, **more)

    def reportinfo(self) -> tuple[Any, int | None, str]:
        """Name the file and the row."""
        return self.path, None, self.row.id
