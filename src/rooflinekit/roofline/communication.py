"""How long messages take: an operation between ranks on a link becomes legs, each with its latency and its rate."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rooflinekit import units
from rooflinekit.errors import MissingFigureError
from rooflinekit.operators.collective import rank_fraction, rank_latency, traffic_factor
from rooflinekit.roofline.law import collective_time
from rooflinekit.specs.interconnect import Collective, Interconnect, OwnKernel

Real = float | NDArray[np.float64]


@dataclass(frozen=True)
class Links:
    """The links of a deployment: inside a node, between nodes where ranks stand in several, and whose kernels run."""

    inside: Interconnect
    between: Interconnect | None
    own_kernel: bool

    def between_nodes(self) -> Interconnect:
        """Return the link between nodes, or raise the error that says it is missing."""
        if self.between is None:
            message = (
                f"{self.inside.id} joins {self.inside.domain} devices and names no link beyond: "
                "pass interconnect={'between': ...}"
            )
            raise MissingFigureError(message)
        return self.between


class Leg(NamedTuple):
    """One part of an operation: latency of a launch, bytes on the wire for each of the message, and the rate."""

    label: str
    latency_s: float
    factor: float
    fraction: float
    link_bytes_per_s: float
    join: float

    def seconds(self, launches: Real, message_bytes: Real) -> Real:
        """Time of all launches together: the law holds for sums, since all of a row's messages are alike."""
        wire = message_bytes * (self.factor / (self.fraction * self.link_bytes_per_s))
        return collective_time(wire, self.latency_s * launches, self.join)


@dataclass(frozen=True)
class CollectiveLaw:
    """
    How one collective is timed: the library's legs one after another; up to a size an engine's kernel, where quicker.

    ``rounds`` are the kernel's forms, of which the quickest runs: read all in one round, or reduce and gather in two.
    """

    operation: str
    ranks: int
    legs: tuple[Leg, ...]
    rounds: tuple[Leg, ...] = ()
    up_to_bytes: float = 0.0

    @cached_property
    def floor_s_per_byte(self) -> float:
        """Seconds of one byte of the message at the whole link, all legs."""
        return sum(leg.factor / leg.link_bytes_per_s for leg in self.legs)

    def seconds(self, launches: Real, message_bytes: Real) -> NDArray[np.float64]:
        """Seconds of all launches together."""
        library = sum((leg.seconds(launches, message_bytes) for leg in self.legs), start=np.float64(0.0))
        if not self.rounds:
            return np.asarray(library)
        rounds = [np.asarray(leg.seconds(launches, message_bytes)) for leg in self.rounds]
        kernel: NDArray[np.float64] = np.minimum.reduce(rounds)
        small = np.less_equal(message_bytes, self.up_to_bytes * np.asarray(launches))
        return np.where(small, np.minimum(kernel, library), library)

    def running(self, launches: float, message_bytes: float) -> tuple[Leg, ...]:
        """Return the legs that run for a message of one size: the library's, or a form of the kernel."""
        library = sum(float(leg.seconds(launches, message_bytes)) for leg in self.legs)
        quickest = min(self.rounds, key=lambda leg: float(leg.seconds(launches, message_bytes)), default=None)
        if quickest is None or message_bytes > self.up_to_bytes * launches:
            return self.legs
        return (quickest,) if float(quickest.seconds(launches, message_bytes)) <= library else self.legs


def collective_law(operation: str, ranks: int, nodes: int, links: Links) -> CollectiveLaw:
    """Lay an operation out: inside a node, or in three steps that take the node's ranks for one between nodes."""
    if nodes > 1:
        return CollectiveLaw(operation, ranks, tuple(_across(operation, ranks, nodes, links)))
    legs = (_inside(operation, ranks, links.inside),)
    kernel = links.inside.own_kernel
    if operation != "all_reduce" or kernel is None or not links.own_kernel:
        return CollectiveLaw(operation, ranks, legs)
    return CollectiveLaw(
        operation, ranks, legs, tuple(_rounds(kernel, ranks, links.inside)), kernel.up_to_mib * units.MIB
    )


def _across(operation: str, ranks: int, nodes: int, links: Links) -> Iterator[Leg]:
    """Yield the legs of an operation of several nodes; experts' tokens and a stage's results go straight."""
    between, each = links.between_nodes(), -(-ranks // nodes)
    if operation in ("exchange", "all_to_all"):
        yield _leg(f"{operation} between {nodes} nodes", operation, nodes, between, (nodes - 1) / nodes)
    elif operation == "send":
        yield _leg("send between nodes", operation, 2, between, 1.0)
    else:
        if operation in ("all_reduce", "reduce_scatter") and each > 1:
            yield _inside("reduce_scatter", each, links.inside)
        factor = float(traffic_factor(operation, nodes)) / each
        yield _leg(f"{operation} between {nodes} nodes", operation, nodes, between, factor)
        if operation in ("all_reduce", "all_gather") and each > 1:
            yield _inside("all_gather", each, links.inside)


def _inside(operation: str, ranks: int, link: Interconnect) -> Leg:
    return _leg(f"{operation} of {ranks}", operation, ranks, link, float(traffic_factor(operation, ranks)))


def _leg(label: str, operation: str, ranks: int, link: Interconnect, factor: float) -> Leg:
    law: Collective = getattr(link, operation)
    latency = float(rank_latency(law.latency_us * units.MICRO, law.growth, ranks))
    fraction = float(rank_fraction(law.fraction, law.fraction_of_eight or law.fraction, ranks))
    return Leg(f"{label} over {link.id}", latency, factor, fraction, _rate(link, ranks), law.join)


def _rate(link: Interconnect, ranks: int) -> float:
    """Rate of a rank: of links between pairs only those to the other ranks."""
    whole = (link.one_way_gb_per_s or float("nan")) * units.GIGA
    return whole if link.peers is None else whole * min(ranks - 1, link.peers) / link.peers


def _rounds(kernel: OwnKernel, ranks: int, link: Interconnect) -> Iterator[Leg]:
    latency, rate = kernel.latency_us * units.MICRO, _rate(link, ranks)
    label = f"own kernel of {ranks} over {link.id}"
    yield Leg(f"{label}, one round", latency, ranks - 1.0, kernel.read_fraction, rate, 0.0)
    factor = float(traffic_factor("all_reduce", ranks))
    yield Leg(f"{label}, two rounds", latency * kernel.second_round, factor, kernel.fraction, rate, 0.0)
