"""The references that ship with the package, as observations: kernels of eight devices, the H200 trace, public rates."""

from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from pathlib import Path

import pandas as pd

from rooflinekit.calibration.kernels import kernel_observations
from rooflinekit.calibration.observations import Observations
from rooflinekit.calibration.passes import decode_points, observe, prefill_points, rate_observations, step_observations
from rooflinekit.calibration.tables import read_table
from rooflinekit.calibration.trace import load_trace, trace_observations
from rooflinekit.phases.deployment import Deployment
from rooflinekit.specs.catalog import load_device

FOLDER = Path(str(files("rooflinekit"))) / "references"
#: Prompts below this many tokens hold the capture of a graph in the first sample: the best one counts.
_CAPTURED = 256


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
    return tuple(step_observations(pd.read_csv(FOLDER / "h200" / "qwen3-8b_mixed_steps.csv").assign(phase="mixed"), "h200-sxm"))


@cache
def h200_llama_cpp() -> tuple[Observations, ...]:
    """Observe llama.cpp on the H200, one format at a time; K and V in FP16, micro-batches of 2,048."""
    table = pd.read_csv(FOLDER / "h200" / "llama_cpp.csv")
    return tuple(_llama_cpp(str(form), lines) for form, lines in table.groupby("weights"))


def _llama_cpp(weights: str, lines: pd.DataFrame) -> Observations:
    deployment = Deployment("qwen3-8b", "h200-sxm", weights=weights, kv_cache="fp16", memory_check=False)
    seconds, points = [], []
    for line in lines.to_dict("records"):
        decode = "decode" in line["test"]
        steps, batch = line["generated_tokens"], line["batch"]
        prompts = prefill_points(line["prompt_tokens"] * batch if decode else line["prompt_tokens"], 0.0, 1.0, 2048.0)
        seconds.append(line["seconds_best"] if line["test"] == "prefill" and line["prompt_tokens"] < _CAPTURED else line["seconds_median"])
        whole = [point._replace(weight=float(batch)) for point in prompts] if line["test"] == "batched-prefill" else prompts
        points.append(decode_points(line["held_tokens"], steps, batch) if decode else whole)
    facts = lines.assign(phase=["decode" if "decode" in test else "prefill" for test in lines["test"]])
    return observe(deployment, facts.assign(device="h200-sxm", engine="llama.cpp"), seconds, points)


@cache
def gb10_trace() -> Observations:
    """Observe the kernel classes of the GB10 trace: the rows that its constants are fitted on."""
    return trace_observations(load_trace(FOLDER / "gb10_trace.yaml"))


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
    unknown = table["weights"].isin(["q4_k_xl", "q5_k_xl", "q8_k_xl"])
    yield from rate_observations(table[table["excluded"].isna() & ~unknown])
