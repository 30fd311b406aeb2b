"""A grid of 300 workloads, each answered by the closed form or by a simulation; what was simulated ships as a table."""

from collections.abc import Callable
from functools import cache
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from rooflinekit.calibration.references import FOLDER
from rooflinekit.phases.deployment import Deployment
from rooflinekit.serving.arrivals import Lengths
from rooflinekit.serving.engine import load_engine
from rooflinekit.serving.serve import Serving, serve

TABLE = FOLDER / "serving" / "grid.csv"
MODEL, DEVICE, ENGINE = "llama-3.1-8b", "h100-sxm", "vllm"
ARRIVALS, LENGTHS = ("open", "closed"), ("fixed", "uniform", "lognormal")
SIZES = ((1000, 200), (4000, 300))
UTILISATIONS, BUDGETS = (0.3, 0.5, 0.7, 0.85, 0.95), (512, 1024, 2048, 8192, 16384)
#: Requests of an open run: enough that two seeds differ by a few percent in their mean; a closed run's is its client's.
_OPEN_REQUESTS, _ROUNDS = 4000, 10
#: A uniform length lies between this part of the nominal one and all of it; a log-normal's spread is of its logarithm.
_LEAST_PART, _SPREAD = 0.8, 0.5
#: What is compared, by the name of its column.
FIGURES: dict[str, Callable[[Serving], float]] = {
    "time_per_output_token_s": lambda found: found.time_per_output_token_s.mean,
    "time_to_first_token_s": lambda found: found.time_to_first_token_s.mean,
    "time_to_first_token_p99_s": lambda found: found.time_to_first_token_s.p99,
}


class Workload(NamedTuple):
    """One cell: how requests come, how long they are, what a step may hold, and the load as a part of the largest."""

    arrivals: str
    lengths: str
    prompt_tokens: int
    output_tokens: int
    token_budget: int
    utilisation: float


def workloads() -> tuple[Workload, ...]:
    """
    List the workloads.

    Examples
    --------
    >>> len(workloads())
    300
    """
    cells = product(ARRIVALS, LENGTHS, SIZES, BUDGETS, UTILISATIONS)
    return tuple(Workload(how, kind, *sizes, budget, part) for how, kind, sizes, budget, part in cells)


def figures(one: Workload, method: str) -> dict[str, float | bool]:
    """Give the compared figures of a workload by one method, and whether the closed form says that it holds there."""
    found = _served(one.token_budget, method=method, **load_of(one))
    return {**{name: figure(found) for name, figure in FIGURES.items()}, "valid": "outside" not in found.method}


def load_of(one: Workload) -> dict[str, Any]:
    """Give the load as `serve` takes it: a part of the largest rate, or of the requests that run at once."""
    prompts, outputs = (_length(one.lengths, tokens) for tokens in (one.prompt_tokens, one.output_tokens))
    largest = _largest(one.prompt_tokens, one.output_tokens, one.token_budget)
    lengths = {"prompt_tokens": prompts, "output_tokens": outputs}
    if one.arrivals == "open":
        return {**lengths, "rate_per_s": one.utilisation * largest.most_requests_per_s, "requests": _OPEN_REQUESTS}
    most = min(largest.pool_requests, largest.engine.tier(largest.deployment.device).max_num_seqs or np.inf)
    concurrency = max(int(one.utilisation * most), 1)
    return {**lengths, "concurrency": concurrency, "requests": _ROUNDS * concurrency}


def _length(kind: str, tokens: int) -> Lengths:
    if kind == "uniform":
        return Lengths(tokens, "uniform", _LEAST_PART, 1.0)
    return Lengths(tokens, "lognormal", spread=_SPREAD) if kind == "lognormal" else Lengths(tokens)


@cache
def _largest(prompt_tokens: int, output_tokens: int, budget: int) -> Serving:
    """Ask what the server could carry: requests a second, and how many the pool holds."""
    alone = {"prompt_tokens": prompt_tokens, "output_tokens": output_tokens, "rate_per_s": 0.01}
    return _served(budget, method="closed form", **alone)


def _served(budget: int, **load: Any) -> Serving:  # noqa: ANN401 - those of serve
    engine = load_engine(ENGINE).with_(max_num_batched_tokens=budget)
    return serve(_deployment(), engine=engine, **load)


@cache
def _deployment() -> Deployment:
    return Deployment(MODEL, DEVICE, engine=ENGINE)
