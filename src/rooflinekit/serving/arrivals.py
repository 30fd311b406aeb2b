"""Arrivals: requests as they come, open (a rate) or closed (a client with so many in flight), or from a trace file."""

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rooflinekit.errors import InvalidInputError
from rooflinekit.specs.step import checked

Values = NDArray[np.float64]
#: Requests drawn at once: memory stays constant however long the run.
_BLOCK = 4096


@dataclass(frozen=True)
class Lengths:
    """
    A distribution of token counts.

    Parameters
    ----------
    mean : float
        [token]
    kind : {"fixed", "uniform", "lognormal"}
        Uniform integers lie in [low x, high x] of a nominal length; a log-normal's `spread` is that of the logarithm,
        and it ends at its 99.9th percentile, as a longest context ends it.
    low, high : float
        Ends of the uniform one, as parts of ``mean / ((low + high) / 2)``.
    spread : float
        Of the log-normal one.

    Examples
    --------
    What public clients send who ask for 1,000 tokens "within 20%": uniform in 800 to 1,000.

    >>> Lengths.ranged(1000, 0.8).mean
    900.0
    """

    mean: float
    kind: Literal["fixed", "uniform", "lognormal"] = "fixed"
    low: float = 1.0
    high: float = 1.0
    spread: float = 0.0

    def __post_init__(self) -> None:
        """Refuse what is no length."""
        checked("mean", self.mean, minimum=1.0)
        checked("spread", self.spread)
        if self.kind not in ("fixed", "uniform", "lognormal") or not 0 < self.low <= self.high:
            message = f"lengths {self.kind!r} of {self.low:g} to {self.high:g}: expected fixed, uniform or lognormal"
            raise InvalidInputError(message)

    @classmethod
    def ranged(cls, nominal: float, ratio: float) -> "Lengths":
        """Give uniform lengths in [ratio x, 1 x] of a nominal one."""
        return cls(nominal * (1.0 + ratio) / 2.0, "uniform", ratio, 1.0)

    def draw(self, random: np.random.Generator, count: int) -> Values:
        """Draw whole numbers of at least 1."""
        if self.kind == "fixed":
            return np.full(count, float(round(self.mean)))
        if self.kind == "uniform":
            nominal = self.mean / ((self.low + self.high) / 2.0)
            ends = max(round(self.low * nominal), 1), max(round(self.high * nominal), 1)
            return random.integers(ends[0], ends[1] + 1, count).astype(np.float64)
        normal = random.normal(np.log(self.mean) - self.spread**2 / 2.0, self.spread, count)
        return np.clip(np.rint(np.exp(normal)), 1.0, self.longest)

    @property
    def std(self) -> float:
        """Standard deviation. [token]"""
        if self.kind == "uniform":
            return float(self.mean * (self.high - self.low) / (self.high + self.low) / 3.0**0.5)
        return float(self.mean * np.sqrt(np.expm1(self.spread**2))) if self.kind == "lognormal" else 0.0

    @property
    def longest(self) -> float:
        """The length that no draw exceeds: the upper end, or the 99.9th percentile."""
        if self.kind == "lognormal":
            return max(float(np.rint(self.mean * np.exp(-(self.spread**2) / 2.0 + 3.09 * self.spread))), 1.0)
        return self.mean * self.high / ((self.low + self.high) / 2.0)


class Request(NamedTuple):
    """One request: when it comes (not before the answer to another, for a closed client), and its lengths."""

    arrival_s: float
    prompt_tokens: float
    output_tokens: float


