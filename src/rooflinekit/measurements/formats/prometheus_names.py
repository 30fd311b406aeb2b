"""What the metrics of vLLM, SGLang, TGI and llama-server mean, by engine: two may give one name to two quantities.

Names stand here without their prefix, and counters without ``_total``; ``name/value`` is one value of a label.
"""

from collections.abc import Mapping
from typing import NamedTuple


class Metric(NamedTuple):
    """A metric's quantity, and whether engines of one page add up (``sum``) or the fullest counts (``max``)."""

    quantity: str
    phase: str = ""
    includes: str = ""
    over_engines: str = "sum"


class Ratio(NamedTuple):
    """Two counters whose ratio is what is measured."""

    quantity: str
    over: str
    under: str
    phase: str = ""
    includes: str = ""


class Names(NamedTuple):
    """The metrics of one engine. `running` tells whether gauges of 0 mean anything."""

    tool: str
    engine: str | None
    running: str
    gauges: Mapping[str, Metric]
    counters: Mapping[str, Metric]
    histograms: Mapping[str, Metric]
    ratios: tuple[Ratio, ...] = ()
    old: Mapping[str, str] = {}
    settings: frozenset[str] = frozenset()
    windows: frozenset[str] = frozenset()

    def is_part_of_ratio(self, name: str) -> bool:
        """Tell a counter that only a ratio uses."""
        return any(name in (one.over, one.under) for one in self.ratios)


_USAGE = Metric("kv_cache_usage", over_engines="max")
_TTFT = Metric("time_to_first_token_s", "request")
_GAPS = Metric("inter_token_latency_s", "decode")
_END_TO_END = Metric("end_to_end_s", "request")
_QUEUE = Metric("queue_time_s", "request")
_PROMPT = Metric("prompt_tokens", includes="cached tokens too")
_OUTPUT = Metric("output_tokens")

_VLLM = Names(
    "vllm",
    "vllm",
    running="num_requests_running",
    gauges={
        "num_requests_running": Metric("requests_running"),
        "num_requests_waiting": Metric("requests_waiting"),
        "kv_cache_usage_perc": _USAGE,
        "gpu_prefix_cache_hit_rate": Metric("prefix_cache_hit_rate", over_engines="max"),
        "spec_decode_draft_acceptance_rate": Metric("acceptance_rate", "decode", over_engines="max"),
    },
    counters={
        "prompt_tokens": _PROMPT,
        "prompt_tokens_by_source/local_compute": Metric("prompt_tokens_computed", "prefill"),
        "generation_tokens": _OUTPUT,
        "num_preemptions": Metric("preemptions"),
        "request_success/stop": Metric("requests_completed"),
        "request_success/length": Metric("requests_completed"),
        "request_success/repetition": Metric("requests_completed"),
        "request_success/abort": Metric("requests_failed"),
        "request_success/error": Metric("requests_failed"),
    },
    histograms={
        "time_to_first_token_seconds": _TTFT,
        "inter_token_latency_seconds": _GAPS,
        "request_time_per_output_token_seconds": Metric(
            "time_per_output_token_s", "decode", "0 for each answer of one token"
        ),
        "e2e_request_latency_seconds": _END_TO_END,
        "request_queue_time_seconds": _QUEUE,
        "request_prefill_time_seconds": Metric("prefill_time_s", "prefill", "steps that other requests share"),
        "request_decode_time_seconds": Metric("decode_time_s", "decode", "all steps of a request, shared with others"),
        "request_prompt_tokens": _PROMPT,
        "request_generation_tokens": _OUTPUT,
        "request_prefill_kv_computed_tokens": Metric("prompt_tokens_computed", "prefill"),
    },
    ratios=(
        Ratio("prefix_cache_hit_rate", "prefix_cache_hits", "prefix_cache_queries", includes="of prompt tokens"),
        Ratio("acceptance_rate", "spec_decode_num_accepted_tokens", "spec_decode_num_draft_tokens", "decode"),
    ),
    old={
        "gpu_cache_usage_perc": "kv_cache_usage_perc",
        "gpu_prefix_cache_hits": "prefix_cache_hits",
        "gpu_prefix_cache_queries": "prefix_cache_queries",
        "time_per_output_token_seconds": "inter_token_latency_seconds",
        "time_in_queue_requests": "request_queue_time_seconds",
    },
    windows=frozenset({"avg_prompt_throughput_toks_per_s", "avg_generation_throughput_toks_per_s"}),
)

