"""Checks over the shipped data that tests and contributors run: nothing here is used to predict a time."""
