r"""The time laws: pure functions of seconds, bytes and rates, each with its form, its range and its source."""

import numpy as np
from numpy.typing import NDArray

Real = float | NDArray[np.float64]

_NOTHING = float(np.finfo(np.float64).tiny)  # divides where there is no work, and so nothing beyond the budget
_SUM, _HYPOTENUSE = 1.0, 2.0  # exponents with a form of their own, faster than the power


def joined_time(compute_s: Real, memory_s: Real, exponent: float) -> Real:
    r"""
    Time of one operator from its compute and memory time, joined near the ridge.

    .. math:: t = \left(t_c^p + t_m^p\right)^{1/p}

    Parameters
    ----------
    compute_s, memory_s : Real
        FLOPs and bytes over the rates reached, :math:`t_c` and :math:`t_m`. [s]
    exponent : float
        :math:`p`: 1 adds the two, 2 fits measured products, infinity is the roofline's maximum.

    Returns
    -------
    time_s : Real
        Without the launch. [s]

    Notes
    -----
    Near the ridge real kernels reach half to two thirds of either peak, which the maximum of the roofline misses.

    References
    ----------
    Fitted on the kernel tables of ai-dynamo/aiconfigurator (commit 095f58a, Apache-2.0): p = 2.2 free, 2 taken.

    Examples
    --------
    >>> joined_time(3.0, 4.0, 2.0), joined_time(3.0, 4.0, float("inf")), joined_time(3.0, 4.0, 1.0)
    (5.0, 4.0, 7.0)
    """
    if exponent == _SUM:
        return compute_s + memory_s
    if np.isinf(exponent):
        result: Real = np.maximum(compute_s, memory_s)
    elif exponent == _HYPOTENUSE:
        result = np.sqrt(compute_s * compute_s + memory_s * memory_s)
    else:
        result = (compute_s**exponent + memory_s**exponent) ** (1.0 / exponent)
    return result if np.ndim(result) else float(result)


def power_limit_stretch(work_s: Real, busy_s: Real, budget_s: float, sustained: float) -> Real:
    r"""
    Factor by which compute work slows down once a device has used up its burst budget.

    .. math:: \sigma = 1 + \left(\tfrac{1}{s} - 1\right)\frac{\max\left(W - \max(\tau - b, 0),\ 0\right)}{W}

    Parameters
    ----------
    work_s : Real
        Compute time of the whole pass at the burst rate, :math:`W`. [s]
    busy_s : Real
        Compute-bound work just before the pass, :math:`b`: 0 after a rest, infinity in a loaded server. [s]
    budget_s : float
        Burst budget, :math:`\tau`. [s]
    sustained : float
        Sustained rate over burst rate, :math:`s`, in (0, 1].

    Returns
    -------
    stretch : Real
        1 within the budget, 1/s far beyond it; the same for every compute term, so operators still add up. [1]

    Notes
    -----
    :math:`W\sigma` is convex in W: a longer pass is never faster. Memory-bound work is untouched.

    References
    ----------
    Our H200 trace: 793-821 TFLOPS for some 20 ms, 660-700 back to back at the 700 W limit.

    Examples
    --------
    >>> power_limit_stretch(0.040, 0.0, 0.020, 0.8), power_limit_stretch(0.040, float("inf"), 0.020, 0.8)
    (1.125, 1.25)
    """
    left = np.maximum(budget_s - busy_s, 0.0)
    beyond = np.maximum(work_s - left, 0.0)
    stretch: Real = 1.0 + (1.0 / sustained - 1.0) * beyond / np.maximum(work_s, _NOTHING)
    return stretch if np.ndim(stretch) else float(stretch)


def collective_time(wire_s: Real, latency_s: Real, join: float) -> Real:
    r"""
    Time of a collective from what its bytes take on the wire and from its latency.

    .. math:: t = \alpha + s + 2\kappa\sqrt{\alpha s}

    Parameters
    ----------
    wire_s : Real
        Bytes that a rank sends over the rate reached, :math:`s`. [s]
    latency_s : Real
        Time of an empty collective, :math:`\alpha`. [s]
    join : float
        :math:`\kappa`: 0.5 on NVLink, 0 on PCIe. [1]

    Returns
    -------
    time_s : Real
        [s]

    Notes
    -----
    Messages of middle sizes are slower than latency and bandwidth together say: their protocol changes.

    References
    ----------
    Fitted on the kernel tables of ai-dynamo/aiconfigurator (commit 095f58a, Apache-2.0): NCCL 4% median with the joint
    term, 9% without.

    Examples
    --------
    >>> print([f"{collective_time(4e-6, 1e-6, join):.1e}" for join in (0.5, 0.0)])
    ['7.0e-06', '5.0e-06']
    """
    result: Real = latency_s + wire_s + 2.0 * join * np.sqrt(latency_s * wire_s)
    return result if np.ndim(result) else float(result)


def floor_time(compute_s: Real, compulsory_bytes: Real, cache_bytes: float, bytes_per_s: float) -> Real:
    r"""
    Time that no implementation can beat, for a whole pass.

    .. math:: t = \max\left(\sum_d \frac{F_d}{P_d},\ \frac{\max(Q - L, 0)}{B}\right)

    Parameters
    ----------
    compute_s : Real
        FLOPs over the peak at the highest clock, summed over dtypes. [s]
    compulsory_bytes : Real
        Weights and KV, each once, no intermediate values, :math:`Q`. [byte]
    cache_bytes : float
        Last-level cache, :math:`L`: what may already lie there; 0 where the device file does not say. [byte]
    bytes_per_s : float
        Datasheet bandwidth, :math:`B`. [byte/s]

    Returns
    -------
    floor_s : Real
        [s]

    Notes
    -----
    Stricter than a per-operator roofline, which fusion and caches do beat.

    Examples
    --------
    >>> floor_time(0.001, 15.1e9, 0.0, 273e9)  # a decode step of Qwen3-8B on GB10, weights alone
    0.05531135531135531
    """
    result: Real = np.maximum(compute_s, np.maximum(compulsory_bytes - cache_bytes, 0.0) / bytes_per_s)
    return result if np.ndim(result) else float(result)
