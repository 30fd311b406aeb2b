"""Published and measured figures that ship with the library: facts, each with its source."""
