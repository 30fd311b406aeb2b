"""What a deployment settles once: model, device, dtypes, plan, timing, memory."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from rooflinekit.errors import InvalidInputError
from rooflinekit.operators.cost import Plan
from rooflinekit.operators.forward import plan
from rooflinekit.phases.memory import CacheShape, cache_shape, stored_weight_bytes
from rooflinekit.phases.resolve import (
    Choices,
    Resolved,
    checked_efficiency,
    resolve_laws,
    resolve_precision,
    resolve_rates,
)
from rooflinekit.roofline.timing import Timing, compile_timing
from rooflinekit.specs.catalog import load_device, load_model
from rooflinekit.specs.device import Device
from rooflinekit.specs.efficiency import Efficiency
from rooflinekit.specs.model import Model
from rooflinekit.specs.precision import Precision
from rooflinekit.specs.step import checked

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
    ) -> None:
        """Settle the choices; what they mean is said in the class docstring."""
        settled = {
            "model": load_model(model),
            "device": load_device(device),
            "engine": engine,
            "weights": weights,
            "kv_cache": kv_cache,
            "compute": compute,
            "efficiency": checked_efficiency(efficiency),
            "routing_skew": float(checked("routing_skew", routing_skew)),  # type: ignore[arg-type]
            "memory_check": memory_check,
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

    @cached_property
    def plan(self) -> Plan:
        """Operators of one pass and their coefficients."""
        return plan(self.model, self.precision)

    @cached_property
    def timing(self) -> Timing:
        """The plan under this device's rates and laws; `timing.total_s` is the inner call of sweeps and simulators."""
        rates = resolve_rates(self.device, self.efficiency)
        laws = resolve_laws(self.device, self.engine, self.precision.weights.name, self.efficiency)
        return compile_timing(self.plan, rates, laws)

    @cached_property
    def cache(self) -> CacheShape:
        """What the KV cache holds per token, by window."""
        return cache_shape(self.model, self.precision)

    @property
    def notes(self) -> tuple[str, ...]:
        """What was chosen for the user, and what estimates of this deployment leave out."""
        summary = ("summary model: no activations, no small kernels",) if self.model.summary else ()
        unsure = () if self.model.verified else (f"{self.model.id}: figures from memory, unverified",)
        announced = (f"{self.device.id} is announced, not shipping",) if self.device.status == "announced" else ()
        return (*summary, *unsure, *announced, *self._resolved.notes)

    @cached_property
    def weights_bytes(self) -> float:
        """Bytes that the weights take in memory, embedding and scales included."""
        return stored_weight_bytes(self.model, self.precision)

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
        unknown = sorted(set(changes) - set(kept))
        if unknown:
            message = f"{', '.join(unknown)}: no such choice; a deployment has {', '.join(kept)}"
            raise InvalidInputError(message)
        return type(self)(**{**kept, **changes})

    def __repr__(self) -> str:
        """Give one line: model, device, formats and the basis of its times."""
        held = f"{self.precision.described}, {self.precision.kv_cache} KV"
        return f"{self.model.id} on {self.device.id}: {held}, {self.timing.laws.basis}"
