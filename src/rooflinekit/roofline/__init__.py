"""How long on one device: the time laws, and the timing that applies them to a plan."""
