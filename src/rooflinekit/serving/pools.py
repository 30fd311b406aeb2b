"""Pools of a split server: workers that read prompts and nothing else, and workers that decode and nothing else."""

from dataclasses import dataclass
from functools import cached_property
from math import ceil, exp

import numpy as np

from rooflinekit.phases.deployment import Deployment
from rooflinekit.serving.engine import EngineProfile
from rooflinekit.serving.host import loaded_step_s
from rooflinekit.serving.loaded_steps import mean_context_tokens
from rooflinekit.serving.simulate import rules_of
from rooflinekit.specs.step import Group

_ROUNDS, _HALVINGS = 60, 36


def queue_wait_s(service_s: float, rate_per_s: float) -> float:
    r"""
    Mean wait of requests that come at random for one server that takes equally long for each.

    .. math:: W = \frac{\rho\,s}{2\,(1 - \rho)}, \qquad \rho = \lambda s

    Parameters
    ----------
    service_s : float
        :math:`s`. [s]
    rate_per_s : float
        :math:`\lambda`. [request/s]

    Returns
    -------
    wait_s : float
        Infinity where more comes than the server takes. [s]

    References
    ----------
    Pollaczek and Khinchine, for a constant service time.

    Examples
    --------
    >>> queue_wait_s(0.1, 5.0), queue_wait_s(0.1, 10.0)
    (0.05, inf)
    """
    busy = rate_per_s * service_s
    return busy * service_s / (2.0 * (1.0 - busy)) if busy < 1.0 else float("inf")


def batch_server_s(alone_s: float, more_s: float, rate_per_s: float) -> float:
    r"""
    Mean time of requests that come at random for a server that takes all who wait together.

    .. math::

        T = (1 - b)\,s + b\left(\frac{R}{2} + s + c\,\lambda R\right), \qquad
        b = \frac{B}{B + 1 / \lambda}, \qquad
        R = \frac{a^2 k + 2 a c\,(1 + \lambda B) + c^2 (1 + \lambda B)}{B\,(1 - \lambda^2 c^2)}

    Parameters
    ----------
    alone_s, more_s : float
        Step with one request, :math:`s`, and what each further one adds, :math:`c`. [s]
    rate_per_s : float
        :math:`\lambda`. [request/s]

    Returns
    -------
    time_s : float
        From arrival to the end of its step; infinity where :math:`\lambda c \ge 1`. [s]

    Notes
    -----
    A request that finds the server idle runs alone; one that finds it busy waits for what is left of a step and runs
    with those who came in it. A busy period has :math:`k = e^{\lambda L}` steps and lasts :math:`B = k L`, where
    :math:`L = (a + c\,e^{-\lambda L}) / (1 - \lambda c)` and :math:`a = s - c`; :math:`R` is the step that a random
    instant falls into. The sums over a busy period are those of a branching process: who comes in one step runs in the
    next.

    Examples
    --------
    >>> round(batch_server_s(0.1, 0.0, 1e-6), 6), batch_server_s(0.1, 0.1, 10.0)
    (0.1, inf)
    """
    if rate_per_s * more_s >= 1.0:
        return float("inf")
    fixed, step = alone_s - more_s, alone_s
    for _ in range(_ROUNDS):
        step = (fixed + more_s * exp(-rate_per_s * step)) / (1.0 - rate_per_s * more_s)
    steps = exp(rate_per_s * step)
    period = steps * step
    came = 1.0 + rate_per_s * period
    squares = fixed**2 * steps + (2.0 * fixed + more_s) * more_s * came
    seen = squares / (1.0 - (rate_per_s * more_s) ** 2) / period
    busy = rate_per_s * period / came
    return (1.0 - busy) * alone_s + busy * (seen / 2.0 + alone_s + more_s * rate_per_s * seen)


