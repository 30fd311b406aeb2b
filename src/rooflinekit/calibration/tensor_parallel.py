"""Several devices against measurements: steps of two ranks, and collectives of seven systems by their links' laws."""

from functools import cache

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rooflinekit.calibration.observations import Observations
from rooflinekit.calibration.passes import decode_point, observe, prefill_points
from rooflinekit.calibration.references import FOLDER
from rooflinekit.phases.deployment import Deployment
from rooflinekit.roofline.communication import Links, collective_law
from rooflinekit.specs.catalog import interconnect_of, load_device, load_interconnect
from rooflinekit.specs.interconnect import Collective, Interconnect, LinkChoice

MODEL, DEVICE, RANKS = "qwen3-8b", "h200-sxm", 2


def step_observations() -> tuple[Observations, ...]:
    """Observe the steps of two ranks, by how they reduce: the library's collectives, or the engines' own kernel."""
    table = pd.read_csv(FOLDER / "h200" / "qwen3-8b_tp2_steps.csv")
    observed = []
    for how, lines in table.groupby("all_reduce"):
        link = LinkChoice(own_kernel=how == "one_shot")
        deployment = Deployment(MODEL, DEVICE, tensor_parallel=RANKS, interconnect=link, memory_check=False)
        points = [
            prefill_points(line["prompt_tokens"], 0.0, line["batch"])
            if line["phase"] == "prefill"
            else [decode_point(line["context_tokens"] - 1, line["batch"])]
            for line in lines.to_dict("records")
        ]
        observed.append(observe(deployment, lines.assign(weights="bf16"), lines["seconds"].tolist(), points))
    return tuple(observed)


@cache
def collectives() -> pd.DataFrame:
    """Read the measured collectives: system, device, operation, how, ranks, bytes, seconds, source."""
    return pd.read_csv(FOLDER / "collectives.csv")


def predicted_collectives(links: dict[str, str] | None = None) -> pd.DataFrame:
    """
    Predict every measured collective by the law of its device's link.

    Parameters
    ----------
    links : dict, optional
        Device -> name of another link whose constants to take with the device's own rate: what another system says.

    Returns
    -------
    table : DataFrame
        The measured rows with ``predicted_s`` and ``log_error``.
    """
    table = collectives()
    predicted = np.empty(len(table))
    keys = ["device", "operation", "how", "ranks"]
    for _, lines in table.groupby(keys):
        device, operation, how = (str(lines[name].iloc[0]) for name in keys[:3])
        link = _link(device, (links or {}).get(device))
        law = collective_law(
            operation, int(lines["ranks"].iloc[0]), 1, Links(link, None, own_kernel=how == "own_kernel")
        )
        sent = lines["bytes"].to_numpy(dtype=np.float64)
        rows = law.rounds if how == "own_kernel" and law.rounds else law.legs  # the kernel alone, whatever is quicker
        predicted[lines.index] = np.minimum.reduce([np.asarray(leg.seconds(1.0, sent)) for leg in rows])
    return table.assign(predicted_s=predicted, log_error=np.log(predicted / table["seconds"]))


def fit_collective(table: pd.DataFrame) -> Collective:
    """
    Fit the constants of one operation of the library on measured rows of one or several systems.

    Parameters
    ----------
    table : DataFrame
        Rows of :func:`collectives`, of one operation over links of one kind.
    """
    from scipy.optimize import least_squares  # noqa: PLC0415 - an extra, and nothing else here needs it

    seconds = table["seconds"].to_numpy(dtype=np.float64)

    def misfit(values: NDArray[np.float64]) -> NDArray[np.float64]:
        law = Collective(**dict(zip(_FITTED, map(float, values), strict=True)), join=_JOIN)
        return np.asarray(np.log(_by_constants(table, law) / seconds))

    bounds = ([0.1, 0.0, 0.01, 0.01], [100.0, 2.0, 1.0, 1.0])
    found = least_squares(misfit, [8.0, 0.2, 0.7, 0.7], bounds=bounds, loss="soft_l1", f_scale=0.1)
    return Collective(**dict(zip(_FITTED, map(float, found.x), strict=True)), join=_JOIN)


#: Part of the root that NVLink takes.
_JOIN = 0.5
_FITTED = ("latency_us", "growth", "fraction", "fraction_of_eight")


def _by_constants(table: pd.DataFrame, law: Collective) -> NDArray[np.float64]:
    """Seconds of rows by constants of their operation, each over the link of its device."""
    predicted = np.empty(len(table))
    for _, lines in table.reset_index(drop=True).groupby(["device", "operation", "ranks"]):
        device, operation = (str(lines[name].iloc[0]) for name in ("device", "operation"))
        link = _link(device, None).model_copy(update={operation: law})
        one = collective_law(operation, int(lines["ranks"].iloc[0]), 1, Links(link, None, own_kernel=False))
        predicted[lines.index] = one.seconds(1.0, lines["bytes"].to_numpy(dtype=np.float64))
    return predicted


def _link(device: str, other: str | None) -> Interconnect:
    card = load_device(device)
    return (load_interconnect(other) if other else interconnect_of(card)).of(card)
