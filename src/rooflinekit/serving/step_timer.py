"""StepTimer: the deployment's own timing, laid out so that a simulator can ask for a million steps."""

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from rooflinekit.operators.cost import Feature
from rooflinekit.operators.forward import features
from rooflinekit.phases.deployment import Deployment
from rooflinekit.roofline.law import joined_time
from rooflinekit.serving.host import LOADED_BUSY_S
from rooflinekit.specs.step import Group

#: Kinds of feature that depend on how long sequences are; of all others a row is a function of tokens or of sequences.
_OF_CONTEXT = frozenset({"scores", "rows_read", "short_rows", "present"})
_OF_TOKENS = frozenset({"pass", "tokens", "experts"})
_OF_SAMPLES = frozenset({"pass", "sampled", "sampling"})


class StepTimer:
    """
    Seconds of any step of a loaded server.

    Parameters
    ----------
    deployment : Deployment
        Whose plan, rates and laws are used: no second path times a step.
    most_tokens, most_sequences : int
        Of a step: rows that depend on these alone are evaluated once for each number.
    longest_tokens : int
        Of a sequence.

    Notes
    -----
    Products, small kernels and collectives depend on the tokens of a step alone, the output layer on its sampled
    sequences, attention on contexts: three sums instead of one. Where a plan does not part so (states of recurrent
    layers, ranks that share sequences out, two forms of attention), every step is timed as a whole. Sequences of a
    decode group count with their mean context: exact where no context lies within a window or a tile of the attention
    kernel while others exceed it.

    Examples
    --------
    >>> import rooflinekit as rk
    >>> d = rk.Deployment("llama-3.1-8b", "h100-sxm")
    >>> timer = StepTimer(d, most_tokens=2048, most_sequences=64, longest_tokens=4096)
    >>> step = timer.seconds([(512.0, 0.0, 1.0)], decoding=32, context_tokens=1000.0)
    >>> whole = d.step((512, 0, 1), (1, 1000, 32), busy_s=float("inf")).time_s
    >>> abs(step / whole - 1) < 1e-9
    True
    """

    def __init__(self, deployment: Deployment, *, most_tokens: int, most_sequences: int, longest_tokens: int) -> None:
        self.timing = deployment.with_(memory_check=False).timing
        self.timing.require_peaks()
        self.most_tokens, self.most_sequences = most_tokens + most_sequences, most_sequences
        self.longest_tokens = longest_tokens
        self.wanted = self.timing.plan.features

    def seconds(
        self, prompts: Sequence[tuple[float, float, float]], *, decoding: float = 0.0, context_tokens: float = 0.0
    ) -> float:
        """Time a step of prompt chunks (new, held, sampled each) beside decoding sequences of a mean context."""
        if not self.parts:
            return self._whole(prompts, decoding, context_tokens)
        tokens = decoding + sum(new for new, _, _ in prompts)
        sampled = decoding + sum(sampled for _, _, sampled in prompts)
        return (
            self._by_tokens[round(tokens)]
            + self._by_samples[round(sampled)]
            + self._attention(prompts, decoding, context_tokens)
        )

    def _whole(self, prompts: Sequence[tuple[float, float, float]], decoding: float, context_tokens: float) -> float:
        groups = tuple(Group(new, held, 1.0, sampled) for new, held, sampled in prompts)
        if decoding:
            groups = (*groups, Group(1.0, context_tokens, float(decoding), 1.0))
        return float(self.timing.total_s(features(self.wanted, groups), LOADED_BUSY_S)[0])

    # ---- how the plan parts

    @cached_property
    def _uses(self) -> list[set[str]]:
        """Kinds of feature that each row's time depends on."""
        timing = self.timing
        used = timing.compute + timing.memory + timing.launch + timing.serial + timing.plan.message_bytes
        return [{self.wanted[column].kind for column in np.flatnonzero(row)} for row in used]

    @cached_property
    def parts(self) -> bool:
        """Whether every row is of tokens, of samples or of contexts alone."""
        whole = all(feature.shards == 1 and feature.form not in ("absorbed", "expanded") for feature in self.wanted)
        known = [kinds <= _OF_TOKENS or kinds <= _OF_SAMPLES or self._is_attention(kinds) for kinds in self._uses]
        return whole and all(known) and self._constant_stretch

    @staticmethod
    def _is_attention(kinds: set[str]) -> bool:
        """Tell a row of contexts: its queries and outputs count tokens too."""
        return bool(kinds & _OF_CONTEXT) and kinds <= (_OF_CONTEXT | _OF_TOKENS)

    @cached_property
    def _constant_stretch(self) -> bool:
        """Whether a loaded device slows all work alike: its burst budget is used up."""
        x = features(self.wanted, (Group(np.array([1.0, 4096.0])),))
        return bool(np.ptp(np.broadcast_to(self.timing.stretch(x, LOADED_BUSY_S), 2)) < 1e-12)  # noqa: PLR2004 - rounding

    # ---- the three sums

    @cached_property
    def _by_tokens(self) -> list[float]:
        tokens = np.arange(self.most_tokens + 1.0)
        rows = [kinds <= _OF_TOKENS for kinds in self._uses]
        return self._table((Group(tokens, 0.0, 1.0, 0.0),), rows)

    @cached_property
    def _by_samples(self) -> list[float]:
        samples = np.arange(self.most_sequences + 1.0)
        rows = [kinds <= _OF_SAMPLES and not kinds <= _OF_TOKENS for kinds in self._uses]
        return self._table((Group(1.0, 0.0, 1.0, samples),), rows)

    def _table(self, groups: tuple[Group, ...], rows: Sequence[bool]) -> list[float]:
        x = features(self.wanted, groups)
        seconds: NDArray[np.float64] = self.timing.rows_s(x, LOADED_BUSY_S)[np.array(rows)].sum(axis=0)
        return [float(value) for value in seconds]

    @cached_property
    def _rows(self) -> NDArray[np.float64]:
        """Coefficients of the attention rows over the features that they use: compute, memory, added."""
        timing, rows = self.timing, self._attention_rows
        stretch = float(np.max(timing.stretch(features(self.wanted, (Group(1.0),)), LOADED_BUSY_S)))
        parts = (stretch * timing.compute, timing.memory, timing.launch + timing.serial)
        return np.concatenate([part[rows][:, self._columns] for part in parts])

    @cached_property
    def _attention_rows(self) -> NDArray[np.bool_]:
        return np.array([self._is_attention(kinds) for kinds in self._uses])

    @cached_property
    def _exponents(self) -> list[float]:
        exponents: list[float] = self.timing.exponents[self._attention_rows].tolist()
        return exponents

    @cached_property
    def _columns(self) -> NDArray[np.int64]:
        used = set().union(*(kinds for kinds in self._uses if self._is_attention(kinds)))
        return np.array([i for i, feature in enumerate(self.wanted) if feature.kind in used])

    @cached_property
    def _few(self) -> tuple[Feature, ...]:
        return tuple(self.wanted[column] for column in self._columns)

    @cached_property
    def _once(self) -> NDArray[np.bool_]:
        """Features that count once a step, however many groups it has."""
        return np.array([feature.kind == "pass" for feature in self._few])

    # Coefficients times features are linear, so that a step is a sum of what each sequence brings: compute, memory and
    # added seconds of every attention row, worked out once for each length.

    @cached_property
    def _of_step(self) -> list[float]:
        """Seconds that a step has once, however many sequences are in it."""
        return [float(value) for value in self._rows[:, self._once].sum(axis=1)]

    @cached_property
    def _of_decode(self) -> list[list[float]]:
        """Seconds of one decoding sequence, for every length of its context."""
        return self._brought(Group(1.0, np.arange(self.longest_tokens + 2.0), 1.0))

    @cached_property
    def _of_prompt(self) -> list[list[float]]:
        """Seconds of the first chunk of a prompt, for every length of it."""
        return self._brought(Group(np.arange(self.most_tokens + 1.0), 0.0, 1.0))

    def _brought(self, group: Group) -> list[list[float]]:
        x = features(self._few, (group,))[~self._once]
        brought: list[list[float]] = (self._rows[:, ~self._once] @ x).T.tolist()
        return brought

    def _attention(
        self, prompts: Sequence[tuple[float, float, float]], decoding: float, context_tokens: float
    ) -> float:
        total = self._of_step
        if decoding:
            below = int(context_tokens)
            part = context_tokens - below
            ends = zip(total, self._of_decode[below], self._of_decode[below + 1], strict=True)
            total = [one + decoding * ((1.0 - part) * low + part * high) for one, low, high in ends]
        for new, held, _ in prompts:
            more = self._brought(Group(new, held, 1.0))[0] if held else self._of_prompt[int(new)]
            total = [one + other for one, other in zip(total, more, strict=True)]
        rows = len(self._exponents)
        joined = map(joined_time, total[:rows], total[rows : 2 * rows], self._exponents)
        return float(sum(joined, sum(total[2 * rows :])))
