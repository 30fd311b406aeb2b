"""Runs with a known fault, made up: what a client and a scrape would say of them, with noise. The judge of diagnosis.

They are windows of a server long at work on an engine that nobody names: no host time, no burst that opens a run. Runs
with these are simulated (:mod:`~rooflinekit.calibration.injected_served`).

Each fault is played out by its own mechanism (another device, gaps drawn one by one, a pool that is too small), not by
the formulas that :mod:`~rooflinekit.calibration.causes` explains with.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import pandas as pd

from rooflinekit.calibration.diagnose import Diagnosis, diagnose
from rooflinekit.measurements import Measurement
from rooflinekit.phases.deployment import Deployment
from rooflinekit.specs.device import Device

#: What repeated runs differ by.
NOISE = 0.05
_GAPS = 400
_BUDGET = 2048.0
_MACHINES = (
    ("qwen3-8b", "h200-sxm", None), ("llama-3.1-8b", "h100-sxm-80gb", None), ("qwen3-8b", "gb10", None),
    ("llama-3.1-8b", "a100-sxm-80gb", "int4"), ("qwen3-14b", "h200-sxm", "fp8"),
)  # fmt: skip


class Workload(NamedTuple):
    """What the requests of a run are like."""

    prompt_tokens: float
    output_tokens: float
    batch: float

    @property
    def context_tokens(self) -> float:
        """Tokens in the cache in the middle of an answer."""
        return self.prompt_tokens + (self.output_tokens - 1.0) / 2.0


@dataclass
class Run:
    """What happens in a run: seconds of passes, waits and states, before anybody measures them."""

    real: Deployment
    workload: Workload
    running: float
    wait_s: float = 0.0
    cached: float = 0.0
    mixed_share: float | None = None
    added_s: float = 0.0
    prefill_factor: float = 1.0
    step_factor: float = 1.0
    waiting: float = 0.0
    usage: float | None = None
    preemptions: float = 0.0
    prefill_floor: float = 0.0
    extra: Mapping[str, float] = field(default_factory=dict)

    def step_s(self) -> float:
        """Seconds of a decode step."""
        step = self.real.decode(self.workload.context_tokens, batch=self.running).time_s
        return float(step) * self.step_factor + self.added_s

    def prefill_s(self) -> float:
        """Seconds of a prompt's passes, chunk by chunk."""
        held = np.floor(self.cached * (self.workload.prompt_tokens - 1.0))
        whole = self.real.chunked_prefill(
            int(self.workload.prompt_tokens), token_budget=int(_BUDGET), cached_tokens=int(held)
        )
        return float(whole.time_s) * self.prefill_factor + self.added_s * len(whole.steps)

    def gaps_s(self, random: np.random.Generator) -> np.ndarray:
        """Draw the gaps of an answer: a step, or one that carries a chunk of another prompt."""
        share = self._share() if self.mixed_share is None else self.mixed_share
        chunk = min(_BUDGET, self.workload.prompt_tokens)
        others = (1.0, self.workload.context_tokens, max(self.running - 1.0, 1.0))
        mixed = float(self.real.step((chunk, 0.0, 1.0), others).time_s) * self.prefill_factor + self.added_s
        return np.where(random.random(_GAPS) < share, mixed, self.step_s())

    def _share(self) -> float:
        """Give the share of steps with a chunk that the workload itself brings."""
        chunks = np.ceil(self.workload.prompt_tokens / _BUDGET)
        return float(min((self.running - 1.0) * chunks / self.workload.output_tokens, 1.0))


Fault = Callable[["Deployment", Workload, np.random.Generator], Run]


def _healthy(thought: Deployment, workload: Workload, _: np.random.Generator) -> Run:
    return Run(thought, workload, workload.batch)


def _queueing(thought: Deployment, workload: Workload, random: np.random.Generator) -> Run:
    run = _healthy(thought, workload, random)
    many = random.uniform(1.5, 20.0)
    return replace(run, wait_s=many * run.prefill_s(), waiting=np.ceil(many))


def _cache_full(thought: Deployment, workload: Workload, random: np.random.Generator) -> Run:
    held = random.uniform(0.3, 0.7) * workload.batch
    run = Run(thought, workload, np.ceil(held), usage=random.uniform(0.96, 1.0))
    behind = workload.batch / run.running - 1.0
    wait = behind * workload.output_tokens * run.step_s()
    return replace(run, wait_s=wait, waiting=workload.batch - run.running, preemptions=float(random.integers(0, 20)))


