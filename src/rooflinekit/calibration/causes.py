"""Causes: what each fault makes a run show, as a function of its severity, and what to do about it."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from rooflinekit import units
from rooflinekit.calibration.case import Case, Values
from rooflinekit.calibration.deviations import Shown, deviations
from rooflinekit.errors import RooflinekitError
from rooflinekit.phases.estimate import Estimate

_GRID = 48
_MACHINE, _LOAD = True, False
#: Fewer sequences than this are one; weights of fewer bytes are packed.
_ALONE, _PLAIN_BYTES = 1.5, 2.0
#: So few tokens are no prompt that anybody sends: its count may leave something out.
_SHORT = 4.0
#: Least part of the pool that is free for sequences.
_FREE = 0.3
#: Part of the cache in use from which it is full; of what the settings give, below which a pool is smaller; how many
#: times what is in flight a pool holds that is surely none too small; part of what is in flight that runs at most.
_IN_FULL_USE, _SMALLER, _ROOMY, _ALMOST = 0.93, 0.9, 1.2, 0.97
#: Part of what fits from which the cache holds as many as run.
_AS_HELD = 0.8
#: Times of a client that prompts are in, and deviations from which one is less than expected.
_OF_PROMPTS, _LESS = ("ttft_s", "step_s", "request_s", "gap_p99_s"), 1.5
Told = Callable[..., str]


class Cause(NamedTuple):
    """
    One fault.

    ``severities`` lists what it may amount to in a case, one row of figures each, none where it cannot occur; ``shows``
    takes the columns of these rows and gives the symptoms that the fault makes, as a run without fault where it says
    nothing; ``told`` says one row in words. A fault of the machine has one severity in all runs, one of the load its
    own in each: ``of_machine``. What claims several things at once must explain ``at_least`` that part of what is off.
    """

    name: str
    of_machine: bool
    severities: Callable[[Case], Values]
    shows: Callable[..., Shown]
    told: Told
    change: str
    measurement: str
    at_least: float = 0.0


def _spaced(low: float, high: float) -> Values:
    return np.geomspace(low, high, _GRID)[:, None]


_NONE = np.empty((0, 1))


# ---- before the first token


def _queue(case: Case, wait_s: Values) -> Shown:
    return {**case.shown(case.batch, wait_s=wait_s), "waiting": np.ones(())}


def _waits(case: Case) -> Values:
    longest = case.prefill_s() + case.output_tokens * case.step_s(case.batch)
    return _spaced(0.3 * float(case.prefill_s()), 30.0 * float(longest))


def _cold(case: Case, extra_s: Values) -> Shown:
    return case.shown(case.batch, prefill_s=case.prefill_s() + extra_s)


def _starts(case: Case) -> Values:
    """Give waits of one request: a run of many has its first among others, and a whole batch hides it."""
    timed = "prefill_s" in case.observed or "ttft_s" in case.observed
    return _waits(case) if timed and not case.served else _NONE


def _hits(case: Case, share: Values) -> Shown:
    held = np.floor(share * (case.prompt_tokens - 1.0))
    burst = case.burst_with_host_s(np.asarray(case.burst(held).time_s), held)
    shown = case.shown(
        case.batch, prefill_s=case.prefill_s(held), mixed_s=case.mixed_s(case.batch, held), burst_s=burst
    )
    played = case.with_hits(share) if _reads_less(case) else {}
    return {**shown, **played, "hit_rate": share}


def _reads_less(case: Case) -> bool:
    """Tell whether a client of a served run sees anything that less of a prompt could be: only then it is played."""
    seen = ((name, case.observed[name]) for name in _OF_PROMPTS if name in case.observed)
    return case.run is not None and any(
        float(deviations(case, name, value, case.clean)) < -_LESS for name, value in seen
    )


# ---- between tokens


def _interference(case: Case, share: Values) -> Shown:
    return case.shown(case.batch, share=share)


def _shares(case: Case) -> Values:
    """Give shares above what the workload itself brings."""
    least = max(1.5 * float(case.mixed_share(case.batch)), 0.02)
    return _spaced(least, 1.0) if case.served and case.batch > _ALONE and least < 1.0 else _NONE


def _full(case: Case, running: Values) -> Shown:
    shown = case.shown(running)
    wait = np.maximum(_sent(case) / running - 1.0, 0.0) * case.output_tokens * shown["step_s"]  # Little's law
    states = {"usage": np.ones(()), "waiting": np.ones(()), "preemptions": np.ones(())}
    return {**case.shown(running, wait_s=wait), **states}


def _sent(case: Case) -> float:
    """Give the requests in flight: all that a client sent, or those that run and those that wait."""
    return max(case.batch, case.observed.get("running", 0.0) + case.observed.get("waiting", 0.0))


def _fewer(case: Case, running: Values) -> Shown:
    return {**case.shown(running), **(case.with_fewer(running) if _reads_less(case) else {})}


def _limited(case: Case, running: Values) -> Shown:
    """Show a limit on what runs: the others wait, by Little's law."""
    full = _full(case, running)
    return {**full, "usage": case.shown(running)["usage"], "preemptions": np.zeros(())}


