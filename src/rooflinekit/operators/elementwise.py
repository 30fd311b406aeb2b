r"""Bytes of the small kernels between the products. They do next to no arithmetic: their FLOPs are not counted."""

import numpy as np
from numpy.typing import NDArray

Real = float | NDArray[np.float64]


def norm_elements(tokens: Real, hidden_size: Real) -> Real:
    r"""
    Values moved by a fused residual addition and norm.

    .. math:: A = 4\,n\,h

    Parameters
    ----------
    tokens : Real
        Tokens in the pass, :math:`n`. [token]
    hidden_size : Real
        Width of the residual stream, :math:`h`. [1]

    Returns
    -------
    elements : Real
        Branch and residual read, residual and normed row written. [1]

    Notes
    -----
    A norm without an addition moves half of that; engines fuse all but the first.

    References
    ----------
    "Prefill vs. Decode" measures 0.338 ms for one of 2,048 x 4,096: 67 MB.

    Examples
    --------
    >>> print(f"{2 * norm_elements(2048, 4096):.3g}")
    6.71e+07
    """
    return 4.0 * tokens * hidden_size


def rotary_elements(tokens: Real, query_width: Real, key_width: Real) -> Real:
    r"""
    Values moved by the rotation (and head norm) of queries and keys, in place.

    .. math:: A = 2\,n\,(q + k)

    Parameters
    ----------
    tokens : Real
        Tokens in the pass, :math:`n`. [token]
    query_width, key_width : Real
        Widths of all query heads and of all KV heads, :math:`q` and :math:`k`. [1]

    Returns
    -------
    elements : Real
        Read and written once. [1]

    Examples
    --------
    >>> rotary_elements(1, 32 * 128, 8 * 128)
    10240.0
    """
    return 2.0 * tokens * (query_width + key_width)


def activation_elements(tokens: Real, intermediate_size: Real, *, gated: bool) -> Real:
    r"""
    Values moved by the activation between the two products of a feed-forward.

    .. math:: A = (g + 1)\,n\,i,\quad g = 2\ \text{if gated, else } 1

    Parameters
    ----------
    tokens : Real
        Tokens in the pass, :math:`n`. [token]
    intermediate_size : Real
        Width of the feed-forward, :math:`i`. [1]
    gated : bool
        Whether gate and up are both read.

    Returns
    -------
    elements : Real
        [1]

    References
    ----------
    "Prefill vs. Decode": 151 MB for Qwen3-8B at 2,048 tokens.

    Examples
    --------
    >>> print(f"{2 * activation_elements(2048, 12288, gated=True):.4g}")
    1.51e+08
    """
    return (3.0 if gated else 2.0) * tokens * intermediate_size


def copy_bytes(tokens: Real, values: Real, read_bytes: Real, write_bytes: Real) -> Real:
    r"""
    Bytes of a kernel that copies rows: the write of new K and V into the cache, the gather of embedding rows.

    .. math:: A = n\,v\,(b_r + b_w)

    Parameters
    ----------
    tokens : Real
        Rows copied, :math:`n`. [token]
    values : Real
        Values in a row, :math:`v`. [1]
    read_bytes, write_bytes : Real
        Bytes of a value where it is read and where it is written. [byte]

    Returns
    -------
    activation_bytes : Real
        [byte]

    Examples
    --------
    The gather of one embedding row of Qwen3-8B; the table of 1.24 GB is never streamed:

    >>> copy_bytes(1, 4096, 2, 2)
    16384
    """
    return tokens * values * (read_bytes + write_bytes)
