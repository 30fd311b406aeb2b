"""Engines: how each one schedules, what it keeps of the memory, when that held, and where it is said."""

import datetime as dt
from typing import Literal

from pydantic import model_validator

from rooflinekit import units
from rooflinekit.errors import SpecError
from rooflinekit.specs.device import Device
from rooflinekit.specs.spec import Count, Fraction, Identifier, NotNegative, NotNegativeInt, SourceMap, Spec
from rooflinekit.specs.yamlfile import check

#: What a profile says of itself: no figure of the engine, so it needs no source.
_OF_ITSELF = frozenset({"id", "engine", "mode", "version", "date", "sources", "notes"})


class Tier(Spec):
    """Defaults of devices with at least so much memory."""

    from_gib: NotNegative
    max_num_batched_tokens: Count | None = None
    max_num_seqs: Count | None = None
    max_model_len: Count | None = None
    graph_sequences: Count | None = None


class EngineProfile(Spec):
    """
    One engine in one mode, as of a version: one YAML file of ``serving/profiles``, a source beside every figure.

    Arguments that users set have the names of vLLM's; None is what the memory tier of the device says.

    Attributes
    ----------
    prefill : {"mixed", "serial", "whole"}
        Chunks ride with decode tokens in one pass; prompts and decode have passes of their own; whole prompts are
        packed beside decode tokens.
    prefill_first : bool
        Whether waiting prompts come before decode tokens.
    micro_batch_tokens : int
        Tokens of one pass where the engine splits its batch once more.
    smallest_tier_devices : tuple of str
        Words of device ids that are in the first tier whatever their memory.
    batch_wait_steps, batch_wait_s, receive_interval_steps
        What holds a new request back: steps and seconds that the scheduler collects, steps between looks at the queue.
    reserves_answers : bool
        Whether a request is let in only where the pool holds all that it may come to, and is never put back.
    graphs : {"none", "decode", "pieces"}
        Passes that replay captured graphs: none; of decode alone; decode whole and others in pieces.
    step_host_s, sequence_host_s, prefill_step_host_s, eager_layer_s, mixture_layer_s, request_host_s : float
        Host time of a step, of a sequence in it, of a step with prompt tokens on top, of a layer that is launched
        kernel by kernel (the device waits where that takes longer than its work), of a layer of experts (what routing
        and permuting launch that no kernel table shows), of a request. 0 until fitted.
    pool : {"utilisation", "static", "free", "context"}
        How the KV pool is sized: a fraction of the memory less everything else; a fraction for weights and pool; a
        fraction of what is free after loading; a context reserved at the start.
    graph_memory : {"in_pool", "on_top"}
        Whether graphs take their memory from the pool or outside it.
    activation_widths, logit_copies : float
        Peak of a pass: copies of (hidden + widest product) a token, of 32-bit logits a sampled sequence.
    in_flight_batches : int
        Passes whose tokens keep their pages of a window at once.
    state_blocks : int
        Pages that a state takes for each request.
    printed_tokens : {"groups", "concurrency"}
        What the log calls tokens: blocks over groups, or requests of the longest length times that length.
    """

    id: Identifier
    engine: str
    mode: Literal["serve", "offline"] = "serve"
    version: str
    date: dt.date
    # ---- scheduling
    prefill: Literal["mixed", "serial", "whole"]
    prefill_first: bool
    enable_chunked_prefill: bool
    enable_prefix_caching: bool
    max_num_batched_tokens: Count | None = None
    max_num_seqs: Count | None = None
    max_model_len: Count | None = None
    micro_batch_tokens: Count | None = None
    tiers: tuple[Tier, ...] = ()
    smallest_tier_devices: tuple[str, ...] = ()
    batch_wait_steps: NotNegativeInt = 0
    batch_wait_s: NotNegative = 0.0
    receive_interval_steps: Count = 1
    reserves_answers: bool = False
    graphs: Literal["none", "decode", "pieces"]
    graph_max_tokens: Count | None = None
    step_host_s: NotNegative = 0.0
    sequence_host_s: NotNegative = 0.0
    prefill_step_host_s: NotNegative = 0.0
    eager_layer_s: NotNegative = 0.0
    mixture_layer_s: NotNegative = 0.0
    request_host_s: NotNegative = 0.0
    # ---- memory
    pool: Literal["utilisation", "static", "free", "context"]
    gpu_memory_utilization: Fraction | None = None
    block_size: Count
    kv_cache_dtype: str | None = None
    shared_context: bool = True
    window_padding: Count = 1
    graph_memory: Literal["in_pool", "on_top"]
    graph_gib: NotNegative = 0.0
    activation_widths: NotNegative = 0.0
    logit_copies: NotNegative = 0.0
    other_mib: NotNegative = 0.0
    other_mib_parallel: NotNegative = 0.0
    reserve_mib: NotNegative = 0.0
    reserve_mib_per_token: NotNegative = 0.0
    reserve_mib_per_gpu: NotNegative = 0.0
    reserve_mib_per_graph_sequence: NotNegative = 0.0
    reserve_least_mib: NotNegative = 0.0
    reserve_least_from_gib: NotNegative = 0.0
    in_flight_batches: Count
    state_blocks: Count
    printed_tokens: Literal["groups", "concurrency"]
    sources: SourceMap = ()
    notes: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _sourced(self) -> "EngineProfile":
        """Refuse a figure without a source, and a profile that leaves a default open."""
        bare = sorted(self.model_fields_set - _OF_ITSELF - {field for field, _ in self.sources})
        if bare:
            message = f"{', '.join(bare)} without a source: add a line to `sources`"
            raise ValueError(message)
        if self.max_num_batched_tokens is None and not self.tiers:
            message = "missing max_num_batched_tokens or tiers: a profile says how many tokens a pass takes"
            raise ValueError(message)
        return self

    # ---- what holds on a device

    def tier(self, device: Device) -> Tier:
        """
        Give the defaults of the device's memory tier.

        Examples
        --------
        GB10 has 121 GiB and lands in the smallest tier all the same:

        >>> from rooflinekit import load_device
        >>> load_engine("vllm-0.31").tier(load_device("gb10")).max_num_batched_tokens
        2048
        """
        if not self.tiers:
            return Tier(from_gib=0.0)
        if set(device.id.split("-")) & set(self.smallest_tier_devices):
            return self.tiers[0]
        held = (device.memory_bytes or 0.0) / units.GIB
        return [self.tiers[0], *(tier for tier in self.tiers if tier.from_gib <= held)][-1]

    def token_budget(self, device: Device) -> int:
        """
        Tokens of one pass at most.

        Examples
        --------
        >>> from rooflinekit import load_device
        >>> [load_engine("vllm").token_budget(load_device(name)) for name in ("rtx-4090", "h200-sxm", "b200-sxm")]
        [2048, 8192, 16384]
        """
        budget = self.max_num_batched_tokens or self.tier(device).max_num_batched_tokens or self.tiers[0].from_gib
        return min(int(budget), self.micro_batch_tokens or int(budget))

    def sequences(self, device: Device) -> int | None:
        """Sequences of one pass at most; None is no limit."""
        return self.max_num_seqs or self.tier(device).max_num_seqs

    def longest(self, device: Device) -> int | None:
        """Tokens of one request at most, where the engine and not the model says so."""
        return self.max_model_len or self.tier(device).max_model_len

    def source(self, field: str) -> str:
        """
        Say where a figure is from.

        Examples
        --------
        >>> load_engine("vllm").source("gpu_memory_utilization")
        'vLLM 0.32.0 vllm/config/cache.py'
        """
        return "; ".join(dict(self.sources).get(field, ("a default of rooflinekit: no figure of the engine",)))

    def with_(self, **changes: object) -> "EngineProfile":
        """
        Return a profile with some figures set by the user; None leaves a figure as it is.

        Examples
        --------
        >>> profile = load_engine("vllm").with_(max_num_batched_tokens=4096)
        >>> profile.max_num_batched_tokens, profile.source("max_num_batched_tokens")
        (4096, 'set by the user')
        """
        made = {name: value for name, value in changes.items() if value is not None}
        if not made:
            return self
        _refuse_settings(made)
        sources = {**dict(self.sources), **dict.fromkeys(made, ("set by the user",))}
        kept = self.model_dump(exclude_unset=True)
        return check(EngineProfile, {**kept, **made, "sources": sources}, f"engine profile {self.id}")


