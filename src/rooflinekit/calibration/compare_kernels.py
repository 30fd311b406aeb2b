"""A kernel summary against a model: each kernel beside the operators it computes, each family against its ceilings."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from rooflinekit import units
from rooflinekit.calibration.causes import ABOVE
from rooflinekit.calibration.kernel_families import is_cut
from rooflinekit.calibration.kernel_match import Matched, Part, Passes, match
from rooflinekit.errors import InvalidInputError, MissingFigureError
from rooflinekit.measurements import Measurement
from rooflinekit.phases.deployment import Deployment
from rooflinekit.phases.resolve import resolve_rates

if TYPE_CHECKING:
    import pandas as pd

#: Products over so few rows read their weights for little arithmetic: matrix-vector products in all but name.
_VECTOR_ROWS = 16
#: No device has a larger last-level cache.
_LARGEST_CACHE_MIB = 512.0


class Ceilings(NamedTuple):
    """
    Rates that a family is measured against, and whose they are: measured on the device, or the datasheet's.

    ``peak_flops_per_s`` and ``peak_bytes_per_s`` are the datasheet's in either case, not-a-number where it has none;
    ``cache_bytes`` is its last-level cache, where the device file does not say the largest that any device has.
    """

    flops_per_s: float
    bytes_per_s: float
    described: str
    peak_flops_per_s: float = float("nan")
    peak_bytes_per_s: float = float("nan")
    cache_bytes: float = _LARGEST_CACHE_MIB * units.MIB

    def uncached_bytes(self, part: Part) -> float:
        """Give what of an operator's traffic no cache holds from one launch to the next."""
        return max(part.bytes - part.launches * self.cache_bytes, 0.0)


@dataclass(frozen=True)
class Family:
    """The listed kernels of one family and kind of pass: their share, and the rates that the counts give them."""

    name: str
    passes: str
    listed_s: float
    share: float
    predicted_s: float
    flops_per_s: float
    bytes_per_s: float
    ceilings: Ceilings
    uncached_bytes_per_s: float = 0.0

    @property
    def impossible(self) -> float:
        """Rate over the datasheet's peak, of arithmetic or of bytes that no cache holds; 0 where it is not above."""
        limits = self.ceilings
        over = self.flops_per_s / limits.peak_flops_per_s, self.uncached_bytes_per_s / limits.peak_bytes_per_s
        return max((one for one in over if one > 1.0), default=0.0)

    @property
    def of_compute(self) -> float:
        """Part of the arithmetic ceiling."""
        return self.flops_per_s / self.ceilings.flops_per_s

    @property
    def of_memory(self) -> float:
        """Part of the memory ceiling."""
        return self.bytes_per_s / self.ceilings.bytes_per_s


@dataclass(frozen=True)
class KernelComparison:
    """
    A kernel summary beside the model.

    ``matched`` has one line a kernel, ``families`` one a family and kind of pass, ``unlisted`` the operators that no
    listed kernel computes with what the model puts there; ``listed_s`` is the sum of the file. ``left_out_s`` is what
    the file does not list by its own column of shares; None where it has none, or is the difference of two.
    """

    matched: tuple[Matched, ...]
    families: tuple[Family, ...]
    unlisted: tuple[Part, ...]
    notes: tuple[str, ...]
    left_out_s: float | None = None

    @property
    def listed_s(self) -> float:
        """Seconds that the file lists."""
        return sum(one.listed_s for one in self.matched)

    @property
    def named_share(self) -> float:
        """Part of the listed time in kernels that a named operator stands behind."""
        return sum(one.listed_s for one in self.matched if one.named) / self.listed_s

    @property
    def predicted_s(self) -> float:
        """Predicted seconds of the operators named."""
        return sum(one.explained_s for one in self.matched)

    @property
    def unlisted_s(self) -> float:
        """What the model puts into operators that the file does not list."""
        return sum(part.seconds for part in self.unlisted)

    def table(self) -> "pd.DataFrame":
        """Give the kernels as a tidy DataFrame."""
        import pandas as pd  # noqa: PLC0415 - loads on first use

        return pd.DataFrame([kernel_line(one) for one in self.matched])


def kernel_line(one: Matched) -> dict[str, object]:
    """Lay a kernel out for tables."""
    return {
        "kernel": one.name, "family": one.family or "unknown", "launches": one.count, "counted_as": one.arithmetic,
        "listed_s": one.listed_s, "explained_s": one.explained_s, "rest_s": one.rest_s, "operators": one.operators,
    }  # fmt: skip


