"""Levers: what moves which phase. One change at a time, each computed anew, as ratios to what there was before."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from rooflinekit import units
from rooflinekit.errors import InvalidInputError, RooflinekitError
from rooflinekit.phases.deployment import Deployment
from rooflinekit.serving.changes import Change, State, changes
from rooflinekit.serving.elasticity import elasticities
from rooflinekit.serving.engine import EngineProfile
from rooflinekit.serving.host import profile_for, served_by
from rooflinekit.serving.lever_figures import METRICS, Figures, alone_s, how, served, step_s
from rooflinekit.serving.loaded_steps import mean_context_tokens
from rooflinekit.serving.serve import Serving
from rooflinekit.serving.speculative import IMAGINED, MODULE, Draft, Speculation, has_module, speculate
from rooflinekit.specs.catalog import load_device
from rooflinekit.specs.device import Device
from rooflinekit.specs.step import checked

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd

#: A ratio this far from 1 moves: a limit that doubles halves what it limits.
THRESHOLD = 0.2
MOVES, STAYS = "moves", "does not move"
_DRAFTED = 4  # tokens for which a break-even is told where no acceptance is given


@dataclass(frozen=True)
class Lever:
    """
    One change with its effect.

    Attributes
    ----------
    change : str
        What was changed, and nothing else.
    ratios : dict of str to float
        By metric (prefill, decode, TTFT, TPOT, ITL p99, throughput, KV capacity, cost): after over before.
        Not-a-number where it cannot be told.
    words : dict of str to str
        By metric: "moves" or "does not move"; empty where it cannot be told.
    note : str
        Why it cannot be, or what else is to be said.
    """

    change: str
    ratios: dict[str, float]
    words: dict[str, str]
    note: str = ""

    @property
    def moved(self) -> tuple[str, ...]:
        """Metrics that move."""
        return tuple(name for name, word in self.words.items() if word == MOVES)


@dataclass(frozen=True)
class Levers:
    """
    The levers of a server.

    Attributes
    ----------
    base : Figures
        Without any change.
    rows : tuple of Lever
        A change each; those that cannot be come with the reason.
    threshold : float
        Part by which a ratio must differ from 1 to move.
    basis : str
        Whose constants and engine, and how it was found.
    batch : float
        Sequences of a decode step, at least one.
    priced : bool
        Whether costs are in dollars; in GPU-seconds otherwise.
    """

    state: State
    base: Figures
    rows: tuple[Lever, ...]
    threshold: float
    basis: str
    batch: float = field(repr=False)
    priced: bool = False

    def __getitem__(self, change: str) -> Lever:
        """Return the lever whose name begins so."""
        found = next((row for row in self.rows if row.change.startswith(change)), None)
        if found is None:
            message = f"{change!r}: expected one of {', '.join(row.change for row in self.rows)}"
            raise InvalidInputError(message)
        return found

    def table(self) -> "pd.DataFrame":
        """Give a row a change: its ratios, then what moves in words, then the note."""
        import pandas as pd  # noqa: PLC0415 - loads on first use

        return pd.DataFrame([{"change": row.change, **row.ratios, **_told(row)} for row in self.rows])

    @cached_property
    def elasticities(self) -> "pd.DataFrame":
        """Elasticities, d ln t / d ln x, of one prompt's prefill and of a decode step at the running batch."""
        state = self.state
        return elasticities(
            state.deployment,
            prompt_tokens=state.prompt_tokens,
            context_tokens=mean_context_tokens(state.prompt_tokens, state.output_tokens),
            batch=self.batch,
            cached_tokens=state.cached_tokens,
        )

    def __repr__(self) -> str:
        """Give one line."""
        base, count = self.base, sum(bool(row.moved) for row in self.rows)
        first, each = base.time_to_first_token_s, base.time_per_output_token_s
        times = "overloaded" if np.isinf(first) else f"TTFT {units.duration(first)}, TPOT {units.duration(each)}"
        return f"{times}: {count} of {len(self.rows)} changes move something ({self.basis})"


