"""serve: what a server delivers under load, by the closed form where it is valid and by the simulation elsewhere."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil, isinf, isnan
from typing import TYPE_CHECKING

import numpy as np

from rooflinekit import units
from rooflinekit.errors import InvalidInputError
from rooflinekit.phases.deployment import Deployment
from rooflinekit.serving.arrivals import Lengths, Open, Trace, Traffic, refuse_several, traffic_of
from rooflinekit.serving.engine import EngineProfile
from rooflinekit.serving.host import basis_of, profile_for, served_by
from rooflinekit.serving.latency import METRICS, Latency
from rooflinekit.serving.loaded_steps import Load, Model, mean_context_tokens
from rooflinekit.serving.simulate import rules_of, simulate
from rooflinekit.serving.steady_state import Found, closed_form, first_token_percentile, longest_step_s, mixed_share
from rooflinekit.specs.step import checked

if TYPE_CHECKING:
    import pandas as pd

#: Up to this part of the rate that a server can carry the closed form's mean and p99 hold (the page on serving).
MOST_UTILISATION = 0.8
METHODS = ("auto", "closed form", "simulation")
_PERCENTS = (50.0, 90.0, 99.0)


@dataclass(frozen=True)
class Serving:
    """
    What a server delivers.

    Attributes
    ----------
    time_to_first_token_s, time_per_output_token_s, end_to_end_s : Latency
        Over requests, as clients see them: queue, scheduler and host in them.
    inter_token_latency_s : Latency
        Over gaps. Percentiles of the closed form are steps at the mean load: no run judged them.
    worst_gap_s : float
        A step that carries the largest chunk: the longest gap that a reader sees without preemption. [s]
    running : float
        Mean number of decoding sequences.
    mixed_share : float
        Share of the steps that carry tokens of a prompt.
    requests_per_s, output_tokens_per_s : float
        Of all requests together.
    most_requests_per_s : float
        Rate that the server could carry. [request/s]
    overloaded : bool
        Whether more comes than that: latencies then grow without end and are infinite.
    pool_requests : float
        Requests of this length whose cache fits at once.
    preemptions : int
        Requests that lost their cache and were computed anew (a simulation counts them).
    method, basis : str
        How it was found; whose constants and profile.
    """

    deployment: Deployment
    engine: EngineProfile
    traffic: Traffic | Trace
    time_to_first_token_s: Latency
    time_per_output_token_s: Latency
    inter_token_latency_s: Latency
    end_to_end_s: Latency
    worst_gap_s: float
    running: float
    mixed_share: float
    requests_per_s: float
    output_tokens_per_s: float
    most_requests_per_s: float
    overloaded: bool
    pool_requests: float
    preemptions: int
    method: str
    basis: str

    @property
    def utilisation(self) -> float:
        """Requests that come over those that the server could carry."""
        return self.come_per_s / self.most_requests_per_s

    def vouches(self, metric: str, statistic: str) -> bool:
        """Tell whether a statistic was judged: of the closed form the means, and the p99 of first tokens."""
        judged = statistic == "mean" or (metric, statistic) == ("time_to_first_token_s", "p99")
        known = not isnan(getattr(getattr(self, metric), statistic))
        return known and (judged or not self.method.startswith("closed form"))

    @property
    def come_per_s(self) -> float:
        """Requests that come: a simulated run also holds the time in which the server empties. [request/s]"""
        arrivals = None if isinstance(self.traffic, Trace) else self.traffic.arrivals
        return arrivals.rate_per_s if isinstance(arrivals, Open) else self.requests_per_s

    def table(self) -> "pd.DataFrame":
        """Give the latencies as a tidy DataFrame: a row a metric; not-a-number where the closed form gives none. [s]"""
        import pandas as pd  # noqa: PLC0415 - loads on first use

        return pd.DataFrame({"metric": name, **getattr(self, name)._asdict()} for name in METRICS)

    def __repr__(self) -> str:
        """Give one line."""
        if self.overloaded:
            return f"overloaded: at most {self.most_requests_per_s:.3g} requests/s ({self.basis})"
        first, each = self.time_to_first_token_s.mean, self.time_per_output_token_s.mean
        times = f"TTFT {units.duration(first)}, TPOT {units.duration(each)}"
        rate = f"{self.requests_per_s:.3g} of {self.most_requests_per_s:.3g} requests/s"
        return f"{times}, {rate}, {self.running:.3g} running ({self.method}; {self.basis})"


def serve(
    deployment: Deployment,
    *,
    prompt_tokens: float | Lengths | None = None,
    output_tokens: float | Lengths | None = None,
    rate_per_s: float | None = None,
    concurrency: int | None = None,
    burstiness: float = 1.0,
    requests: int | None = None,
    trace: Trace | None = None,
    engine: str | EngineProfile | None = None,
    cached_tokens: float = 0.0,
    method: str = "auto",
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
) -> Serving:
    """
    Estimate what a server delivers: latencies as clients see them, throughput, and the rate that it could carry.

    Parameters
    ----------
    deployment : Deployment
        What serves, on all its GPUs.
    prompt_tokens, output_tokens : float or Lengths
        Of each request: a number, or a distribution. [token]
    rate_per_s : float
        Requests that come, whatever the server does (open). [request/s]
    concurrency : int
        Requests that a client keeps in flight, all started together (closed); one of the two, or a `trace`.
    burstiness : float
        Of an open arrival: 1 is Poisson, less comes in bursts.
    requests : int, optional
        Of the run: 1,000 open, 10 x concurrency closed.
    trace : Trace, optional
        Requests of a file instead; it says when they come and how long they are.
    engine : str or EngineProfile
        Whose scheduler, pool and host times; None takes those of the deployment's engine, or the newest vLLM's.
    cached_tokens : float
        Prefix of every prompt that the cache already holds. [token]
    method : {"auto", "closed form", "simulation"}
        Auto takes the closed form within its validity, and simulates elsewhere.
    seed : int
        Of a simulation.

    Returns
    -------
    serving : Serving

    Raises
    ------
    InvalidInputError
        Neither or both of rate and concurrency, either or lengths beside a trace, bursts of a closed client, a length
        or rate out of range, a request that is longer than the engine takes (``max_model_len``) or than the pool holds.

    Notes
    -----
    The closed form is valid for Poisson and closed arrivals of lengths that are not log-normal, where the pool holds
    what runs, and open up to 80% of the rate that the server could carry.

    Examples
    --------
    >>> import rooflinekit as rk
    >>> d = rk.Deployment("llama-3.1-8b", "h100-sxm")
    >>> rk.serve(d, prompt_tokens=2000, output_tokens=200, rate_per_s=4).overloaded
    False
    """
    profile = profile_for(deployment, engine)
    traffic = traffic_of((prompt_tokens, output_tokens), rate_per_s, concurrency, burstiness, requests, trace=trace)
    if method not in METHODS:
        message = f"method={method!r}: expected one of {', '.join(METHODS)}"
        raise InvalidInputError(message)
    refuse_several("cached_tokens", cached_tokens)
    checked("cached_tokens", cached_tokens)
    checked("seed", seed, whole=True)
    plan = _Plan(served_by(deployment, profile), profile, traffic, cached_tokens)
    reason = plan.beyond
    if plan.overloaded:
        return plan.overload()
    if method == "closed form" or (method == "auto" and not reason):
        return plan.closed_form(reason)
    return plan.simulation(seed, progress, reason or "asked for")


class _Plan:
    """One question: the load as numbers, the rate that the server could carry, and whether the closed form holds."""

    def __init__(
        self, deployment: Deployment, profile: EngineProfile, traffic: Traffic | Trace, cached_tokens: float
    ) -> None:
        self.deployment, self.profile, self.traffic = deployment.with_(memory_check=False), profile, traffic
        self.prompt, self.output = _means(traffic)
        if cached_tokens >= self.prompt:
            message = f"cached_tokens={cached_tokens:g}: expected fewer than the prompt's {self.prompt:g}"
            raise InvalidInputError(message)
        self.cached = cached_tokens
        self.spread = traffic.output_tokens.std if isinstance(traffic, Traffic) else 0.0
        self.rules = rules_of(deployment, profile, traffic.longest_tokens, cached_tokens / self.prompt)
        self.pool = self.rules.pages * self.rules.page_tokens / (self.prompt + self.output)
        self.model = Model(self.deployment, profile, self.rules)
        self.most = self._most()

    # ---- what the server could carry

    def _most(self) -> float:
        """Find the rate at which as many run as the pool and the engine allow."""
        full = max(min(self._at_once(), self.rules.most_sequences), 1.0)
        spread_out = self._load(concurrency=full * 1.02, requests=1e9)._replace(output_std=np.full(1, self.output))
        found = closed_form(self.model, spread_out)
        cycle = float(found.time_to_first_token_s[0]) + (self.output - 1.0) * float(found.time_per_output_token_s[0])
        return full / cycle

    def _at_once(self) -> float:
        """Find how many the pool holds of requests that are anywhere in their answers, but for one time in a thousand.

        On average they hold half of their answer, with an even spread: n a + 3 s sqrt(n) = pool.
        """
        if self.rules.reserves_answers:
            return self.pool
        mean, std = mean_context_tokens(self.prompt, self.output), self.output / np.sqrt(12.0)
        pool = self.rules.pages * self.rules.page_tokens
        root = (np.sqrt(9.0 * std**2 + 4.0 * mean * pool) - 3.0 * std) / (2.0 * mean)
        return float(root**2)

    def _load(self, *, concurrency: float = np.nan, rate: float = np.nan, requests: float = np.inf) -> Load:
        values = (self.prompt, self.output, concurrency, rate, requests, self.cached, self.spread)
        return Load(*(np.array([value], dtype=np.float64) for value in values))

    @property
    def rate(self) -> float | None:
        """Requests that come per second; None for a closed client and for a trace."""
        arrivals = None if isinstance(self.traffic, Trace) else self.traffic.arrivals
        return arrivals.rate_per_s if isinstance(arrivals, Open) else None

    @property
    def overloaded(self) -> bool:
        """Whether more comes than the server could carry."""
        return self.rate is not None and self.rate > self.most

    @property
    def beyond(self) -> str:
        """Say why the closed form does not hold here; empty where it does."""
        traffic = self.traffic
        if isinstance(traffic, Trace):
            return "a trace"
        if isinstance(traffic.arrivals, Open):
            return self._beyond_at_a_rate(traffic, traffic.arrivals)
        if traffic.arrivals.concurrency > min(self.pool, self.rules.most_sequences):
            return "more requests than run at once"
        alike = not traffic.output_tokens.std and traffic.arrivals.concurrency > 1
        return "a closed client whose answers are all of one length" if alike else ""

    def _beyond_at_a_rate(self, traffic: Traffic, arrivals: Open) -> str:
        if "lognormal" in (traffic.prompt_tokens.kind, traffic.output_tokens.kind):
            return "log-normal lengths that come at a rate"
        if arrivals.burstiness != 1.0:
            return _unlike_poisson(arrivals.burstiness)
        high = arrivals.rate_per_s > MOST_UTILISATION * self.most
        return f"above {MOST_UTILISATION:.0%} of what the server could carry" if high else ""

    # ---- answers

    def closed_form(self, outside: str = "") -> Serving:
        """Answer by the closed form, and say where it was asked for outside its validity."""
        traffic = self.traffic
        if isinstance(traffic, Trace):
            message = "method='closed form' needs rates and lengths, not a trace: simulate it"
            raise InvalidInputError(message)
        closed = float(traffic.in_flight) if traffic.in_flight else np.nan
        load = self._load(concurrency=closed, rate=self.rate or np.nan, requests=float(traffic.requests))
        found = closed_form(self.model, load)
        first = self._first(found)
        each = float(found.time_per_output_token_s[0]) if self.output > 1.0 else np.nan
        cycle = first.mean + ((self.output - 1.0) * each if self.output > 1.0 else 0.0)
        rate = self.rate or closed / cycle
        mixed, step, long = (
            float(value[0]) for value in (mixed_share(found), found.steps.decode_s, longest_step_s(found))
        )
        return self._serving(
            first, Latency(each, np.nan, np.nan, np.nan), _gaps(step, each, mixed),
            Latency(cycle, np.nan, np.nan, np.nan), worst_gap_s=long,
            running=rate * (cycle - first.mean), mixed_share=mixed, requests_per_s=rate,
            method=f"closed form, outside its validity: {outside}" if outside else "closed form",
        )  # fmt: skip

    def _first(self, found: Found) -> Latency:
        """Give the mean, and of what comes at a rate the 99th percentile: the form was judged on no other."""
        mean = float(found.time_to_first_token_s[0])
        if self.rate is None:  # a closed run's percentiles depend on the burst that opens it
            return Latency(mean, np.nan, np.nan, np.nan)
        return Latency(mean, np.nan, np.nan, float(first_token_percentile(self.model, found, _PERCENTS[-1])[0]))

    def simulation(self, seed: int, progress: Callable[[int], None] | None, reason: str) -> Serving:
        """Answer by the simulation."""
        share = self.cached / self.prompt
        seen = simulate(
            self.deployment, self.traffic, engine=self.profile, seed=seed, cached_share=share, progress=progress
        )
        return replace(
            self._serving(
                Latency.of(seen.time_to_first_token_s), Latency.of(seen.time_per_output_token_s),
                Latency.of(seen.inter_token_latency_s), Latency.of(seen.end_to_end_s), worst_gap_s=seen.worst_gap_s,
                running=seen.mean_running, mixed_share=seen.mixed_share, requests_per_s=seen.requests_per_s,
                method=f"simulation: {reason}",
            ),
            preemptions=seen.preemptions, output_tokens_per_s=seen.output_tokens_per_s,
        )  # fmt: skip

    def overload(self) -> Serving:
        """Say that more comes than the server could carry."""
        never = Latency(np.inf, np.inf, np.inf, np.inf)
        serving = self._serving(
            never, never, never, never, worst_gap_s=np.inf, running=min(self.pool, self.rules.most_sequences),
            mixed_share=np.nan, requests_per_s=self.rate or np.nan, method="closed form",
        )  # fmt: skip
        return replace(serving, overloaded=True, output_tokens_per_s=self.most * self.output)

    def _serving(
        self,
        first: Latency,
        each: Latency,
        gaps: Latency,
        whole: Latency,
        *,
        worst_gap_s: float,
        running: float,
        mixed_share: float,
        requests_per_s: float,
        method: str,
    ) -> Serving:
        return Serving(
            deployment=self.deployment, engine=self.profile, traffic=self.traffic, time_to_first_token_s=first,
            time_per_output_token_s=each, inter_token_latency_s=gaps, end_to_end_s=whole, worst_gap_s=worst_gap_s,
            running=running, mixed_share=mixed_share, requests_per_s=requests_per_s,
            output_tokens_per_s=requests_per_s * self.output, most_requests_per_s=self.most, overloaded=False,
            pool_requests=self.pool, preemptions=0, method=method,
            basis=basis_of(self.deployment, self.profile),
        )  # fmt: skip


def _unlike_poisson(burstiness: float) -> str:
    """Say how arrivals come whose gaps are no exponential ones."""
    if isinf(burstiness):
        return "arrivals like a clock's"
    return "arrivals in bursts" if burstiness < 1.0 else "arrivals more even than Poisson's"


def _means(traffic: Traffic | Trace) -> tuple[float, float]:
    if isinstance(traffic, Trace):
        rows = traffic.rows
        return sum(row.prompt_tokens for row in rows) / len(rows), sum(row.output_tokens for row in rows) / len(rows)
    return traffic.prompt_tokens.mean, traffic.output_tokens.mean


def _gaps(step_s: float, mean_s: float, share: float) -> Latency:
    """Give the gaps: a step, or the mean one with prompts, each as often as it comes."""
    mixed_s = step_s + (mean_s - step_s) / share if share else step_s
    return Latency(mean_s, *(mixed_s if ceil(share * 1e6) > (1.0 - one / 100.0) * 1e6 else step_s for one in _PERCENTS))
