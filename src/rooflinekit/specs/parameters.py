"""Parameter counts from the shapes of a model: each product's shape has one home, the block itself."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from rooflinekit.specs.mixers.base import Product
    from rooflinekit.specs.model import Layer, Model


class Parameters(NamedTuple):
    """Parameters by part; a tied table is counted once, as the embedding.

    Three published conventions of "active" exist: ``active`` counts everything that one token goes through,
    ``active_without_embedding`` leaves out the input table, ``active_without_tables`` the output layer too.
    ``block_matrices`` are the linear layers of the blocks with all experts, biases left out; ``head`` is 0 where the
    table is tied; ``lookup`` are tables that are only gathered from; ``prediction_module`` is counted in nothing else.
    """

    total: int
    active: int
    block_matrices: int
    block_biases: int
    norms: int
    embedding: int
    head: int
    lookup: int = 0
    prediction_module: int = 0

    @property
    def active_without_embedding(self) -> int:
        """Active parameters without the input table (gpt-oss, DeepSeek-V3, Kimi K2 publish this)."""
        return self.active - (self.embedding if self.head else 0) - self.lookup

    @property
    def active_without_tables(self) -> int:
        """Active parameters without input table and output layer (MiniMax, GLM-4.5 publish this)."""
        return self.active - self.embedding - self.head - self.lookup


def count_parameters(model: "Model") -> Parameters:
    """Count the parameters of a model, exactly.

    The total is the embedding table (and learned positions), the output layer unless tied, and for each layer its
    matrices, biases, experts, other weights and norm vectors, plus the final norm.
    """
    if model.summary is not None:
        lump = model.summary.parameters
        return Parameters(lump, model.summary.active_parameters or lump, lump, 0, 0, 0, 0)
    hidden, vocabulary = model.hidden_size or 0, model.vocabulary or 0
    embedding = hidden * (vocabulary + (model.position_rows or 0))
    head = (0 if model.tied_embeddings else hidden * vocabulary) + vocabulary * model.lm_head_bias
    lookup = model.per_layer_inputs.table_parameters(model.layer_count) if model.per_layer_inputs else 0
    counts = [_layer(model, run) for run in model.layer_runs]
    matrices, biases, norms, idle = (sum(values) for values in zip(*counts, strict=True))
    norms += model.norm_parameters * (1 + model.embedding_norm) + _extra_norms(model)
    matrices += sum(product.parameters for product in _model_products(model))
    total = matrices + biases + norms + embedding + head + lookup
    return Parameters(
        total, total - idle, matrices, biases, norms, embedding, head, lookup, count_prediction_module(model)
    )


def _layer(model: "Model", run: "Layer") -> tuple[int, int, int, int]:
    """Matrices, biases, norms and other weights, and experts that a token does not go through, of a run of layers."""
    hidden = model.hidden_size or 0
    products = tuple(layer_products(model, run))
    experts, active = run.feedforward.held, run.feedforward.routed[1]
    each = run.feedforward.expert_parameters(hidden)
    matrices = sum(product.parameters for product in products) + experts * run.feedforward.expert_matrices(hidden)
    biases = sum(product.bias for product in products) + experts * (each - run.feedforward.expert_matrices(hidden))
    norms = (run.mixer.norms + run.feedforward.norms) * model.norm_parameters + _other(model, run)
    return run.times * matrices, run.times * biases, run.times * norms, run.times * max(experts - active, 0) * each


def layer_products(model: "Model", run: "Layer") -> Iterator["Product"]:
    """Yield every linear layer of one layer but the routed experts."""
    hidden = model.hidden_size or 0
    yield from run.mixer.products(hidden)
    yield from run.feedforward.products(hidden)
    for extra in (model.per_layer_inputs, model.altup):
        if extra is not None:
            yield from extra.layer_products(hidden)


def _other(model: "Model", run: "Layer") -> int:
    hidden = model.hidden_size or 0
    altup = model.altup.layer_parameters(hidden) if model.altup else 0
    return run.mixer.other_parameters(hidden) + run.feedforward.other_parameters(hidden) + altup


def _model_products(model: "Model") -> Iterator["Product"]:
    hidden = model.hidden_size or 0
    if model.per_layer_inputs is not None:
        yield from model.per_layer_inputs.model_products(hidden, model.layer_count)
    if model.altup is not None:
        yield from model.altup.model_products(hidden)


def _extra_norms(model: "Model") -> int:
    if model.per_layer_inputs is None:
        return 0
    return model.per_layer_inputs.norm_parameters(model.hidden_size or 0, model.layer_count)


def count_prediction_module(model: "Model") -> int:
    """Count the multi-token prediction module: its layers, a projection from two hidden sizes to one, its norms."""
    module, hidden = model.prediction_module, model.hidden_size or 0
    if module is None:
        return 0
    matrices, biases, norms, _ = _layer(model, model.run_of(module.mixer, module.feedforward, module.layers))
    copies = 2 * hidden * (model.vocabulary or 0) if module.stores_copies else 0
    return (
        matrices
        + biases
        + norms
        + module.layers * (2 * hidden * hidden + module.norms * model.norm_parameters)
        + copies
    )
