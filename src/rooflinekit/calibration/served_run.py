"""A served run without fault: what its client should have seen, played by the serving room with its engine's host."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rooflinekit.errors import RooflinekitError, UnknownNameError
from rooflinekit.measurements import Measurement
from rooflinekit.phases.deployment import Deployment
from rooflinekit.serving.arrivals import Closed, Lengths, Open, Traffic
from rooflinekit.serving.engine import EngineProfile, load_engine
from rooflinekit.serving.host import Layers, served_by, with_host_s
from rooflinekit.serving.serve import Serving, serve
from rooflinekit.serving.simulate import Served, simulate

Values = NDArray[np.float64]
#: Steps that are played at most, some tenths of a second's work: of a longer run a part, of a shorter one several.
_MOST_STEPS, _STEPS_IN_ALL, _MOST_PLAYS = 6_000.0, 4_000.0, 4
#: By how much more requests are made to come, to see what that changes.
_MORE = 1.05
_LEAST_ROUNDS, _LEAST_REQUESTS, _ROUNDS = 2, 100, 10
#: Of prompts or answers that differ: public clients draw evenly from this part of a nominal length up to all of it.
_LEAST_PART = 0.8
#: Percentiles between which the p99 of the gaps of another run of this kind lies.
_AROUND_P99 = (98.5, 99.5)
#: Whose scheduler is taken where a client's file names none: that of :func:`~rooflinekit.serving.serve.serve`.
_UNNAMED = "vllm"
_HOST_TIMES = (
    "step_host_s", "sequence_host_s", "prefill_step_host_s", "eager_layer_s", "mixture_layer_s", "request_host_s",
)  # fmt: skip
_LATENCIES = (
    "time_to_first_token_s", "time_per_output_token_s", "inter_token_latency_s", "end_to_end_s",
)  # fmt: skip


class Arrivals(NamedTuple):
    """How the requests of a run came: at a rate or so many in flight, and how many; None for a server long at work."""

    rate_per_s: float | None
    concurrency: int | None
    requests: int | None

    @property
    def told(self) -> str:
        """Say it in words."""
        if self.requests is None:
            return f"{self.concurrency:,} requests in flight"
        if self.concurrency is not None:
            return f"{self.requests:,} requests of a client with {self.concurrency:,} in flight, all started together"
        return f"{self.requests:,} requests at {self.rate_per_s:.3g}/s"


@dataclass(frozen=True, eq=False)
class ServedRun:
    """
    What a client should have seen of a run.

    Parameters
    ----------
    serving : Serving
        What the server could carry, and on which constants.
    plays : tuple of Served
        The run, played request by request; several times where requests come at random and it is short.
    arrivals : Arrivals
        How its requests came.
    busier : Serving, optional
        Of requests that come at a rate: with some more of them.
    """

    serving: Serving
    plays: tuple[Served, ...]
    arrivals: Arrivals
    busier: Serving | None = None

    @property
    def deployment(self) -> Deployment:
        """What served, with the constants of its engine."""
        return self.serving.deployment

    @property
    def profile(self) -> EngineProfile:
        """Whose scheduler and host times."""
        return self.serving.engine

    @property
    def host_free(self) -> bool:
        """Whether its engine's host takes no time."""
        return not any(getattr(self.profile, name) for name in _HOST_TIMES)

    @property
    def token_budget(self) -> float:
        """Most tokens of a pass."""
        return float(self.profile.token_budget(self.deployment.device))

    def latency_s(self, quantity: str, statistic: str) -> float:
        """Give the mean or the median of a latency; of what is none of a client's, the time per output token. [s]

        Not-a-number where answers are of one token and have none.
        """
        return _middle([_latency_s(one, quantity, statistic) for one in self.plays])

    def spread(self, quantity: str) -> float:
        r"""Give the standard deviation of a latency's logarithm from run to run.

        .. math:: \sigma = \frac{d \ln x}{d \ln \lambda} \sqrt{\frac{1}{n} + \frac{1}{n m}}

        Of :math:`n` requests that come at random, so many more or fewer come in the time; :math:`m` plays say what is
        expected no better.
        """
        if self.busier is None:
            return 0.0
        name = _quantity(quantity)
        now, more = (getattr(one, name).mean for one in (self.serving, self.busier))
        count = float(self.arrivals.requests or np.inf)
        return float(np.log(more / now) / np.log(_MORE) * np.sqrt((1.0 + 1.0 / len(self.plays)) / count))

    @property
    def tail(self) -> float:
        """Part by which the run's rate is uncertain: of answers that differ, the last ones end alone.

        One that is twice as long as the mean adds a round to all rounds of a closed client.
        """
        traffic, count = self.serving.traffic, self.arrivals.requests
        drawn = isinstance(traffic, Traffic) and traffic.output_tokens.std > 0.0
        return min((self.arrivals.concurrency or 0) / count, 1.0) if drawn and count else 0.0

    @property
    def output_tokens_per_s(self) -> float:
        """Tokens of all requests over the whole run."""
        return _middle([one.output_tokens_per_s for one in self.plays])

    @property
    def gap_p99_s(self) -> tuple[float, float, float]:
        """Give the p99 of the gaps, and the least and the most that it may be in another run of this kind. [s]"""
        gaps = [one.inter_token_latency_s for one in self.plays]
        low, high = (pick(one.percentile(at) for one in gaps) for pick, at in zip((min, max), _AROUND_P99, strict=True))
        return _middle([one.percentile(99.0) for one in gaps]), low, high

    @property
    def in_flight(self) -> float:
        """Requests in flight: of a client that keeps so many, or those that run."""
        return float(self.arrivals.concurrency or max(self.serving.running, 1.0))

    def passed_s(
        self, device_s: Values, *, sequences: Values | float, prompts: float, tokens: Values | float
    ) -> Values:
        """Add what the engine's host takes to the device's seconds of a pass. [s]"""
        layers = Layers.of(self.deployment)
        return with_host_s(
            self.profile, device_s, layers, sequences=sequences, prompts=np.asarray(prompts), tokens=tokens
        )


