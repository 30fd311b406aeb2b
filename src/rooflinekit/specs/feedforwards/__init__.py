"""Feed-forward blocks. The registry is the union; a new kind is one class in it."""

from typing import Annotated, Literal

from pydantic import Discriminator, Tag

from rooflinekit.specs.feedforwards.dense import DenseFeedForward
from rooflinekit.specs.feedforwards.mixture import MixtureFeedForward, RankMixture
from rooflinekit.specs.mixers.base import FeedForwardBase, kind_or
from rooflinekit.specs.spec import NotNegativeInt

__all__ = ["DenseFeedForward", "FeedForward", "FeedForwardBase", "MixtureFeedForward", "NoFeedForward", "RankMixture"]


class NoFeedForward(FeedForwardBase):
    """A layer that is a mixer alone."""

    kind: Literal["none"] = "none"
    norms: NotNegativeInt = 0


FeedForward = Annotated[
    Annotated[DenseFeedForward, Tag("dense")]
    | Annotated[MixtureFeedForward, Tag("moe")]
    | Annotated[NoFeedForward, Tag("none")],
    Discriminator(kind_or("dense")),
]
