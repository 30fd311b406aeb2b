"""Token mixers: how a layer lets tokens see each other. The registry is the union; a new kind is one class in it."""

from typing import Annotated, Literal

from pydantic import Discriminator, Tag

from rooflinekit.specs.mixers.base import MixerBase, kind_or
from rooflinekit.specs.mixers.grouped import GroupedQueryAttention
from rooflinekit.specs.mixers.latent import LatentAttention
from rooflinekit.specs.mixers.recurrent import (
    GatedDeltaNet,
    LightningAttention,
    Mamba1,
    Mamba2,
    Recurrent,
    ShortConvolution,
)
from rooflinekit.specs.spec import NotNegativeInt

__all__ = ["GroupedQueryAttention", "LatentAttention", "Mixer", "MixerBase", "NoMixer", "Recurrent"]


class NoMixer(MixerBase):
    """A layer that is a feed-forward alone."""

    kind: Literal["none"] = "none"
    norms: NotNegativeInt = 0


Mixer = Annotated[
    Annotated[GroupedQueryAttention, Tag("gqa")]
    | Annotated[LatentAttention, Tag("mla")]
    | Annotated[GatedDeltaNet, Tag("gated_deltanet")]
    | Annotated[Mamba1, Tag("mamba1")]
    | Annotated[Mamba2, Tag("mamba2")]
    | Annotated[LightningAttention, Tag("lightning")]
    | Annotated[ShortConvolution, Tag("shortconv")]
    | Annotated[NoMixer, Tag("none")],
    Discriminator(kind_or("gqa")),
]
