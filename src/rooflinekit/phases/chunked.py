"""A prompt read in chunks: several passes whose work is that of one, plus what they read again."""

from typing import TYPE_CHECKING

import numpy as np

from rooflinekit.errors import InvalidInputError
from rooflinekit.phases.estimate import Estimate
from rooflinekit.specs.step import Group, checked

if TYPE_CHECKING:
    from rooflinekit.phases.deployment import Deployment


def chunked_prefill(
    deployment: "Deployment", prompt_tokens: int, token_budget: int, *, cached_tokens: int, busy_s: float
) -> Estimate:
    """Cut the prompt into chunks, time each as a step, and keep them together as one estimate."""
    _check_sizes(prompt_tokens, token_budget, cached_tokens)
    starts = np.arange(float(cached_tokens), float(prompt_tokens), float(token_budget))
    new = np.minimum(token_budget, prompt_tokens - starts)
    last = starts + new >= prompt_tokens  # only the end of the prompt is sampled
    sweep = deployment.step(Group(new, starts, 1, last.astype(np.float64)))
    work = sweep.timing.compute.sum(axis=0) @ sweep.x
    return Estimate(
        deployment=deployment,
        label=f"prefill {prompt_tokens:,} tokens in chunks of {token_budget:,}",
        timing=sweep.timing,
        x=sweep.x,
        shape=(),
        groups=sweep.groups,
        busy_s=busy_s + np.concatenate([[0.0], np.cumsum(work)[:-1]]),
        passes=np.array([len(starts)]),
        labels=tuple(f"chunk of {n:,.0f} tokens after {c:,.0f}" for n, c in zip(new, starts, strict=True)),
    )


def _check_sizes(prompt_tokens: int, token_budget: int, cached_tokens: int) -> None:
    if any(np.ndim(size) for size in (prompt_tokens, token_budget, cached_tokens)):
        message = "chunked_prefill takes one prompt at a time: expected single numbers"
        raise InvalidInputError(message)
    checked("prompt_tokens", prompt_tokens, positive=True)
    checked("token_budget", token_budget, positive=True, whole=True)
    checked("cached_tokens", cached_tokens)
    if cached_tokens >= prompt_tokens:
        message = f"cached_tokens={cached_tokens!r}: expected fewer than prompt_tokens={prompt_tokens!r}"
        raise InvalidInputError(message)
