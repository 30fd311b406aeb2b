"""The formats, one file each, in the order in which they are tried."""

from rooflinekit.measurements.formats import llama_timings
from rooflinekit.measurements.formats.format import Format

FORMATS: tuple[Format, ...] = (llama_timings.FORMAT,)

__all__ = ["FORMATS", "Format"]
