"""What others measured: records, and one file a format that reads them. A reader parses and computes nothing."""

from rooflinekit.measurements.reading import Reading, detect, read, read_between
from rooflinekit.measurements.record import Measurement, Setting, Skipped

__all__ = ["Measurement", "Reading", "Setting", "Skipped", "detect", "read", "read_between"]
