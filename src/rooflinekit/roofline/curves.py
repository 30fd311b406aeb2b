r"""Attainable rates: the two lines of a roofline plot as pure functions of intensity and peaks."""

import numpy as np
from numpy.typing import NDArray

Real = float | NDArray[np.float64]


def attainable_flops_per_s(intensity: Real, flops_per_s: Real, bytes_per_s: Real) -> Real:
    r"""
    Arithmetic rate that a kernel of this intensity can reach at most under two peaks: the roof.

    .. math:: P(I) = \min(F,\ I\,B)

    Parameters
    ----------
    intensity : Real
        FLOPs over the bytes that the kernel moves, :math:`I`, 0 or more. [FLOP/byte]
    flops_per_s : Real
        Arithmetic peak in the kernel's dtype, :math:`F`. [FLOP/s]
    bytes_per_s : Real
        Memory bandwidth, :math:`B`. [byte/s]

    Returns
    -------
    flops_per_s : Real
        [FLOP/s]

    Notes
    -----
    A bound where every counted byte crosses the memory bus. A kernel whose input still lies in a cache can be above it,
    and near the ridge real kernels stay well below it: see :func:`rooflinekit.roofline.law.joined_time`.

    References
    ----------
    S. Williams, A. Waterman, D. Patterson, "Roofline: an insightful visual performance model for multicore
    architectures", CACM 52(4), 2009. Peaks of the example: "Prefill vs. Decode", measured on GB10.

    Examples
    --------
    The gate and up product of Qwen3-8B, one row and 2,048 rows, under 94 TFLOP/s and 241 GB/s:

    >>> print([f"{rate:.3g}" for rate in attainable_flops_per_s(np.array([1.0, 1293.0]), 94e12, 241e9)])
    ['2.41e+11', '9.4e+13']
    """
    rate: Real = np.minimum(flops_per_s, intensity * bytes_per_s)
    return rate if np.ndim(rate) else float(rate)


def ridge_point(flops_per_s: Real, bytes_per_s: Real) -> Real:
    r"""
    Intensity at which both peaks allow the same rate: the corner of the roof.

    .. math:: I^* = \frac{F}{B}

    Parameters
    ----------
    flops_per_s : Real
        Arithmetic peak, :math:`F`. [FLOP/s]
    bytes_per_s : Real
        Memory bandwidth, :math:`B`, above 0. [byte/s]

    Returns
    -------
    intensity : Real
        [FLOP/byte]

    Notes
    -----
    Exact. Both peaks must be of one kind, both measured or both from the datasheet; a mixed pair is no device's ridge.

    References
    ----------
    As :func:`attainable_flops_per_s`; GB10 measured at 94 TFLOP/s and 241 GB/s gives 390, its datasheet 458.

    Examples
    --------
    >>> round(ridge_point(94e12, 241e9)), round(ridge_point(125e12, 273e9))
    (390, 458)
    """
    return flops_per_s / bytes_per_s
