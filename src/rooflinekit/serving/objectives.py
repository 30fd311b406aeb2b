"""Objectives: limits on what clients see, the largest rate that keeps them, and the requests that do at a rate."""

from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

from rooflinekit import units
from rooflinekit.errors import InvalidInputError
from rooflinekit.phases.deployment import Deployment
from rooflinekit.serving.arrivals import Lengths, Trace, traffic_of
from rooflinekit.serving.engine import EngineProfile
from rooflinekit.serving.serve import Serving, serve
from rooflinekit.serving.simulate import Served, simulate
from rooflinekit.specs.precision import one_of
from rooflinekit.specs.step import checked

STATISTICS = ("mean", "p50", "p90", "p99")
#: Metric -> what clients call it.
METRICS = {
    "time_to_first_token_s": "time to first token",
    "time_per_output_token_s": "time per output token",
    "inter_token_latency_s": "inter-token latency",
    "end_to_end_s": "end to end",
}
#: Requests that do not meet: one in eleven days. [request/s]
ALONE_PER_S = 1e-6
_MOST_HALVINGS = 40
_NOT_VOUCHED = "a percentile that the closed form was not judged on"


class Limit(NamedTuple):
    """Seconds that a statistic of a metric must not exceed."""

    seconds: float
    statistic: str


class Missed(NamedTuple):
    """A limit that is exceeded, and by what."""

    metric: str
    limit: Limit
    seconds: float

    def __str__(self) -> str:
        """Say it in one line."""
        name, allowed = f"{self.limit.statistic} {METRICS[self.metric]}", units.duration(self.limit.seconds)
        return f"{name} is {units.duration(self.seconds, 4)}, the limit {allowed}"


@dataclass(frozen=True, kw_only=True)
class Objective:
    """
    Limits on latencies as clients see them; all of them hold at once.

    Parameters
    ----------
    time_to_first_token_s, time_per_output_token_s, inter_token_latency_s, end_to_end_s : float or (float, str)
        Seconds, or seconds and a statistic of their own.
    statistic : {"mean", "p50", "p90", "p99"}
        Of the limits that have none of their own.

    Raises
    ------
    InvalidInputError
        No limit, a limit that is not positive, an unknown statistic.

    Examples
    --------
    >>> print(Objective(time_to_first_token_s=0.5, inter_token_latency_s=(0.05, "p99")))
    mean time to first token up to 500 ms, p99 inter-token latency up to 50.0 ms
    """

    time_to_first_token_s: float | tuple[float, str] | None = None
    time_per_output_token_s: float | tuple[float, str] | None = None
    inter_token_latency_s: float | tuple[float, str] | None = None
    end_to_end_s: float | tuple[float, str] | None = None
    statistic: str = "mean"

    def __post_init__(self) -> None:
        """Refuse what limits nothing."""
        one_of("statistic", self.statistic, STATISTICS)
        if not self.limits:
            message = f"an objective without a limit: give one of {', '.join(METRICS)}"
            raise InvalidInputError(message)
        for metric, limit in self.limits.items():
            checked(metric, limit.seconds, positive=True)
            one_of("statistic", limit.statistic, STATISTICS)

    @property
    def limits(self) -> dict[str, Limit]:
        """Limits that were given, by metric."""
        given = {field.name: getattr(self, field.name) for field in fields(self) if field.name in METRICS}
        return {
            name: Limit(*value) if isinstance(value, tuple) else Limit(value, self.statistic)
            for name, value in given.items()
            if value is not None
        }

    def missed(self, serving: Serving) -> tuple[Missed, ...]:
        """List the limits that a server misses; a statistic that it does not give counts as missed."""
        seen = {name: float(getattr(getattr(serving, name), limit.statistic)) for name, limit in self.limits.items()}
        return tuple(
            Missed(name, limit, seen[name]) for name, limit in self.limits.items() if not seen[name] <= limit.seconds
        )

    def met_by(self, first_s: float, each_s: float, whole_s: float) -> bool:
        """Tell whether one request keeps every limit; an answer of one token has no time per token."""
        seen = dict(zip(_OF_REQUESTS, (first_s, each_s, whole_s), strict=True))
        return not any(seen[name] > limit.seconds for name, limit in self.limits.items())

    def __str__(self) -> str:
        """Say it in one line."""
        parts = (f"{one.statistic} {METRICS[name]} up to {units.duration(one.seconds)}" for name, one in _items(self))
        return ", ".join(parts)


