"""Budget: where the time of a request goes, line by line, against a limit; and what alone would close the gap."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rooflinekit import units
from rooflinekit.errors import DoesNotFitError, InvalidInputError, MissingFigureError
from rooflinekit.phases.deployment import Deployment
from rooflinekit.serving.capacity import refuse_longer
from rooflinekit.serving.engine import EngineProfile
from rooflinekit.serving.host import Layers, basis_of, profile_for, served_by, with_host_s
from rooflinekit.serving.objectives import STATISTICS, Objective, judged
from rooflinekit.serving.serve import Serving
from rooflinekit.specs.precision import one_of
from rooflinekit.specs.step import checked

if TYPE_CHECKING:
    import pandas as pd

#: A solved size is right to one part in so many.
_PARTS = 100.0
#: Fewer requests than this part of those that come are no remedy.
_LEAST_LOAD = 1e-3


class Ledger(NamedTuple):
    """Lines of a request's time. [s]"""

    network_s: float
    queue_s: float
    prefill_s: float
    decode_s: float

    @property
    def total_s(self) -> float:
        """End to end."""
        return sum(self)

    def over_s(self, limit_s: float) -> float:
        """Seconds by which a limit is missed; 0 where it is kept."""
        return max(self.total_s - limit_s, 0.0)

    def faster(self, limit_s: float) -> dict[str, float | None]:
        """
        Tell how many times as fast each line alone would have to be, all others as they are; None where it cannot.

        Examples
        --------
        >>> lines = ledger(network_s=0.04, queue_s=0.05, prefill_s=0.15, output_tokens=15, inter_token_latency_s=0.008)
        >>> {line: times and round(times, 2) for line, times in lines.faster(0.3).items()}
        {'network': None, 'queue': None, 'prefill': 1.67, 'decode': 2.0}
        """
        over = self.over_s(limit_s)
        return {
            line.removesuffix("_s"): None if seconds <= over > 0 else 1.0 if over == 0 else seconds / (seconds - over)
            for line, seconds in self._asdict().items()
        }


def ledger(
    *,
    prefill_s: float,
    output_tokens: float,
    inter_token_latency_s: float,
    network_s: float = 0.0,
    queue_s: float = 0.0,
) -> Ledger:
    r"""
    Add up a request's time from its parts.

    .. math:: t = t_\mathrm{network} + t_\mathrm{queue} + t_\mathrm{prefill} + o \cdot \mathrm{ITL}

    Parameters
    ----------
    prefill_s, network_s, queue_s : float
        [s]
    output_tokens : float
        Every one counts with a gap, as the text does; the prefill samples the first, so that :func:`budget`, which asks
        the model, counts one less. [token]
    inter_token_latency_s : float
        [s]

    Returns
    -------
    lines : Ledger

    References
    ----------
    "Prefill and decode", section "Which phase owns which number".

    Examples
    --------
    The course's chat request, 6,000 tokens at 10,000 a second and 400 answers of 8 ms:

    >>> lines = ledger(prefill_s=6000 / 10_000, output_tokens=400, inter_token_latency_s=0.008)
    >>> lines.prefill_s, lines.decode_s
    (0.6, 3.2)
    """
    parts = {"prefill_s": prefill_s, "network_s": network_s, "queue_s": queue_s, "output_tokens": output_tokens}
    for name, value in {**parts, "inter_token_latency_s": inter_token_latency_s}.items():
        checked(name, value)
    return Ledger(network_s, queue_s, prefill_s, output_tokens * inter_token_latency_s)


class Change(NamedTuple):
    """A change that alone would close the gap; ``to`` is None where it cannot, `reason` says what stands against it."""

    change: str
    unit: str
    before: float | str
    to: float | str | None
    end_to_end_s: float
    reason: str = ""

    @property
    def closes(self) -> bool:
        """Whether it can."""
        return self.to is not None


@dataclass(frozen=True)
class Budget:
    """
    A ledger against a limit.

    Attributes
    ----------
    ledger : Ledger
        Lines of the statistic asked for; the queue holds all that a request waits for, and what else runs in its steps,
        prefill and decode the engine's host times.
    limit_s : float
        [s]
    statistic : str
        Of time to first token and of the whole.
    basis : str
        Whose constants and profile.
    serving : Serving or None
        What the server delivers; None for one request alone, which has no queue: service time only.
    changes : tuple of Change
        Each alone, with what it would have to be; empty where the limit is kept.
    """

    ledger: Ledger
    limit_s: float
    statistic: str
    basis: str
    serving: Serving | None
    changes: tuple[Change, ...]

    @property
    def met(self) -> bool:
        """Whether the limit is kept."""
        return self.ledger.total_s <= self.limit_s

    def table(self) -> "pd.DataFrame":
        """Give the ledger as a tidy DataFrame: a row a line, with its share and how much faster it would have to be."""
        import pandas as pd  # noqa: PLC0415 - loads on first use

        faster, total = self.ledger.faster(self.limit_s), self.ledger.total_s
        lines = ((line.removesuffix("_s"), seconds) for line, seconds in self.ledger._asdict().items())
        rows = [(line, seconds, seconds / total, faster[line]) for line, seconds in lines]
        return pd.DataFrame(rows, columns=["line", "time_s", "share", "times_faster"])

    def __repr__(self) -> str:
        """Give one line."""
        if self.serving is not None and self.serving.overloaded:
            return repr(self.serving)
        told = "within" if self.met else f"{units.duration(self.ledger.over_s(self.limit_s))} beyond"
        whole = f"{self.statistic} {units.duration(self.ledger.total_s)}"
        return f"{whole}, {told} {units.duration(self.limit_s)} ({self.basis})"


