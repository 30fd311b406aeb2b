"""What a deployment holds in memory: weights, and the KV cache of its sequences."""

import sys
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rooflinekit import units
from rooflinekit.errors import ContextLengthWarning, DoesNotFitError
from rooflinekit.operators.kv_cache import kv_cache_bytes
from rooflinekit.specs.model import Model
from rooflinekit.specs.precision import Precision
from rooflinekit.specs.step import Group, amount

if TYPE_CHECKING:
    from rooflinekit.phases.deployment import Deployment

Amount = float | NDArray[np.float64]


class CacheShape(NamedTuple):
    """Values that one token adds, by window: layers of one window are counted together."""

    values_by_window: tuple[tuple[int | None, float], ...]
    bytes_per_value: float

    @property
    def bytes_per_token(self) -> float:
        """Bytes that one token writes over all layers."""
        return sum(values for _, values in self.values_by_window) * self.bytes_per_value

    def held(self, tokens: Amount) -> Amount:
        """Bytes that one sequence of so many tokens holds."""
        held: Amount = 0.0
        for window, values in self.values_by_window:
            held = held + kv_cache_bytes(values, tokens, self.bytes_per_value, window)
        return held


def cache_shape(model: Model, precision: Precision) -> CacheShape:
    """Sum the layers' cached values by window."""
    if model.summary is not None:
        values = 2.0 * model.summary.layers * model.summary.kv_heads * model.summary.head_dim
        return CacheShape(((None, values),), precision.kv_bytes)
    sums: dict[int | None, float] = {}
    for run in model.layer_runs:
        sums[run.mixer.window] = sums.get(run.mixer.window, 0.0) + run.times * run.mixer.cached_per_token
    return CacheShape(tuple(sums.items()), precision.kv_bytes)


def stored_weight_bytes(model: Model, precision: Precision) -> float:
    """Count the bytes of all weights: the blocks' matrices in their format, the rest in the model's own dtype.

    The input embedding is stored whole, though a pass gathers only the rows that it needs.
    """
    parameters = model.parameters
    rest = parameters.total - parameters.block_matrices
    return parameters.block_matrices * precision.weights.bytes_per_weight + rest * precision.value_bytes


def check_sizes(deployment: "Deployment", groups: tuple[Group, ...]) -> None:
    """Warn of a context that the model was not made for; refuse what the memory cannot hold."""
    lengths = [amount(group.new_tokens) + amount(group.context_tokens) for group in groups]
    longest = max(length if isinstance(length, float) else float(length.max()) for length in lengths)
    limit = deployment.model.max_context_tokens
    if limit is not None and longest > limit:
        message = f"{units.count(longest)} tokens exceed the {limit:,} that {deployment.model.id} was made for"
        warnings.warn(message, ContextLengthWarning, stacklevel=_callers_level())
    if deployment.memory_check:
        _require_fit(deployment, lengths, [amount(group.sequences) for group in groups])


def _callers_level() -> int:
    """Stack level of the first line outside the library, so that a warning points at who asked."""
    level, frame = 1, sys._getframe(1)  # noqa: SLF001 - `warnings` can skip files by itself only from Python 3.12 on
    while frame.f_back is not None and str(frame.f_globals.get("__name__", "")).split(".")[0] == "rooflinekit":
        level, frame = level + 1, frame.f_back
    return level


def _require_fit(deployment: "Deployment", lengths: Sequence[Amount], sequences: Sequence[Amount]) -> None:
    """Raise an error that says how much is missing, where weights and the caches of all groups exceed the memory."""
    device, memory = deployment.device, deployment.device.memory_bytes
    held: Amount = 0.0
    for length, many in zip(lengths, sequences, strict=True):
        held = held + deployment.cache.held(length) * many
    worst = held if isinstance(held, float) else float(np.max(held))
    weights = deployment.weights_bytes
    if memory is None or weights + worst <= memory:
        return
    message = (
        f"{deployment.model.id} does not fit on {device.id}: weights {units.binary_bytes(weights)} and KV cache "
        f"{units.binary_bytes(worst)} need {units.binary_bytes(weights + worst - memory)} more than its "
        f"{units.binary_bytes(memory)}. Use fewer sequences, a shorter context, smaller weights (`weights=`) or "
        "KV (`kv_cache=`), or memory_check=False"
    )
    raise DoesNotFitError(message)