@dataclass(frozen=True)
class Open:
    """
    Requests that come at a rate whatever the server does.

    ``burstiness`` is the shape of the gamma distribution of the gaps, as in vLLM's client: 1 is Poisson, less comes in
    bursts, infinity like a clock.
    """

    rate_per_s: float
    burstiness: float = 1.0

    def __post_init__(self) -> None:
        """Refuse what is no rate."""
        refuse_several("rate_per_s", self.rate_per_s)
        refuse_several("burstiness", self.burstiness)
        checked("rate_per_s", self.rate_per_s, positive=True)
        checked("burstiness", self.burstiness, positive=True, infinite=True)

    @property
    def in_flight(self) -> int | None:
        """No limit."""
        return None

    def gaps(self, random: np.random.Generator, count: int) -> Values:
        """Draw the gaps between requests."""
        mean = 1.0 / self.rate_per_s
        if np.isinf(self.burstiness):
            return np.full(count, mean)
        return random.gamma(self.burstiness, mean / self.burstiness, count)


@dataclass(frozen=True)
class Closed:
    """Requests of a client that keeps `concurrency` of them in flight, all started together."""

    concurrency: int

    def __post_init__(self) -> None:
        """Refuse what is no number of requests."""
        refuse_several("concurrency", self.concurrency)
        checked("concurrency", self.concurrency, minimum=1, whole=True)

    @property
    def in_flight(self) -> int | None:
        """Requests that are never exceeded."""
        return self.concurrency

    def gaps(self, _: np.random.Generator, count: int) -> Values:
        """Give gaps of nought: the next request is ready when one ends."""
        return np.zeros(count)


@dataclass(frozen=True)
class Traffic:
    """
    Requests of a run.

    Parameters
    ----------
    arrivals : Open or Closed
        How they come.
    prompt_tokens, output_tokens : Lengths
        What they ask for.
    requests : int
        How many there are.
    """

    arrivals: Open | Closed
    prompt_tokens: Lengths
    output_tokens: Lengths
    requests: int = 1000

    def __post_init__(self) -> None:
        """Refuse an empty run."""
        refuse_several("requests", self.requests)
        checked("requests", self.requests, minimum=1, whole=True)

    @property
    def in_flight(self) -> int | None:
        """Requests that are never exceeded."""
        return self.arrivals.in_flight

    @property
    def longest_tokens(self) -> float:
        """Tokens of the longest request."""
        return self.prompt_tokens.longest + self.output_tokens.longest

    def draw(self, seed: int) -> Iterator[Request]:
        """Draw the requests one after another, in blocks."""
        checked("seed", seed, whole=True)
        random = np.random.default_rng(seed)
        clock = 0.0
        for start in range(0, self.requests, _BLOCK):
            count = min(_BLOCK, self.requests - start)
            times = clock + np.cumsum(self.arrivals.gaps(random, count))
            clock = float(times[-1])
            prompts, outputs = self.prompt_tokens.draw(random, count), self.output_tokens.draw(random, count)
            yield from map(Request, times.tolist(), prompts.tolist(), outputs.tolist())


@dataclass(frozen=True)
class Trace:
    """Requests of a trace: a CSV file with the columns ``arrival_s``, ``prompt_tokens``, ``output_tokens``."""

    path: str
    rows: tuple[Request, ...]

    @property
    def requests(self) -> int:
        """How many there are."""
        return len(self.rows)

    @property
    def in_flight(self) -> int | None:
        """No limit."""
        return None

    @property
    def longest_tokens(self) -> float:
        """Tokens of the longest request."""
        return max(row.prompt_tokens + row.output_tokens for row in self.rows)

    def draw(self, _: int) -> Iterator[Request]:
        """Give the requests as they stand."""
        return iter(self.rows)


def traffic_of(
    lengths: tuple[float | Lengths | None, float | Lengths | None],
    rate_per_s: float | None,
    concurrency: int | None,
    burstiness: float,
    requests: int | None,
    *,
    trace: Trace | None = None,
) -> Traffic | Trace:
    """Make the requests of a run of what a caller gives; a trace says all of it by itself."""
    if trace is not None:
        _refuse_beside_trace(lengths, rate_per_s, concurrency, burstiness, requests)
        return trace
    if None in lengths or (rate_per_s is None) == (concurrency is None):
        message = (
            "give prompt_tokens, output_tokens, and one of rate_per_s= (open) and concurrency= (closed), or a trace"
        )
        raise InvalidInputError(message)
    prompts, outputs = (
        one if isinstance(one, Lengths) else Lengths(_one_length(name, one))
        for name, one in zip(("prompt_tokens", "output_tokens"), lengths, strict=True)
    )
    if rate_per_s is not None:
        return Traffic(Open(rate_per_s, burstiness), prompts, outputs, 1000 if requests is None else requests)
    refuse_several("burstiness", burstiness)
    if burstiness != 1.0:
        message = f"burstiness={burstiness:g}: only open arrivals (rate_per_s=) come in bursts; a closed client waits"
        raise InvalidInputError(message)
    closed = Closed(0 if concurrency is None else concurrency)
    return Traffic(closed, prompts, outputs, 10 * closed.concurrency if requests is None else requests)