def levers(
    deployment: Deployment,
    prompt_tokens: float,
    output_tokens: float,
    *,
    rate_per_s: float | None = None,
    concurrency: int | None = None,
    engine: str | EngineProfile | None = None,
    cached_tokens: float = 0.0,
    devices: tuple[object, ...] | None = None,
    acceptance: float | None = None,
    draft: Draft = MODULE,
    usd_per_hour: "Mapping[str, float] | None" = None,
    threshold: float = THRESHOLD,
) -> Levers:
    """
    Tell what moves which phase: one change at a time, each as a ratio to what there was.

    Parameters
    ----------
    deployment : Deployment
        What serves.
    prompt_tokens, output_tokens, cached_tokens : float
        Of each request; prefix that the cache holds already. [token]
    rate_per_s, concurrency : float, int
        What comes; one request in flight if neither is given.
    engine : str or EngineProfile
        Whose scheduler and pool.
    devices : tuple of str or Device, optional
        Others to run on; the H100 (or from it the H200) if not given.
    acceptance : float, optional
        Of speculated tokens; without it speculation is listed and left open.
    draft
        As for :func:`~rooflinekit.speculate`.
    usd_per_hour : mapping of str to float, optional
        Price of a GPU by device, where its file has none or another: without prices the cost is compared in GPU time,
        and that of another device left open.
    threshold : float
        Part by which a ratio must differ from 1 to move.

    Returns
    -------
    levers : Levers

    Raises
    ------
    InvalidInputError
        A size is wrong, or both rate and concurrency are given.
    UnknownNameError
        A device that is named there is not.

    Notes
    -----
    ``prefill`` is one prompt alone, in the engine's chunks; ``decode`` a step at the running batch of the base: service
    times, in a loaded server. TTFT, TPOT and ITL are what clients see. Throughput is what the clients get in a closed
    run, what the server could carry at a rate. KV capacity counts requests of this length. A closed run is simulated;
    at a rate the closed form answers, and where either side of a ratio must be simulated, both are.

    Examples
    --------
    >>> import rooflinekit as rk
    >>> found = levers(rk.Deployment("qwen3-8b", "gb10"), 2048, 32)
    >>> found["2x memory bandwidth"].words["decode"], found["2x memory bandwidth"].words["prefill"]
    ('moves', 'does not move')
    """
    if not float(np.max(checked("threshold", threshold, positive=True))) < 1.0:
        message = f"threshold={threshold!r}: expected a part below 1, of what a change must at least take off or add"
        raise InvalidInputError(message)
    if rate_per_s is None and concurrency is None:
        concurrency = 1
    profile = profile_for(deployment, engine)
    state = State(
        served_by(deployment, profile).with_(memory_check=False), profile, prompt_tokens, output_tokens, rate_per_s,
        concurrency, cached_tokens,
    )  # fmt: skip
    made = _Comparison(state, usd_per_hour or {}, threshold)
    others = _others(deployment) if devices is None else tuple(devices)
    for name in (one for one in others if isinstance(one, str)):
        load_device(name)  # a name that is none is a slip, not a change that cannot be
    rows = [made.row(change) for change in changes(state, others)]
    at = next(index for index, row in enumerate(rows) if row.change.startswith("tensor parallel")) + 1
    rows.insert(at, made.speculation(acceptance, draft))
    base, serving = made.base, made.serving
    over = f"overloaded: carries {serving.most_requests_per_s:.3g} requests/s"
    told = over if serving.overloaded else how(serving)
    return Levers(state, base, tuple(rows), threshold, f"{serving.basis}; {told}", made.batch, made.priced)


def _others(deployment: Deployment) -> tuple[object, ...]:
    return ("h200-sxm",) if deployment.device.id.startswith("h100-sxm") else ("h100-sxm",)


def _told(row: Lever) -> dict[str, Any]:
    moved = ", ".join(row.moved) if row.words else ""
    return {"moves": moved or ("nothing" if row.words else "-"), "note": row.note}


