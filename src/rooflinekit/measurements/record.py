"""Measurement: one measured value with its unit, statistic, conditions and where it stands; nothing is computed."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from rooflinekit.errors import InvalidInputError


class Quantity(NamedTuple):
    """Unit of a quantity, and what it means whatever the tool calls it."""

    unit: str
    meaning: str


#: The vocabulary: readers map each tool's fields to these, by tool and never by name alone.
QUANTITIES: Mapping[str, Quantity] = MappingProxyType({
    # ---- latencies that a client sees
    "time_to_first_token_s": Quantity("s", "TTFT: from sending a request to its first token; queue and prefill"),
    "time_per_output_token_s": Quantity("s", "TPOT: (end to end - TTFT) / (output tokens - 1); first token excluded"),
    "inter_token_latency_s": Quantity("s", "ITL: gaps between tokens of one answer, each gap weighing the same"),
    "inter_chunk_latency_s": Quantity("s", "gaps between streamed chunks; a chunk may hold several tokens"),
    "end_to_end_s": Quantity("s", "a whole request: queue, prefill and all decode steps"),
    "request_per_token_s": Quantity("s", "end to end / output tokens: the first token and its prefill are in it"),
    "queue_time_s": Quantity("s", "a request's wait before its prefill"),
    # ---- passes of the engine
    "prefill_time_s": Quantity("s", "the pass or passes that read `prompt_tokens` of `batch` prompts"),
    "decode_time_s": Quantity("s", "all `count` decode steps of a batch after its first tokens"),
    "decode_step_s": Quantity("s", "one decode step of `batch` sequences"),
    "step_time_s": Quantity("s", "one pass of the engine, of prompt and decode tokens together"),
    "batch_latency_s": Quantity("s", "a fixed batch from start to end: prefill and all decode steps"),
    "load_time_s": Quantity("s", "loading the model"),
    "run_time_s": Quantity("s", "wall time of a whole run, ramp-up and tail included"),
    # ---- kernels
    "kernel_time_s": Quantity("s", "all `count` launches of the kernel `name`, summed over streams"),
    "gpu_busy_s": Quantity("s", "time in which at least one kernel ran: the union"),
    # ---- rates
    "prompt_tokens_per_s": Quantity("token/s", "prompt tokens over time"),
    "output_tokens_per_s": Quantity("token/s", "output tokens over time, all requests together"),
    "total_tokens_per_s": Quantity("token/s", "prompt and output tokens together: the phases are mixed"),
    "output_tokens_per_s_per_user": Quantity("token/s", "mean over requests of 1 / ITL"),
    "requests_per_s": Quantity("request/s", "finished requests over time"),
    "goodput_requests_per_s": Quantity("request/s", "finished requests that kept the limits given to the client"),
    # ---- counts and states
    "requests_completed": Quantity("request", "requests that finished"),
    "requests_failed": Quantity("request", "requests that did not"),
    "requests_running": Quantity("request", "requests in the running batch"),
    "requests_waiting": Quantity("request", "requests that have not started"),
    "preemptions": Quantity("1", "requests put back to waiting since start"),
    "prompt_tokens": Quantity("token", "prompt tokens, cached ones included"),
    "prompt_tokens_computed": Quantity("token", "prompt tokens that went through the model"),
    "output_tokens": Quantity("token", "output tokens"),
    "prefix_cache_hit_rate": Quantity("1", "part of the prompt tokens found in the prefix cache"),
    "kv_cache_usage": Quantity("1", "part of the KV cache in use"),
    "accepted_tokens_per_step": Quantity("token", "tokens that a step of speculative decoding yields"),
    "acceptance_rate": Quantity("1", "accepted part of the drafted tokens"),
    # ---- memory
    "weight_bytes": Quantity("byte", "weights of one GPU, or of the file for a file's size"),
    "kv_cache_bytes": Quantity("byte", "memory for K and V, of one GPU"),
    "kv_cache_tokens": Quantity("token", "tokens that the engine says its cache holds, all ranks together"),
    "kv_cache_blocks": Quantity("1", "blocks of the cache"),
    "max_concurrency": Quantity("request", "requests of `prompt_tokens` that the cache holds at once"),
    "graph_bytes": Quantity("byte", "memory of captured graphs, of one GPU"),
    "peak_memory_bytes": Quantity("byte", "most memory in use, of one GPU"),
    "memory_bytes": Quantity("byte", "memory of one GPU"),
    "power_w": Quantity("W", "power drawn"),
})  # fmt: skip

#: Units of times and rates: none is below 0.
_NEVER_NEGATIVE = frozenset({"s", "token/s", "request/s"})

#: What a record was measured on: where a file does not say, the user is asked for it by name.
FACTS = ("model", "device", "engine", "weights", "tensor_parallel")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """
    One measured value, with what it was measured on and where it stands. None is "the file does not say".

    Attributes
    ----------
    quantity : str
        A key of :data:`QUANTITIES`, which gives the unit and the meaning.
    value : float
        In base units.
    statistic : str
        ``single``, ``mean``, ``median``, ``std``, ``min``, ``max``, ``total``, ``p99``; ``p99_low`` and ``p99_high``
        are bounds of a percentile that a histogram's buckets give.
    phase : str
        ``prefill``, ``decode``, ``mixed``, ``request`` or empty.
    name : str
        Of a kernel, a test or a finish reason.
    count : float
        What the value was taken over: launches, steps, repetitions.
    share : float
        Of a kernel: the part of all kernels' time that the file itself gives it; a file may list only some.
    batch, prompt_tokens, output_tokens, context_tokens, cached_tokens : float
        Sequences together, and tokens of each: of the prompt (a cached prefix included), the answer, in the cache
        before the step, of the prefix found there.
    requests, concurrency, request_rate : float
        Of a run of many requests: how many, in flight at most, sent per second.
    includes : str
        What the value holds or leaves out, in words.
    tool, version : str
        The tool that wrote the file, and its version.

    Raises
    ------
    InvalidInputError
        The quantity is not in the vocabulary, the value is not finite, or a time or rate is below 0.

    Examples
    --------
    >>> Measurement(quantity="decode_step_s", value=0.0744, batch=1, context_tokens=2048)
    decode_step_s 0.0744 s
    """

    quantity: str
    value: float
    statistic: str = "single"
    phase: str = ""
    name: str = ""
    count: float | None = None
    share: float | None = None
    batch: float | None = None
    prompt_tokens: float | None = None
    output_tokens: float | None = None
    context_tokens: float | None = None
    cached_tokens: float | None = None
    requests: float | None = None
    concurrency: float | None = None
    request_rate: float | None = None
    model: str | None = None
    device: str | None = None
    engine: str | None = None
    weights: str | None = None
    kv_cache: str | None = None
    tensor_parallel: int | None = None
    includes: str = ""
    tool: str = ""
    version: str | None = None
    file: str = ""
    line: int | None = None

    def __post_init__(self) -> None:
        """Refuse what no comparison could use."""
        if self.quantity not in QUANTITIES or not np.isfinite(self.value):
            where = self.where.removeprefix(", ")  # in a reader, which names the file
            message = f"{where}: " * bool(where) + f"{self.quantity} = {self.value!r}"
            message += ": expected a finite value of a known quantity"
            raise InvalidInputError(message)
        # one kernel summary less another may leave a little below 0: noise
        if self.value < 0 and self.unit in _NEVER_NEGATIVE and self.quantity != "kernel_time_s":
            where = self.where.removeprefix(", ")
            message = (
                f"{where}: " * bool(where) + f"{self.quantity} = {self.value!r}: expected a {self.unit} of 0 or more"
            )
            raise InvalidInputError(message)

    @property
    def unit(self) -> str:
        """Unit of the value."""
        return QUANTITIES[self.quantity].unit

    @property
    def where(self) -> str:
        """File and line, for messages."""
        return place(self.file, self.line)

    def __repr__(self) -> str:
        """Give the value in one line."""
        statistic = "" if self.statistic == "single" else f"{self.statistic} "
        name = f" of {self.name}" if self.name else ""
        return f"{statistic}{self.quantity}{name} {self.value:.6g} {self.unit}"


class Skipped(NamedTuple):
    """Something in the file that became no record, and why; equal reasons are counted together."""

    why: str
    line: int | None = None


class Setting(NamedTuple):
    """How the engine or the client was set, as the file says: ``max_num_batched_tokens``, ``random_seed``."""

    name: str
    value: str | float | bool


#: A message longer than this shows its ends: what was expected stands last.
_LONGEST, _BEGINNING, _END = 700, 350, 300


def refusal(file: str, line: int | None, what: str) -> InvalidInputError:
    r"""Make the error that names file and line: one line that can be printed, whatever the file held.

    >>> refusal("run.json", 3, "`n` = 'x\ty': expected a number")
    InvalidInputError("run.json, line 3: `n` = 'x\\ty': expected a number")
    """
    told = "".join(one if one.isprintable() else ascii(one)[1:-1] for one in what)
    if len(told) > _LONGEST:
        told = f"{told[:_BEGINNING]} ... {told[-_END:]}"
    return InvalidInputError(f"{place(file, line)}: {told}")


#: A reason with the time that it is of before :func:`nothing`.
_OF_NOTHING = re.compile(r"(\w+_s) of (?:0|-\S+):")


def nothing(value: float) -> str:
    """Say of a time or rate that is not above 0 why it is none.

    >>> nothing(0.0), nothing(-0.005)
    ('0: nothing was measured', '-0.005: below 0, so no measured value')
    """
    return "0: nothing was measured" if value == 0 else f"{value:g}: below 0, so no measured value"


def of_nothing(why: str) -> str | None:
    """Give the time of which a reason says with :func:`nothing` that it measured none.

    >>> of_nothing(f"batch_latency_s of {nothing(0.0)}"), of_nothing(f"decode_step_s of {nothing(-0.005)}")
    ('batch_latency_s', 'decode_step_s')
    >>> of_nothing("an unknown field") is None
    True
    """
    told = _OF_NOTHING.match(why)
    return told and told[1]


def place(file: str, line: int | None) -> str:
    """Name a line of a file.

    >>> place("run.json", 3), place("run.json", None)
    ('run.json, line 3', 'run.json')
    """
    return f"{file}, line {line}" if line else file
