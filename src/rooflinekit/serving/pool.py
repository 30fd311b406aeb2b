"""The KV pool of one GPU: what is taken from its memory before K and V, each term with its reason."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from rooflinekit import units
from rooflinekit.errors import MissingFigureError
from rooflinekit.serving.engine import EngineProfile
from rooflinekit.serving.share import FLOAT_BYTES, Share
from rooflinekit.specs.device import Device

#: Memory that a discrete NVIDIA card's driver keeps, so that a framework sees less than the label: 0.42 GiB of 24
#: (vLLM issue 10517: 23.58 GiB), 0.72 of 80 (two logs of one A100 at 0.25 and 0.5 of its memory).
_DRIVER_GIB, _DRIVER_SHARE = 0.29, 0.0054
#: Bytes of an activation: engines compute in 16 bits.
_ACTIVATION_BYTES = 2.0
#: Digits that SGLang keeps of the fraction that it works out.
_FRACTION_DIGITS = 3


class Limits(NamedTuple):
    """Tokens of one pass, sequences in it, and tokens of one request at most; None is no limit."""

    max_num_batched_tokens: int
    max_num_seqs: int | None
    max_model_len: int | None


class Term(NamedTuple):
    """One part of the memory: what is taken is negative."""

    name: str
    bytes: float
    reason: str


class Sizes(NamedTuple):
    """What sizing a pool looks at."""

    device: Device
    profile: EngineProfile
    share: Share
    limits: Limits
    graph_bytes: float

    @property
    def activation_bytes(self) -> float:
        """Peak of a pass over the whole token budget."""
        return activation_bytes(self.profile, self.share, self.limits)

    @property
    def other_bytes(self) -> float:
        """Libraries' workspaces, and the buffers of collectives where there are several GPUs."""
        more = self.profile.other_mib_parallel if self.share.gpus > 1 else 0.0
        return (self.profile.other_mib + more) * units.MIB


def activation_bytes(profile: EngineProfile, share: Share, limits: Limits) -> float:
    """
    Peak memory of the activations of one pass on one GPU.

    Parameters
    ----------
    profile : EngineProfile
        Copies of widths and of logits.
    share : Share
        Widths of one GPU.
    limits : Limits
        Token budget, and sequences whose logits are sampled at once.

    Returns
    -------
    activation_bytes : float
        16-bit activations of `activation_widths` x (hidden + widest product) a token, and `logit_copies` of 32-bit
        logits a sequence.

    Notes
    -----
    An estimate: what an allocator reuses is its own business. It is what makes the pool depend on the token budget.

    Examples
    --------
    >>> import rooflinekit as rk
    >>> from rooflinekit.serving import load_engine
    >>> from rooflinekit.serving.share import gpu_share
    >>> share, profile = gpu_share(rk.Deployment("llama-3.1-8b", "rtx-3090")), load_engine("vllm-0.12")
    >>> less, more = (activation_bytes(profile, share, Limits(budget, 64, None)) for budget in (2048, 8192))
    >>> round((more - less) / 2**30, 2)
    0.64
    """
    tokens = limits.max_num_batched_tokens
    sampled = min(limits.max_num_seqs or tokens, tokens)
    widths = profile.activation_widths * (share.hidden_size + share.widest)
    return tokens * widths * _ACTIVATION_BYTES + profile.logit_copies * sampled * share.vocabulary * FLOAT_BYTES


def size_pool(
    device: Device, profile: EngineProfile, share: Share, limits: Limits, graph_bytes: float | None
) -> tuple[Term, ...]:
    """Take the terms from the memory in the engine's own order; their sum is the pool."""
    graphs = profile.graph_gib * units.GIB if graph_bytes is None else graph_bytes
    return POOLS[profile.pool](Sizes(device, profile, share, limits, graphs))


def framework_bytes(device: Device) -> float:
    """Memory that a framework sees: the label less what the driver of a discrete card keeps."""
    whole = _memory(device)
    shared = device.kind in ("edge", "apple", "cpu", "tpu") or device.vendor != "NVIDIA"
    return whole if shared else whole - _DRIVER_GIB * units.GIB - _DRIVER_SHARE * whole


def _memory(device: Device) -> float:
    if device.memory_bytes is None:
        message = f"{device.id} has no memory figure: add datasheet.memory_gib to its file"
        raise MissingFigureError(message)
    return device.memory_bytes


# ---- the four ways


def _utilisation(sizes: Sizes) -> tuple[Term, ...]:
    """Take a fraction of the memory, less everything that is not K and V (vLLM)."""
    part = sizes.profile.gpu_memory_utilization or 1.0
    return (
        Term("memory", framework_bytes(sizes.device), "what a framework sees of it"),
        Term("left to others", -(1.0 - part) * framework_bytes(sizes.device), f"gpu_memory_utilization is {part:g}"),
        *_loaded(sizes),
        *_graphs(sizes),
    )


