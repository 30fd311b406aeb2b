"""Feed-forward blocks. One class a kind; the layer list names them."""

from typing import Literal

from rooflinekit.specs.mixer import Product
from rooflinekit.specs.spec import Count, NotNegativeInt, Spec


class DenseFeedForward(Spec):
    """Two matrices, or three where `gated`: gate and up (merged into one product by serving engines) and down."""

    name: str
    kind: Literal["dense"] = "dense"
    intermediate_size: Count
    gated: bool = True
    activation: Literal["silu", "gelu", "relu", "relu2"] = "silu"
    bias: bool = False
    norms: NotNegativeInt = 1

    def products(self, hidden_size: int) -> tuple[Product, ...]:
        """List the linear layers."""
        columns = self.intermediate_size * (2 if self.gated else 1)
        up = Product("gate_up_proj" if self.gated else "up_proj", hidden_size, columns, columns * self.bias)
        return up, Product("down_proj", self.intermediate_size, hidden_size, hidden_size * self.bias)

    @property
    def activation_name(self) -> str:
        """Name of the kernel between the two products."""
        return f"{self.activation}_mul" if self.gated else self.activation


FeedForward = DenseFeedForward
