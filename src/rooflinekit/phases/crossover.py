r"""Where the phases turn: one root-finder, vectorised bisection, for every question of the form "from where on?"."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rooflinekit import units
from rooflinekit.errors import InvalidInputError
from rooflinekit.operators.cost import SAMPLED, Matrix
from rooflinekit.operators.forward import features
from rooflinekit.phases.row import Value
from rooflinekit.specs.step import Group, Real, checked

if TYPE_CHECKING:
    from rooflinekit.phases.deployment import Deployment

#: Far beyond any prompt or batch that a server holds; a root beyond it is no answer.
LIMIT = 2.0**26


@dataclass(frozen=True)
class Crossover:
    """
    The prompt length at which compute time equals memory time, with the two rates it was found under.

    ``tokens`` counts weights and activations exactly, a mixture's as its prompt touches them; ``closed_form_tokens`` is
    W F / (2 P B), which leaves the activations out. Infinity comes with a `reason`.
    """

    tokens: float
    closed_form_tokens: float
    flops_per_s: float
    bytes_per_s: float
    scope: str
    peaks: str
    reason: str = ""

    def __repr__(self) -> str:
        """Give one line."""
        rates = f"{units.si(self.flops_per_s, 'FLOP/s')} over {units.si(self.bytes_per_s, 'B/s')}, {self.peaks}"
        found = f"{self.tokens:,.0f} tokens" if np.isfinite(self.tokens) else f"never: {self.reason}"
        return f"crossover of the {self.scope}: {found} (closed form {self.closed_form_tokens:,.0f}; {rates})"


def crossover_tokens(*, flops_per_s: Real, bytes_per_s: Real, bytes_per_weight: Real = 2.0) -> Value:
    r"""
    Prompt length under which a prefill costs one read of the weights, for any two peaks.

    .. math:: N = \frac{b_w\,F}{2\,B}

    Parameters
    ----------
    flops_per_s, bytes_per_s : Real
        Arithmetic and memory rate, :math:`F` and :math:`B`. [FLOP/s], [byte/s]
    bytes_per_weight : Real
        :math:`b_w`: 2 for 16-bit weights, 1 for FP8 weights with 16-bit arithmetic. [byte]

    Returns
    -------
    tokens : float or array
        [token]

    Raises
    ------
    InvalidInputError
        A rate is not a positive number.

    Notes
    -----
    Matrix products only, activations left out; :meth:`rooflinekit.Deployment.crossover` counts them.

    References
    ----------
    "Prefill vs. Decode" says about 340 on GB10: 94 TFLOPS measured over 273 GB/s from the datasheet, which is no single
    set of peaks. Both measured give 390, both from the datasheet 458.

    Examples
    --------
    >>> print([round(crossover_tokens(flops_per_s=f, bytes_per_s=b)) for f, b in
    ...        ((94e12, 273e9), (94e12, 241e9), (125e12, 273e9))])
    [344, 390, 458]
    """
    for name, value in (
        ("flops_per_s", flops_per_s),
        ("bytes_per_s", bytes_per_s),
        ("bytes_per_weight", bytes_per_weight),
    ):
        checked(name, value, positive=True)
    tokens = np.asarray(bytes_per_weight) * np.asarray(flops_per_s, dtype=np.float64) / (2.0 * np.asarray(bytes_per_s))
    return float(tokens) if np.ndim(tokens) == 0 else tokens


def first_root(
    difference: Callable[[NDArray[np.float64]], NDArray[np.float64]], low: NDArray[np.float64], high: float = LIMIT
) -> NDArray[np.float64]:
    """Find by bisection where a rising difference passes zero: `low` if it already has, infinity if it never does."""
    left, right = np.array(low, dtype=np.float64), np.full_like(low, high)
    begun, ends = difference(left) >= 0.0, difference(right) >= 0.0
    for _ in range(64):
        middle = 0.5 * (left + right)
        above = difference(middle) >= 0.0
        left, right = np.where(above, left, middle), np.where(above, middle, right)
    return np.where(begun, low, np.where(ends, right, np.inf))


def find_crossover(deployment: "Deployment", scope: str) -> Crossover:
    """Find the prompt length at which compute time equals memory time: of the products, or of the whole pass."""
    if scope not in ("products", "pass"):
        message = f"scope={scope!r}: expected 'products' or 'pass'"
        raise InvalidInputError(message)
    deployment.timing.require_peaks()
    blocks = _block_products(deployment)
    tokens = _where_times_meet(deployment, blocks if scope == "products" else np.ones_like(blocks))
    endless = f"each token moves more bytes than {deployment.device.id} computes meanwhile"
    return Crossover(
        tokens=tokens,
        **_closed_form(deployment, blocks),
        scope=scope,
        peaks=_peaks_named(deployment),
        reason="" if np.isfinite(tokens) else endless,
    )


def _where_times_meet(deployment: "Deployment", rows: NDArray[np.bool_]) -> float:
    """Find the prompt length at which some operators compute for as long as they move bytes."""
    timing = deployment.timing
    gap = (timing.compute - timing.memory - timing.serial)[rows].sum(axis=0)

    def difference(tokens: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(gap @ features(deployment.plan.features, (Group(tokens, 0, 1),)))

    return float(first_root(difference, np.ones(1))[0])


def _closed_form(deployment: "Deployment", blocks: NDArray[np.bool_]) -> dict[str, float]:
    """Give the closed form over the blocks' products, weights alone, and the two rates in it."""
    plan, timing = deployment.plan, deployment.timing
    everything = features(plan.features, (Group(LIMIT, 0, 1),))[:, 0]  # a mixture has touched all experts
    weights = plan.weight_bytes[blocks] @ everything
    rates = np.array([law.bytes_per_s for law in timing.row_laws])[blocks]
    flops, compute_s = ((matrix[blocks] @ everything).sum() / LIMIT for matrix in (plan.flops, timing.compute))
    read_s = (weights / rates).sum()
    return {
        "closed_form_tokens": float(read_s / compute_s),
        "flops_per_s": float(flops / compute_s),
        "bytes_per_s": float(weights.sum() / read_s),
    }


