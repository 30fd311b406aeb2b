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
from rooflinekit.serving.engine import EngineProfile, load_engine
from rooflinekit.serving.serve import Serving, serve
from rooflinekit.serving.speculative import MODULE, Draft, Speculation, speculate
from rooflinekit.specs.catalog import load_device
from rooflinekit.specs.device import Device
from rooflinekit.specs.step import checked

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd

#: What is compared: name in tables, field of :class:`Figures`.
METRICS = {
    "prefill": "prefill_s",
    "decode": "decode_step_s",
    "TTFT": "time_to_first_token_s",
    "TPOT": "time_per_output_token_s",
    "ITL p99": "inter_token_latency_p99_s",
    "throughput": "output_tokens_per_s",
    "KV capacity": "pool_requests",
    "cost": "cost_per_token",
}
#: A ratio this far from 1 moves: a limit that doubles halves what it limits.
THRESHOLD = 0.2
MOVES, STAYS = "moves", "does not move"
_LOADED = float("inf")


@dataclass(frozen=True)
class Figures:
    """What a state delivers; ``cost_per_token`` is in GPU-seconds, or in dollars where prices were given."""

    prefill_s: float
    decode_step_s: float
    time_to_first_token_s: float
    time_per_output_token_s: float
    inter_token_latency_p99_s: float
    output_tokens_per_s: float
    pool_requests: float
    cost_per_token: float
    method: str


@dataclass(frozen=True)
class Lever:
    """
    One change with its effect.

    Attributes
    ----------
    change : str
        What was changed, and nothing else.
    ratios : dict of str to float
        By metric (:data:`METRICS`): after over before. Not-a-number where it cannot be told.
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
    """

    state: State
    base: Figures
    rows: tuple[Lever, ...]
    threshold: float
    basis: str
    batch: float = field(repr=False)

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
            context_tokens=_context(state),
            batch=self.batch,
            cached_tokens=state.cached_tokens,
        )

    def __repr__(self) -> str:
        """Give one line."""
        base, count = self.base, sum(bool(row.moved) for row in self.rows)
        times = (
            f"TTFT {units.duration(base.time_to_first_token_s)}, TPOT {units.duration(base.time_per_output_token_s)}"
        )
        return f"{times}: {count} of {len(self.rows)} changes move something ({self.basis})"


