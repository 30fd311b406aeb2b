"""What a deployment settles once: model, device, dtypes, plan, timing, memory."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn, Self

import numpy as np

from rooflinekit.errors import InvalidInputError
from rooflinekit.operators.cost import Plan
from rooflinekit.operators.forward import plan
from rooflinekit.operators.moe import DistinctExperts, distinct_experts_interval
from rooflinekit.phases.memory import CacheShape, Share, shares
from rooflinekit.phases.resolve import (
    Choices,
    Resolved,
    checked_efficiency,
    checked_interconnect,
    resolve_laws,
    resolve_links,
    resolve_precision,
    resolve_rates,
)
from rooflinekit.phases.row import Value
from rooflinekit.roofline.communication import Links
from rooflinekit.roofline.laws import is_of_engine, same_engine
from rooflinekit.roofline.timing import Floor, Timing, compile_timing
from rooflinekit.specs.catalog import load_device, load_engines, load_model
from rooflinekit.specs.device import Device
from rooflinekit.specs.efficiency import Efficiency
from rooflinekit.specs.interconnect import Interconnect, LinkChoice
from rooflinekit.specs.model import Model
from rooflinekit.specs.parallelism import Parallelism, parallelism
from rooflinekit.specs.precision import Precision
from rooflinekit.specs.step import Real, amount, checked

#: Names that are more alike than this may be a slip.
_NEAR = 0.75
#: How the engine is often called whose name these begin.
_SHORT = {"trt": "tensorrt-llm", "llamacpp": "llama.cpp", "llama-": "llama.cpp"}
Named = str | Path | Mapping[str, Any]


@dataclass(frozen=True, init=False)
class Settled:
    """The choices of a deployment, what they resolve to, and nothing that depends on a step."""

    model: Model
    device: Device
    engine: str | None
    weights: str | None
    kv_cache: str | None
    compute: str | None
    efficiency: str | Efficiency
    routing_skew: float
    memory_check: bool
    tensor_parallel: int
    pipeline_parallel: int
    expert_parallel: int
    data_parallel_attention: int
    expert_imbalance: float
    interconnect: str | LinkChoice | Interconnect | None

    def __init__(
        self,
        model: Named | Model,
        device: Named | Device,
        *,
        engine: str | None = None,
        weights: str | None = None,
        kv_cache: str | None = None,
        compute: str | None = None,
        efficiency: str | Efficiency = "calibrated",
        routing_skew: float = 0.0,
        memory_check: bool = True,
        tensor_parallel: int = 1,
        pipeline_parallel: int = 1,
        expert_parallel: int = 1,
        data_parallel_attention: int = 1,
        expert_imbalance: float = 1.0,
        interconnect: str | Mapping[str, Any] | LinkChoice | Interconnect | None = None,
        **unknown: object,
    ) -> None:
        """Settle the choices; what they mean is said in the class docstring."""
        if unknown:
            refuse_choices(unknown, self.__dataclass_fields__)
        for name, choice in {"engine": engine, "weights": weights, "kv_cache": kv_cache, "compute": compute}.items():
            checked_name(name, choice)
        settled = {
            "model": load_model(model),
            "device": load_device(device),
            "engine": engine,
            "weights": weights,
            "kv_cache": kv_cache,
            "compute": compute,
            "efficiency": checked_efficiency(efficiency),
            "routing_skew": _skew(routing_skew),
            "memory_check": memory_check,
            "tensor_parallel": tensor_parallel,
            "pipeline_parallel": pipeline_parallel,
            "expert_parallel": expert_parallel,
            "data_parallel_attention": data_parallel_attention,
            "expert_imbalance": expert_imbalance,
            "interconnect": checked_interconnect(interconnect),
        }
        for name, value in settled.items():
            object.__setattr__(self, name, value)
        _ = self.timing  # settled now, so that a wrong choice is an error where it was made

    # ---- what was settled

    @cached_property
    def _resolved(self) -> Resolved:
        return resolve_precision(
            self.model, self.device, Choices(self.weights, self.kv_cache, self.compute, self.routing_skew)
        )

    @property
    def precision(self) -> Precision:
        """Dtypes of weights, cache, activations and arithmetic."""
        return self._resolved.precision

    @property
    def plan(self) -> Plan:
        """Operators of one pass and their coefficients."""
        return self.timing.plan

    @cached_property
    def links(self) -> Links | None:
        """How the devices are connected; None for one device alone."""
        if self._asked.devices == 1:
            return None
        return resolve_links(self.device, self.engine, self.interconnect)

    @cached_property
    def _asked(self) -> Parallelism:
        """The layout as it was asked for."""
        return parallelism(
            tensor_parallel=self.tensor_parallel,
            pipeline_parallel=self.pipeline_parallel,
            expert_parallel=self.expert_parallel,
            data_parallel_attention=self.data_parallel_attention,
            expert_imbalance=self.expert_imbalance,
        )

    @cached_property
    def layout(self) -> Parallelism:
        """How the model is laid out over devices, and how many of them share the quick link."""
        if self.links is None:
            return self._asked
        return self._asked.model_copy(update={"devices_per_node": self.links.inside.domain})

    @cached_property
    def floor(self) -> Floor:
        """What nothing can beat: the fewest operations in either form of attention, the fewest experts."""
        least = replace(self.precision, routing_skew=float("inf"), ridge=0.0)
        even = self.layout.model_copy(update={"expert_imbalance": 1.0})
        return Floor(plan(self.model, least, even), self.timing.rates, self.pipeline_parallel)

    @cached_property
    def timing(self) -> Timing:
        """The plan under this device's rates and laws; `timing.total_s` is the inner call of sweeps and simulators."""
        rates = replace(resolve_rates(self.device, self.efficiency), links=self.links)
        laws = resolve_laws(self.device, self.engine, self.precision.weights.name, self.efficiency)
        return compile_timing(plan(self.model, self.precision, self.layout), rates, laws)

    @cached_property
    def shares(self) -> tuple[Share, ...]:
        """What a device of each pipeline stage holds: layers, weights, cache; one share without a pipeline."""
        return shares(self.model, self.precision, self.layout)

    @cached_property
    def cache(self) -> CacheShape:
        """What the KV cache of one device holds per token, by window: of the pipeline stage that holds most."""
        return max((share.cache for share in self.shares), key=lambda cache: cache.bytes_per_token)

    @property
    def notes(self) -> tuple[str, ...]:
        """What was chosen for the user, and what estimates of this deployment leave out."""
        summary = ("summary model: no activations, no small kernels",) if self.model.summary else ()
        unsure = () if self.model.verified else (f"{self.model.id}: figures from memory, unverified",)
        announced = (f"{self.device.id} is announced, not shipping",) if self.device.status == "announced" else ()
        skew = self.routing_skew
        uneven = (f"routing skew {skew:g}: fewer distinct experts than even routing touches",) if skew else ()
        engine = self.engine_notes
        return (*summary, *unsure, *announced, *uneven, *engine, *self._layout_notes, *self._resolved.notes)

    @property
    def _layout_notes(self) -> tuple[str, ...]:
        """Say what the figures are of where several devices work together, and what is assumed of them."""
        links, layout = self.links, self.layout
        if links is None:
            return ()
        rate = f"{links.inside.one_way_gb_per_s:g} GB/s one way"
        kernel = (
            "all-reduces by the engine's own kernel up to its limit" if links.own_kernel else "library's collectives"
        )
        copied = any(
            getattr(block, "kv_heads", layout.tensor_parallel) < layout.tensor_parallel for block in self.model.mixers
        )
        said = {
            f"{layout.layout} on {layout.devices} devices: work, weights and cache are of the busiest one": True,
            f"linked by {links.inside.name}, {rate}: {kernel}; nothing overlaps with them": True,
            "KV heads are copied: fewer of them than tensor-parallel ranks": copied,
            "one group of tokens passes the pipeline's stages one after another": layout.pipeline_parallel > 1,
            f"experts: the busiest rank has {self.expert_imbalance:g} times the mean load": layout.expert_parallel > 1,
            "sequences are shared out among the attention groups as evenly as they go": layout.data_parallel_attention
            > 1,
        }
        return tuple(line for line, holds in said.items() if holds)

    @property
    def engine_notes(self) -> tuple[str, ...]:
        """Say that an engine was asked for whose constants nobody has fitted."""
        engine, laws = self.engine, self.timing.laws
        if engine is None or self.efficiency != "calibrated" or is_of_engine(laws.chain[0], engine):
            return ()
        return (f"no constants of engine {engine!r} for {self.device.id}: {laws.basis} taken{self._meant(engine)}",)

    def _meant(self, engine: str) -> str:
        """Ask whether a known engine was meant: others are taken too, since anyone may measure one."""
        known = {str(entry.engine) for entry in (*self.device.efficiency, *load_engines()) if entry.engine}
        stems = known | {one.partition("-")[0] for one in known}
        short = next((name for begin, name in _SHORT.items() if engine.lower().startswith(begin)), "")
        near = [short] if short else get_close_matches(engine.lower(), sorted(stems), n=1, cutoff=_NEAR)
        return f"; did you mean {near[0]}?" if near and not same_engine(near[0], engine) else ""

    @cached_property
    def weights_bytes(self) -> float:
        """Bytes that the weights take in the memory of one device, embedding and scales included.

        Of several devices, of the one that holds most weights.
        """
        return max(share.weights_bytes for share in self.shares)

    # ---- what it holds and touches, whatever the step

    @property
    def kv_bytes_per_token(self) -> float:
        """
        Bytes of K and V that one token writes into the cache of a device, over all its layers.

        Examples
        --------
        >>> import rooflinekit as rk
        >>> rk.Deployment("llama-3.1-8b", "h100-sxm").kv_bytes_per_token
        131072.0
        """
        return self.cache.bytes_per_token

    def kv_cache_bytes(self, tokens: Real, *, sequences: Real = 1, whole_windows: bool = False) -> Value:
        """
        Bytes that sequences of this many tokens hold: K and V (a windowed layer its window at most), latents, states.

        Of several devices, what the fullest of them holds.

        Parameters
        ----------
        tokens, sequences : Real
            Length of each sequence, and how many there are. [token], [1]
        whole_windows : bool
            Count windowed layers at the whole length, as engines reserve them that keep one cache for all layers.

        Returns
        -------
        kv_cache_bytes : float or array
            [byte]

        Raises
        ------
        InvalidInputError
            A count is negative or not a number.

        Examples
        --------
        >>> import rooflinekit as rk
        >>> print(f"{rk.Deployment('qwen3-8b', 'gb10').kv_cache_bytes(tokens=2048):.4g}")
        3.02e+08
        """
        length, many = amount(checked("tokens", tokens)), amount(checked("sequences", sequences))
        if self.layout.data_parallel_attention > 1:
            many = amount(np.ceil(np.divide(many, self.layout.data_parallel_attention)))
        caches = [share.cache for share in self.shares]
        held = [np.asarray((cache.reserved if whole_windows else cache.held)(length) * many) for cache in caches]
        return amount(np.asarray(np.maximum.reduce(held)))

    def distinct_experts(self, tokens: Real) -> dict[str, DistinctExperts]:
        """
        Experts whose weights a pass over so many tokens reads in one layer, by feed-forward: least, expected, uniform.

        Raises
        ------
        InvalidInputError
            The number of tokens is negative or not a number.

        Examples
        --------
        >>> import rooflinekit as rk
        >>> d = rk.Deployment("qwen3-30b-a3b", "h200-sxm", routing_skew=1.0)
        >>> [round(figure, 1) for figure in d.distinct_experts(tokens=64)["moe"]]
        [8.0, 102.0, 125.9]
        """
        count = amount(checked("tokens", tokens))
        mixtures = [block for block in self.model.feedforwards if block.routed[0]]
        return {one.name: distinct_experts_interval(count, *one.routed, self.routing_skew) for one in mixtures}

    def with_(self, **changes: object) -> Self:
        """
        Return a copy with some choices changed; the arguments are those of the class.

        Examples
        --------
        >>> import rooflinekit as rk
        >>> rk.Deployment("qwen3-8b", "gb10").with_(device="h200-sxm").device.id
        'h200-sxm'
        """
        kept = {name: getattr(self, name) for name in self.__dataclass_fields__}
        if set(changes) - set(kept):
            refuse_choices(set(changes) - set(kept), kept)
        return type(self)(**{**kept, **changes})

    def __repr__(self) -> str:
        """Give one line: model, device, formats and the basis of its times."""
        held = f"{self.precision.described}, {self.precision.kv_cache} KV"
        count = self.layout.devices
        place = self.device.id if count == 1 else f"{count} x {self.device.id} ({self.layout.layout})"
        return f"{self.model.id} on {place}: {held}, {self.timing.laws.basis}"


def _skew(value: float) -> float:
    """Return the routing skew as a number: one for all points of a deployment."""
    if np.ndim(checked("routing_skew", value)):
        message = f"routing_skew={value!r}: expected one number, the same for all layers and points"
        raise InvalidInputError(message)
    return float(value)


def checked_name(argument: str, choice: object) -> None:
    """Refuse what is no name and not None."""
    if choice is not None and not (isinstance(choice, str) and choice):
        message = f"{argument}={choice!r}: expected a name"
        raise InvalidInputError(message)


def refuse_choices(unknown: Iterable[str], known: Iterable[str]) -> NoReturn:
    """Name the choices that a deployment does not have."""
    names = ", ".join(sorted(unknown))
    message = f"{names}: no such choice; a deployment has {', '.join(known)}"
    raise InvalidInputError(message)