_OF_REQUESTS = ("time_to_first_token_s", "time_per_output_token_s", "end_to_end_s")


def _items(objective: Objective) -> list[tuple[str, Limit]]:
    return list(objective.limits.items())


def judged(deployment: Deployment, objective: Objective, **load: Any) -> Serving:  # noqa: ANN401 - those of serve
    """Ask serve for what the objective is about: by simulation where the closed form vouches for no percentile."""
    serving = serve(deployment, **load)
    vouched = serving.overloaded or all(serving.vouches(name, limit.statistic) for name, limit in _items(objective))
    if vouched:
        return serving
    found = serve(deployment, **{**load, "method": "simulation"})
    return found if load.get("method") == "simulation" else replace(found, method=f"simulation: {_NOT_VOUCHED}")


# ---- the largest rate


@dataclass(frozen=True)
class MaxRate:
    """
    The largest rate that keeps an objective.

    Attributes
    ----------
    rate_per_s : float
        0 where one request alone misses it. [request/s]
    serving : Serving
        What the server delivers at that rate; alone where the rate is 0.
    limited_by : str
        What is missed just above it: a limit, or the rate that the server could carry.
    tolerance : float
        How near it was looked for, relatively.
    """

    objective: Objective
    rate_per_s: float
    serving: Serving
    limited_by: str
    tolerance: float

    def __repr__(self) -> str:
        """Give one line."""
        if not self.rate_per_s:
            return f"0 requests/s: {self.limited_by} for one request alone"
        return f"{self.rate_per_s:.3g} requests/s; above it {self.limited_by} ({self.serving.basis})"


def max_rate(
    deployment: Deployment,
    objective: Objective,
    *,
    prompt_tokens: float | Lengths,
    output_tokens: float | Lengths,
    engine: str | EngineProfile | None = None,
    tolerance: float = 0.01,
    **choices: Any,  # noqa: ANN401 - those of serve
) -> MaxRate:
    """
    Find the largest rate of open arrivals at which a server keeps an objective.

    Parameters
    ----------
    deployment : Deployment
        What serves.
    objective : Objective
        Limits that all hold.
    prompt_tokens, output_tokens : float or Lengths
        Of each request. [token]
    engine : str or EngineProfile
        Whose scheduler, pool and host times.
    tolerance : float
        Relative width of the last interval: the rate is kept, one so much larger is not.
    **choices
        Further arguments of :func:`serve`: burstiness, requests, cached_tokens, method, seed.

    Returns
    -------
    found : MaxRate

    Notes
    -----
    Bisection between nought and what the server could carry, always over the same points: a looser limit never gives a
    smaller rate. Above 80% of what it could carry the simulation judges, and everywhere percentiles other than the p99
    of first tokens; its p99 is one of a finite run.

    Examples
    --------
    >>> import rooflinekit as rk
    >>> d = rk.Deployment("llama-3.1-8b", "h100-sxm")
    >>> limits = {limit: rk.Objective(time_per_output_token_s=limit) for limit in (0.010, 0.020)}
    >>> load = {"prompt_tokens": 2000, "output_tokens": 200}
    >>> strict, loose = (rk.max_rate(d, objective, **load) for objective in limits.values())
    >>> 0 < strict.rate_per_s < loose.rate_per_s, loose.limited_by[:26]
    (True, 'mean time per output token')
    """
    part = float(checked("tolerance", tolerance, positive=True))  # type: ignore[arg-type]
    load = {"prompt_tokens": prompt_tokens, "output_tokens": output_tokens, "engine": engine, **choices}
    alone = kept = judged(deployment, objective, rate_per_s=ALONE_PER_S, **load)
    missed = objective.missed(alone)
    if missed:
        return MaxRate(objective, 0.0, alone, str(missed[0]), part)
    low, high, above = ALONE_PER_S, alone.most_requests_per_s, "no more could be carried"
    for _ in range(_MOST_HALVINGS):
        if high - low <= part * high:
            break
        rate = (low + high) / 2.0
        serving = judged(deployment, objective, rate_per_s=rate, **load)
        missed = objective.missed(serving)
        if missed:
            high, above = rate, str(missed[0])
        else:
            low, kept = rate, serving
    return MaxRate(objective, low, kept, above, part)


