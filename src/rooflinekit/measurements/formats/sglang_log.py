"""SGLang's server log: what was allocated at startup, and the lines of prefill and decode batches.

It prints "GB" and means GiB. The rate of a decode line is the mean since the decode line before it, so a prefill in
between is in it; the batch is the one at the end of that window.
"""

import re
from collections.abc import Iterator
from typing import Any

from rooflinekit.measurements.fields import Fields, read_number
from rooflinekit.measurements.formats.format import Format, Item
from rooflinekit.measurements.formats.names import SGLANG, model_name, whole
from rooflinekit.measurements.formats.spread import single
from rooflinekit.measurements.record import Measurement, Setting, Skipped
from rooflinekit.measurements.source import Source
from rooflinekit.units import GIB

_TOOL = "SGLang"
_HEAD = re.compile(
    r"KV Cache is allocated\. |Load weight end\. |server_args=ServerArgs\(|(?:Prefill|Decode) batch(?: \[\d+\])?[.,] #"
)
_BATCH = re.compile(r"(Prefill|Decode) batch(?: \[\d+\])?[.,] (#.*)")
_RANK = re.compile(r"(?:(?:DP|TP|EP|PP)\d+ ?)+(?=\])")
_CACHE = re.compile(r"KV Cache is allocated\. .*?#tokens: (\d+), (.*)")
_SIZE = re.compile(r"\b(?:K|V|KV) size: ([\d.]+) ?GB")
_WEIGHTS = re.compile(r"Load weight end\.(?: elapsed=([\d.]+) s,)?.*?(?:mem usage=([\d.]+) GB|$)")
_GRAPH = re.compile(r"Capture .*graph end\. .*?mem usage=([\d.]+) GB")
_TOTAL = re.compile(r"\bmax_total_num_tokens=(\d+)")
_SET = re.compile(
    r"\b(chunked_prefill_size|max_prefill_tokens|max_running_requests|context_len|mem_fraction_static|random_seed"
    r"|disable_radix_cache|dtype)=('?)(?!None)([\w.-]+)\2"
)
_MODEL = re.compile(r"\b(?:model_path|served_model_name)='([^']+)'")
_ARGUMENT = {
    name: re.compile(rf"\b{name}='?(?!None|auto)([\w.-]+)'?") for name in ("tp_size", "quantization", "kv_cache_dtype")
}


class Startup:
    """The lines of the startup; what each rank says alike is taken once."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.facts: dict[str, Any] = {"tool": _TOOL, "engine": SGLANG}
        self._said: set[tuple[str, float]] = set()

    def items(self, number: int, text: str) -> Iterator[Item]:
        """Give the records and settings of a line."""
        said = _TOTAL.search(text)
        if "server_args=" in text:
            self._arguments(text)
        if said or "server_args=" in text:
            yield from (Setting(name, value) for name, _, value in _SET.findall(text))
        if found := _CACHE.search(text):
            yield from self._cache(found, number)
        elif said:
            yield from self._once("kv_cache_tokens", float(said[1]), number)
        elif found := _WEIGHTS.search(text):
            yield from self._printed("load_time_s", found[1], 1.0, number)
            yield from self._printed("weight_bytes", found[2], GIB, number)
        elif found := _GRAPH.search(text):
            yield from self._printed("graph_bytes", found[1], GIB, number)

    def _cache(self, found: re.Match[str], number: int) -> Iterator[Item]:
        yield from self._once("kv_cache_tokens", float(found[1]), number)
        sizes = [read_number(one, "size", self.source.name, number) or 0.0 for one in _SIZE.findall(found[2])]
        if sizes:
            yield from self._once("kv_cache_bytes", sum(sizes) * GIB, number)

    def _printed(self, quantity: str, text: str | None, scale: float, number: int) -> Iterator[Item]:
        value = read_number(text, quantity, self.source.name, number) if text else None
        if value is not None:
            yield from self._once(quantity, value * scale, number)

    def _once(self, quantity: str, value: float, line: int) -> Iterator[Item]:
        if (quantity, value) in self._said:
            yield Skipped("said alike by another rank", line)
        elif value <= 0:
            yield Skipped(f"{quantity} of 0", line)
        else:
            yield Measurement(quantity=quantity, value=value, line=line, **self.facts)
        self._said.add((quantity, value))

    def _arguments(self, text: str) -> None:
        """Take the few facts that are safe to keep; a checkpoint's own quantisation is none of them."""
        found = {name: one[1] for name, pattern in _ARGUMENT.items() if (one := pattern.search(text))}
        if model := _MODEL.search(text):
            self.facts["model"] = model_name(model[1])
        if (ranks := whole(found.get("tp_size", ""))) is not None:
            self.facts["tensor_parallel"] = ranks
        self.facts |= {"weights": found.get("quantization"), "kv_cache": found.get("kv_cache_dtype")}


