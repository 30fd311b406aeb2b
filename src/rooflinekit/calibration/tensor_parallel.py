"""Steps of two ranks: the pass of a divided model, and its collectives by a law fitted on their own table."""

from functools import cache

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rooflinekit import units
from rooflinekit.calibration.observations import Observations
from rooflinekit.calibration.passes import decode_point, observe, prefill_points
from rooflinekit.calibration.references import FOLDER
from rooflinekit.phases.deployment import Deployment
from rooflinekit.roofline.law import collective_time
from rooflinekit.specs.catalog import load_device, load_model
from rooflinekit.specs.parallelism import rank_model

MODEL, DEVICE, RANKS = "qwen3-8b", "h200-sxm", 2
_JOIN = 0.5  # NVLink


@cache
def collective_constants(how: str) -> tuple[float, float]:
    """Fit latency and the part of the link reached, of NCCL or of the one-shot kernel, on the all-reduce table."""
    from scipy.optimize import least_squares  # noqa: PLC0415 - an extra, and nothing else here needs it

    table = pd.read_csv(FOLDER / "h200" / "all_reduce_2gpu.csv")
    rows = table[table["how"] == how]
    sent, seconds = rows["bytes"].to_numpy(dtype=np.float64), rows["seconds"].to_numpy(dtype=np.float64)

    def misfit(values: NDArray[np.float64]) -> NDArray[np.float64]:
        latency_us, part = values
        return np.asarray(np.log(_seconds(sent, latency_us * units.MICRO, part) / seconds))

    found = least_squares(misfit, [8.0, 0.7], bounds=([0.1, 0.01], [100.0, 1.0]), loss="soft_l1", f_scale=0.1)
    return float(found.x[0]) * units.MICRO, float(found.x[1])


def _seconds(sent: NDArray[np.float64], latency_s: float, part: float) -> NDArray[np.float64]:
    """Time of an all-reduce of so many bytes between two ranks: each sends all of them once."""
    link = load_device(DEVICE).datasheet.scale_up
    rate = (link.one_way_gb_per_s or np.nan) * units.GIGA if link else np.nan
    return np.asarray(collective_time(sent / (part * rate), latency_s, _JOIN))


def collective_seconds(tokens: NDArray[np.float64], sequences: NDArray[np.float64], how: str) -> NDArray[np.float64]:
    """Seconds of a pass's collectives: two all-reduces of the residual stream a layer, and the gather of the logits."""
    model = load_model(MODEL)
    latency, part = collective_constants(how)
    hidden, vocabulary, layers = float(model.hidden_size or 0), float(model.vocabulary or 0), model.layer_count
    reduced = 2.0 * layers * _seconds(tokens * hidden * 2.0, latency, part)
    gathered = _seconds(sequences * vocabulary * 2.0 / RANKS, latency, part)
    return np.asarray(reduced + gathered)


def step_observations() -> tuple[Observations, ...]:
    """Observe the steps of two ranks, less their collectives: what is left is the pass of a divided model."""
    table = pd.read_csv(FOLDER / "h200" / "qwen3-8b_tp2_steps.csv")
    deployment = Deployment(rank_model(load_model(MODEL), RANKS), DEVICE, memory_check=False)
    observed = []
    for how, lines in table.groupby("all_reduce"):
        prefill = (lines["phase"] == "prefill").to_numpy()
        tokens = np.where(prefill, lines["prompt_tokens"], lines["batch"]).astype(np.float64)
        apart = collective_seconds(tokens, lines["batch"].to_numpy(dtype=np.float64), str(how))
        points = [
            prefill_points(line["prompt_tokens"], 0.0, line["batch"])
            if line["phase"] == "prefill"
            else [decode_point(line["context_tokens"] - 1, line["batch"])]
            for line in lines.to_dict("records")
        ]
        facts = lines.assign(weights="bf16", collective_s=apart)
        observed.append(observe(deployment, facts, lines["seconds"].tolist(), points))
    return tuple(observed)
