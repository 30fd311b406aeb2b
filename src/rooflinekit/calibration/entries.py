"""How each shipped entry is fitted: which constants are free on which rows, in which order, from which start."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rooflinekit.calibration.engines import Key, start
from rooflinekit.calibration.fit import Fallbacks, Fit, Free, fit
from rooflinekit.calibration.observations import Observations
from rooflinekit.calibration.references import gb10_trace, h200_kernels, h200_steps, kernel_tables
from rooflinekit.specs.catalog import load_generation
from rooflinekit.specs.efficiency import (
    AttentionLaw,
    Efficiency,
    ElementwiseLaw,
    Evidence,
    MixtureLaw,
    MixtureLaws,
    ProductLaw,
    ProductLaws,
)

H200 = "h200-sxm"
#: Dtype of a product or mixture by the format that its table names.
DTYPES = {"bf16": "bf16", "fp8": "fp8", "nvfp4": "fp4"}
SMALL = ("norm", "rotary", "activation", "cache_write")
_QUANTISED = ("fp8", "fp4")
#: Dtypes whose rows from memory begin too large to show a launch; rows whose weights stay in L2 do show it.
LAUNCH_FROM_L2 = ("fp4",)


class Stage(NamedTuple):
    """One step of a fit: the free constants, and the rows that determine them."""

    free: Free
    rows: Sequence[Observations]


def kernel_start() -> Efficiency:
    """Give the constants that fits of kernel tables begin with."""
    plain = ProductLaw(compute=0.8, memory=0.85, launch_us=4.0)
    quantised = ProductLaw(
        compute=0.7, memory=0.85, launch_us=6.0, quantisation_ps_per_element=1.5, inner_ns_per_element=0.4
    )
    fused = MixtureLaw(compute=0.5, memory=0.9, launch_us=25.0)
    attention = AttentionLaw(
        compute=0.8, memory=0.88, activation=0.4, launch_us=11.0, softmax_flops_per_score=150.0, tile_tokens=100.0
    )
    return Efficiency(
        name="start",
        products=ProductLaws(bf16=plain, fp8=quantised, fp4=quantised),
        mixtures=MixtureLaws(bf16=fused, fp8=fused, fp4=fused),
        attention=attention,
        attention_fp8=attention,
    )


def none(_: object) -> tuple[Efficiency, ...]:
    """Give no fallbacks: a start that is complete needs none."""
    return ()


# ---- tables of kernels


def product_free(dtype: str, *, own: bool) -> Free:
    """List the constants that a table of products determines.

    How compute and memory join only on one device: pooled it gains nothing, as the serial part of the sums in BF16.
    """
    fields = ["compute", "memory", "launch_us"]
    fields += ["inner_ns_per_element", "quantisation_ps_per_element"] if dtype in _QUANTISED else []
    fields += ["exponent"] if own and dtype == "bf16" else []
    return {f"products.{dtype}.{field}": [f"products.{dtype}.{field}"] for field in fields}


def mixture_free(dtype: str) -> Free:
    """List the constants that a table of fused mixtures determines."""
    return {f"mixtures.{dtype}.{field}": [f"mixtures.{dtype}.{field}"] for field in ("compute", "memory", "launch_us")}


def attention_free(name: str, *fields: str) -> Free:
    """List constants of an attention law."""
    return {f"{name}.{field}": [f"{name}.{field}"] for field in fields}


def select(observations: Iterable[Observations], **wanted: str | tuple[str, ...]) -> list[Observations]:
    """Keep the rows whose facts are among those wanted."""
    kept = []
    for one in observations:
        chosen = np.ones(len(one), dtype=bool)
        for column, values in wanted.items():
            names = (values,) if isinstance(values, str) else values
            chosen &= one.facts[column].isin(names).to_numpy() if column in one.facts else False
        if chosen.any():
            kept.append(one.take(chosen))
    return kept


def kernel_stages(kernels: Sequence[Observations], *, own: bool) -> list[Stage]:
    """List the stages by which tables of kernels are fitted: each class on its own rows, attention's two in turn."""
    stages = []
    for form, dtype in DTYPES.items():
        regimes = ("dram", "l2") if dtype in LAUNCH_FROM_L2 else ("dram",)
        rows = select(kernels, op="product", weights=form, regime=regimes)
        stages.append(Stage(product_free(dtype, own=own), rows))
    for name, cache in (("attention", "bf16"), ("attention_fp8", "fp8")):
        rows = select(kernels, op="attention", kv_cache=cache)
        decode = select(rows, phase="decode", regime=("dram", "overhead"))
        stages.append(Stage(attention_free(name, "memory", "tile_tokens", "launch_us"), decode))
        prefill = select(rows, phase="prefill", regime=("compute", "dram"))
        stages.append(Stage(attention_free(name, "activation", "softmax_flops_per_score"), prefill))
    for form, dtype in DTYPES.items():
        stages.append(Stage(mixture_free(dtype), select(kernels, op="mixture", weights=form)))
    return [stage for stage in stages if stage.rows]