def _prefix_hits(thought: Deployment, workload: Workload, random: np.random.Generator) -> Run:
    return Run(thought, workload, workload.batch, cached=random.uniform(0.4, 0.95))


def _interference(thought: Deployment, workload: Workload, random: np.random.Generator) -> Run:
    run = _healthy(thought, workload, random)
    return replace(run, mixed_share=min(random.uniform(4.0, 10.0) * max(run._share(), 0.04), 0.9))  # noqa: SLF001 - ours


def _slower(thought: Deployment, workload: Workload, random: np.random.Generator) -> Run:
    factor = random.uniform(1.6, 4.0)
    compute, memory = ((factor, 1.0), (1.0, factor), (factor, factor))[random.integers(3)]
    real = thought.with_(device=weaker(thought.device, compute, memory))
    return Run(real, workload, workload.batch)


def weaker(device: Device, compute: float, memory: float) -> Device:
    """Give a device with so many times less arithmetic and bandwidth."""
    sheet = device.datasheet
    known = sheet.peak_dense_tflops.model_dump(exclude_none=True)
    peaks = sheet.peak_dense_tflops.model_copy(update={name: value / compute for name, value in known.items()})
    weaker = sheet.model_copy(
        update={"peak_dense_tflops": peaks, "bandwidth_gb_per_s": sheet.bandwidth_gb_per_s / memory}
    )
    return device.model_copy(update={"datasheet": weaker})


def _host(thought: Deployment, workload: Workload, random: np.random.Generator) -> Run:
    run = _healthy(thought, workload, random)
    return replace(run, added_s=random.uniform(0.8, 5.0) * run.step_s())


def _no_kernel(thought: Deployment, workload: Workload, random: np.random.Generator) -> Run:
    plain = thought.with_(weights="bf16")
    return Run(plain, workload, workload.batch, prefill_factor=random.uniform(1.2, 2.5))


def _smaller_batch(thought: Deployment, workload: Workload, random: np.random.Generator) -> Run:
    return Run(thought, workload, max(np.floor(random.uniform(0.1, 0.5) * workload.batch), 1.0))


def _above(thought: Deployment, workload: Workload, random: np.random.Generator) -> Run:
    run = _healthy(thought, workload, random)
    step = thought.decode(workload.context_tokens, batch=workload.batch)
    fast = random.uniform(0.2, 0.8) * float(step.floor_s) / float(step.time_s)
    return replace(run, step_factor=fast)


FAULTS: Mapping[str, Fault] = {
    "none": _healthy,
    "queueing": _queueing,
    "cache full": _cache_full,
    "prefix hits": _prefix_hits,
    "chunk interference": _interference,
    "wrong peaks or power limit": _slower,
    "host-bound": _host,
    "quantisation without a fast kernel": _no_kernel,
    "smaller batch than thought": _smaller_batch,
    "measurement above the ceiling": _above,
}


#: Faults of the machine, or none: a lighter load can be measured beside.
_OF_MACHINE = (
    "none", "prefix hits", "wrong peaks or power limit", "host-bound", "quantisation without a fast kernel",
    "measurement above the ceiling",
)  # fmt: skip


def injected(fault: str, count: int, seed: int = 0) -> Iterator[tuple[Deployment, list[Measurement]]]:
    """
    Play out runs with one fault, and measure them with 5% noise.

    Yields
    ------
    thought, records : Deployment, list of Measurement
        What the user believes is running, and what a client and a scrape say.
    """
    random = np.random.default_rng([seed, list(FAULTS).index(fault)])
    machines = {choice: Deployment(choice[0], choice[1], weights=choice[2], memory_check=False) for choice in _MACHINES}
    for _ in range(count):
        thought, workload = _drawn(fault, list(machines.values()), random)
        yield thought, list(_records(fault, thought, workload, random))


def _records(fault: str, thought: Deployment, workload: Workload, random: np.random.Generator) -> Iterator[Measurement]:
    """Measure the load and a lighter one; what is wrong with a machine is the same in both."""
    state = random.bit_generator.state
    run = FAULTS[fault](thought, workload, random)
    yield from measured(run, workload, random)
    if fault in _OF_MACHINE:
        again = np.random.default_rng()
        again.bit_generator.state = state  # the same severity
        light = workload._replace(batch=2.0)
        yield from measured(_same_fault(run, FAULTS[fault](thought, light, again)), light, random)


def _same_fault(run: Run, light: Run) -> Run:
    """Give the lighter run the host time of the other: seconds, not a part of a step."""
    return replace(light, added_s=run.added_s)