def _quantity(quantity: str) -> str:
    return quantity if quantity in _LATENCIES[:2] + _LATENCIES[3:] else _LATENCIES[1]


def _middle(values: Sequence[float]) -> float:
    return float(np.exp(np.mean(np.log(values))))


def _latency_s(seen: Served, quantity: str, statistic: str) -> float:
    tally = getattr(seen, _quantity(quantity))
    return float(tally.percentile(50.0) if statistic == "median" else tally.mean)


def served_run(
    deployment: Deployment,
    profile: EngineProfile,
    arrivals: Arrivals,
    lengths: tuple[float, float],
    cached_tokens: float = 0.0,
) -> ServedRun | None:
    """
    Play a run as it goes without fault.

    Parameters
    ----------
    deployment : Deployment
        What should have run.
    profile : EngineProfile
        Whose scheduler and host times.
    arrivals : Arrivals
        How its requests came.
    lengths : tuple of float
        Mean prompt and answer; where one is no whole number its lengths differ. [token]
    cached_tokens : float
        Of each prompt, known to lie in the prefix cache. [token]

    Returns
    -------
    run : ServedRun or None
        None where the server could not carry the run: more comes than it takes, more are in flight than its cache
        holds, or the weights do not fit. What waits there waits for a reason, which is not to be called usual.

    Examples
    --------
    >>> import rooflinekit as rk
    >>> d, arrivals = rk.Deployment("llama-3.1-8b", "h100-sxm"), Arrivals(None, 8, 80)
    >>> run = served_run(d, load_engine("vllm"), arrivals, (1024.0, 128.0))
    >>> print(run.arrivals.told)
    80 requests of a client with 8 in flight, all started together
    >>> run.latency_s("time_to_first_token_s", "mean") > 0.05  # a prefill of 1,024 tokens alone takes 0.03 s
    True
    """
    try:
        return _played(deployment, profile, arrivals, lengths, cached_tokens)
    except RooflinekitError:  # a device without memory figures, say: its passes can be told all the same
        return None


def arrivals_of(records: Sequence[Measurement]) -> Arrivals | None:
    """
    Find how the requests of a run came; None where its records do not say, or where two limits held at once.

    Examples
    --------
    >>> seen = {"quantity": "time_to_first_token_s", "value": 0.3}
    >>> arrivals_of([Measurement(**seen, request_rate=4.0, requests=200)])
    Arrivals(rate_per_s=4.0, concurrency=None, requests=200)
    >>> arrivals_of([Measurement(**seen, concurrency=8)]) is None
    True
    """
    requests, rate, concurrency = (
        next((value for one in records if (value := getattr(one, name))), None)
        for name in ("requests", "request_rate", "concurrency")
    )
    if rate is not None and not np.isfinite(rate):
        rate = None
    if requests is None or (rate is None) == (concurrency is None):
        return None
    return Arrivals(rate, None if concurrency is None else max(round(concurrency), 1), max(round(requests), 1))


def is_named(records: Sequence[Measurement], deployment: Deployment) -> bool:
    """Tell whether anybody says which engine answered."""
    return bool(deployment.engine) or any(one.engine for one in records)


