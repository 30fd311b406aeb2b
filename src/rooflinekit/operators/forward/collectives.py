"""What ranks send each other during a pass: rows of class ``collective``, a message for each launch.

A message counts as benchmarks count it: the buffer of one rank, of gathers and scatters the whole one.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from rooflinekit.operators.cost import ONE, SAMPLED, SAMPLING, TOKENS, Feature, Operator
from rooflinekit.operators.forward.rows import Work, module_formats, product_dtype
from rooflinekit.specs.feedforwards import MixtureFeedForward
from rooflinekit.specs.model import Layer, Model
from rooflinekit.specs.parallelism import Parallelism
from rooflinekit.specs.precision import DTYPES, Precision


class Among(NamedTuple):
    """Ranks of an operation, and the nodes that they stand in."""

    ranks: int
    nodes: int = 1


#: Rows that work on the tokens of all data-parallel groups; the others on those of one.
_OF_ALL = ("gather_tokens", "scatter_tokens")


@dataclass(frozen=True)
class Messages:
    """The collectives of a layout: after which block, between how many ranks, of how many bytes a token."""

    layout: Parallelism
    model: Model
    precision: Precision

    @property
    def _stream_bytes(self) -> float:
        """Bytes of one token in the residual stream."""
        return (self.model.hidden_size or 0) * self.precision.value_bytes

    def entrance(self) -> Iterator[Operator]:
        """Yield the sum of the embedding's parts, and of the table of per-layer inputs: each rank has some rows."""
        if self.layout.tensor_parallel == 1:
            return
        yield self._all_reduce("all_reduce", self._stream_bytes)
        extra = self.model.per_layer_inputs
        if extra is not None:
            each = self.model.layer_count * extra.width * self.precision.value_bytes
            yield self._all_reduce("all_reduce_inputs", each)

    def layer(self, run: Layer) -> Iterator[Operator]:
        """Yield what one layer sends: two sums of the residual stream; one where both halves work side by side."""
        if self.layout.devices == self.layout.pipeline_parallel:
            return
        hidden = self.model.hidden_size or 0
        for width in run.mixer.partial_sums(hidden) if self.layout.tensor_parallel > 1 else ():
            yield self._all_reduce("all_reduce_inner", width * self.precision.value_bytes)
        if run.mixer.shared_norms and self.layout.tensor_parallel > 1:
            yield self._all_reduce("all_reduce_norm", run.mixer.shared_norms * DTYPES["fp32"])
        beside = self.model.parallel_block and bool(run.feedforward.products(hidden))
        if run.mixer.products(hidden) and not beside:
            yield from self._summed()
        if isinstance(run.feedforward, MixtureFeedForward) and self.layout.data_parallel_attention > 1:
            yield from self._experts(run.feedforward)
        elif run.feedforward.products(hidden):
            yield from self._summed()

    def _summed(self) -> Iterator[Operator]:
        if self.layout.tensor_parallel > 1:
            yield self._all_reduce("all_reduce", self._stream_bytes)

    def _experts(self, block: MixtureFeedForward) -> Iterator[Operator]:
        """Yield what brings tokens of all groups to the experts and back."""
        layout, each = self.layout, self._stream_bytes
        ranks, nodes = layout.stage_ranks, layout.nodes(layout.stage_ranks)
        if layout.expert_parallel > 1:
            # a token goes to every rank that has an expert of its own but this one, and from each of its group a part
            reached = min(block.experts_per_token, layout.expert_parallel - 1) / layout.tensor_parallel
            values = reached * block.width(self.model.hidden_size or 0)
            for name, size in (("dispatch", self._dispatched(block)), ("combine", self.precision.value_bytes)):
                yield _message(name, "exchange", TOKENS, values * size, Among(layout.expert_parallel, nodes))
            if layout.expert_width_ranks > 1:
                yield _message("all_reduce_width", "all_reduce", TOKENS, each, Among(layout.expert_width_ranks))
        else:
            groups = layout.data_parallel_attention
            yield _message("gather_tokens", "all_gather", TOKENS, each, Among(groups, min(nodes, groups)))
            yield _message("scatter_tokens", "reduce_scatter", TOKENS, each, Among(groups, min(nodes, groups)))
        if ranks > layout.data_parallel_attention:
            yield from self._summed()

    def _dispatched(self, block: MixtureFeedForward) -> float:
        """Bytes of a value on its way to an expert: those that it computes in, where they are fewer."""
        shapes = block.expert_products(self.model.hidden_size or 0)
        forms = (form for shape in shapes for _, form in module_formats(shape, self.precision, None))
        return min(DTYPES[product_dtype(forms, self.precision)], self.precision.value_bytes)

    def exit(self) -> Iterator[Operator]:
        """Yield the gather of the logits, and what the stages of a pipeline hand on: the stream and its residual."""
        layout = self.layout
        if layout.tensor_parallel > 1:
            logits = (self.model.vocabulary or 0) * self.precision.value_bytes
            among = Among(layout.tensor_parallel, layout.nodes(layout.tensor_parallel))
            gather = _message("gather_logits", "all_gather", SAMPLED, logits, among)
            yield gather._replace(work={**gather.work, "launches": {SAMPLING: 1.0}})
        within = sum(self._within(stage) for stage in range(1, layout.pipeline_parallel))
        for name, times, nodes in (
            ("send", within, 1),
            ("send_between_nodes", layout.pipeline_parallel - 1 - within, 2),
        ):
            if times:
                yield _message(name, "send", TOKENS, 2.0 * self._stream_bytes, Among(2, nodes))._replace(times=times)

    def _within(self, stage: int) -> bool:
        """Tell whether every device of the stage before stands in the node of its fellow in this one."""
        size, node = self.layout.stage_ranks, self.layout.devices_per_node
        return (stage - 1) * size // node == ((stage + 1) * size - 1) // node

    def _all_reduce(self, name: str, each: float) -> Operator:
        ranks = self.layout.tensor_parallel
        return _message(name, "all_reduce", TOKENS, each, Among(ranks, self.layout.nodes(ranks)))


def _message(name: str, operation: str, per: Feature, each: float, among: Among) -> Operator:
    work: Work = {"launches": {ONE: 1.0}, "message_bytes": {per: each}}
    return Operator(name, "collective", "", work, variant=operation, ranks=among.ranks, nodes=among.nodes)


def shared_out(operators: Iterable[Operator], groups: int) -> list[Operator]:
    """Let data-parallel groups share the sequences out: all but the experts work on those of one group."""
    if groups == 1:
        return list(operators)
    return [
        one if one.op_class == "mixture" or one.name in _OF_ALL else one._replace(work=_of_group(one, groups))
        for one in operators
    ]


def _of_group(one: Operator, groups: int) -> Work:
    """Count on the sequences of one group; what is paid once a pass is paid by each."""
    return {
        quantity: {
            feature if feature == ONE else feature._replace(shards=groups): value for feature, value in terms.items()
        }
        for quantity, terms in one.work.items()
    }