def _peaks_named(deployment: "Deployment") -> str:
    given = deployment.efficiency
    return (
        f"{given} peaks" if given in ("measured", "datasheet") else f"rates reached by {deployment.timing.laws.basis}"
    )


def _block_products(deployment: "Deployment") -> NDArray[np.bool_]:
    """Select the products and experts that run over every token: the output layer does not."""
    plan = deployment.plan
    classes = np.array([row.op_class in ("product", "mixture") for row in plan.rows])
    columns = [feature.kind == SAMPLED.kind for feature in plan.features]
    sampled = plan.flops[:, columns].any(axis=1)
    chosen: NDArray[np.bool_] = classes & ~sampled
    return chosen


def _decode_features(deployment: "Deployment", context: Real, batch: Real) -> Matrix:
    return features(deployment.plan.features, (Group(1, context, batch),))


def compute_bound_batch(deployment: "Deployment", context_tokens: Real) -> Value:
    """Find the batch from which compute time exceeds memory time in a decode step."""
    timing = deployment.timing
    timing.require_peaks()
    context = np.atleast_1d(np.asarray(checked("context_tokens", context_tokens), dtype=np.float64))
    gap = (timing.compute - timing.memory - timing.serial).sum(axis=0)

    def difference(batch: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(gap @ _decode_features(deployment, context, batch))

    found = first_root(difference, np.ones_like(context))
    return float(found[0]) if np.ndim(context_tokens) == 0 else found.reshape(np.shape(context_tokens))


def kv_parity_tokens(deployment: "Deployment", batch: Real) -> Value:
    """Find the context at which the KV bytes of a decode step equal its weight bytes."""
    sequences = np.atleast_1d(np.asarray(checked("batch", batch, positive=True), dtype=np.float64))
    gap = (deployment.plan.kv_bytes - deployment.plan.weight_bytes).sum(axis=0)

    def difference(context: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(gap @ _decode_features(deployment, context, sequences))

    found = first_root(difference, np.zeros_like(sequences))
    return float(found[0]) if np.ndim(batch) == 0 else found.reshape(np.shape(batch))
