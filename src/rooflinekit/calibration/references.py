"""The references that ship with the package as observations: kernels of eight devices, the H200 trace, rates."""

from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from pathlib import Path

import pandas as pd

from rooflinekit.calibration.kernels import kernel_observations
from rooflinekit.calibration.observations import Observations
from rooflinekit.calibration.passes import (
    Line,
    Point,
    batched_prefill_points,
    decode_points,
    observe,
    prefill_points,
    rate_observations,
    step_observations,
)
from rooflinekit.calibration.tables import read_table
from rooflinekit.calibration.trace import load_trace, trace_observations
from rooflinekit.phases.deployment import Deployment
from rooflinekit.specs.catalog import load_device

FOLDER = Path(str(files("rooflinekit"))) / "references"
#: Prompts below this many tokens hold the capture of a graph in the first sample: the best one counts.
_CAPTURED = 256
#: Tokens that llama.cpp takes through the model at once in that trace.
_MICRO_BATCH = 2048.0


@cache
def kernel_tables() -> tuple[Observations, ...]:
    """Observe the kernel tables of eight devices; the B60 runs FP8 as BF16, so its other formats are left out."""
    names = ("gemm", "attention", "moe")
    table = pd.concat([read_table(FOLDER / "kernels" / f"measured_{name}.csv") for name in names], ignore_index=True)
    table = table[(table["device"] != "arc-pro-b60") | (table["weights"] == "bf16")]
    cache_dtype = table["kv_cache"].fillna("")
    groups = table.groupby(["device", cache_dtype])
    return tuple(kernel_observations(lines, load_device(str(device))) for (device, _), lines in groups)


@cache
def devices_with_kernels() -> frozenset[str]:
    """Name the devices whose kernels are measured one by one."""
    traces = (*h200_kernels(), gb10_trace())
    return frozenset(one.device.id for one in (*kernel_tables(), *traces))


@cache
def h200_kernels(backend: str = "cudnn") -> tuple[Observations, ...]:
    """Observe the H200 trace's products and attention, of one back end; FP8 products have static scales."""
    device = load_device("h200-sxm")
    products, attention = (read_table(FOLDER / "h200" / f"{name}.csv") for name in ("gemm", "attention"))
    chosen = attention[attention["backend"] == backend]
    others = (read_table(FOLDER / "h200" / f"{name}.csv") for name in ("mixture", "small_kernels"))
    return tuple(kernel_observations(table.assign(device="h200-sxm"), device) for table in (products, chosen, *others))


@cache
def h200_steps() -> tuple[Observations, ...]:
    """Observe whole steps of the H200 trace, one model and format at a time."""
    names = ("qwen3-8b_steps", "llama-3.1-8b_steps", "more_steps")
    paths = [FOLDER / "h200" / f"{name}.csv" for name in names]
    table = pd.concat([pd.read_csv(path) for path in paths if path.exists()], ignore_index=True)
    table["weights"] = table["weights"].fillna("bf16") if "weights" in table else "bf16"
    return tuple(step_observations(table[~table["weights"].str.startswith("fp8")], "h200-sxm"))


@cache
def h200_mixed_steps() -> tuple[Observations, ...]:
    """Observe steps that carry a prefill chunk and decoding sequences together."""
    table = pd.read_csv(FOLDER / "h200" / "qwen3-8b_mixed_steps.csv")
    return tuple(step_observations(table.assign(phase="mixed"), "h200-sxm"))


@cache
def h200_llama_cpp() -> tuple[Observations, ...]:
    """Observe llama.cpp on the H200, one format at a time; K and V in FP16, micro-batches of 2,048.

    The prefill of one sequence that opens each batched run is left out: its 512 tokens take 1.4 to 4 times what they
    take alone, so it holds the run's warm-up.
    """
    table = pd.read_csv(FOLDER / "h200" / "llama_cpp.csv")
    warm = table[(table["test"] != "batched-prefill") | (table["batch"] > 1)]
    return tuple(_llama_cpp(str(form), lines) for form, lines in warm.groupby("weights"))


def _llama_cpp(weights: str, lines: pd.DataFrame) -> Observations:
    deployment = Deployment("qwen3-8b", "h200-sxm", weights=weights, kv_cache="fp16", memory_check=False)
    read = [_llama_cpp_line(line) for line in lines.to_dict("records")]
    facts = lines.assign(
        phase=["decode" if "decode" in test else "prefill" for test in lines["test"]],
        device="h200-sxm",
        engine="llama.cpp",
        format=weights,
        source="rooflinekit-h200",
    )
    return observe(deployment, facts, [seconds for seconds, _ in read], [points for _, points in read])


def _llama_cpp_line(line: Line) -> tuple[float, list[Point]]:
    """Read one line: a prompt, prompts of several sequences, or steps of one or several."""
    batch, prompt = float(line["batch"]), float(line["prompt_tokens"])
    if "decode" in line["test"]:
        return line["seconds_median"], decode_points(line["held_tokens"], line["generated_tokens"], batch)
    captured = line["test"] == "prefill" and prompt < _CAPTURED
    seconds = line["seconds_best"] if captured else line["seconds_median"]
    return seconds, batched_prefill_points(prompt, 0.0, batch, _MICRO_BATCH)


@cache
def gb10_trace() -> Observations:
    """Observe the kernel classes of the GB10 trace: the rows that its constants are fitted on."""
    return trace_observations(load_trace(FOLDER / "gb10_trace.yaml"))


@cache
def h200_fp8_steps() -> tuple[Observations, ...]:
    """Observe steps with FP8 weights and static scales: the products that the trace's table holds."""
    table = pd.read_csv(FOLDER / "h200" / "more_steps.csv")
    return tuple(step_observations(table[table["weights"] == "fp8-static"].assign(weights="fp8"), "h200-sxm"))


@cache
def gb10_totals() -> Observations:
    """Observe the three totals that the GB10 trace prints: nothing is fitted on them."""
    deployment = Deployment("qwen3-8b", "gb10", engine="vllm-0.31")
    rows = ((0.412, "prefill", 2048), (0.0744, "decode", 2048), (0.077, "prefill", 43))
    named = [{"phase": phase, "prompt_tokens": size, "op": "total", "model": "qwen3-8b"} for _, phase, size in rows]
    points = [[decode_points(size, 1)[0] if phase == "decode" else prefill_points(size)[0]] for _, phase, size in rows]
    return observe(deployment, pd.DataFrame(named), [seconds for seconds, _, _ in rows], points)


@cache
def rate_table() -> pd.DataFrame:
    """Read the public single-stream measurements, those left out among them with the reason."""
    return pd.read_csv(FOLDER / "measurements" / "rows.csv")


@cache
def rates() -> tuple[Observations, ...]:
    """Observe the public measurements that a service time of one device can be compared with."""
    return tuple(_rates())


def _rates() -> Iterator[Observations]:
    table = rate_table()
    yield from rate_observations(table[table["excluded"].isna()])
