"""Multi-head, grouped-query and multi-query attention, with what today's models add to it."""

from typing import Literal, Self

from pydantic import model_validator

from rooflinekit.specs.mixers.base import MixerBase, Module, Product, part, part_or_copy
from rooflinekit.specs.spec import Count


class GroupedQueryAttention(MixerBase):
    """`heads` query heads over `kv_heads` heads of keys (`head_dim` wide) and values (`value_dim` wide).

    ``window`` is the number of tokens that a token sees at most, itself included; with ``chunked`` the view starts anew
    every `window` tokens. ``qk_norm`` normalises queries and keys: ``head`` shares one vector of
    `head_dim` among heads, ``full`` spans the projection, ``per_head`` has its own for each head. ``value_from_key``
    takes V from the K projection, ``shares_kv`` takes both from another layer. ``output_gate`` doubles the query
    projection, ``sinks`` adds one logit a head. ``rotary: false`` is a layer without positions. ``norms`` counts the
    hidden-size norms of this half block.
    """

    kind: Literal["gqa"] = "gqa"
    heads: Count
    kv_heads: Count
    head_dim: Count
    value_dim: Count | None = None
    q_bias: bool = False
    k_bias: bool = False
    v_bias: bool = False
    o_bias: bool = False
    qk_norm: Literal["head", "full", "per_head"] | None = None
    window: Count | None = None
    chunked: bool = False
    rotary: bool = True
    value_from_key: bool = False
    shares_kv: bool = False
    output_gate: bool = False
    sinks: bool = False

    @model_validator(mode="after")
    def _heads_divide(self) -> "GroupedQueryAttention":
        if self.heads % self.kv_heads:
            message = f"heads ({self.heads}) must be a multiple of kv_heads ({self.kv_heads})"
            raise ValueError(message)
        if self.chunked and self.window is None:
            message = "chunked needs a window: the length of a chunk"
            raise ValueError(message)
        return self

    def divided(self, degree: int) -> Self:
        """Divide the heads; KV heads are copied where there are fewer of them than ranks."""
        return self.model_copy(update=part(self, "heads", degree) | part_or_copy(self, "kv_heads", degree))

    @property
    def view(self) -> int | None:
        """Tokens that a token sees at most."""
        return self.window

    @property
    def value_width(self) -> int:
        """Width of one value head."""
        return self.value_dim or self.head_dim

    @property
    def cached_per_token(self) -> int:
        """K and V values that one token adds to the cache; 0 where another layer's are used."""
        return 0 if self.shares_kv else self.read_per_token

    @property
    def read_per_token(self) -> int:
        """K and V values that attention reads for one token of context."""
        return self.kv_heads * (self.head_dim + self.value_width)

    def products(self, hidden_size: int) -> tuple[Product, ...]:
        """List the linear layers, Q, K and V merged as serving engines do."""
        query, key, value = self.heads * self.head_dim, self.kv_heads * self.head_dim, self.kv_heads * self.value_width
        parts = [("q_proj", query * (1 + self.output_gate), query * self.q_bias)]
        if not self.shares_kv:
            parts.append(("k_proj", key, key * self.k_bias))
            parts += [] if self.value_from_key else [("v_proj", value, value * self.v_bias)]
        modules = tuple(Module(f"self_attn.{name}", columns) for name, columns, _ in parts)
        columns, bias = sum(part[1] for part in parts), sum(part[2] for part in parts)
        name = "q_proj" if self.shares_kv else "qkv_proj"
        inner = self.heads * self.value_width
        output = Product(
            "o_proj", inner, hidden_size, hidden_size * self.o_bias, (Module("self_attn.o_proj", hidden_size),)
        )
        return Product(name, hidden_size, columns, bias, modules), output

    def other_parameters(self, hidden_size: int) -> int:  # noqa: ARG002 - head norms do not depend on it
        """Count the weights of the query and key norms, and the sinks."""
        return self.head_norm_parameters + self.heads * self.sinks

    @property
    def shared_norms(self) -> int:
        """Of queries and of keys, where they are normalised over all heads at once."""
        return (1 if self.shares_kv else 2) if self.qk_norm == "full" else 0

    @property
    def head_norm_parameters(self) -> int:
        """Weights of the query and key norms."""
        if self.qk_norm is None:
            return 0
        one_head = self.qk_norm == "head"
        query = self.head_dim if one_head else self.heads * self.head_dim
        key = self.head_dim if one_head else self.kv_heads * self.head_dim
        return query if self.shares_kv else query + key