_SGLANG = Names(
    "sglang",
    "sglang",
    running="num_running_reqs",
    gauges={
        "num_running_reqs": Metric("requests_running"),
        "num_queue_reqs": Metric("requests_waiting"),
        "token_usage": _USAGE,
        "max_total_num_tokens": Metric("kv_cache_tokens"),
        "cache_hit_rate": Metric("prefix_cache_hit_rate", over_engines="max"),
        "spec_accept_length": Metric("accepted_tokens_per_step", "decode", over_engines="max"),
    },
    counters={
        "prompt_tokens": _PROMPT,
        "generation_tokens": _OUTPUT,
        "num_requests": Metric("requests_completed"),
        "num_aborted_requests": Metric("requests_failed"),
    },
    histograms={
        "time_to_first_token_seconds": _TTFT,
        "inter_token_latency_seconds": _GAPS,
        "e2e_request_latency_seconds": _END_TO_END,
        "queue_time_seconds": _QUEUE,
    },
    old={"time_per_output_token_seconds": "inter_token_latency_seconds"},
    settings=frozenset({"max_prefill_tokens", "max_running_requests", "context_len"}),
    windows=frozenset({"gen_throughput"}),
)

# TGI's names are worn by other engines (IBM's fork of vLLM): which one served is not said.
_TGI = Names(
    "tgi",
    None,
    running="batch_current_size",
    gauges={
        "batch_current_size": Metric("requests_running"),
        "queue_size": Metric("requests_waiting"),
    },
    counters={
        "request_success": Metric("requests_completed"),
        "request_failure": Metric("requests_failed"),
    },
    histograms={
        "request_duration": _END_TO_END,
        "request_queue_duration": _QUEUE,
        "request_mean_time_per_token_duration": Metric("request_per_token_s", "request", "the prefill is in it"),
        "request_input_length": _PROMPT,
        "request_generated_tokens": _OUTPUT,
        "batch_inference_duration/prefill": Metric("prefill_time_s", "prefill", "a whole batch"),
        "batch_inference_duration/decode": Metric("decode_step_s", "decode", "a whole batch"),
        "batch_forward_duration/prefill": Metric("prefill_time_s", "prefill", "a whole batch, forward pass only"),
        "batch_forward_duration/decode": Metric("decode_step_s", "decode", "a whole batch, forward pass only"),
    },
)

_LLAMA = Names(
    "llama.cpp",
    "llama.cpp",
    running="requests_processing",
    gauges={
        "requests_processing": Metric("requests_running"),
        "requests_deferred": Metric("requests_waiting"),
        "kv_cache_usage_ratio": _USAGE,
    },
    counters={
        "prompt_tokens": Metric("prompt_tokens_computed", "prefill", "processed tokens only"),
        "tokens_predicted": _OUTPUT,
    },
    histograms={},
    ratios=(
        Ratio("prompt_tokens_per_s", "prompt_tokens", "prompt_seconds", "prefill", "while prefilling, a slot's time"),
        Ratio(
            "output_tokens_per_s_per_user", "tokens_predicted", "tokens_predicted_seconds", "decode",
            "over all tokens: first ones count, their time does not",
        ),
    ),
    windows=frozenset({"prompt_tokens_seconds", "predicted_tokens_seconds"}),
)  # fmt: skip

#: By prefix; before it a colon, which some exporters turn into an underscore.
NAMES: Mapping[str, Names] = {"vllm": _VLLM, "sglang": _SGLANG, "tgi": _TGI, "llamacpp": _LLAMA}
#: Labels whose values are metrics of their own.
PARTS = ("finished_reason", "source", "method")
#: Labels whose values name a record.
KINDS = ("finished_reason", "err")
#: Labels of ranks that each report the same.
RANKS = frozenset({"tp_rank", "pp_rank", "moe_ep_rank", "pid"})
#: What cache_config_info says of the cache; other labels (instances, pods) are left where they are.
CACHE_LABELS = frozenset({
    "block_size", "cache_dtype", "num_gpu_blocks", "num_gpu_blocks_override", "num_cpu_blocks",
    "gpu_memory_utilization", "kv_cache_size_tokens", "kv_cache_max_concurrency", "kv_cache_memory_bytes",
    "enable_prefix_caching", "sliding_window", "swap_space_bytes", "cpu_offload_gb", "calculate_kv_scales",
    "is_attention_free", "mamba_cache_dtype", "mamba_block_size", "page_size", "num_pages",
})  # fmt: skip
