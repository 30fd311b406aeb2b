"""Mixers whose sequences hold a state of constant size: linear attention, state-space models, short convolutions."""

from math import ceil
from typing import ClassVar, Literal, Self

from rooflinekit.specs.mixers.base import MixerBase, Module, Product, State, part, part_or_copy
from rooflinekit.specs.spec import Count, Positive


class Recurrent(MixerBase):
    """A mixer with a convolution over a few tokens and a scan over a state.

    ``state_bytes`` is the width of a state value (engines keep it in 32 bits unless the model says otherwise), and
    ``conv_state_bytes`` that of the last inputs of the convolution. ``flops_per_state_value`` are the operations of the
    scan for one token and one value of the state.
    """

    flops_per_state_value: ClassVar[float] = 0.0
    #: What ranks divide among each other: heads, or channels.
    divides: ClassVar[tuple[str, ...]] = ()
    state_bytes: Positive = 4.0
    conv_state_bytes: Positive = 2.0

    def divided(self, degree: int) -> Self:
        """Divide heads or channels, and the states with them."""
        sizes: dict[str, int] = {}
        for size in self.divides:
            sizes |= part(self, size, degree)
        return self.model_copy(update=sizes)

    @property
    def channels(self) -> int:
        """Channels of the convolution; 0 without one."""
        return 0

    @property
    def kernel(self) -> int:
        """Tokens that the convolution spans."""
        return 1

    @property
    def state_values(self) -> int:
        """Values of the state of one sequence."""
        return 0

    @property
    def scan_flops_per_token(self) -> float:
        """Operations of the scan for one token."""
        return self.flops_per_state_value * self.state_values

    @property
    def scan_elements_per_token(self) -> int:
        """Values that the scan reads and writes for one token besides the state."""
        return 0

    @property
    def states(self) -> tuple[State, ...]:
        """The scan's state, and the convolution's last inputs."""
        scan = State(self.state_values, self.state_bytes)
        return scan, State((self.kernel - 1) * self.channels, self.conv_state_bytes)


class Convolved(Recurrent):
    """A recurrent mixer whose convolution spans `conv_kernel` tokens."""

    conv_kernel: Count

    @property
    def kernel(self) -> int:
        """Tokens that the convolution spans."""
        return self.conv_kernel


class GatedDeltaNet(Convolved):
    """Gated DeltaNet (Qwen3-Next, Qwen3.5): `key_heads` of `key_dim`, `value_heads` of `value_dim`."""

    #: Decay, read, correct and write the matrix: an estimate.
    flops_per_state_value: ClassVar[float] = 8.0

    divides: ClassVar[tuple[str, ...]] = ("key_heads", "value_heads")
    kind: Literal["gated_deltanet"] = "gated_deltanet"
    key_heads: Count
    value_heads: Count
    key_dim: Count
    value_dim: Count

    @property
    def channels(self) -> int:
        """Queries, keys and values pass the convolution."""
        return 2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim

    @property
    def state_values(self) -> int:
        """One key x value matrix a value head."""
        return self.value_heads * self.key_dim * self.value_dim

    @property
    def scan_elements_per_token(self) -> int:
        """Convolved inputs, gate and output."""
        return self.channels + 2 * self.value_heads * self.value_dim

    def products(self, hidden_size: int) -> tuple[Product, ...]:
        """List the linear layers."""
        inner = self.value_heads * self.value_dim
        return (
            _linear("in_proj_qkvz", hidden_size, self.channels + inner),
            _linear("in_proj_ba", hidden_size, 2 * self.value_heads),
            _linear("out_proj", inner, hidden_size),
        )

    def other_parameters(self, hidden_size: int) -> int:  # noqa: ARG002 - none depends on it
        """Count convolution, decays, their bias, and the norm of the output heads."""
        return self.channels * self.conv_kernel + 2 * self.value_heads + self.value_dim


class Mamba2(Convolved):
    """Mamba-2 (Codestral-Mamba, Granite 4 H, Nemotron-H): `heads` of `head_dim`, `groups` of B and C `state` wide."""

    #: Decay, add and read: an estimate.
    flops_per_state_value: ClassVar[float] = 6.0

    divides: ClassVar[tuple[str, ...]] = ("heads",)
    kind: Literal["mamba2"] = "mamba2"
    heads: Count
    head_dim: Count
    groups: Count
    state: Count
    conv_bias: bool = True

    def divided(self, degree: int) -> Self:
        """Divide the heads; groups of B and C are copied where there are fewer of them than ranks."""
        return super().divided(degree).model_copy(update=part_or_copy(self, "groups", degree))

    @property
    def inner(self) -> int:
        """Inner width."""
        return self.heads * self.head_dim

    @property
    def channels(self) -> int:
        """Inner width, B and C pass the convolution."""
        return self.inner + 2 * self.groups * self.state

    @property
    def state_values(self) -> int:
        """Inner width x state."""
        return self.inner * self.state

    @property
    def scan_elements_per_token(self) -> int:
        """Convolved inputs, gate and output."""
        return self.channels + 2 * self.inner

    def products(self, hidden_size: int) -> tuple[Product, ...]:
        """List the linear layers."""
        return (
            _linear("in_proj", hidden_size, self.inner + self.channels + self.heads),
            _linear("out_proj", self.inner, hidden_size),
        )

    def other_parameters(self, hidden_size: int) -> int:  # noqa: ARG002 - none depends on it
        """Count convolution, decays, skips, time-step bias, and the norm of the output."""
        return self.channels * (self.conv_kernel + self.conv_bias) + 3 * self.heads + self.inner


