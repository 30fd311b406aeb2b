r"""How many distinct experts a pass touches, and so how many of a mixture's weights it reads."""

from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Real = float | NDArray[np.float64]


def distinct_experts(tokens: Real, experts: float, experts_per_token: float, skew: float = 0.0) -> Real:
    r"""
    Give the expected number of distinct experts that a pass touches.

    .. math:: D = \sum_e \left(1 - (1 - \pi_e)^{n}\right),\quad \pi_e = \min(k\,p_e,\ 1),\quad p_e \propto e^{-s}

    Parameters
    ----------
    tokens : Real
        Tokens in the pass, :math:`n`. [token]
    experts, experts_per_token : float
        :math:`E` and :math:`k`. [1]
    skew : float
        Exponent :math:`s` of the experts' popularity by rank: 0 is uniform, 1 sends most tokens to few, infinity
        all of them to the same :math:`k`. [1]

    Returns
    -------
    experts : Real
        Between :math:`k` (all tokens agree) and the uniform figure :math:`E(1-(1-k/E)^n)`. [1]

    Notes
    -----
    An expectation: :math:`\min(n k, E)` is its upper bound, reached only when no two tokens share an expert. Where the
    most popular expert would be chosen more than once by a token, the excess goes to the others.

    References
    ----------
    The uniform count is discussed in vllm-project/vllm pull request 54228.

    Examples
    --------
    >>> print([round(float(distinct_experts(tokens, 128, 8)), 1) for tokens in (1, 2, 4, 8, 16, 32, 64)])
    [8.0, 15.5, 29.1, 51.6, 82.4, 111.8, 125.9]
    >>> 8 < distinct_experts(64, 128, 8, skew=1.0) < 125.9
    True
    """
    if np.isinf(skew):
        return experts_per_token * np.minimum(tokens, 1.0)
    if skew == 0.0:
        touched: Real = experts * _touched(tokens, experts_per_token / experts)
    else:
        values, where = np.unique(tokens, return_inverse=True)  # each number of tokens once: a sweep repeats them
        sums = sum(_touched(values, chance) for chance in _inclusion(int(experts), experts_per_token, skew))
        touched = np.asarray(sums)[where].reshape(np.shape(tokens))
    return touched if np.ndim(touched) else float(touched)


def rank_experts(distinct: Real, experts: float, held: float, imbalance: float = 1.0) -> Real:
    r"""
    Give the expected number of distinct experts that a pass touches on one expert-parallel rank.

    .. math:: D_r = \min\left(D\,\frac{E_r}{E}\,\lambda,\ E_r\right)

    Parameters
    ----------
    distinct : Real
        Distinct experts of the whole pass, :math:`D`: the chance that a token takes one is over all experts. [1]
    experts, held : float
        Experts in all and on the rank, :math:`E` and :math:`E_r`. [1]
    imbalance : float
        Load of the busiest rank over the mean, :math:`\lambda`, at least 1. [1]

    Returns
    -------
    experts : Real
        [1]

    References
    ----------
    The global number of experts in the chance: review of vllm-project/vllm pull request 54228.

    Examples
    --------
    >>> print([round(float(rank_experts(distinct_experts(n, 128, 8), 128, 16)), 2) for n in (1, 8, 64)])
    [1.0, 6.45, 15.74]
    """
    return np.minimum(distinct * (held / experts) * imbalance, held)


class DistinctExperts(NamedTuple):
    """Distinct experts of a pass: as few as routing can touch, what is expected, and what uniform routing gives."""

    least: float
    expected: Real
    uniform: Real


def distinct_experts_interval(
    tokens: Real, experts: float, experts_per_token: float, skew: float = 0.0
) -> DistinctExperts:
    r"""
    Give the interval that the expected number of distinct experts lies in, whatever the skew of the routing.

    .. math:: k \le D \le E\left(1 - (1 - k/E)^n\right)

    Parameters
    ----------
    tokens, experts, experts_per_token, skew
        As in :func:`distinct_experts`.

    Returns
    -------
    interval : DistinctExperts
        ``least`` is top-k (all tokens agree), ``uniform`` the other end, ``expected`` the figure at this skew. [1]

    Examples
    --------
    >>> distinct_experts_interval(1, 128, 8)
    DistinctExperts(least=8.0, expected=8.0, uniform=8.0)
    """
    uniform = distinct_experts(tokens, experts, experts_per_token)
    expected = distinct_experts(tokens, experts, experts_per_token, skew)
    return DistinctExperts(float(experts_per_token), _plain(expected), _plain(uniform))


def _plain(value: Real) -> Real:
    return value if np.ndim(value) else float(value)


def _touched(tokens: Real, chance: float) -> Real:
    """Chance that an expert is touched by some of the tokens, from its chance for one token."""
    if chance >= 1.0:
        return np.minimum(tokens, 1.0)
    # expm1 and log1p keep the first token exact: k of E, and not a rounding error beside it
    touched: Real = -np.expm1(tokens * np.log1p(-chance))
    return touched


@cache
def _inclusion(experts: int, experts_per_token: float, skew: float) -> tuple[float, ...]:
    """Chance of each expert for one token, capped at 1; the chances sum to the experts per token."""
    ranks = np.arange(1, experts + 1, dtype=np.float64)
    for full in range(experts):  # the most popular are always chosen; what is left goes to the others
        rest = (ranks[full:] / ranks[full]) ** -skew  # against the first of them, so that none underflows
        rest *= (experts_per_token - full) / rest.sum()
        if rest[0] <= 1.0:
            return (1.0,) * full + tuple(rest.tolist())
    return (1.0,) * experts


def expert_activation_elements(tokens: Real, experts_per_token: Real, width: Real, intermediate_size: Real) -> Real:
    r"""
    Values that a fused mixture moves besides its weights.

    .. math:: A = n\,(2 h + k\,(3 h + 3 i))

    Parameters
    ----------
    tokens, experts_per_token : Real
        :math:`n` and :math:`k`. [1]
    width, intermediate_size : Real
        Width that the experts work on and of one expert, :math:`h` and :math:`i`. [1]

    Returns
    -------
    elements : Real
        Tokens in and out once; for each expert of a token its input, gate and up, their product, and its output. [1]

    References
    ----------
    The byte count of the mixture law fitted on the kernel tables of ai-dynamo/aiconfigurator (commit 095f58a,
    Apache-2.0): 4 h n + n k (6 h + 6 i) at 16 bits.

    Examples
    --------
    >>> expert_activation_elements(1, 8, 2048, 768)
    71680.0
    """
    return tokens * (2.0 * width + experts_per_token * 3.0 * (width + intermediate_size))
