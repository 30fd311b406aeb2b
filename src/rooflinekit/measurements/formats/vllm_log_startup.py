"""What a vLLM engine says once, at its start, of weights, KV cache and graphs, gathered over its workers."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rooflinekit.measurements.formats.format import Item
from rooflinekit.measurements.formats.names import VLLM
from rooflinekit.measurements.record import Measurement, Skipped
from rooflinekit.units import GIB

TOOL = "vLLM"
_N = r"(-?\d[\d,]*(?:\.\d+)?)"
_PREFIX = re.compile(r"\(([^()]*\bpid=\d+[^()]*)\)")
_ENGINE = re.compile(r"DP(\d{1,9})|EngineCore_(\d{1,9})|Engine (\d{1,9}):")
_LOADED = re.compile(r"(?:Loading model weights|Model loading) took ")
_SIZED = frozenset({"kv_cache_tokens", "kv_cache_blocks", "max_concurrency"})
_REPEATED = re.compile(r"\[repeated (\d{1,9})x across cluster\]")


class _Line(NamedTuple):
    """A kind of line: a later version may print a quantity twice, then the fallback is left out for an earlier kind."""

    pattern: re.Pattern[str]
    quantity: str
    unit: float = GIB
    per_worker: bool = True
    includes: str = ""
    fallback: bool = False


def _line(pattern: str, quantity: str, unit: float = GIB, **more: Any) -> _Line:  # noqa: ANN401 - fields of a line
    return _Line(re.compile(pattern), quantity, unit, **more)


#: V0 prints GB and means GiB.
_LINES = (
    _line(rf"(?:Loading model weights|Model loading) took {_N} ?Gi?B", "weight_bytes"),
    _line(rf"Model loading took .* and {_N} seconds", "load_time_s", 1.0),
    _line(rf"model weights take {_N} ?GiB", "weight_bytes", fallback=True),
    _line(rf"(?:Available KV cache memory: |for KV Cache is |\bkv_cache_size=){_N} ?GiB", "kv_cache_bytes"),
    _line(rf"KV cache size: {_N} tokens", "kv_cache_tokens", 1.0, per_worker=False),
    _line(rf"Maximum concurrency for [\d,]+ tokens per request: {_N}x", "max_concurrency", 1.0, per_worker=False),
    _line(rf"\b(?:GPU|cuda|CUDA|rocm|tpu|xpu|hpu|cpu) blocks: {_N}", "kv_cache_blocks", 1.0, per_worker=False),
    _line(rf"num_gpu_blocks is: {_N}", "kv_cache_blocks", 1.0, per_worker=False, fallback=True),
    _line(rf"Graph capturing finished in .* took {_N} GiB", "graph_bytes"),
    _line(rf"CUDA graph pool memory: {_N} GiB", "graph_bytes", fallback=True),
    _line(rf"Estimated CUDA graph memory: {_N} GiB", "graph_bytes", includes="an estimate before the capture"),
    _line(rf"peak_torch_memory={_N} ?GiB", "peak_memory_bytes", includes="PyTorch's, in the profiling run"),
    _line(rf"\btotal_gpu_memory(?:=| \(){_N} ?GiB", "memory_bytes", includes="all that the GPU has"),
    _line(rf"\bnon_torch_memory(?:=| takes ){_N} ?GiB", "memory_bytes", includes="not by PyTorch"),
    _line(rf"activation peak memory takes {_N} ?GiB", "memory_bytes", includes="activations, at their peak"),
    _line(rf"Free memory on device \([\d.]+/{_N} ?GiB", "memory_bytes", includes="all that the GPU has", fallback=True),
    _line(rf"Actual usage(?: is|:) {_N} GiB for weight", "weight_bytes", fallback=True),
    _line(rf"{_N} GiB for consumed memory", "memory_bytes", includes="weights, and what is not by PyTorch"),
    _line(rf"{_N} GiB for peak activation", "memory_bytes", includes="activations, at their peak", fallback=True),
    _line(rf"{_N} GiB for non-torch memory", "memory_bytes", includes="not by PyTorch", fallback=True),
    _line(rf"{_N} GiB for (?:CUDA|NPU) ?[Gg]raph memory", "graph_bytes", fallback=True),
    _line(rf"reserved {_N} GiB memory for KV Cache", "kv_cache_bytes", fallback=True),
    _line(rf"Current (?:kv|KV) cache memory(?: in use is|:) {_N} GiB", "kv_cache_bytes", fallback=True),
    _line(rf"Current kv cache memory in use is {_N} bytes", "kv_cache_bytes", 1.0, fallback=True),
)
_LENGTH = re.compile(r"Maximum concurrency for (\d[\d,]*) tokens")


@dataclass
class _Values:
    """Values of one kind of line of one engine, by worker."""

    line: int
    workers: dict[str, float] = field(default_factory=dict)
    repeated: int = 0
    prompt_tokens: float | None = None


@dataclass
class Startup:
    """One start of a server: facts that its records share, and values by kind of line and engine."""

    facts: dict[str, Any] = field(default_factory=dict)
    held: dict[tuple[int, str], _Values] = field(default_factory=dict)

    def is_over(self, text: str) -> bool:
        """Tell a line that loads the weights of an engine whose cache is sized already: the log of a further start.

        Ray repeats lines of workers late.
        """
        if not _LOADED.search(text) or _REPEATED.search(text):
            return False
        engine = engine_name(text)
        return any(_LINES[index].quantity in _SIZED and of == engine for index, of in self.held)

    def take(self, text: str, number: int) -> bool:
        """Take the values of a line; tell whether it held any."""
        taken = False
        for index, kind in enumerate(_LINES):
            if found := kind.pattern.search(text):
                taken = True
                values = self.held.setdefault((index, engine_name(text)), _Values(number))
                worker = "/".join(_PREFIX.findall(text)) or f"line {number}"  # unlabelled: each line another worker's
                values.workers[worker] = float(found[1].replace(",", "")) * kind.unit
                if repeated := _REPEATED.search(text):
                    values.repeated += int(repeated[1])
                if kind.quantity == "max_concurrency" and (length := _LENGTH.search(text)):
                    values.prompt_tokens = float(length[1].replace(",", ""))
        return taken

    def items(self) -> Iterator[Item]:
        """Give one record for each kind and engine, or the least and the most where workers differ."""
        first = {
            (_LINES[index].quantity, _LINES[index].includes): index for index, _ in sorted(self.held, reverse=True)
        }
        for (index, engine), values in sorted(self.held.items(), key=lambda one: one[1].line):
            kind = _LINES[index]
            if not kind.fallback or index == first[kind.quantity, kind.includes]:
                yield from self._records(kind, engine, values)

    def _records(self, kind: _Line, engine: str, values: _Values) -> Iterator[Item]:
        least, most = min(values.workers.values()), max(values.workers.values())
        if least <= 0:
            yield Skipped(f"{kind.quantity} of 0 or less: nothing was measured", values.line)
            return
        statistics = {"min": least, "max": most} if kind.per_worker and most > least else {"single": least}
        workers = len(values.workers) + values.repeated
        notes = (kind.includes, f"of {workers} workers" if kind.per_worker and workers > 1 else "")
        for statistic, value in statistics.items():
            yield Measurement(
                quantity=kind.quantity, value=value, statistic=statistic, name=engine,
                prompt_tokens=values.prompt_tokens, includes=", ".join(note for note in notes if note),
                tool=TOOL, engine=VLLM, line=values.line, **self.facts,
            )  # fmt: skip


def engine_name(text: str) -> str:
    """Name the engine of a data-parallel server that a line speaks of; the first has no name.

    >>> engine_name("(Worker_DP1_TP0 pid=12) INFO"), engine_name("(EngineCore_DP0 pid=9) INFO")
    ('DP1', '')
    """
    found = _ENGINE.search(text)
    number = int(next(one for one in found.groups() if one)) if found else 0
    return f"DP{number}" if number else ""
