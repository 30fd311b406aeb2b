"""rooflinekit: how long LLM inference takes, and why, from two YAML files."""

from typing import TYPE_CHECKING

from rooflinekit.errors import (
    AmbiguousNameError,
    CalibrationError,
    ContextLengthWarning,
    DoesNotFitError,
    InvalidInputError,
    MissingFigureError,
    NotCalibratedError,
    RooflinekitError,
    SpecError,
    UnknownNameError,
)
from rooflinekit.phases.crossover import Crossover, crossover_tokens
from rooflinekit.phases.deployment import Deployment
from rooflinekit.phases.estimate import Estimate
from rooflinekit.phases.request import Request
from rooflinekit.specs.catalog import list_devices, list_models, load_device, load_model
from rooflinekit.specs.device import Device
from rooflinekit.specs.efficiency import Efficiency
from rooflinekit.specs.model import Model
from rooflinekit.specs.step import Group

if TYPE_CHECKING:
    from rooflinekit.phases.frames import compare_devices

__version__ = "0.1.0"
__all__ = [
    "AmbiguousNameError",
    "CalibrationError",
    "ContextLengthWarning",
    "Crossover",
    "Deployment",
    "Device",
    "DoesNotFitError",
    "Efficiency",
    "Estimate",
    "Group",
    "InvalidInputError",
    "MissingFigureError",
    "Model",
    "NotCalibratedError",
    "Request",
    "RooflinekitError",
    "SpecError",
    "UnknownNameError",
    "compare_devices",
    "crossover_tokens",
    "list_devices",
    "list_models",
    "load_device",
    "load_model",
]


def __getattr__(name: str) -> object:
    """Load what needs pandas when it is first asked for."""
    if name == "compare_devices":
        from rooflinekit.phases.frames import compare_devices  # noqa: PLC0415 - pandas takes longer than all the rest

        return compare_devices
    message = f"module 'rooflinekit' has no attribute {name!r}"
    raise AttributeError(message)