def _limits(case: Case) -> Values:
    """Give limits of a closed client's batch; what waits for a full cache waits for no limit."""
    closed = case.served and case.request_rate is None
    return _below(case) if closed and not is_full(case) else _NONE


def is_full(case: Case) -> bool:
    """Tell whether the cache is in full use, or cannot hold what is in flight."""
    return case.observed.get("usage", 0.0) >= _IN_FULL_USE or case.pool_sequences < case.batch


def _slower_client(case: Case, part: Values) -> Shown:
    """Show requests that come at a part of the rate: fewer run together."""
    return {**case.shown(np.maximum(case.batch * part, 1.0)), "requests_per_s": part * case.completed_per_s}


def _rate_parts(case: Case) -> Values:
    return _spaced(0.02, 0.9) if "requests_per_s" in case.observed else _NONE


def _below(case: Case) -> Values:
    return _spaced(1.0, 0.85 * case.batch) if case.batch > _ALONE else _NONE


def _held(case: Case) -> Values:
    """Give how many may run where they may not all fit: what the pool holds, or a part where much of it is not free.

    A cache in full use is full, and one that its engine says to be smaller than the settings give may be, whatever the
    settings say.
    """
    used = case.observed.get("usage", 0.0) >= _IN_FULL_USE
    smaller = case.pool_sequences < _SMALLER * case.pool_by_settings
    if case.batch <= _ALONE or not (used or smaller or case.pool_sequences < _ROOMY * case.batch):
        return _NONE
    most = _ALMOST * _sent(case) if used else 0.85 * case.batch
    return _spaced(min(max(_FREE * case.pool_sequences, 1.0), 1.0 if used else 0.9 * most), most)


# ---- the whole machine


def _slower(case: Case, compute: Values, memory: Values) -> Shown:
    """Show less arithmetic, less bandwidth, or both."""
    step, mixed, prefill, burst = (
        _stretched(one, compute, memory) for one in (case.step, case.mixed(case.batch), case.prefill, case.burst())
    )
    return case.shown(
        case.batch, alone_s=case.step_with_host_s(step, case.batch), mixed_s=case.mixed_with_host_s(mixed, case.batch),
        prefill_s=case.prefill_with_host_s(prefill), burst_s=case.burst_with_host_s(burst),
    )  # fmt: skip


def _stretched(estimate: Estimate, compute: Values, memory: Values) -> Values:
    """Stretch the compute-bound and the memory-bound rows of a pass; launches and links stay."""
    busy, moved, *others = estimate.parts_s.sum(axis=(1, 2))
    return np.asarray(busy * compute + moved * memory + sum(others))


def _factors(_: Case) -> Values:
    slow = _spaced(1.2, 8.0)
    same = np.ones_like(slow)
    return np.concatenate([np.hstack(pair) for pair in ((slow, same), (same, slow), (slow, slow))])


def _host(case: Case, extra_s: Values) -> Shown:
    alone, mixed = case.step_s(case.batch) + extra_s, case.mixed_s(case.batch) + extra_s
    prefill, burst = case.prefill_s() + case.passes * extra_s, case.burst_s + case.burst_passes() * extra_s
    return case.shown(case.batch, alone_s=alone, mixed_s=mixed, prefill_s=prefill, burst_s=burst)


def _host_times(case: Case) -> Values:
    step = float(case.step_s(case.batch))
    return _spaced(0.2 * step, 30.0 * step)


