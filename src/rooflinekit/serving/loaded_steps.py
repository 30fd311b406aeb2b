"""Steps of a loaded server, in closed form: of decoding alone, and what prompts add to those that carry them."""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from rooflinekit.operators.forward import features
from rooflinekit.phases.deployment import Deployment
from rooflinekit.serving.engine import EngineProfile
from rooflinekit.serving.host import LOADED_BUSY_S, Layers, with_host_s
from rooflinekit.serving.scheduler import Rules
from rooflinekit.specs.step import Group

Values = NDArray[np.float64]
Amount = TypeVar("Amount", float, Values)
#: Prompts in one step that are told apart.
_TOGETHER = 16
_NOUGHT = np.zeros(1)


class Load(NamedTuple):
    """What comes: so many in flight (closed) or so many a second (open), and lengths; arrays that broadcast."""

    prompt_tokens: Values
    output_tokens: Values
    concurrency: Values
    rate_per_s: Values
    requests: Values
    cached_tokens: Values
    output_std: Values = _NOUGHT

    @property
    def new_tokens(self) -> Values:
        """Tokens of a prompt that are computed."""
        return self.prompt_tokens - self.cached_tokens

    @property
    def answer_steps(self) -> Values:
        """Tokens of an answer after its first."""
        return np.maximum(self.output_tokens - 1.0, 1e-9)

    @property
    def closed(self) -> NDArray[np.bool_]:
        """Which points are a client's that keeps so many in flight."""
        return np.isfinite(self.concurrency)

    @property
    def opening(self) -> Values:
        """Part of a closed run's requests that start together at its beginning."""
        return np.minimum(self.concurrency / self.requests, 1.0)


class Coming(NamedTuple):
    """Prompts that come during a step without prompts and during one with some, and the part of the latter."""

    plain: Values
    mixed: Values
    share: Values

    def chances(self, count: Values) -> Values:
        """Give the chances of so many prompts in a step: two Poisson numbers, mixed."""
        plain, mixed = (np.exp(-mean) * np.cumprod(mean / count, axis=0) for mean in (self.plain, self.mixed))
        return np.asarray((1.0 - self.share) * plain + self.share * mixed)

    @property
    def mean(self) -> Values:
        """Prompts that come during a step."""
        return np.asarray((1.0 - self.share) * self.plain + self.share * self.mixed)


