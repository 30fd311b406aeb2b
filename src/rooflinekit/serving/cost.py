"""Cost: GPU time, dollars and energy of a token, each kind by the time share of its steps."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rooflinekit import units
from rooflinekit.phases.deployment import Deployment
from rooflinekit.serving.arrivals import Trace
from rooflinekit.serving.host import loaded_step_s, profile_for
from rooflinekit.serving.loaded_steps import mean_context_tokens
from rooflinekit.serving.objectives import Objective, judged
from rooflinekit.serving.serve import Serving, serve
from rooflinekit.specs.step import Group, checked

if TYPE_CHECKING:
    import pandas as pd


class Tokens(NamedTuple):
    """A figure for a token of each kind: of a prompt, of a cached prefix, of an answer; not-a-number where none is."""

    input: float
    cached: float
    output: float


class Price(NamedTuple):
    """Dollars of an hour of one GPU, and who says so."""

    usd_per_hour: float
    source: str


@dataclass(frozen=True)
class Cost:
    """
    What tokens cost.

    Attributes
    ----------
    serving : Serving
        Under which load.
    gpus : int
        That serve.
    price : Price or None
        Of one of them.
    gpu_s : Tokens or None
        GPU-seconds of a token of each kind, idle time included; None where the cost is undefined.
    reason : str
        Why it is undefined, or why there are no dollars.
    """

    serving: Serving
    gpus: int
    price: Price | None
    gpu_s: Tokens | None
    reason: str

    @property
    def usd_per_million(self) -> Tokens | None:
        """Dollars for a million tokens of each kind."""
        if self.gpu_s is None or self.price is None:
            return None
        each = self.price.usd_per_hour / units.HOUR * units.MEGA
        return Tokens(*(seconds * each for seconds in self.gpu_s))

    @property
    def usd_per_request(self) -> float | None:
        """Dollars for one request: all kinds together."""
        if self.gpu_s is None or self.price is None:
            return None
        return self.gpus / self.serving.come_per_s * self.price.usd_per_hour / units.HOUR

    @property
    def energy_j(self) -> Tokens | None:
        """Energy of a token of each kind at the power limit all the time: an upper bound. [J]"""
        watts = self.serving.deployment.device.datasheet.tdp_w
        if self.gpu_s is None or watts is None:
            return None
        return Tokens(*(seconds * watts for seconds in self.gpu_s))

    def table(self) -> "pd.DataFrame":
        """Give a tidy DataFrame: a row a kind of token; not-a-number where a figure is undefined."""
        import pandas as pd  # noqa: PLC0415 - loads on first use

        nothing = Tokens(*[float("nan")] * 3)
        columns = {"gpu_s": self.gpu_s, "usd_per_million": self.usd_per_million, "energy_j": self.energy_j}
        figures = {name: list(figure or nothing) for name, figure in columns.items()}
        return pd.DataFrame({"tokens": Tokens._fields, **figures})

    def __repr__(self) -> str:
        """Give one line."""
        usd = self.usd_per_million
        if usd is None:
            return f"cost undefined: {self.reason}"
        cached = "" if np.isnan(usd.cached) else f", cached ${usd.cached:.3g}"
        return f"a million tokens: input ${usd.input:.3g}{cached}, output ${usd.output:.3g} ({self.serving.basis})"


def cost(
    deployment: Deployment,
    *,
    usd_per_hour: float | None = None,
    objective: Objective | None = None,
    **load: Any,  # noqa: ANN401 - those of serve
) -> Cost:
    r"""
    Price the tokens of a server under a load.

    .. math::

        c_\mathrm{in} = \frac{G}{\lambda\,n_\mathrm{new}}\,\frac{A_0}{A + S}, \qquad
        c_\mathrm{cached} = \frac{G}{\lambda\,n_\mathrm{held}}\,\frac{A - A_0}{A + S}, \qquad
        c_\mathrm{out} = \frac{G}{\lambda\,o}\,\frac{S}{A + S}, \qquad S = \frac{(o - 1)\,D(b)}{b}

    Parameters
    ----------
    deployment : Deployment
        What serves.
    usd_per_hour : float, optional
        Of one GPU. None takes the dated price of the device's file; there is no other default.
    objective : Objective, optional
        Where it is missed, no cost is defined.
    **load
        Arguments of :func:`serve`.

    Returns
    -------
    priced : Cost

    Raises
    ------
    InvalidInputError
        The price is no number above 0, or the load is none.

    Notes
    -----
    :math:`G` GPUs serve :math:`\lambda` requests a second. :math:`A` is what a prompt adds to the steps that carry it,
    :math:`A_0` what it would add without its cached prefix, :math:`D(b)` a decode step of the :math:`b` sequences that
    run together. Idle time is paid in proportion, so that the three kinds add up to the whole bill.

    References
    ----------
    "Prefill and decode are two different workloads on one GPU", section "What follows for cost".

    Examples
    --------
    >>> import rooflinekit as rk
    >>> d = rk.Deployment("llama-3.1-8b", "h100-sxm")
    >>> priced = rk.cost(d, usd_per_hour=2.0, prompt_tokens=2000, output_tokens=200, rate_per_s=8)
    >>> usd = priced.usd_per_million
    >>> usd.output > 5 * usd.input
    True
    >>> bill = (2000 * usd.input + 200 * usd.output) / 1e6
    >>> abs(bill / priced.usd_per_request - 1) < 1e-9
    True
    """
    profile_for(deployment)  # refuses what is none
    price = price_of(deployment, usd_per_hour)
    serving = serve(deployment, **load) if objective is None else judged(deployment, objective, **load)
    gpus = deployment.layout.devices
    missed = () if objective is None else objective.missed(serving)
    if serving.overloaded:
        reason = f"overloaded: it could carry {serving.most_requests_per_s:.3g} requests/s"
        return Cost(serving, gpus, price, None, reason)
    if missed:
        return Cost(serving, gpus, price, None, f"the objective is missed: {missed[0]}")
    seconds = gpu_seconds(serving, load.get("cached_tokens", 0.0))
    return Cost(serving, gpus, price, seconds, "" if price else no_price(deployment))


def price_of(deployment: Deployment, usd_per_hour: float | None) -> Price | None:
    """Give the price of an hour of one GPU: the user's, or the dated one of the device's file."""
    if usd_per_hour is not None:
        return Price(float(checked("usd_per_hour", usd_per_hour, positive=True)), "given")  # type: ignore[arg-type]
    dated = deployment.device.price
    return None if dated is None else Price(dated.usd_per_hour, f"{dated.source}, {dated.date}")


def no_price(deployment: Deployment) -> str:
    """Say that nobody has said what an hour costs."""
    return f"{deployment.device.id} has no dated price in its file: give usd_per_hour (--usd-per-hour)"


def gpu_seconds(serving: Serving, cached_tokens: float = 0.0) -> Tokens:
    """Divide the GPU-seconds of a request among its tokens, by the time that each kind takes of the steps."""
    prompt, output = _lengths(serving)
    new = prompt - cached_tokens
    whole = _added_s(serving, new, cached_tokens)
    bare = min(_added_s(serving, new, 0.0), whole)
    decoding = (output - 1.0) * _share_of_step_s(serving)
    scale = serving.deployment.layout.devices / serving.come_per_s / (whole + decoding)
    held = (whole - bare) / cached_tokens if cached_tokens else float("nan")
    return Tokens(scale * bare / new, scale * held, scale * decoding / output)


def _lengths(serving: Serving) -> tuple[float, float]:
    """Give the mean lengths of the requests."""
    traffic = serving.traffic
    if not isinstance(traffic, Trace):
        return traffic.prompt_tokens.mean, traffic.output_tokens.mean
    prompts, outputs = (sum(row[index] for row in traffic.rows) for index in (1, 2))
    return prompts / traffic.requests, outputs / traffic.requests


def _decoding(serving: Serving) -> Group:
    """Give the sequences that decode together, at the middle of their answers."""
    prompt, output = _lengths(serving)
    return Group(1.0, mean_context_tokens(prompt, output), max(serving.running, 1.0))


def _share_of_step_s(serving: Serving) -> float:
    """Seconds that one token takes of a decode step."""
    group, quick = _decoding(serving), serving.deployment.with_(memory_check=False)
    return float(loaded_step_s(quick, serving.engine, decoding=group)) / float(group.sequences)  # type: ignore[arg-type]


def _added_s(serving: Serving, new: float, held: float) -> float:
    """Seconds that the chunks of a prompt add to the steps that carry them, or take where they have their own."""
    profile, quick = serving.engine, serving.deployment.with_(memory_check=False)
    beside = None if profile.prefill == "serial" else _decoding(serving)
    chunks = _chunks(serving, beside, (new, held))
    alone = 0.0 if beside is None else float(loaded_step_s(quick, profile, decoding=beside))
    return float(np.sum(loaded_step_s(quick, profile, chunks=chunks, decoding=beside) - alone))


def _chunks(serving: Serving, beside: Group | None, prompt: tuple[float, float]) -> Group:
    """Cut a prompt, new tokens and held ones, into what decoding sequences leave of the token budget."""
    new, held = prompt
    profile, running = serving.engine, 0.0 if beside is None else float(beside.sequences)  # type: ignore[arg-type]
    room = max(float(profile.token_budget(serving.deployment.device)) - running, 1.0)
    starts = np.arange(0.0, new, room if profile.enable_chunked_prefill else new)
    sizes = np.minimum(new - starts, room if profile.enable_chunked_prefill else new)
    return Group(sizes, held + starts, 1.0, (starts + sizes >= new).astype(np.float64))
