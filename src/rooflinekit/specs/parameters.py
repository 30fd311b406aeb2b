"""Parameter counts from the shapes of a model: each product's shape has one home, the mixer or feed-forward itself."""

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from rooflinekit.specs.model import Layer, Model


class Parameters(NamedTuple):
    """Parameters by part; a tied table is counted once, as the embedding.

    ``block_matrices`` are the linear layers of the blocks, biases left out; ``head`` is 0 where the table is tied.
    """

    total: int
    active: int
    block_matrices: int
    block_biases: int
    norms: int
    embedding: int
    head: int


def count_parameters(model: "Model") -> Parameters:
    """Count the parameters of a model, exactly.

    The total is the embedding table (and learned positions), the output layer unless tied, and for each layer its
    matrices, biases and norm vectors, plus the final norm.
    """
    if model.summary is not None:
        lump = model.summary.parameters
        return Parameters(lump, model.summary.active_parameters or lump, lump, 0, 0, 0, 0)
    hidden, vocabulary = model.hidden_size or 0, model.vocabulary or 0
    embedding = hidden * (vocabulary + (model.position_rows or 0))
    head = (0 if model.tied_embeddings else hidden * vocabulary) + vocabulary * model.lm_head_bias
    matrices = sum(run.times * _matrices(run, hidden) for run in model.layer_runs)
    biases = sum(run.times * _biases(run, hidden) for run in model.layer_runs)
    norms = sum(run.times * _norms(model, run) for run in model.layer_runs)
    norms += model.norm_parameters * (1 + model.embedding_norm)
    total = matrices + biases + norms + embedding + head
    return Parameters(total, total, matrices, biases, norms, embedding, head)


def _matrices(run: "Layer", hidden: int) -> int:
    products = (*run.mixer.products(hidden), *run.feedforward.products(hidden))
    return sum(product.inner * product.columns for product in products)


def _biases(run: "Layer", hidden: int) -> int:
    return sum(product.bias for product in (*run.mixer.products(hidden), *run.feedforward.products(hidden)))


def _norms(model: "Model", run: "Layer") -> int:
    return (run.mixer.norms + run.feedforward.norms) * model.norm_parameters + run.mixer.head_norm_parameters