def compare_kernels(
    kernels: Sequence[Measurement],
    deployment: Deployment,
    *,
    prompt_tokens: float | None = None,
    batch: float = 1,
    steps: int = 0,
    context_tokens: float | None = None,
    minus: Sequence[Measurement] = (),
) -> KernelComparison:
    """
    Compare the kernels of a range with the operators of the passes in it.

    Parameters
    ----------
    kernels : sequence of Measurement
        Records of ``kernel_time_s``.
    deployment : Deployment
        What ran.
    prompt_tokens : float, optional
        A prefill of so many tokens is in the range. [token]
    batch : float
        Sequences in each pass. [1]
    steps : int
        Decode steps in the range. [1]
    context_tokens : float, optional
        In the cache before the first step; the prompt where one is given. [token]
    minus : sequence of Measurement
        Kernels of a range that holds the prefill alone, which is taken away.

    Returns
    -------
    comparison : KernelComparison

    Raises
    ------
    InvalidInputError
        No kernel, kernels of several tables or devices, or no pass is named.

    Notes
    -----
    A kernel stands for the operators of its family whose launches add up to its count: per pass a x layers + b, times
    passes, plus what a prefill adds.

    Examples
    --------
    The longest kernel that "Prefill vs. Decode" lists for a prefill: 36 launches, one a layer, and 4.123 TFLOP in each.

    >>> import rooflinekit as rk
    >>> listed = rk.Measurement(quantity="kernel_time_s", value=0.1767, count=36, name="nvjet_sm121_tst_mma_128x208x64")
    >>> found = rk.compare_kernels([listed], rk.Deployment("qwen3-8b", "gb10"), prompt_tokens=2048)
    >>> print(found.matched[0].operators, f"{found.families[0].of_compute:.0%}")
    prefill: gate_up_proj 89%
    """
    kernels, minus = _of_one_table(kernels), _of_one_table(minus)
    prefill, decode = _passes(deployment, prompt_tokens, batch, steps, context_tokens)
    if not kernels or not (prefill or decode):
        message = "a kernel comparison needs kernels, and prompt_tokens= or steps= to say which passes they are of"
        raise InvalidInputError(message)
    if not minus:
        whole = _compared(kernels, [*prefill, *decode], (), deployment, ())
        return replace(whole, left_out_s=_left_out(kernels))
    _, unlisted = match(minus, prefill)
    left, notes = subtract(kernels, minus, steps)
    return _compared(left, decode, unlisted, deployment, notes)


def _of_one_table(records: Sequence[Measurement]) -> list[Measurement]:
    kernels = [one for one in records if one.quantity == "kernel_time_s"]
    tables = dict.fromkeys(one.includes for one in kernels if one.includes)
    if len(tables) > 1:
        message = f"kernels of {len(tables)} tables, and a comparison is of one: {'; '.join(tables)}"
        raise InvalidInputError(message)
    return kernels


def _left_out(kernels: Sequence[Measurement]) -> float | None:
    """Give the time of kernels that the file does not list, by the shares that it prints; None where it prints none."""
    shares = [one.share for one in kernels if one.share]
    if len(shares) < len(kernels):
        return None
    listed, share = sum(one.value for one in kernels), sum(shares)
    return max(listed / share - listed, 0.0)


def _passes(
    deployment: Deployment, prompt_tokens: float | None, batch: float, steps: int, context_tokens: float | None
) -> tuple[list[Passes], list[Passes]]:
    context = prompt_tokens if context_tokens is None else context_tokens
    if steps and context is None:
        message = f"steps={steps}: context_tokens= or prompt_tokens= says what they read"
        raise InvalidInputError(message)
    prefill = [] if prompt_tokens is None else [Passes("prefill", deployment.prefill(prompt_tokens, batch=batch), 1.0)]
    middle = (context or 0.0) + (steps - 1.0) / 2.0
    decode = [Passes("decode", deployment.decode(middle, batch=batch), float(steps))] if steps else []
    return prefill, decode


def subtract(
    kernels: Sequence[Measurement], minus: Sequence[Measurement], steps: int
) -> tuple[list[Measurement], tuple[str, ...]]:
    """
    Take one summary from another, kernel by kernel.

    A name that was cut may stand for two kernels: where only the whole count, not the difference, is a multiple of the
    steps, the other summary's kernel is another one, and nothing is taken away.
    """
    before = {one.name: one for one in minus}
    left, notes = [], []
    for one in kernels:
        other = before.get(one.name)
        count, taken = one.count or 0.0, (other.count or 0.0) if other else 0.0
        if other and is_cut(one.name) and steps and count % steps == 0 and (count - taken) % steps:
            notes.append(f"{one.name}: two kernels share this cut name ({count:,.0f} and {taken:,.0f} launches): kept")
        elif other:
            one = replace(one, value=one.value - other.value, count=count - taken, share=None)  # noqa: PLW2901 - what is left of it
        left.append(one)
    return left, tuple(notes)


