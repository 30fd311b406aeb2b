"""Log of a vLLM server or engine: what it says at start, every ten seconds, and every iteration where that is asked.

Sizes in GiB are of one worker (GPU), tokens and concurrency of one engine. Ranks that repeat a line are counted once:
one record, or the least and the most where they differ. Engine 0 has no name, further ones of a data-parallel server
are DP1, DP2 ... A window's rate may hold idle time. With asynchronous scheduling an iteration's time is that of the
loop, not of the pass.
"""

import re
from collections.abc import Iterator

from rooflinekit.measurements.formats.format import Format, Item
from rooflinekit.measurements.formats.names import VLLM
from rooflinekit.measurements.formats.vllm_log_settings import boot_facts, boot_settings
from rooflinekit.measurements.formats.vllm_log_startup import TOOL, Startup, engine_name
from rooflinekit.measurements.record import Measurement, Skipped
from rooflinekit.measurements.source import Source
from rooflinekit.units import MILLI

_PERCENT = 0.01
#: Cheap to look for: a line without any of these is left at once.
_WORDS = (
    "throughput: ", "Iteration(", "args: ", "LLM engine (", "API server version", "oncurrency for", "KV ",
    " took ", "model weights take", "blocks", "CUDA graph", "Memory profiling", "max_num_batched_tokens=",
    "cceptance rate", "backend", "total_gpu_memory", "cache hit rate: ", " GiB for ", "Free memory on device",
    "kv cache memory",
)  # fmt: skip
_ITERATION = re.compile(
    r"Iteration\(\d+\): (\d+) context requests, (\d+) context tokens, (\d+) generation requests, "
    r"(\d+) generation tokens, iteration elapsed time: (\d+(?:\.\d+)?)\s*ms"
)
_ENCODED = re.compile(r"encoder inputs: ([1-9]\d*)")
_STATE = re.compile(
    r"(Avg prompt throughput|Avg generation throughput|Running|Waiting|Pending|[A-Z]+ KV cache usage|"
    r"Prefix cache hit rate): (?:GPU: )?(\d+(?:\.\d+)?)(?: tokens/s| reqs|%)"
)
_STATES = {
    "Avg prompt throughput": ("prompt_tokens_per_s", 1.0),
    "Avg generation throughput": ("output_tokens_per_s", 1.0),
    "Running": ("requests_running", 1.0),
    "Waiting": ("requests_waiting", 1.0),
    "Pending": ("requests_waiting", 1.0),
    "Prefix cache hit rate": ("prefix_cache_hit_rate", _PERCENT),
}
_OTHER_CACHE = re.compile(r"(External prefix|MM) cache hit rate: \d")
_LENGTH = re.compile(r"Mean acceptance length: (\d+(?:\.\d+)?),")
_RATE = re.compile(r"[Dd]raft acceptance rate: (\d+(?:\.\d+)?)(%|,)")
_BOOT = re.compile(r"vLLM API server version|Initializing an? (?:V\d )?LLM engine \(")
_KNOWN = re.compile(r"KV cache size: |Maximum concurrency for|Model loading took|KV cache memory: ")
_CUT = "a line that is cut, or of a form that is not known"


def _read(source: Source) -> Iterator[Item]:
    startup = Startup()
    for number, text in source.lines():
        if not any(word in text for word in _WORDS):
            continue
        if startup.is_over(text):
            yield from startup.items()
            startup = Startup(dict(startup.facts))
        elif _BOOT.search(text) and (startup.held or "API server" in text):
            yield from startup.items()
            startup = Startup()
        yield from _line(text, number, startup)
    yield from startup.items()


