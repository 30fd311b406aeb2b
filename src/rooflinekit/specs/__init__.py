"""What things are: frozen descriptions of devices, models and steps. No time, no arithmetic beyond shapes."""
