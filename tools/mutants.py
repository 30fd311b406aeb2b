"""Make the mistakes that calculators of this kind make, one at a time, and show the test that notices.

``python tools/mutants.py [NUMBER ...]`` copies the checkout, applies each mistake as a patch, and runs the tests that
are to fail. It ends with status 1 if a mistake goes unnoticed, 2 if a patch no longer applies or a test was red before.
The mistakes are in ``tools/mistakes``.
"""
# ruff: noqa: INP001, S603, T201 - a script: no package, runs our own tests, prints what it finds

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from mistakes import MUTANTS, Mutant

ROOT = Path(__file__).resolve().parents[1]
PARTS = ("src", "hardware_db", "model_configs", "tests", "examples", "pyproject.toml")
FAILED = 1  # pytest's status when tests ran and some failed; a collection error has another


def copy_checkout(place: Path) -> None:
    """Copy what the tests read."""
    for part in PARTS:
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, place / part, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / part, place / part)


def run_tests(place: Path, tests: Sequence[str]) -> tuple[int, str]:
    """Run tests of the copy, on the code of the copy, up to the first failure: pytest's status and its output."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "-p", "no:cacheprovider", "--tb=line", *tests]
    environment = {**os.environ, "PYTHONPATH": str(place / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def applied(mutant: Mutant, place: Path) -> str:
    """Apply the patch to the copy, and return the file's text before."""
    path = place / mutant.file
    before = path.read_text(encoding="utf-8")
    if before.count(mutant.old) != 1:
        message = f"{mutant.number}: {mutant.file} holds {mutant.old!r} {before.count(mutant.old)} times, expected once"
        raise ValueError(message)
    path.write_text(before.replace(mutant.old, mutant.new), encoding="utf-8")
    return before


def killer(mutant: Mutant, place: Path) -> str | None:
    """Apply the mistake, and return the first test that fails; None if none does. The copy is sound again after."""
    before = applied(mutant, place)
    try:
        status, output = run_tests(place, mutant.killers)
    finally:
        (place / mutant.file).write_text(before, encoding="utf-8")
    if status not in (0, FAILED):
        message = f"{mutant.number} ({mutant.mistake}): pytest ended with status {status}:\n{output}"
        raise RuntimeError(message)
    failed = re.search(r"^FAILED (\S+(?: \S+)*?)(?: - |$)", output, re.MULTILINE)
    return failed[1] if failed else None


def killers(mutants: Iterable[Mutant]) -> list[str]:
    """List the tests that are to notice these mistakes, each once."""
    return sorted({test for mutant in mutants for test in mutant.killers})


def survivors(mutants: Sequence[Mutant], place: Path) -> int:
    """Try mutants on a copy of the checkout, print one line for each, and count those that no test notices."""
    status, output = run_tests(place, killers(mutants))
    if status:
        message = f"red before any mistake was made:\n{output}"
        raise RuntimeError(message)
    count = 0
    for mutant in mutants:
        test = killer(mutant, place)
        count += test is None
        print(f"{mutant.number:>4}  {mutant.mistake}: {f'killed by {test}' if test else 'SURVIVED'}", flush=True)
    return count


def main(numbers: Sequence[str]) -> int:
    """Try the mutants of these numbers, or all."""
    known = list(dict.fromkeys(mutant.number for mutant in MUTANTS))
    unknown = [number for number in numbers if number not in known]
    if unknown:
        print(f"{', '.join(unknown)}: expected numbers of docs/mistakes.md that have mutants: {', '.join(known)}")
        return 2
    chosen = [mutant for mutant in MUTANTS if not numbers or mutant.number in numbers]
    with tempfile.TemporaryDirectory() as folder:
        copy_checkout(Path(folder))
        try:
            unnoticed = survivors(chosen, Path(folder))
        except (ValueError, RuntimeError) as error:
            print(error)
            return 2
    print(f"{len(chosen) - unnoticed} of {len(chosen)} mistakes noticed")
    return 1 if unnoticed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
