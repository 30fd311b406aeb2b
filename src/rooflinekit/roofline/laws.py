"""Which laws a deployment runs under: its device's and engine's, then the generation's, then the universal ones."""

from collections.abc import Sequence
from dataclasses import dataclass

from rooflinekit.errors import NotCalibratedError
from rooflinekit.specs.efficiency import (
    AttentionLaw,
    Efficiency,
    ElementwiseLaw,
    MixtureLaw,
    MixtureLaws,
    ProductLaw,
    ProductLaws,
)

#: Dtypes without constants of their own take those of the nearest one that was measured, and the estimate says so.
_LIKE = {"fp16": "bf16", "tf32": "bf16", "fp32": "bf16", "int8": "fp8", "fp6": "fp8", "fp4": "fp8", "int4": "fp8"}
#: Formats whose weights are held as they are computed in: one entry serves both.
_SAME = {"fp16": "bf16", "fp8-block": "fp8"}
#: An entry of this format serves every format of its engine.
ANY = "any"


@dataclass(frozen=True)
class Laws:
    """Efficiency entries in order of preference; each constant comes from the first that holds it."""

    chain: tuple[Efficiency, ...]
    tier: str

    @property
    def basis(self) -> str:
        """Name the entry that leads, and how near it is."""
        return self.chain[0].name if self.tier in ("own", "") else f"{self.chain[0].name}, {self.tier}"

    def product(self, dtype: str) -> tuple[ProductLaw, str]:
        """Return the law of products in this dtype, and where it is from."""
        return self._by_dtype("products", dtype)  # type: ignore[return-value]

    def mixture(self, dtype: str) -> tuple[MixtureLaw, str]:
        """Return the law of fused mixtures in this dtype, and where it is from."""
        return self._by_dtype("mixtures", dtype)  # type: ignore[return-value]

    def _by_dtype(self, family: str, dtype: str) -> tuple[object, str]:
        for name in dict.fromkeys((dtype, "bf16" if dtype == "fp16" else dtype, _LIKE.get(dtype, dtype))):
            for entry in self.chain:
                law = getattr(getattr(entry, family), name, None)
                if law is not None:
                    return law, f"{entry.name} {family}.{name}"
        message = f"no constants for {dtype} {family} in {', '.join(entry.name for entry in self.chain)}"
        raise NotCalibratedError(message)

    def attention(self, variant: str = "") -> tuple[AttentionLaw, str]:
        """Return the law of attention, or of a variant of its kernel where one is known, and where it is from."""
        for entry in self.chain if variant else ():
            law = getattr(entry, f"attention_{variant}")
            if law is not None:
                return law, f"{entry.name} attention_{variant}"
        return self._first("attention")  # type: ignore[return-value]

    def elementwise(self, op_class: str) -> tuple[ElementwiseLaw, str]:
        """Return the law of one class of small kernels, and where it is from."""
        return self._first(op_class)  # type: ignore[return-value]

    def _first(self, name: str) -> tuple[object, str]:
        for entry in self.chain:
            law = getattr(entry, name)
            if law is not None:
                return law, f"{entry.name} {name}"
        message = f"no constants for {name} in {', '.join(entry.name for entry in self.chain)}"
        raise NotCalibratedError(message)

    @property
    def power_limit(self) -> tuple[float, float] | None:
        """Burst budget in milliseconds and sustained part of the burst rate, where the leading entries know them."""
        for entry in self.chain:
            if entry.burst_ms is not None and entry.sustained is not None:
                return entry.burst_ms, entry.sustained
        return None


    @property
    def gap_us(self) -> float:
        """Pause before each launch, beside what kernels show."""
        return self._number("gap_us")

    @property
    def step_us(self) -> float:
        """Host's time for a pass."""
        return self._number("step_us")

    def _number(self, name: str) -> float:
        found = (getattr(entry, name) for entry in self.chain)
        return next((value for value in found if value is not None), 0.0)


def format_kind(weights: str) -> str:
    """Name the format under which constants are kept: one for all group sizes of a kind, and for kin of one rate.

    >>> [format_kind(name) for name in ("fp16", "int4-g32-zp16", "mlx-4bit-g32", "fp8-block-64x64", "q4_k")]
    ['bf16', 'int4', 'mlx-4bit', 'fp8', 'q4_k']
    """
    for stem in ("int4", "int8-weight-only", "fp8-block", "mlx-4bit", "mlx-8bit"):
        if weights == stem or weights.startswith(f"{stem}-"):
            return _SAME.get(stem, stem)
    return _SAME.get(weights, weights)


def choose(entries: Sequence[Efficiency], fallbacks: Sequence[Efficiency], engine: str | None, weights: str) -> Laws:
    """Choose the laws of a deployment: its own entry, another engine's on the device, the generation's, the universal.

    `entries` are the device's, `fallbacks` the generation's (if any) and the universal one, in that order.
    """
    wanted = _SAME.get(weights, weights)
    own = [entry for entry in entries if entry.format == wanted]
    plain = [entry for entry in entries if entry.format == "bf16"]  # its laws are keyed by dtype, so they carry over
    for tier, pool in (("own", _of_engine(own, engine)), ("other engine on this device", own)):
        if pool:
            return Laws((_default(pool), *fallbacks), tier)
    if wanted != "bf16" and plain:
        return Laws((_default(_of_engine(plain, engine) or plain), *fallbacks), "other format on this device")
    return Laws(tuple(fallbacks), "architecture generation" if len(fallbacks) > 1 else "")


def _of_engine(entries: Sequence[Efficiency], engine: str | None) -> list[Efficiency]:
    if engine is None:
        return [entry for entry in entries if entry.default] or list(entries)
    return [entry for entry in entries if is_of_engine(entry, engine)]


def is_of_engine(entry: Efficiency, engine: str) -> bool:
    """Tell whether an entry is of this engine: ``vllm`` means any version, ``vllm-0.31`` that one."""
    return entry.engine == engine or str(entry.engine).startswith(f"{engine}-")


def _default(entries: Sequence[Efficiency]) -> Efficiency:
    return next((entry for entry in entries if entry.default), entries[0])


def roofline_efficiency(name: str) -> Efficiency:
    """Build the per-operator roofline: all at the peaks, nothing for launches, the larger of the two times."""
    product = ProductLaw(compute=1, memory=1, launch_us=0, exponent=float("inf"))
    mixture = MixtureLaw(compute=1, memory=1, launch_us=0, exponent=float("inf"))
    small = ElementwiseLaw(memory=1, launch_us=0)
    return Efficiency(
        name=name,
        products=ProductLaws(bf16=product, fp8=product, fp4=product, int8=product, fp32=product),
        mixtures=MixtureLaws(bf16=mixture, fp8=mixture, fp4=mixture, int8=mixture, fp32=mixture),
        attention=AttentionLaw(compute=1, memory=1, activation=None, launch_us=0, exponent=float("inf")),
        norm=small,
        rotary=small,
        activation=small,
        cache_write=small,
    )