def _static(sizes: Sizes) -> tuple[Term, ...]:
    """Take a fraction for weights and pool together; not set, it follows from a reserve (SGLang)."""
    whole = _memory(sizes.device)
    part = sizes.profile.gpu_memory_utilization
    if part is None:
        part = round((whole - _reserve_bytes(sizes)) / whole, _FRACTION_DIGITS)
        reason = f"activations and graphs: mem_fraction_static comes to {part:g}"
    else:
        reason = f"mem_fraction_static is {part:g}"
    return (
        Term("memory", whole, "of the device"),
        Term("reserve", -(1.0 - part) * whole, reason),
        Term("weights", -sizes.share.weight_bytes, _weights_reason(sizes)),
    )


def _reserve_bytes(sizes: Sizes) -> float:
    profile, device = sizes.profile, sizes.device
    graphs = profile.tier(device).graph_sequences or 0
    reserve = profile.reserve_mib + profile.reserve_mib_per_gpu * sizes.share.gpus
    reserve += profile.reserve_mib_per_token * sizes.limits.max_num_batched_tokens
    reserve += profile.reserve_mib_per_graph_sequence * graphs
    if _memory(device) > profile.reserve_least_from_gib * units.GIB:
        reserve = max(reserve, profile.reserve_least_mib)
    return reserve * units.MIB


def _free(sizes: Sizes) -> tuple[Term, ...]:
    """Take a fraction of what is free after loading and one pass (TensorRT-LLM)."""
    part = sizes.profile.gpu_memory_utilization or 1.0
    taken = (
        Term("memory", framework_bytes(sizes.device), "what a framework sees of it"),
        *_loaded(sizes),
        *_graphs(sizes),
    )
    left = (1.0 - part) * sum(term.bytes for term in taken)
    return (*taken, Term("left free", -left, f"free_gpu_memory_fraction is {part:g}"))


def _context(sizes: Sizes) -> tuple[Term, ...]:
    """Reserve a context for all slots at the start, whatever else would fit (llama.cpp, Ollama)."""
    taken = (Term("memory", framework_bytes(sizes.device), "what a framework sees of it"), *_loaded(sizes))
    spare = sum(term.bytes for term in taken) - _context_bytes(sizes)
    longest = sizes.limits.max_model_len or 0
    reason = f"a context of {longest:,} tokens is reserved, no more"
    if spare < 0:  # nothing is left of the pool: the error says how much is missing
        left = _context_bytes(sizes) + spare
        return (*taken, Term("context", spare - left, f"of {longest:,} tokens does not fit"))
    return (*taken, Term("not used", -spare, reason))


def _context_bytes(sizes: Sizes) -> float:
    """Bytes of the context of all slots; cells of a window layer are few, and padded."""
    profile, limits = sizes.profile, sizes.limits
    slots = 1 if profile.shared_context else (limits.max_num_seqs or 1)
    longest, padding = limits.max_model_len or 0, profile.window_padding
    held = (limits.max_num_seqs or 1) * sizes.share.state_bytes
    for kind in sizes.share.kinds:
        cells = longest if kind.window is None else min(longest, kind.window + limits.max_num_batched_tokens)
        held += slots * kind.layers * kind.bytes_per_token * -(-cells // padding) * padding
    return held


# ---- terms that several share


def _loaded(sizes: Sizes) -> tuple[Term, ...]:
    budget, sampled = sizes.limits.max_num_batched_tokens, sizes.limits.max_num_seqs
    logits = "" if sampled is None else f", logits of {min(sampled, budget):,} sequences"
    return (
        Term("weights", -sizes.share.weight_bytes, _weights_reason(sizes)),
        Term("activations", -sizes.activation_bytes, f"peak of a pass over {budget:,} tokens{logits}: an estimate"),
        Term("other", -sizes.other_bytes, "workspaces of libraries and collectives: an estimate"),
    )


def _graphs(sizes: Sizes) -> tuple[Term, ...]:
    if sizes.profile.graph_memory == "in_pool":
        return (Term("graphs", -sizes.graph_bytes, "captured graphs, estimated first and taken from the pool"),)
    return ()


def _weights_reason(sizes: Sizes) -> str:
    return "of the model" if sizes.share.gpus == 1 else f"of one of {sizes.share.gpus} GPUs"


POOLS: Mapping[str, Callable[[Sizes], tuple[Term, ...]]] = {
    "utilisation": _utilisation,
    "static": _static,
    "free": _free,
    "context": _context,
}
