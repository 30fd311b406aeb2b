"""Steady state: time per output token and time to first token under load, in closed form, for many points at once."""

from collections.abc import Callable
from statistics import NormalDist
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from rooflinekit.serving.loaded_steps import Coming, Load, Model, Steps

Values = NDArray[np.float64]
Several = TypeVar("Several", "Coming", "Wait")
#: Turns of the iteration, the first ones taken whole, those that are needed where a prompt changes its chunks damped.
_ROUNDS, _UNDAMPED, _DAMPING, _SETTLED = 40, 6, 0.7, 1e-4
#: Rounds of a closed run that stand for all, and turns of what is found within a round.
_STAND_FOR_ALL, _TURNS = 10, 8


class Wait(NamedTuple):
    """What a request waits for: its mean, a step of decoding, the chance of a prompt at work and what is left of it."""

    mean_s: Values
    decoding_s: Values
    busy: Values
    behind_s: Values
    beside: Values
    rate_per_s: Values
    part: Values


class Clumps(NamedTuple):
    """How a closed run's prompts come: within which part of a cycle, and the part of their spread that is chance."""

    part: Values
    chance: Values


class Found(NamedTuple):
    """What the closed form gives for every point."""

    running: Values
    time_per_output_token_s: Values
    time_to_first_token_s: Values
    prompts_per_step: Values
    steps: Steps
    coming: Coming
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
    requests that start together wait for packed steps instead, and those that ended together come together again.
    Where the prompts of a closed run fill every step, no more than :math:`(o - 1) B / (p + o - 1)` sequences decode
    (:math:`B` tokens a step, :math:`p` of a prompt), and all others in flight wait. Valid where the pool holds all that
    run.
    """
    answers, clumps = load.answer_steps, _clumps(model, load)
    running = np.where(load.closed, load.concurrency, 1.0)
    nothing = np.zeros_like(running)
    coming = Coming(nothing, nothing, nothing)
    now = _settle(model, load, model.steps(load, running, coming), (coming, clumps, running))
    for turn in range(_ROUNDS):
        before = running
        coming = _coming(load, running, clumps, now)
        now = _settle(model, load, model.steps(load, running, coming), (coming, clumps, running))
        aim = answers * now.time_per_output_token_s
        flow = np.where(load.closed, load.concurrency / (now.time_to_first_token_s + aim), load.rate_per_s)
        seen = flow * aim + np.where(load.closed, 0.0, 1.0)  # one that decodes sees itself beside what comes at random
        most = np.minimum(np.where(load.closed, model.fed(load), np.inf), model.rules.most_sequences)
        step = 1.0 if turn < _UNDAMPED else _DAMPING
        running = (1.0 - step) * running + step * np.minimum(seen, most)
        if np.max(np.abs(running / before - 1.0)) < _SETTLED:
            break
    else:  # a prompt that gains a chunk on one side and loses it on the other: between the two
        running = (running + before) / 2.0
        now = _settle(model, load, model.steps(load, running, coming), (coming, clumps, running))
    now = _saturated(model, load, now, running)
    whole = load.opening * _burst(model, load, now.steps, running) + (1.0 - load.opening) * now.time_to_first_token_s
    return now._replace(running=running, time_to_first_token_s=np.where(load.closed, whole, now.time_to_first_token_s))


# ---- how prompts come


def _clumps(model: Model, load: Load) -> Clumps:
    """Find how a closed run's prompts come: those that start together end together, as far apart as their lengths."""
    room = np.maximum(model.rules.token_budget - load.concurrency / 2.0, 1.0)
    opening = np.ceil(load.concurrency * load.new_tokens / room)  # steps, of so many prompts that none is left out
    rounds = np.maximum(load.requests / load.concurrency - 1.0, 0.0) * np.linspace(0.0, 1.0, _STAND_FOR_ALL)[:, None]
    width = np.sqrt(opening**2 + 12.0 * load.output_std**2 * rounds)  # of an even spread with the same variance
    part = np.minimum(width / (load.answer_steps + 1.0), 1.0).mean(axis=0)
    chance = (1.0 - np.minimum(opening / width, 1.0) ** 2).mean(axis=0)
    return Clumps(*(np.where(load.closed, value, 1.0) for value in (part, chance)))


