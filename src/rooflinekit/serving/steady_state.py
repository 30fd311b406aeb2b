"""Steady state: time per output token and time to first token under load, in closed form, for many points at once."""

from dataclasses import dataclass
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rooflinekit.operators.forward import features
from rooflinekit.phases.deployment import Deployment
from rooflinekit.serving.engine import EngineProfile
from rooflinekit.serving.host import Layers, with_host_s
from rooflinekit.serving.scheduler import Rules
from rooflinekit.specs.step import Group

Values = NDArray[np.float64]
_ROUNDS, _DAMPING, _SETTLED = 40, 0.7, 1e-4
#: Prompts in one step that are told apart.
_TOGETHER = 6
_LOADED = float("inf")


class Load(NamedTuple):
    """What comes: so many in flight (closed) or so many a second (open), and mean lengths; arrays that broadcast."""

    prompt_tokens: Values
    output_tokens: Values
    concurrency: Values
    rate_per_s: Values
    requests: Values
    cached_tokens: Values


class Steps(NamedTuple):
    """Steps of a server at some running batch: a decode step, and what one prompt does to those that carry it."""

    decode_s: Values
    added_s: Values
    own_s: Values
    chunks: Values
    prompts: Values


class Cases(NamedTuple):
    """Steps to be timed, a row of each for every point: a chunk of some prompts beside decoding sequences."""

    new: Values
    held: Values
    prompts: Values
    sampled: Values


@dataclass(frozen=True)
class Model:
    """Deployment, profile and rules: all that the closed form asks for seconds of steps."""

    deployment: Deployment
    profile: EngineProfile
    rules: Rules

    def steps(self, load: Load, running: Values, prompts: Values) -> Steps:
        """Time the steps at a running batch; a prompt goes through in chunks of what decoding leaves of the budget."""
        mixed = self.rules.prefill != "serial"
        beside = running if mixed else np.zeros_like(running)
        new = load.prompt_tokens - load.cached_tokens
        room = np.maximum(self.rules.token_budget - beside, 1.0) if self.rules.chunked else new
        chunks = np.ceil(new / room)
        cases = self._cases(load, room, chunks)
        seconds = self._seconds(cases, load.prompt_tokens + load.output_tokens / 2.0, beside)
        alone, carried, several = seconds[0], seconds[1 : 1 + int(chunks.max())], seconds[-_TOGETHER:]
        if not mixed:
            context = load.prompt_tokens + load.output_tokens / 2.0
            none = Cases(*(np.zeros((1, 1)) for _ in Cases._fields))
            alone = self._seconds(none, context, running)[0]
        own = np.where(cases.new[1 : 1 + len(carried)] > 0, carried, 0.0).sum(axis=0)
        added = np.maximum(own - chunks * alone if mixed else own, 0.0)
        together = self._together(new, several - alone, prompts)
        added = np.where((chunks == 1.0) & np.isfinite(together) & mixed, np.maximum(together, 0.0), added)
        return Steps(alone, added, own, chunks, prompts)

    def _cases(self, load: Load, room: Values, chunks: Values) -> Cases:
        """Lay out a step without prompts, one for each chunk of a prompt, and some with several whole prompts."""
        new, held = load.prompt_tokens - load.cached_tokens, load.cached_tokens
        index = np.arange(int(chunks.max()))[:, None]
        size = np.clip(new - index * room, 0.0, room)
        several = np.broadcast_to(np.arange(1.0, _TOGETHER + 1.0)[:, None], (_TOGETHER, new.size))
        none, whole = np.zeros((1, new.size)), np.ones_like(several)
        return Cases(
            np.concatenate([none, size, whole * new]),
            np.concatenate([none, held + index * room, whole * held]),
            np.concatenate([none, (size > 0) * 1.0, several]),
            np.concatenate([none, (index == chunks - 1.0) * 1.0, whole]),
        )

    def _seconds(self, cases: Cases, context: Values, beside: Values) -> Values:
        """Time all cases at once by the deployment's own timing, with the engine's host times."""
        shape = np.broadcast_shapes(cases.new.shape, context.shape, beside.shape)
        groups = (
            Group(np.maximum(cases.new, 1e-9), cases.held, cases.prompts, cases.sampled),
            Group(1.0, context, np.maximum(beside, 1e-9), 1.0),
        )
        whole = tuple(Group(*(np.broadcast_to(value, shape).ravel() for value in group)) for group in groups)
        timing = self.deployment.timing
        seconds = timing.total_s(features(timing.plan.features, whole), _LOADED).reshape(shape)
        return with_host_s(
            self.profile, seconds, Layers.of(self.deployment.model), sequences=beside + cases.prompts,
            prompts=np.broadcast_to(cases.prompts, shape), tokens=cases.new * cases.prompts + beside,
        )  # fmt: skip

    def packed_s(self, load: Load, running: Values) -> Values:
        """Time a step whose whole budget is prompts, as when many come at once."""
        new = load.prompt_tokens - load.cached_tokens
        together = np.maximum(self.rules.token_budget / new, 1.0)
        size = np.minimum(new, self.rules.token_budget)
        cases = Cases(*(value[None, :] for value in (size, load.cached_tokens, together, np.ones_like(new))))
        return np.asarray(self._seconds(cases, load.prompt_tokens + load.output_tokens / 2.0, running / 2.0)[0])

    def _together(self, new: Values, added: Values, prompts: Values) -> Values:
        """Give what a prompt adds where several may come in one step, as many as a Poisson number says.

        The first one shares the read of the weights with the decoding sequences, the next ones are arithmetic.
        """
        count = np.arange(1.0, _TOGETHER + 1.0)[:, None]
        chance = np.exp(-prompts) * np.cumprod(prompts / count, axis=0) * (new * count <= self.rules.token_budget)
        came = (chance * count).sum(axis=0)
        mean = np.divide((chance * added).sum(axis=0), came, out=np.full_like(came, np.nan), where=came > 0)
        return np.asarray(mean)


