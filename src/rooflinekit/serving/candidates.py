"""Candidates: what each of several devices carries under one objective, and what a request then costs on it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rooflinekit.errors import DoesNotFitError, InvalidInputError, MissingFigureError
from rooflinekit.phases.deployment import Deployment
from rooflinekit.serving.arrivals import Lengths
from rooflinekit.serving.cost import Cost, cost, price_of
from rooflinekit.serving.objectives import Objective, max_rate

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Candidate:
    """
    One device, or several that serve together.

    Attributes
    ----------
    max_rate_per_s : float
        At which the objective is kept; 0 where it cannot be. [request/s]
    cost : Cost or None
        Of the tokens at that rate; None where there is no such rate.
    reason : str
        What limits the rate, or why there is none.
    """

    deployment: Deployment
    max_rate_per_s: float
    cost: Cost | None
    reason: str

    @property
    def usd_per_request(self) -> float | None:
        """Dollars of one request at that rate; None without a price or a rate."""
        return None if self.cost is None else self.cost.usd_per_request

    def __repr__(self) -> str:
        """Give one line."""
        place = f"{self.deployment.layout.devices} x {self.deployment.device.id}"
        if not self.max_rate_per_s:
            return f"{place}: {self.reason}"
        usd = "" if self.usd_per_request is None else f", ${1000 * self.usd_per_request:.3g} for 1,000"
        return f"{place}: {self.max_rate_per_s:.3g} requests/s{usd}"


@dataclass(frozen=True)
class Candidates:
    """Candidates in the order of what a request costs; those without a price follow, then those that cannot."""

    objective: Objective
    options: tuple[Candidate, ...]

    @property
    def best(self) -> Candidate | None:
        """The cheapest; without any price the one that carries most; None where none keeps the objective."""
        return next((one for one in self.options if one.max_rate_per_s), None)

    def table(self) -> "pd.DataFrame":
        """Give a tidy DataFrame: a row a candidate."""
        import pandas as pd  # noqa: PLC0415 - loads on first use

        return pd.DataFrame([candidate_row(one) for one in self.options])

    def __repr__(self) -> str:
        """Give one line."""
        return "; ".join(map(repr, self.options))


def candidate_row(one: Candidate) -> dict[str, Any]:
    """Lay a candidate out; not-a-number where a figure is not known."""
    missing, usd = float("nan"), None if one.cost is None else one.cost.usd_per_million
    price = None if one.cost is None else one.cost.price
    serving = None if one.cost is None else one.cost.serving
    return {
        "device": one.deployment.device.id,
        "gpus": one.deployment.layout.devices,
        "max_requests_per_s": one.max_rate_per_s,
        "running_requests": missing if serving is None else serving.running,
        "usd_per_hour": missing if price is None else price.usd_per_hour,
        "input_usd_per_million": missing if usd is None else usd.input,
        "output_usd_per_million": missing if usd is None else usd.output,
        "request_usd": missing if one.usd_per_request is None else one.usd_per_request,
        "limited_by": one.reason,
    }


def candidates(
    model: Any,  # noqa: ANN401 - as for Deployment
    devices: Mapping[Any, float | None],
    objective: Objective,
    *,
    prompt_tokens: float | Lengths,
    output_tokens: float | Lengths,
    settings: Mapping[str, Any] | None = None,
    **choices: Any,  # noqa: ANN401 - those of max_rate
) -> Candidates:
    """
    Compare devices: the largest rate at which each keeps an objective, and what its tokens cost at that rate.

    Parameters
    ----------
    model
        As for :class:`~rooflinekit.Deployment`.
    devices : mapping
        Dollars of an hour of one GPU, by device; None takes the dated price of its file, if there is one.
    objective : Objective
        Limits that all hold.
    prompt_tokens, output_tokens : float or Lengths
        Of each request. [token]
    settings : mapping, optional
        Further arguments of :class:`~rooflinekit.Deployment`: weights, kv_cache, tensor_parallel.
    **choices
        Further arguments of :func:`max_rate`.

    Returns
    -------
    compared : Candidates

    Raises
    ------
    InvalidInputError
        No device, a price that is no number above 0, a load that is none.

    Examples
    --------
    >>> import rooflinekit as rk
    >>> slo = rk.Objective(time_per_output_token_s=0.025)
    >>> prices = {"a100-sxm-80gb": 1.3, "h100-sxm": 2.5}
    >>> compared = rk.candidates("llama-3.1-8b", prices, slo, prompt_tokens=2000, output_tokens=200)
    >>> compared.best.deployment.device.id, 1e-5 < compared.best.usd_per_request < 1e-3
    ('h100-sxm-80gb', True)
    """
    if not devices:
        message = "devices={}: expected one at least"
        raise InvalidInputError(message)
    load = {"prompt_tokens": prompt_tokens, "output_tokens": output_tokens, **choices}
    made = [(Deployment(model, device, **(settings or {})), usd) for device, usd in devices.items()]
    for deployment, usd in made:  # refused before searches that take seconds
        price_of(deployment, usd)
    return Candidates(objective, tuple(sorted((_candidate(*one, objective, load) for one in made), key=_order)))


def _candidate(deployment: Deployment, usd: float | None, objective: Objective, load: dict[str, Any]) -> Candidate:
    try:
        found = max_rate(deployment, objective, **load)
    except (DoesNotFitError, MissingFigureError) as error:
        return Candidate(deployment, 0.0, None, str(error))
    if not found.rate_per_s:
        return Candidate(deployment, 0.0, None, found.limited_by)
    kept = {name: value for name, value in load.items() if name != "tolerance"}
    priced = cost(deployment, usd_per_hour=usd, rate_per_s=found.rate_per_s, **kept)
    return Candidate(deployment, found.rate_per_s, priced, found.limited_by)


def _order(one: Candidate) -> tuple[bool, float, float]:
    usd = float("inf") if one.usd_per_request is None else one.usd_per_request
    return not one.max_rate_per_s, usd, -one.max_rate_per_s
