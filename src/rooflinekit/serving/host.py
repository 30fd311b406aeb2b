"""Host times: what an engine's own process adds to the seconds of a step."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rooflinekit.serving.engine import EngineProfile
from rooflinekit.specs.model import Model

Amount = float | NDArray[np.float64]


class Layers(NamedTuple):
    """Layers of a model, and those whose feed-forward is a mixture of experts."""

    all: int
    experts: int

    @classmethod
    def of(cls, model: Model) -> "Layers":
        """Count them."""
        experts = sum(run.times for run in model.layer_runs if run.feedforward.routed[0])
        return cls(model.layer_count, experts)


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
        How many the model has, and how many of experts.
    sequences, prompts, tokens : float or array
        In the step.

    Notes
    -----
    A step with prompt tokens that no graph holds is launched kernel by kernel: it takes as long as the slower of the
    device and the host. What a host does before and after a step is added.

    Examples
    --------
    >>> from rooflinekit.serving.engine import load_engine
    >>> slow = load_engine("vllm").with_(eager_layer_s=0.001, graphs="decode")
    >>> [float(with_host_s(slow, 0.010, Layers(80, 0), sequences=4, prompts=n, tokens=900)) for n in (0, 1)]
    [0.01, 0.08]
    """
    carries = np.asarray(prompts) > 0
    captured = profile.graphs == "pieces" and np.asarray(tokens) <= (profile.graph_max_tokens or 0)
    launched = np.where(carries & ~np.asarray(captured), profile.eager_layer_s * layers.all, 0.0)
    added = profile.step_host_s + profile.mixture_layer_s * layers.experts
    for_sequences = profile.sequence_host_s * np.asarray(sequences)
    return np.asarray(np.maximum(device_s, launched) + added + for_sequences + profile.prefill_step_host_s * carries)