class Steps(NamedTuple):
    """
    Steps of a server at some running batch. [s]

    ``decode_s`` is one without prompts, ``added_s`` what a prompt adds to those that carry it, ``own_s`` all of these,
    ``longest_s`` the longest of them and ``chunks`` how many they are, ``full_s`` a step whose budget is used up,
    ``part_of_full`` a prompt's part of one.
    """

    decode_s: Values
    added_s: Values
    own_s: Values
    longest_s: Values
    chunks: Values
    full_s: Values
    part_of_full: Values


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

    @cached_property
    def layers(self) -> Layers:
        """What the host's times depend on."""
        return Layers.of(self.deployment)

    @property
    def mixed(self) -> bool:
        """Whether prompts run beside decoding."""
        return self.rules.prefill != "serial"

    @property
    def chunked(self) -> bool:
        """Whether prompts fill what decoding leaves of a step's budget, in pieces where they must."""
        return self.rules.prefill == "mixed" and self.rules.chunked

    def fed(self, load: Load) -> Values:
        """Give the most sequences that decode while prompts fill what these leave of every step: no more can be fed."""
        steps = load.answer_steps
        return steps * self.rules.token_budget / (load.new_tokens + steps) if self.chunked else np.full(1, np.inf)

    def pack(self, load: Load) -> Values:
        """Give how many whole prompts a step's budget holds."""
        return np.asarray(self.rules.token_budget / np.maximum(load.new_tokens, 1.0))

    def steps(self, load: Load, running: Values, coming: Coming) -> Steps:
        """Time the steps at a running batch; a prompt goes through in chunks of what decoding leaves of the budget."""
        beside = _others(load, running) if self.mixed else np.zeros_like(running)
        least = 1.0 if self.rules.chunked else load.new_tokens  # a prompt that is never cut runs whole in any step
        room = np.maximum(self.rules.token_budget - beside, least)
        chunks = np.ceil(load.new_tokens / room)
        cases, count = self._cases(load, room, chunks), int(chunks.max())
        rows = np.concatenate([running[None], np.broadcast_to(beside, (len(cases.new) - 1, beside.size))])
        seconds = self._seconds(cases, _context(load), rows)
        alone, carried, several, full = seconds[0], seconds[1 : 1 + count], seconds[1 + count : -1], seconds[-1]
        own = np.where(cases.new[1 : 1 + count] > 0, carried, 0.0).sum(axis=0)
        part = load.new_tokens / room
        steps = Steps(alone, own, own, carried.max(axis=0), chunks, full, part)
        return steps._replace(added_s=self._added(steps, several, coming))

    def _added(self, steps: Steps, several: Values, coming: Coming) -> Values:
        """Give what a prompt adds: alone in its steps, beside others that come, or in steps that are full."""
        if not self.mixed:
            return steps.own_s
        alone = np.maximum(steps.own_s - steps.chunks * steps.decode_s, 0.0)
        together = self._together(steps, several, coming)
        whole = np.where(np.isfinite(together), np.maximum(together, 0.0), alone)
        full = np.minimum((steps.full_s - steps.decode_s) * steps.part_of_full, alone)
        shared = np.minimum(coming.mean * steps.chunks, 1.0) * self.chunked
        return np.where(steps.chunks == 1.0, whole, (1.0 - shared) * alone + shared * full)

    def _cases(self, load: Load, room: Values, chunks: Values) -> Cases:
        """Lay out a step without prompts, one for each chunk of a prompt, some with several whole ones, a full one."""
        new, held = load.new_tokens, load.cached_tokens
        index = np.arange(int(chunks.max()))[:, None]
        size = np.clip(new - index * room, 0.0, room)
        several = np.broadcast_to(np.arange(1.0, _TOGETHER + 1.0)[:, None], (_TOGETHER, new.size))
        none, whole, piece = np.zeros((1, new.size)), np.ones_like(several), np.minimum(room, new)[None, :]
        return Cases(
            np.concatenate([none, size, whole * new, piece]),
            np.concatenate([none, held + index * room, whole * held, held + (new - piece) / 2.0]),
            np.concatenate([none, (size > 0) * 1.0, several, np.maximum(room / new, 1.0)[None, :]]),
            np.concatenate([none, (index == chunks - 1.0) * 1.0, whole, piece / new]),
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
        seconds = timing.total_s(features(timing.plan.features, whole), LOADED_BUSY_S).reshape(shape)
        return with_host_s(
            self.profile, seconds, self.layers, sequences=beside + cases.prompts,
            prompts=np.broadcast_to(cases.prompts, shape), tokens=cases.new * cases.prompts + beside,
        )  # fmt: skip

    def packed_s(self, load: Load, running: Values) -> Values:
        """Time a step whose whole budget is prompts, as when many come at once."""
        new = load.new_tokens
        together = np.maximum(self.rules.token_budget / new, 1.0)
        size = np.minimum(new, self.rules.token_budget)
        cases = Cases(*(value[None, :] for value in (size, load.cached_tokens, together, np.ones_like(new))))
        return np.asarray(self._seconds(cases, _context(load), running / 2.0)[0])

    def _together(self, steps: Steps, several: Values, coming: Coming) -> Values:
        """Give what a prompt adds where several may come in one step; what does not fit fills others.

        The first one shares the read of the weights with the decoding sequences, the next ones are arithmetic.
        """
        count = np.arange(1.0, _TOGETHER + 1.0)[:, None]
        chance, filled = coming.chances(count), (steps.full_s - steps.decode_s) * steps.part_of_full
        added = np.where(count * steps.part_of_full <= 1.0, several - steps.decode_s, count * filled)
        came = (chance * count).sum(axis=0)
        mean = np.divide((chance * added).sum(axis=0), came, out=np.full_like(came, np.nan), where=came > 0)
        return np.asarray(mean)


def _others(load: Load, running: Values) -> Values:
    """Give the sequences that decode beside one that is read: it does not decode itself."""
    return np.where(
        load.closed, running * (1.0 - 1.0 / np.maximum(load.concurrency, 1.0)), np.maximum(running - 1.0, 0.0)
    )


def mean_context_tokens(prompt_tokens: Amount, output_tokens: Amount) -> Amount:
    r"""
    Mean number of tokens that a request holds while it decodes.

    .. math:: \bar c = p + o / 2

    Parameters
    ----------
    prompt_tokens, output_tokens : float or array
        :math:`p`, :math:`o`. [token]

    Returns
    -------
    context_tokens : float or array
        [token]

    Notes
    -----
    Exact: the steps of an answer find 1 to :math:`o - 1` of its tokens there, one more each.

    Examples
    --------
    >>> mean_context_tokens(2000.0, 200.0)
    2100.0
    """
    return prompt_tokens + output_tokens / 2.0


def _context(load: Load) -> Values:
    return mean_context_tokens(load.prompt_tokens, load.output_tokens)
