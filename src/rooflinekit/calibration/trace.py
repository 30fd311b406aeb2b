"""Kernel classes of a trace: seconds that some launches of some operators took, over the passes of a range."""

from pathlib import Path
from typing import Literal

import pandas as pd
from pydantic import Field, model_validator

from rooflinekit.calibration.observations import Observations
from rooflinekit.calibration.passes import Point, decode_point, observe
from rooflinekit.errors import InvalidInputError
from rooflinekit.phases.deployment import Deployment
from rooflinekit.specs.device import Device
from rooflinekit.specs.spec import Count, Fraction, Positive, Spec
from rooflinekit.specs.step import Group
from rooflinekit.specs.yamlfile import check, read_mapping


class KernelRow(Spec):
    """Seconds that one class of kernels took: `share` of the launches of some operators, over `steps` passes."""

    name: str
    phase: Literal["prefill", "decode"]
    prompt_tokens: Positive | None = None
    context_tokens: Positive | None = None
    batch: Count = 1
    steps: Count = 1
    operators: tuple[str, ...] = Field(min_length=1)
    share: Fraction = 1.0
    seconds: Positive

    @model_validator(mode="after")
    def _sized(self) -> "KernelRow":
        size = "prompt_tokens" if self.phase == "prefill" else "context_tokens"
        if getattr(self, size) is None:
            message = f"a {self.phase} row needs {size}"
            raise ValueError(message)
        return self

    def points(self, deployment: Deployment) -> list[Point]:
        """Give the rows of the plan that it sums, each as often as the range holds it."""
        one = decode_point(self.context_tokens or 0, self.batch)
        if self.phase == "prefill":
            one = Point((Group(self.prompt_tokens or 0, 0.0, self.batch),))
        names = [row.name for row in deployment.plan.rows]
        for operator in self.operators:
            if operator not in names:
                message = f"{self.name}: no operator {operator!r}: this pass has {', '.join(names)}"
                raise InvalidInputError(message)
        return [one._replace(weight=self.steps * self.share, row=names.index(name)) for name in self.operators]


class KernelTrace(Spec):
    """A file of kernel classes: one model on one device."""

    source: str
    model: str
    device: str
    rows: tuple[KernelRow, ...]


def load_trace(path: Path) -> KernelTrace:
    """Read a file of kernel classes."""
    return check(KernelTrace, read_mapping(path), str(path))


def trace_observations(trace: KernelTrace, device: Device | None = None) -> Observations:
    """Observe the kernel classes, on `device` if given; each weighs later by its share of its phase's measured time."""
    deployment = Deployment(trace.model, device or trace.device, memory_check=False)
    seconds = [row.seconds for row in trace.rows]
    facts = pd.DataFrame({"name": [row.name for row in trace.rows], "phase": [row.phase for row in trace.rows]})
    share = seconds / pd.Series(seconds).groupby(facts["phase"]).transform("sum")
    facts = facts.assign(model=trace.model, device=trace.device, share=share)
    return observe(deployment, facts, seconds, [row.points(deployment) for row in trace.rows])
