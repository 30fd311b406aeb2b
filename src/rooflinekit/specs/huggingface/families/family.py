"""What a family is: the facts that its config files leave unsaid, and how its layers are read."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from rooflinekit.specs.huggingface.config import Config

Block = dict[str, Any]
#: A flag of a family: fixed, or the key that says it (false where absent), or that key with another default.
Flag = bool | str | tuple[str, bool]


class Half(NamedTuple):
    """One half of all layers: its blocks, and the name of the block in each layer."""

    blocks: Sequence[Block]
    names: Sequence[str]


class Prediction(NamedTuple):
    """How a family tells of its multi-token prediction module."""

    key: str
    mixer: str = "full"
    stores_copies: bool = False


def _nothing(_config: Config, _layers: int) -> dict[str, Any]:
    return {}


class Family(NamedTuple):
    """One family of models; the defaults are those of Llama.

    ``tied`` is the default of tie_word_embeddings. ``kinds`` gives the kind of each layer where the file lists none.
    ``windows`` is the default of use_sliding_window. ``stretched`` says that max_position_embeddings counts scaled
    rotations already. ``extras`` reads what belongs to no layer. ``modules`` names matrices as this family's
    checkpoints do, where they differ from others.
    """

    mixers: Callable[[Config, int, "Family"], Half]
    feedforwards: Callable[[Config, int, "Family"], Half]
    tied: bool = False
    norm: Mapping[str, Any] = {"kind": "rmsnorm"}
    position: str = "rope"
    parallel: bool = False
    norms: tuple[int, int] = (1, 1)
    q_bias: Flag = "attention_bias"
    o_bias: Flag = "attention_bias"
    mlp_bias: Flag = "mlp_bias"
    qk_norm: str | None = None
    qk_norm_key: tuple[str, bool] | None = None
    head_dim: int | None = None
    gated: bool = True
    activation: str = "silu"
    kinds: Callable[[Config, int], list[str]] | None = None
    windows: bool = True
    stretched: bool = False
    full_layers_rotate: bool = True
    intermediate: int | None = None
    prediction: Prediction | None = None
    extras: Callable[[Config, int], dict[str, Any]] = _nothing
    modules: Mapping[str, Sequence[str]] = {}
    skipped: Sequence[str] = ()


def flag(config: Config, said: Flag) -> bool:
    """Read a flag of a family."""
    if isinstance(said, bool):
        return said
    return config.flag(said) if isinstance(said, str) else config.flag(*said)