# ---- requests that keep it


@dataclass(frozen=True)
class Goodput:
    """
    Requests that keep an objective, each by itself.

    Attributes
    ----------
    requests_per_s : float
        Of those that keep it, over the whole run, as benchmark clients count. [request/s]
    share : float
        Of all that ended.
    served : Served
        The simulation.
    """

    objective: Objective
    requests_per_s: float
    share: float
    served: Served

    def __repr__(self) -> str:
        """Give one line."""
        whole = f"{self.served.requests_per_s:.3g} requests/s"
        return f"{self.requests_per_s:.3g} of {whole} keep the objective, {self.share:.1%} ({self.served.basis})"


def goodput(
    deployment: Deployment,
    objective: Objective,
    *,
    prompt_tokens: float | Lengths | None = None,
    output_tokens: float | Lengths | None = None,
    rate_per_s: float | None = None,
    concurrency: int | None = None,
    trace: Trace | None = None,
    burstiness: float = 1.0,
    requests: int | None = None,
    cached_share: float = 0.0,
    **choices: Any,  # noqa: ANN401 - those of simulate
) -> Goodput:
    """
    Simulate a run and count the requests that keep an objective, each by itself: statistics do not matter here.

    Parameters
    ----------
    deployment : Deployment
        What serves.
    objective : Objective
        Limits of every request; gaps have none, since a request has many.
    prompt_tokens, output_tokens, rate_per_s, concurrency, trace, burstiness, requests
        As in :func:`serve`.
    cached_share : float
        Part of each prompt that the prefix cache holds.
    **choices
        Further arguments of :func:`simulate`: engine, seed, progress.

    Returns
    -------
    counted : Goodput

    Raises
    ------
    InvalidInputError
        A limit on inter-token latency, or a load that is none.

    Notes
    -----
    Above what the server could carry the queue grows as long as the run lasts: the share then is one of this run.

    Examples
    --------
    >>> import rooflinekit as rk
    >>> d = rk.Deployment("llama-3.1-8b", "h100-sxm")
    >>> loose, strict = (rk.Objective(time_to_first_token_s=limit) for limit in (10.0, 0.150))
    >>> load = {"prompt_tokens": 2000, "output_tokens": 200, "rate_per_s": 6, "requests": 200}
    >>> rk.goodput(d, loose, **load).share, 0.0 < rk.goodput(d, strict, **load).share < 1.0
    (1.0, True)
    """
    if objective.inter_token_latency_s is not None:
        message = "goodput judges whole requests: give time_per_output_token_s rather than inter_token_latency_s"
        raise InvalidInputError(message)
    lengths = prompt_tokens, output_tokens
    traffic = traffic_of(lengths, rate_per_s, concurrency, burstiness, requests, trace=trace)
    kept = 0

    def count(first_s: float, each_s: float, whole_s: float) -> None:
        nonlocal kept
        kept += objective.met_by(first_s, each_s, whole_s)

    served = simulate(deployment, traffic, cached_share=cached_share, on_request=count, **choices)
    return Goodput(objective, kept / served.duration_s, kept / served.requests, served)
