"""optimum-benchmark's ``benchmark_report.json`` and ``benchmark.json``, which holds the configuration as well.

``decode`` is all steps after the first token together. ``per_token`` counts earlier iterations again, with the gaps
between them (seen in 0.5 and 0.6): its median alone is of use.
"""

import re
from collections.abc import Iterator
from typing import Any

from rooflinekit.measurements.fields import Fields
from rooflinekit.measurements.formats.format import Format, Item
from rooflinekit.measurements.formats.names import model_name, weights_name, whole
from rooflinekit.measurements.formats.spread import single, spread
from rooflinekit.measurements.record import Skipped
from rooflinekit.measurements.source import Source
from rooflinekit.units import GIGA, MEGA

_TOOL = "optimum-benchmark"
#: part of the report: quantity, phase
_TIMES = {
    "load_model": ("load_time_s", ""),
    "load": ("load_time_s", ""),
    "prefill": ("prefill_time_s", "prefill"),
    "decode": ("decode_time_s", "decode"),
    "generate": ("batch_latency_s", "mixed"),
}
_OTHERS = ("first_generate", "forward", "first_forward", "call", "first_call", "per_step", "train", "warmup", "overall")
_MEMORY = {
    "max_global_vram": "all processes; summed over the GPUs used",
    "max_process_vram": "the process; summed over the GPUs used",
    "max_reserved": "PyTorch's pool; summed over the GPUs used",
    "max_allocated": "PyTorch's tensors; summed over the GPUs used",
}
_BYTES = {"MB": MEGA, "GB": GIGA}
_REPORT = re.compile(r'"max_(?:ram|global_vram|vram_used)"\s*:')
_CONFIG = re.compile(r'"_target_"\s*:\s*"optimum_benchmark\.')


def _read(source: Source) -> Iterator[Item]:
    for line, data in source.objects():
        whole = Fields(data, source, line)
        config = whole.inside("config") if "report" in data else Fields(data, source, line)
        report = whole.inside("report") if "report" in data else whole
        if "scenario" in report.data or "backend" in report.data:
            yield Skipped("a configuration without a measurement: read benchmark_report.json or benchmark.json", line)
        else:
            yield from _report(report, _facts(config))


def _report(report: Fields, facts: dict[str, Any]) -> Iterator[Item]:
    steps = facts.pop("steps", None)
    for part in report.data:
        if part in _OTHERS and report.data[part]:
            yield Skipped(f"{part}: a warm-up or no pass of generation", report.line)
        elif part in _TIMES:
            quantity, phase = _TIMES[part]
            own = facts | {"phase": phase, "count": steps if part == "decode" else None}
            yield from _times(report.inside(part).inside("latency"), quantity, own)
            yield from _rest(report.inside(part), part, facts | {"phase": phase})
    per_token = report.inside("per_token").inside("latency")
    if per_token.data:
        own = facts | {"phase": "decode", "statistic": "median"}
        yield from single(per_token, "p50", "decode_step_s", scale=_seconds(per_token), **own)
        yield Skipped("per_token beside the median: earlier iterations are counted again", report.line)


def _times(latency: Fields, quantity: str, facts: dict[str, Any]) -> Iterator[Item]:
    if latency.data and latency.number("count") != 0:
        yield from spread(latency, quantity, scale=_seconds(latency), **facts)


def _seconds(latency: Fields) -> float:
    if latency.text("unit") not in {"s", None}:
        latency.refuse("unit", "expected s")
    return 1.0


def _rest(part: Fields, name: str, facts: dict[str, Any]) -> Iterator[Item]:
    """Give memory, and the rate where it counts tokens."""
    memory, rate = part.inside("memory"), part.inside("throughput")
    if memory.data and memory.text("unit") not in _BYTES:
        memory.refuse("unit", f"expected one of {', '.join(_BYTES)}")
    for key, note in _MEMORY.items():
        if memory.number(key):
            scale = _BYTES[memory.text("unit") or "MB"]
            yield from single(
                memory, key, "peak_memory_bytes", scale=scale, statistic="max", name=name, includes=note, **facts
            )
    if rate.data and rate.text("unit") != "tokens/s":
        yield Skipped("throughput that counts no tokens", part.line)
    elif rate.data and name in {"prefill", "decode"}:
        quantity = "prompt_tokens_per_s" if name == "prefill" else "output_tokens_per_s"
        yield from single(rate, "value", quantity, statistic="mean", **facts)


def _facts(config: Fields) -> dict[str, Any]:
    """Give what the configuration says, where there is one in the file."""
    facts: dict[str, Any] = {"tool": _TOOL}
    if "scenario" not in config.data:
        return facts
    backend, scenario, environment = (config.inside(name) for name in ("backend", "scenario", "environment"))
    shapes, asked = scenario.inside("input_shapes"), scenario.inside("generate_kwargs")
    answer = asked.number("max_new_tokens") or scenario.number("new_tokens")
    return (
        facts
        | {
            "batch": shapes.number("batch_size"),
            "prompt_tokens": shapes.number("sequence_length"),
            "output_tokens": answer,
            "steps": answer - 1 if answer else None,
            "model": model_name(backend.text("model")),
            "weights": weights_name(backend.text("quantization_scheme") or backend.text("torch_dtype")),
            "engine": backend.text("library") if backend.text("name") == "pytorch" else backend.text("name"),
            "version": environment.text("optimum_benchmark_version"),
        }
        | _gpus(backend, environment)
    )


def _gpus(backend: Fields, environment: Fields) -> dict[str, Any]:
    """Give the GPU that the run used: the environment lists all of the machine."""
    listed, used = environment.data.get("gpu"), str(backend.data.get("device_ids") or "")
    numbers = [number for one in used.split(",") if (number := whole(one.strip())) is not None]
    if backend.text("device") != "cuda" or not isinstance(listed, list):
        return {}
    names = {str(listed[one]) for one in numbers if one < len(listed)}
    return {
        "device": names.pop() if len(names) == 1 else None,
        "tensor_parallel": 1 if len(numbers) == 1 else None,
    }


FORMAT = Format(
    "optimum-benchmark",
    "report of optimum-benchmark",
    matches=lambda source: (
        source.head.lstrip("\ufeff \t\r\n").startswith("{")
        and bool(_REPORT.search(source.head) or _CONFIG.search(source.head))
    ),
    read=_read,
    asks=("batch", "prompt_tokens", "output_tokens"),
)
