"""Changes: what an engineer could do to a server, each from one state to another, or a reason why it cannot be."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

from rooflinekit.errors import InvalidInputError
from rooflinekit.phases.deployment import Deployment
from rooflinekit.serving.engine import EngineProfile
from rooflinekit.specs.device import Device, Measured
from rooflinekit.specs.precision import WIDE

_EIGHT = 8.0
_FOUR = 5.0  # bits of a four-bit format with its scales, at most


@dataclass(frozen=True)
class State:
    """What is served, under which engine, and what comes: at a rate, or so many in flight."""

    deployment: Deployment
    engine: EngineProfile
    prompt_tokens: float
    output_tokens: float
    rate_per_s: float | None
    concurrency: int | None
    cached_tokens: float = 0.0

    def with_(self, **changes: object) -> Self:
        """Return a copy with some of it changed."""
        return replace(self, **changes)  # type: ignore[arg-type]

    def deployed(self, **choices: object) -> Self:
        """Return a copy with choices of the deployment changed."""
        return self.with_(deployment=self.deployment.with_(**choices))

    @property
    def budget(self) -> int:
        """Tokens of one pass at most."""
        return self.engine.token_budget(self.deployment.device)


@dataclass(frozen=True)
class Change:
    """A change by its name; ``make`` raises InvalidInputError with the reason where it cannot be."""

    name: str
    make: Callable[[State], State]


def scaled_device(device: Device, *, bandwidth: float = 1.0, flops: float = 1.0) -> Device:
    """
    Copy a device with its memory bandwidth, or all its arithmetic peaks, times a factor.

    Fractions of these peaks that were fitted stay, so that rates reached grow alike; launch times stay as they are.

    Examples
    --------
    >>> from rooflinekit import load_device
    >>> twice = scaled_device(load_device("gb10"), bandwidth=2.0)
    >>> twice.bytes_per_s / load_device("gb10").bytes_per_s, twice.flops_per_s["bf16"] / 125e12
    (2.0, 1.0)
    """
    sheet = device.datasheet
    peaks = sheet.peak_dense_tflops
    known = {name: flops * peak for name in type(peaks).model_fields if (peak := getattr(peaks, name)) is not None}
    clocks = ("boost_mhz", "maximum_mhz")  # the vector units' rate follows from the clock
    figures = {
        "bandwidth_gb_per_s": bandwidth * sheet.bandwidth_gb_per_s,
        "peak_dense_tflops": peaks.model_copy(update=known),
        **{name: flops * clock for name in clocks if (clock := getattr(sheet, name)) is not None},
    }
    measured = tuple(_scaled(row, bandwidth, flops) for row in device.measured)
    return device.model_copy(update={"datasheet": sheet.model_copy(update=figures), "measured": measured})


def _scaled(row: Measured, bandwidth: float, flops: float) -> Measured:
    """Scale a ceiling that `efficiency="measured"` would use."""
    factor = bandwidth if row.quantity.endswith("_gb_per_s") else flops if row.quantity.startswith("gemm") else 1.0
    return row.model_copy(update={"value": factor * row.value})


# ---- the changes


def _bandwidth(state: State) -> State:
    return state.deployed(device=scaled_device(state.deployment.device, bandwidth=2.0))


def _flops(state: State) -> State:
    return state.deployed(device=scaled_device(state.deployment.device, flops=2.0))


def _refuse(reason: str) -> State:
    raise InvalidInputError(reason)


def _fewer_bits(state: State, bits: float) -> None:
    """Refuse a format that holds no fewer bits than the weights have now."""
    held = state.deployment.precision.weights
    if held.bits <= bits:
        _refuse(f"the weights are held in {held.name}, {held.bits:.4g} bits")


def _fp8_weights(state: State) -> State:
    _fewer_bits(state, _EIGHT + 0.5)
    return state.deployed(weights="fp8-weight-only")


def _fp8_products(state: State) -> State:
    held, device = state.deployment.precision.weights, state.deployment.device
    if held.arithmetic is not None or held.bits < WIDE:
        _refuse(f"the weights are held in {held.name} and computed with in {held.arithmetic or '16 bits'}")
    if "fp8" not in device.flops_per_s:
        _refuse(f"{device.id} has no FP8 arithmetic peak")
    return state.deployed(weights="fp8")


def _int4_weights(state: State) -> State:
    _fewer_bits(state, _FOUR)
    return state.deployed(weights="int4")


def _fp8_cache(state: State) -> State:
    held = state.deployment.precision
    if not state.deployment.kv_bytes_per_token:
        _refuse(f"{state.deployment.model.id} keeps no K and V")
    if held.kv_bytes <= 1.0:
        _refuse(f"K and V are held in {held.kv_cache}")
    return state.deployed(kv_cache="fp8")


def _half_prompt(state: State) -> State:
    half = max(round(state.prompt_tokens / 2.0), 1)
    if half == state.prompt_tokens:
        _refuse("a prompt of one token has no half")
    return state.with_(prompt_tokens=float(half), cached_tokens=state.cached_tokens / 2.0)


def _prefix(part: float) -> Callable[[State], State]:
    def make(state: State) -> State:
        held = float(int(part * state.prompt_tokens))
        if held <= state.cached_tokens:
            _refuse(f"{state.cached_tokens:g} of {state.prompt_tokens:g} tokens are cached")
        if not state.engine.enable_prefix_caching:
            _refuse(f"{state.engine.id} keeps no prefixes: set enable_prefix_caching")
        return state.with_(cached_tokens=held)

    return make


def _budget(factor: float) -> Callable[[State], State]:
    def make(state: State) -> State:
        engine = state.engine
        if not (engine.enable_chunked_prefill or engine.micro_batch_tokens):
            _refuse(f"{engine.id} cuts no prompts into chunks")
        field = "micro_batch_tokens" if engine.micro_batch_tokens else "max_num_batched_tokens"
        return state.with_(engine=engine.with_(**{field: max(int(factor * state.budget), 1)}))

    return make


def _twice_as_many(state: State) -> State:
    if state.concurrency is not None:
        return state.with_(concurrency=2 * state.concurrency)
    return state.with_(rate_per_s=2.0 * (state.rate_per_s or 0.0))


def _tensor_parallel(state: State) -> State:
    return state.deployed(tensor_parallel=2 * state.deployment.tensor_parallel)


def other_device(name: object) -> Callable[[State], State]:
    """Give the change that runs the same model on another device."""
    return lambda state: state.deployed(device=name)


def changes(state: State, devices: tuple[object, ...]) -> tuple[Change, ...]:
    """List the changes to a state; the other devices come last."""
    tensor, many = 2 * state.deployment.tensor_parallel, "requests in flight" if state.concurrency else "the rate"
    named = [(name, str(getattr(name, "id", name))) for name in devices]
    return (
        Change("2x memory bandwidth", _bandwidth),
        Change("2x arithmetic (FLOPS)", _flops),
        Change("weights in FP8, 16-bit arithmetic", _fp8_weights),
        Change("weights and arithmetic in FP8", _fp8_products),
        Change("weights in INT4", _int4_weights),
        Change("K and V in FP8", _fp8_cache),
        Change("half the prompt", _half_prompt),
        Change("prefix hit 50%", _prefix(0.5)),
        Change("prefix hit 90%", _prefix(0.9)),
        Change("half the token budget", _budget(0.5)),
        Change("2x the token budget", _budget(2.0)),
        Change(f"2x {many} (batch)", _twice_as_many),
        Change(f"tensor parallel {tensor}", _tensor_parallel),
        *(Change(f"on {label}", other_device(name)) for name, label in named),
    )
