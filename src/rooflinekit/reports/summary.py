"""One deployment at work, in figures: both phases with their operators, a request, and what it holds in memory."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

from rooflinekit.errors import InvalidInputError
from rooflinekit.phases.deployment import Deployment
from rooflinekit.phases.estimate import Estimate
from rooflinekit.phases.explain import Term
from rooflinekit.phases.request import Request

Figures = dict[str, Any]

_COUNTS = ("tokens", "flops", "bytes", "weight_bytes", "activation_bytes", "kv_bytes", "state_bytes", "intensity")


@dataclass(frozen=True)
class Workload:
    """What is asked of a deployment: equal requests that run together, under the names of the library's arguments."""

    prompt_tokens: float
    output_tokens: float
    batch: float = 1
    cached_tokens: float = 0
    token_budget: float | None = None
    busy_s: float = 0.0

    def __str__(self) -> str:
        """Say it in a few words."""
        cached = f" ({self.cached_tokens:,} cached)" if self.cached_tokens else ""
        return f"{self.prompt_tokens:,} tokens in{cached}, {self.output_tokens:,} out, batch {self.batch:,}"


@dataclass(frozen=True)
class Summary:
    """Estimates of a workload on a deployment, each made when it is first asked for."""

    deployment: Deployment
    workload: Workload

    @cached_property
    def prefill(self) -> Estimate:
        """The prompt, in one pass or in chunks."""
        work = self.workload
        if work.token_budget is None:
            return self.deployment.prefill(
                work.prompt_tokens, cached_tokens=work.cached_tokens, batch=work.batch, busy_s=work.busy_s
            )
        if work.batch != 1:
            message = f"batch={work.batch!r}: a prompt read in chunks is one prompt; expected batch 1, or no chunks"
            raise InvalidInputError(message)
        return self.deployment.chunked_prefill(
            work.prompt_tokens,  # type: ignore[arg-type]
            token_budget=work.token_budget,  # type: ignore[arg-type]
            cached_tokens=work.cached_tokens,  # type: ignore[arg-type]
            busy_s=work.busy_s,
        )

    @cached_property
    def decode(self) -> Estimate:
        """The first decode step: at the prompt's context."""
        work = self.workload
        return self.deployment.decode(work.prompt_tokens, batch=work.batch, busy_s=work.busy_s)

    @cached_property
    def request(self) -> Request:
        """Prefill and every decode step."""
        work = self.workload
        whole = self.deployment.request(
            work.prompt_tokens,
            output_tokens=work.output_tokens,
            batch=work.batch,
            cached_tokens=work.cached_tokens,
            busy_s=work.busy_s,
        )
        return replace(whole, prefill=self.prefill)

    @property
    def phases(self) -> Mapping[str, Estimate]:
        """Both phases by name."""
        return {"prefill": self.prefill, "decode step": self.decode}

    @property
    def timed(self) -> bool:
        """Whether the device has every peak that the times need."""
        return not self.deployment.timing.missing


def document(summary: Summary) -> Figures:
    """Give everything, nested by phase, in base units and full precision."""
    deployment = summary.deployment
    return {
        "model": deployment.model.id,
        "device": deployment.device.id,
        "engine": deployment.engine,
        "weights": deployment.precision.weights.name,
        "kv_cache": deployment.precision.kv_cache,
        "compute": deployment.precision.product_dtype,
        "routing_skew": deployment.routing_skew,
        "basis": summary.decode.basis,
        "notes": notes(summary),
        "workload": asdict(summary.workload),
        "prefill": {**phase(summary.prefill), "operators": operators(summary.prefill)},
        "decode": {**phase(summary.decode), "operators": operators(summary.decode)},
        "request": request(summary),
        "memory": memory(summary),
    }


def notes(summary: Summary) -> tuple[str, ...]:
    """Give what the estimate chose or leaves out, and that times are missing where they are."""
    missing = summary.deployment.timing.missing
    rates = summary.deployment.timing.rates
    lacks = f"{rates.name} has no {rates.described} peak for {', '.join(missing)}"
    bound = (
        (f"{lacks}: times are memory traffic alone at the rates reached; the floor is the bound",) if missing else ()
    )
    return (*summary.prefill.notes, *bound)


def phase(estimate: Estimate) -> Figures:
    """Give one pass (or one prompt in chunks): counts always, times where there are peaks for them."""
    timed = not estimate.timing.missing
    return {
        "label": estimate.label,
        "time_s": estimate.time_s if timed else None,
        "memory_time_s": estimate.memory_time_s,
        "floor_s": estimate.floor_s,
        "bound": estimate.bound if timed else "memory alone",
        "tokens_per_s": estimate.tokens_per_s if timed else None,
        **{name: getattr(estimate, name) for name in _COUNTS},
        "passes": len(estimate.steps),
    }


def operators(estimate: Estimate) -> list[Figures]:
    """Give one record an operator."""
    return [{str(name): value for name, value in row.items()} for row in estimate.table().to_dict("records")]


def request(summary: Summary) -> Figures:
    """Give what a user and the device get; without an arithmetic peak, what memory allows at most."""
    whole, batch = summary.request, summary.workload.batch
    if not summary.timed:
        step = summary.decode.memory_time_s
        return {"decode_tokens_per_s_per_user_at_most": 1.0 / step, "decode_tokens_per_s_at_most": batch / step}
    each, end = whole.time_per_output_token_s, whole.end_to_end_s
    return {
        "time_to_first_token_s": whole.time_to_first_token_s,
        "time_per_output_token_s": each,
        "end_to_end_s": end,
        "decode_tokens_per_s_per_user": 1.0 / each,
        "decode_tokens_per_s": batch / each,
        "output_tokens_per_s": batch * whole.output_tokens / end,
    }


def memory(summary: Summary) -> Figures:
    """Give what is held when the last token is written: the last one's own K and V never are."""
    deployment, work = summary.deployment, summary.workload
    tokens = work.prompt_tokens + work.output_tokens - 1
    cache = deployment.kv_cache_bytes(tokens, sequences=work.batch)
    whole = deployment.device.memory_bytes
    return {
        "kv_bytes_per_token": deployment.kv_bytes_per_token,
        "kv_cache_bytes": cache,
        "weights_bytes": deployment.weights_bytes,
        "memory_bytes": whole,
        "headroom_bytes": None if whole is None else whole - deployment.weights_bytes - cache,
    }


def tidy(whole: Figures) -> Iterator[Figures]:
    """Lay a document out as one tidy table: a row a figure, with its phase and its operator where it has them."""
    for name, value in whole.items():
        if not isinstance(value, Mapping):
            yield {"part": "deployment", "operator": "", "quantity": name, "value": value}
            continue
        for quantity, figure in value.items():
            if quantity == "operators":
                yield from _tidy_operators(name, figure)
            else:
                yield {"part": name, "operator": "", "quantity": quantity, "value": figure}


def _tidy_operators(part: str, rows: list[Figures]) -> Iterator[Figures]:
    for row in rows:
        for quantity, figure in row.items():
            if quantity != "operator":
                yield {"part": part, "operator": row["operator"], "quantity": quantity, "value": figure}


def total(rows: list[Figures]) -> Figures:
    """Sum operators into the row that closes their table."""
    sums = {name: sum(row[name] for row in rows) for name, value in rows[0].items() if isinstance(value, float)}
    return {**sums, "operator": "total", "intensity": sums["flops"] / sums["bytes"]}


def tree(term: Term) -> Figures:
    """Give an explanation as nested records."""
    return asdict(term)
