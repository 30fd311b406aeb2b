"""From what the user said to what is computed: dtypes, peaks and laws, and a note on each choice made for them."""

from collections.abc import Mapping
from typing import NamedTuple

from rooflinekit import units
from rooflinekit.errors import InvalidInputError, MissingFigureError
from rooflinekit.roofline.communication import Links
from rooflinekit.roofline.fusion import fused
from rooflinekit.roofline.laws import Laws, choose, roofline_efficiency
from rooflinekit.roofline.timing import Rates
from rooflinekit.specs.catalog import (
    interconnect_of,
    load_engines,
    load_fusions,
    load_generation,
    load_interconnect,
)
from rooflinekit.specs.device import Device
from rooflinekit.specs.efficiency import Efficiency
from rooflinekit.specs.interconnect import Interconnect, LinkChoice
from rooflinekit.specs.model import Model
from rooflinekit.specs.precision import DTYPES, KV_FORMATS, PLAIN, Precision, one_of, weight_format
from rooflinekit.specs.quantisation import PLAIN_FORMAT, Quantisation
from rooflinekit.specs.recipes import recipe_of, write_scheme
from rooflinekit.specs.yamlfile import check

EFFICIENCIES = ("calibrated", "measured", "datasheet")


class Choices(NamedTuple):
    """What the user said about formats and routing; None is not said."""

    weights: str | None
    kv_cache: str | None
    compute: str | None
    routing_skew: float


class Resolved(NamedTuple):
    """A choice and what is to be said about it."""

    precision: Precision
    notes: tuple[str, ...]


def resolve_precision(model: Model, device: Device, choices: Choices) -> Resolved:
    """Settle the dtypes: the checkpoint's, unless told otherwise; FP16 where the device has no BF16 rate but that."""
    notes: list[str] = []
    recipe = None if choices.weights is None else recipe_of(choices.weights)
    own = model.quantisation if recipe is None else write_scheme(recipe, model)
    stored = recipe.default if recipe else (own.default if own else None) or model.dtype or "bf16"
    if choices.weights is None and model.dtype is None:
        notes.append(f"{model.id} names no dtype: bf16 taken, as engines do")
    dtype = stored if stored in PLAIN else model.dtype or "bf16"
    if stored not in PLAIN and dtype == "fp32":
        dtype = "bf16"
        notes.append(f"{stored} weights of an fp32 checkpoint: what stays unquantised is bf16, as engines do")
    if choices.weights is None and model.dtype == "fp32":
        notes.append(f'{model.id} is an fp32 checkpoint: many engines load it at 16 bits, as weights="bf16" does')
    compute = None if choices.compute is None else one_of("compute", choices.compute, DTYPES)
    dtype = compute if compute in PLAIN else dtype
    if compute is None and dtype == "bf16" and "bf16" not in device.flops_per_s and "fp16" in device.flops_per_s:
        notes.append(f"{device.id} has no BF16 rate: computed in FP16, as engines do")
        dtype = "fp16"
    scheme = own or Quantisation(default=PLAIN_FORMAT if stored in PLAIN else stored)
    held = weight_format(dtype if stored in (PLAIN_FORMAT, *PLAIN) else stored)
    cache = one_of("kv_cache", choices.kv_cache or scheme.kv_cache or dtype, KV_FORMATS)
    ridge = device.flops_per_s.get(dtype, 0.0) / device.bytes_per_s
    return Resolved(Precision(held, scheme, cache, dtype, compute, choices.routing_skew, ridge), tuple(notes))


def resolve_rates(device: Device, efficiency: str | Efficiency) -> Rates:
    """Take the peaks: the datasheet's, or for ``"measured"`` the figures that the device file marks as ceilings."""
    highest = _highest_clock(device)
    flops, bandwidth, described = device.flops_per_s, device.bytes_per_s, "datasheet"
    if efficiency == "measured":
        flops, bandwidth, described = _ceilings(device), _read_ceiling(device), "measured"
    return Rates(
        name=device.id,
        bytes_per_s=bandwidth,
        flops_per_s=flops,
        floor_bytes_per_s=device.bytes_per_s,
        floor_flops_per_s={dtype: peak * highest for dtype, peak in _fastest(device).items()},
        cache_bytes=(device.datasheet.last_level_cache_mib or 0.0) * units.MIB,
        described=described,
        vector_flops_per_s=device.vector_flops_per_s,
    )


