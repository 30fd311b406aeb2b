"""Multi-head latent attention (DeepSeek V2 and V3, Kimi K2, GLM-5): one latent per token, not K and V per head."""

from typing import Literal, Self

from rooflinekit.specs.mixers.base import MixerBase, Module, Product, part
from rooflinekit.specs.spec import Count, Spec


class SparseIndexer(Spec):
    """Picks `selected` tokens of the context for each query; holds one FP8 key of `head_dim` per token, and a scale."""

    heads: Count
    head_dim: Count
    selected: Count


class LatentAttention(MixerBase):
    """Queries through a low rank (or not), keys and values through one latent of `kv_rank` and a shared rotary key.

    ``selected`` caps the keys that a query sees, for layers that reuse an earlier layer's indexer.
    """

    kind: Literal["mla"] = "mla"
    heads: Count
    q_rank: Count | None = None
    kv_rank: Count
    nope_dim: Count
    rope_dim: Count
    value_dim: Count
    indexer: SparseIndexer | None = None
    selected: Count | None = None

    def divided(self, degree: int) -> Self:
        """Divide the heads; latents, what makes them, the indexer and the cache are the same on every rank."""
        return self.model_copy(update=part(self, "heads", degree))

    @property
    def cached_per_token(self) -> int:
        """One latent and one rotary key: no factor of two, no heads."""
        return self.kv_rank + self.rope_dim

    @property
    def index_bytes_per_token(self) -> float:
        """An FP8 key and its 32-bit scale."""
        return 0.0 if self.indexer is None else self.indexer.head_dim + 4.0

    @property
    def keys_seen(self) -> int | None:
        """Keys that a query sees at most."""
        return self.selected if self.indexer is None else self.indexer.selected

    def products(self, hidden_size: int) -> tuple[Product, ...]:
        """List the linear layers."""
        width = self.heads * (self.nope_dim + self.rope_dim)
        latent = self.kv_rank + self.rope_dim
        query = (
            (_one("q_proj", hidden_size, width),)
            if self.q_rank is None
            else (_one("q_a_proj", hidden_size, self.q_rank), _one("q_b_proj", self.q_rank, width))
        )
        return (
            *query,
            _one("kv_a_proj", hidden_size, latent, "kv_a_proj_with_mqa"),
            _one("kv_b_proj", self.kv_rank, self.heads * (self.nope_dim + self.value_dim)),
            *self._index_products(hidden_size),
            _one("o_proj", self.heads * self.value_dim, hidden_size),
        )

    def _index_products(self, hidden_size: int) -> tuple[Product, ...]:
        if self.indexer is None:
            return ()
        width, heads = self.indexer.head_dim, self.indexer.heads
        return (
            _one("index_q_proj", self.q_rank or hidden_size, heads * width, "indexer.wq_b"),
            _one("index_k_proj", hidden_size, width, "indexer.wk"),
            _one("index_weights_proj", hidden_size, heads, "indexer.weights_proj"),
        )

    def other_parameters(self, hidden_size: int) -> int:  # noqa: ARG002 - the norms are of the ranks
        """Count the norms of the two ranks, and the layer norm of the index keys."""
        index = 0 if self.indexer is None else 2 * self.indexer.head_dim
        return (self.q_rank or 0) + self.kv_rank + index


def _one(name: str, inner: int, columns: int, module: str | None = None) -> Product:
    return Product(name, inner, columns, 0, (Module(f"self_attn.{module or name}", columns),))