def _drawn(fault: str, machines: list[Deployment], random: np.random.Generator) -> tuple[Deployment, Workload]:
    packed = [one for one in machines if one.precision.weights.bytes_per_weight < 2.0]  # noqa: PLR2004 - 16 bits
    chosen = packed if fault == "quantisation without a fast kernel" else machines
    prompt, output = (float(round(2.0 ** random.uniform(*ends))) for ends in ((9.0, 13.0), (7.0, 9.5)))
    batch = float(random.choice([8, 16, 32, 64]))
    if fault == "chunk interference":  # an own share that is small leaves room for more
        prompt, output, batch = min(prompt, _BUDGET), 4.0 * output, min(batch, 16.0)
    thought = chosen[int(random.integers(len(chosen)))]
    if fault == "cache full":  # the pool is too small for what is in flight
        batch = float(np.ceil(_room(thought, Workload(prompt, output, 1.0)) * random.uniform(1.4, 3.0)))
    return thought, Workload(prompt, output, batch)


def _room(thought: Deployment, workload: Workload) -> float:
    memory = 0.9 * (thought.device.memory_bytes or 0.0) - thought.weights_bytes
    return max(memory / float(thought.kv_cache_bytes(tokens=workload.context_tokens)), 2.0)


def measured(run: Run, workload: Workload, random: np.random.Generator) -> list[Measurement]:
    """Say of a run what a client and a scrape say, each figure with its own noise."""

    def noisy(value: float) -> float:
        return float(value * np.exp(random.normal(0.0, NOISE)))

    gaps = run.gaps_s(random)
    mean = float(gaps.mean())
    first = run.prefill_s() + mean / 2.0 + run.wait_s
    rate = run.running * workload.output_tokens / (run.prefill_s() + mean * workload.output_tokens)
    usage = run.usage if run.usage is not None else min(run.running / _room(run.real, workload), 0.9)
    seen = (
        ("time_to_first_token_s", noisy(first), "median"), ("prefill_time_s", noisy(run.prefill_s()), "mean"),
        ("time_per_output_token_s", noisy(mean), "mean"), ("output_tokens_per_s", noisy(rate), "single"),
        ("inter_token_latency_s", noisy(float(np.quantile(gaps, 0.99))), "p99"),
        ("queue_time_s", noisy(run.wait_s), "mean"), ("requests_running", noisy(run.running), "single"),
        ("requests_waiting", run.waiting, "single"), ("kv_cache_usage", usage, "single"),
        ("prefix_cache_hit_rate", run.cached, "single"), ("preemptions", run.preemptions, "total"),
    )  # fmt: skip
    return [
        Measurement(
            quantity=name, value=value, statistic=how, prompt_tokens=workload.prompt_tokens,
            output_tokens=workload.output_tokens, concurrency=workload.batch,
        )
        for name, value, how in seen
    ]  # fmt: skip


def confusion(count: int, seed: int = 0) -> pd.DataFrame:
    """
    Diagnose runs with a known fault.

    Returns
    -------
    table : DataFrame
        One row a fault: how many runs each first-ranked cause was named for (``none``: no verdict), and in how many
        the right one was among the first two.
    """
    return confusion_of(FAULTS, lambda fault: judged(fault, count, seed))


def confusion_of(faults: Iterable[str], judge: Callable[[str], Iterable[tuple[str, bool]]]) -> pd.DataFrame:
    """Count what was ranked first, fault by fault."""
    rows = []
    for fault in faults:
        line = dict.fromkeys((*FAULTS, "cannot tell", "in_first_two"), 0)
        for told, among in judge(fault):
            line[told] += 1
            line["in_first_two"] += among
        rows.append({"fault": fault, **line})
    return pd.DataFrame(rows).set_index("fault")


def judged(fault: str, count: int, seed: int = 0) -> Iterator[tuple[str, bool]]:
    """Diagnose runs with one fault: what was ranked first, and whether the fault was among the first two."""
    for thought, records in injected(fault, count, seed):
        yield ranked(fault, diagnose(records, thought, token_budget=_BUDGET))


def ranked(fault: str, found: Diagnosis) -> tuple[str, bool]:
    """Say what a diagnosis ranks first, and whether a fault is among its first two."""
    named = found.cause is not None or found.verdict.startswith("cannot tell which")
    told = found.findings[0].cause if named else "none" if "nothing unusual" in found.verdict else "cannot tell"
    told = told if told in FAULTS else "cannot tell"
    return told, fault == told or (named and fault in {one.cause for one in found.findings[:2]})
