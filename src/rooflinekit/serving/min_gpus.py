"""Fewest GPUs: layouts of a server, the rate at which each keeps an objective, and how many servers that takes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Any

from rooflinekit.errors import DoesNotFitError, InvalidInputError, MissingFigureError
from rooflinekit.phases.deployment import Deployment
from rooflinekit.serving.arrivals import Lengths
from rooflinekit.serving.objectives import MaxRate, Objective, judged, max_rate
from rooflinekit.serving.serve import Serving
from rooflinekit.specs.catalog import load_model
from rooflinekit.specs.step import checked

if TYPE_CHECKING:
    import pandas as pd

_DEGREES = ("tensor_parallel", "pipeline_parallel", "data_parallel_attention", "expert_parallel")
#: A rate that is so near to a whole number of servers needs no further one.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Fleet:
    """
    Equal servers that share a rate, each of so many GPUs; or why there are none of this layout.

    Attributes
    ----------
    layout : str
        Of one server.
    gpus_each, servers : int
        GPUs of one, and how many there are; 0 servers where the objective cannot be kept.
    max_rate_per_s : float
        That one server keeps the objective at. [request/s]
    serving : Serving or None
        What each delivers at its part of the rate.
    reason : str
        What limits it.
    """

    layout: str
    gpus_each: int
    servers: int
    max_rate_per_s: float
    serving: Serving | None
    reason: str

    @property
    def gpus(self) -> int | None:
        """GPUs in all; None where there is no such fleet."""
        return self.gpus_each * self.servers or None

    def __repr__(self) -> str:
        """Give one line."""
        if not self.servers:
            return f"{self.layout}: {self.reason}"
        many = f"{_plural(self.gpus or 0, 'GPU')}: {_plural(self.servers, 'server')} of {self.layout}"
        return f"{many}, {self.max_rate_per_s:.3g} requests/s each at most"


def _plural(count: int, word: str) -> str:
    return f"{count:,} {word}{'s' if count > 1 else ''}"


@dataclass(frozen=True)
class Fleets:
    """Fleets that keep an objective at a rate: the one of the fewest GPUs first, what cannot be last."""

    objective: Objective
    rate_per_s: float
    options: tuple[Fleet, ...]

    @property
    def best(self) -> Fleet | None:
        """The one of the fewest GPUs; None where no layout keeps the objective."""
        return next((option for option in self.options if option.servers), None)

    @property
    def gpus(self) -> int | None:
        """GPUs of the best one."""
        return None if self.best is None else self.best.gpus

    def table(self) -> "pd.DataFrame":
        """Give a tidy DataFrame: a row a layout."""
        import pandas as pd  # noqa: PLC0415 - loads on first use

        return pd.DataFrame([_row(option) for option in self.options])

    def __repr__(self) -> str:
        """Give one line."""
        if self.best is None:
            return f"no layout keeps {self.objective}: {'; '.join(map(repr, self.options))}"
        return repr(self.best)


def _row(option: Fleet) -> dict[str, Any]:
    serving = option.serving
    missing = float("nan")
    return {
        "layout": option.layout,
        "gpus": option.gpus,
        "servers": option.servers,
        "gpus_each": option.gpus_each,
        "max_requests_per_s": option.max_rate_per_s,
        "time_to_first_token_s": missing if serving is None else serving.time_to_first_token_s.mean,
        "time_per_output_token_s": missing if serving is None else serving.time_per_output_token_s.mean,
        "reason": option.reason,
    }


def min_gpus(
    model: Any,  # noqa: ANN401 - as for Deployment
    device: Any,  # noqa: ANN401 - as above
    rate_per_s: float,
    objective: Objective,
    *,
    prompt_tokens: float | Lengths,
    output_tokens: float | Lengths,
    gpus_each: Sequence[float] = (1, 2, 4, 8),
    settings: dict[str, Any] | None = None,
    **choices: Any,  # noqa: ANN401 - those of max_rate
) -> Fleets:
    """
    Find the fewest GPUs that keep an objective at a rate: equal servers that share it, in every layout that fits.

    Parameters
    ----------
    model, device
        As for :class:`~rooflinekit.Deployment`.
    rate_per_s : float
        Requests that come. [request/s]
    objective : Objective
        Limits that all hold.
    prompt_tokens, output_tokens : float or Lengths
        Of each request. [token]
    gpus_each : sequence of int
        GPUs of one server that are tried.
    settings : dict, optional
        Further arguments of :class:`~rooflinekit.Deployment`: weights, kv_cache, engine, interconnect.
    **choices
        Further arguments of :func:`max_rate`: engine, tolerance, cached_tokens, method, seed.

    Returns
    -------
    fleets : Fleets
        ``.best`` is the one of the fewest GPUs; of equally many, the one with the quicker tokens.

    Notes
    -----
    Requests go to the servers at random, so that those of each come at random too; a router that looks at their queues
    does better. Layouts are tensor parallel, for mixtures also with whole experts or attention in groups; stages of a
    pipeline are not tried.

    Examples
    --------
    >>> import rooflinekit as rk
    >>> slo = rk.Objective(time_per_output_token_s=0.020)
    >>> fleets = rk.min_gpus("llama-3.1-8b", "h100-sxm", 30, slo, prompt_tokens=2000, output_tokens=200)
    >>> 3 <= fleets.gpus <= 5, fleets.best.servers * fleets.best.max_rate_per_s > 30
    (True, True)
    """
    rate = float(checked("rate_per_s", rate_per_s, positive=True))  # type: ignore[arg-type]
    counts = tuple(int(checked("gpus_each", count, minimum=1, whole=True)) for count in gpus_each)  # type: ignore[arg-type]
    load = {"prompt_tokens": prompt_tokens, "output_tokens": output_tokens, **choices}
    options = [_option(one, rate, objective, load) for one in _layouts(model, device, counts, settings or {})]
    return Fleets(objective, rate, tuple(sorted(options, key=_order)))


def _order(option: Fleet) -> tuple[float, float, int]:
    if option.serving is None:
        return float("inf"), 0.0, option.gpus_each
    return float(option.gpus or 0), option.serving.time_per_output_token_s.mean, option.gpus_each


def _layouts(
    model: object, device: object, counts: tuple[int, ...], settings: dict[str, Any]
) -> Iterator[Deployment | Fleet]:
    """Yield the layouts without a pipeline; of those that cannot be, why."""
    from rooflinekit.phases.layouts import plan_layouts  # noqa: PLC0415 - pandas loads on first use

    whole = load_model(model)  # type: ignore[arg-type]
    for count in counts:
        for row in plan_layouts(whole, device, gpus=count, **settings).to_dict("records"):
            degrees = {name: int(row[name]) for name in _DEGREES}
            if degrees["pipeline_parallel"] > 1:
                continue
            try:
                yield Deployment(whole, device, **settings, **degrees)  # type: ignore[arg-type]
            except InvalidInputError as error:
                layout = str(row["layout"])
                why = str(error).removeprefix(f"{layout} of ")  # named beside it already
                left = f"{why}; or leave {count} out of gpus_each (--gpus-each)"
                yield Fleet(layout, count, 0, 0.0, None, left)


def _option(one: Deployment | Fleet, rate: float, objective: Objective, load: dict[str, Any]) -> Fleet:
    if isinstance(one, Fleet):
        return one
    name, count = one.layout.layout, one.layout.devices
    try:
        most = max_rate(one, objective, **load)
    except (DoesNotFitError, MissingFigureError) as error:
        return Fleet(name, count, 0, 0.0, None, str(error))
    if not most.rate_per_s:
        return Fleet(name, count, 0, 0.0, None, most.limited_by)
    servers = max(ceil(rate / most.rate_per_s - _ROUNDING), 1)
    return Fleet(name, count, servers, most.rate_per_s, _shared(one, most, rate / servers, load), most.limited_by)


def _shared(one: Deployment, most: MaxRate, rate: float, load: dict[str, Any]) -> Serving:
    """Ask what one server delivers at its part of the rate."""
    kept = {name: value for name, value in load.items() if name != "tolerance"}
    return judged(one, most.objective, rate_per_s=rate, **kept)
