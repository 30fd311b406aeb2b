r"""How many distinct experts a pass touches, and so how many of a mixture's weights it reads."""

import numpy as np
from numpy.typing import NDArray

Real = float | NDArray[np.float64]


def distinct_experts(tokens: Real, experts: Real, experts_per_token: Real) -> Real:
    r"""
    Give the expected number of distinct experts that a pass touches, under uniform routing.

    .. math:: D = E\,\left(1 - (1 - k/E)^{n}\right)

    Parameters
    ----------
    tokens : Real
        Tokens in the pass, :math:`n`. [token]
    experts, experts_per_token : Real
        :math:`E` and :math:`k`. [1]

    Returns
    -------
    experts : Real
        Between :math:`\min(k, E)` for one token and :math:`E`. [1]

    Notes
    -----
    An expectation: :math:`\min(n k, E)` is its upper bound, reached only when no two tokens share an expert.

    References
    ----------
    The same count is discussed in vllm-project/vllm pull request 54228.

    Examples
    --------
    >>> print([round(float(distinct_experts(tokens, 128, 8)), 1) for tokens in (1, 2, 4, 8, 16, 32, 64)])
    [8.0, 15.5, 29.1, 51.6, 82.4, 111.8, 125.9]
    """
    # expm1 and log1p keep the first token exact: k of E, and not a rounding error beside it
    return -experts * np.expm1(tokens * np.log1p(-np.minimum(experts_per_token / experts, 1.0 - 1e-16)))
