"""rooflinekit: how long LLM inference takes, and why, from two YAML files."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rooflinekit.calibration.compare import compare
    from rooflinekit.calibration.compare_kernels import compare_kernels
    from rooflinekit.calibration.diagnose import diagnose
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
    from rooflinekit.measurements import Measurement, read
    from rooflinekit.phases.crossover import Crossover, crossover_tokens
    from rooflinekit.phases.deployment import Deployment
    from rooflinekit.phases.estimate import Estimate
    from rooflinekit.phases.frames import compare_devices
    from rooflinekit.phases.layouts import plan_layouts
    from rooflinekit.phases.request import Request
    from rooflinekit.serving.arrivals import Closed, Lengths, Open, Traffic, read_trace
    from rooflinekit.serving.budget import budget
    from rooflinekit.serving.candidates import candidates
    from rooflinekit.serving.capacity import capacity
    from rooflinekit.serving.cost import cost
    from rooflinekit.serving.dial import budget_curve
    from rooflinekit.serving.disaggregation import Disaggregation, disaggregate
    from rooflinekit.serving.embedding import Embedding, embed
    from rooflinekit.serving.engine import list_engines, load_engine
    from rooflinekit.serving.levers import Levers, levers
    from rooflinekit.serving.min_gpus import min_gpus
    from rooflinekit.serving.objectives import Objective, goodput, max_rate
    from rooflinekit.serving.serve import Serving, serve
    from rooflinekit.serving.simulate import simulate
    from rooflinekit.serving.speculative import Speculation, speculate, speculation_table
    from rooflinekit.serving.static_batch import StaticBatch, static_batch
    from rooflinekit.specs.catalog import list_devices, list_models, load_device, load_model
    from rooflinekit.specs.device import Device
    from rooflinekit.specs.efficiency import Efficiency
    from rooflinekit.specs.model import Model
    from rooflinekit.specs.step import Group

__version__ = "0.1.0"
__all__ = [
    "AmbiguousNameError",
    "CalibrationError",
    "Closed",
    "ContextLengthWarning",
    "Crossover",
    "Deployment",
    "Device",
    "Disaggregation",
    "DoesNotFitError",
    "Efficiency",
    "Embedding",
    "Estimate",
    "Group",
    "InvalidInputError",
    "Lengths",
    "Levers",
    "Measurement",
    "MissingFigureError",
    "Model",
    "NotCalibratedError",
    "Objective",
    "Open",
    "Request",
    "RooflinekitError",
    "Serving",
    "SpecError",
    "Speculation",
    "StaticBatch",
    "Traffic",
    "UnknownNameError",
    "budget",
    "budget_curve",
    "candidates",
    "capacity",
    "compare",
    "compare_devices",
    "compare_kernels",
    "cost",
    "crossover_tokens",
    "diagnose",
    "disaggregate",
    "embed",
    "goodput",
    "levers",
    "list_devices",
    "list_engines",
    "list_models",
    "load_device",
    "load_engine",
    "load_model",
    "max_rate",
    "min_gpus",
    "plan_layouts",
    "read",
    "read_trace",
    "serve",
    "simulate",
    "speculate",
    "speculation_table",
    "static_batch",
]
#: Where each public name lives: loaded when it is first asked for, so that the pytest plugin starts in no time.
_HOMES = {
    "calibration.compare": "compare",
    "calibration.compare_kernels": "compare_kernels",
    "calibration.diagnose": "diagnose",
    "errors": "AmbiguousNameError CalibrationError ContextLengthWarning DoesNotFitError InvalidInputError "
    "MissingFigureError NotCalibratedError RooflinekitError SpecError UnknownNameError",
    "measurements": "Measurement read",
    "phases.crossover": "Crossover crossover_tokens",
    "phases.deployment": "Deployment",
    "phases.estimate": "Estimate",
    "phases.frames": "compare_devices",
    "phases.layouts": "plan_layouts",
    "phases.request": "Request",
    "serving.arrivals": "Closed Lengths Open Traffic read_trace",
    "serving.budget": "budget",
    "serving.candidates": "candidates",
    "serving.capacity": "capacity",
    "serving.cost": "cost",
    "serving.dial": "budget_curve",
    "serving.disaggregation": "Disaggregation disaggregate",
    "serving.embedding": "Embedding embed",
    "serving.engine": "list_engines load_engine",
    "serving.levers": "Levers levers",
    "serving.min_gpus": "min_gpus",
    "serving.objectives": "Objective goodput max_rate",
    "serving.serve": "Serving serve",
    "serving.simulate": "simulate",
    "serving.speculative": "Speculation speculate speculation_table",
    "serving.static_batch": "StaticBatch static_batch",
    "specs.catalog": "list_devices list_models load_device load_model",
    "specs.device": "Device",
    "specs.efficiency": "Efficiency",
    "specs.model": "Model",
    "specs.step": "Group",
}


def __getattr__(name: str) -> object:
    """Load a public name when it is first asked for; afterwards it is an ordinary one."""
    home = next((home for home, names in _HOMES.items() if name in names.split()), None)
    if home is None:
        message = f"module 'rooflinekit' has no attribute {name!r}"
        raise AttributeError(message)
    globals()[name] = value = getattr(import_module(f"rooflinekit.{home}"), name)
    return value


def __dir__() -> list[str]:
    """List the public names beside what has been loaded, so that they complete."""
    return sorted({*globals(), *__all__})
