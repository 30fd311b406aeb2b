"""How the entries of engines are fitted on single-stream rates: shared by the devices of a vendor, then a device's own.

An engine that runs the vendors' kernels (vLLM, SGLang) takes products and attention from kernel tables: rates fit its
pauses, and the attention of heads too wide for those kernels. On a device that no table shows they fit the rate of its
memory too, or its pauses would hold what its memory costs. An engine with kernels of its own (llama.cpp, MLX) has all
of its constants fitted on rates, each with a prior.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rooflinekit.calibration.fit import Fallbacks, Fit, Free, fit
from rooflinekit.calibration.observations import Observations
from rooflinekit.calibration.references import devices_with_kernels
from rooflinekit.roofline.laws import ANY, format_kind
from rooflinekit.specs.catalog import load_generation
from rooflinekit.specs.efficiency import (
    AttentionLaw,
    Covariance,
    Efficiency,
    MixtureLaw,
    MixtureLaws,
    ProductLaw,
    ProductLaws,
)

#: Engines that run cuBLAS, CUTLASS and flash attention: their kernels are those of the tables.
VENDOR_KERNELS = ("vllm", "sglang", "gpt-fast")
#: Engines whose formats share their constants.
ONE_FORMAT = ("mlx",)
#: Spread of the logarithm of a constant around its start, for a shared entry and for a device's own.
SHARED_PRIOR, OWN_PRIOR = 0.5, 0.3
#: A device has an entry of its own from this many measured values on.
LEAST_ROWS = 4
_PLAIN = ("bf16", "fp8")


class Key(NamedTuple):
    """Which entry a measured value belongs to."""

    engine: str
    vendor: str
    format: str


def key_of(engine: str, vendor: str, weights: str) -> Key:
    """Name the shared entry that an engine's format on a vendor's devices belongs to."""
    return Key(engine_name(engine), vendor, ANY if engine in ONE_FORMAT else format_kind(weights))


def engine_name(engine: str) -> str:
    """Spell an engine as entries do: llama.cpp on its usual back end is plain llama.cpp.

    >>> engine_name("llama.cpp-cuda"), engine_name("llama.cpp-vulkan"), engine_name("vllm")
    ('llama.cpp', 'llama.cpp-vulkan', 'vllm')
    """
    stem, _, back_end = engine.partition("llama.cpp-")
    return "llama.cpp" if not stem and back_end in {"cuda", "metal", "sycl", "cpu"} else engine


def by_entry(observations: Iterable[Observations]) -> Mapping[Key, list[Observations]]:
    """Sort observations by the shared entry that they belong to."""
    sorted_: dict[Key, list[Observations]] = {}
    for one in observations:
        for engine in one.facts["engine"].unique():
            key = key_of(str(engine), one.device.vendor, str(one.facts["format"].iloc[0]))
            sorted_.setdefault(key, []).append(one.take((one.facts["engine"] == engine).to_numpy()))
    return sorted_


def equal_by_device(observations: Sequence[Observations]) -> NDArray[np.float64]:
    """Weigh values so that every device counts alike."""
    names = np.concatenate([np.full(len(one), one.device.id) for one in observations])
    _, where, counts = np.unique(names, return_inverse=True, return_counts=True)
    weights = 1.0 / np.sqrt(counts[where])
    return np.asarray(weights / weights.mean(), dtype=np.float64)


def start(key: Key) -> Efficiency:
    """Give the entry that a fit begins with: what is known of the engine before any of its rates."""
    name = f"{key.engine}/{key.format} on {key.vendor}"
    plain = Efficiency(name=name, engine=key.engine, format=key.format, family=key.vendor)
    if key.engine in VENDOR_KERNELS and key.format in _PLAIN:
        # one overhead an engine is enough: the host's time for a pass of vLLM, a pause a launch of the others
        host = {"gap_us": 0.0, "step_us": 100.0} if key.engine == "vllm" else {"gap_us": 1.0, "step_us": 0.0}
        return plain.model_copy(update={**host, "attention_wide": _attention(0.3)})
    product = _product(key)
    mixture = MixtureLaw(
        compute=0.3,
        memory=product.memory,
        launch_us=25.0,
        unpack_flops_per_weight=product.unpack_flops_per_weight,
        vector_flops_per_flop=product.vector_flops_per_flop,
        peak=product.peak,
    )
    dtype = "fp8" if key.format == "fp8" else "bf16"
    laws = {
        "products": ProductLaws().model_copy(update={dtype: product}),
        "mixtures": MixtureLaws().model_copy(update={dtype: mixture}),
        "attention": _attention(0.3),
        "attention_wide": _attention(0.15),
    }
    return plain.model_copy(update={**laws, "gap_us": 3.0, "step_us": 0.0})


def _product(key: Key) -> ProductLaw:
    """Give the law of products that an engine with kernels of its own begins with.

    On NVIDIA llama.cpp multiplies packed weights as integers and scales the sums of blocks on the vector units.
    """
    quantised, on_nvidia = key.format not in _PLAIN, (key.engine, key.vendor) == ("llama.cpp", "NVIDIA")
    unpack = 13.0 if quantised else 0.0
    if quantised and on_nvidia:
        return ProductLaw(
            compute=0.8,
            memory=0.85,
            launch_us=3.0,
            unpack_flops_per_weight=unpack,
            vector_flops_per_flop=0.5,
            peak="int8",
        )
    peak = "fp16_acc16" if on_nvidia and key.format == "bf16" else None
    return ProductLaw(compute=0.6, memory=0.85, launch_us=3.0, unpack_flops_per_weight=unpack, peak=peak)


def _attention(compute: float) -> AttentionLaw:
    universal = load_generation("universal")
    if universal is None or universal.attention is None:
        message = "the universal entry has no attention law to start from"
        raise AssertionError(message)
    return universal.attention.model_copy(update={"compute": compute, "memory": 0.6})


def free(entry: Efficiency, observations: Sequence[Observations]) -> Free:
    """List the constants that rates of these models determine in an entry."""
    classes = {row.op_class for one in observations for row in one.plan.rows}
    wide = any(row.variant == "wide" for one in observations for row in one.plan.rows)
    overheads = [name for name in ("gap_us", "step_us") if getattr(entry, name)] or ["gap_us"]
    found = {name: [name] for name in overheads}
    dtype = "fp8" if entry.format == "fp8" else "bf16"
    law = getattr(entry.products, dtype)
    if law is not None and entry.engine in VENDOR_KERNELS and entry.format in _PLAIN:
        found[f"products.{dtype}.memory"] = [f"products.{dtype}.memory"]
    elif law is not None:
        found |= {name: [name] for name in _of_kernels(law, f"products.{dtype}")}
        found |= {
            "attention.compute": ["attention.compute"],
            "attention.memory": ["attention.memory", *(["attention_wide.memory"] if wide else [])],
        }
    own_mixtures = getattr(entry.mixtures, dtype) is not None
    if law is not None and own_mixtures and "mixture" in classes:
        found |= {name: [name] for name in (*_of_kernels(law, f"mixtures.{dtype}"), f"mixtures.{dtype}.launch_us")}
    if wide and entry.attention_wide is not None:
        found["attention_wide.compute"] = ["attention_wide.compute"]
    return found


def _of_kernels(law: ProductLaw, place: str) -> Iterable[str]:
    yield f"{place}.memory"
    yield f"{place}.vector_flops_per_flop" if law.vector_flops_per_flop else f"{place}.compute"
    if law.unpack_flops_per_weight:
        yield f"{place}.unpack_flops_per_weight"


def fit_shared(key: Key, observations: Sequence[Observations], fallbacks: Fallbacks | None = None) -> Fit:
    """Fit the entry that an engine's devices of one vendor share: a device's own rate of memory is none of it."""
    begin = start(key)
    own_rate = with_memory_rate(begin, observations)
    constants = free(own_rate, observations)
    weights = equal_by_device(observations)
    found = fit(
        observations, own_rate, constants, weights=weights, prior=SHARED_PRIOR, fallbacks=fallbacks, checked=False
    )
    return found if own_rate is begin else without_products(found)


def fit_own(shared: Efficiency, observations: Sequence[Observations], fallbacks: Fallbacks | None = None) -> Fit:
    """Fit a device's own entry, from the shared one as prior knowledge."""
    device = observations[0].device.id
    named = shared.model_copy(update={"name": f"{device}/{shared.engine}/{shared.format}", "family": ""})
    begin = with_memory_rate(named, observations)
    return fit(observations, begin, free(begin, observations), prior=OWN_PRIOR, fallbacks=fallbacks, checked=False)