def _read(source: Source) -> Iterator[Item]:
    startup = Startup(source)
    before: dict[str, str] = {}
    for number, text in source.lines():
        found = _BATCH.search(text)
        if not found:
            yield from startup.items(number, text)
            continue
        rank = one[0] if (one := _RANK.search(text)) else ""
        row = Fields(_pairs(found[2]), source, number)
        if _is_cut(found[2]):
            yield Skipped("a batch line that is cut: its last value is lost", number)
        if found[1] == "Prefill":
            yield from _prefill(row, startup.facts)
        else:
            yield from _decode(row, startup.facts, alone=before.get(rank) == "Decode")
        before[rank] = found[1]


def _pairs(text: str) -> dict[str, str]:
    """Take `key: value, key: value` apart; hybrid models name the pool of full attention `full`."""
    pairs = (pair.rpartition(": ") for pair in text.rstrip(", ").split(", "))
    return {key.replace("full token", "token"): value for key, _, value in pairs if key}


def _is_cut(text: str) -> bool:
    return ": " not in text.rstrip(", ").rpartition(", ")[2]


def _decode(row: Fields, facts: dict[str, Any], *, alone: bool) -> Iterator[Item]:
    running, tokens = row.number("#running-req"), row.number("#token")
    if running is None:
        yield Skipped("a batch line without its counts: cut, or two lines in one", row.line)
        return
    each = tokens / running if tokens and running else None
    rate = "gen throughput (token/s)"
    note = "mean since the decode line before" + ("" if alone else "; prefills or idle time are in it")
    batch = facts | {"batch": running or None, "context_tokens": each}
    phase = "decode" if alone else "mixed"
    yield from single(row, rate, "output_tokens_per_s", statistic="mean", phase=phase, includes=note, **batch)
    yield from single(row, "accept len", "accepted_tokens_per_step", statistic="mean", phase="decode", **batch)
    yield from single(row, "accept rate", "acceptance_rate", statistic="mean", phase="decode", **batch)
    yield from _states(row, facts)


def _prefill(row: Fields, facts: dict[str, Any]) -> Iterator[Item]:
    sequences, cached = row.number("#new-seq"), row.number("#cached-token")
    if sequences is None:
        yield Skipped("a batch line without its counts: cut, or two lines in one", row.line)
        return
    each = cached / sequences if cached is not None and sequences else None
    batch = facts | {"batch": sequences or None, "cached_tokens": each}
    yield from single(row, "#new-token", "prompt_tokens_computed", phase="prefill", **batch)
    note = "since the prefill line before: decode steps and idle time are in it"
    yield from single(row, "input throughput (token/s)", "prompt_tokens_per_s", includes=note, **batch)
    hits = row.data.get("cache hit rate")
    if isinstance(hits, str) and hits.endswith("%"):
        part = Fields({"cache hit rate": hits[:-1]}, row.source, row.line)
        yield from single(part, "cache hit rate", "prefix_cache_hit_rate", scale=0.01, includes="since start", **facts)
    yield from _states(row, facts)


def _states(row: Fields, facts: dict[str, Any]) -> Iterator[Item]:
    for key, quantity in (
        ("token usage", "kv_cache_usage"), ("#running-req", "requests_running"), ("#queue-req", "requests_waiting"),
    ):  # fmt: skip
        yield from single(row, key, quantity, **facts)


FORMAT = Format(
    "sglang-log",
    "server log of SGLang",
    matches=lambda source: bool(_HEAD.search(source.head)),
    read=_read,
)