def _either(load: Load, closed: Callable[[], Several], opened: Callable[[], Several]) -> Several:
    """Take each point's own of two answers, and work out only what some point needs."""
    if load.closed.all() or not load.closed.any():
        return closed() if load.closed.all() else opened()
    one, other = closed(), opened()
    return type(one)(*(np.where(load.closed, *pair) for pair in zip(one, other, strict=True)))


def _coming(load: Load, running: Values, clumps: Clumps, now: Found) -> Coming:
    """Give the prompts that come during a step: of a closed run one whenever another answer ends."""

    def closed() -> Coming:
        others = 1.0 - 1.0 / np.maximum(load.concurrency, 1.0)
        mean = others * running / load.answer_steps / clumps.part
        return Coming(mean, mean, np.zeros_like(mean))

    return _either(load, closed, lambda: _at_random(load.rate_per_s, now.steps.decode_s, now.time_per_output_token_s))


def _at_random(rate_per_s: Values, decode_s: Values, mean_s: Values) -> Coming:
    """Give what comes at a rate: more of it during a long step, so that one with prompts is followed by another."""
    share = -np.expm1(-rate_per_s * mean_s)
    for _ in range(_TURNS):
        mixed_s = np.maximum((mean_s - (1.0 - share) * decode_s) / np.maximum(share, 1e-12), decode_s)
        share = -(1.0 - share) * np.expm1(-rate_per_s * decode_s) - share * np.expm1(-rate_per_s * mixed_s)
    return Coming(rate_per_s * decode_s, rate_per_s * mixed_s, share)


# ---- times at a running batch


def _settle(model: Model, load: Load, steps: Steps, at: tuple[Coming, Clumps, Values]) -> Found:
    """Give the times at a running batch."""
    coming, clumps, running = at
    slack = np.maximum(1.0 - load.rate_per_s * steps.added_s, 1e-3)
    seen = (1.0 - load.opening / 2.0) * clumps.part  # of the prompts of the opening half came before one decodes
    closed = steps.decode_s + seen * coming.mean * steps.added_s
    mean = np.where(load.closed, closed, steps.decode_s / slack)
    prompts = np.where(load.closed, coming.mean * clumps.part, load.rate_per_s * mean)
    pack = model.pack(load)
    wait = _either(
        load,
        lambda: _closed_wait(model, steps, (coming.mean, clumps, mean), pack),
        lambda: _wait(steps, prompts, mean, pack, running),
    )
    first = model.profile.request_host_s + wait.mean_s + steps.own_s
    return Found(running, mean, first, prompts, steps, coming, wait)


def _saturated(model: Model, load: Load, now: Found, running: Values) -> Found:
    """Give the times of a closed run whose prompts fill every step: what is in flight and does not run waits."""
    steps, most = now.steps, model.fed(load)
    seen = 1.0 - np.minimum(running / load.requests, 1.0) / 2.0  # the last ones decode when no prompt is left
    mean = steps.decode_s + seen * (steps.full_s - steps.decode_s)
    waiting = (load.concurrency / np.maximum(running, 1e-9) - 1.0) * load.answer_steps * mean
    full = load.closed & (running >= 0.999 * most)
    return now._replace(
        time_per_output_token_s=np.where(full, mean, now.time_per_output_token_s),
        time_to_first_token_s=np.where(full, waiting, now.time_to_first_token_s),
    )


