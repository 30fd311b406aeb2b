"""What a served run shows with a fault: what it shows without, changed as the fault changes the passes in it."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rooflinekit.calibration.served_run import ServedRun

Values = NDArray[np.float64]
#: What a client times: its symptom, and the quantity where the records say no other.
CLIENT: Mapping[str, str] = {
    "ttft_s": "time_to_first_token_s", "step_s": "time_per_output_token_s", "request_s": "end_to_end_s",
}  # fmt: skip
#: Share of mixed steps from which the p99 of the gaps is one of them; and over the workload's own, that they are more.
TAIL, _MORE = 0.01, 1.2
#: Part of the time that prompts take at most, turns of the iteration, and how far a running batch grows at most.
_FULL, _TURNS, _GROWTH = 0.95, 6, 8.0
#: Parts of a prompt in the cache for which a run is played anew, denser where less is left to read.
HIT_SHARES: tuple[float, ...] = (0.0, 0.25, 0.5, 0.65, 0.75, 0.82, 0.88, 0.93, 0.98)
_TWO = 2  # plays that something lies between
#: Parts of the requests in flight with which it is played, for a client that keeps fewer of them.
BATCH_PARTS: tuple[float, ...] = (0.05, 0.15, 0.3, 0.45, 0.6, 0.8, 1.0)


class Passes(NamedTuple):
    """
    Passes of a run, arrays over a fault's severities.

    ``batch`` sequences run; ``alone_s`` is their step, ``mixed_s`` one that carries a chunk of a prompt as well, the
    ``share`` of all; ``prefill_s`` reads one prompt, ``burst_s`` all that come together. ``own_share`` tells whether
    the share is what the workload brings, so that it grows where steps are longer.
    """

    batch: Values
    alone_s: Values
    mixed_s: Values
    share: Values
    prefill_s: Values
    burst_s: Values
    own_share: bool = True

    @property
    def step_s(self) -> Values:
        """Give the mean step."""
        return np.asarray(self.alone_s + self.share * np.maximum(self.mixed_s - self.alone_s, 0.0))


def as_served(
    run: ServedRun,
    told_by: Mapping[str, tuple[str, str]],
    now: Passes,
    usual: Passes,
    *,
    output_tokens: float,
    growth: float,
    longest_chunk: float,
) -> dict[str, Values]:
    r"""
    Give what a client sees of a run whose passes are not as usual.

    Parameters
    ----------
    run : ServedRun
        The run without fault.
    told_by : mapping
        Symptom -> quantity and statistic that it is told by.
    now, usual : Passes
        With the fault and without.
    output_tokens : float
        Of an answer. [token]
    growth : float
        By how much of itself a step is longer with twice the sequences: what comes at a rate runs together for longer.
    longest_chunk : float
        By what the longest prompt lengthens a step.

    Returns
    -------
    shown : dict
        Symptom -> value.

    Notes
    -----
    A closed client's mean step follows the passes; of requests that come at a rate a longer step sees more prompts and
    more sequences, :math:`D (1 + g (x - 1)) / (1 - \rho)` with :math:`x` the step over the usual one. A first token
    is the host's time, its own prefill and half a step, and prompts before it, each as much longer as its passes.

    Examples
    --------
    All passes take twice as long; what the host does before a first token does not:

    >>> import rooflinekit as rk
    >>> from rooflinekit.calibration.served_run import Arrivals, served_run
    >>> d, engine = rk.Deployment("llama-3.1-8b", "h100-sxm"), rk.load_engine("vllm")
    >>> run = served_run(d, engine, Arrivals(None, 8, 80), (1024.0, 128.0))
    >>> usual = Passes(*(np.asarray(one) for one in (8.0, 0.007, 0.050, 0.05, 0.045, 0.150)))
    >>> longer = {name: 2.0 * getattr(usual, name) for name in ("alone_s", "mixed_s", "prefill_s", "burst_s")}
    >>> twice = usual._replace(**longer)
    >>> clean, slow = (
    ...     as_served(run, {}, now, usual, output_tokens=128.0, growth=0.1, longest_chunk=1.0) for now in (usual, twice)
    ... )
    >>> round(float(slow["step_s"] / clean["step_s"]), 6)
    2.0
    >>> host = engine.request_host_s
    >>> round(float((slow["ttft_s"] - host) / (clean["ttft_s"] - host)), 6)
    2.0
    """
    mean = _mean_s(run, "step_s")
    mean = mean if np.isfinite(mean) else float(usual.step_s)  # answers of one token have no step
    step = _step_s(run, now, usual, (mean, growth))
    slower = now.burst_s / usual.burst_s
    if run.arrivals.concurrency is None:  # what comes at random waits for steps of any kind
        slower = np.maximum(slower, step / mean)
    first, mean_first = (_first_s(run, told, now, usual, slower) for told in (told_by, {}))
    answers = output_tokens - 1.0
    whole, before = mean_first + answers * step, _mean_s(run, "ttft_s") + answers * mean
    return {
        "ttft_s": first,
        "step_s": _figure_s(run, told_by, "step_s") * step / mean,
        "request_s": _figure_s(run, told_by, "request_s") * whole / before,
        "tokens_per_s": run.output_tokens_per_s * now.batch / usual.batch * before / whole,
        "queue_s": np.maximum(mean_first - run.profile.request_host_s - now.prefill_s, 0.0),
        **_gaps_s(run, now, usual, longest_chunk),
    }


def _mean_s(run: ServedRun, symptom: str) -> float:
    return run.latency_s(CLIENT[symptom], "mean")


def _figure_s(run: ServedRun, told_by: Mapping[str, tuple[str, str]], symptom: str) -> float:
    return run.latency_s(*told_by.get(symptom, (CLIENT[symptom], "mean")))


def _step_s(run: ServedRun, now: Passes, usual: Passes, at: tuple[float, float]) -> Values:
    """Give the mean time per token; where requests come at a rate, longer steps see more of them and run more."""
    mean, growth = at
    scale = mean / usual.step_s
    if run.arrivals.concurrency or not now.own_share:
        return np.asarray(scale * now.step_s)
    part = np.minimum((now.step_s - now.alone_s) / usual.step_s, _FULL)
    step = now.step_s
    for _ in range(_TURNS):
        longer = np.clip(step / usual.step_s, 0.0, _GROWTH)
        step = now.alone_s * (1.0 + growth * (longer - 1.0)) / (1.0 - part)
    return np.asarray(scale * step)


def _first_s(
    run: ServedRun, told_by: Mapping[str, tuple[str, str]], now: Passes, usual: Passes, slower: Values
) -> Values:
    """Give the time to first token: host, own prefill with half a step, and prompts before it."""
    host = run.profile.request_host_s
    own, before = (one.prefill_s + one.step_s / 2.0 for one in (now, usual))
    rest = _figure_s(run, told_by, "ttft_s") - host - before
    return np.where(rest > 0.0, host + own + rest * slower, host + (rest + before) * own / before)


def _gaps_s(run: ServedRun, now: Passes, usual: Passes, longest_chunk: float) -> dict[str, Values]:
    """Change the p99 of the gaps as its kind of step, or make it a step with a chunk where those become more."""
    middle, low, high = run.gap_p99_s
    more = now.share > np.maximum(TAIL, _MORE * usual.share)
    found = {}
    for name, gap in {"gap_p99_s": middle, "shortest_gap_s": low, "longest_gap_s": high * longest_chunk}.items():
        alone = gap * now.alone_s / usual.alone_s
        carries = gap > np.sqrt(usual.alone_s * usual.mixed_s)  # nearer to a step with a chunk than to one alone
        other = np.where(more, np.maximum(now.mixed_s, alone), alone)
        found[name] = np.where(carries, gap * now.mixed_s / usual.mixed_s, other)
    return {**found, "other_gap_s": found["gap_p99_s"]}


# ---- prompts that lie in the cache, played


def as_played(run: ServedRun, told_by: Mapping[str, tuple[str, str]], longest_chunk: float) -> dict[str, float]:
    """Give what a client sees of a run, as it was played."""
    middle, low, high = run.gap_p99_s
    told = {name: _figure_s(run, told_by, name) for name in CLIENT}
    gaps = {"gap_p99_s": middle, "shortest_gap_s": low, "longest_gap_s": high * longest_chunk, "other_gap_s": middle}
    return {**told, "tokens_per_s": run.output_tokens_per_s, **gaps}


def between(plays: Sequence[Mapping[str, float]], played: Sequence[float], wanted: Values) -> dict[str, Values]:
    """
    Interpolate the logarithms of figures between the severities that were played; none where one could not be.

    The p99 of the gaps may change its kind of step between two of them: its bounds are those of both.

    Examples
    --------
    >>> plays = [{"ttft_s": one, "shortest_gap_s": one} for one in (1.0, 0.75, 0.5)]
    >>> found = between(plays, (0.0, 0.25, 0.5), np.array([0.0, 0.125]))
    >>> {name: values.round(3).tolist() for name, values in found.items()}
    {'ttft_s': [1.0, 0.866], 'shortest_gap_s': [1.0, 0.75]}
    >>> between([*plays, {}], (0.0, 0.25, 0.5, 0.75), np.array([0.125]))
    {}
    """
    if len(plays) < _TWO or not all(plays):
        return {}
    at = np.searchsorted(played, wanted).clip(1, len(played) - 1)
    on = np.isclose(np.array(played)[at - 1], wanted)
    found = {}
    for name in plays[0]:
        values = np.array([one[name] for one in plays])
        edges = values[at - 1], np.where(on, values[at - 1], values[at])
        even = np.exp(np.interp(wanted, played, np.log(values)))
        pick = {"shortest_gap_s": np.minimum, "longest_gap_s": np.maximum}.get(name)
        found[name] = even if pick is None else pick(*edges)
    return found