def budget(
    deployment: Deployment,
    limit_s: float,
    *,
    prompt_tokens: float,
    output_tokens: float,
    network_s: float = 0.0,
    rate_per_s: float | None = None,
    concurrency: int | None = None,
    cached_tokens: float = 0.0,
    statistic: str = "mean",
    engine: str | EngineProfile | None = None,
    devices: Sequence[Any] = (),
    **choices: Any,  # noqa: ANN401 - those of serve
) -> Budget:
    """
    Set the time of a request against a limit, and solve for what alone would close the gap.

    Parameters
    ----------
    deployment : Deployment
        What serves.
    limit_s : float
        End to end. [s]
    prompt_tokens, output_tokens, cached_tokens : float
        Of each request. [token]
    network_s : float
        There and back. [s]
    rate_per_s, concurrency
        Load, as in :func:`serve`; neither is one request alone, which waits for nobody.
    statistic : {"mean", "p50", "p90", "p99"}
        That the limit is about.
    engine : str or EngineProfile
        Whose scheduler, pool and host times.
    devices : sequence
        Others that are tried in this one's place.
    **choices
        Further arguments of :func:`serve`: burstiness, requests, method, seed.

    Returns
    -------
    told : Budget

    Raises
    ------
    InvalidInputError
        A size or limit is out of range, both rate and concurrency are given, settings of a load are given without one,
        or the request is longer than the engine takes (``max_model_len``).

    Notes
    -----
    Each change is solved by bisection on the whole answer, queue included, to 1%; how much faster prefill or decode
    would have to be leaves the other lines as they are.

    Examples
    --------
    >>> import rooflinekit as rk
    >>> d = rk.Deployment("llama-3.1-8b", "l40s")
    >>> told = rk.budget(d, 0.35, prompt_tokens=1500, output_tokens=20, network_s=0.02, devices=["h100-sxm"])
    >>> told.met, [change.change for change in told.changes if change.closes]
    (False, ['fewer answer tokens', 'faster decode', 'another device'])
    """
    one_of("statistic", statistic, STATISTICS)
    if rate_per_s is not None and concurrency is not None:
        message = "give one of rate_per_s= (open) and concurrency= (closed), or neither: one request alone"
        raise InvalidInputError(message)
    if choices and rate_per_s is None and concurrency is None:
        message = f"{', '.join(choices)}: of a load: give rate_per_s= (open) or concurrency= (closed) too"
        raise InvalidInputError(message)
    checked("network_s", network_s)
    load = {"rate_per_s": rate_per_s, "concurrency": concurrency}
    sizes = {"prompt_tokens": prompt_tokens, "output_tokens": output_tokens, "cached_tokens": cached_tokens}
    for name, least in {"prompt_tokens": 1.0, "output_tokens": 1.0, "cached_tokens": 0.0}.items():
        checked(name, sizes[name], minimum=least)
    limit = float(checked("limit_s", limit_s, positive=True))  # type: ignore[arg-type]
    profile = profile_for(deployment, engine)
    refuse_longer(deployment, profile, prompt_tokens + output_tokens)
    served = served_by(deployment, profile)
    work = _Work(served, {**sizes, **load, "engine": profile, **choices}, limit, network_s, statistic)
    lines = work.lines()
    changes = () if lines.total_s <= limit else tuple(_changes(work, lines, devices))
    return Budget(lines, limit, statistic, work.basis, work.serving, changes)