def fit_kernels(
    kernels: Sequence[Observations], begin: Efficiency, *, own: bool = False, fallbacks: Fallbacks = none
) -> tuple[Efficiency, list[Fit]]:
    """
    Fit what tables of kernels determine, of one device or of several with equal weight for each generation.

    Attention's arithmetic is held at the rate of the products: its own is not to be told from the softmax.
    """
    return run(kernel_stages(kernels, own=own), begin, fallbacks)


def run(stages: Sequence[Stage], begin: Efficiency, fallbacks: Fallbacks) -> tuple[Efficiency, list[Fit]]:
    """Fit stage by stage, each from what the earlier ones found."""
    entry, fits = begin, []
    for stage in stages:
        weights = equal_by_generation(stage.rows)
        found = fit(stage.rows, entry, stage.free, weights=weights, checked=False, fallbacks=fallbacks)
        fits.append(found)
        entry = held(found.efficiency)
    return joined_covariance(entry, fits), fits


def held(entry: Efficiency) -> Efficiency:
    """Hold attention's arithmetic at the products'."""
    product = entry.products.bf16
    names = [name for name in ("attention", "attention_fp8") if getattr(entry, name) is not None]
    if product is None:
        return entry
    changes = {name: getattr(entry, name).model_copy(update={"compute": product.compute}) for name in names}
    return entry.model_copy(update=changes)


def equal_by_generation(observations: Sequence[Observations]) -> NDArray[np.float64]:
    """Weigh rows so that every generation counts alike, however many rows it has."""
    names = np.concatenate([np.full(len(one), one.device.generation or one.device.id) for one in observations])
    _, where, counts = np.unique(names, return_inverse=True, return_counts=True)
    weights = 1.0 / np.sqrt(counts[where])
    return np.asarray(weights / weights.mean(), dtype=np.float64)


# ---- generations and the universal entry


def pooled_generations(
    kernels: Sequence[Observations] | None = None,
) -> Mapping[str, tuple[Efficiency, list[Fit]]]:
    """Fit the universal entry and that of each generation; small kernels come from the H200 and the GB10."""
    rows = kernel_tables() if kernels is None else kernels
    found = {"universal": with_small(*fit_universal(rows))}
    for name in dict.fromkeys(str(one.device.generation) for one in rows):
        kin = [one for one in rows if one.device.generation == name]
        entry, fits = fit_generation(kin, found["universal"][0])
        seen = {field for each in fits for field in each.constants}
        found[name] = (without_unseen(entry, seen), fits)
    return found


def fit_universal(rows: Sequence[Observations]) -> tuple[Efficiency, list[Fit]]:
    """Fit constants for every device. FP8 caches have none: what one generation loses on them, another does not."""
    plain = [one for one in rows if not (one.facts["kv_cache"] == "fp8").any()]
    return fit_kernels(plain, kernel_start().model_copy(update={"attention_fp8": None}))


def fit_generation(kin: Sequence[Observations], universal: Efficiency) -> tuple[Efficiency, list[Fit]]:
    """Fit constants of one generation, from the universal ones."""
    return fit_kernels(kin, universal.model_copy(update={"attention_fp8": universal.attention}))


def without_unseen(entry: Efficiency, seen: set[str]) -> Efficiency:
    """Drop the laws that no row of a generation determined."""
    laws = {".".join(field.split(".")[:2]) for field in seen}
    changes: dict[str, object] = dict.fromkeys(SMALL)
    for family in ("products", "mixtures"):
        kept = getattr(entry, family)
        gone = {dtype: None for dtype in type(kept).model_fields if f"{family}.{dtype}" not in laws}
        changes[family] = kept.model_copy(update=gone)
    for name in ("attention", "attention_fp8"):
        if not any(law.startswith(f"{name}.") for law in laws):
            changes[name] = None
    return entry.model_copy(update={**changes, "evidence": ()})


#: Small kernels of the GB10 trace, as parts of its bandwidth: one kernel each, fitted beside the others of the trace.
_GB10_SMALL = {"norm": 0.73, "activation": 0.925}


