"""The dial: how the token budget of a step trades time to first token for the gaps between tokens."""

from collections.abc import Sequence
from dataclasses import replace
from math import ceil
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from rooflinekit.errors import InvalidInputError
from rooflinekit.phases.deployment import Deployment
from rooflinekit.serving.engine import EngineProfile
from rooflinekit.serving.host import loaded_step_s, profile_for, served_by
from rooflinekit.serving.loaded_steps import mean_context_tokens
from rooflinekit.serving.serve import Serving, serve
from rooflinekit.specs.step import Group, checked

if TYPE_CHECKING:
    import pandas as pd

    from rooflinekit.serving.arrivals import Traffic

#: Budgets that engines and users set.
BUDGETS = (256, 512, 1024, 2048, 4096, 8192, 16384)


class Gap(NamedTuple):
    """Longest steps that a decoding sequence sits through."""

    chunked_s: float
    whole_s: float
    full_budget_s: float


def budget_curve(
    deployment: Deployment,
    prompt_tokens: float,
    output_tokens: float,
    rate_per_s: float,
    *,
    budgets: Sequence[float] = BUDGETS,
    engine: str | EngineProfile | None = None,
    cached_tokens: float = 0.0,
    method: str = "auto",
    requests: int | None = None,
    seed: int = 0,
) -> "pd.DataFrame":
    """
    Tabulate latencies over token budgets: small ones keep gaps short, large ones bring the first token sooner.

    Parameters
    ----------
    deployment : Deployment
        What serves.
    prompt_tokens, output_tokens, cached_tokens : float
        Of each request; prefix that the cache holds already. [token]
    rate_per_s : float
        Requests that come. [request/s]
    budgets : sequence of int
        Tokens of a step at most (vLLM: ``max_num_batched_tokens``). [token]
    engine : str or EngineProfile
        Whose scheduler and pool; one that cuts prompts into chunks.
    method, requests, seed
        As for :func:`~rooflinekit.serve`.

    Returns
    -------
    table : DataFrame
        A row a budget: ``chunks`` of a prompt, mean and p99 of TTFT and ITL, ``worst_gap_s`` (a step with the largest
        chunk of one prompt beside those that decode), ``unchunked_gap_s`` (with the whole prompt),
        ``full_budget_gap_s`` (the budget filled by several prompts that came together), and what the server carries.

    Raises
    ------
    InvalidInputError
        A size is wrong, or the engine reads prompts whole.

    Notes
    -----
    Every chunk reads the weights and the prompt's earlier K and V again: a small budget costs the server throughput. An
    overloaded row has infinite latencies.

    References
    ----------
    "Prefill vs. Decode": with chunks the worst gap fell from 7.6 s to 0.22 s.

    Examples
    --------
    >>> import rooflinekit as rk
    >>> table = budget_curve(rk.Deployment("qwen3-8b", "gb10"), 10_000, 100, 0.02, budgets=[512, 2048, 16384])
    >>> table["chunks"].tolist(), bool(table["worst_gap_s"][0] < table["unchunked_gap_s"][0] / 8)
    ([20, 5, 1], True)
    """
    import pandas as pd  # noqa: PLC0415 - loads on first use

    profile = profile_for(deployment, engine)
    deployment = served_by(deployment, profile)
    if profile.prefill != "mixed" or not profile.enable_chunked_prefill:
        message = f"{profile.id} reads prompts whole or apart from decoding: it has no token budget to trade with"
        raise InvalidInputError(message)
    sizes = [int(size) for size in np.atleast_1d(np.asarray(checked("budgets", budgets, minimum=1, whole=True)))]
    engines = [_with_budget(profile, size) for size in sizes]
    found = _served(
        deployment, engines, method, prompt_tokens=prompt_tokens, output_tokens=output_tokens, rate_per_s=rate_per_s,
        cached_tokens=cached_tokens, requests=requests, seed=seed,
    )  # fmt: skip
    return pd.DataFrame([_row(size, one, cached_tokens) for size, one in zip(sizes, found, strict=True)])


