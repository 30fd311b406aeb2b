"""Number formats: what a weight takes in memory with its scales, and what the products on it compute in."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache

from rooflinekit.errors import InvalidInputError
from rooflinekit.specs.quantisation import PLAIN_FORMAT, Quantisation
from rooflinekit.units import BITS_PER_BYTE

#: Arithmetic dtypes, each with its bytes per value in memory.
DTYPES: dict[str, float] = {
    "fp32": 4.0,
    "tf32": 4.0,
    "bf16": 2.0,
    "fp16": 2.0,
    "fp8": 1.0,
    "fp6": 0.75,
    "fp4": 0.5,
    "int8": 1.0,
    "int4": 0.5,
}
PLAIN = ("bf16", "fp16", "fp32")
#: What the KV cache may be held in; fp8 and int8 as engines write them, one scale per tensor.
KV_FORMATS = ("bf16", "fp16", "fp32", "fp8", "int8")


#: Bits of the dtypes that weights are computed with as they are.
WIDE = 16.0


@dataclass(frozen=True)
class WeightFormat:
    """How a linear layer's weights are stored, and what it computes in.

    ``bits`` includes the scales. ``arithmetic`` is the dtype that activations are quantised to for the product;
    None is a weight-only format, which computes in the model's own 16-bit dtype.
    """

    name: str
    bits: float
    arithmetic: str | None
    scales: str

    @property
    def packed(self) -> bool:
        """Tell whether a weight is unpacked before it is computed with: a weight-only format of less than 16 bits."""
        return self.arithmetic is None and self.bits < WIDE

    @property
    def bytes_per_weight(self) -> float:
        """Bytes of one stored weight, its share of the scales included."""
        return self.bits / BITS_PER_BYTE


_FORMATS = (
    WeightFormat("bf16", 16, None, "none"),
    WeightFormat("fp16", 16, None, "none"),
    WeightFormat("fp32", 32, None, "none"),
    WeightFormat("fp8", 8, "fp8", "one per tensor or row: not counted"),
    WeightFormat("fp8-block", 8 + 32 / (128 * 128), "fp8", "32-bit scale per 128 x 128 block"),
    WeightFormat("int8", 8, "int8", "one per row: not counted"),
    WeightFormat("int8-weight-only", 8, None, "one per row: not counted"),
    WeightFormat("int4", 4 + 20 / 128, None, "group of 128: 16-bit scale and 4-bit zero (AWQ, GPTQ)"),
    WeightFormat("int4-g32", 4.5, None, "group of 32: 16-bit scale"),
    WeightFormat("nf4", 4.5, None, "group of 64: 32-bit scale (bitsandbytes)"),
    WeightFormat("mxfp4", 4.25, None, "group of 32: 8-bit scale"),
    WeightFormat("nvfp4", 4.5, "fp4", "group of 16: 8-bit scale"),
    WeightFormat("fp8-weight-only", 8, None, "one per tensor or row: not counted"),
    WeightFormat("mxfp8", 8.25, "fp8", "group of 32: 8-bit scale"),
    WeightFormat("mxfp4-fp8", 4.25, "fp8", "group of 32: 8-bit scale"),
    WeightFormat("mxfp4-fp4", 4.25, "fp4", "group of 32: 8-bit scale"),
    WeightFormat("nvfp4-weight-only", 4.5, None, "group of 16: 8-bit scale"),
    WeightFormat("nf4-double", 4 + 8 / 64 + 32 / (64 * 256), None, "group of 64: 8-bit scale, itself in groups of 256"),
    WeightFormat("mlx-4bit", 4.5, None, "group of 64: 16-bit scale and bias (MLX)"),
    WeightFormat("mlx-8bit", 8.5, None, "group of 64: 16-bit scale and bias (MLX)"),
    WeightFormat("q8_0", 8.5, None, "block of 32: 16-bit scale (GGUF)"),
    WeightFormat("q6_k", 6.5625, None, "block of 256 (GGUF)"),
    WeightFormat("q5_k", 5.5, None, "block of 256 (GGUF)"),
    WeightFormat("q4_k", 4.5, None, "block of 256 (GGUF)"),
    WeightFormat("q3_k", 3.4375, None, "block of 256 (GGUF)"),
    WeightFormat("q2_k", 2.625, None, "block of 256 (GGUF)"),
    WeightFormat("q5_1", 6.0, None, "block of 32: scale and minimum (GGUF)"),
    WeightFormat("q5_0", 5.5, None, "block of 32 (GGUF)"),
    WeightFormat("q4_1", 5.0, None, "block of 32: scale and minimum (GGUF)"),
    WeightFormat("q4_0", 4.5, None, "block of 32 (GGUF)"),
    WeightFormat("iq4_nl", 4.5, None, "block of 32 (GGUF)"),
    WeightFormat("iq4_xs", 4.25, None, "block of 256 (GGUF)"),
    WeightFormat("iq3_s", 3.4375, None, "block of 256 (GGUF)"),
    WeightFormat("iq3_xxs", 3.0625, None, "block of 256 (GGUF)"),
    WeightFormat("iq2_s", 2.5625, None, "block of 256 (GGUF)"),
    WeightFormat("iq2_xs", 2.3125, None, "block of 256 (GGUF)"),
    WeightFormat("iq2_xxs", 2.0625, None, "block of 256 (GGUF)"),
    WeightFormat("iq1_m", 1.75, None, "block of 256 (GGUF)"),
    WeightFormat("iq1_s", 1.5625, None, "block of 256 (GGUF)"),
    WeightFormat("tq2_0", 2.0625, None, "block of 256: ternary (GGUF)"),
    WeightFormat("tq1_0", 1.6875, None, "block of 256: ternary (GGUF)"),
    WeightFormat("q1_0", 1.125, None, "block of 128: 16-bit scale (GGUF)"),
    WeightFormat("q8_1", 10.0, None, "block of 32: 32-bit scale and sum (GGUF)"),
    WeightFormat("q8_k", 9.125, None, "block of 256: 32-bit scale and sums (GGUF)"),
    WeightFormat("i16", 16, None, "none (GGUF)"),
    WeightFormat("i32", 32, None, "none (GGUF)"),
    WeightFormat("i64", 64, None, "none (GGUF)"),
    WeightFormat("f64", 64, None, "none (GGUF)"),
)
WEIGHT_FORMATS: dict[str, WeightFormat] = {row.name: row for row in _FORMATS}
#: Formats of any group: ``int4-g64`` (16-bit scale), ``int4-g64-zp`` (and a zero point of as many bits), ``-zp16``
#: (of 16 bits), ``int3-row`` (one scale a row), each with the dtype that activations take; MLX's; fp8 in other blocks.
_INTEGERS = re.compile(r"int([2-8])-(?:row|g([1-9]\d{0,5})(-zp16|-zp)?)(?:-(int8|fp8))?")
_MLX = re.compile(r"mlx-([2-8])bit(?:-g([1-9]\d{0,5}))?")
_BLOCKS = re.compile(r"fp8-block-([1-9]\d{0,5})x([1-9]\d{0,5})")


def weight_format(name: str) -> WeightFormat:
    """Look up a weight format, or work it out where its name gives bits and group size.

    >>> weight_format("int4").bits, weight_format("int4-g64").bits, weight_format("mlx-6bit").bits
    (4.15625, 4.25, 6.5)
    """
    known = WEIGHT_FORMATS.get(name) or _by_name(name)
    return known or WEIGHT_FORMATS[one_of("weights", name, WEIGHT_FORMATS)]


def is_weight_format(name: str) -> bool:
    """Tell whether a name is that of a format, listed or by its bits and group size."""
    return name in WEIGHT_FORMATS or _by_name(name) is not None


@cache
def _by_name(name: str) -> WeightFormat | None:
    """Work out a format from its bits and group size."""
    if found := _INTEGERS.fullmatch(name):
        bits, zero = int(found[1]), {None: 0, "-zp16": 16, "-zp": int(found[1])}[found[3]]
        held = bits if found[2] is None else bits + (16 + zero) / int(found[2])
        return WeightFormat(name, held, found[4], f"{name}: 16-bit scale, zero point of {zero} bits")
    if found := _MLX.fullmatch(name):
        size = int(found[2] or 64)
        return WeightFormat(name, int(found[1]) + 32 / size, None, f"group of {size}: 16-bit scale and bias (MLX)")
    if found := _BLOCKS.fullmatch(name):
        rows, columns = int(found[1]), int(found[2])
        return WeightFormat(name, 8 + 32 / (rows * columns), "fp8", f"32-bit scale per {rows} x {columns} block")
    return None


def kv_bytes_per_value(name: str) -> float:
    """Bytes of one cached value. The KV dtype is an input of its own: it never follows the weights' format.

    >>> kv_bytes_per_value("fp8")
    1.0
    """
    return DTYPES[one_of("kv_cache", name, KV_FORMATS)]


def one_of(argument: str, name: str, choices: Iterable[str]) -> str:
    """Return `name` where it is one of the choices, else raise an error that lists them, and the nearest again."""
    known = tuple(choices)
    if name not in known:
        near = get_close_matches(name.lower(), known)
        message = f"{argument}={name!r} is not known: expected one of {', '.join(known)}"
        raise InvalidInputError(f"{message}; did you mean {' or '.join(near)}?" if near else message)
    return name


@dataclass(frozen=True)
class Precision:
    """The dtypes of a deployment: weights by matrix, cache, what stays at the model's own dtype, and the arithmetic.

    ``weights`` is the format of most matrices, ``scheme`` says which matrix has which. ``compute`` is the arithmetic
    dtype that the user asked for, if any. ``routing_skew`` is how unevenly a mixture's experts are chosen, infinity
    where all tokens agree. ``ridge`` is how many operations the device does while it moves a byte, which decides
    between two forms of the same attention; 0 weighs operations alone. [FLOP/byte]
    """

    weights: WeightFormat
    scheme: Quantisation
    kv_cache: str
    dtype: str
    compute: str | None = None
    routing_skew: float = 0.0
    ridge: float = 0.0

    @property
    def described(self) -> str:
        """Name the weights' formats: of most matrices, and of those that rules tell apart."""
        others = {rule.format for rule in self.scheme.rules} - {PLAIN_FORMAT, self.scheme.default, self.weights.name}
        return f"{self.weights.name} weights" + "".join(f" and {name}" for name in sorted(others))

    @property
    def value_bytes(self) -> float:
        """Bytes of an activation, and of a weight that stays unquantised (embedding, output layer, norms, biases)."""
        return DTYPES[self.dtype]

    @property
    def kv_bytes(self) -> float:
        """Bytes of one cached value."""
        return kv_bytes_per_value(self.kv_cache)

    @property
    def product_dtype(self) -> str:
        """Dtype that most products compute in."""
        return self.arithmetic_of(self.weights)

    @property
    def attention_dtype(self) -> str:
        """Dtype that attention computes in: the model's own, whatever the weights are."""
        return self.dtype

    @property
    def plain(self) -> WeightFormat:
        """What an unquantised weight is held in."""
        return WEIGHT_FORMATS[self.dtype]

    def format_of(self, path: str) -> WeightFormat:
        """Format of one matrix by its path in a checkpoint."""
        return self.named(self.scheme.format_of(path))

    def format_by_rule(self, path: str) -> WeightFormat:
        """Format of a matrix that stays plain unless a rule of the checkpoint names it (routers)."""
        return self.named(self.scheme.by_rule(path) or PLAIN_FORMAT)

    @property
    def head(self) -> WeightFormat:
        """Format of the output layer."""
        return self.named(self.scheme.head)

    @property
    def head_dtype(self) -> str:
        """Dtype that the output layer computes in: a dtype asked for is meant for the products of the blocks."""
        return self.dtype if self.scheme.head == PLAIN_FORMAT else self.arithmetic_of(self.head)

    @property
    def embedding(self) -> WeightFormat:
        """Format of the embedding table."""
        return self.named(self.scheme.embedding)

    def named(self, name: str) -> WeightFormat:
        """Look up a format by the name that a scheme gives it."""
        return self.plain if name == PLAIN_FORMAT else weight_format(name)

    def arithmetic_of(self, form: WeightFormat) -> str:
        """Dtype that a product over weights of this format computes in."""
        if form.name == self.dtype and self.weights.name != form.name:
            return self.dtype  # a layer that the checkpoint leaves out of its quantisation
        return self.compute or form.arithmetic or self.dtype
