"""Serving for eyes and for programs: latencies, what the server carries, rates under an objective, cost, the ledger."""

from collections.abc import Iterable, Iterator
from math import ceil, isinf, nan
from typing import Any

from rooflinekit import units
from rooflinekit.errors import RooflinekitError
from rooflinekit.phases.deployment import Deployment
from rooflinekit.serving.arrivals import Closed, Lengths, Open, Trace, Traffic
from rooflinekit.serving.budget import Budget, Change
from rooflinekit.serving.candidates import Candidates, candidate_row
from rooflinekit.serving.cost import Cost, Price, no_price
from rooflinekit.serving.embedding import Embedding
from rooflinekit.serving.min_gpus import Fleets
from rooflinekit.serving.objectives import METRICS, STATISTICS, MaxRate
from rooflinekit.serving.serve import Serving
from rooflinekit.serving.workload import lint_workload

Figures = dict[str, Any]


# ---- what a server delivers


def title(serving: Serving, come: str = "") -> str:
    """Name what is served, on what, by whom, and to whom."""
    return f"{place(serving.deployment)} under {serving.engine.id}: {_load(serving.traffic, come)}"


def place(deployment: Deployment) -> str:
    """Name the model and where it runs."""
    gpus = deployment.layout.devices
    many = deployment.device.id if gpus == 1 else f"{gpus} x {deployment.device.id} ({deployment.layout.layout})"
    return f"{deployment.model.id} on {many}"


def _load(traffic: Traffic | Trace, come: str) -> str:
    """Say what comes."""
    if isinstance(traffic, Trace):
        return f"{traffic.requests:,} requests of {traffic.path}"
    lengths = f"{_length(traffic.prompt_tokens)} in, {_length(traffic.output_tokens)} out"
    return f"{come or _arrivals(traffic.arrivals)}, {lengths}"


def _arrivals(arrivals: Open | Closed) -> str:
    if isinstance(arrivals, Open):
        return f"{arrivals.rate_per_s:.3g} requests/s"
    return f"{arrivals.concurrency:,} in flight"


def _length(lengths: Lengths) -> str:
    many = "" if lengths.kind == "fixed" else f" on average ({lengths.kind})"
    return f"{units.count(lengths.mean)}{many}"


def latency_rows(serving: Serving) -> list[Figures]:
    """Give a row a metric: mean and percentiles; none where the server is overloaded, since they have no end."""
    if serving.overloaded:
        return []
    rows = ((name, getattr(serving, metric)) for metric, name in METRICS.items())
    return [{"latency": name, **{f"{one}_s": getattr(seen, one) for one in STATISTICS}} for name, seen in rows]


def carried(serving: Serving, *, eyes: bool = False) -> Figures:
    """Give what else is known: rates, the batch, the pool; eyes see whole requests, as the notes count them."""
    pool = float(int(serving.pool_requests)) if eyes and serving.pool_requests >= 1.0 else serving.pool_requests
    most = {"most_requests_per_s": serving.most_requests_per_s}
    if serving.overloaded:
        return {**most, "output_tokens_per_s": serving.output_tokens_per_s, "pool_requests": pool}
    return {
        "requests_per_s": serving.requests_per_s,
        **most,
        "utilisation_share": serving.utilisation,
        "output_tokens_per_s": serving.output_tokens_per_s,
        "running_requests": serving.running,
        "pool_requests": pool,
        "steps_with_prompts_share": serving.mixed_share,
        "worst_gap_s": serving.worst_gap_s,
        "preemptions": float(serving.preemptions),
    }


def remarks(serving: Serving) -> Iterator[str]:
    """Say what the tables do not: overload, how it was found, what the engine's settings do to the workload."""
    if serving.overloaded:
        rate, most = serving.requests_per_s, serving.most_requests_per_s
        yield f"overloaded: it could carry {most:.3g} requests/s, {rate:.3g} come; the queue grows as long as they do"
    yield f"by {serving.method}, {serving.basis}"
    if serving.method.startswith("closed form") and not serving.overloaded:
        yield "-: the closed form gives means, and the p99 of first tokens at a rate; --simulate gives the rest"
        told = "steps at the mean load, not judged against runs; --simulate gives a run's"
        yield f"percentiles of inter-token latency here: {told}"
    yield from (f"note: {sentence}" for sentence in _lint(serving))


def _lint(serving: Serving) -> list[str]:
    """Say what the settings do to requests of the longest lengths."""
    traffic = serving.traffic
    if isinstance(traffic, Trace):
        prompt, output = (max(row[index] for row in traffic.rows) for index in (1, 2))
    else:
        prompt, output = traffic.prompt_tokens.longest, traffic.output_tokens.longest
    together = traffic.in_flight or (1 if serving.overloaded else ceil(serving.running))
    try:
        return lint_workload(
            serving.engine, serving.deployment, ceil(prompt), output_tokens=ceil(output), concurrency=together
        )
    except RooflinekitError:  # what could not be served has been told before
        return []