class Wait(NamedTuple):
    """What a request waits for: its mean, a step of decoding, the chance of a prompt at work and what is left of it."""

    mean_s: Values
    decoding_s: Values
    busy: Values
    behind_s: Values
    beside: Values
    rate_per_s: Values


class Found(NamedTuple):
    """What the closed form gives for every point."""

    running: Values
    time_per_output_token_s: Values
    time_to_first_token_s: Values
    prompts_per_step: Values
    steps: Steps
    wait: Wait


def closed_form(model: Model, load: Load) -> Found:
    r"""
    Find the running batch, the time per output token and the mean time to first token of a loaded server.

    .. math::

        \mathrm{TPOT} = D(b) + \nu\,A(b), \qquad
        \nu = \frac{b}{o - 1}, \qquad
        b = N \frac{(o - 1)\,\mathrm{TPOT}}{\mathrm{TTFT} + (o - 1)\,\mathrm{TPOT}}

    Parameters
    ----------
    model : Model
        Seconds of steps.
    load : Load
        Points; where `concurrency` is not-a-number the requests come at a rate, and :math:`b` is what came while one
        decodes.

    Returns
    -------
    found : Found

    Notes
    -----
    :math:`D` is a decode step, :math:`A` what the chunks of one prompt add to the steps that carry them. A first token
    waits for the host, the rest of the running step, prompts that came before, and its own chunks; of a closed run the
    requests that start together wait for packed steps instead. Valid where the pool holds all that run.
    """
    closed, answers = np.isfinite(load.concurrency), np.maximum(load.output_tokens - 1.0, 1e-9)
    running = np.where(closed, load.concurrency, 1.0)
    prompts = np.zeros_like(running)
    for _ in range(_ROUNDS):
        before = running
        steps = model.steps(load, running, np.where(closed, _of_closed(load, running, answers), prompts))
        now = _settle(model, load, steps, running)
        prompts = now.prompts_per_step
        aim = answers * now.time_per_output_token_s
        flow = np.where(closed, load.concurrency / (now.time_to_first_token_s + aim), load.rate_per_s)
        seen = flow * aim + np.where(closed, 0.0, 1.0)  # one that decodes sees itself beside what has come at random
        running = (1.0 - _DAMPING) * running + _DAMPING * np.minimum(seen, model.rules.most_sequences)
        if np.max(np.abs(running / before - 1.0)) < _SETTLED:
            break
    burst = np.minimum(load.concurrency / load.requests, 1.0)
    whole = burst * _burst(model, load, steps, running) + (1.0 - burst) * now.time_to_first_token_s
    first = np.where(closed, whole, now.time_to_first_token_s)
    return now._replace(running=running, time_to_first_token_s=first)


def _of_closed(load: Load, running: Values, answers: Values) -> Values:
    """Give the prompts that come per step of a closed run: one whenever another answer ends."""
    others = 1.0 - 1.0 / np.maximum(load.concurrency, 1.0)
    return np.asarray(others * running / answers)