def _compared(
    kernels: Sequence[Measurement],
    passes: Sequence[Passes],
    further: Sequence[Part],
    deployment: Deployment,
    notes: tuple[str, ...],
) -> KernelComparison:
    matched, unlisted = match(kernels, passes, further)
    listed = sum(one.listed_s for one in matched)
    names = {one.name for one in passes}
    families = tuple(_families(matched, passes, listed, ceilings_of(deployment)))
    left = tuple(part for part in unlisted if part.passes in names)
    return KernelComparison(tuple(matched), families, left, (*notes, *map(_above, filter(_is_above, families))))


def _is_above(one: Family) -> bool:
    return one.of_compute > 1.0 or one.of_memory > 1.0 or one.impossible > 1.0


def _above(one: Family) -> str:
    """Say what a rate above its ceiling means: what was measured may be too low, what no machine does is a fault."""
    limits, where = one.ceilings, f"{one.name} ({one.passes})"
    if one.impossible:
        return (
            f"{ABOVE}: {where} at {one.impossible:.0%} of the datasheet's peak, and no cache explains it: "
            "times or counts are at fault"
        )
    rate = f"{where} at {max(one.of_compute, one.of_memory):.0%} of the {limits.described} ceiling"
    excuses = ["its data lay in a cache"] if one.uncached_bytes_per_s <= limits.bytes_per_s < one.bytes_per_s else []
    last = "the ceiling was measured too low" if limits.described == "measured" else "times or counts are at fault"
    return f"{rate}: {', or '.join([*excuses, last])}"


def ceilings_of(deployment: Deployment) -> Ceilings:
    """Take the ceilings measured on the device, or the datasheet peaks where nobody marked any."""
    dtypes = [row.dtype for row in deployment.plan.rows if row.op_class in ("product", "mixture", "attention")]
    dtype, device = max(dtypes, key=dtypes.count), deployment.device
    sheet = device.flops_per_s.get(dtype, float("nan")), device.bytes_per_s, _cache_bytes(deployment)
    for kind in ("measured", "datasheet"):
        try:
            rates = resolve_rates(device, kind)
        except MissingFigureError:
            continue
        peak = rates.flops(dtype)
        if peak == peak:  # noqa: PLR0124 - not-a-number where this kind holds no such peak
            return Ceilings(peak, rates.bytes_per_s, kind, *sheet)
    return Ceilings(float("nan"), device.bytes_per_s, "datasheet", *sheet)


def _cache_bytes(deployment: Deployment) -> float:
    return (deployment.device.datasheet.last_level_cache_mib or _LARGEST_CACHE_MIB) * units.MIB


def _families(
    matched: Sequence[Matched], passes: Sequence[Passes], listed_s: float, ceilings: Ceilings
) -> list[Family]:
    """Sum the kernels by family and kind of pass; a kernel of several kinds of pass is divided as predicted."""
    found: dict[tuple[str, str], list[float]] = {}
    names = [one.name for one in passes]
    for one in matched:
        for part in one.parts:
            if part.passes in names:
                sums = found.setdefault((_said(one.family, part), part.passes), [0.0] * 5)
                mine = one.listed_s * part.seconds / one.explained_s * _with_assists(one, matched)
                held = ceilings.uncached_bytes(part)
                for index, value in enumerate((mine, part.seconds, part.flops, part.bytes, held)):
                    sums[index] += value
    families = [
        Family(
            name,
            kind,
            seconds,
            seconds / listed_s,
            expected,
            flops / seconds,
            moved / seconds,
            ceilings,
            held / seconds,
        )
        for (name, kind), (seconds, expected, flops, moved, held) in found.items()
    ]
    return sorted(families, key=lambda one: -one.listed_s)


def _with_assists(one: Matched, matched: Sequence[Matched]) -> float:
    """Give the factor by which kernels that assist a family (a split product's sum) lengthen those of its operators."""
    mine = sum(other.listed_s for other in matched if other.family == one.family and other.parts)
    return 1.0 + sum(other.listed_s for other in matched if other.family == one.family and other.assists) / mine


def _said(family: str, part: Part) -> str:
    """Call products over few rows what they are."""
    return "matrix-vector product" if family == "product" and part.rows <= _VECTOR_ROWS else family
