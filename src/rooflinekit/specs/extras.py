"""What some models have besides their layers: per-layer inputs, alternating updates, a module that predicts ahead."""

from rooflinekit.specs.mixers.base import Module, Product
from rooflinekit.specs.spec import Count, Spec


class PerLayerInputs(Spec):
    """Gemma 3n and 4: every layer gets `width` values of its own per token, from a table of `vocabulary` rows.

    The table is looked up, never multiplied. One projection from the hidden size to all layers, with a norm; in each
    layer a gate and a projection back, with a norm.
    """

    width: Count
    vocabulary: Count

    def table_parameters(self, layers: int) -> int:
        """Count rows x layers x width: gathered."""
        return self.vocabulary * layers * self.width

    def model_products(self, hidden_size: int, layers: int) -> tuple[Product, ...]:
        """List the projection to all layers, once a pass."""
        columns = layers * self.width
        return (
            Product("per_layer_model_proj", hidden_size, columns, 0, (Module("per_layer_model_projection", columns),)),
        )

    def layer_products(self, hidden_size: int) -> tuple[Product, ...]:
        """List gate and projection of one layer."""
        gate = Product(
            "per_layer_input_gate", hidden_size, self.width, 0, (Module("per_layer_input_gate", self.width),)
        )
        return gate, Product(
            "per_layer_proj", self.width, hidden_size, 0, (Module("per_layer_projection", hidden_size),)
        )

    def norm_parameters(self, hidden_size: int, layers: int) -> int:
        """Count the norm of the projection to all layers, and one of the hidden size a layer."""
        return self.width + layers * hidden_size


class AltUp(Spec):
    """Gemma 3n: `inputs` parallel copies of the residual stream, and a low-rank residual (LAuReL) of `laurel_rank`.

    Per layer: the router of the copies (hidden x inputs), predictions (inputs to the third) and corrections (squared),
    two vectors, and two low-rank matrices with a norm. Once: projections of the copies, 2 (inputs - 1) matrices.
    """

    inputs: Count
    laurel_rank: Count

    def layer_products(self, hidden_size: int) -> tuple[Product, ...]:
        """List the router of the copies and the low-rank residual."""
        n, r = self.inputs, self.laurel_rank
        return (
            Product("altup_router", hidden_size, n, 0, (Module("altup.modality_router", n),), plain=True),
            Product("laurel_left", hidden_size, r, 0, (Module("laurel.linear_left", r),)),
            Product("laurel_right", r, hidden_size, 0, (Module("laurel.linear_right", hidden_size),)),
        )

    def layer_parameters(self, hidden_size: int) -> int:
        """Count what is in no linear layer: two vectors, predictions and corrections, the norm of LAuReL."""
        n = self.inputs
        return 2 * hidden_size + n**2 + n**3 + hidden_size

    def model_products(self, hidden_size: int) -> tuple[Product, ...]:
        """List the projections of the copies in and out, once a pass."""
        columns = (self.inputs - 1) * hidden_size
        return (
            Product("altup_proj", hidden_size, columns, 0, (Module("altup_projections", columns),)),
            Product("altup_unembed_proj", hidden_size, columns, 0, (Module("altup_unembed_projections", columns),)),
        )


class PredictionModule(Spec):
    """Multi-token prediction: `layers` further layers of a (mixer, feed-forward) pair, counted apart from the model.

    Besides its layer it has a projection from two hidden sizes to one and `norms` norms; embedding and output layer are
    shared, though some checkpoints store copies (`stores_copies`).
    """

    layers: Count = 1
    mixer: str
    feedforward: str
    norms: int = 3
    stores_copies: bool = False