def _refuse_beside_trace(lengths: tuple[object, object], *load: object) -> None:
    """Refuse what a trace says already: it would have no effect."""
    names = ("prompt_tokens", "output_tokens", "rate_per_s", "concurrency", "burstiness", "requests")
    idle = (None, None, None, None, 1.0, None)
    given = [name for name, value, nought in zip(names, (*lengths, *load), idle, strict=True) if value != nought]
    if given:
        message = f"a trace says when its requests come and how long they are: leave {', '.join(given)} out"
        raise InvalidInputError(message)


def refuse_several(name: str, value: object) -> None:
    """Refuse several values at once: a run has one of each."""
    if not isinstance(value, int | float | np.number) or isinstance(value, bool):
        message = f"{name}={value!r}: expected one number, since a run has one: ask once for each"
        raise InvalidInputError(message)


def _one_length(name: str, length: object) -> float:
    if isinstance(length, bool) or not isinstance(length, int | float):
        message = f"{name}={length!r}: expected one number of tokens, or Lengths for a distribution"
        raise InvalidInputError(message)
    checked(name, length, minimum=1.0)
    return float(length)


def read_trace(path: str | Path) -> Trace:
    """
    Read a trace file.

    Raises
    ------
    InvalidInputError
        The file cannot be read as text, a column or value is missing or wrong, a time falls behind the one before, or
        there is no request.
    """
    try:
        with Path(path).open(encoding="utf-8-sig", newline="") as stream:
            lines = csv.DictReader(stream)
            _require_columns(path, lines.fieldnames or ())
            rows = [(lines.line_num, _request(path, lines.line_num, line)) for line in lines]
    except (OSError, UnicodeDecodeError, csv.Error) as fault:
        said = getattr(fault, "strerror", None) or fault
        message = f"{path}: {said}: expected a CSV file with the columns {', '.join(Request._fields)}"
        raise InvalidInputError(message) from None
    if not rows:
        message = f"{path}: holds no request: expected a row for each below the columns' names"
        raise InvalidInputError(message)
    for (_, one), (number, after) in pairwise(rows):
        if after.arrival_s < one.arrival_s:
            message = (
                f"{path}, line {number}: arrival_s = {after.arrival_s:g} comes before {one.arrival_s:g}: sort by it"
            )
            raise InvalidInputError(message)
    return Trace(str(path), tuple(row for _, row in rows))


def _require_columns(path: str | Path, names: Sequence[str]) -> None:
    missing = [name for name in Request._fields if name not in names]
    if missing:
        message = f"{path}, line 1: no column {', '.join(missing)}: expected {', '.join(Request._fields)}"
        raise InvalidInputError(message)


def _request(path: str | Path, number: int, line: dict[str, str | None]) -> Request:
    values = []
    for name, least in zip(Request._fields, (0.0, 1.0, 1.0), strict=True):
        whole = name != "arrival_s"
        try:
            value = float(line[name] or "nan")
        except ValueError:
            value = float("nan")
        if not least <= value < np.inf or (whole and value % 1.0):
            kind = "a whole number" if whole else "a number"
            message = f"{path}, line {number}: {name} = {line[name]!r}: expected {kind} of at least {least:g}"
            raise InvalidInputError(message)
        values.append(value)
    return Request(*values)