def with_memory_rate(entry: Efficiency, observations: Sequence[Observations]) -> Efficiency:
    """Add the products of the devices' generation, for their memory rate to be fitted, where no table shows them."""
    known = any(one.device.id in devices_with_kernels() for one in observations)
    if known or entry.engine not in VENDOR_KERNELS or entry.format not in _PLAIN:
        return entry
    laws = (load_generation(name) for name in (observations[0].device.generation, "universal") if name)
    law = next(found for one in laws if one and (found := getattr(one.products, entry.format)))
    return entry.model_copy(update={"products": ProductLaws().model_copy(update={entry.format: law})})


def without_products(found: Fit) -> Fit:
    """Drop products and their part of the covariance."""
    constants = {name: value for name, value in found.constants.items() if not name.startswith("products.")}
    changes: dict[str, object] = {"products": ProductLaws()}
    covariance = found.efficiency.covariance
    if covariance is not None:
        kept = [at for at, names in enumerate(covariance.constants) if not names[0].startswith("products.")]
        log = tuple(tuple(covariance.log[row][column] for column in kept) for row in kept)
        changes["covariance"] = Covariance(constants=tuple(covariance.constants[at] for at in kept), log=log)
    return found._replace(efficiency=found.efficiency.model_copy(update=changes), constants=constants)