def engine_of(records: Sequence[Measurement], deployment: Deployment) -> EngineProfile | None:
    """
    Find the profile of the engine that answered; of vLLM where nobody names one, None where it has none.

    Examples
    --------
    >>> import rooflinekit as rk
    >>> d = rk.Deployment("llama-3.1-8b", "h100-sxm")
    >>> seen = {"quantity": "time_to_first_token_s", "value": 0.3}
    >>> for facts in ({}, {"engine": "vllm", "version": "0.24.1"}, {"engine": "sglang"}, {"engine": "transformers"}):
    ...     print(getattr(engine_of([Measurement(**seen, **facts)], d), "engine", None))
    vllm
    vllm
    sglang
    None
    """
    told = next(((one.engine, one.version) for one in records if one.engine), (None, None))
    name = told[0] or deployment.engine or _UNNAMED
    for wanted in (f"{name}-{told[1]}", name) if told[0] and told[1] else (name,):
        try:
            return load_engine(wanted)
        except UnknownNameError:
            continue
    return None


def hostless(profile: EngineProfile) -> EngineProfile:
    """
    Give an engine on a host that costs no time.

    Examples
    --------
    >>> hostless(load_engine("vllm")).request_host_s
    0.0
    """
    return profile.with_(**dict.fromkeys(_HOST_TIMES, 0.0))


def _played(
    deployment: Deployment,
    profile: EngineProfile,
    arrivals: Arrivals,
    lengths: tuple[float, float],
    cached_tokens: float,
) -> ServedRun | None:
    prompts, answers = (_lengths(mean, alike=arrivals.requests is not None) for mean in lengths)
    server = served_by(deployment, profile).with_(memory_check=False)

    def carried(rate_per_s: float | None) -> Serving:
        return serve(
            server, prompt_tokens=prompts, output_tokens=answers, rate_per_s=rate_per_s, engine=profile,
            concurrency=arrivals.concurrency, requests=arrivals.requests, cached_tokens=cached_tokens,
            method="closed form",
        )  # fmt: skip

    serving = carried(arrivals.rate_per_s)
    if not _is_carried(serving, arrivals, profile):
        return None
    plays = tuple(_plays(serving, arrivals, (prompts, answers), cached_tokens / lengths[0]))
    rate = arrivals.rate_per_s
    busier = None if rate is None else carried(min(_MORE * rate, serving.most_requests_per_s))
    return ServedRun(serving, plays, arrivals, busier)


def _is_carried(serving: Serving, arrivals: Arrivals, profile: EngineProfile) -> bool:
    """Tell whether the server keeps up, and holds what a closed client keeps in flight."""
    most = min(serving.pool_requests, profile.sequences(serving.deployment.device) or np.inf)
    return not serving.overloaded and (arrivals.concurrency or 0) <= most


def _plays(
    serving: Serving, arrivals: Arrivals, lengths: tuple[Lengths, Lengths], cached_share: float
) -> Iterator[Served]:
    came = Closed(arrivals.concurrency) if arrivals.concurrency else Open(float(arrivals.rate_per_s or 0.0))
    each = _steps_each(arrivals, serving, serving.engine)
    traffic = Traffic(came, *lengths, requests=_requests(arrivals, serving.running, each))
    for seed in range(_times(traffic, each)):
        yield simulate(serving.deployment, traffic, engine=serving.engine, cached_share=cached_share, seed=seed)


def _steps_each(arrivals: Arrivals, serving: Serving, profile: EngineProfile) -> float:
    """Count the steps that a request adds to a run: its part of those that decode, and those that read its prompt."""
    traffic = serving.traffic
    if not isinstance(traffic, Traffic):
        return 0.0
    together = float(arrivals.concurrency or max(serving.running, 1.0))
    chunks = traffic.prompt_tokens.mean / profile.token_budget(serving.deployment.device)
    return traffic.output_tokens.mean / together + chunks


def _times(traffic: Traffic, steps_each: float) -> int:
    """Count how often a run is played: as often as there is time for where requests come at random, else once."""
    return 1 if traffic.in_flight else int(np.clip(_STEPS_IN_ALL / (traffic.requests * steps_each), 1, _MOST_PLAYS))


def _lengths(mean: float, *, alike: bool) -> Lengths:
    """Take lengths to be alike where their mean is a whole number, and drawn as public clients draw them elsewhere."""
    return Lengths(mean) if alike and float(mean).is_integer() else Lengths(mean, "uniform", _LEAST_PART, 1.0)


def _requests(arrivals: Arrivals, running: float, steps_each: float) -> int:
    """Count the requests that are played: all of them, or as many as are done in the steps that there is time for."""
    together = float(arrivals.concurrency or max(running, 1.0))
    least = _LEAST_ROUNDS * arrivals.concurrency if arrivals.concurrency else _LEAST_REQUESTS
    return int(min(arrivals.requests or _ROUNDS * together, max(_MOST_STEPS / steps_each, least)))