def _closed_wait(model: Model, steps: Steps, at: tuple[Values, Clumps, Values], pack: Values) -> Wait:
    """Give the wait of a closed client's request, which starts when a step ends: it misses the next one at most."""
    prompts, clumps, mean = at
    held, share = _held_back_s(model, mean), -np.expm1(-prompts)
    mixed_s = steps.decode_s + np.minimum(prompts / np.maximum(share, 1e-12), np.maximum(pack, 1.0)) * steps.added_s
    rest = held + sum(
        part * _rest_s(model, step_s) for part, step_s in ((1.0 - share, steps.decode_s), (share, mixed_s))
    )
    busy = np.clip(prompts / pack, 0.0, 0.98)
    behind = busy / (2.0 * (1.0 - busy)) * steps.own_s * clumps.chance
    mean_s = rest + behind + prompts * (1.0 + held / mean) * steps.added_s
    left, rate = steps.own_s / (2.0 * (1.0 - busy)), prompts * clumps.part / mean
    return Wait(mean_s, mean, busy, left, prompts, rate, clumps.part)


def _rest_s(model: Model, step_s: Values) -> Values:
    """Give what is left of the steps that run while the host takes a request in."""
    late = model.profile.request_host_s
    return np.asarray(np.ceil(late / step_s) * step_s - late)


def _held_back_s(model: Model, mean: Values) -> Values:
    """Give how long a scheduler that collects requests, or looks at them now and then, holds one back."""
    rules = model.rules
    return (rules.batch_wait_steps + (rules.receive_interval_steps - 1.0) / 2.0) * mean + rules.batch_wait_s


def _wait(steps: Steps, prompts: Values, mean: Values, pack: Values, running: Values) -> Wait:
    """Give the wait of a request that comes at random: the rest of a step or of a prompt before it, then the queue."""
    rate = prompts / mean
    several = pack > 1.0
    service = np.where(several, steps.own_s, np.minimum(steps.full_s * steps.part_of_full, steps.own_s))
    carried = np.clip(rate * service, 0.0, 0.98)
    behind = service / (2.0 * (1.0 - np.where(several, 0.0, carried)))
    at_work = 1.0 - np.exp(-np.maximum(running - 1.0, 0.0))  # whoever comes sees the others, not itself
    decoding = (1.0 - carried) * at_work * steps.decode_s
    beside = rate * (carried * service + decoding) * several
    mean_s = carried * behind + decoding / 2.0 + beside * steps.added_s
    return Wait(mean_s, decoding, carried, behind, beside, rate, np.ones_like(mean))


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


def mixed_share(found: Found) -> Values:
    """Give the part of the steps that carry prompts."""
    steps, coming, part = found.steps, found.coming, found.wait.part
    closed = -np.expm1(-coming.mean * steps.chunks) * part
    opened = np.where(steps.chunks > 1.0, np.minimum(found.prompts_per_step * steps.chunks, 1.0), coming.share)
    return np.asarray(np.where(coming.share > 0.0, opened, closed))


def longest_step_s(found: Found) -> Values:
    """Give the longest step of a long run: the largest chunk, or as many prompts as come once in a thousand times."""
    steps, coming = found.steps, found.coming.mixed
    several = np.maximum(coming + 3.0 * np.sqrt(coming) - 1.0, 0.0) * (steps.chunks == 1.0)
    most = np.maximum(steps.full_s, steps.longest_s)
    return np.asarray(np.minimum(steps.longest_s + several * steps.added_s, most))


def _burst(model: Model, load: Load, steps: Steps, running: Values) -> Values:
    """Give the mean time to first token of requests that all start together: packed steps, one after another."""
    packed = model.packed_s(load, running)
    whole = load.concurrency * (load.prompt_tokens - load.cached_tokens) / model.rules.token_budget
    one = np.maximum(np.minimum(whole, 1.0) * packed, steps.own_s)
    several = packed * (np.ceil(whole) + 1.0) / 2.0
    return model.profile.request_host_s + np.where(whole <= 1.0, one, several)
