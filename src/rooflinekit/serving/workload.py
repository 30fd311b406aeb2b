"""What an engine's defaults do to a workload, in sentences: passes of a prompt, requests that wait, lengths refused."""

from collections.abc import Callable, Iterator
from math import ceil
from typing import NamedTuple

from rooflinekit.phases.deployment import Deployment
from rooflinekit.serving.capacity import Capacity, capacity
from rooflinekit.serving.engine import EngineProfile, load_engine
from rooflinekit.specs.step import checked
from rooflinekit.units import GIB


class Workload(NamedTuple):
    """What is asked of a server."""

    prompt_tokens: int
    output_tokens: int
    concurrency: int
    held: Capacity

    @property
    def budget(self) -> int:
        """Tokens of one pass."""
        return self.held.limits.max_num_batched_tokens


def lint_workload(
    profile: str | EngineProfile,
    deployment: Deployment,
    prompt_tokens: int,
    *,
    output_tokens: int = 1,
    concurrency: int = 1,
) -> list[str]:
    """
    Say what the engine's settings do to this workload.

    Parameters
    ----------
    profile : str or EngineProfile
        The engine and its settings.
    deployment : Deployment
        Model, device and formats.
    prompt_tokens, output_tokens, concurrency : int
        Of each request, and requests in flight. [token], [token], [1]

    Returns
    -------
    sentences : list of str
        Empty where nothing is to be said.

    References
    ----------
    "Prefill vs. Decode", section "Gotchas".

    Examples
    --------
    >>> import rooflinekit as rk
    >>> for line in lint_workload("vllm-0.31", rk.Deployment("qwen3-8b", "gb10"), 10_000):
    ...     print(line)
    a 10,000-token prompt runs as 5 passes under a budget of 2,048: each reads the weights again
    gb10 has 121 GiB but the budget of the smallest memory tier, 2,048: set max_num_batched_tokens
    """
    engine = load_engine(profile)
    for name, count in {"prompt_tokens": prompt_tokens, "output_tokens": output_tokens}.items():
        checked(name, count, positive=True)
    held = capacity(deployment, engine=engine)
    work = Workload(prompt_tokens, output_tokens, concurrency, held)
    return [sentence for check in CHECKS for sentence in check(work)]


def passes(work: Workload) -> Iterator[str]:
    """Tell into how many passes a prompt is cut."""
    count = ceil(work.prompt_tokens / work.budget)
    if count > 1 and (work.held.engine.enable_chunked_prefill or work.held.engine.micro_batch_tokens):
        yield (
            f"a {work.prompt_tokens:,}-token prompt runs as {count:,} passes under a budget of {work.budget:,}: "
            "each reads the weights again"
        )
    elif count > 1:
        yield (
            f"a {work.prompt_tokens:,}-token prompt is refused: {work.held.engine.engine} packs whole prompts into "
            f"{work.budget:,} tokens and does not cut them; set max_num_batched_tokens or enable_chunked_prefill"
        )


def trapped(work: Workload) -> Iterator[str]:
    """Tell of a device whose memory would give it a larger budget than it gets."""
    engine, device = work.held.engine, work.held.deployment.device
    if not engine.tiers or engine.max_num_batched_tokens or work.prompt_tokens <= work.budget:
        return
    freed = engine.model_copy(update={"smallest_tier_devices": ()})
    if freed.token_budget(device) > work.budget:
        held = (device.memory_bytes or 0.0) / GIB
        yield (
            f"{device.id} has {held:.0f} GiB but the budget of the smallest memory tier, {work.budget:,}: "
            "set max_num_batched_tokens"
        )


def too_long(work: Workload) -> Iterator[str]:
    """Tell of a request that the server does not take."""
    whole, longest = work.prompt_tokens + work.output_tokens, work.held.limits.max_model_len
    if longest is not None and whole > longest:
        yield f"{whole:,} tokens of prompt and answer exceed max_model_len, {longest:,}"
    elif float(work.held.requests(whole)) < 1:
        yield f"the KV pool holds {work.held.kv_tokens:,} tokens: not one request of {whole:,}"


def waiting(work: Workload) -> Iterator[str]:
    """Tell how many of the requests in flight wait for memory or for a place in the batch."""
    whole, most = work.prompt_tokens + work.output_tokens, work.held.limits.max_num_seqs
    fit = int(work.held.requests(whole))
    if 1 <= fit < work.concurrency:
        yield (
            f"{work.concurrency:,} requests of {whole:,} tokens are in flight, the KV pool holds {fit:,}: "
            "the others wait, or are preempted and computed again"
        )
    if most is not None and most < work.concurrency:
        yield f"{work.concurrency:,} requests are in flight, {most:,} run at once (max_num_seqs): the others wait"


CHECKS: tuple[Callable[[Workload], Iterator[str]], ...] = (passes, trapped, too_long, waiting)
