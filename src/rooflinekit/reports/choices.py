"""Choices for eyes and for programs: levers, a split server, speculation, the token budget."""

from collections.abc import Iterator
from math import isfinite, isinf, isnan
from typing import TYPE_CHECKING, Any

from rooflinekit import units
from rooflinekit.phases.deployment import Deployment
from rooflinekit.reports.serving import place
from rooflinekit.serving.disaggregation import Disaggregation
from rooflinekit.serving.engine import EngineProfile
from rooflinekit.serving.lever_figures import METRICS
from rooflinekit.serving.levers import MOVES, Lever, Levers
from rooflinekit.serving.split import COMPARED, BreakEven
from rooflinekit.specs.device import Device

if TYPE_CHECKING:
    import pandas as pd

Row = dict[str, Any]
#: How a figure of the base is shown, by metric; times are durations.
_SHOWN = {"throughput": "{} tokens/s", "KV capacity": "{} requests", "cost": "{} GPU s"}


# ---- levers


def levers_title(found: Levers) -> str:
    """Name what is served, on what, by whom, and to whom."""
    state = found.state
    sizes = f"{units.count(state.prompt_tokens)} in, {units.count(state.output_tokens)} out"
    return f"{place(state.deployment)} under {state.engine.id}: {load_of(found)}, {sizes}"


def load_of(found: Levers) -> str:
    """Say what comes."""
    state = found.state
    return f"{state.rate_per_s:g} requests/s" if state.rate_per_s else f"{state.concurrency:,} in flight"


def lever_rows(found: Levers) -> list[Row]:
    """Give the figures as they are, then a row a change: after over before, in brackets what does not move."""
    now = {metric: _figure(found, metric) for metric in METRICS}
    changed = [{"change": row.change, **{metric: _shown(row, metric) for metric in METRICS}} for row in found.rows]
    return [{"change": "now", **now}, *changed]


def _figure(found: Levers, metric: str) -> str:
    value = getattr(found.base, METRICS[metric])
    if isinf(value):
        return "overloaded"
    if metric == "cost" and found.priced:
        return f"${units.significant(value * units.MEGA)} a million"
    return _SHOWN[metric].format(units.significant(value)) if metric in _SHOWN else units.duration(value)


def _shown(row: Lever, metric: str) -> str:
    ratio = row.ratios[metric]
    if isnan(ratio):
        return "-"
    text = units.significant(ratio, 2)
    return text if row.words[metric] == MOVES else f"({text})"


def lever_remarks(found: Levers) -> Iterator[str]:
    """Say how to read the table, and why a change cannot be told."""
    yield f"after over before; in brackets: does not move, within {found.threshold:.0%}; {found.basis}"
    yield from (f"note: {row.change}: {row.note}" for row in found.rows if row.note)


def elasticity_rows(found: Levers) -> list[Row]:
    """Give a row a quantity."""
    records = found.elasticities.to_dict("records")
    return [
        {"1% more": one["change"], "prefill_elasticity": one["prefill"], "decode_elasticity": one["decode"]}
        for one in records
    ]


def levers_tidy(found: Levers) -> Iterator[Row]:
    """Lay everything out as one table: a row a figure, in base units and ratios."""
    bare = {"moves": "", "note": ""}
    for metric, field in METRICS.items():
        yield {"part": "now", "item": "", "quantity": metric, "value": getattr(found.base, field), **bare}
    for row in found.rows:
        for metric, ratio in row.ratios.items():
            told = {"moves": row.words.get(metric, ""), "note": row.note}
            yield {"part": "ratio", "item": row.change, "quantity": metric, "value": ratio, **told}
    for one in found.elasticities.to_dict("records"):
        for phase in ("prefill", "decode"):
            yield {"part": "elasticity", "item": one["change"], "quantity": phase, "value": one[phase], **bare}


# ---- a split server


def split_title(found: Disaggregation) -> str:
    """Name what is compared, and under which load."""
    work, decode = found.prefill, found.decode
    other = decode.deployment.device.id
    names = place(work.deployment) if other == work.deployment.device.id else f"{place(work.deployment)} and {other}"
    sizes = f"{units.count(work.prompt_tokens)} in, {units.count(decode.output_tokens)} out"
    return f"{names}, {found.gpus} GPUs under {work.engine.id}: {found.rate_per_s:g} requests/s, {sizes}"


