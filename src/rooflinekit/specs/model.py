"""A model: an ordered, run-length list of (mixer, feed-forward) pairs, or a summary of four numbers."""

from typing import Annotated, Literal, NamedTuple

from pydantic import Field, model_validator

from rooflinekit.specs.extras import AltUp, PerLayerInputs, PredictionModule
from rooflinekit.specs.feedforwards import FeedForward
from rooflinekit.specs.mixers import Mixer
from rooflinekit.specs.parameters import Parameters, count_parameters
from rooflinekit.specs.quantisation import Quantisation
from rooflinekit.specs.spec import Count, Identifier, SourceMap, Spec


class Norm(Spec):
    """The hidden-size norm: ``rmsnorm`` has one weight a channel, ``layernorm`` a bias where `bias` says so."""

    kind: Literal["rmsnorm", "layernorm"] = "rmsnorm"
    bias: bool = False

    @property
    def vectors(self) -> int:
        """Weight vectors of one norm."""
        return 2 if self.bias else 1


class PublishedCount(Spec):
    """A parameter count that does not come from our own arithmetic."""

    total: Count
    source: str
    note: str = ""


class Layer(NamedTuple):
    """Identical layers in a row."""

    mixer: Mixer
    feedforward: FeedForward
    times: int


class Summary(Spec):
    """The smallest model: matrix parameters as one lump and the shape of the KV cache.

    ``heads`` adds the FLOPs of attention, ``active_parameters`` makes the lump a mixture.
    """

    parameters: Count
    layers: Count
    kv_heads: Count
    head_dim: Count
    heads: Count | None = None
    active_parameters: Count | None = None

    @model_validator(mode="after")
    def _consistent(self) -> "Summary":
        if self.heads is not None and self.heads % self.kv_heads:
            message = f"heads ({self.heads}) must be a multiple of kv_heads ({self.kv_heads})"
            raise ValueError(message)
        if self.active_parameters is not None and self.active_parameters > self.parameters:
            message = f"active_parameters ({self.active_parameters}) must not exceed parameters ({self.parameters})"
            raise ValueError(message)
        return self


Run = tuple[str, str, Annotated[int, Field(gt=0)]]


class Model(Spec):
    """One model: one YAML file of ``model_configs``. Either `summary`, or the shapes of every layer."""

    id: Identifier
    name: str
    family: str = ""
    hub_ids: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    dtype: Literal["bf16", "fp16", "fp32"] | None = None
    max_context_tokens: Count | None = None
    summary: Summary | None = None
    hidden_size: Count | None = None
    vocabulary: Count | None = None
    tied_embeddings: bool = False
    position: Literal["rope", "alibi", "learned", "none"] = "rope"
    position_rows: Count | None = None
    norm: Norm = Norm()
    embedding_norm: bool = False
    lm_head_bias: bool = False
    parallel_block: bool = False
    mixers: tuple[Mixer, ...] = ()
    feedforwards: tuple[FeedForward, ...] = ()
    layers: tuple[Run, ...] = ()
    per_layer_inputs: PerLayerInputs | None = None
    altup: AltUp | None = None
    prediction_module: PredictionModule | None = None
    quantisation: Quantisation | None = None
    published_count: PublishedCount | None = None
    reference_count: PublishedCount | None = None
    verified: bool = True
    sources: SourceMap = ()
    notes: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _complete(self) -> "Model":
        if self.summary is not None:
            if self.layers or self.hidden_size:
                message = "give either `summary` or `hidden_size`, `vocabulary` and `layers`, not both"
                raise ValueError(message)
            return self
        missing = [key for key in ("hidden_size", "vocabulary", "layers") if not getattr(self, key)]
        if missing:
            message = f"missing {', '.join(missing)}: a model is a `summary` or the shapes of every layer"
            raise ValueError(message)
        if (self.position == "learned") != (self.position_rows is not None):
            message = "position_rows belongs to learned positions, and only to them"
            raise ValueError(message)
        self._named("mixers", [mixer.name for mixer in self.mixers], [run[0] for run in self.layers])
        self._named("feedforwards", [block.name for block in self.feedforwards], [run[1] for run in self.layers])
        return self

    @staticmethod
    def _named(key: str, names: list[str], used: list[str]) -> None:
        """Refuse a name given twice, and a layer that names what is not there."""
        twice = sorted({name for name in names if names.count(name) > 1})
        unknown = sorted(set(used) - set(names))
        if twice:
            message = f"{key} holds {', '.join(twice)} twice: names must differ"
            raise ValueError(message)
        if unknown:
            message = f"layers names {', '.join(unknown)}, which {key} does not hold (it has {', '.join(names)})"
            raise ValueError(message)

    @property
    def layer_runs(self) -> tuple[Layer, ...]:
        """The layer list with its mixers and feed-forwards looked up, in order from layer 0."""
        return tuple(self.run_of(*run) for run in self.layers)

    def run_of(self, mixer: str, feedforward: str, times: int) -> Layer:
        """Look up a run of layers by the names of its halves."""
        mixers = {block.name: block for block in self.mixers}
        feedforwards = {block.name: block for block in self.feedforwards}
        return Layer(mixers[mixer], feedforwards[feedforward], times)

    @property
    def layer_count(self) -> int:
        """Layers in all."""
        return self.summary.layers if self.summary else sum(times for _, _, times in self.layers)

    @property
    def norm_parameters(self) -> int:
        """Weights of one hidden-size norm."""
        return (self.hidden_size or 0) * self.norm.vectors

    @property
    def has_rotary(self) -> bool:
        """Whether queries and keys are rotated."""
        return self.position == "rope"

    @property
    def parameters(self) -> Parameters:
        """Parameter counts, exact."""
        return count_parameters(self)
