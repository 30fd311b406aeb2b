"""Speculative decoding: a draft proposes tokens, one step of the model verifies them; from which acceptance it pays."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rooflinekit import units
from rooflinekit.errors import InvalidInputError
from rooflinekit.operators.forward import features
from rooflinekit.phases.crossover import first_root
from rooflinekit.phases.deployment import Deployment
from rooflinekit.serving.host import LOADED_BUSY_S
from rooflinekit.specs.step import Group, Real, amount, checked

if TYPE_CHECKING:
    import pandas as pd

Values = NDArray[np.float64]
#: Drafts that are looked through for the best: acceptance falls off long before.
MOST_DRAFTED = 16
#: A draft that is part of the model: one more layer and the output layer. The model must have such a module.
MODULE = "mtp"
#: The same where the model has none: what one would do that was trained for it, as EAGLE's are.
IMAGINED = "module"
#: Draft model where it runs, cost of a drafted token as a part of a decode step, :data:`MODULE` or :data:`IMAGINED`.
Draft = Deployment | float | str


def expected_tokens(acceptance: Real, drafted: Real) -> float | Values:
    r"""
    Tokens that a verification step is expected to give.

    .. math:: E = \frac{1 - a^{k+1}}{1 - a}

    Parameters
    ----------
    acceptance : Real
        Chance :math:`a` that a drafted token is accepted, each alike and for itself. [1]
    drafted : Real
        Tokens drafted for a step, :math:`k`. [token]

    Returns
    -------
    tokens : float or array
        The accepted ones up to the first that is not, and the one that the model itself gives there. [token]

    References
    ----------
    Leviathan, Kalman and Matias, "Fast Inference from Transformers via Speculative Decoding", equation 1.

    Examples
    --------
    >>> [round(float(expected_tokens(a, 4)), 4) for a in (0.0, 0.5, 0.8, 1.0)]
    [1.0, 1.9375, 3.3616, 5.0]
    """
    a, k = np.asarray(amount(acceptance)), np.asarray(amount(drafted))
    with np.errstate(invalid="ignore", divide="ignore"):
        tokens = np.where(a >= 1.0, k + 1.0, (1.0 - a ** (k + 1.0)) / (1.0 - a))
    return amount(tokens)


@dataclass(frozen=True)
class Speculation:
    """
    What speculation makes of a decode step.

    Attributes
    ----------
    acceptance, drafted, batch, context_tokens
        What was asked; `drafted` is the best number of tokens where none was given.
    tokens_per_step : float
        Of one sequence. [token]
    plain_s, draft_s, verify_s : float
        A decode step without, all passes of the draft, the step that verifies. [s]
    break_even_acceptance : float
        From which these `drafted` tokens pay; infinity where none is enough. [1]
    reason : str
        Why there is none.
    basis : str
        Whose constants, and what the draft costs.
    """

    acceptance: float
    drafted: int
    batch: float
    context_tokens: float
    tokens_per_step: float
    plain_s: float
    draft_s: float
    verify_s: float
    break_even_acceptance: float
    reason: str
    basis: str

    @property
    def step_s(self) -> float:
        """Draft and verification together: the gap between two bursts of tokens. [s]"""
        return self.draft_s + self.verify_s

    @property
    def time_per_output_token_s(self) -> float:
        """Mean time per token of one sequence. [s]"""
        return self.step_s / self.tokens_per_step

    @property
    def speedup(self) -> float:
        """Rate with speculation over the rate without; under 1 it does not pay."""
        return self.plain_s / self.time_per_output_token_s

    @property
    def pays(self) -> bool:
        """Whether tokens come faster than without."""
        return self.speedup > 1.0

    def __repr__(self) -> str:
        """Give one line."""
        times = f"TPOT {units.duration(self.time_per_output_token_s)} against {units.duration(self.plain_s)}"
        even = self.break_even_acceptance
        bound = f"pays from an acceptance of {even:.2f}" if np.isfinite(even) else f"never pays: {self.reason}"
        return f"{self.drafted} drafted, {self.tokens_per_step:.3g} tokens a step: {times}; {bound} ({self.basis})"


def speculate(
    deployment: Deployment,
    *,
    acceptance: float,
    context_tokens: float,
    batch: float = 1.0,
    drafted: int | None = None,
    draft: Draft = MODULE,
) -> Speculation:
    r"""
    Estimate decoding with speculation: a draft model, or the model's own prediction module.

    .. math:: \mathrm{TPOT} = \frac{k\,t_d + t(b \times (k + 1)\ \text{new})}{E(a, k)}

    Parameters
    ----------
    deployment : Deployment
        The model that verifies.
    acceptance : float
        Chance that a drafted token is accepted, from 0 to 1: measured, never assumed. [1]
    context_tokens : float
        Held by each sequence before the step. [token]
    batch : float
        Sequences in the step. [1]
    drafted : int, optional
        Tokens drafted for a step; None takes the best number up to 16.
    draft : Deployment, float, "mtp" or "module"
        The draft model where it runs; what a drafted token costs as a part of a decode step (0 for n-grams of the
        prompt); ``"mtp"``, the model's own prediction module: one more layer and the output layer; or ``"module"``, the
        same of a module that the model does not have and that would have to be trained (EAGLE).

    Returns
    -------
    speculation : Speculation

    Raises
    ------
    InvalidInputError
        The acceptance lies outside [0, 1], a size is not positive, or the model has no prediction module.

    Notes
    -----
    Verification is a step like any other: k + 1 new tokens a sequence with as many sampled positions, weights read
    once. Drafts run one after another, each a decode step of the draft. A loaded server is taken: no burst of clocks.

    Examples
    --------
    >>> import rooflinekit as rk
    >>> d = rk.Deployment("qwen3-8b", "gb10")
    >>> s = speculate(d, acceptance=0.7, context_tokens=2048, draft=rk.Deployment("qwen3-0.6b", "gb10"))
    >>> s.drafted, 1.5 < s.speedup < 3
    (4, True)
    """
    question = _Question(deployment, acceptance, context_tokens, batch, draft)
    counts = np.arange(1, MOST_DRAFTED + 1) if drafted is None else np.array([_drafted(drafted)])
    return question.best(counts.astype(np.float64))


def speculation_table(
    deployment: Deployment,
    *,
    acceptance: float,
    context_tokens: float,
    batch: Sequence[float] = (1, 2, 4, 8, 16, 32, 64, 128),
    drafted: int | None = None,
    draft: Draft = MODULE,
) -> "pd.DataFrame":
    """
    Tabulate speculation over batch sizes: a batch that uses up the arithmetic leaves nothing to verify with.

    Parameters
    ----------
    deployment, acceptance, context_tokens, drafted, draft
        As for :func:`speculate`.
    batch : sequence of float
        Batch sizes.

    Returns
    -------
    table : DataFrame
        A row a batch, ``drafted`` the best number for it unless given.

    Examples
    --------
    >>> import rooflinekit as rk
    >>> d = rk.Deployment("llama-3.1-8b", "h100-sxm")
    >>> table = speculation_table(d, acceptance=0.7, context_tokens=1000, batch=[1, 256], draft=0.1)
    >>> bool(table["speedup"][0] > table["speedup"][1])
    True
    """
    import pandas as pd  # noqa: PLC0415 - loads on first use

    found = [
        speculate(
            deployment, acceptance=acceptance, context_tokens=context_tokens, batch=one, drafted=drafted, draft=draft
        )
        for one in batch
    ]
    names = (
        "batch", "drafted", "tokens_per_step", "plain_s", "draft_s", "verify_s", "time_per_output_token_s", "speedup",
        "break_even_acceptance",
    )  # fmt: skip
    return pd.DataFrame([{name: getattr(one, name) for name in names} for one in found])


class _Question:
    """One batch and context: seconds of the steps for every number of drafted tokens."""

    def __init__(
        self, deployment: Deployment, acceptance: float, context_tokens: float, batch: float, draft: Draft
    ) -> None:
        self.deployment, self.acceptance = deployment.with_(memory_check=False), checked_acceptance(acceptance)
        self.context = float(checked("context_tokens", context_tokens))  # type: ignore[arg-type]
        self.batch = float(checked("batch", batch, positive=True))  # type: ignore[arg-type]
        self.draft = _checked_draft(draft, deployment)
        self.plain_s = float(_seconds(self.deployment, Group(1.0, self.context, self.batch))[0])

    def best(self, counts: Values) -> Speculation:
        """Choose the number of drafted tokens that gives the shortest time per token."""
        verify = _seconds(self.deployment, Group(counts + 1.0, self.context, self.batch, counts + 1.0))
        drafts = counts * self._draft_s
        each = (drafts + verify) / expected_tokens(self.acceptance, counts)
        at = int(np.argmin(each))
        count, draft_s, verify_s = float(counts[at]), float(drafts[at]), float(verify[at])
        even, reason = break_even(count, (draft_s + verify_s) / self.plain_s)
        return Speculation(
            acceptance=self.acceptance, drafted=int(count), batch=self.batch, context_tokens=self.context,
            tokens_per_step=float(expected_tokens(self.acceptance, count)), plain_s=self.plain_s, draft_s=draft_s,
            verify_s=verify_s, break_even_acceptance=even, reason=reason, basis=self._basis,
        )  # fmt: skip

    @property
    def _draft_s(self) -> float:
        group = Group(1.0, self.context, self.batch)
        if isinstance(self.draft, float):
            return self.draft * self.plain_s
        if isinstance(self.draft, Deployment):
            return float(_seconds(self.draft.with_(memory_check=False), group)[0])
        return module_s(self.deployment, group)

    @property
    def _basis(self) -> str:
        draft, module = self.draft, "one more layer and the output layer"
        module = f"a module that the model does not have: {module}" if draft == IMAGINED else module
        part = f"{draft:.0%} of a step" if isinstance(draft, float) else module
        told = draft.model.id if isinstance(draft, Deployment) else part
        return f"draft: {told}; {self.deployment.timing.laws.basis}"


def module_s(deployment: Deployment, group: Group) -> float:
    """Time a pass of a module of one layer of the model and its output layer, which is shared."""
    timing = deployment.timing
    sampled = {index for index, feature in enumerate(timing.plan.features) if feature.kind in ("sampled", "sampling")}
    head = np.array([bool(sampled & set(np.flatnonzero(row))) for row in timing.plan.flops])
    rows_s = timing.rows_s(features(timing.plan.features, (group,)), LOADED_BUSY_S)[:, 0]
    return float(rows_s[head].sum() + rows_s[~head].sum() / deployment.model.layer_count)


def break_even(drafted: float, cost: float) -> tuple[float, str]:
    """
    Solve for the acceptance at which a speculative step gives as many tokens as its cost in plain steps.

    Parameters
    ----------
    drafted : float
        Tokens drafted for a step. [token]
    cost : float
        Draft and verification over a plain decode step. [1]

    Returns
    -------
    acceptance, reason : float, str
        0 where it costs nothing more; infinity and why where even certain acceptance is not enough.

    Examples
    --------
    One token drafted: E = 1 + a.

    >>> round(break_even(1, 1.25)[0], 6), break_even(1, 2.5)[0]
    (0.25, inf)
    """
    found = float(first_root(lambda a: np.asarray(expected_tokens(a, drafted)) - cost, np.zeros(1), 1.0)[0])
    if np.isfinite(found):
        return found, ""
    return found, f"draft and verification cost {cost:.2f} steps and give {drafted + 1:g} tokens at most"


def _seconds(deployment: Deployment, group: Group) -> Values:
    """Time steps of a loaded server, one for each number of new tokens."""
    timing = deployment.timing
    timing.require_peaks()
    return timing.total_s(features(timing.plan.features, (group,)), LOADED_BUSY_S)


def checked_acceptance(acceptance: object) -> float:
    """Return an acceptance, or say that it is a chance."""
    if isinstance(acceptance, bool) or not isinstance(acceptance, int | float) or not 0.0 <= acceptance <= 1.0:
        message = f"acceptance={acceptance!r}: expected a number from 0 to 1, the part of drafted tokens that is kept"
        raise InvalidInputError(message)
    return float(acceptance)


def has_module(deployment: Deployment) -> bool:
    """Tell whether the model brings a module that predicts further tokens."""
    return deployment.model.prediction_module is not None


def _checked_draft(draft: Draft, deployment: Deployment) -> Draft:
    if draft == MODULE and not has_module(deployment):
        message = (
            f"draft={MODULE!r}: {deployment.model.id} has no prediction module: expected a draft model, the cost of a "
            f"drafted token in decode steps, or {IMAGINED!r} for a module that would have to be trained for it"
        )
        raise InvalidInputError(message)
    if isinstance(draft, Deployment) or draft in (MODULE, IMAGINED):
        return draft
    if isinstance(draft, str):
        message = (
            f"draft={draft!r}: expected a Deployment, the cost of a drafted token in steps, {MODULE!r} or {IMAGINED!r}"
        )
        raise InvalidInputError(message)
    return float(checked("draft", draft))  # type: ignore[arg-type]


def _drafted(count: int) -> int:
    checked("drafted", count, minimum=1, whole=True)
    return int(count)