def _no_kernel(case: Case, lost: Values, slowed: Values) -> Shown:
    """Show a format whose weights are unpacked first: decode loses its smaller reads, products their rate."""
    plain = case.deployment.with_(weights="bf16", memory_check=False).decode(case.context_tokens, batch=case.batch)
    alone = case.step_s(case.batch)
    gain = np.maximum(plain.time_s - case.step.time_s, 0.0)
    mixed = case.mixed_with_host_s(slowed * case.mixed(case.batch).time_s, case.batch)
    prefill = case.prefill_with_host_s(slowed * case.prefill.time_s)
    burst = case.burst_with_host_s(slowed * case.burst().time_s)
    return case.shown(case.batch, alone_s=alone + lost * gain, mixed_s=mixed, prefill_s=prefill, burst_s=burst)


def _losses(case: Case) -> Values:
    if case.deployment.precision.weights.bytes_per_weight >= _PLAIN_BYTES:
        return np.empty((0, 2))
    try:  # a device may have no rate for 16 bits
        _ = case.deployment.with_(weights="bf16", memory_check=False).decode(case.context_tokens).time_s
    except RooflinekitError:
        return np.empty((0, 2))
    lost, slowed = np.meshgrid(np.linspace(0.5, 1.5, 5), np.geomspace(1.0, 6.0, 24))
    return np.stack([lost.ravel(), slowed.ravel()], axis=1)


# ---- what cannot be


def _impossible(case: Case, step: Values, prefill: Values) -> Shown:
    """Show times of so large a part of the floor; 0 stands for a phase that is as predicted."""
    alone = np.where(step > 0, step * case.step.floor_s, case.step_s(case.batch))
    first = np.where(prefill > 0, prefill * case.prefill.floor_s, case.prefill_s())
    return case.shown(case.batch, alone_s=alone, prefill_s=first)


def _parts(case: Case) -> Values:
    """Give parts of the floors of what was seen below its own; none where nothing was."""
    fast = _spaced(0.02, 0.97)
    none = np.zeros_like(fast)
    step, first = bool(case.below - {"prefill_s", "ttft_s"}), bool(case.below & {"prefill_s", "ttft_s", "request_s"})
    kinds = [pair for pair, seen in (((fast, none), step), ((none, fast), first), ((fast, fast), step)) if seen]
    return np.concatenate([np.hstack(pair) for pair in kinds]) if kinds else np.empty((0, 2))


# ---- in words


def _say_factors(_: Case, compute: float, memory: float) -> str:
    slow = {"arithmetic": compute, "memory": memory}
    told = " and ".join(f"{what} at 1/{by:.2g}" for what, by in slow.items() if by > 1.0)
    return f"{told} of the rate that the device file leads to"


def _say_parts(case: Case, step: float, prefill: float) -> str:
    what = " and ".join(name for name, part in (("steps", step), ("prefill", prefill)) if part)
    floors = f"step {units.duration(case.step.floor_s)}, prefill {units.duration(case.prefill.floor_s)}"
    return f"{what} faster than anything this device can do (floors: {floors})"


def _say_wait(case: Case, wait: float) -> str:
    return f"requests wait {units.duration(wait)} before a prefill of {units.duration(float(case.prefill_s()))}"


def _say_running(case: Case, running: float) -> str:
    sent = max(_sent(case), case.batch)
    return f"{running:.1f} sequences run together, not {sent:.0f}"


def _say_limited(case: Case, running: float) -> str:
    return f"{_say_running(case, running)}: the others wait, as behind max_num_seqs or for a smaller cache than set"


def _say_full(case: Case, running: float) -> str:
    """Say how many run; where more would fit by the settings, that they are not what was thought."""
    seen, holds = case.observed.get("running", running), case.pool_sequences
    used = case.observed.get("usage", 0.0)
    many = f"{seen:.0f}" if "running" in case.observed else f"{running:.1f}"
    if seen > _AS_HELD * holds:
        return f"{many} sequences run together, not {_sent(case):.0f}: the cache holds about {holds:.0f}"
    state = f"usage is {used:.1%} with {many}" if used >= _IN_FULL_USE else many
    less = "the pool is smaller or the requests are longer than thought"
    return f"{state} of {_sent(case):.0f} requests running, where about {holds:.0f} would fit: {less}"


def _say_part(case: Case, part: float) -> str:
    rate = case.request_rate or 0.0
    return f"the client sent {part * rate:.3g} requests/s, {part:.2g} of the {rate:.3g}/s stated"


def _say_shares(case: Case, share: float) -> str:
    own = f"this workload's own prompts make {float(case.mixed_share(case.batch)):.0%}"
    mixed = units.duration(float(case.mixed_s(case.batch)))
    return f"{share:.0%} of the steps carry a prompt's chunk, {mixed} each; {own}"


