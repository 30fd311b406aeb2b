"""Served rows: mean time to first token and time per output token of closed runs, predicted by the serving room."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rooflinekit.calibration.references import FOLDER
from rooflinekit.phases.deployment import Deployment
from rooflinekit.serving.arrivals import Closed, Lengths, Traffic
from rooflinekit.serving.engine import EngineProfile, load_engine
from rooflinekit.serving.loaded_steps import Load, Model
from rooflinekit.serving.scheduler import Rules
from rooflinekit.serving.simulate import rules_of, simulate
from rooflinekit.serving.steady_state import closed_form

Values = NDArray[np.float64]
#: The client draws lengths evenly from this part of the nominal one up to all of it, and sends so many rounds.
_LEAST_PART, _ROUNDS = 0.8, 10
#: A recipe is what rows have in common; one deployment and one profile serve them.
_RECIPE = (
    "model", "device", "engine", "version", "weights", "kv_cache", "max_num_batched_tokens", "tensor_parallel",
    "pipeline_parallel", "data_parallel_attention", "expert_parallel", "held_back_steps", "poll_steps",
)  # fmt: skip
_BATCH_WAIT, _POLLS = "holds prompts back 20 steps", "polls for new requests every 10"
_BROKEN = "broken configuration"
_MEASURED = ("time_per_output_token_s", "time_to_first_token_s")
_EVALUATIONS = 20
#: Engines whose other model says nothing of this one: DeepSeek's prefill there is several times slower than any law, so
#: that its host times would be those of a fault.
_NO_TRANSFER = frozenset({"tensorrt-llm"})


class HostTimes(NamedTuple):
    """Host times of an engine that are fitted; its profile says what each is."""

    prefill_step_host_s: float = 0.0
    eager_layer_s: float = 0.0
    mixture_layer_s: float = 0.0
    request_host_s: float = 0.0


#: What no host takes: a fit ends there, and says so by its value.
_MOST = HostTimes(0.040, 0.001, 0.0001, 0.050)
_START = HostTimes(0.005, 0.0007, 0.00002, 0.005)


@dataclass(frozen=True, eq=False)
class Recipe:
    """Rows of one deployment under one engine's settings."""

    rows: pd.DataFrame

    @cached_property
    def deployment(self) -> Deployment:
        """What served."""
        one = self.rows.iloc[0]
        choices: dict[str, Any] = {name: one[name] for name in ("weights", "kv_cache") if one[name]}
        layout: dict[str, Any] = {name: int(one[name]) for name in _RECIPE[7:11]}
        return Deployment(one["model"], one["device"], engine=one["engine"], memory_check=False, **choices, **layout)

    @cached_property
    def profile(self) -> EngineProfile:
        """How the engine was set."""
        one = self.rows.iloc[0]
        version = str(one["version"])
        name = f"{one['engine']}-{version}" if version[:1].isdigit() and one["engine"] == "vllm" else one["engine"]
        budget = one["max_num_batched_tokens"]
        return load_engine(name).with_(
            max_num_batched_tokens=None if np.isnan(budget) else int(budget),
            batch_wait_steps=int(one["held_back_steps"]) or None,
            receive_interval_steps=int(one["poll_steps"]) or None,
        )

    @cached_property
    def rules(self) -> Rules:
        """How requests are scheduled, and the pool."""
        longest = float((self.rows["prompt_tokens"] + self.rows["output_tokens"]).max())
        return rules_of(self.deployment, self.profile, longest)

    @property
    def exhausted(self) -> NDArray[np.bool_]:
        """Tell, before looking at what was measured, which rows ask for more than the pool holds."""
        mean, rules = (1.0 + _LEAST_PART) / 2.0, self.rules
        answer = self.rows["output_tokens"] * (1.0 if rules.reserves_answers else 0.5)
        tokens = mean * (self.rows["prompt_tokens"] + answer) * self.rows["concurrency"]
        return np.asarray(tokens > rules.pages * rules.page_tokens)

    def load(self) -> Load:
        """Lay the rows out for the closed form."""
        mean, rows = (1.0 + _LEAST_PART) / 2.0, self.rows
        columns = [np.asarray(rows[name], dtype=np.float64) for name in ("prompt_tokens", "output_tokens")]
        concurrency = np.asarray(rows["concurrency"], dtype=np.float64)
        open_rate, cached = np.full(len(rows), np.nan), np.zeros(len(rows))
        spread = columns[1] * (1.0 - _LEAST_PART) / np.sqrt(12.0)
        return Load(mean * columns[0], mean * columns[1], concurrency, open_rate, _ROUNDS * concurrency, cached, spread)

    def with_host(self, host: HostTimes) -> EngineProfile:
        """Give the profile with an engine's host times."""
        return self.profile.with_(**host._asdict())

    def predicted(self, host: HostTimes) -> tuple[Values, Values]:
        """Give time per output token and mean time to first token by the closed form."""
        found = closed_form(
            Model(self.deployment, self.with_host(host), self.rules),
            self.load()._replace(cached_tokens=np.zeros(len(self.rows))),
        )
        return found.time_per_output_token_s, found.time_to_first_token_s

    def simulated(self, host: HostTimes, row: int) -> tuple[float, float]:
        """Give the same of one row by the simulation."""
        one = self.rows.iloc[row]
        prompts, outputs = (
            Lengths.ranged(float(one[name]), _LEAST_PART) for name in ("prompt_tokens", "output_tokens")
        )
        concurrency = int(one["concurrency"])
        traffic = Traffic(Closed(concurrency), prompts, outputs, requests=_ROUNDS * concurrency)
        seen = simulate(self.deployment, traffic, engine=self.with_host(host))
        return seen.time_per_output_token_s.mean, seen.time_to_first_token_s.mean


