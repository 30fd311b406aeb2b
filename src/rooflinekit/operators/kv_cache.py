r"""Size of the KV cache: KV heads, never query heads; the window of a layer, where it has one."""

import numpy as np
from numpy.typing import NDArray

Real = float | NDArray[np.float64]


def kv_cache_bytes(values_per_token: Real, tokens: Real, bytes_per_value: Real, window: float | None = None) -> Real:
    r"""
    Bytes that one sequence holds in the cache of one layer.

    .. math:: K = k\,(d + d_v)\,\min(t, w)\,b

    Parameters
    ----------
    values_per_token : Real
        :math:`k\,(d + d_v)`: KV heads times the widths of a key and a value. [1]
    tokens : Real
        Tokens held, :math:`t`. [token]
    bytes_per_value : Real
        Of the cache's own dtype, which does not follow the weights'. [byte]
    window : float or None
        Tokens the layer looks back over; it needs no more. [token]

    Returns
    -------
    kv_cache_bytes : Real
        [byte]

    Notes
    -----
    What is needed. An engine rounds up to pages, and some reserve the whole length for windowed layers.

    References
    ----------
    "Prefill vs. Decode": Qwen3-8B holds 144 KiB per token, 302 MB at 2,048 tokens.

    Examples
    --------
    >>> 36 * kv_cache_bytes(8 * (128 + 128), 1, 2) / 1024
    144.0
    >>> print(f"{36 * kv_cache_bytes(8 * (128 + 128), 2048, 2):.4g}")
    3.02e+08
    """
    held = tokens if window is None else np.minimum(tokens, window)
    size: Real = values_per_token * held * bytes_per_value
    return size if np.ndim(size) else float(size)
