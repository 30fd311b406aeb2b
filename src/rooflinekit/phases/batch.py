"""Where a batch stops being free: the bend of a decode step over the batch."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rooflinekit.phases.crossover import first_root
from rooflinekit.specs.step import checked

if TYPE_CHECKING:
    from rooflinekit.phases.deployment import Deployment


def doubling_batch(deployment: "Deployment", context_tokens: float) -> float:
    r"""
    Find the batch whose decode step takes twice as long as that of a single sequence.

    .. math:: t(b) = 2\,t(1)

    Parameters
    ----------
    deployment : Deployment
        Whose memory is not checked here.
    context_tokens : float
        Tokens in the cache of each sequence before the step. [token]

    Returns
    -------
    batch : float
        [1]

    Notes
    -----
    Under it the sequences mostly share one read of the weights, over it each adds its own arithmetic and K and V.
    It exists wherever time grows with the batch, unlike the batch at which compute overtakes memory
    (:meth:`rooflinekit.Deployment.compute_bound_batch`), which long contexts put out of reach.

    Examples
    --------
    >>> import rooflinekit as rk
    >>> d = rk.Deployment("qwen3-8b", "gb10")
    >>> bend = doubling_batch(d, context_tokens=2048)
    >>> 40 < bend < 70, round(d.decode(2048, batch=bend).time_s / d.decode(2048).time_s, 6)
    (True, 2.0)
    """
    checked("context_tokens", context_tokens)
    free = deployment.with_(memory_check=False)
    single = free.decode(context_tokens).time_s

    def difference(batch: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(free.decode(context_tokens, batch=batch).time_s - 2.0 * single)

    return float(first_root(difference, np.ones(1))[0])
