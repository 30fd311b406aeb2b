"""The mistakes of docs/mistakes.md as patches of our code, in the page's order."""

from mistakes import counting, fitting, measuring, several_gpus, timing
from mistakes.mutant import Mutant

__all__ = ["MUTANTS", "Mutant"]

MUTANTS = (
    *counting.MUTANTS,
    *timing.MUTANTS,
    *several_gpus.MUTANTS,
    *fitting.MUTANTS,
    *measuring.MUTANTS,
)