def with_small(entry: Efficiency, fits: list[Fit]) -> tuple[Efficiency, list[Fit]]:
    """Add the four classes of small kernels: those of the H200 that are compiled for their width, and the GB10's."""
    found, small = run(small_stages("fixed"), entry.model_copy(update=small_start()), none)
    changes, evidence = {}, []
    for name in SMALL:
        law = getattr(found, name)
        known = _GB10_SMALL.get(name)
        memory = law.memory if known is None else float(np.sqrt(law.memory * known))
        changes[name] = law.model_copy(update={"memory": memory})
        note = "geometric mean of the H200's and the GB10's" if known else "of the H200 alone"
        evidence.append(Evidence(constant=f"{name}.memory", source="rooflinekit-h200, seed-gb10", note=note))
    return found.model_copy(update={**changes, "evidence": tuple(evidence)}), [*fits, *small]


def small_start() -> dict[str, ElementwiseLaw]:
    """Give the laws that fits of small kernels begin with."""
    return dict.fromkeys(SMALL, ElementwiseLaw(memory=0.5, launch_us=2.0))


def small_stages(compiled: str) -> list[Stage]:
    """List a stage for each class of small kernels of the H200, compiled for any size or for their width."""
    rows = select(h200_kernels(), op="small")
    stages = []
    for name in SMALL:
        mine = select(rows, op_class=name)
        chosen = mine if name == "cache_write" else select(mine, compiled=compiled)
        stages.append(Stage({f"{name}.{field}": [f"{name}.{field}"] for field in ("memory", "launch_us")}, chosen))
    return stages


# ---- the H200 and the GB10


def h200_stages(backend: str) -> list[Stage]:
    """List the stages of the H200 trace: products, attention of one back end, mixtures, small kernels."""
    kernels = h200_kernels(backend)
    static = {name: fields for name, fields in product_free("fp8", own=True).items() if "quantisation" not in name}
    return [
        Stage(product_free("bf16", own=True), select(kernels, op="product", weights="bf16", regime="dram")),
        Stage(
            {**static, "products.fp8.exponent": ["products.fp8.exponent"]},
            select(kernels, op="product", weights="fp8", regime="dram"),
        ),
        Stage(
            attention_free("attention", "memory", "activation", "launch_us", "softmax_flops_per_score"),
            select(kernels, op="attention"),
        ),
        Stage(mixture_free("bf16"), select(kernels, op="mixture")),
        *small_stages("sized"),
    ]


def h200_kernel_entry(backend: str = "cudnn") -> tuple[Efficiency, list[Fit]]:
    """Fit what kernels of the H200 trace determine; nothing of it has seen a whole step."""
    engine = "pytorch-2.11" if backend == "cudnn" else "pytorch-2.11-flash2"
    begin = kernel_start()
    static = begin.products.fp8.model_copy(update={"quantisation_ps_per_element": 0.0}) if begin.products.fp8 else None
    begin = begin.model_copy(
        update={
            "name": f"{H200}/{engine}/bf16",
            "engine": engine,
            "default": backend == "cudnn",
            "products": begin.products.model_copy(update={"fp8": static, "fp4": None}),
            "mixtures": MixtureLaws(bf16=begin.mixtures.bf16),
            "attention_fp8": None,
            "gap_us": 0.0,
            "step_us": 0.0,
            **small_start(),
        }
    )
    entry, fits = run(h200_stages(backend), begin, none)
    return entry, fits


#: The power limit is all that whole steps fit: no row of a kernel shows it. A pause between launches came out at 0.
POWER_LIMIT: Free = {"burst_ms": ["burst_ms"], "sustained": ["sustained"]}


def fit_power_limit(entry: Efficiency, steps: Sequence[Observations]) -> Fit:
    """Fit the burst budget and the sustained rate on whole steps; every other constant stays."""
    begin = entry.model_copy(update={"burst_ms": 15.0, "sustained": 0.88})
    return fit(steps, begin, POWER_LIMIT, checked=False)


def fit_h200(steps: Sequence[Observations] | None = None) -> list[tuple[Efficiency, list[Fit]]]:
    """Fit the H200's PyTorch entries: kernels first, then the power limit on steps."""
    found = []
    entry, fits = h200_kernel_entry()
    limit = fit_power_limit(entry, h200_steps() if steps is None else steps)
    found.append((joined_covariance(limit.efficiency, [*fits, limit]), [*fits, limit]))
    other, more = h200_kernel_entry("flash2")
    constants = {"burst_ms": limit.efficiency.burst_ms, "sustained": limit.efficiency.sustained}
    found.append((joined_covariance(other.model_copy(update=constants), more), more))
    return found


