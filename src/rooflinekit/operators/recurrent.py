r"""Work of mixers whose sequences hold a state of constant size: the same for every token, whatever the context."""

import numpy as np
from numpy.typing import NDArray

Real = float | NDArray[np.float64]


def convolution_flops(tokens: Real, channels: Real, kernel: Real) -> Real:
    r"""
    Operations of a causal convolution over a few tokens, channel by channel.

    .. math:: F = 2\,n\,c\,k

    Parameters
    ----------
    tokens, channels, kernel : Real
        New tokens, channels and tokens spanned. [1]

    Returns
    -------
    flops : Real
        [FLOP]

    Examples
    --------
    Qwen3-Next, 8,192 channels over 4 tokens:

    >>> convolution_flops(1, 8192, 4)
    65536.0
    """
    return 2.0 * tokens * channels * kernel


def state_traffic_bytes(sequences: Real, values: Real, bytes_per_value: Real) -> Real:
    r"""
    Bytes of the states that a pass reads and writes back, whatever the number of tokens.

    .. math:: Q = 2\,s\,v\,b

    Parameters
    ----------
    sequences : Real
        Sequences in the pass. [1]
    values, bytes_per_value : Real
        State of one sequence in one layer. [1], [byte]

    Returns
    -------
    activation_bytes : Real
        [byte]

    Notes
    -----
    A decode step moves it once a token, a prefill once a prompt: long prompts share it.

    Examples
    --------
    Qwen3-Next, 32 heads of 128 x 128 in 32 bits:

    >>> state_traffic_bytes(1, 32 * 128 * 128, 4)
    4194304.0
    """
    return 2.0 * sequences * values * bytes_per_value
