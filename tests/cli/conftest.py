"""A command line as a user gives it, run in this process."""

import pytest
from typer.testing import CliRunner

from rooflinekit.cli import app


@pytest.fixture
def rooflinekit():
    """Run a command line at 100 columns; standard input is text or bytes."""

    def run(line, stdin=None):
        words = line.split() if isinstance(line, str) else line
        return CliRunner().invoke(app, words, input=stdin, env={"COLUMNS": "100"}, prog_name="rooflinekit")

    return run
