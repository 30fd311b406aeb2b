"""Efficiency: which part of its datasheet peaks a device reaches, by class of operator, under one engine and format.

A value: calibration makes it, timing takes it. Every fraction is of a DATASHEET peak and lies in (0, 1].
"""

from typing import Annotated, Literal

from pydantic import Field

from rooflinekit.specs.spec import Fraction, NotNegative, Spec

#: How compute and memory time join: 1 adds them, infinity takes the larger.
Exponent = Annotated[float, Field(gt=0, allow_inf_nan=True)]


class ProductLaw(Spec):
    """Constants of a matrix product, ``t0 + ((flops / (compute F))**p + (bytes / (memory B))**p)**(1/p)``.

    ``quantisation_ps_per_element`` is the price of quantising the product's input on the way in; 0 where the engine has
    no such pass. ``inner_ns_per_element`` is the serial part of the sum over the inner width, paid once a launch.
    ``peak`` is the datasheet peak that `compute` is a part of, where it is not that of the product's own dtype: engines
    that quantise their inputs to integers on the way compute at ``int8``, FP16 accumulation at ``fp16_acc16``.
    ``unpack_flops_per_weight`` is what unpacking a weight of a packed format costs, and ``vector_flops_per_flop`` what
    the product itself keeps the vector units busy with (scaling sums of blocks), both in FLOP at the FP32 vector peak.
    """

    compute: Fraction
    memory: Fraction
    launch_us: NotNegative
    exponent: Exponent = 2.0
    quantisation_ps_per_element: NotNegative = 0.0
    inner_ns_per_element: NotNegative = 0.0
    unpack_flops_per_weight: NotNegative = 0.0
    vector_flops_per_flop: NotNegative = 0.0
    peak: str | None = None


class AttentionLaw(Spec):
    """Constants of the one attention law, for any number of new tokens.

    ``memory`` is the rate of the K and V stream, ``activation`` that of queries and outputs, which do not overlap with
    it; None where they do, so that all bytes are one stream.
    ``softmax_flops_per_score`` prices one score's softmax in FLOP at the attention's own rate. ``tile_tokens`` is the
    least number of rows of K and V that a sequence costs: the kernel reads them a tile at a time.
    """

    compute: Fraction
    memory: Fraction
    activation: Fraction | None
    launch_us: NotNegative
    exponent: Exponent = 2.0
    softmax_flops_per_score: NotNegative = 0.0
    tile_tokens: NotNegative = 0.0


class ElementwiseLaw(Spec):
    """Constants of a kernel that only moves bytes: ``t0 + bytes / (memory B)``."""

    memory: Fraction
    launch_us: NotNegative


class MixtureLaw(Spec):
    """Constants of a fused mixture, ``t0 + flops / (compute F) + bytes / (memory B)``: the two add up."""

    compute: Fraction
    memory: Fraction
    launch_us: NotNegative
    exponent: Exponent = 1.0
    unpack_flops_per_weight: NotNegative = 0.0
    vector_flops_per_flop: NotNegative = 0.0
    peak: str | None = None


class MixtureLaws(Spec):
    """One law for each arithmetic dtype that was measured."""

    bf16: MixtureLaw | None = None
    fp8: MixtureLaw | None = None
    fp4: MixtureLaw | None = None
    int8: MixtureLaw | None = None
    fp32: MixtureLaw | None = None


class ProductLaws(Spec):
    """One law for each arithmetic dtype that was measured."""

    bf16: ProductLaw | None = None
    fp8: ProductLaw | None = None
    fp4: ProductLaw | None = None
    int8: ProductLaw | None = None
    fp32: ProductLaw | None = None


class Covariance(Spec):
    """What a fit leaves open: the covariance of the logarithms of its free constants, each a list of fields it sets."""

    constants: tuple[tuple[str, ...], ...]
    log: tuple[tuple[float, ...], ...]


class Spread(Spec):
    """Standard deviation of ln(predicted / measured) on data that were not fitted, by class and by whole pass.

    A class's is that of one row of a pass (the launches of a row share their fate), a pass's is what all rows share.
    ``other_engine`` and ``other_format``, of the universal entry, widen a pass whose constants were fitted on those.
    """

    product_prefill: NotNegative | None = None
    product_decode: NotNegative | None = None
    attention_prefill: NotNegative | None = None
    attention_decode: NotNegative | None = None
    mixture_prefill: NotNegative | None = None
    mixture_decode: NotNegative | None = None
    small: NotNegative | None = None
    prefill: NotNegative | None = None
    decode: NotNegative | None = None
    other_engine: NotNegative | None = None
    other_format: NotNegative | None = None


class Evidence(Spec):
    """Where one constant comes from, how many points it was fitted on and what they leave over.

    ``direct`` is a direct measurement of the same figure, as a part of the datasheet peak; ``note`` explains a
    difference above 10%.
    """

    constant: str
    source: str
    points: int = Field(default=0, ge=0)
    residual: float | None = None
    direct: float | None = None
    note: str = ""


class Fusion(Spec):
    """A kernel that an engine runs inside a neighbouring one, where others launch it apart; the source says so."""

    kernel: Literal["rotary", "cache_write", "static_fp8_quantisation", "fp8_cache_widening"]
    source: str


class Efficiency(Spec):
    """Laws of one (device, engine, format), or of a generation, or the universal ones.

    ``attention_fp8`` is attention over a cache held in FP8, ``attention_wide`` that of heads wider than 256, where
    those are known; else ``attention`` serves all.

    A law left out is taken from the generation's entry, then from the universal one. ``burst_ms`` and ``sustained``
    describe the power limit: compute work runs at the burst rate until that budget is used, then at ``sustained`` of
    that rate. None means no such limit was seen. ``gap_us`` is the pause before each launch that no kernel row shows,
    ``step_us`` the host's time for a pass; None is that of the next entry, and 0 where none has it. ``family`` names
    the devices that an engine's shared entry is for.
    """

    name: str
    engine: str | None = None
    format: str = "bf16"
    default: bool = False
    products: ProductLaws = ProductLaws()
    mixtures: MixtureLaws = MixtureLaws()
    attention: AttentionLaw | None = None
    attention_fp8: AttentionLaw | None = None
    attention_wide: AttentionLaw | None = None
    norm: ElementwiseLaw | None = None
    rotary: ElementwiseLaw | None = None
    activation: ElementwiseLaw | None = None
    cache_write: ElementwiseLaw | None = None
    family: str = ""
    gap_us: NotNegative | None = None
    step_us: NotNegative | None = None
    burst_ms: NotNegative | None = None
    sustained: Fraction | None = None
    fitted_on: str = ""
    evidence: tuple[Evidence, ...] = ()
    covariance: Covariance | None = None
    spread: Spread | None = None