def _refuse_settings(made: dict[str, object]) -> None:
    """Refuse in its own words what a user sets out of range."""
    part = made.get("gpu_memory_utilization", 1.0)
    if not isinstance(part, int | float) or isinstance(part, bool) or not 0.0 < part <= 1.0:
        message = f"gpu_memory_utilization={part!r}: expected a part of the memory, above 0 and at most 1: 0.9 for 90%"
        raise SpecError(message)
    for name in ("max_num_batched_tokens", "max_num_seqs", "max_model_len"):
        count = made.get(name, 1)
        if isinstance(count, bool) or not isinstance(count, int | float) or count < 1 or count % 1:
            message = f"{name}={count!r}: expected a whole number, 1 or more"
            raise SpecError(message)


def load_engine(name: "str | EngineProfile", **changes: object) -> EngineProfile:
    """
    Load an engine's profile: the newest one, or the one that held in a version.

    Parameters
    ----------
    name : str or EngineProfile
        ``"vllm"``, ``"vllm-0.15.1"`` (the newest profile up to it), ``"vllm-offline"``, ``"sglang"``,
        ``"tensorrt-llm"``, ``"llama.cpp"``, ``"ollama"``.
    **changes
        Figures that the user sets, as in :meth:`EngineProfile.with_`.

    Returns
    -------
    profile : EngineProfile

    Raises
    ------
    UnknownNameError
        No profile of this engine, mode or age; the nearest name is given.
    SpecError
        A changed figure does not exist or is out of its range.

    Examples
    --------
    >>> load_engine("vllm-0.15.1").id, load_engine("vllm-offline").id
    ('vllm-0.10', 'vllm-0.32-offline')
    >>> load_engine("vllm", max_num_batched_tokens=4096).max_num_batched_tokens
    4096
    """
    from rooflinekit.serving.profile_files import find_profile, read_profile  # noqa: PLC0415 - they read into this class

    if isinstance(name, EngineProfile):
        return name.with_(**changes)
    return read_profile(find_profile(name)).with_(**changes)


def list_engines() -> tuple[str, ...]:
    """
    Ids of all profiles, sorted.

    Examples
    --------
    >>> "vllm-0.32" in list_engines()
    True
    """
    from rooflinekit.serving.profile_files import profile_ids  # noqa: PLC0415 - as above

    return profile_ids()
