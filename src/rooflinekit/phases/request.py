"""A request: one prefill, then decode steps over the context as it grows."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rooflinekit import units
from rooflinekit.phases.estimate import Estimate
from rooflinekit.phases.memory import check_sizes
from rooflinekit.phases.row import Value
from rooflinekit.specs.step import Group, Real, checked, points_shape

if TYPE_CHECKING:
    from rooflinekit.phases.deployment import Deployment


@dataclass(frozen=True, eq=False)
class Request:
    """
    The service time of a request (or of equal requests that run together): no queue, no network.

    ``decode`` holds all steps after the first token together; with one output token there is none.
    """

    prefill: Estimate
    decode: Estimate
    output_tokens: Value

    @property
    def time_to_first_token_s(self) -> Value:
        """TTFT: the prefill. [s]"""
        return self.prefill.time_s

    @property
    def time_per_output_token_s(self) -> Value:
        """TPOT as vLLM means it: (end to end - TTFT) / (output tokens - 1); not-a-number for a single token. [s]"""
        steps = np.subtract(self.output_tokens, 1.0)
        with np.errstate(invalid="ignore", divide="ignore"):
            value = np.divide(self.decode.time_s, steps)
        return float(value) if np.ndim(value) == 0 else value

    @property
    def end_to_end_s(self) -> Value:
        """TTFT and all decode steps. [s]"""
        return self.prefill.time_s + self.decode.time_s

    def __repr__(self) -> str:
        """Give one line."""
        if self.decode.shape != ():
            return f"request: {self.decode.shape} points ({self.prefill.basis})"
        if self.decode.timing.missing:
            return (
                f"request: {self.decode.deployment.device.id} lacks an arithmetic peak: .prefill, .decode have counts"
            )
        first, each, end = self.time_to_first_token_s, self.time_per_output_token_s, self.end_to_end_s
        between = "" if np.isnan(each) else f"TPOT {units.duration(each)}, "
        times = f"TTFT {units.duration(first)}, {between}end to end {units.duration(end)}"
        return f"request: {times}, service time only ({self.prefill.basis})"


class RequestSizes(NamedTuple):
    """Prompt, output and cached prefix of each request, how many run together, and the work just before."""

    prompt_tokens: Real
    output_tokens: Real
    batch: Real
    cached_tokens: Real
    busy_s: Real


def plan_request(deployment: "Deployment", sizes: RequestSizes) -> Request:
    """Lay out the prefill and every decode step of each request; the steps are exact, one point each."""
    prompt_tokens, output_tokens, batch, cached_tokens, busy_s = sizes
    checked("output_tokens", output_tokens, minimum=1, whole=True)
    shape = points_shape(*sizes)
    prefill = deployment.prefill(prompt_tokens, cached_tokens=cached_tokens, batch=batch, busy_s=busy_s)
    wide = (np.broadcast_to(np.asarray(size, dtype=np.float64), shape) for size in sizes)
    prompts, outputs, batches, _, busy = (values.reshape(-1) for values in wide)
    check_sizes(deployment, (Group(1.0, prompts + outputs - 2.0, batches),))  # the last step, before all are laid out
    passes = (outputs - 1).astype(np.int64)
    first = np.repeat(np.cumsum(passes) - passes, passes)
    grown = np.arange(passes.sum()) - first  # 0, 1, 2, ... within each request
    steps = Group(np.ones(len(grown)), np.repeat(prompts, passes) + grown, np.repeat(batches, passes))
    label = f"{units.count(float(passes.max()))} decode steps" if shape == () else "decode steps"
    empty = Estimate(
        deployment, label, deployment.timing, np.zeros((len(deployment.plan.features), 0)), shape, 0.0, passes
    )
    decode = empty
    if len(grown):
        sweep = deployment.step(steps, busy_s=np.repeat(busy, passes))
        decode = replace(empty, x=sweep.x, busy_s=sweep.busy_s, groups=sweep.groups)
    return Request(prefill, decode, outputs.reshape(shape) if shape else float(outputs[0]))
