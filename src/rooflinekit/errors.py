"""The exceptions rooflinekit raises: one base class, few children.

Each message says what was found, where, what was expected and what to do. A command prints the message in one line
and exits with status 2.
"""


class RooflinekitError(Exception):
    """Base of every error that rooflinekit raises on purpose."""


class InvalidInputError(RooflinekitError, ValueError):
    """An argument is out of its range: negative, zero, not a number, or not of the listed choices."""


class SpecError(RooflinekitError, ValueError):
    """A YAML file or mapping does not describe a device or a model."""


class UnknownNameError(RooflinekitError, LookupError):
    """No device or model has this name."""


class AmbiguousNameError(UnknownNameError):
    """Several devices or models have this name."""


class MissingFigureError(RooflinekitError, LookupError):
    """A time needs a figure that the device file does not hold; nothing is guessed from another field."""


class CalibrationError(RooflinekitError, ValueError):
    """A fit lands on a constant that no device can have: a counting or data fault."""


class DoesNotFitError(RooflinekitError, ValueError):
    """Weights and KV cache together exceed the memory of the device."""


class NotCalibratedError(RooflinekitError, LookupError):
    """No measured spread exists, so no interval can be given."""


class ContextLengthWarning(UserWarning):
    """The step holds more tokens than the model was made for."""