def _with_budget(profile: EngineProfile, size: int) -> EngineProfile:
    """Set the tokens of a pass; an engine that splits its batch once more splits it there too."""
    return profile.with_(max_num_batched_tokens=size, micro_batch_tokens=size if profile.micro_batch_tokens else None)


def _served(
    deployment: Deployment,
    engines: list[EngineProfile],
    method: str,
    **load: Any,  # noqa: ANN401 - handed on as they come
) -> list[Serving]:
    """Serve under every budget; all are simulated where one of them must be, so that like stands beside like."""
    found = [serve(deployment, engine=one, method=method, **load) for one in engines]
    simulated = [one.method.startswith("simulation") for one in found]
    if method != "auto" or not any(simulated):
        return found
    pairs = zip(engines, found, simulated, strict=True)
    return [
        one if done or one.overloaded else _beside(serve(deployment, engine=engine, method="simulation", **load))
        for engine, one, done in pairs
    ]


def _beside(serving: Serving) -> Serving:
    return replace(serving, method="simulation: beside budgets that need it")


def gaps(
    deployment: Deployment,
    engine: EngineProfile,
    prompt_tokens: float,
    output_tokens: float,
    *,
    batch: float,
    held: float = 0.0,
) -> Gap:
    """
    Time the longest steps of one prompt beside a decoding batch, chunked and whole, and a step full of prompts.

    Examples
    --------
    A step that carries a 2,048-token prompt lasts as long as that prompt's prefill and the engine's own work on it:

    >>> import rooflinekit as rk
    >>> d = rk.Deployment("qwen3-8b", "gb10")
    >>> gap = gaps(d, rk.load_engine("vllm", max_num_batched_tokens=8192), 2048, 100, batch=1)
    >>> 1.0 < gap.whole_s / d.prefill(2048, busy_s=float("inf")).time_s < 1.1
    True
    """
    new, budget = prompt_tokens - held, float(engine.token_budget(deployment.device))
    room = max(budget - batch, 1.0)
    size = min(room, new)
    count = ceil(new / size)
    starts = np.unique([0.0, max(count - 2, 0) * size])  # the last full chunk reads most of the prompt's own K and V
    chunks = Group(size, held + starts, 1.0, 1.0 if count == 1 else 0.0)
    rest = (mean_context_tokens(prompt_tokens, output_tokens), batch)
    chunked = _longest(deployment, engine, chunks, rest)
    whole = _longest(deployment, engine, Group(new, held, 1.0), rest)
    full = _longest(deployment, engine, Group(size, held, max(room / size, 1.0)), rest)
    return Gap(chunked, whole, max(chunked, full))


def _longest(deployment: Deployment, engine: EngineProfile, prompts: Group, rest: tuple[float, float]) -> float:
    """Time steps with chunks of prompts beside decoding sequences, device and host, and take the longest."""
    context, batch = rest
    decoding = Group(np.ones(np.size(prompts.context_tokens)), context, batch) if batch else None
    return float(np.max(loaded_step_s(deployment, engine, chunks=prompts, decoding=decoding)))


def _row(budget: int, found: Serving, held: float) -> dict[str, float | int | bool | str]:
    traffic = cast("Traffic", found.traffic)
    prompt, output = traffic.prompt_tokens.mean, traffic.output_tokens.mean
    gap = gaps(found.deployment, found.engine, prompt, output, batch=found.running, held=held)
    first, between = found.time_to_first_token_s, found.inter_token_latency_s
    return {
        "token_budget": budget,
        "chunks": ceil((prompt - held) / budget),
        "ttft_mean_s": first.mean,
        "ttft_p99_s": first.p99,
        "itl_mean_s": between.mean,
        "itl_p99_s": between.p99,
        "worst_gap_s": max(gap.chunked_s, 0.0 if found.overloaded else found.worst_gap_s),
        "unchunked_gap_s": gap.whole_s,
        "full_budget_gap_s": gap.full_budget_s,
        "running": found.running,
        "most_requests_per_s": found.most_requests_per_s,
        "overloaded": found.overloaded,
        "method": found.method,
    }
