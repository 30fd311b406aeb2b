"""How a paged cache lays layers out: blocks of one size shared by groups of equal layers, and what a request takes."""

from collections.abc import Sequence
from math import ceil
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Amount = float | NDArray[np.float64]
#: Above this ratio of layers the smaller kind sets the size of a group, below it the larger one, which is padded.
_PADDED_UP_TO = 1.5


class LayerKind(NamedTuple):
    """Layers of one GPU that hold alike: bytes a token and layer, with the window that they need, or a state."""

    layers: int
    bytes_per_token: float
    window: int | None = None
    state_bytes: float = 0.0


class PageGroup(NamedTuple):
    """Layers that share the number of a block: its tokens, their window; for states the blocks of a request."""

    block_tokens: int
    window: int | None = None
    state_blocks: int = 0


class Pages(NamedTuple):
    """Bytes of one block over the layers of a group, and the groups that draw blocks from one pool."""

    block_bytes: float
    groups: tuple[PageGroup, ...]

    @property
    def uniform(self) -> bool:
        """Tell whether all layers hold alike, so that bytes per token say everything."""
        return len(self.groups) == 1 and not self.groups[0].state_blocks

    @property
    def block_tokens(self) -> int:
        """Tokens of the smallest block."""
        return min(group.block_tokens for group in self.groups)

    def blocks(self, pool_bytes: float) -> int:
        """Whole blocks of a pool."""
        return int(pool_bytes // self.block_bytes)

    def blocks_per_request(self, tokens: Amount, in_flight_tokens: float = 0.0) -> Amount:
        """
        Blocks that a request of so many tokens takes at most, over all groups.

        Parameters
        ----------
        tokens : float or array
            Length of the request. [token]
        in_flight_tokens : float
            Tokens of the passes in flight: pages of a window are freed only after them. [token]

        Returns
        -------
        blocks : float or array
            A full group takes ceil(tokens / block), a window group as much as the window and the tokens in flight,
            and one more since a window need not begin with a block; a state its own number.

        References
        ----------
        53 startup logs of vLLM 0.10 to 0.24 (``references/serving/kvlog.csv``).

        Examples
        --------
        gpt-oss-20b, 12 layers with a window of 128 and 12 without, blocks of 16 tokens, a budget of 2,048:

        >>> pages = Pages(1.0, (PageGroup(16), PageGroup(16, 128)))
        >>> pages.blocks_per_request(32768.0, 2048.0)
        2185.0
        """
        taken: Amount = 0.0
        for group in self.groups:
            taken = taken + _blocks(group, tokens, in_flight_tokens)
        return taken if np.ndim(taken) else float(taken)


def _blocks(group: PageGroup, tokens: Amount, in_flight_tokens: float) -> Amount:
    if group.state_blocks:
        return float(group.state_blocks)
    if group.window is None:
        return np.ceil(np.divide(tokens, group.block_tokens))
    held = np.minimum(tokens, group.window - 1 + in_flight_tokens)
    return np.ceil(held / group.block_tokens) + 1.0


def lay_out(kinds: Sequence[LayerKind], block_tokens: int, state_blocks: int = 1) -> Pages:
    """
    Lay the layers of a model out in pages, as vLLM does.

    Parameters
    ----------
    kinds : sequence of LayerKind
        What the layers of one GPU hold.
    block_tokens : int
        Tokens of a block of attention, where no state asks for more. [token]
    state_blocks : int
        Blocks that a state takes for each request.

    Returns
    -------
    pages : Pages

    Notes
    -----
    Layers that all hold alike are one group. Else every group has as many layers as the rarest kind has (or the most
    frequent one, where it has less than half as many more), and all pages are of one size: a state's page is padded to
    a page of attention, whose tokens are raised until the state fits.

    Examples
    --------
    Qwen3-Next 80B on two GPUs: 36 states of 548,864 bytes, 12 layers of attention with 1,024 bytes a token:

    >>> pages = lay_out([LayerKind(36, 0.0, None, 548_864.0), LayerKind(12, 1024.0)], 16)
    >>> pages.block_tokens, len(pages.groups), pages.block_bytes
    (544, 4, 6684672.0)
    """
    attention = [kind for kind in kinds if kind.bytes_per_token]
    states = [kind for kind in kinds if kind.state_bytes]
    if not attention:
        held = sum(kind.layers * kind.state_bytes for kind in states)
        return Pages(held, (PageGroup(block_tokens, None, state_blocks),))
    windows = {kind.window for kind in attention}
    if not states and len(windows) == 1:
        each = sum(kind.layers * kind.bytes_per_token for kind in attention)
        return Pages(block_tokens * each, (PageGroup(block_tokens, windows.pop()),))
    return _hybrid(attention, states, block_tokens, state_blocks)


def _hybrid(attention: list[LayerKind], states: list[LayerKind], block_tokens: int, state_blocks: int) -> Pages:
    widest = max(kind.bytes_per_token for kind in attention)
    state = max((kind.state_bytes for kind in states), default=0.0)
    block = block_tokens * max(1, ceil(state / (block_tokens * widest)))
    buckets: dict[PageGroup, int] = {}
    for kind in attention:
        group = PageGroup(_stretched(block, widest, kind.bytes_per_token), kind.window)
        buckets[group] = buckets.get(group, 0) + kind.layers
    for kind in states:
        group = PageGroup(block, None, state_blocks)
        buckets[group] = buckets.get(group, 0) + kind.layers
    size = _group_size(list(buckets.values()))
    groups = tuple(group for group, layers in buckets.items() for _ in range(ceil(layers / size)))
    return Pages(size * block * widest, groups)


def _stretched(block: int, widest: float, bytes_per_token: float) -> int:
    """Tokens that fill the common page, where it holds a whole number of blocks; else the page is padded."""
    ratio = widest / bytes_per_token
    return block * int(ratio) if ratio.is_integer() else block


def _group_size(layers: list[int]) -> int:
    fewest, most = min(layers), max(layers)
    return most if most < fewest * _PADDED_UP_TO else fewest