@dataclass(frozen=True)
class _Work:
    """One question, and what changes of it would answer."""

    deployment: Deployment
    load: dict[str, Any]
    limit_s: float
    network_s: float
    statistic: str

    @property
    def profile(self) -> EngineProfile:
        profile: EngineProfile = self.load["engine"]
        return profile

    @property
    def basis(self) -> str:
        return basis_of(self.deployment, self.profile)

    @property
    def alone(self) -> bool:
        return self.load["rate_per_s"] is None and self.load["concurrency"] is None

    @cached_property
    def serving(self) -> Serving | None:
        """What the server delivers; None where nobody else is served."""
        if self.alone:
            return None
        objective = Objective(time_to_first_token_s=1.0, end_to_end_s=1.0, statistic=self.statistic)
        return judged(self.deployment, objective, **self.load)

    def changed(self, **changes: Any) -> "_Work":  # noqa: ANN401 - those of serve
        """Ask the same with some of it changed."""
        deployment = changes.pop("deployment", self.deployment)
        return replace(self, deployment=deployment, load={**self.load, **changes})

    def lines(self) -> Ledger:
        """Add up the ledger: a prefill as it takes alone, what the first token waits besides, the rest."""
        serving = self.serving
        if serving is None:
            return self._service(0.0)
        if serving.overloaded:
            return self._service(np.inf)._replace(queue_s=np.inf)
        prefill_s = self._service(np.inf).prefill_s
        metrics = (serving.time_to_first_token_s, serving.end_to_end_s)
        first, whole = (float(getattr(metric, self.statistic)) for metric in metrics)
        return Ledger(self.network_s, max(first - prefill_s, 0.0), min(prefill_s, first), whole - first)

    def _service(self, busy_s: float) -> Ledger:
        """Give the lines of one request alone, after a rest or on a card that has worked for long."""
        prompt, output, held = (int(self.load[name]) for name in ("prompt_tokens", "output_tokens", "cached_tokens"))
        profile, deployment = self.profile, self.deployment
        budget = profile.token_budget(deployment.device) if profile.enable_chunked_prefill else prompt
        read = deployment.chunked_prefill(prompt, token_budget=budget, cached_tokens=held, busy_s=busy_s)
        passes_s, sizes = [one.time_s for one in read.steps], [one.tokens for one in read.steps]
        host = partial(with_host_s, profile, layers=Layers.of(deployment), sequences=1)
        prefill_s = profile.request_host_s + float(np.sum(host(np.array(passes_s), prompts=1, tokens=np.array(sizes))))
        if output == 1:
            return Ledger(self.network_s, 0.0, prefill_s, 0.0)
        decode = deployment.request(prompt, output_tokens=output, cached_tokens=held, busy_s=busy_s).decode
        decode_s = (output - 1) * float(host(decode.time_s / (output - 1), prompts=0, tokens=1))
        return Ledger(self.network_s, 0.0, prefill_s, decode_s)


# ---- what alone would close the gap


def _changes(work: _Work, lines: Ledger, devices: Sequence[object]) -> Iterator[Change]:
    load = work.load
    prompt, output, cached = (float(load[name]) for name in ("prompt_tokens", "output_tokens", "cached_tokens"))
    yield _solved(work, ("shorter prompt", "prompt_tokens", prompt), cached + 1.0)
    yield _solved(work, ("cached prefix", "cached_tokens", cached), prompt - 1.0)
    yield _solved(work, ("fewer answer tokens", "output_tokens", output), 1.0)
    if load["rate_per_s"] is not None:
        rate = float(load["rate_per_s"])
        yield _solved(work, ("fewer requests", "rate_per_s", rate), rate * _LEAST_LOAD)
    elif load["concurrency"] is not None:
        yield _solved(work, ("fewer requests in flight", "concurrency", float(load["concurrency"])), 1.0)
    yield from _faster(lines, work.limit_s)
    yield from (_device(work, device) for device in devices)


def _solved(work: _Work, what: tuple[str, str, float], extreme: float) -> Change:
    """Find the smallest change that suffices, between what is and an extreme."""
    name, argument, before = what
    whole = argument != "rate_per_s"

    def total_s(value: float) -> float:
        return work.changed(**{argument: int(value) if whole else value}).lines().total_s

    reached = total_s(extreme)
    if reached > work.limit_s:
        return Change(name, argument, before, None, reached)
    to, seconds = _bisected(total_s, (before, extreme), work.limit_s, whole=whole)
    return Change(name, argument, before, to, seconds)


def _bisected(
    seconds: Callable[[float], float], ends: tuple[float, float], limit_s: float, *, whole: bool
) -> tuple[float, float]:
    """Give the value nearest to the first end that keeps the limit, to 1%, and its seconds; the second end keeps it."""
    bad, good = ends
    kept = seconds(good)
    while abs(good - bad) > max(abs(good) / _PARTS, 1.0 if whole else 0.0):
        middle = (good + bad) / 2.0
        middle = float(round(middle)) if whole else middle
        now = seconds(middle)
        if now <= limit_s:
            good, kept = middle, now
        else:
            bad = middle
    return good, kept


def _faster(lines: Ledger, limit_s: float) -> Iterator[Change]:
    """Yield how many times as fast prefill and decode would have to be, other lines as they are."""
    for line in ("prefill", "decode"):
        times = lines.faster(limit_s)[line]
        left = lines.total_s - getattr(lines, f"{line}_s")
        yield Change(f"faster {line}", "times", 1.0, times, limit_s if times else left)


def _device(work: _Work, device: object) -> Change:
    """Ask another device; one that cannot serve this model says why."""
    before = work.deployment.device.id
    try:
        other = work.deployment.with_(device=device)
        seconds = work.changed(deployment=other).lines().total_s
    except (DoesNotFitError, MissingFigureError) as error:
        named = getattr(device, "id", device)
        return Change(f"{named} instead", "device", before, None, float("nan"), str(error))
    kept = seconds <= work.limit_s
    name = "another device" if kept else f"{other.device.id} instead"
    return Change(name, "device", before, other.device.id if kept else None, seconds)