@cache
def recipes() -> tuple[Recipe, ...]:
    """Read the shipped table, one recipe after another; broken configurations are left out."""
    table = pd.read_csv(FOLDER / "serving" / "served.csv", keep_default_na=False)
    for name in ("max_num_batched_tokens", "concurrency", "prompt_tokens", "output_tokens"):
        table[name] = pd.to_numeric(table[name], errors="coerce")
    table = table[~table["note"].str.contains(_BROKEN)]
    table = _with_layouts(table)
    table["held_back_steps"] = np.where(table["note"].str.contains(_BATCH_WAIT), 20, 0)
    polls = np.where(table["concurrency"] < 16, 10, 30)  # noqa: PLR2004 - the recipe's own edge
    table["poll_steps"] = np.where(table["note"].str.contains(_POLLS), polls, 0)
    return tuple(Recipe(lines.reset_index(drop=True)) for _, lines in table.groupby(list(_RECIPE), dropna=False))


def _with_layouts(table: pd.DataFrame) -> pd.DataFrame:
    """Give the layouts that ran: the source multiplies the sizes of groups that are the same GPUs.

    Attention over data-parallel groups runs as so many groups of one GPU, its experts over all of them.
    """
    grouped = table["data_parallel_attention"] > 1
    gpus = np.where(table["tensor_parallel"] > 1, table["tensor_parallel"], table["expert_parallel"])
    return table.assign(
        tensor_parallel=np.where(grouped, 1, table["tensor_parallel"]),
        data_parallel_attention=np.where(grouped, gpus, 1),
        expert_parallel=np.where(grouped, gpus, np.minimum(table["expert_parallel"], table["tensor_parallel"])),
    )


# ---- host times, and what they predict


def family(recipe: Recipe) -> str:
    """Name the model whatever its format: two checkpoints of one are no two models."""
    return str(recipe.rows["model"].iloc[0]).split("-")[0]


def engine(recipe: Recipe) -> str:
    """Name the engine."""
    return str(recipe.rows["engine"].iloc[0])


