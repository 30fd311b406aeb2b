"""Elasticities: by how many percent a phase's time changes where one quantity changes by one percent."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rooflinekit.operators.forward import features
from rooflinekit.phases.deployment import Deployment
from rooflinekit.roofline.timing import Timing, compile_timing
from rooflinekit.serving.changes import scaled_device
from rooflinekit.serving.host import LOADED_BUSY_S
from rooflinekit.specs.step import Group, checked, checked_group

if TYPE_CHECKING:
    import pandas as pd

#: Half the width of a central difference, as a part.
STEP = 0.05


class Sizes(NamedTuple):
    """Tokens of a prompt, tokens held before each of its phases, sequences of each phase."""

    prompt_tokens: float
    held_tokens: float
    context_tokens: float
    prompts: float
    batch: float


def elasticities(
    deployment: Deployment, *, prompt_tokens: float, context_tokens: float, batch: float = 1.0, cached_tokens: float = 0
) -> "pd.DataFrame":
    r"""
    Tabulate the elasticities of a prefill and of a decode step.

    .. math:: \epsilon = \frac{\mathrm{d} \ln t}{\mathrm{d} \ln x}

    Parameters
    ----------
    deployment : Deployment
    prompt_tokens, context_tokens : float
        Of the prefill, and held before the decode step. [token]
    batch : float
        Sequences of the decode step; the prefill reads one prompt. [1]
    cached_tokens : float
        Prefix that the cache already holds. [token]

    Returns
    -------
    table : DataFrame
        A row a quantity: ``change``, ``prefill``, ``decode``. -1: twice as much halves the time; 0: it does not matter.

    Raises
    ------
    InvalidInputError
        A size is not positive.

    Notes
    -----
    Central differences of 5% either way on the deployment's own timing in a loaded server: peaks of a copied device,
    bytes of the plan's weights. What is left of bandwidth and arithmetic is launches. ``context`` is what is held
    before the pass: nothing before a prefill without a cached prefix.

    Examples
    --------
    >>> import rooflinekit as rk
    >>> table = elasticities(rk.Deployment("qwen3-8b", "gb10"), prompt_tokens=2048, context_tokens=2048)
    >>> [f"{value:.1f}" for value in table.set_index("change").loc["memory bandwidth"]]
    ['-0.3', '-1.0']
    """
    import pandas as pd  # noqa: PLC0415 - loads on first use

    for name, value in (("prompt_tokens", prompt_tokens), ("context_tokens", context_tokens), ("batch", batch)):
        checked(name, value, positive=True)
    checked("cached_tokens", cached_tokens)
    sizes = Sizes(prompt_tokens - cached_tokens, cached_tokens, context_tokens, 1.0, batch)
    loose = deployment.with_(memory_check=False)
    rows = [(name, *_elasticity(partial(scale, loose, sizes))) for name, scale in SCALES]
    return pd.DataFrame(rows, columns=["change", "prefill", "decode"])


Times = tuple[float, float]


def _elasticity(times: Callable[[float], Times]) -> Times:
    """Difference both phases' times in the logarithm of a factor."""
    less, more = (np.log(times(factor)) for factor in (1.0 - STEP, 1.0 + STEP))
    slope = (more - less) / (np.log1p(STEP) - np.log1p(-STEP))
    return float(slope[0]) + 0.0, float(slope[1]) + 0.0


def _seconds(timing: Timing, sizes: Sizes) -> Times:
    """Time a prefill and a decode step."""
    prefill = checked_group(Group(sizes.prompt_tokens, sizes.held_tokens, sizes.prompts))
    decode = checked_group(Group(1.0, sizes.context_tokens, sizes.batch))
    prefill_s, decode_s = (
        float(timing.total_s(features(timing.plan.features, (group,)), LOADED_BUSY_S)[0]) for group in (prefill, decode)
    )
    return prefill_s, decode_s


def _bandwidth(deployment: Deployment, sizes: Sizes, factor: float) -> Times:
    return _seconds(deployment.with_(device=scaled_device(deployment.device, bandwidth=factor)).timing, sizes)


def _flops(deployment: Deployment, sizes: Sizes, factor: float) -> Times:
    return _seconds(deployment.with_(device=scaled_device(deployment.device, flops=factor)).timing, sizes)


def _prompt(deployment: Deployment, sizes: Sizes, factor: float) -> Times:
    grown = (factor - 1.0) * (sizes.prompt_tokens + sizes.held_tokens)
    changed = sizes._replace(
        prompt_tokens=sizes.prompt_tokens + grown, context_tokens=max(sizes.context_tokens + grown, 0.0)
    )
    return _seconds(deployment.timing, changed)


def _context(deployment: Deployment, sizes: Sizes, factor: float) -> Times:
    held = sizes._replace(held_tokens=factor * sizes.held_tokens, context_tokens=factor * sizes.context_tokens)
    return _seconds(deployment.timing, held)


def _batch(deployment: Deployment, sizes: Sizes, factor: float) -> Times:
    return _seconds(deployment.timing, sizes._replace(prompts=factor * sizes.prompts, batch=factor * sizes.batch))


def _weight_bits(deployment: Deployment, sizes: Sizes, factor: float) -> Times:
    timing = deployment.timing
    lighter = replace(timing.plan, weight_bytes=factor * timing.plan.weight_bytes)
    return _seconds(compile_timing(lighter, timing.rates, timing.laws), sizes)


SCALES: tuple[tuple[str, Callable[[Deployment, Sizes, float], Times]], ...] = (
    ("memory bandwidth", _bandwidth),
    ("arithmetic (FLOPS)", _flops),
    ("weight bits", _weight_bits),
    ("prompt length", _prompt),
    ("context", _context),
    ("batch", _batch),
)
