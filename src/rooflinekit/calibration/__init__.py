"""Fitting: measured kernel rows in, an Efficiency out. No estimator imports this room."""
