"""What a vLLM log says of its server's settings: listed names only, since arguments may hold keys, hosts and paths."""

import ast
import re
from collections.abc import Iterator
from typing import Any

from rooflinekit.measurements.formats.names import model_name, weights_name
from rooflinekit.measurements.record import Setting

_KEPT = (
    "model", "dtype", "max_model_len", "max_seq_len", "tensor_parallel_size", "pipeline_parallel_size",
    "data_parallel_size", "gpu_memory_utilization", "max_num_seqs", "max_num_batched_tokens", "kv_cache_dtype",
    "quantization", "enable_prefix_caching", "enable_chunked_prefill", "chunked_prefill_enabled", "enforce_eager",
    "block_size", "enable_expert_parallel", "async_scheduling", "num_speculative_tokens",
)  # fmt: skip
_RENAMED = {"max_seq_len": "max_model_len", "chunked_prefill_enabled": "enable_chunked_prefill"}
_ARGUMENTS = re.compile(r"non-default args: (\{.*)")
_CONFIG = re.compile(r"LLM engine \(v(?P<version>[^)\s]+)\) with config: (?P<config>.*)|args: Namespace\((?P<args>.*)")
_SERVER = re.compile(r"vLLM API server version v?(\S+)")
_PAIR = re.compile(rf"\b({'|'.join(_KEPT)})=('[^']*'|[^,\s)\]}}]+)(?=[,\s)\]}}])")
_QUOTED_PAIR = re.compile(rf"'({'|'.join(_KEPT)})': ('[^']*'|-?[\d.]+|True|False|None)(?=[,}}])")
_CHUNKS = re.compile(r"max_num_batched_tokens=(\d{1,12})[.,]")
_GRAPHS = re.compile(
    r"current --gpu-memory-utilization=(\d+\.\d+) is equivalent to --gpu-memory-utilization=(\d+\.\d+) "
)
_SHARE = re.compile(r"total_gpu_memory.*gpu_memory_utilization(?:=| \()(\d+\.\d+)")
_BACKEND = re.compile(r"Using (\w[\w ]*?)(?: attention)? backend (?:out of|on V1)")
#: More is no list of arguments.
_MOST_CHARACTERS = 100_000


def boot_facts(text: str) -> dict[str, Any]:
    """Give the facts of a record that a line says: version, model, tensor parallelism, formats."""
    said, facts = _said(text), dict[str, Any]()
    config = _CONFIG.search(text)
    version = _SERVER.search(text) or (config if config and config["version"] else None)
    if version:
        facts["version"] = version[1]
    if isinstance(said.get("model"), str):
        facts["model"] = model_name(said["model"])
    if isinstance(said.get("tensor_parallel_size"), int):
        facts["tensor_parallel"] = said["tensor_parallel_size"]
    if "quantization" in said and said["quantization"] is None:
        facts["weights"] = weights_name(said.get("dtype"))
    cache = said.get("kv_cache_dtype")
    if isinstance(cache, str):
        facts["kv_cache"] = "fp8" if cache.startswith("fp8") else weights_name(cache)
    return {name: value for name, value in facts.items() if value is not None}


def boot_settings(text: str) -> Iterator[Setting]:
    """Give the settings that a line says."""
    for name, value in _said(text).items():
        if name != "model" and isinstance(value, str | int | float):
            yield Setting(name, value)
    if "Chunked prefill is enabled" in text and (chunks := _CHUNKS.search(text)):
        yield Setting("max_num_batched_tokens", int(chunks[1]))
    if graphs := _GRAPHS.search(text):
        yield Setting("gpu_memory_utilization", float(graphs[1]))
        yield Setting("gpu_memory_utilization_without_graphs", float(graphs[2]))
    if share := _SHARE.search(text):
        yield Setting("gpu_memory_utilization", float(share[1]))
    if backend := _BACKEND.search(text):
        yield Setting("attention_backend", backend[1])


def _said(text: str) -> dict[str, Any]:
    """Give the kept arguments and fields of a line, under their newest names."""
    if arguments := _ARGUMENTS.search(text):
        said = _arguments(arguments[1][:_MOST_CHARACTERS])
    elif config := _CONFIG.search(text):
        said = _pairs(_PAIR, config["config"] or config["args"] or "")
    else:
        return {}
    return {_RENAMED.get(name, name): value for name, value in said.items()}


def _arguments(text: str) -> dict[str, Any]:
    """Read the dict of arguments; one that is cut or holds objects is read by key."""
    try:
        said = ast.literal_eval(text[: text.rindex("}") + 1])
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return _pairs(_QUOTED_PAIR, text)
    return {name: said[name] for name in _KEPT if name in said} if isinstance(said, dict) else {}


def _pairs(pattern: re.Pattern[str], text: str) -> dict[str, Any]:
    said = dict[str, Any]()
    for name, value in pattern.findall(text):
        said.setdefault(name, _scalar(value.removeprefix("torch.")))
    return said


def _scalar(value: str) -> str | float | bool | None:
    if value in {"True", "False", "None"}:
        return {"True": True, "False": False, "None": None}[value]
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            continue
    return value.strip("'\"")
