"""Static batching: a fixed batch of requests that start together and all wait for the longest one."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rooflinekit import units
from rooflinekit.errors import InvalidInputError
from rooflinekit.operators.forward import features
from rooflinekit.phases.deployment import Deployment
from rooflinekit.serving.host import LOADED_BUSY_S
from rooflinekit.specs.step import Group, checked

Values = NDArray[np.float64]


@dataclass(frozen=True)
class StaticBatch:
    """
    A batch that runs as one, and what running its requests as they come and go would make of it.

    Attributes
    ----------
    prefill_s, duration_s : float
        One pass over all prompts, padded to the longest; until the longest answer ends. [s]
    output_tokens : float
        Of all answers together: padding is none. [token]
    idle_share : float
        Part of the decode slots that belong to answers that have ended.
    continuous_duration_s : float
        Time that the same number of tokens takes where every slot is always filled. [s]
    """

    prefill_s: float
    duration_s: float
    output_tokens: float
    idle_share: float
    continuous_duration_s: float
    basis: str

    @property
    def output_tokens_per_s(self) -> float:
        """Tokens of all answers over the whole time."""
        return self.output_tokens / self.duration_s

    @property
    def continuous_gain(self) -> float:
        """How many times as many tokens continuous batching gives."""
        return self.duration_s / self.continuous_duration_s

    def __repr__(self) -> str:
        """Give one line."""
        rate, idle = units.significant(self.output_tokens_per_s), f"{self.idle_share:.0%} of the slots idle"
        return f"{rate} tokens/s, {idle}; continuous batching x {self.continuous_gain:.2f} ({self.basis})"


def static_batch(
    deployment: Deployment, *, prompt_tokens: Sequence[float], output_tokens: Sequence[float]
) -> StaticBatch:
    """
    Estimate a fixed batch: prompts padded to the longest, one prefill, decode steps until the longest answer ends.

    Parameters
    ----------
    deployment : Deployment
    prompt_tokens, output_tokens : sequence of float
        Of each request of the batch. [token]

    Returns
    -------
    batch : StaticBatch

    Raises
    ------
    InvalidInputError
        The two lists differ in length, or a length is below 1.

    Notes
    -----
    Every step holds all sequences. Continuous batching is taken at its best: a slot is filled the moment it is free, by
    a request of the same mean lengths, so that steps have the mean context and every prompt is read unpadded.

    Examples
    --------
    >>> import rooflinekit as rk
    >>> d = rk.Deployment("llama-3.1-8b", "h100-sxm")
    >>> alike = static_batch(d, prompt_tokens=[1000] * 4, output_tokens=[100] * 4)
    >>> mixed = static_batch(d, prompt_tokens=[1000] * 4, output_tokens=[10, 40, 50, 300])
    >>> round(alike.idle_share, 3), round(mixed.idle_share, 3)
    (0.0, 0.669)
    """
    prompts, outputs = _lengths("prompt_tokens", prompt_tokens), _lengths("output_tokens", output_tokens)
    if prompts.shape != outputs.shape:
        message = f"{prompts.size} prompts and {outputs.size} answers: expected one of each a request"
        raise InvalidInputError(message)
    batch, longest, steps = float(prompts.size), float(prompts.max()), float(outputs.max()) - 1.0
    prefill = _total(deployment, Group(longest, 0.0, batch))
    decode = _total(deployment, Group(1.0, longest + np.arange(steps), batch)) if steps else 0.0
    useful = float((outputs - 1.0).sum())
    return StaticBatch(
        prefill_s=prefill,
        duration_s=prefill + decode,
        output_tokens=float(outputs.sum()),
        idle_share=1.0 - useful / (batch * steps) if steps else 0.0,
        continuous_duration_s=_continuous(deployment, prompts, outputs),
        basis=deployment.timing.laws.basis,
    )


def _continuous(deployment: Deployment, prompts: Values, outputs: Values) -> float:
    """Time the same tokens with every slot filled: each prompt once, and as many full steps as the answers need."""
    batch, left = float(prompts.size), outputs - 1.0
    reading = sum(_total(deployment, Group(float(prompt), 0.0, 1.0)) for prompt in prompts)
    reading = min(reading, _total(deployment, Group(float(prompts.mean()), 0.0, batch)))  # prompts may share a pass too
    if not left.any():
        return reading
    context = float((left * (prompts + left / 2.0)).sum() / left.sum())  # as often as an answer has steps
    return reading + float(left.sum()) / batch * _total(deployment, Group(1.0, context, batch))


def _total(deployment: Deployment, group: Group) -> float:
    """Add the seconds of steps in a loaded server."""
    timing = deployment.timing
    timing.require_peaks()
    return float(timing.total_s(features(timing.plan.features, (group,)), LOADED_BUSY_S).sum())


def _lengths(name: str, lengths: Sequence[float]) -> Values:
    values = np.asarray(checked(name, lengths, minimum=1.0), dtype=np.float64)
    return np.atleast_1d(values)