def tidy(serving: Serving) -> Iterator[Figures]:
    """Lay everything out as one table: a row a figure, in base units."""
    for row in latency_rows(serving):
        for name in STATISTICS:
            yield {"part": "latency", "item": row["latency"], "quantity": f"{name}_s", "value": row[f"{name}_s"]}
    for quantity, value in carried(serving).items():
        yield {"part": "server", "item": "", "quantity": quantity, "value": value}
    yield {"part": "server", "item": "", "quantity": "overloaded", "value": serving.overloaded}
    yield {"part": "server", "item": "", "quantity": "method", "value": serving.method}
    yield {"part": "server", "item": "", "quantity": "basis", "value": serving.basis}


# ---- objectives


def rate_lines(found: MaxRate) -> Iterator[str]:
    """Say the largest rate that keeps an objective, and what stops it there."""
    yield f"objective: {found.objective}"
    if found.rate_per_s:
        rate, part = f"{found.rate_per_s:.3g} requests/s", f"{found.tolerance:.0%}"
        yield f"it keeps the objective up to {rate} (to {part}); above that {found.limited_by}"
    else:
        yield f"no rate keeps the objective: for one request alone {found.limited_by}"


def fleet_rows(fleets: Fleets) -> list[Figures]:
    """Give a row a layout that keeps the objective, the fewest GPUs first."""
    kept = (one for one in fleets.options if one.servers and one.serving is not None)
    return [
        {
            "layout": one.layout,
            "gpus": one.gpus,
            "servers": one.servers,
            "each_at_most_requests_per_s": one.max_rate_per_s,
            "time_to_first_token_s": one.serving.time_to_first_token_s.mean,  # type: ignore[union-attr]
            "time_per_output_token_s": one.serving.time_per_output_token_s.mean,  # type: ignore[union-attr]
            "limited_by": one.reason.partition(" is ")[0],  # the limit; by how much is of one rate alone
        }
        for one in kept
    ]


def fleet_remarks(fleets: Fleets) -> Iterator[str]:
    """Say which fleet is the smallest, and why other layouts do not serve."""
    best = fleets.best
    if best is None:
        yield f"no layout keeps the objective: {fleets.objective}"
    else:
        yield f"fewest: {best!r}; means are those of each server at its part of the rate"
    yield from (f"note: {one!r}" for one in fleets.options if not one.servers)


def candidate_rows(compared: Candidates) -> list[Figures]:
    """Give a row a device that keeps the objective, the cheapest first."""
    rows = (candidate_row(one) for one in compared.options if one.max_rate_per_s)
    return [
        {
            **{name: row[name] for name in _CANDIDATE},
            "usd_per_thousand_requests": _THOUSAND * row["request_usd"],
            "limited_by": row["limited_by"].partition(" is ")[0],
        }
        for row in rows
    ]


_CANDIDATE = (
    "device", "gpus", "max_requests_per_s", "usd_per_hour", "input_usd_per_million", "output_usd_per_million",
)  # fmt: skip
#: What fits on a screen; the price stands below the table.
CANDIDATE_COLUMNS = (
    "device", "max_requests_per_s", "input_usd_per_million", "output_usd_per_million", "usd_per_thousand_requests",
    "limited_by",
)  # fmt: skip
_THOUSAND = 1000.0


def candidates_title(deployment: Deployment, compared: Candidates) -> str:
    """Name what is served, under which limits, and by how many GPUs each."""
    many = "" if deployment.layout.devices == 1 else f" on {deployment.layout.devices} GPUs each"
    return f"{deployment.model.id}{many}: {compared.objective}; dollars of a million tokens (1M)"


def candidate_remarks(compared: Candidates) -> Iterator[str]:
    """Say which is the cheapest, whose price is not known, and why others do not serve."""
    if compared.best is None:
        yield f"no device keeps the objective: {compared.objective}"
    for one in compared.options:
        name = one.deployment.device.id
        if one.cost is None:
            yield f"note: {name}: {one.reason}"
        elif one.cost.price is None:
            yield f"note: {one.cost.reason}"
        else:
            yield f"{name}: {_priced(one.cost.price)}, {one.cost.serving.basis}"


# ---- cost


def cost_rows(priced: Cost) -> list[Figures]:
    """Give a row a kind of token that there is."""
    columns = {"gpu_s": priced.gpu_s, "usd_per_million": priced.usd_per_million, "energy_j": priced.energy_j}
    known = {name: figure for name, figure in columns.items() if figure is not None}
    kinds = [kind for kind in ("input", "cached", "output") if known and getattr(priced.gpu_s, kind) >= 0]
    return [{"token": kind, **{name: getattr(figure, kind) for name, figure in known.items()}} for kind in kinds]


