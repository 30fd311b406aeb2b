"""What every mixer and feed-forward tells: its linear layers, its other parameters, and what a sequence holds in it."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Self

from rooflinekit.errors import InvalidInputError
from rooflinekit.specs.spec import NotNegativeInt, Spec


class Module(NamedTuple):
    """One matrix as a checkpoint names it, below its layer: exclude lists of quantised checkpoints speak of these."""

    path: str
    columns: int


class Product(NamedTuple):
    """One linear layer as an engine runs it, (tokens, inner) by (inner, columns), with the matrices merged in it.

    ``plain`` marks layers that no checkpoint quantises (routers).
    """

    name: str
    inner: int
    columns: int
    bias: int = 0
    modules: tuple[Module, ...] = ()
    plain: bool = False

    @property
    def parameters(self) -> int:
        """Weights of the matrix."""
        return self.inner * self.columns


class State(NamedTuple):
    """Values that a sequence holds whatever its length, and the bytes of each."""

    values: int
    bytes_per_value: float


def part(block: "Block", size: str, degree: int) -> dict[str, int]:
    """Divide one size of a block among ranks, or raise the error that names it."""
    whole = int(getattr(block, size))
    if whole % degree:
        message = f"{size}={whole} of {block.name!r} does not divide among {degree} ranks"
        raise InvalidInputError(message)
    return {size: whole // degree}


def part_or_copy(block: "Block", size: str, degree: int) -> dict[str, int]:
    """Divide one size of a block among ranks, or leave each rank one where there are fewer than ranks."""
    whole = int(getattr(block, size))
    if whole % degree and degree % whole:
        message = f"{size}={whole} of {block.name!r} neither divides among {degree} ranks nor they among it"
        raise InvalidInputError(message)
    return {size: max(whole // degree, 1)}


class Block(Spec):
    """One half of a layer. Each kind overrides what it has; the defaults are those of a block that is not there."""

    name: str
    norms: NotNegativeInt = 1

    def divided(self, degree: int) -> Self:  # noqa: ARG002 - the kinds that have something to divide need it
        """Return what one of `degree` tensor-parallel ranks holds and computes: the same kind, with divided sizes."""
        return self

    @property
    def shared_norms(self) -> int:
        """Norms over a width that tensor parallelism divides: ranks sum a 32-bit value of a token for each."""
        return 0

    def partial_sums(self, hidden_size: int) -> tuple[int, ...]:  # noqa: ARG002 - as above
        """Widths of what tensor-parallel ranks sum inside the block, besides its output."""
        return ()

    def products(self, hidden_size: int) -> tuple[Product, ...]:  # noqa: ARG002 - the kinds that have some need it
        """List the linear layers that run over every token."""
        return ()

    def other_parameters(self, hidden_size: int) -> int:  # noqa: ARG002 - as above
        """Count what is in no linear layer and no hidden-size norm: head norms, convolutions, sinks, decays."""
        return 0


class MixerBase(Block):
    """A token mixer."""

    @property
    def view(self) -> int | None:
        """Tokens that a token sees at most; None is all of them."""
        return None

    @property
    def cached_per_token(self) -> float:
        """Values of the KV dtype that one token adds to the cache."""
        return 0

    @property
    def index_bytes_per_token(self) -> float:
        """Bytes that one token adds to the cache of a sparse indexer, in a format of its own."""
        return 0.0

    @property
    def states(self) -> tuple[State, ...]:
        """What a sequence holds whatever its length."""
        return ()


class FeedForwardBase(Block):
    """A feed-forward block."""

    def expert_parameters(self, hidden_size: int) -> int:  # noqa: ARG002 - as above
        """Parameters of one routed expert; 0 where there is none."""
        return 0

    def expert_products(self, hidden_size: int) -> tuple[Product, ...]:  # noqa: ARG002 - as above
        """List the linear layers of one routed expert."""
        return ()

    def expert_matrices(self, hidden_size: int) -> int:
        """Count the matrix parameters of one routed expert."""
        return sum(product.parameters for product in self.expert_products(hidden_size))

    @property
    def routed(self) -> tuple[int, int]:
        """Experts, and how many of them a token goes through."""
        return 0, 0

    @property
    def held(self) -> int:
        """Experts that are held: all of them, or a rank's."""
        return self.routed[0]


def kind_or(default: str) -> Callable[[Any], str]:
    """Read the kind of a block from its mapping or object; a file need not name the usual one."""

    def kind(value: Any) -> str:  # noqa: ANN401 - whatever a file holds
        return str(value.get("kind", default)) if isinstance(value, Mapping) else str(getattr(value, "kind", default))

    return kind
