"""Dense feed-forward blocks."""

from typing import Literal, Self

from rooflinekit.specs.mixers.base import FeedForwardBase, Module, Product, part
from rooflinekit.specs.spec import Count

Activation = Literal["silu", "gelu", "relu", "relu2"]


class DenseFeedForward(FeedForwardBase):
    """Two matrices, or three where `gated`: gate and up (merged into one product by serving engines) and down."""

    kind: Literal["dense"] = "dense"
    intermediate_size: Count
    gated: bool = True
    activation: Activation = "silu"
    bias: bool = False

    def divided(self, degree: int) -> Self:
        """Divide the width."""
        return self.model_copy(update=part(self, "intermediate_size", degree))

    def products(self, hidden_size: int) -> tuple[Product, ...]:
        """List the linear layers."""
        return gated_products("", "mlp", hidden_size, self.intermediate_size, gated=self.gated, bias=self.bias)

    @property
    def activation_name(self) -> str:
        """Name of the kernel between the two products."""
        return f"{self.activation}_mul" if self.gated else self.activation


def gated_products(
    prefix: str, module: str, hidden_size: int, width: int, *, gated: bool, bias: bool = False
) -> tuple[Product, Product]:
    """Give the two products of a feed-forward: (gate and) up merged, and down."""
    names = ("gate_proj", "up_proj") if gated else ("up_proj",)
    modules = tuple(Module(f"{module}.{name}", width) for name in names)
    columns = width * len(names)
    up = Product(f"{prefix}{'gate_up_proj' if gated else 'up_proj'}", hidden_size, columns, columns * bias, modules)
    down = (Module(f"{module}.down_proj", hidden_size),)
    return up, Product(f"{prefix}down_proj", width, hidden_size, hidden_size * bias, down)