def resolve_laws(device: Device, engine: str | None, weights: str, efficiency: str | Efficiency) -> Laws:
    """Take the laws: those of an Efficiency handed in, the plain roofline, or the nearest calibrated entry."""
    fallbacks = [load_generation(name) for name in (device.generation, "universal") if name]
    known = [entry for entry in fallbacks if entry is not None]
    if isinstance(efficiency, Efficiency):
        return Laws((efficiency, *known), "own")
    if one_of("efficiency", efficiency, EFFICIENCIES) != "calibrated":
        return Laws((roofline_efficiency(f"{efficiency} roofline of {device.id}"),), "own")
    shared = [entry for entry in load_engines() if entry.family == device.vendor]
    chosen = choose(device.efficiency, known, engine, weights, shared)
    kernels = [one.kernel for one in load_fusions(engine)]
    return fused(chosen, str(engine), kernels) if kernels else chosen


def resolve_links(device: Device, engine: str | None, choice: str | LinkChoice | Interconnect | None) -> Links:
    """Take the links: those of the device's kind, another by name, one with single figures changed, or one given."""
    named = choice if isinstance(choice, str) else choice.name if isinstance(choice, LinkChoice) else None
    base = (
        choice if isinstance(choice, Interconnect) else load_interconnect(named) if named else interconnect_of(device)
    )
    inside = (choice.applied(base) if isinstance(choice, LinkChoice) else base).of(device)
    between = load_interconnect(inside.between).of(device) if inside.between else None
    asked = choice.own_kernel if isinstance(choice, LinkChoice) else None
    own = inside.own_kernel is not None if asked else inside.has_own_kernel(engine)
    return Links(inside, between, own)


def checked_interconnect(choice: object) -> str | LinkChoice | Interconnect | None:
    """Return the interconnect argument, or say what it may be."""
    if choice is None or isinstance(choice, LinkChoice | Interconnect):
        return choice
    if isinstance(choice, str) and choice:
        return load_interconnect(choice).id
    if isinstance(choice, Mapping):
        return check(LinkChoice, choice, "interconnect")
    message = f"interconnect={choice!r}: expected a name, an Interconnect, or a mapping like {{'one_way_gb_per_s': 25}}"
    raise InvalidInputError(message)


def _fastest(device: Device) -> dict[str, float]:
    """Give the peaks that nothing beats: engines may accumulate 16-bit products in FP16, twice as fast on some."""
    peaks = device.flops_per_s
    half = peaks.get("fp16_acc16", 0.0)
    return {dtype: max(peak, half) if dtype in ("fp16", "bf16") else peak for dtype, peak in peaks.items()}


def _highest_clock(device: Device) -> float:
    sheet = device.datasheet
    return sheet.maximum_mhz / sheet.boost_mhz if sheet.maximum_mhz and sheet.boost_mhz else 1.0


def _ceilings(device: Device) -> dict[str, float]:
    marked = {
        dtype: device.ceiling(f"gemm_{dtype}_{'tops' if dtype.startswith('int') else 'tflops'}") for dtype in DTYPES
    }
    return {dtype: row.value * units.TERA for dtype, row in marked.items() if row is not None}


def _read_ceiling(device: Device) -> float:
    row = device.ceiling("memory_read_gb_per_s")
    if row is None:
        message = (
            f"{device.id} has no measured memory_read_gb_per_s marked `ceiling: true`: "
            'measure one and add it to the device file, or use efficiency="datasheet"'
        )
        raise MissingFigureError(message)
    return row.value * units.GIGA


def checked_efficiency(efficiency: object) -> str | Efficiency:
    """Return the efficiency argument, or say what it may be."""
    if isinstance(efficiency, str | Efficiency):
        return efficiency
    message = f"efficiency={efficiency!r}: expected one of {', '.join(EFFICIENCIES)}, or an Efficiency"
    raise InvalidInputError(message)