def split_figures(found: Disaggregation) -> Row:
    """Give what the comparison rests on."""
    return {
        "prefill_gpus": found.prefill_gpus,
        "decode_gpus": found.decode_gpus,
        "balance": found.balance,
        "sent_by_a_gpu_bytes": found.kv_bytes,
        "link_bytes_per_s": found.link.bytes_per_s,
        "transfer_s": found.transfer_s,
    }


def split_remarks(found: Disaggregation) -> Iterator[str]:
    """Say which is better, and from which link and load on."""
    for one in (found.together, found.split):
        if isinf(one.end_to_end_s):
            yield f"{one.arrangement}: overloaded, carries {one.most_requests_per_s:.3g} requests/s"
    field = COMPARED[found.compared_by]
    better = "split" if found.better else "together" if isfinite(getattr(found.together, field)) else "neither"
    yield f"quicker by {found.compared_by} ({field}): {better}; {found.prefill.deployment.timing.laws.basis}"
    link, load = found.link_break_even, found.load_break_even
    yield f"at {found.rate_per_s:g} requests/s the split pays {_pays(link, 'link', units.GIGA, 'GB/s')}"
    yield f"over {found.link.name} the split pays {_pays(load, 'load', 1.0, 'requests/s')}"


def _pays(found: BreakEven, what: str, scale: float, unit: str) -> str:
    """Say for which links or loads the split is no slower.

    >>> _pays(BreakEven(2e9), "link", 1e9, "GB/s"), _pays(BreakEven(0.0, "", 3.0), "load", 1.0, "requests/s")
    ('from a link of 2 GB/s on', 'below a load of 3 requests/s')
    """
    low, high = f"{found.value / scale:.3g}", f"{found.until / scale:.3g} {unit}"
    if isinf(found.value):
        told = f"at no {what}"
    elif isfinite(found.until):
        told = f"at a {what} between {low} and {high}" if found.value else f"below a {what} of {high}"
    else:
        told = f"from a {what} of {low} {unit} on" if found.value else f"at every {what}"
    return f"{told}: {found.reason}" if found.reason else told


def split_tidy(found: Disaggregation) -> Iterator[Row]:
    """Lay everything out as one table: a row a figure, in base units."""
    for row in found.table().to_dict("records"):
        arrangement = row.pop("arrangement")
        for quantity, value in row.items():
            yield {"part": "arrangement", "item": arrangement, "quantity": quantity, "value": value, "note": ""}
    for quantity, value in split_figures(found).items():
        yield {"part": "split", "item": "", "quantity": quantity, "value": value, "note": ""}
    evens = (("link_bytes_per_s", found.link_break_even), ("load_requests_per_s", found.load_break_even))
    for quantity, one in evens:
        yield {"part": "break-even", "item": "from", "quantity": quantity, "value": one.value, "note": one.reason}
        yield {"part": "break-even", "item": "until", "quantity": quantity, "value": one.until, "note": ""}


# ---- the token budget


def budget_title(deployment: Deployment, engine: EngineProfile, sizes: tuple[float, float], rate: float) -> str:
    """Name what is served, on what, by whom, and to whom."""
    lengths = f"{units.count(sizes[0])} in, {units.count(sizes[1])} out"
    return f"{place(deployment)} under {engine.id}: {rate:g} requests/s, {lengths}"


def budget_remarks(table: "pd.DataFrame", engine: EngineProfile, device: Device) -> Iterator[str]:
    """Say what the engine would do by itself, how the figures were found, and which budgets carry too little."""
    default, method = engine.token_budget(device), " and ".join(dict.fromkeys(table["method"]))
    yield f"default of {engine.id} on {device.id}: {default:,} tokens; by {method}"
    yield f"without chunks a prompt stops the answers for {units.duration(float(table['unchunked_gap_s'].iloc[-1]))}"
    over = table[table["overloaded"]]
    if len(over):
        named = ", ".join(f"{size:,}" for size in over["token_budget"])
        yield f"overloaded: {named}"
