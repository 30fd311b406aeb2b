r"""Work of one linear layer: an (rows, inner) by (inner, columns) product."""

import numpy as np
from numpy.typing import NDArray

Real = float | NDArray[np.float64]


def matmul_flops(rows: Real, inner: Real, columns: Real) -> Real:
    r"""
    Floating-point operations of an (rows, inner) by (inner, columns) product.

    .. math:: F = 2\,m\,k\,n

    Parameters
    ----------
    rows : Real
        Tokens in the pass, :math:`m`. [token]
    inner : Real
        Input width, :math:`k`. [1]
    columns : Real
        Output width, :math:`n`. [1]

    Returns
    -------
    flops : Real
        A multiply-add counts as two. [FLOP]

    Notes
    -----
    Exact. A bias and the activation behind it are part of other kernels' bytes and have no FLOPs here.

    References
    ----------
    "Prefill vs. Decode: Why the Second Token Is a Different Workload", section "The same layer, two shapes".

    Examples
    --------
    Qwen3-8B, merged gate and up projection, 2,048 prompt tokens; the source prints 412 billion:

    >>> print(f"{matmul_flops(2048, 4096, 24576):.4g}")
    4.123e+11
    """
    return 2.0 * rows * inner * columns


def matmul_weight_bytes(inner: Real, columns: Real, bytes_per_weight: Real) -> Real:
    r"""
    Bytes of one linear layer's matrix, read once per pass whatever the number of rows.

    .. math:: W = k\,n\,b_w

    Parameters
    ----------
    inner, columns : Real
        Input and output width. [1]
    bytes_per_weight : Real
        Bytes of a stored weight, its share of the scales included. [byte]

    Returns
    -------
    weight_bytes : Real
        [byte]

    Notes
    -----
    Exact where the scale groups divide the matrix; a ragged last group adds less than one scale per row.

    References
    ----------
    As :func:`matmul_flops`; the source prints 201 MB.

    Examples
    --------
    >>> print(f"{matmul_weight_bytes(4096, 24576, 2):.4g}")
    2.013e+08
    """
    return inner * columns * bytes_per_weight


def matmul_activation_elements(rows: Real, inner: Real, columns: Real) -> Real:
    r"""
    Values that a product reads and writes besides its matrix.

    .. math:: A = m\,(k + n)

    Parameters
    ----------
    rows, inner, columns : Real
        As in :func:`matmul_flops`.

    Returns
    -------
    elements : Real
        Inputs read once and outputs written once. [1]

    References
    ----------
    As :func:`matmul_flops`; the source prints 319 MB for weights and activations together at 16 bits.

    Examples
    --------
    >>> elements = matmul_activation_elements(2048, 4096, 24576)
    >>> print(f"{2 * elements + matmul_weight_bytes(4096, 24576, 2):.4g}")
    3.188e+08
    """
    return rows * (inner + columns)
