"""Capacity for eyes and for programs: the terms of the pool, requests at lengths, and what would free how much."""

from collections.abc import Iterator, Sequence
from typing import Any

from rooflinekit import units
from rooflinekit.serving import Capacity, more_room

Figures = dict[str, Any]


def term_rows(held: Capacity) -> list[Figures]:
    """Give a row a term of one GPU's memory, what is taken negative, and the pool that is left."""
    rows: list[Figures] = [
        {"term": term.name, "memory_bytes": term.bytes, "reason": term.reason} for term in held.terms
    ]
    return [*rows, {"term": "KV pool", "memory_bytes": held.pool_bytes, "reason": _pool(held)}]


def request_rows(held: Capacity, tokens: Sequence[float]) -> list[Figures]:
    """Give a row a length: requests that the pool holds, what each has set aside and what a decode step reads."""
    return [
        {
            "tokens": length,
            "requests": float(held.requests(length)),
            "reserved_memory_bytes": float(held.reserved_bytes(length)),
            "read_memory_bytes": float(held.read_bytes(length)),
        }
        for length in tokens
    ]


def lever_rows(held: Capacity, tokens: float) -> list[Figures]:
    """Give a row a change: the memory, tokens and requests that it frees."""
    if held.engine.pool == "context":
        return []
    return [
        {
            "change": lever.change,
            "more_memory_bytes": lever.more_bytes,
            "more_tokens": lever.more_tokens,
            "requests": lever.requests,
        }
        for lever in more_room(held, tokens)
    ]


def tidy(held: Capacity, tokens: Sequence[float]) -> Iterator[Figures]:
    """Lay everything out as one table: a row a figure."""
    for row in term_rows(held):
        yield {"part": "memory", "item": row["term"], "quantity": "bytes", "value": row["memory_bytes"]}
    yield {"part": "pool", "item": "", "quantity": "kv_cache_tokens", "value": held.kv_tokens}
    yield {"part": "pool", "item": "", "quantity": "kv_bytes_per_token", "value": held.bytes_per_token}
    yield {"part": "pool", "item": "", "quantity": "state_bytes", "value": held.state_bytes}
    for part, rows, name in (
        ("request", request_rows(held, tokens), "tokens"),
        ("lever", lever_rows(held, tokens[0]), "change"),
    ):
        for row in rows:
            for quantity, value in row.items():
                if quantity != name:
                    yield {"part": part, "item": row[name], "quantity": quantity, "value": value}


def title(held: Capacity) -> str:
    """Name what is served, on what, and how."""
    deployment, gpus = held.deployment, held.share.gpus
    many = f"{gpus} x " if gpus > 1 else ""
    formats = f"{deployment.precision.described}, {deployment.precision.kv_cache} KV"
    return f"{deployment.model.id} on {many}{deployment.device.id} under {held.engine.id}: {formats}; one GPU"


def remarks(held: Capacity) -> Iterator[str]:
    """Say what the tables do not: tokens as the log prints them, bytes of a request, the settings that hold."""
    limits = held.limits
    yield f"the engine's log would print {held.kv_tokens:,} tokens{_concurrency(held)}"
    yield (
        f"a request takes {units.binary_bytes(held.state_bytes)} whatever its length and "
        f"{units.binary_bytes(held.bytes_per_token)} a token"
        if held.state_bytes
        else f"a token takes {units.binary_bytes(held.bytes_per_token)}"
    )
    most = "any number of" if limits.max_num_seqs is None else f"{limits.max_num_seqs:,}"
    yield f"settings: {limits.max_num_batched_tokens:,} tokens and {most} sequences a pass"


def _concurrency(held: Capacity) -> str:
    if held.max_concurrency is None:
        return ""
    return f", {held.max_concurrency:.2f} requests of {held.limits.max_model_len:,} tokens"


def _pool(held: Capacity) -> str:
    each = held.pages.block_tokens
    blocks = f"{held.blocks:,} blocks of {each:,} tokens" if each > 1 else f"{held.blocks:,} cells of one token"
    groups = len(held.pages.groups)
    return blocks if groups == 1 else f"{blocks}, shared by {groups} groups of layers"
