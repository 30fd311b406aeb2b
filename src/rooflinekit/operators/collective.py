r"""What an operation between ranks puts on a link, and how its constants change with their number."""

import numpy as np
from numpy.typing import NDArray

Real = float | NDArray[np.float64]

#: Ranks of the two ends that a fraction is known for.
_FEW, _MANY = 2.0, 8.0


def traffic_factor(operation: str, ranks: Real) -> Real:
    r"""
    Bytes that a rank sends for each byte of the message.

    .. math:: f = \frac{2(n-1)}{n} \text{ (all-reduce)},\quad \frac{n-1}{n} \text{ (all-gather, reduce-scatter,
       all-to-all)},\quad 1 \text{ (send, and experts' exchange)}

    Parameters
    ----------
    operation : str
        As nccl-tests names it; ``exchange`` counts what leaves for other ranks already.
    ranks : Real
        :math:`n`. [1]

    Returns
    -------
    factor : Real
        [byte/byte]

    References
    ----------
    NVIDIA/nccl-tests, doc/PERFORMANCE.md.

    Examples
    --------
    >>> traffic_factor("all_reduce", 8), traffic_factor("all_gather", 2), traffic_factor("send", 2)
    (1.75, 0.5, 1.0)
    """
    if operation in ("send", "exchange"):
        return 1.0
    times = 2.0 if operation == "all_reduce" else 1.0
    return times * (ranks - 1.0) / ranks


def rank_latency(latency_s: float, growth: float, ranks: Real) -> Real:
    r"""
    Latency of a collective by the number of its ranks.

    .. math:: \alpha(n) = \alpha(2)\,(1 + g\,(n - 2))

    Parameters
    ----------
    latency_s : float
        Of two ranks, :math:`\alpha(2)`. [s]
    growth : float
        What each further rank adds, :math:`g`: 0.17 to 0.25 for an all-reduce over NVLink, 0.5 over PCIe, where it
        doubles from 2 to 4 and again to 8. [1]
    ranks : Real
        :math:`n`. [1]

    Returns
    -------
    latency_s : Real
        [s]

    References
    ----------
    Fitted on nccl-tests latencies of seven systems, ai-dynamo/aiconfigurator (commit 095f58a, Apache-2.0).

    Examples
    --------
    >>> [round(rank_latency(6.0e-6, 0.25, ranks) * 1e6, 1) for ranks in (2, 4, 8)]
    [6.0, 9.0, 15.0]
    """
    return latency_s * (1.0 + growth * (ranks - 2.0))


def rank_fraction(few: float, many: float, ranks: Real) -> Real:
    r"""
    Part of the link that large messages reach, by the number of ranks.

    .. math:: \eta(n) = \eta(2) + (\eta(8) - \eta(2))\,\min\left(\tfrac{1}{2}\log_2\tfrac{n}{2},\ 1\right)

    Parameters
    ----------
    few, many : float
        Of two ranks and of eight or more. [1]
    ranks : Real
        :math:`n`. [1]

    Returns
    -------
    fraction : Real
        [1]

    Notes
    -----
    With in-switch reduction the figure of eight ranks may be near 1: fewer bytes cross the wire than a ring needs.

    References
    ----------
    As :func:`rank_latency`.

    Examples
    --------
    >>> [round(rank_fraction(0.6, 1.0, ranks), 2) for ranks in (2, 4, 8, 16)]
    [0.6, 0.8, 1.0, 1.0]
    """
    along = np.clip(np.log2(ranks / _FEW) / np.log2(_MANY / _FEW), 0.0, 1.0)
    fraction: Real = few + (many - few) * along
    return fraction if np.ndim(fraction) else float(fraction)