def _say_host(case: Case, extra: float) -> str:
    step = units.duration(float(case.step_s(case.batch)))
    return f"{units.duration(extra)} are added to every pass, beside a step of {step}"


def _say_cold(case: Case, extra: float) -> str:
    prefill = units.duration(float(case.prefill_s()))
    short = case.prompt_tokens <= _SHORT
    more = f"; or more of a prompt than the {case.prompt_tokens:.0f} counted, such as an image" if short else ""
    return f"{units.duration(extra)} before a prefill of {prefill}: loading, warm-up or a first capture{more}"


def _say_losses(_: Case, lost: float, slowed: float) -> str:
    return f"{min(lost, 1.0):.0%} of what smaller weights save per step is lost in unpacking, prefill x {slowed:.2g}"


ABOVE = "measurement above the ceiling"
CAUSES: tuple[Cause, ...] = (
    Cause(
        "queueing", _LOAD, lambda case: _waits(case) if case.served else _NONE, _queue,
        _say_wait,
        "add capacity or admit fewer requests at once; a faster kernel changes nothing before the pass starts",
        "vllm:num_requests_waiting and vllm:request_queue_time_seconds over the same minute",
    ),
    Cause(
        "cache full", _LOAD,
        _held, _full,
        _say_full,
        "free cache: kv_cache=fp8, quantised weights, a shorter context, or one more GPU; or send fewer at once",
        "vllm:kv_cache_usage_perc and vllm:num_preemptions over the same minute",
    ),
    Cause(
        "prefix hits", _MACHINE, lambda _: np.linspace(0.05, 0.98, _GRID)[:, None], _hits,
        lambda _, share: f"{share:.0%} of the prompt is not computed",
        "measure with prompts that differ, or with prefix caching off; for capacity give cached_tokens",
        "vllm:prefix_cache_hits_total over queries_total, or the same run with prefix caching off",
    ),
    Cause(
        "chunk interference", _LOAD, _shares, _interference,
        _say_shares,
        "lower max_num_batched_tokens, so that each step carries less of a prompt, or keep prefills on other GPUs",
        "p99 of the inter-token latency with and without new requests arriving",
    ),
    Cause(
        "wrong peaks or power limit", _MACHINE, _factors, _slower, _say_factors,
        "check the card (PCIe or SXM, power cap, clocks, temperature), and the device file against the machine",
        "a large matrix product and a plain memory read on the device, and its clocks while it serves",
    ),
    Cause(
        "host-bound", _MACHINE, _host_times, _host,
        _say_host,
        "capture graphs (no enforce_eager), update the engine, or give its process a free core",
        "a kernel timeline of some decode steps: the gaps between kernels",
    ),
    Cause(
        "quantisation without a fast kernel", _MACHINE, _losses, _no_kernel,
        _say_losses,
        "take a format whose kernels this device has, or the 16-bit checkpoint",
        "the same run with 16-bit weights",
    ),
    Cause(
        "smaller batch than thought", _LOAD, _below, _fewer,
        _say_running,
        "raise max_num_seqs or the client's concurrency; check that requests overlap",
        "vllm:num_requests_running over the same minute",
    ),
    Cause(
        "smaller batch than thought", _LOAD, _limits, _limited,
        _say_limited,
        "raise max_num_seqs or the client's concurrency; check that requests overlap",
        "vllm:num_requests_running and vllm:kv_cache_usage_perc over the same minute",
        at_least=0.75,  # fewer run and the others wait: either alone is a cause of its own
    ),
    Cause(
        "client slower than stated", _LOAD, _rate_parts, _slower_client,
        _say_part,
        "check the rate that the client was given, and that neither it nor its machine holds requests back",
        "the times at which the client sends, from its own log",
    ),
    Cause(
        "cold start", _LOAD, _starts, _cold,
        _say_cold,
        "send the request twice and keep the second",
        "the same request again",
    ),
    Cause(
        ABOVE, _MACHINE, _parts, _impossible, _say_parts,
        "look for the fault in the measurement: tokens per chunk, speculation, counts with the first token, clocks",
        "the same run with wall-clock time and exact token counts written beside each other",
    ),
)  # fmt: skip
#: What follows from a cause, and is none of its own beside it.
FOLLOWING: Mapping[str, tuple[str, ...]] = {
    "cache full": ("queueing", "smaller batch than thought"),
    "prefix hits": (ABOVE,),
}
