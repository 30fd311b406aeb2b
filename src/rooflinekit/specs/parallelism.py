"""Parallelism: how the work of a model is laid out over devices, and the part of a model that one of them has."""

from collections.abc import Iterator
from typing import NamedTuple

from pydantic import ValidationError

from rooflinekit.errors import InvalidInputError
from rooflinekit.specs.feedforwards import FeedForward, MixtureFeedForward
from rooflinekit.specs.model import Model, Run
from rooflinekit.specs.spec import Count, Positive, Spec

#: Degrees beyond this are not tried when an error says which would work.
_MOST = 512


class Stage(NamedTuple):
    """A slice of layers: the index of its first layer, its runs, and whether the ends of the model are in it."""

    first_layer: int
    runs: tuple[Run, ...]
    is_first: bool
    is_last: bool

    @property
    def layers(self) -> int:
        """Layers of the stage."""
        return sum(times for _, _, times in self.runs)


class Parallelism(Spec):
    """
    A layout of one model over several devices, with the meaning that vLLM gives the words.

    ``tensor_parallel`` ranks divide heads, widths and vocabulary; ``pipeline_parallel`` stages divide the layers;
    ``data_parallel_attention`` groups each hold attention and the dense layers whole and serve sequences of their own,
    while all their ranks together divide the experts: whole ones among ``expert_parallel`` ranks, and the width of
    each among what is left. ``expert_imbalance`` is the load of the busiest of these over the mean.
    ``devices_per_node`` are those that share the quick link.
    """

    tensor_parallel: Count = 1
    pipeline_parallel: Count = 1
    expert_parallel: Count = 1
    data_parallel_attention: Count = 1
    expert_imbalance: Positive = 1.0
    devices_per_node: Count = 8

    @property
    def stage_ranks(self) -> int:
        """Devices of one pipeline stage."""
        return self.tensor_parallel * self.data_parallel_attention

    @property
    def devices(self) -> int:
        """Devices in all."""
        return self.stage_ranks * self.pipeline_parallel

    @property
    def expert_width_ranks(self) -> int:
        """Ranks among which the width of each expert is divided."""
        return self.stage_ranks // self.expert_parallel

    @property
    def layout(self) -> str:
        """Name the layout in a few letters.

        >>> Parallelism(tensor_parallel=4, pipeline_parallel=2).layout, Parallelism().layout
        ('TP4 PP2', 'one device')
        """
        named = {
            "DP": self.data_parallel_attention,
            "TP": self.tensor_parallel,
            "PP": self.pipeline_parallel,
            "EP": self.expert_parallel,
        }
        return " ".join(f"{name}{degree}" for name, degree in named.items() if degree > 1) or "one device"

    def nodes(self, devices: int) -> int:
        """Nodes that so many neighbouring devices stand in."""
        return -(-devices // self.devices_per_node)

    def rank_of(self, model: Model) -> Model:
        """
        Return what one rank computes and holds of all layers; norms, routers and the residual stream stay whole.

        Raises
        ------
        InvalidInputError
            The model cannot be laid out so; the message names the number and what would work.

        Examples
        --------
        >>> from rooflinekit import load_model
        >>> half = Parallelism(tensor_parallel=2).rank_of(load_model("qwen3-8b"))
        >>> half.mixers[0].heads, half.mixers[0].kv_heads, half.feedforwards[0].intermediate_size, half.vocabulary
        (16, 4, 6144, 75968)
        """
        if self.devices == 1:
            self._check_experts(model)
            return model
        self._check(model)
        degree = self.tensor_parallel
        extra = model.per_layer_inputs
        if extra is not None:
            extra = extra.model_copy(update={"vocabulary": -(-extra.vocabulary // degree)})
        try:
            mixers = tuple(block.divided(degree) for block in model.mixers)
            feedforwards = tuple(self._feedforward(block) for block in model.feedforwards)
        except InvalidInputError as error:
            message = f"{self.layout} of {model.id}: {error}; {self._what_works(model)}"
            raise InvalidInputError(message) from None
        return model.model_copy(
            update={
                "mixers": mixers,
                "feedforwards": feedforwards,
                "vocabulary": -(-(model.vocabulary or 0) // degree),  # padded up
                "per_layer_inputs": extra,
            }
        )

    def _feedforward(self, block: FeedForward) -> FeedForward:
        if isinstance(block, MixtureFeedForward):
            return block.spread(
                self.tensor_parallel, self.data_parallel_attention, self.expert_parallel, self.expert_imbalance
            )
        return block.divided(self.tensor_parallel)

    def stages(self, model: Model) -> tuple[Stage, ...]:
        """
        Divide the layers among the pipeline stages, in order.

        Where they do not divide evenly, the stages before the last have one more, from the last but one backwards: the
        last has the output layer, the first the embedding.
        """
        count = self.pipeline_parallel
        even, more = divmod(model.layer_count, count)
        sizes = [even] * count
        for i in range(2, more + 2):
            sizes[-i] += 1
        found, first = [], 0
        for index, size in enumerate(sizes):
            runs = tuple(_cut(model.layers, first, first + size))
            found.append(Stage(first, runs, index == 0, index == count - 1))
            first += size
        return tuple(found)

    # ---- what cannot be

    def _check(self, model: Model) -> None:
        if model.summary is not None:
            message = (
                f"{self.layout}: {model.id} is a summary model, whose messages are not known: give every layer's shapes"
            )
            raise InvalidInputError(message)
        if self.pipeline_parallel > model.layer_count:
            message = (
                f"pipeline_parallel={self.pipeline_parallel}: {model.id} has {model.layer_count} layers, "
                f"and every stage needs one: {model.layer_count} or fewer would work"
            )
            raise InvalidInputError(message)
        self._check_experts(model)

    def _check_experts(self, model: Model) -> None:
        experts = [block.routed[0] for block in model.feedforwards if block.routed[0]]
        asked = {"expert_parallel": self.expert_parallel, "data_parallel_attention": self.data_parallel_attention}
        for name, degree in asked.items():
            if degree > 1 and not experts:
                message = f"{name}={degree}: {model.id} has no experts to divide; 1 would work"
                raise InvalidInputError(message)
        self._check_expert_ranks(model, experts)

    def _check_expert_ranks(self, model: Model, experts: list[int]) -> None:
        if experts and self.expert_parallel > min(experts):
            most = min(experts)
            message = (
                f"expert_parallel={self.expert_parallel}: {model.id} has {most} experts a layer; "
                f"{most} or fewer would work"
            )
            raise InvalidInputError(message)
        if self.stage_ranks % self.expert_parallel:
            would = ", ".join(str(n) for n in range(1, self.stage_ranks + 1) if self.stage_ranks % n == 0)
            message = (
                f"expert_parallel={self.expert_parallel} does not divide tensor_parallel x data_parallel_attention = "
                f"{self.stage_ranks}, whose ranks hold the experts; {would} would work"
            )
            raise InvalidInputError(message)
        if not 1.0 <= self.expert_imbalance <= self.expert_parallel:
            message = (
                f"expert_imbalance={self.expert_imbalance:g}: the busiest of {self.expert_parallel} expert-parallel "
                f"ranks has between 1 and {self.expert_parallel} times the mean load"
            )
            raise InvalidInputError(message)

    def _what_works(self, model: Model) -> str:
        """List the degrees of tensor parallelism that the model divides by, all else as it is."""
        found = []
        for degree in range(1, _MOST + 1):
            if degree * self.data_parallel_attention % self.expert_parallel:
                continue
            other = self.model_copy(update={"tensor_parallel": degree})
            if other._divides(model):  # noqa: SLF001 - of its own class
                found.append(str(degree))
        return f"tensor_parallel of {', '.join(found) or 'nothing'} would work"

    def _divides(self, model: Model) -> bool:
        try:
            for block in model.mixers:
                block.divided(self.tensor_parallel)
            for feedforward in model.feedforwards:
                self._feedforward(feedforward)
        except InvalidInputError:
            return False
        return True


def parallelism(**degrees: object) -> Parallelism:
    """
    Make a layout from what a user says, or raise one error that names the wrong number.

    Examples
    --------
    >>> parallelism(tensor_parallel=0)
    Traceback (most recent call last):
    rooflinekit.errors.InvalidInputError: tensor_parallel=0: expected a whole number, 1 or more
    """
    try:
        return Parallelism.model_validate(degrees)
    except ValidationError as error:
        fault = error.errors()[0]
        expected = "a number, 1 or more" if fault["loc"] == ("expert_imbalance",) else "a whole number, 1 or more"
        message = f"{fault['loc'][0]}={fault['input']!r}: expected {expected}"
        raise InvalidInputError(message) from None


def _cut(runs: tuple[Run, ...], first: int, end: int) -> Iterator[Run]:
    """Yield the runs of the layers from `first` up to `end`."""
    start = 0
    for mixer, feedforward, times in runs:
        kept = min(start + times, end) - max(start, first)
        if kept > 0:
            yield mixer, feedforward, kept
        start += times