def levers(
    deployment: Deployment,
    prompt_tokens: float,
    output_tokens: float,
    *,
    rate_per_s: float | None = None,
    concurrency: int | None = None,
    engine: str | EngineProfile = "vllm",
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

    Notes
    -----
    ``prefill`` is one prompt alone, in the engine's chunks; ``decode`` a step at the running batch of the base: service
    times, in a loaded server. TTFT, TPOT and ITL are what clients see. Throughput is what the clients get in a closed
    run, what the server could carry at a rate. KV capacity counts requests of this length. Where either side of a
    ratio must be simulated, both are.

    Examples
    --------
    >>> import rooflinekit as rk
    >>> found = levers(rk.Deployment("qwen3-8b", "gb10"), 2048, 256)
    >>> found["2x memory bandwidth"].words["decode"], found["2x memory bandwidth"].words["prefill"]
    ('moves', 'does not move')
    """
    checked("threshold", threshold, positive=True)
    if rate_per_s is None and concurrency is None:
        concurrency = 1
    state = State(
        deployment.with_(memory_check=False), load_engine(engine), prompt_tokens, output_tokens, rate_per_s,
        concurrency, cached_tokens,
    )  # fmt: skip
    made = _Comparison(state, usd_per_hour or {}, threshold)
    others = _others(deployment) if devices is None else tuple(devices)
    rows = [made.row(change) for change in changes(state, others)]
    at = next(index for index, row in enumerate(rows) if row.change.startswith("tensor parallel")) + 1
    rows.insert(at, made.speculation(acceptance, draft))
    base, serving = made.base, made.serving
    told = f"overloaded: carries {serving.most_requests_per_s:.3g} requests/s" if serving.overloaded else serving.method
    return Levers(state, base, tuple(rows), threshold, f"{serving.basis}; {told}", made.batch)


def _others(deployment: Deployment) -> tuple[object, ...]:
    return ("h200-sxm",) if deployment.device.id.startswith("h100-sxm") else ("h100-sxm",)


def _context(state: State) -> float:
    """Mean context of an answer's steps."""
    return state.prompt_tokens + state.output_tokens / 2.0


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
        self.serving = _served(state, "auto")
        self.batch = max(self.serving.running, 1.0)
        self.base = self._figures(state, self.serving)
        self._by_method = {_method(self.serving): self.base}

    def row(self, change: Change) -> Lever:
        """Make a change and compare, or say why it cannot be."""
        try:
            state = change.make(self.state)
            serving = _served(state, "simulation" if self._simulated else "auto")
            after = self._figures(state, serving)
            before = self._before(_method(serving))
        except RooflinekitError as error:
            return Lever(change.name, dict.fromkeys(METRICS, float("nan")), {}, str(error))
        return self._lever(change.name, before, after, self._note(state, serving))

    @property
    def _simulated(self) -> bool:
        return _method(self.serving) == "simulation"

    def _before(self, method: str) -> Figures:
        """Give the base's figures as found by this method: like is compared with like."""
        if method not in self._by_method:
            self._by_method[method] = self._figures(self.state, _served(self.state, method))
        return self._by_method[method]

    def _figures(self, state: State, serving: Serving) -> Figures:
        closed = state.concurrency is not None
        rate = serving.output_tokens_per_s if closed else serving.most_requests_per_s * state.output_tokens
        return Figures(
            prefill_s=_prefill_s(state),
            decode_step_s=_decode_s(state, self.batch * self._growth(state)),
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
            serving.method: _method(serving) == "simulation",
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
        if acceptance is None:
            why = "acceptance not given: measure it on your own requests"
            return Lever("speculation", dict.fromkeys(METRICS, float("nan")), {}, why)
        made = speculate(
            self.state.deployment, acceptance=acceptance, context_tokens=_context(self.state), batch=self.batch,
            draft=draft,
        )  # fmt: skip
        name = f"speculation, {made.drafted} tokens at acceptance {acceptance:g}"
        return self._lever(name, self.base, self._speculated(made), "KV of the draft left out")

    def _speculated(self, made: Speculation) -> Figures:
        """Put the speculative step in the place of the plain one: what prompts add to steps stays."""
        base, answers = self.base, self.state.output_tokens
        saved = made.plain_s - made.time_per_output_token_s
        work = base.prefill_s + answers * made.plain_s / self.batch
        gain = work / (work - answers * saved / self.batch)
        return Figures(
            base.prefill_s, made.time_per_output_token_s, base.time_to_first_token_s,
            base.time_per_output_token_s - saved,
            base.inter_token_latency_p99_s + made.step_s - made.plain_s, gain * base.output_tokens_per_s,
            base.pool_requests, base.cost_per_token / gain, base.method,
        )  # fmt: skip


def _served(state: State, method: str) -> Serving:
    return serve(
        state.deployment, prompt_tokens=state.prompt_tokens, output_tokens=state.output_tokens,
        rate_per_s=state.rate_per_s, concurrency=state.concurrency, engine=state.engine,
        cached_tokens=state.cached_tokens, method=method,
    )  # fmt: skip


def _method(serving: Serving) -> str:
    return serving.method.partition(":")[0]


def _prefill_s(state: State) -> float:
    """Time one prompt alone in a loaded server, in the engine's chunks."""
    prompt, held = max(int(state.prompt_tokens), 1), int(state.cached_tokens)
    budget = state.budget if state.engine.enable_chunked_prefill or state.engine.micro_batch_tokens else prompt
    whole = state.deployment.chunked_prefill(prompt, token_budget=budget, cached_tokens=held, busy_s=_LOADED)
    return float(whole.time_s)


def _decode_s(state: State, batch: float) -> float:
    return float(state.deployment.decode(_context(state), batch=batch, busy_s=_LOADED).time_s)


def _ratio(after: float, before: float) -> float:
    if np.isinf(after) and np.isinf(before):
        return float("nan")
    return float(np.divide(after, before))
