"""Served runs with a known fault, or none: simulated request by request, and told as a client's file tells them.

The second judge of diagnosis: requests wait for each other, for the host and for the burst that opens a closed run.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from rooflinekit.calibration.diagnose import diagnose
from rooflinekit.calibration.injected import NOISE, confusion_of, ranked, weaker
from rooflinekit.measurements import Measurement
from rooflinekit.phases.deployment import Deployment
from rooflinekit.serving.arrivals import Closed, Lengths, Open, Traffic
from rooflinekit.serving.capacity import capacity
from rooflinekit.serving.engine import EngineProfile, load_engine
from rooflinekit.serving.serve import serve
from rooflinekit.serving.simulate import Served, simulate

_MACHINES = (
    ("qwen3-8b", "h200-sxm", None), ("llama-3.1-8b", "h100-sxm-80gb", None), ("qwen3-8b", "gb10", None),
    ("llama-3.1-8b", "l40s", None), ("llama-3.1-8b", "a100-sxm-80gb", "int4"), ("qwen3-14b", "h200-sxm", "fp8"),
)  # fmt: skip
_ENGINE, _VERSION = "vllm", "0.32"
_TIMES = {
    "time_to_first_token_s": ("mean", "median", "p99"), "time_per_output_token_s": ("mean", "median", "p99"),
    "inter_token_latency_s": ("mean", "median", "p99"), "end_to_end_s": ("mean", "median", "p99"),
}  # fmt: skip
_PERCENTS = {"median": 50.0, "p99": 99.0}


@dataclass(frozen=True)
class Play:
    """A run: what serves it, how its engine is set, what is asked of it, and how much of a prompt is cached."""

    real: Deployment
    profile: EngineProfile
    traffic: Traffic
    cached_share: float = 0.0

    def seen(self, seed: int) -> Served:
        """Simulate it."""
        return simulate(self.real, self.traffic, engine=self.profile, seed=seed, cached_share=self.cached_share)


Fault = Callable[[Play, np.random.Generator], Play]


def _healthy(play: Play, _: np.random.Generator) -> Play:
    return play


def _prefix_hits(play: Play, random: np.random.Generator) -> Play:
    return replace(play, cached_share=random.uniform(0.5, 0.95))


def _slower(play: Play, random: np.random.Generator) -> Play:
    factor = random.uniform(1.8, 4.0)
    compute, memory = ((factor, 1.0), (1.0, factor), (factor, factor))[random.integers(3)]
    return replace(play, real=play.real.with_(device=weaker(play.real.device, compute, memory)))


def _host(play: Play, random: np.random.Generator) -> Play:
    prompt, output = play.traffic.prompt_tokens.mean, play.traffic.output_tokens.mean
    step = float(play.real.decode(prompt + output / 2.0, batch=play.traffic.in_flight or 1).time_s)
    added = random.uniform(1.0, 5.0) * step
    return replace(play, profile=play.profile.with_(step_host_s=play.profile.step_host_s + added))


def _smaller_batch(play: Play, random: np.random.Generator) -> Play:
    sent = max(round(random.uniform(0.15, 0.5) * (play.traffic.in_flight or 1)), 1)
    return replace(play, traffic=replace(play.traffic, arrivals=Closed(sent)))


def _cache_full(play: Play, random: np.random.Generator) -> Play:
    """Leave memory for the cache of a part of what is in flight."""
    held, sent = capacity(play.real, engine=play.profile), play.traffic.in_flight or 1
    tokens = random.uniform(0.3, 0.6) * sent * play.traffic.longest_tokens
    each, whole = held.pool_bytes / held.kv_tokens, (play.real.device.memory_bytes or 0.0)
    usual = play.profile.gpu_memory_utilization or 0.9
    part = usual - (held.pool_bytes - tokens * each) / whole
    return replace(play, profile=play.profile.with_(gpu_memory_utilization=min(part, 1.0)))


#: Faults that a simulated server can have; those of the load have closed clients, which know what they sent.
SERVED_FAULTS: Mapping[str, Fault] = {
    "none": _healthy,
    "cache full": _cache_full,
    "prefix hits": _prefix_hits,
    "wrong peaks or power limit": _slower,
    "host-bound": _host,
    "smaller batch than thought": _smaller_batch,
}
#: Faults that show in long prompts: those of short ones take less than an engine's host.
_OF_PROMPTS = ("prefix hits", "wrong peaks or power limit")
_OF_LOAD = ("smaller batch than thought", "cache full")


@cache
def _machine(choice: tuple[str, str, str | None]) -> Deployment:
    return Deployment(choice[0], choice[1], weights=choice[2], memory_check=False)


def served_runs(fault: str, count: int, seed: int = 0) -> Iterator[tuple[Deployment, list[Measurement]]]:
    """
    Simulate served runs with one fault, and tell them as a client's file does, with 5% noise.

    Yields
    ------
    thought, records : Deployment, list of Measurement
        What the user believes is running, and what the file says.
    """
    random = np.random.default_rng([seed, 1, list(SERVED_FAULTS).index(fault)])
    for _ in range(count):
        thought = _machine(_MACHINES[int(random.integers(len(_MACHINES)))])
        yield thought, list(_told(fault, thought, random))


def _told(fault: str, thought: Deployment, random: np.random.Generator) -> Iterator[Measurement]:
    """Tell of the run, and of a lighter one where the fault is the machine's: with the same severity."""
    least = 10.0 if fault in _OF_PROMPTS else 8.0
    prompt, output = (float(round(2.0 ** random.uniform(*ends))) for ends in ((least, 12.0), (6.0, 8.5)))
    profile = load_engine(f"{_ENGINE}-{_VERSION}")
    lengths = Lengths(prompt), Lengths(output)
    if random.random() < 0.5:  # noqa: PLR2004 - half of all clients send lengths that differ
        lengths = Lengths.ranged(prompt, 0.8), Lengths.ranged(output, 0.8)
    play = Play(thought, profile, _drawn(fault, thought, profile, lengths, random))
    state = random.bit_generator.state
    made = SERVED_FAULTS[fault](play, random)
    yield from told(made, play.traffic, random, states=fault == "cache full")
    if fault not in _OF_LOAD:
        again = np.random.default_rng()
        again.bit_generator.state = state
        light = replace(play, traffic=Traffic(Closed(2), *lengths, requests=12))
        made_light = replace(SERVED_FAULTS[fault](light, again), profile=made.profile)
        yield from told(made_light, light.traffic, random)


