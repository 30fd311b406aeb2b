r"""Work of attention: how many keys the new tokens see, what they cost, and which rows of K and V are read.

All of it is one formula for any number of new tokens: a prefill, a chunk, a decode step and a verification differ only
in their arguments.
"""

import numpy as np
from numpy.typing import NDArray

Real = float | NDArray[np.float64]


def attention_scores(new_tokens: Real, context_tokens: Real, window: float | None = None) -> Real:
    r"""
    Keys seen by the new tokens of one sequence, summed: query-key pairs of one head.

    .. math:: S = \sum_{i=1}^{n} \min(c + i,\ w)

    Parameters
    ----------
    new_tokens : Real
        Tokens that enter in this pass, :math:`n`. [token]
    context_tokens : Real
        Tokens held in the cache before the pass, :math:`c`. [token]
    window : float or None
        Tokens that a token sees at most, itself included, :math:`w`; None is all of them. [token]

    Returns
    -------
    scores : Real
        [1]

    Notes
    -----
    Closed form, exact: causal, the diagonal included, half a square and not a whole one. The chunks of a prompt sum to
    the prompt.

    Examples
    --------
    >>> attention_scores(2048, 0), attention_scores(1024, 0) + attention_scores(1024, 1024)
    (2098176.0, 2098176.0)
    >>> attention_scores(4, 0, window=2)  # 1 + 2 + 2 + 2
    7.0
    """
    if window is None:
        return new_tokens * context_tokens + new_tokens * (new_tokens + 1.0) / 2.0
    growing = np.minimum(
        np.maximum(window - context_tokens, 0.0), new_tokens
    )  # new tokens whose view the window does not cap yet
    capped = new_tokens - growing
    result: Real = growing * context_tokens + growing * (growing + 1.0) / 2.0 + capped * window
    return result if np.ndim(result) else float(result)


def chunked_scores(new_tokens: Real, context_tokens: Real, chunk: float) -> Real:
    r"""
    Keys seen by the new tokens of one sequence where the view starts anew every `chunk` tokens.

    .. math:: S = T(c + n) - T(c),\quad
       T(x) = \left\lfloor\tfrac{x}{w}\right\rfloor \frac{w (w + 1)}{2} + \frac{r (r + 1)}{2},\quad r = x \bmod w

    Parameters
    ----------
    new_tokens, context_tokens : Real
        As in :func:`attention_scores`. [token]
    chunk : float
        Length of a chunk, :math:`w`. [token]

    Returns
    -------
    scores : Real
        Exact for whole tokens. [1]

    Examples
    --------
    >>> chunked_scores(4, 0, 2), chunked_scores(1, 4, 2)  # 1 + 2 + 1 + 2; a new chunk sees itself alone
    (6.0, 1.0)
    """
    return _chunked_total(context_tokens + new_tokens, chunk) - _chunked_total(context_tokens, chunk)


def _chunked_total(tokens: Real, chunk: float) -> Real:
    whole, rest = np.divmod(tokens, chunk)
    total: Real = whole * chunk * (chunk + 1.0) / 2.0 + rest * (rest + 1.0) / 2.0
    return total if np.ndim(total) else float(total)


def chunked_rows_read(new_tokens: Real, context_tokens: Real, chunk: float) -> Real:
    r"""
    Rows of K and V that the new tokens of one sequence need: themselves, and what their chunk already holds.

    .. math:: R = n + c \bmod w

    Parameters
    ----------
    new_tokens, context_tokens, chunk
        As in :func:`chunked_scores`. [token]

    Returns
    -------
    rows : Real
        [token]

    Examples
    --------
    >>> chunked_rows_read(1, 8192 + 100, 8192)
    101.0
    """
    rows: Real = new_tokens + np.mod(context_tokens, chunk)
    return rows if np.ndim(rows) else float(rows)


def attention_flops(scores: Real, heads: Real, key_width: Real, value_width: Real) -> Real:
    r"""
    Operations of attention over so many query-key pairs: the product with K and the one with V.

    .. math:: F = 2\,h\,(d + d_v)\,S

    Parameters
    ----------
    scores : Real
        Query-key pairs of one head, from :func:`attention_scores`. [1]
    heads : Real
        Query heads, :math:`h`. [1]
    key_width, value_width : Real
        Widths of a key and a value, :math:`d` and :math:`d_v`. [1]

    Returns
    -------
    flops : Real
        The softmax is not counted; the time law prices it. [FLOP]

    References
    ----------
    "Prefill vs. Decode": 36 layers of Qwen3-8B over 2,048 tokens are 1.24 TFLOP.

    Examples
    --------
    >>> print(f"{36 * attention_flops(attention_scores(2048, 0), 32, 128, 128):.3g}")
    1.24e+12
    """
    return 2.0 * heads * (key_width + value_width) * scores


def rows_read(new_tokens: Real, context_tokens: Real, window: float | None = None) -> Real:
    r"""
    Rows of K and V that the new tokens of one sequence need, each read once.

    .. math:: R = n + \min(c,\ w - 1)

    Parameters
    ----------
    new_tokens, context_tokens, window
        As in :func:`attention_scores`. [token]

    Returns
    -------
    rows : Real
        [token]

    Notes
    -----
    For one new token this is :math:`\min(c + 1, w)`. For a long chunk under a short window every new row is still
    needed by some token, so capping the sum at the window would lose most of it.

    Examples
    --------
    >>> rows_read(1, 2048), rows_read(1, 8192, window=1024), rows_read(2048, 8192, window=1024)
    (2049.0, 1024.0, 3071.0)
    """
    if window is None:
        return new_tokens + context_tokens + 0.0
    result: Real = new_tokens + np.minimum(context_tokens, window - 1.0)
    return result if np.ndim(result) else float(result)


def query_output_elements(tokens: Real, heads: Real, key_width: Real, value_width: Real) -> Real:
    r"""
    Values of queries read and of outputs written.

    .. math:: A = n\,h\,(d + d_v)

    Parameters
    ----------
    tokens : Real
        New tokens. [token]
    heads, key_width, value_width : Real
        As in :func:`attention_flops`.

    Returns
    -------
    elements : Real
        The new rows of K and V are counted with the cache rows (:func:`rows_read`), not again here. [1]

    Examples
    --------
    >>> query_output_elements(1, 32, 128, 128)
    8192
    """
    return tokens * heads * (key_width + value_width)