def fit_host(known: Sequence[Recipe]) -> HostTimes:
    """
    Fit an engine's host times on served rows within the pool.

    Parameters
    ----------
    known : sequence of Recipe
        Rows that may be seen; none gives no host times at all.

    Notes
    -----
    Least squares on log TPOT and log TTFT with a robust loss, each time between 0 and what no host takes. What a layer
    of experts launches besides is fitted only where some of the models have such layers.
    """
    from scipy.optimize import least_squares  # noqa: PLC0415 - an extra, and only fits need it

    if not known:
        return HostTimes()
    mixtures = any(_has_experts(one.deployment) for one in known)
    free = [name for name in HostTimes._fields if mixtures or name != "mixture_layer_s"]
    most = np.array([getattr(_MOST, name) for name in free])

    def host(values: Values) -> HostTimes:
        return HostTimes(**dict(zip(free, (values * most).tolist(), strict=True)))

    def misfit(values: Values) -> Values:
        errors = [_log_errors(one, host(values)) for one in known]
        return np.concatenate([error for pair in errors for error in pair])

    start = np.array([getattr(_START, name) for name in free]) / most
    found = least_squares(
        misfit,
        start,
        bounds=(0.0, 1.0),
        loss="soft_l1",
        f_scale=0.1,
        diff_step=[0.05] * len(free),
        max_nfev=_EVALUATIONS,
    )
    return host(found.x)


def _has_experts(deployment: Deployment) -> bool:
    return any(row.op_class == "mixture" for row in deployment.plan.rows)


def _log_errors(recipe: Recipe, host: HostTimes) -> tuple[Values, Values]:
    each, first = recipe.predicted(host)
    kept = ~recipe.exhausted
    measured = (np.asarray(recipe.rows[name], dtype=np.float64) for name in _MEASURED)
    tpot, ttft = (np.log(ours / theirs)[kept] for ours, theirs in zip((each, first), measured, strict=True))
    return tpot, ttft


def served_frames(*, fitted: bool = True) -> Iterator[pd.DataFrame]:
    """
    Predict every recipe by host times fitted on the engine's other models, rows beyond the pool by simulation.

    Yields
    ------
    frame : DataFrame
        A line a figure, in the columns of a validation set.
    """
    hosts: dict[tuple[str, str], HostTimes] = {}
    for recipe in recipes():
        key = engine(recipe), family(recipe)
        if key not in hosts:
            others = [one for one in recipes() if engine(one) == key[0] and family(one) != key[1]]
            hosts[key] = fit_host(others if fitted and key[0] not in _NO_TRANSFER else [])
        yield _frame(recipe, hosts[key])


def _frame(recipe: Recipe, host: HostTimes) -> pd.DataFrame:
    each, first = (values.copy() for values in recipe.predicted(host))
    exhausted = recipe.exhausted
    for row in np.flatnonzero(exhausted):
        each[row], first[row] = recipe.simulated(host, int(row))
    rows, mixture = recipe.rows, _has_experts(recipe.deployment)
    kind = np.where(exhausted, "beyond the pool", "mixtures" if mixture else "dense")
    facts = {
        "device": rows["device"], "engine": rows["engine"], "model": rows["model"], "op": "", "regime": "",
        "weights": rows["weights"], "kv_cache": rows["kv_cache"], "mixture": mixture, "batch": rows["concurrency"],
        "tokens": rows["prompt_tokens"], "context": rows["output_tokens"], "id": rows["id"], "tier": "served",
        "bound": "", "floor_s": 0.0, "log_std": np.nan,
    }  # fmt: skip
    figures = (("TPOT", each, _MEASURED[0]), ("TTFT", first, _MEASURED[1]))
    return pd.concat(
        [
            pd.DataFrame(facts).assign(
                phase=[f"{name}, {one}" for one in kind], measured_s=rows[column], predicted_s=values,
                log_error=np.log(values / rows[column]),
            )
            for name, values, column in figures
        ]
    )  # fmt: skip