def _drawn(
    fault: str,
    thought: Deployment,
    profile: EngineProfile,
    lengths: tuple[Lengths, Lengths],
    random: np.random.Generator,
) -> Traffic:
    """Draw how requests come: a closed client of 8 to 64 in flight, or at 30 to 70% of what the server could carry."""
    prompts, outputs = lengths
    if fault in _OF_LOAD or random.random() < 0.6:  # noqa: PLR2004 - most benchmarks are closed
        sent = int(random.choice([8, 16, 32, 64]))
        sent = min(sent, int(capacity(thought, engine=profile).requests(prompts.longest + outputs.longest)))
        return Traffic(Closed(max(sent, 2)), prompts, outputs, requests=int(random.integers(4, 11)) * max(sent, 2))
    most = serve(thought, prompt_tokens=prompts, output_tokens=outputs, rate_per_s=1e-3, engine=profile)
    rate = random.uniform(0.3, 0.7) * most.most_requests_per_s
    return Traffic(Open(rate), prompts, outputs, requests=int(random.integers(100, 301)))


def told(play: Play, thought: Traffic, random: np.random.Generator, *, states: bool = False) -> Iterator[Measurement]:
    """Tell of a run what `vllm bench serve` writes, and of a server's states what a scrape says."""
    seen = play.seen(int(random.integers(2**31)))

    def noisy(value: float) -> float:
        return float(value * np.exp(random.normal(0.0, NOISE)))

    arrivals = thought.arrivals
    facts: dict[str, Any] = {
        "prompt_tokens": seen.prompt_tokens / seen.requests, "output_tokens": seen.output_tokens / seen.requests,
        "requests": float(thought.requests), "engine": _ENGINE, "version": _VERSION,
        "concurrency": float(arrivals.concurrency) if isinstance(arrivals, Closed) else None,
        "request_rate": arrivals.rate_per_s if isinstance(arrivals, Open) else None,
    }  # fmt: skip
    for quantity, statistics in _TIMES.items():
        tally = getattr(seen, quantity)
        for how in statistics:
            value = tally.percentile(_PERCENTS[how]) if how in _PERCENTS else tally.mean
            yield Measurement(quantity=quantity, value=noisy(value), statistic=how, phase="request", **facts)
    yield Measurement(quantity="output_tokens_per_s", value=noisy(seen.output_tokens_per_s), **facts)
    yield Measurement(quantity="run_time_s", value=noisy(seen.duration_s), **facts)
    if states:
        running = min(seen.mean_running, float(thought.in_flight or np.inf))
        yield Measurement(quantity="requests_running", value=noisy(running), **facts)
        yield Measurement(quantity="requests_waiting", value=float(thought.in_flight or 0) - running, **facts)
        yield Measurement(quantity="kv_cache_usage", value=random.uniform(0.95, 1.0), **facts)
        yield Measurement(quantity="preemptions", value=float(seen.preemptions), statistic="total", **facts)


def served_confusion(count: int, seed: int = 0) -> pd.DataFrame:
    """
    Diagnose simulated runs with a known fault.

    Returns
    -------
    table : DataFrame
        As that of :func:`~rooflinekit.calibration.injected.confusion`, of the faults that a simulated server can have.
    """
    return confusion_of(SERVED_FAULTS, lambda fault: judged_served(fault, count, seed))


def judged_served(fault: str, count: int, seed: int = 0) -> Iterator[tuple[str, bool]]:
    """Diagnose simulated runs with one fault: what was ranked first, and whether it was among the first two."""
    for thought, records in served_runs(fault, count, seed):
        yield ranked(fault, diagnose(records, thought))