@dataclass(frozen=True)
class PrefillWorker:
    """
    GPUs that read prompts of one length, one after another in chunks, or several in a pass where the budget holds them.

    Its deployment is one replica of the model.
    """

    deployment: Deployment
    engine: EngineProfile
    prompt_tokens: float
    cached_tokens: float

    def _passes_s(self, prompts: Group) -> float:
        """Time passes that hold nothing but tokens of prompts, one after another."""
        return float(loaded_step_s(self.deployment, self.engine, chunks=prompts).sum())

    @property
    def _new(self) -> float:
        return self.prompt_tokens - self.cached_tokens

    @cached_property
    def budget(self) -> float:
        """Tokens of one pass at most; a whole prompt where the engine cuts none."""
        budget = float(self.engine.token_budget(self.deployment.device))
        cuts = self.engine.enable_chunked_prefill or self.engine.micro_batch_tokens
        return budget if cuts else max(budget, self._new)

    @cached_property
    def alone_s(self) -> float:
        """Read one prompt alone."""
        starts = np.arange(0.0, self._new, self.budget)
        new = np.minimum(self.budget, self._new - starts)
        last = (starts + new >= self._new).astype(np.float64)
        return self._passes_s(Group(new, self.cached_tokens + starts, 1.0, last))

    @cached_property
    def packed(self) -> int:
        """Prompts that one pass takes at most."""
        return max(int(self.budget // self._new), 1)

    @cached_property
    def more_s(self) -> float:
        """Give what each further prompt of a pass adds."""
        if self.packed == 1:
            return self.alone_s
        full = self._passes_s(Group(self._new, self.cached_tokens, float(self.packed)))
        return (full - self.alone_s) / (self.packed - 1)

    @cached_property
    def most_requests_per_s(self) -> float:
        """Prompts that it reads when it never rests, full passes."""
        return self.packed / (self.alone_s + (self.packed - 1) * self.more_s)

    def first_token_s(self, rate_per_s: float) -> float:
        """Mean time from arrival to the end of the prefill."""
        if rate_per_s >= self.most_requests_per_s:
            return float("inf")
        host = self.engine.request_host_s
        if self.packed == 1:
            return host + queue_wait_s(self.alone_s, rate_per_s) + self.alone_s
        return host + batch_server_s(self.alone_s, self.more_s, rate_per_s)


@dataclass(frozen=True)
class DecodeWorker:
    """GPUs that only decode: sequences come with their cache, and their number follows from how long they stay."""

    deployment: Deployment
    engine: EngineProfile
    prompt_tokens: float
    output_tokens: float

    @cached_property
    def most_sequences(self) -> float:
        """Sequences that pool and engine hold at once."""
        length = ceil(self.prompt_tokens + self.output_tokens)
        rules = rules_of(self.deployment, self.engine, float(length))
        return max(min(rules.pages // ceil(length / rules.page_tokens), rules.most_sequences), 1.0)

    def step_s(self, batch: float) -> float:
        """Time a decode step at the mean context of an answer."""
        group = Group(1.0, mean_context_tokens(self.prompt_tokens, self.output_tokens), batch)
        return float(loaded_step_s(self.deployment, self.engine, decoding=group))

    @property
    def _steps(self) -> float:
        """Steps of an answer: its first token came with the prefill."""
        return max(self.output_tokens - 1.0, 0.0)

    @cached_property
    def most_requests_per_s(self) -> float:
        """Answers that it gives with all its places taken."""
        return self.most_sequences / (self._steps * self.step_s(self.most_sequences)) if self._steps else float("inf")

    def batch(self, rate_per_s: float) -> float:
        """Find the mean batch that a sequence sees: itself, and what came while one decodes; infinity if too many."""
        if rate_per_s >= self.most_requests_per_s:
            return float("inf")
        low, high = 1.0, self.most_sequences + 1.0
        for _ in range(_HALVINGS):
            middle = 0.5 * (low + high)
            fewer = 1.0 + rate_per_s * self._steps * self.step_s(middle) > middle
            low, high = (middle, high) if fewer else (low, middle)
        return 0.5 * (low + high)