def fit_llama_cpp(one: Observations) -> Fit:
    """Fit an entry of llama.cpp on the H200 from whole prefills and decode steps: no kernel table shows its kernels.

    Passes of 2 to 127 tokens are predicted and not fitted: there llama.cpp changes from one kernel to another, which no
    one law can follow, and single streams and prompts would pay for it.
    """
    form = str(one.facts["weights"].iloc[0])
    begin = start(Key("llama.cpp", "NVIDIA", form))
    named = begin.model_copy(update={"name": f"{H200}/llama.cpp/{form}", "family": ""})
    place = "products.bf16"
    rate = "vector_flops_per_flop" if begin.products.bf16 and begin.products.bf16.vector_flops_per_flop else "compute"
    fields = [f"{place}.memory", f"{place}.{rate}", "gap_us", "attention.compute", "attention.memory"]
    fields += [f"{place}.unpack_flops_per_weight"] if form != "bf16" else []
    rows = one.take(outside_kernel_switch(one))
    return fit([rows], named, {field: [field] for field in fields}, prior=0.5, checked=False)


#: Tokens of a pass between which llama.cpp's matrix-vector and matrix kernels take turns.
_SWITCH = (2, 128)


def outside_kernel_switch(one: Observations) -> NDArray[np.bool_]:
    """Tell the values whose passes bring one token, or enough for a matrix kernel."""
    facts = one.facts
    tokens = np.where(facts["phase"] == "decode", facts["batch"], facts["batch"] * facts["prompt_tokens"])
    return np.asarray((tokens < _SWITCH[0]) | (tokens >= _SWITCH[1]))


#: What is free on the GB10 trace's kernel classes; every other constant is the generation's, frozen.
GB10_FREE: Free = {
    "products.bf16.compute": ["products.bf16.compute"],
    "products.bf16.memory": ["products.bf16.memory"],
    "attention.softmax_flops_per_score": ["attention.softmax_flops_per_score"],
    "attention.launch_us": ["attention.launch_us"],
    "norm.memory": ["norm.memory", "rotary.memory", "cache_write.memory"],
    "activation.memory": ["activation.memory"],
}
#: Largest product and datasheet peak of the GB10: one prefill row cannot tell attention's arithmetic from its softmax.
_GB10_CEILING = 94.0 / 125.0


def gb10_start() -> Efficiency:
    """Give the GB10's entry before its trace: its generation's kernels, small kernels at their universal launch."""
    generation, universal = load_generation("blackwell-rtx"), load_generation("universal")
    if generation is None or universal is None or generation.attention is None or universal.norm is None:
        message = "the GB10's fit starts from the entries of blackwell-rtx and universal"
        raise AssertionError(message)
    small = {name: getattr(universal, name).model_copy(update={"memory": 0.7}) for name in SMALL}
    plain = Efficiency(
        name="gb10/vllm-0.31/bf16",
        engine="vllm-0.31",
        default=True,
        products=ProductLaws(bf16=generation.products.bf16),
        attention=generation.attention.model_copy(update={"compute": _GB10_CEILING}),
        gap_us=0.0,
        step_us=0.0,
    )
    return plain.model_copy(update=small)


def fit_gb10(trace: Observations | None = None) -> tuple[Efficiency, list[Fit]]:
    """Fit the GB10's entry on its trace's kernel classes, each weighing by its share of its phase's measured time."""
    rows = gb10_trace() if trace is None else trace
    weights = np.sqrt(rows.facts["share"].to_numpy(dtype=np.float64))
    found = fit([rows], gb10_start(), GB10_FREE, weights=weights, robust=False)
    said = "no total of a pass is a fit input; the two matrix-vector kernels run at 225 and 165 GB/s: kernel selection"
    return found.efficiency.model_copy(update={"fitted_on": said}), [found]


def joined_covariance(entry: Efficiency, fits: Sequence[Fit]) -> Efficiency:
    """Put the covariances of all stages into one entry: constants of different stages are independent."""
    parts = [one.efficiency.covariance for one in fits if one.efficiency.covariance is not None]
    if not parts:
        return entry
    size = sum(len(part.constants) for part in parts)
    whole, at = np.zeros((size, size)), 0
    for part in parts:
        width = len(part.constants)
        whole[at : at + width, at : at + width] = part.log
        at += width
    constants = tuple(fields for part in parts for fields in part.constants)
    covariance = type(parts[0])(constants=constants, log=tuple(map(tuple, whole.tolist())))
    return entry.model_copy(update={"covariance": covariance})
