"""Token mixers: how a layer lets tokens see each other. One class a kind; the layer list names them."""

from typing import Literal, NamedTuple

from pydantic import model_validator

from rooflinekit.specs.spec import Count, NotNegativeInt, Spec


class Product(NamedTuple):
    """One linear layer as an engine runs it: (tokens, inner) by (inner, columns), and its bias."""

    name: str
    inner: int
    columns: int
    bias: int = 0


class GroupedQueryAttention(Spec):
    """Multi-head, grouped-query and multi-query attention: `kv_heads` of `head_dim` keys, `value_dim` values.

    ``window`` is the number of tokens that a token sees at most, itself included; None is the whole context.
    ``qk_norm`` normalises queries and keys: ``head`` shares one vector of `head_dim` among heads, ``full`` spans the
    projection, ``per_head`` has its own for each head. ``norms`` counts the hidden-size norms of this half block.
    """

    name: str
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
    norms: NotNegativeInt = 1
    value_from_key: bool = False
    shares_kv: bool = False

    @model_validator(mode="after")
    def _heads_divide(self) -> "GroupedQueryAttention":
        if self.heads % self.kv_heads:
            message = f"heads ({self.heads}) must be a multiple of kv_heads ({self.kv_heads})"
            raise ValueError(message)
        return self

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
        value = 0 if self.value_from_key else value
        columns = query if self.shares_kv else query + key + value
        bias = query * self.q_bias + (0 if self.shares_kv else key * self.k_bias + value * self.v_bias)
        output = Product("o_proj", self.heads * self.value_width, hidden_size, hidden_size * self.o_bias)
        return Product("q_proj" if self.shares_kv else "qkv_proj", hidden_size, columns, bias), output

    @property
    def head_norm_parameters(self) -> int:
        """Weights of the query and key norms."""
        if self.qk_norm is None:
            return 0
        one_head = self.qk_norm == "head"
        query = self.head_dim if one_head else self.heads * self.head_dim
        key = self.head_dim if one_head else self.kv_heads * self.head_dim
        return query if self.shares_kv else query + key


Mixer = GroupedQueryAttention
