"""What one GPU holds of a deployment: its part of the weights and of what every layer caches."""

from collections.abc import Iterator
from typing import NamedTuple

from rooflinekit.phases.deployment import Deployment
from rooflinekit.serving.pages import LayerKind
from rooflinekit.specs.mixers import Mixer
from rooflinekit.specs.model import Layer, Model
from rooflinekit.specs.parameters import layer_products

#: Bytes of one 32-bit value.
FLOAT_BYTES = 4.0


class Share(NamedTuple):
    """Weights of one GPU, what its layers hold, the widths that set the peak of a pass.

    ``engines`` are groups that serve sequences of their own, each with its own pool.
    """

    weight_bytes: float
    kinds: tuple[LayerKind, ...]
    hidden_size: int
    widest: int
    vocabulary: int
    gpus: int
    engines: int

    @property
    def kv_bytes_per_token(self) -> float:
        """Bytes that a token adds to the cache of one GPU."""
        return sum((kind.layers * kind.bytes_per_token for kind in self.kinds), 0.0)

    @property
    def state_bytes(self) -> float:
        """Bytes of a sequence's states on one GPU."""
        return sum((kind.layers * kind.state_bytes for kind in self.kinds), 0.0)


class StateFormat(NamedTuple):
    """How an engine keeps states: bytes of a scan value (None is the model's own), tokens that it speculates ahead."""

    value_bytes: float | None = None
    speculative_tokens: int = 0


#: States as the model file says, nothing drafted.
AS_THE_MODEL = StateFormat()


def gpu_share(deployment: Deployment, states: StateFormat = AS_THE_MODEL) -> Share:
    """
    Tell what one GPU of a deployment holds: the one place of serving that knows how models are divided.

    Parameters
    ----------
    deployment : Deployment
        Model, formats and layout.
    states : StateFormat
        Of recurrent layers.

    Returns
    -------
    share : Share
        Weights of the GPU that holds most of them, and the layers of the pipeline stage that caches most. KV heads are
        copied where there are fewer of them than GPUs, a latent always is.

    Examples
    --------
    >>> import rooflinekit as rk
    >>> share = gpu_share(rk.Deployment("llama-3.1-8b", "h100-sxm", tensor_parallel=2))
    >>> share.kv_bytes_per_token, round(share.weight_bytes / 2**30, 2)
    (65536.0, 7.48)
    """
    model, layout = deployment.model, deployment.layout
    if model.summary is not None:  # of one device: nothing says how it is divided
        each = deployment.kv_bytes_per_token / model.layer_count
        return Share(deployment.weights_bytes, (LayerKind(model.layer_count, each),), 0, 0, 0, 1, 1)
    rank = layout.rank_of(model)
    fullest = max(layout.stages(model), key=lambda stage: stage.layers) if layout.pipeline_parallel > 1 else None
    held = rank if fullest is None else rank.model_copy(update={"layers": fullest.runs})
    return Share(
        weight_bytes=deployment.weights_bytes,
        kinds=tuple(_kinds(held, deployment.precision.kv_bytes, states)),
        hidden_size=model.hidden_size or 0,
        widest=max(_columns(rank)),
        vocabulary=model.vocabulary or 0,
        gpus=layout.devices,
        engines=layout.data_parallel_attention,
    )


def _columns(rank: Model) -> Iterator[int]:
    """Give the widths of what a token passes through: of a product, or of all its experts together."""
    hidden = rank.hidden_size or 0
    for run in rank.layer_runs:
        yield from (product.columns for product in layer_products(rank, run))
        chosen = run.feedforward.routed[1]
        yield from (chosen * product.columns for product in run.feedforward.expert_products(hidden))


def _kinds(rank: Model, kv_bytes: float, states: StateFormat) -> Iterator[LayerKind]:
    """Give what each mixer holds, summed over its layers."""
    layers: dict[str, int] = {}
    mixers: dict[str, Mixer] = {}
    for run in _runs(rank, states):
        mixers[run.mixer.name] = run.mixer
        layers[run.mixer.name] = layers.get(run.mixer.name, 0) + run.times
    for name, mixer in mixers.items():
        each = mixer.cached_per_token * kv_bytes + mixer.index_bytes_per_token
        if each:
            yield LayerKind(layers[name], each, mixer.view)
        state = _state_bytes(mixer, states)
        if state:
            yield LayerKind(layers[name], 0.0, None, state)


def _runs(model: Model, states: StateFormat) -> Iterator[Layer]:
    """Give the layers, and those of the prediction module where it drafts."""
    yield from model.layer_runs
    module = model.prediction_module
    if states.speculative_tokens and module is not None:
        yield model.run_of(module.mixer, module.feedforward, module.layers)


def _state_bytes(mixer: Mixer, states: StateFormat) -> float:
    """Bytes of one sequence's state in one layer: the scan's, and the last inputs of the convolution."""
    held = 0.0
    for state in mixer.states:
        scan = state.bytes_per_value == FLOAT_BYTES
        held += state.values * (states.value_bytes if scan and states.value_bytes else state.bytes_per_value)
    ahead = getattr(mixer, "channels", 0) * getattr(mixer, "conv_state_bytes", 0.0) * states.speculative_tokens
    return held + float(ahead)
