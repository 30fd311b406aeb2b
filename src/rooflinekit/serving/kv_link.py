"""The link over which K and V of a prompt go from the GPUs that read it to those that answer."""

from typing import NamedTuple

from rooflinekit import units
from rooflinekit.phases.deployment import Deployment
from rooflinekit.phases.resolve import resolve_links
from rooflinekit.serving.pools import queue_wait_s


class Link(NamedTuple):
    """One way between a prefill GPU and a decode GPU; `overlap` is the part of a transfer that prefill hides."""

    bytes_per_s: float
    latency_s: float
    overlap: float
    name: str

    def transfer_s(self, kv_bytes: float, prompts_per_s: float) -> float:
        """
        Send one prompt's K and V where so many prompts come: latency, queue for the wire, the wire less the overlap.

        Examples
        --------
        1 GB at 10 GB/s, half of it while the prompt is being read; the wire is half busy:

        >>> round(Link(10e9, 0.001, 0.5, "").transfer_s(1e9, 5.0), 6)
        0.101
        """
        wire = kv_bytes / self.bytes_per_s
        return self.latency_s + queue_wait_s(wire, prompts_per_s) + (1.0 - self.overlap) * wire


def link_between(
    deployment: Deployment, gpus: int, *, bytes_per_s: float | None, latency_s: float | None, overlap: float
) -> Link:
    """Take the user's figures, or those of sends over the device's interconnect: inside a node, or between nodes."""
    if bytes_per_s is not None:
        return Link(bytes_per_s, latency_s or 0.0, overlap, "the given link")
    links = resolve_links(deployment.device, deployment.engine, deployment.interconnect)
    link = links.inside if gpus <= links.inside.domain or links.between is None else links.between
    rate = link.send.fraction * (link.one_way_gb_per_s or 0.0) * units.GIGA / (link.peers or 1)
    latency = link.send.latency_us * units.MICRO if latency_s is None else latency_s
    return Link(rate, latency, overlap, link.name)
