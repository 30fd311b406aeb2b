"""Tensor parallelism: the part of a model that one rank holds and computes."""

from rooflinekit.errors import InvalidInputError
from rooflinekit.specs.feedforwards import DenseFeedForward, FeedForward
from rooflinekit.specs.mixers import GroupedQueryAttention, Mixer
from rooflinekit.specs.model import Model


def rank_model(model: Model, degree: int) -> Model:
    """
    Divide a dense model's heads, widths and vocabulary among ranks; norms and the residual stream stay whole.

    Parameters
    ----------
    model : Model
        Grouped-query attention and dense feed-forwards.
    degree : int
        Ranks.

    Returns
    -------
    model : Model
        What one rank computes. KV heads are copied where there are fewer of them than ranks.

    Raises
    ------
    InvalidInputError
        A size does not divide, or a block is of a kind that is not divided here.

    Examples
    --------
    >>> from rooflinekit import load_model
    >>> half = rank_model(load_model("qwen3-8b"), 2)
    >>> half.mixers[0].heads, half.mixers[0].kv_heads, half.feedforwards[0].intermediate_size, half.vocabulary
    (16, 4, 6144, 75968)
    """
    if degree == 1:
        return model
    return model.model_copy(
        update={
            "id": f"{model.id}-rank-of-{degree}",
            "mixers": tuple(_mixer(block, degree) for block in model.mixers),
            "feedforwards": tuple(_feedforward(block, degree) for block in model.feedforwards),
            "vocabulary": None if model.vocabulary is None else -(-model.vocabulary // degree),  # padded up
        }
    )


def _mixer(block: Mixer, degree: int) -> Mixer:
    if not isinstance(block, GroupedQueryAttention):
        message = f"mixer {block.name!r} ({block.kind}): only grouped-query attention is divided among ranks"
        raise InvalidInputError(message)
    held = max(block.kv_heads // degree, 1)
    return block.model_copy(update={"heads": _part("heads", block.heads, degree), "kv_heads": held})


def _feedforward(block: FeedForward, degree: int) -> FeedForward:
    if not isinstance(block, DenseFeedForward):
        message = f"feed-forward {block.name!r} ({block.kind}): only dense ones are divided among ranks"
        raise InvalidInputError(message)
    return block.model_copy(update={"intermediate_size": _part("intermediate_size", block.intermediate_size, degree)})


def _part(name: str, size: int, degree: int) -> int:
    if size % degree:
        message = f"{name}={size} does not divide among {degree} ranks"
        raise InvalidInputError(message)
    return size // degree
