"""One run as a case: its workload, what was seen of it, and what it shows without fault and with one."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import ceil
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from rooflinekit.calibration.served_run import Arrivals, ServedRun, served_run
from rooflinekit.calibration.served_shown import (
    BATCH_PARTS,
    CLIENT,
    HIT_SHARES,
    TAIL,
    Passes,
    as_played,
    as_served,
    between,
)
from rooflinekit.errors import NotCalibratedError
from rooflinekit.phases.deployment import Deployment
from rooflinekit.phases.estimate import Estimate
from rooflinekit.serving.host import LOADED_BUSY_S

Values = NDArray[np.float64]
#: What repeated runs differ by, where nothing else does.
NOISE = 0.05
#: What a prediction without a measured spread is taken to be off by.
_UNKNOWN_SPREAD = 0.2
#: Of memory, where engines put weights and cache.
_POOL = 0.9


@dataclass(frozen=True, eq=False)
class Case:
    """
    One run: its workload, what was seen, and what the deployment should show.

    ``observed`` holds of each symptom what the records say: ``prefill_s`` (the pass alone), ``ttft_s`` (as a client
    sees it), ``step_s``, ``gap_p99_s``, ``request_s`` (where nothing else was timed), ``tokens_per_s``, ``running``,
    ``queue_s``, ``waiting``, ``usage``, ``hit_rate``, ``preemptions``. ``served`` is a run in which requests come and
    go; ``cached_tokens`` of each prompt are known to lie in the cache, and ``pool_tokens`` is what its engine holds.

    Where records say how requests came, ``run`` is what the serving room makes of them, host times, waits and the burst
    that opens a closed run in it; ``told_by`` says of which quantity and statistic a symptom is. A fault then changes
    its figures as it changes the passes in them. Without it a first token is a prefill and half a step.
    ``request_rate`` is what a client says to send at, of a run of so many ``requests``.
    """

    deployment: Deployment
    prompt_tokens: float
    output_tokens: float
    batch: float
    served: bool
    observed: Mapping[str, float]
    token_budget: float
    cached_tokens: float = 0.0
    pool_tokens: float | None = None
    told_by: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    run: ServedRun | None = None
    request_rate: float | None = None
    requests: float | None = None

    # ---- passes, for any number of severities at once

    def prefill_s(self, cached_tokens: Values | float = 0.0) -> Values:
        """Seconds of the prompt's prefill; of all prompts of a fixed batch."""
        held = np.maximum(cached_tokens, self.cached_tokens)
        alone = self._roomy.prefill(self.prompt_tokens, cached_tokens=held, batch=self.prompts, busy_s=self._busy_s)
        return self.prefill_with_host_s(np.asarray(alone.time_s), self.prompt_tokens - held)

    def prefill_with_host_s(self, device_s: Values, new_tokens: Values | float | None = None) -> Values:
        """Add the host's part to the device's seconds of a prefill: once for every chunk."""
        if self.run is None:
            return device_s
        new = self.prompt_tokens - self.cached_tokens if new_tokens is None else new_tokens
        chunks = np.ceil(new / self.token_budget)
        return chunks * self.run.passed_s(device_s / chunks, sequences=1.0, prompts=1.0, tokens=new / chunks)

    def step_s(self, batch: Values | float) -> Values:
        """Seconds of a decode step in the middle of the answers."""
        alone = self._roomy.decode(self.context_tokens, batch=batch, busy_s=self._busy_s)
        return self.step_with_host_s(np.asarray(alone.time_s), batch)

    def step_with_host_s(self, device_s: Values, batch: Values | float) -> Values:
        """Add the host's part to the device's seconds of a decode step."""
        if self.run is None:
            return device_s
        return self.run.passed_s(device_s, sequences=batch, prompts=0.0, tokens=batch)

    def mixed(self, batch: Values | float, cached_tokens: Values | float = 0.0) -> Estimate:
        """Step that carries a chunk of a prompt beside the other decoding sequences, on the device."""
        held = np.maximum(cached_tokens, self.cached_tokens) if self.run else 0.0
        chunk = np.minimum(self.token_budget, self.prompt_tokens - held)
        return self._roomy.step(
            (chunk, held, 1.0), (1.0, self.context_tokens, self._others(batch)), busy_s=self._busy_s
        )

    def mixed_s(self, batch: Values | float, cached_tokens: Values | float = 0.0) -> Values:
        """Seconds of it, the host's in them."""
        return self.mixed_with_host_s(np.asarray(self.mixed(batch, cached_tokens).time_s), batch)

    def mixed_with_host_s(self, device_s: Values, batch: Values | float) -> Values:
        """Add the host's part to the device's seconds of a step with a chunk."""
        if self.run is None:
            return device_s
        others = self._others(batch)
        tokens = others + min(self.token_budget, self.prompt_tokens)
        return self.run.passed_s(device_s, sequences=others + 1.0, prompts=1.0, tokens=tokens)

    def burst(self, cached_tokens: Values | float = 0.0) -> Estimate:
        """Pass that reads as many prompts as come together, or a chunk of one, beside sequences that decode."""
        new = self.prompt_tokens - np.maximum(cached_tokens, self.cached_tokens)
        together = np.clip(self.token_budget / new, 1.0, self._come_together)
        chunk = np.minimum(new, self.token_budget), self.prompt_tokens - new, together
        return self._roomy.step(chunk, (1.0, self.context_tokens, self._others(self.batch)), busy_s=self._busy_s)

    def burst_with_host_s(self, device_s: Values, cached_tokens: Values | float = 0.0) -> Values:
        """Give the seconds in which all prompts that come together are read."""
        if self.run is None:
            return device_s
        one = self.run.passed_s(device_s, sequences=self.batch, prompts=1.0, tokens=self.token_budget)
        return self.burst_passes(cached_tokens) * one

    def burst_passes(self, cached_tokens: Values | float = 0.0) -> Values:
        """Count the passes that read all prompts that come together."""
        new = self.prompt_tokens - np.maximum(cached_tokens, self.cached_tokens)
        return np.maximum(new * self._come_together / self.token_budget, 1.0)

    @cached_property
    def burst_s(self) -> Values:
        """Seconds in which all prompts that come together are read."""
        return self.burst_with_host_s(np.asarray(self.burst().time_s))

    @cached_property
    def _come_together(self) -> float:
        """Prompts that come together: all of a closed client, whose requests start and end together."""
        return self.batch if self.run is not None and self.run.arrivals.concurrency else 1.0

    @staticmethod
    def _others(batch: Values | float) -> Values:
        return np.maximum(np.asarray(batch) - 1.0, 1.0)

    @property
    def _busy_s(self) -> float:
        """Time at work before a pass: a loaded server's device has long left its burst."""
        return 0.0 if self.run is None else LOADED_BUSY_S

    @cached_property
    def longest_chunk(self) -> float:
        """How much longer a step is that carries a full budget of a longer prompt; 1 where prompts are of one length.

        The mean of equal lengths is a whole number.
        """
        if float(self.prompt_tokens).is_integer() or not self.served:
            return 1.0
        decoding = (1.0, self.context_tokens, max(self.batch - 1.0, 1.0))
        full = self._roomy.step((max(self.token_budget, self.prompt_tokens), 0.0, 1.0), decoding).time_s
        return max(float(full / self.mixed(self.batch).time_s), 1.0)

    def mixed_share(self, batch: Values | float) -> Values:
        """Share of steps that carry a chunk because the workload says so: prompts that come per output token."""
        if self.run is not None:
            return np.clip(self._played_share * self._others(batch) / self._others(self.batch), 0.0, 1.0)
        chunks = np.ceil(self.prompt_tokens / self.token_budget) if self.served else 0.0
        return np.clip((np.asarray(batch) - 1.0) * chunks / self.output_tokens, 0.0, 1.0)

    @cached_property
    def _played_share(self) -> float:
        """Share of steps with one chunk that makes the mean step what it is in the run without fault."""
        if self.run is None:
            return 0.0
        alone, mixed = float(self.step_s(self.batch)), float(self.mixed_s(self.batch))
        mean = self.run.latency_s(CLIENT["step_s"], "mean")
        return (mean - alone) / (mixed - alone) if mixed > alone and np.isfinite(mean) else 0.0

    @cached_property
    def prefill(self) -> Estimate:
        """The prompt's prefill, on the device."""
        held, busy = self.cached_tokens, self._busy_s
        return self._roomy.prefill(self.prompt_tokens, cached_tokens=held, batch=self.prompts, busy_s=busy)

    @cached_property
    def step(self) -> Estimate:
        """The decode step at the batch, on the device."""
        return self._roomy.decode(self.context_tokens, batch=self.batch, busy_s=self._busy_s)

    @cached_property
    def _roomy(self) -> Deployment:
        return self.deployment.with_(memory_check=False)

    @property
    def prompts(self) -> float:
        """Prompts that a prefill reads: one where requests come and go, all of a fixed batch."""
        return 1.0 if self.served else self.batch

    @property
    def passes(self) -> int:
        """Passes that read a prompt."""
        return ceil((self.prompt_tokens - self.cached_tokens) / self.token_budget)

    @property
    def context_tokens(self) -> float:
        """Tokens in the cache in the middle of an answer."""
        return self.prompt_tokens + (self.output_tokens - 1.0) / 2.0

    @cached_property
    def pool_sequences(self) -> float:
        """Sequences whose caches fit: by the engine's own figure, else beside the weights; infinity where not known."""
        return self.pool_by_settings if self.pool_tokens is None else self.pool_tokens / self.context_tokens

    @cached_property
    def pool_by_settings(self) -> float:
        """Sequences whose caches fit beside the weights; infinity where not known."""
        memory = self.deployment.device.memory_bytes
        if memory is None:
            return float("inf")
        room = _POOL * memory - self.deployment.weights_bytes
        return max(float(room / self.deployment.kv_cache_bytes(tokens=self.context_tokens)), 0.0)

    # ---- what cannot be

    @cached_property
    def floors_s(self) -> dict[str, float]:
        """Least that each time can be; of a prompt in the cache, as far as that is known, the rest alone is read."""
        prefill, step = self._least_prefill_s, self.step.floor_s
        return {
            "prefill_s": prefill, "ttft_s": prefill, "step_s": step, "gap_p99_s": step,
            "request_s": prefill + (self.output_tokens - 1.0) * step,
        }  # fmt: skip

    @property
    def _least_prefill_s(self) -> float:
        known = np.floor(self.observed.get("hit_rate", 0.0) * (self.prompt_tokens - 1.0))
        held = max(float(np.clip(known, 0.0, self.prompt_tokens - 1.0)), self.cached_tokens)
        return float(self._roomy.prefill(self.prompt_tokens, cached_tokens=held, batch=self.prompts).floor_s)

    @cached_property
    def below(self) -> frozenset[str]:
        """Symptoms that no device can have: times below their floors, and a rate of more than a token a step."""
        fast = {name for name, least in self.floors_s.items() if self.observed.get(name, np.inf) < least}
        if self.observed.get("tokens_per_s", 0.0) > self.batch / self.step.floor_s:
            fast.add("tokens_per_s")
        return frozenset(fast)

    # ---- how fast a client sent

    @property
    def last_request_s(self) -> float:
        """Seconds of a run after its last request was sent, by what was seen; waits that grow are twice their mean."""
        first = self.observed.get("ttft_s", float(self.prefill_s()))
        return 2.0 * first + self.output_tokens * self.observed.get("step_s", float(self.step_s(self.batch)))

    @cached_property
    def completed_per_s(self) -> float:
        """Requests over the whole run of a client that sends at its rate; not-a-number where it has none."""
        if not self.request_rate or not self.requests:
            return float("nan")
        return self.requests / (self.requests / self.request_rate + self.last_request_s)

    def _sending_spread(self) -> float:
        """Add what other draws of arrivals change, and a last request of which only the mean is known."""
        requests = self.requests or 1.0
        late = self.last_request_s * self.completed_per_s / requests
        return float(np.hypot(np.hypot(NOISE, requests**-0.5), late / 2.0))

    # ---- what a run shows

    def _play(self, arrivals: Arrivals, cached_tokens: float) -> dict[str, float]:
        """Play the run anew: requests come so, and so much of each prompt lies in the cache."""
        what = arrivals, (self.prompt_tokens, self.output_tokens), cached_tokens
        one = self.run and served_run(self.deployment, self.run.profile, *what)
        return as_played(one, self.told_by, self.longest_chunk) if one else {}

    @cached_property
    def _hit_plays(self) -> list[dict[str, float]]:
        held = [max(float(np.floor(share * (self.prompt_tokens - 1.0))), self.cached_tokens) for share in HIT_SHARES]
        return [self._play(self.run.arrivals, tokens) for tokens in held] if self.run else []

    def with_hits(self, share: Values) -> dict[str, Values]:
        """Give what the client of a served run sees where a part of each prompt lies in the cache."""
        return between(self._hit_plays, HIT_SHARES, share)

    @cached_property
    def _fewer_plays(self) -> dict[float, dict[str, float]]:
        closed = self.run.arrivals if self.run and self.run.arrivals.concurrency else None
        counts = sorted({max(round(part * (closed.concurrency or 1)), 1) for part in BATCH_PARTS}) if closed else []
        return {float(n): self._play(closed._replace(concurrency=n), self.cached_tokens) for n in counts if closed}

    def with_fewer(self, running: Values) -> dict[str, Values]:
        """Give what the client of a closed run sees where it has only so many requests in flight, if played."""
        return between(list(self._fewer_plays.values()), tuple(self._fewer_plays), running)

    def shown(
        self,
        batch: Values | float,
        *,
        alone_s: Values | float | None = None,
        mixed_s: Values | float | None = None,
        share: Values | float | None = None,
        prefill_s: Values | float | None = None,
        burst_s: Values | float | None = None,
        wait_s: Values | float = 0.0,
    ) -> dict[str, Values]:
        """Give what a run shows at a batch; what is left out is as predicted.

        The mean step is one alone, or now and then one that carries a chunk of another request's prompt.
        """
        passes = Passes(
            np.asarray(batch, dtype=np.float64),
            self.step_s(batch) if alone_s is None else np.asarray(alone_s),
            self.mixed_s(batch) if mixed_s is None else np.asarray(mixed_s),
            self.mixed_share(batch) if share is None else np.asarray(share),
            self.prefill_s() if prefill_s is None else np.asarray(prefill_s),
            self.burst_s if burst_s is None else np.asarray(burst_s),
            own_share=share is None,
        )
        made = self._by_passes(passes)
        if self.run is not None:
            more = {"output_tokens": self.output_tokens, "growth": self._growth, "longest_chunk": self.longest_chunk}
            made = {**made, **as_served(self.run, self.told_by, passes, self._usual, **more)}
        late = {name: made[name] + wait_s for name in ("ttft_s", "request_s", "queue_s")}
        return {**made, **late, "requests_per_s": np.asarray(self.completed_per_s)}

    def _by_passes(self, passes: Passes) -> dict[str, Values]:
        """Put a run together from its passes, as if requests came one after another."""
        step, mixed, carried = passes.step_s, passes.mixed_s, passes.share
        first = passes.prefill_s + (step / 2.0 if self.served and self.batch > 1.0 else 0.0)
        answer = first + (self.output_tokens - 1.0) * step
        tail = np.where(carried > TAIL, np.maximum(mixed, step), step)
        return {
            "prefill_s": passes.prefill_s,
            "ttft_s": np.asarray(first),
            "step_s": step,
            "gap_p99_s": tail,
            "shortest_gap_s": tail,
            "longest_gap_s": np.where(carried > TAIL, np.maximum(mixed * self.longest_chunk, step), step),
            "other_gap_s": np.where((carried > TAIL) ^ _uncertain(carried), np.maximum(mixed, step), step),
            "request_s": np.asarray(answer),
            "tokens_per_s": np.asarray(passes.batch * self.output_tokens / answer),
            "running": passes.batch,
            "usage": np.minimum(np.divide(passes.batch, self.pool_sequences), 1.0),
            "queue_s": np.zeros(()),
        }

    @cached_property
    def _usual(self) -> Passes:
        """Give the passes of a run without fault."""
        alone, mixed, share = self.step_s(self.batch), self.mixed_s(self.batch), self.mixed_share(self.batch)
        return Passes(np.asarray(self.batch), alone, mixed, share, self.prefill_s(), self.burst_s)

    @cached_property
    def _growth(self) -> float:
        return max(float(self.step_s(2.0 * self.batch) / self.step_s(self.batch)) - 1.0, 0.0)

    @cached_property
    def clean(self) -> dict[str, Values]:
        """Give what a run without fault shows."""
        return self.shown(self.batch)

    # ---- how far a prediction may be off

    @cached_property
    def spread(self) -> dict[str, float]:
        """Standard deviation of the logarithm of each symptom over its prediction: the run's noise and the model's."""
        prefill, step = _spread(self.prefill), _spread(self.step)
        wide = 0.15 if self.served else 0.0  # a client's clock, arrivals within a step
        found = {
            "prefill_s": np.hypot(NOISE, prefill), "ttft_s": np.hypot(np.hypot(NOISE, prefill), wide),
            "step_s": np.hypot(NOISE, step), "gap_p99_s": np.hypot(np.hypot(NOISE, step), wide),
            "request_s": np.hypot(NOISE, max(prefill, step)), "tokens_per_s": np.hypot(NOISE, step), "running": NOISE,
            "requests_per_s": self._sending_spread(),
        }  # fmt: skip
        return {name: float(np.hypot(spread, self._from_run_to_run(name))) for name, spread in found.items()}

    def _from_run_to_run(self, name: str) -> float:
        """Give what other draws of the same requests change."""
        if self.run is None or name not in (*CLIENT, "tokens_per_s"):
            return 0.0
        if name == "tokens_per_s":
            return self.run.tail
        return self.run.spread(self.told_by.get(name, (CLIENT[name], "mean"))[0])


def _uncertain(share: Values) -> NDArray[np.bool_]:
    """Tell where so few steps carry a chunk, yet not too few, that the p99 of the gaps may be one of either kind."""
    return np.asarray((share > TAIL / 4.0) & (share < TAIL * 4.0))


def _spread(estimate: Estimate) -> float:
    reach = NormalDist().inv_cdf(0.9)
    try:
        low, high = estimate.interval(0.8)
    except NotCalibratedError:
        return _UNKNOWN_SPREAD
    return float(np.log(high / low) / 2.0 / reach)