def cost_remarks(priced: Cost) -> Iterator[str]:
    """Say at which price, or why there is none, and what the energy is."""
    if priced.reason:
        yield f"no cost: {priced.reason}"
    elif priced.price is not None:
        yield f"{_priced(priced.price)}, idle time included"
    if priced.energy_j is not None:
        yield _powered(priced.serving.deployment)


def _priced(price: Price) -> str:
    return f"at ${price.usd_per_hour:g} an hour and GPU ({price.source})"


def _powered(deployment: Deployment) -> str:
    return f"energy: {deployment.device.datasheet.tdp_w:g} W all the time, an upper bound"


# ---- models that only read


def embedding_title(read: Embedding) -> str:
    """Name what reads, on what, by whom."""
    return f"{place(read.deployment)} under {read.engine.id}: texts of {units.count(read.tokens)} tokens"


def embedding_rows(read: Embedding) -> Figures:
    """Give rates, times, and what a million tokens cost where a price is known."""
    known = {"usd_per_million": read.usd_per_million, "energy_j": read.energy_j}
    return {
        "tokens_per_s": read.tokens_per_s,
        "texts_per_s": read.texts_per_s,
        "texts_in_a_pass": read.texts,
        "pass_s": read.pass_s,
        "one_text_alone_s": read.alone_s,
        **{name: figure for name, figure in known.items() if figure is not None},
    }


def embedding_remarks(read: Embedding) -> Iterator[str]:
    """Say what is not in the figures, and at which price."""
    yield f"no output layer, no decode, no cache kept; a server that never waits ({read.basis})"
    if read.price is None:
        yield f"no cost: {no_price(read.deployment)}"
    else:
        yield _priced(read.price)
    if read.energy_j is not None:
        yield _powered(read.deployment)


# ---- the ledger


def ledger_rows(told: Budget) -> list[Figures]:
    """Give a row a line of the ledger and one for the whole; shares only where there is an end."""
    total = told.ledger.total_s
    rows: list[Figures] = [
        {"line": name.removesuffix("_s"), "time_s": seconds, "share": nan if isinf(total) else seconds / total}
        for name, seconds in told.ledger._asdict().items()
    ]
    return [*rows, {"line": "end to end", "time_s": total, "share": 1.0}]


def change_rows(told: Budget) -> list[Figures]:
    """Give a row a change: what it would have to be, and the whole then."""
    return [
        {
            "change": one.change,
            "from": _amount(one, one.before),
            "to": "cannot alone" if one.to is None else _amount(one, one.to),
            "end_to_end_s": one.end_to_end_s,
        }
        for one in told.changes
    ]


def _amount(change: Change, value: float | str) -> str:
    """Show a size with its unit."""
    if isinstance(value, str):
        return value
    word = _WORDS[change.unit]
    return f"{units.significant(value)} {word}" if change.unit in ("times", "rate_per_s") else f"{value:,.0f} {word}"


_WORDS = {
    "prompt_tokens": "tokens", "cached_tokens": "tokens", "output_tokens": "tokens", "rate_per_s": "requests/s",
    "concurrency": "requests", "times": "times",
}  # fmt: skip


def budget_title(deployment: Deployment, told: Budget, sizes: tuple[float, float]) -> str:
    """Name what is served, on what, and to whom."""
    if told.serving is not None:
        return title(told.serving)
    return f"{place(deployment)}: one request alone, {units.count(sizes[0])} in, {units.count(sizes[1])} out"


def budget_remarks(told: Budget) -> Iterator[str]:
    """Say whether the limit is kept, and what the lines are of."""
    serving, limit, over = told.serving, units.duration(told.limit_s), told.ledger.over_s(told.limit_s)
    if serving is not None and serving.overloaded:
        yield f"overloaded: it could carry {serving.most_requests_per_s:.3g} requests/s"
    elif told.met:
        yield f"within {limit}, by {units.duration(told.limit_s - told.ledger.total_s)} ({told.statistic})"
    else:
        yield f"misses {limit} by {units.duration(over)} ({told.statistic})"
    yield f"service time only: no queue ({told.basis})" if serving is None else f"by {serving.method}, {told.basis}"
    yield from (f"note: {one.change}: {one.reason}" for one in told.changes if one.reason)


def budget_tidy(told: Budget) -> Iterator[Figures]:
    """Lay ledger and changes out as one table: a row a figure."""
    for row in ledger_rows(told):
        yield {"part": "ledger", "item": row["line"], "quantity": "time_s", "value": row["time_s"]}
    for one in told.changes:
        yield {"part": "change", "item": one.change, "quantity": one.unit, "value": one.to}


def parted(part: str, rows: Iterable[Figures], key: str) -> Iterator[Figures]:
    """Lay rows out as figures: one a column, named by the row's key."""
    for row in rows:
        for quantity, value in row.items():
            if quantity != key:
                yield {"part": part, "item": row[key], "quantity": quantity, "value": value}