def _line(text: str, number: int, startup: Startup) -> Iterator[Item]:
    """Give what a line holds; values of the start are collected, since other ranks repeat them."""
    if "Iteration(" in text:
        items = list(_iteration(text, number, startup))
    elif "throughput: " in text or "acceptance rate" in text or "cache hit rate: " in text:
        items = list(_window(text, number, startup))
    else:
        startup.facts.update(boot_facts(text))
        items = list(boot_settings(text))
        if not startup.take(text, number) and not items and _KNOWN.search(text):
            yield Skipped(_CUT, number)
    yield from items


def _iteration(text: str, number: int, startup: Startup) -> Iterator[Item]:
    found = _ITERATION.search(text)
    if not found:
        yield Skipped(_CUT, number)
        return
    prompts, prompt_tokens, sequences, tokens, milliseconds = (float(one) for one in found.groups())
    if not milliseconds or not prompts + sequences:
        yield Skipped("an iteration of no time or without a request", number)
        return
    notes = (
        f"{prompts:g} prompts share prompt_tokens" if prompts > 1 else "",
        f"{images[1]} inputs of an encoder" if (images := _ENCODED.search(text)) else "",
        f"{tokens:g} tokens for {sequences:g} sequences: speculative" if tokens != sequences else "",
    )
    yield Measurement(
        quantity="step_time_s", value=milliseconds * MILLI, count=1,
        phase="decode" if not prompts else "mixed" if sequences else "prefill",
        batch=sequences or prompts, prompt_tokens=prompt_tokens if prompts else None,
        includes="; ".join(note for note in notes if note),
        name=engine_name(text), tool=TOOL, engine=VLLM, line=number, **startup.facts,
    )  # fmt: skip


def _window(text: str, number: int, startup: Startup) -> Iterator[Item]:
    values, others = _values(text), _OTHER_CACHE.findall(text)
    yield from (Skipped(f"{other} cache hit rate: not of the prefix cache on the GPU", number) for other in others)
    if not values and not others:
        yield Skipped(_CUT, number)
    for quantity, value in values.items():
        if not value and quantity.endswith("_per_s"):
            yield Skipped(f"{quantity} of 0: no such token in the window", number)
            continue
        yield Measurement(
            quantity=quantity, value=value,
            statistic="mean" if quantity.endswith(("_per_s", "_rate", "_step")) else "single",
            includes="a window of the log, idle time too" if quantity.endswith("_per_s") else "",
            name=engine_name(text), tool=TOOL, engine=VLLM, line=number, **startup.facts,
        )  # fmt: skip


def _values(text: str) -> dict[str, float]:
    """Give the values of a window's line by quantity."""
    values = dict[str, float]()
    for label, value in _STATE.findall(text):
        quantity, scale = _STATES.get(label, ("kv_cache_usage", _PERCENT))
        values.setdefault(quantity, float(value) * scale)
    if length := _LENGTH.search(text):
        values["accepted_tokens_per_step"] = float(length[1])
    if rate := _RATE.search(text):  # a percentage in V1, a fraction in V0
        values["acceptance_rate"] = float(rate[1]) * (_PERCENT if rate[2] == "%" else 1.0)
    return values


_MARKS = re.compile(
    r"vLLM API server version|Initializing an? (?:V\d )?LLM engine \(v|KV cache size: [\d,]+ tokens|"
    r"Maximum concurrency for [\d,]+ tokens per request|Loading model weights took [\d.]+ Gi?B|"
    r"Model loading took [\d.]+ Gi?B|Avg prompt throughput: [\d.]+ tokens/s|Available KV cache memory: [\d.]+ GiB|"
    r"Iteration\(\d+\): \d+ context requests|Actual usage(?: is|:) [\d.]+ GiB for|Estimated CUDA graph memory: |"
    r"non_torch_memory[ =]"
)


def _matches(source: Source) -> bool:
    head = source.head.lstrip()
    json = head.startswith("{") and not head.startswith('{"log"')  # Docker wraps each line so
    return not json and bool(_MARKS.search(head))


FORMAT = Format("vllm-log", "log of a vLLM server", matches=_matches, read=_read)
