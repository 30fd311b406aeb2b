"""What would free memory for K and V: one change at a time, each computed anew."""

from collections.abc import Callable
from typing import NamedTuple

from rooflinekit.errors import DoesNotFitError
from rooflinekit.serving.capacity import Capacity, size

#: Step by which the memory fraction is raised.
FRACTION_STEP = 0.05
_HALF_PRECISION_BITS = 16.0


class Lever(NamedTuple):
    """A change, and the pool, tokens and requests with it and more than without it."""

    change: str
    pool_bytes: float
    kv_tokens: int
    requests: float
    more_bytes: float
    more_tokens: int
    more_requests: float


def more_room(held: Capacity, tokens: float) -> tuple[Lever, ...]:
    """
    Tell what would free how much: K and V in FP8, weights in FP8, a larger part of the memory, a smaller budget.

    Parameters
    ----------
    held : Capacity
        As it is.
    tokens : float
        Length of the requests that are counted. [token]

    Returns
    -------
    room : tuple of Lever
        Those that change something, the largest gain in requests first.

    Examples
    --------
    >>> import rooflinekit as rk
    >>> from rooflinekit.serving import capacity
    >>> held = capacity(rk.Deployment("llama-3.1-8b", "rtx-4090"))
    >>> for lever in more_room(held, 8192):
    ...     print(f"{lever.change}: {lever.more_requests:.1f} more")
    weights in fp8: 6.5 more
    K and V in fp8: 5.4 more
    gpu_memory_utilization 0.97: 1.2 more
    token budget 1,024: 0.1 more
    """
    made = (make(held) for make in CHANGES)
    found = [_lever(change[0], held, change[1], tokens) for change in made if change is not None]
    gains = (lever for lever in found if lever.more_requests > 0)  # fp8 is more than some checkpoints hold
    return tuple(sorted(gains, key=lambda lever: -lever.more_requests))


def _lever(name: str, held: Capacity, changed: Capacity, tokens: float) -> Lever:
    before, after = float(held.requests(tokens)), float(changed.requests(tokens))
    return Lever(
        name,
        changed.pool_bytes,
        changed.kv_tokens,
        after,
        changed.pool_bytes - held.pool_bytes,
        changed.kv_tokens - held.kv_tokens,
        after - before,
    )


Change = tuple[str, Capacity] | None


def _fp8_cache(held: Capacity) -> Change:
    if held.deployment.precision.kv_bytes <= 1.0:
        return None
    return "K and V in fp8", size(held.deployment.with_(kv_cache="fp8"), held.engine, held.asked)


def _fp8_weights(held: Capacity) -> Change:
    asked = held.asked
    if held.deployment.precision.weights.bits < _HALF_PRECISION_BITS or asked.weight_bytes or asked.kv_bytes:
        return None
    return "weights in fp8", size(held.deployment.with_(weights="fp8"), held.engine, asked)


def _larger_part(held: Capacity) -> Change:
    part = held.engine.gpu_memory_utilization
    if part is None or held.asked.kv_bytes or part + FRACTION_STEP >= 1.0:
        return None
    more = round(part + FRACTION_STEP, 4)
    profile = held.engine.with_(gpu_memory_utilization=more)
    return f"gpu_memory_utilization {more:g}", size(held.deployment, profile, held.asked)


def _smaller_budget(held: Capacity) -> Change:
    half = held.limits.max_num_batched_tokens // 2
    if half < 1 or held.asked.kv_bytes or held.engine.micro_batch_tokens:
        return None
    try:
        changed = size(held.deployment, held.engine.with_(max_num_batched_tokens=half), held.asked)
    except DoesNotFitError:  # a memory fraction that the engine sets by its own rule may fall with the budget
        return None
    return f"token budget {half:,}", changed


CHANGES: tuple[Callable[[Capacity], Change], ...] = (_fp8_cache, _fp8_weights, _larger_part, _smaller_budget)