class Mamba1(Convolved):
    """Mamba-1 (Mamba, Falcon-Mamba, Jamba): `inner` channels with a state of `state` each, a time step of low rank."""

    #: Decay, add and read: an estimate.
    flops_per_state_value: ClassVar[float] = 6.0

    divides: ClassVar[tuple[str, ...]] = ("inner",)
    kind: Literal["mamba1"] = "mamba1"
    inner: Count
    state: Count
    dt_rank: Count | None = None
    inner_norms: bool = False

    @property
    def channels(self) -> int:
        """Channels of the convolution."""
        return self.inner

    @property
    def state_values(self) -> int:
        """Inner width x state."""
        return self.inner * self.state

    @property
    def scan_elements_per_token(self) -> int:
        """Convolved inputs, gate, time step and output, B and C."""
        return 4 * self.inner + 2 * self.state

    def rank(self, hidden_size: int) -> int:
        """Rank of the time step: a sixteenth of the hidden size where the file does not say."""
        return self.dt_rank or ceil(hidden_size / 16)

    def partial_sums(self, hidden_size: int) -> tuple[int, ...]:
        """B, C and the time step's low rank come from all channels."""
        return (self.rank(hidden_size) + 2 * self.state,)

    def products(self, hidden_size: int) -> tuple[Product, ...]:
        """List the linear layers."""
        rank = self.rank(hidden_size)
        return (
            _linear("in_proj", hidden_size, 2 * self.inner),
            _linear("x_proj", self.inner, rank + 2 * self.state),
            _linear("dt_proj", rank, self.inner)._replace(bias=self.inner),
            _linear("out_proj", self.inner, hidden_size),
        )

    def other_parameters(self, hidden_size: int) -> int:
        """Count convolution with its bias, decays, skips, and the inner norms."""
        norms = (self.rank(hidden_size) + 2 * self.state) * self.inner_norms
        return self.inner * (self.conv_kernel + 1) + self.inner * self.state + self.inner + norms


class LightningAttention(Recurrent):
    """Lightning attention (MiniMax-M1, Text-01): linear attention with a matrix of `head_dim` squared a head."""

    #: Write and read the matrix.
    flops_per_state_value: ClassVar[float] = 4.0

    divides: ClassVar[tuple[str, ...]] = ("heads",)
    kind: Literal["lightning"] = "lightning"
    heads: Count
    head_dim: Count

    @property
    def state_values(self) -> int:
        """One matrix a head."""
        return self.heads * self.head_dim**2

    @property
    def scan_elements_per_token(self) -> int:
        """Queries, keys, values, gate and output."""
        return 5 * self.heads * self.head_dim

    def products(self, hidden_size: int) -> tuple[Product, ...]:
        """List the linear layers."""
        width = self.heads * self.head_dim
        return (
            _linear("qkv_proj", hidden_size, 3 * width),
            _linear("output_gate", hidden_size, width),
            _linear("out_proj", width, hidden_size),
        )

    def other_parameters(self, hidden_size: int) -> int:  # noqa: ARG002 - the norm is of the heads
        """Count the norm of the output."""
        return self.heads * self.head_dim


class ShortConvolution(Convolved):
    """Gated short convolution (LFM2) over `conv_kernel` tokens of `width` channels."""

    divides: ClassVar[tuple[str, ...]] = ("width",)
    kind: Literal["shortconv"] = "shortconv"
    width: Count

    @property
    def channels(self) -> int:
        """Channels of the convolution."""
        return self.width

    @property
    def states(self) -> tuple[State, ...]:
        """The convolution's last inputs alone."""
        return (State((self.kernel - 1) * self.channels, self.conv_state_bytes),)

    def products(self, hidden_size: int) -> tuple[Product, ...]:
        """List the linear layers."""
        return _linear("in_proj", hidden_size, 3 * self.width), _linear("out_proj", self.width, hidden_size)

    def other_parameters(self, hidden_size: int) -> int:  # noqa: ARG002 - its width is its own
        """Count the convolution."""
        return self.width * self.conv_kernel


def _linear(name: str, inner: int, columns: int) -> Product:
    return Product(name, inner, columns, 0, (Module(f"mixer.{name}", columns),))
