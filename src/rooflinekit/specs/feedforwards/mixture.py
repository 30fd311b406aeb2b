"""Mixtures of experts."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from rooflinekit.specs.feedforwards.dense import Activation, gated_products
from rooflinekit.specs.mixers.base import FeedForwardBase, Module, Product, part
from rooflinekit.specs.spec import Count


class MixtureFeedForward(FeedForwardBase):
    """A router sends each token to `experts_per_token` of `experts`; shared experts see every token.

    ``shared_intermediate_size`` sums the shared experts' widths (or is a dense block beside the mixture).
    ``latent_size`` is the width that the routed experts work on, where it is not the hidden size. ``router_extra``
    counts further router parameters (scales).
    """

    kind: Literal["moe"] = "moe"
    experts: Count
    experts_per_token: Count
    intermediate_size: Count
    shared_intermediate_size: int = 0
    gated: bool = True
    activation: Activation = "silu"
    latent_size: Count | None = None
    shared_gate: bool = False
    bias: bool = False
    router_bias: bool = False
    router_extra: int = 0

    @model_validator(mode="after")
    def _enough_experts(self) -> "MixtureFeedForward":
        if self.experts_per_token > self.experts:
            message = f"experts_per_token ({self.experts_per_token}) must not exceed experts ({self.experts})"
            raise ValueError(message)
        return self

    @property
    def routed(self) -> tuple[int, int]:
        """Experts, and how many of them a token goes through."""
        return self.experts, self.experts_per_token

    def width(self, hidden_size: int) -> int:
        """Width that the routed experts work on."""
        return self.latent_size or hidden_size

    @property
    def matrices(self) -> int:
        """Matrices of one expert."""
        return 3 if self.gated else 2

    def expert_products(self, hidden_size: int) -> tuple[Product, Product]:
        """Give the two products of one routed expert."""
        width = self.width(hidden_size)
        columns = self.intermediate_size * (self.matrices - 1)
        up = Product("experts_up", width, columns, 0, (Module("mlp.experts.gate_up_proj", columns),))
        return up, Product("experts_down", self.intermediate_size, width, 0, (Module("mlp.experts.down_proj", width),))

    def expert_parameters(self, hidden_size: int) -> int:
        """Parameters of one routed expert, biases included."""
        biases = (self.matrices - 1) * self.intermediate_size + self.width(hidden_size)
        return self.expert_matrices(hidden_size) + biases * self.bias

    def products(self, hidden_size: int) -> tuple[Product, ...]:
        """List the linear layers that run over every token: the router, the latent's two, the shared experts."""
        router_module = (Module("mlp.gate", self.experts),)
        router = Product(
            "router", hidden_size, self.experts, self.experts * self.router_bias, router_module, plain=True
        )
        return router, *self._latent(hidden_size), *self._shared(hidden_size)

    def _latent(self, hidden_size: int) -> tuple[Product, ...]:
        if self.latent_size is None:
            return ()
        down = Product(
            "latent_down_proj", hidden_size, self.latent_size, 0, (Module("mlp.fc1_latent_proj", self.latent_size),)
        )
        return down, Product(
            "latent_up_proj", self.latent_size, hidden_size, 0, (Module("mlp.fc2_latent_proj", hidden_size),)
        )

    def _shared(self, hidden_size: int) -> tuple[Product, ...]:
        if not self.shared_intermediate_size:
            return ()
        module, width = "mlp.shared_experts", self.shared_intermediate_size
        gate = Product("shared_expert_gate", hidden_size, 1, 0, (Module("mlp.shared_expert_gate", 1),), plain=True)
        pair = gated_products("shared_expert_", module, hidden_size, width, gated=self.gated)
        return (*pair, gate) if self.shared_gate else pair

    def other_parameters(self, hidden_size: int) -> int:  # noqa: ARG002 - they are given as a count
        """Count the router's further parameters."""
        return self.router_extra

    def divided(self, degree: int) -> "MixtureFeedForward":
        """Divide the widths of routed and shared experts; the router is the same on every rank."""
        return self.spread(degree)

    def spread(self, degree: int, groups: int = 1, ranks: int = 1, imbalance: float = 1.0) -> "MixtureFeedForward":
        """
        Return what one rank holds and computes.

        Parameters
        ----------
        degree : int
            Ranks of one attention group: they divide the shared experts' width.
        groups : int
            Such groups; all their ranks divide the routed experts.
        ranks : int
            Ranks among which whole experts are divided; what is left divides each expert's width.
        imbalance : float
            Load of the busiest of them over the mean.
        """
        sizes = part(self, "intermediate_size", degree * groups // ranks)
        if self.shared_intermediate_size:
            sizes |= part(self, "shared_intermediate_size", degree)
        whole = self.model_copy(update=sizes).model_dump()
        return RankMixture.model_validate({**whole, "expert_ranks": ranks, "imbalance": imbalance})


class RankMixture(MixtureFeedForward):
    """
    What the busiest of several ranks holds and computes of a mixture.

    ``experts`` stays the number of all experts: the chance that a token takes one is over all of them.
    """

    expert_ranks: Count = 1
    imbalance: Annotated[float, Field(ge=1)] = 1.0

    @property
    def held(self) -> int:
        """Experts of the rank that holds most."""
        return -(-self.experts // self.expert_ranks)
