"""A device: what its datasheet prints, what was measured on it, and the efficiencies fitted on it."""

import datetime as dt
from typing import Annotated, Literal

from pydantic import Field, PlainSerializer

from rooflinekit import units
from rooflinekit.specs.efficiency import Efficiency
from rooflinekit.specs.precision import DTYPES
from rooflinekit.specs.spec import Count, Identifier, Positive, SourceMap, Spec

#: Lanes that one of NVIDIA's multiprocessors issues a clock.
_LANES = 128.0


class Peaks(Spec):
    """Dense peaks in TFLOPS (TOPS for the integer rates) of one whole product; a missing one stays missing.

    ``bf16``, ``fp16`` and ``fp8`` are the rates with FP32 accumulation; ``*_acc16`` those with FP16 accumulation.
    """

    fp32: Positive | None = None
    fp32_vector: Positive | None = None
    tf32: Positive | None = None
    bf16: Positive | None = None
    fp16: Positive | None = None
    fp16_acc16: Positive | None = None
    fp8: Positive | None = None
    fp8_acc16: Positive | None = None
    fp6: Positive | None = None
    fp4: Positive | None = None
    int8: Positive | None = None
    int4: Positive | None = None


class ScaleUp(Spec):
    """The link to other devices of one domain: all links of one device together."""

    kind: str
    one_way_gb_per_s: Positive | None = None
    both_ways_gb_per_s: Positive | None = None
    note: str = ""


class Pcie(Spec):
    """The host link, after line coding."""

    generation: Count
    lanes: Count
    one_way_gb_per_s: Positive


class Datasheet(Spec):
    """What the vendor prints. ``last_level_cache_mib`` and ``maximum_mhz`` tighten the floor where they are known."""

    bandwidth_gb_per_s: Positive
    memory_gib: Positive | None = None
    usable_memory_mib: Positive | None = None
    memory_type: str | None = None
    peak_dense_tflops: Peaks = Peaks()
    scale_up: ScaleUp | None = None
    pcie: Pcie | None = None
    multiprocessors: Count | None = None
    boost_mhz: Positive | None = None
    maximum_mhz: Positive | None = None
    last_level_cache_mib: Positive | None = None
    tdp_w: Positive | None = None
    sources: SourceMap = ()


class Measured(Spec):
    """One measured figure; ``ceiling`` marks the two that ``efficiency="measured"`` uses per operator."""

    quantity: Annotated[str, Field(pattern=r"^[a-z0-9_]+_(gb_per_s|tflops|tops|us)$")]
    value: Positive
    source: tuple[str, ...]
    conditions: str = ""
    ceiling: bool = False


class Price(Spec):
    """What an hour of one device costs, on which day, by whom: no price holds for long."""

    usd_per_hour: Positive
    date: Annotated[dt.date, PlainSerializer(str)]
    source: str


class Device(Spec):
    """One accelerator as it is sold: one YAML file of ``hardware_db``."""

    id: Identifier
    name: str
    vendor: str = ""
    kind: Literal["datacenter", "consumer", "workstation", "edge", "tpu", "apple", "cpu", "other"] = "other"
    status: Literal["shipping", "announced"] = "shipping"
    architecture: str = ""
    generation: Identifier | None = None
    target: str | None = None
    year: Count | None = None
    aliases: tuple[str, ...] = ()
    aliases_unverified: tuple[str, ...] = ()
    datasheet: Datasheet
    price: Price | None = None
    measured: tuple[Measured, ...] = ()
    efficiency: tuple[Efficiency, ...] = ()
    sources: SourceMap = ()
    notes: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Every name the device goes by, besides its id."""
        return (self.name, *self.aliases, *self.aliases_unverified)

    @property
    def flops_per_s(self) -> dict[str, float]:
        """Dense datasheet peaks by arithmetic dtype, in FLOP/s; those with FP16 accumulation by their own names."""
        peaks = self.datasheet.peak_dense_tflops
        names = (*DTYPES, "fp16_acc16", "fp8_acc16")
        return {dtype: peak * units.TERA for dtype in names if (peak := getattr(peaks, dtype)) is not None}

    @property
    def vector_flops_per_s(self) -> float:
        """FP32 rate of the vector units; infinity where no figure is known: nothing is priced at it.

        NVIDIA's multiprocessors issue 128 lanes a clock. Those of Volta, Turing and the A100 split them into 64 for
        FP32 and 64 for integers, so that their FP32 peak is half of what unpacking integers can use.
        """
        sheet, peaks = self.datasheet, self.datasheet.peak_dense_tflops
        if self.vendor == "NVIDIA" and sheet.multiprocessors and sheet.boost_mhz:
            return sheet.multiprocessors * sheet.boost_mhz * units.MEGA * _LANES * 2.0
        known = peaks.fp32_vector or peaks.fp32
        return float("inf") if known is None else known * units.TERA

    @property
    def bytes_per_s(self) -> float:
        """Datasheet memory bandwidth, decimal."""
        return self.datasheet.bandwidth_gb_per_s * units.GIGA

    @property
    def memory_bytes(self) -> float | None:
        """Memory that a program can use where it is known, else the (binary) label, else None."""
        sheet = self.datasheet
        if sheet.usable_memory_mib is not None:
            return sheet.usable_memory_mib * units.MIB
        return None if sheet.memory_gib is None else sheet.memory_gib * units.GIB

    def ceiling(self, quantity: str) -> Measured | None:
        """Return the measured figure of this quantity that is marked as a ceiling, if there is one."""
        return next((row for row in self.measured if row.ceiling and row.quantity == quantity), None)