def _settle(model: Model, load: Load, steps: Steps, running: Values) -> Found:
    """Give the times at a running batch."""
    closed = np.isfinite(load.concurrency)
    slack = np.maximum(1.0 - load.rate_per_s * steps.added_s, 1e-3)
    mean = np.where(closed, steps.decode_s + steps.prompts * steps.added_s, steps.decode_s / slack)
    prompts = np.where(closed, steps.prompts, load.rate_per_s * mean)
    pack = model.rules.token_budget / np.maximum(load.prompt_tokens - load.cached_tokens, 1.0)
    ways = (_closed_wait(model, steps, prompts, mean, pack), _wait(steps, prompts, mean, pack, running))
    wait = Wait(*(np.where(closed, *pair) for pair in zip(*ways, strict=True)))
    first = model.profile.request_host_s + wait.mean_s + steps.own_s
    return Found(running, mean, first, prompts, steps, wait)


def _closed_wait(model: Model, steps: Steps, prompts: Values, mean: Values, pack: Values) -> Wait:
    """Give the wait of a closed client's request, which starts when a step ends: it misses the next one at most."""
    late = model.profile.request_host_s
    rest = np.ceil(late / mean) * mean - late + _held_back_s(model, mean)
    busy = np.clip(prompts / pack, 0.0, 0.98)
    beside = prompts * (1.0 + _held_back_s(model, mean) / mean)
    queue = busy / (2.0 * (1.0 - busy)) * steps.own_s + beside * steps.added_s
    return Wait(rest + queue, mean, busy, steps.own_s / (2.0 * (1.0 - busy)), prompts, prompts / mean)


def _held_back_s(model: Model, mean: Values) -> Values:
    """Give how long a scheduler that collects requests, or looks at them now and then, holds one back."""
    rules = model.rules
    return (rules.batch_wait_steps + (rules.receive_interval_steps - 1.0) / 2.0) * mean + rules.batch_wait_s


def _wait(steps: Steps, prompts: Values, mean: Values, pack: Values, running: Values) -> Wait:
    """Give the wait of a request that comes at random: the rest of a step or of a prompt before it, then the queue."""
    carried = np.clip(prompts * steps.own_s / mean, 0.0, 0.98)
    queue = np.clip(carried / np.maximum(pack, 1.0), 0.0, 0.98)
    behind = steps.own_s / (2.0 * (1.0 - np.where(pack > 1.0, 0.0, queue)))
    at_work = 1.0 - np.exp(-running)
    decoding = (1.0 - carried) * at_work * steps.decode_s
    beside = prompts / mean * (carried * steps.own_s + decoding) * (pack > 1.0)
    return Wait(
        carried * behind + decoding / 2.0 + beside * steps.added_s, decoding, carried, behind, beside, prompts / mean
    )


def first_token_percentile(model: Model, found: Found, percent: float) -> Values:
    """
    Give a percentile of the time to first token of requests that come at random.

    Notes
    -----
    A request finds a prompt at work with the chance that one is; what is left of it and of those before is exponential.
    Others that come in the same step, a Poisson number of them, add their tokens.
    """
    steps, wait, above = found.steps, found.wait, 1.0 - percent / 100.0
    share = np.maximum(wait.busy / above, 1.0)
    packed = 2.0 * wait.behind_s * (1.0 - 1.0 / share)  # the rest of one step: even between nothing and all of it
    behind = np.where(wait.beside > 0, packed, np.log(share) * wait.behind_s)
    step = wait.decoding_s * (1.0 - above)
    z = NormalDist().inv_cdf(1.0 - above)
    came = np.where((wait.beside > 0) & (share > 1.0), wait.rate_per_s * steps.own_s, wait.beside)
    others = np.maximum(came + z * np.sqrt(came), 0.0)
    rest = np.maximum(behind, step) + others * steps.added_s
    return np.asarray(model.profile.request_host_s + steps.own_s + rest)


def _burst(model: Model, load: Load, steps: Steps, running: Values) -> Values:
    """Give the mean time to first token of requests that all start together: packed steps, one after another."""
    packed = model.packed_s(load, running)
    whole = load.concurrency * (load.prompt_tokens - load.cached_tokens) / model.rules.token_budget
    one = np.maximum(np.minimum(whole, 1.0) * packed, steps.own_s)
    several = packed * (np.ceil(whole) + 1.0) / 2.0
    return model.profile.request_host_s + np.where(whole <= 1.0, one, several)
