"""Host times: what an engine's own process adds to the seconds of a step."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rooflinekit import units
from rooflinekit.errors import InvalidInputError, UnknownNameError
from rooflinekit.phases.deployment import Deployment
from rooflinekit.roofline.laws import same_engine
from rooflinekit.serving.engine import EngineProfile, load_engine
from rooflinekit.serving.profile_files import asked
from rooflinekit.specs.step import Group

Amount = float | NDArray[np.float64]
#: Compute-bound work just before a step of a loaded server, ``busy_s``: no burst of clocks is left. [s]
LOADED_BUSY_S = float("inf")
#: Whose scheduler serves where nobody says.
_USUAL = "vllm"


class Layers(NamedTuple):
    """Layers of a model, those whose feed-forward is a mixture, and the host's time that a pass of it holds already."""

    all: int
    experts: int
    pause_s: float = 0.0

    @classmethod
    def of(cls, deployment: Deployment) -> "Layers":
        """Count them; the pause is what single-stream rates show of an engine (`step_us` of its efficiency)."""
        experts = sum(run.times for run in deployment.model.layer_runs if run.feedforward.routed[0])
        return cls(deployment.model.layer_count, experts, deployment.timing.laws.step_us * units.MICRO)


def profile_for(deployment: object, engine: str | EngineProfile | None = None) -> EngineProfile:
    """
    Load the profile that is asked for; where none is, that of the deployment's own engine, and vLLM's for others.

    Raises
    ------
    InvalidInputError
        What serves is no deployment.

    Examples
    --------
    >>> import rooflinekit as rk
    >>> profile_for(rk.Deployment("llama-3.1-8b", "rtx-4090", engine="llama.cpp")).engine
    'llama.cpp'
    """
    if not isinstance(deployment, Deployment):
        message = f"deployment={deployment!r}: expected what serves, Deployment(model, device)"
        raise InvalidInputError(message)
    if engine is not None:
        return load_engine(engine)
    try:
        return load_engine(deployment.engine or _USUAL)
    except UnknownNameError:
        return load_engine(_USUAL)


def basis_of(deployment: Deployment, profile: EngineProfile) -> str:
    """Say whose constants and whose scheduler stand behind a figure, and where they are not of one engine."""
    own = deployment.engine
    mixed = own is not None and not same_engine(asked(own).engine, profile.engine)
    beside = f" (its scheduler beside constants asked for {own})" if mixed else ""
    return f"{deployment.timing.laws.basis}, {profile.id}{beside}"


def served_by(deployment: Deployment, profile: EngineProfile) -> Deployment:
    """
    Take constants of the engine whose scheduler serves, where none is named and the device's own are another engine's.

    What was measured on the device under PyTorch stays: those are the kernels that servers call.

    Examples
    --------
    >>> import rooflinekit as rk
    >>> from rooflinekit.serving.engine import load_engine
    >>> [served_by(rk.Deployment("llama-3.1-8b", name), load_engine("vllm")).engine for name in ("l40s", "h200-sxm")]
    ['vllm', None]
    """
    lead = deployment.timing.laws.chain[0].engine
    fits = lead is None or lead.startswith("pytorch") or same_engine(lead, profile.engine)
    return deployment if deployment.engine or fits else deployment.with_(engine=profile.engine)


def with_host_s(
    profile: EngineProfile, device_s: Amount, layers: "Layers", *, sequences: Amount, prompts: Amount, tokens: Amount
) -> NDArray[np.float64]:
    """
    Give the seconds of a step on an engine.

    Parameters
    ----------
    profile : EngineProfile
        Host times, and which steps replay a captured graph.
    device_s : float or array
        What the device takes. [s]
    layers : Layers
        How many the model has and how many of experts, and the host's time for a pass that `device_s` holds.
    sequences, prompts, tokens : float or array
        In the step.

    Notes
    -----
    A step with prompt tokens that no graph holds is launched kernel by kernel: it takes as long as the slower of the
    device and the host. What a host does before and after a step is added. A server's own host times take the place of
    the pause that single streams show: served rows have none beside them.

    Examples
    --------
    >>> from rooflinekit.serving.engine import load_engine
    >>> slow = load_engine("vllm").with_(eager_layer_s=0.001, graphs="decode", prefill_step_host_s=0)
    >>> [float(with_host_s(slow, 0.010, Layers(80, 0), sequences=4, prompts=n, tokens=900)) for n in (0, 1)]
    [0.01, 0.08]
    """
    carries = prompts > 0
    captured_tokens = (profile.graph_max_tokens or 0) if profile.graphs == "pieces" else 0
    launched_s = profile.eager_layer_s * layers.all * (carries & (tokens > captured_tokens))
    added_s = profile.step_host_s + profile.mixture_layer_s * layers.experts + profile.sequence_host_s * sequences
    if profile.mode == "serve":
        device_s = device_s - layers.pause_s
    return np.asarray(_slower(device_s, launched_s) + added_s + profile.prefill_step_host_s * carries)


def _slower(device_s: Amount, host_s: float | NDArray[np.floating[Any]]) -> float | NDArray[np.floating[Any]]:
    """Give the longer one; a simulator asks for one step a million times, where NumPy's maximum would be most of it."""
    if isinstance(device_s, float) and isinstance(host_s, float):
        return max(device_s, host_s)
    return np.maximum(device_s, host_s)


def loaded_step_s(
    deployment: Deployment, profile: EngineProfile, *, chunks: Group | None = None, decoding: Group | None = None
) -> NDArray[np.float64]:
    """
    Give the seconds of a loaded server's step: chunks of prompts, decoding sequences or both, host times included.

    Parameters
    ----------
    deployment : Deployment
        What serves.
    profile : EngineProfile
        Whose host times.
    chunks, decoding : Group, optional
        One of them at least; their entries may be arrays.

    Returns
    -------
    step_s : array

    Examples
    --------
    A chunk beside 8 sequences costs less than a step of each:

    >>> import rooflinekit as rk
    >>> from rooflinekit.serving.engine import load_engine
    >>> server = rk.Deployment("llama-3.1-8b", "h100-sxm"), load_engine("vllm")
    >>> work = {"chunks": Group(512.0, 0.0), "decoding": Group(1.0, 2048.0, 8.0)}
    >>> bool(loaded_step_s(*server, **work) < sum(loaded_step_s(*server, **{name: work[name]}) for name in work))
    True
    """
    groups = [one for one in (chunks, decoding) if one is not None]
    device_s = deployment.step(*groups, busy_s=LOADED_BUSY_S).time_s
    prompts = 0.0 if chunks is None else np.asarray(chunks.sequences)
    running = 0.0 if decoding is None else np.asarray(decoding.sequences)
    read = 0.0 if chunks is None else np.multiply(chunks.new_tokens, chunks.sequences)
    layers = Layers.of(deployment)
    return with_host_s(
        profile, device_s, layers, sequences=prompts + running, prompts=prompts, tokens=read + running
    )  # fmt: skip