class _Comparison:
    """A base and what is measured against it: figures by either method, each found once."""

    def __init__(self, state: State, prices: "Mapping[str, float]", threshold: float) -> None:
        for device, price in prices.items():
            checked(f"usd_per_hour of {device}", price, positive=True)
        self.state, self.threshold = state, threshold
        self.prices = {load_device(device).id: price for device, price in prices.items()}
        self.serving = served(state, self._chosen)
        self.batch = max(self.serving.running, 1.0)
        self.base = self._figures(state, self.serving)
        self._by_method = {how(self.serving): self.base}

    def row(self, change: Change) -> Lever:
        """Make a change and compare, or say why it cannot be."""
        try:
            state = change.make(self.state)
            serving = served(state, "simulation" if self._simulated else self._chosen)
            after = self._figures(state, serving)
            before = self._before(how(serving))
        except RooflinekitError as error:
            return Lever(change.name, dict.fromkeys(METRICS, float("nan")), {}, str(error))
        return self._lever(change.name, before, after, self._note(state, serving))

    @property
    def _chosen(self) -> str:
        """Simulate closed runs: few in flight are no mean field."""
        return "auto" if self.state.concurrency is None else "simulation"

    @property
    def _simulated(self) -> bool:
        return how(self.serving) == "simulation"

    def _before(self, method: str) -> Figures:
        """Give the base's figures as found by this method: like is compared with like."""
        if method not in self._by_method:
            self._by_method[method] = self._figures(self.state, served(self.state, method))
        return self._by_method[method]

    def _figures(self, state: State, serving: Serving) -> Figures:
        closed = state.concurrency is not None
        rate = serving.output_tokens_per_s if closed else serving.most_requests_per_s * state.output_tokens
        return Figures(
            prefill_s=alone_s(state),
            decode_step_s=step_s(state, self.batch * self._growth(state)),
            time_to_first_token_s=serving.time_to_first_token_s.mean,
            time_per_output_token_s=serving.time_per_output_token_s.mean,
            inter_token_latency_p99_s=serving.inter_token_latency_s.p99,
            output_tokens_per_s=rate,
            pool_requests=serving.pool_requests,
            cost_per_token=self._price(state) * state.deployment.layout.devices / rate,
            method=serving.method,
        )

    def _growth(self, state: State) -> float:
        """Give the factor by which more comes than in the base: the batch of a step grows with it."""
        before, after = (one.concurrency or one.rate_per_s or 1.0 for one in (self.state, state))
        return after / before

    def _price(self, state: State) -> float:
        """Dollars of a GPU-second; where the base has no price, GPU-seconds are counted on its own device alone."""
        before, after = (self._usd_per_hour(one.deployment.device) for one in (self.state, state))
        if before is None:
            return 1.0 if self._same_device(state) else float("nan")
        return float("nan") if after is None else after / units.HOUR

    @property
    def priced(self) -> bool:
        """Whether the cost of the base is in dollars."""
        return self._usd_per_hour(self.state.deployment.device) is not None

    def _usd_per_hour(self, device: Device) -> float | None:
        return self.prices.get(device.id, device.price.usd_per_hour if device.price else None)

    def _same_device(self, state: State) -> bool:
        return state.deployment.device.id == self.state.deployment.device.id

    def _note(self, state: State, serving: Serving) -> str:
        named = {one.deployment.device.id: one.deployment.device for one in (self.state, state)}
        bare = ", ".join(name for name, device in named.items() if self._usd_per_hour(device) is None)
        notes = {
            f"overloaded: carries {serving.most_requests_per_s:.3g} requests/s at most": serving.overloaded,
            f"cost unknown: no usd_per_hour of {bare}": bool(np.isnan(self._price(state))),
            serving.method: how(serving) == "simulation" and self._chosen == "auto",
        }
        return "; ".join(note for note, holds in notes.items() if holds)

    def _lever(self, name: str, before: Figures, after: Figures, note: str) -> Lever:
        ratios = {metric: _ratio(getattr(after, at), getattr(before, at)) for metric, at in METRICS.items()}
        return Lever(name, ratios, {metric: self._word(ratio) for metric, ratio in ratios.items()}, note)

    def _word(self, ratio: float) -> str:
        if np.isnan(ratio):
            return ""
        return MOVES if not 1.0 - self.threshold < ratio < 1.0 / (1.0 - self.threshold) else STAYS

    # ---- speculation, which changes what a decode step gives

    def speculation(self, acceptance: float | None, draft: Draft) -> Lever:
        """Compare decoding with speculated tokens at the running batch."""
        draft = IMAGINED if draft == MODULE and not has_module(self.state.deployment) else draft
        imagined = "the draft is a module that the model does not have" * (draft == IMAGINED)
        if acceptance is None:
            even = self._speculate(0.0, draft, self.batch, _DRAFTED).break_even_acceptance
            pays = f"pay from {even:.2f} on" if np.isfinite(even) else "never pay"
            why = f"needs your acceptance rate; {_DRAFTED} drafted tokens {pays} at batch {self.batch:.3g}"
            why += f"; {imagined}" * bool(imagined)
            return Lever("speculation", dict.fromkeys(METRICS, float("nan")), {}, why)
        made = self._speculate(acceptance, draft, self.batch)
        full = made if self.state.concurrency else self._speculate(acceptance, draft, self._most, made.drafted)
        name = f"speculation, {made.drafted} tokens at acceptance {acceptance:g}"
        note = "KV of the draft left out" + f"; {imagined}" * bool(imagined)
        return self._lever(name, self.base, self._speculated(made, self._gain(full)), note)

    def _speculate(self, acceptance: float, draft: Draft, batch: float, drafted: int | None = None) -> Speculation:
        return speculate(
            self.state.deployment, acceptance=acceptance, context_tokens=self._context, batch=batch,
            drafted=drafted, draft=draft,
        )  # fmt: skip

    @property
    def _context(self) -> float:
        return mean_context_tokens(self.state.prompt_tokens, self.state.output_tokens)

    @property
    def _most(self) -> float:
        """Sequences of a full server: what its throughput at a rate is of."""
        held = self.state.engine.sequences(self.state.deployment.device) or float("inf")
        return max(min(self.base.pool_requests, held), 1.0)

    def _gain(self, made: Speculation) -> float:
        """Give the factor of throughput: prompts cost what they did, answers what a speculative step gives."""
        answers = self.state.output_tokens / made.batch
        work = self.base.prefill_s + answers * made.plain_s
        return work / (work - answers * (made.plain_s - made.time_per_output_token_s))

    def _speculated(self, made: Speculation, gain: float) -> Figures:
        """Put the speculative step in the place of the plain one: what prompts add to steps stays."""
        base, saved = self.base, made.plain_s - made.time_per_output_token_s
        return Figures(
            base.prefill_s, made.time_per_output_token_s, base.time_to_first_token_s,
            base.time_per_output_token_s - saved,
            base.inter_token_latency_p99_s + made.step_s - made.plain_s, gain * base.output_tokens_per_s,
            base.pool_requests, base.cost_per_token / gain, base.method,
        )  # fmt: skip


def _ratio(after: float, before: float) -> float:
    if np.isinf(after) and np.isinf(before):
        return float("nan")
    return float(np.divide(after, before))
