"""Fitting: measured times in, an Efficiency out. No estimator imports this room."""

from rooflinekit.calibration.calibrate import Calibration, calibrate
from rooflinekit.calibration.fit import Fit, fit
from rooflinekit.calibration.observations import Observations
from rooflinekit.calibration.references import gb10_trace
from rooflinekit.calibration.tables import read_table

__all__ = ["Calibration", "Fit", "Observations", "calibrate", "fit", "gb10_trace", "read_table"]
