"""Which laws a deployment runs under: its device's and engine's, then the generation's, then the universal ones."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

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


def spread_name(op_class: str, phase: str) -> str:
    """Name the spread that a class of operators has in a phase: the four classes of small kernels share one."""
    return f"{op_class}_{phase}" if op_class in ("product", "attention", "mixture") else "small"


#: Words of a tier -> what widens the spread of a pass there.
_WIDER = (("other engine", "other_engine"), ("other format", "other_format"))


@dataclass(frozen=True)
class Laws:
    """Efficiency entries in order of preference; each constant comes from the first that holds it."""

    chain: tuple[Efficiency, ...]
    tier: str

    @property
    def basis(self) -> str:
        """Name the entry that leads, whose host's time it takes where that is another's, and how near it is."""
        lead = self.chain[0]
        host = next((one for one in self.chain if one.step_us is not None), lead)
        named = f"{lead.name}, host of {host.name}" if host is not lead and host.step_us else lead.name
        return named if self.tier in ("own", "") else f"{named}, {self.tier}"

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

    def spread(self, name: str) -> float | None:
        """Spread of a class or phase on data that were not fitted, by the nearest entry that has one, for this tier."""
        own = self._spread(name)
        if own is None or name not in ("prefill", "decode"):
            return own
        wider = next((field for words, field in _WIDER if words in self.tier), "")
        return float(np.hypot(own, self._spread(wider) or 0.0))  # constants of another engine err all alike

    def _spread(self, name: str) -> float | None:
        return next((value for entry in self.chain if (value := getattr(entry.spread, name, None)) is not None), None)

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


class Asked(NamedTuple):
    """What a deployment asks for: an engine, or none, and a kind of format."""

    engine: str | None
    format: str


def choose(
    entries: Sequence[Efficiency],
    fallbacks: Sequence[Efficiency],
    engine: str | None,
    weights: str,
    shared: Sequence[Efficiency] = (),
) -> Laws:
    """Choose the laws of a deployment: the nearest entry leads, all that it lacks comes from those behind it.

    `entries` are the device's, `shared` those that an engine's devices of one vendor share, `fallbacks` the
    generation's (if any) and the universal one. What was measured under the engine asked for comes before what was
    measured on the device under another: engines differ by more than the devices of a vendor.
    """
    asked = Asked(engine, format_kind(weights))
    for tier, pool in _tiers(asked, entries, shared):
        if pool:
            lead = _default(pool)
            return Laws((lead, *_behind(lead, asked, (*entries, *shared)), *fallbacks), tier)
    return Laws(tuple(fallbacks), "architecture generation" if len(fallbacks) > 1 else "")


def _behind(lead: Efficiency, asked: Asked, known: Sequence[Efficiency]) -> list[Efficiency]:
    """List what else is known of an engine that was asked for: its host's time belongs to it, not to its kernels."""
    if not same_engine(lead.engine, asked.engine):
        return []
    others = [one for one in known if one is not lead and same_engine(lead.engine, one.engine)]
    return _of_format(others, lead.format)


def _tiers(
    asked: Asked, entries: Sequence[Efficiency], shared: Sequence[Efficiency]
) -> Iterator[tuple[str, list[Efficiency]]]:
    """Yield pools of entries, the nearest first."""
    own, plain = _of_format(entries, asked.format), _of_format(entries, "bf16")
    family = shared if asked.engine is None else [one for one in shared if is_of_engine(one, asked.engine)]
    yield "own", _of_engine(own, asked.engine)
    if asked.engine is not None:
        yield "other version on this device", [one for one in own if same_engine(one.engine, asked.engine)]
        yield "this engine on other devices", _of_format(family, asked.format)
    yield "other engine on this device", own
    if asked.engine is not None:
        yield "other format on this device", [one for one in entries if is_of_engine(one, asked.engine)]
        yield "this engine on other devices, other format", list(family)
    # a file format is of one engine: what that does elsewhere is nearer than products of another format
    yield "this format on other devices", [one for one in _of_format(family, asked.format) if one.default]
    yield "other format on this device", _of_engine(plain, asked.engine) or plain


def _of_format(entries: Sequence[Efficiency], wanted: str) -> list[Efficiency]:
    """Keep the entries of a format; those that serve any format come last."""
    return [one for one in entries if one.format == wanted] or [one for one in entries if one.format == ANY]


def _of_engine(entries: Sequence[Efficiency], engine: str | None) -> list[Efficiency]:
    if engine is None:
        return [entry for entry in entries if entry.default] or list(entries)
    exact = [entry for entry in entries if entry.engine == engine]
    return exact or [entry for entry in entries if is_of_engine(entry, engine)]


def is_of_engine(entry: Efficiency, engine: str) -> bool:
    """Tell whether an entry serves this engine: ``vllm`` is any version, ``vllm-0.31`` that one or an unversioned."""
    own = str(entry.engine)
    return own == engine or own.startswith(f"{engine}-") or engine.startswith(f"{own}-")


def same_engine(one: str | None, other: str | None) -> bool:
    """Tell whether two engines are versions or back ends of one."""
    return one is not None and other is not None and one.split("-", 1)[0] == other.split("-", 1)[0]


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
