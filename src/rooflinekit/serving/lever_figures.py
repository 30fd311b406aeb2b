"""What levers are compared by: service times of both phases, what clients see, what the server gives."""

from dataclasses import dataclass

from rooflinekit.serving.changes import State
from rooflinekit.serving.host import LOADED_BUSY_S
from rooflinekit.serving.loaded_steps import mean_context_tokens
from rooflinekit.serving.serve import Serving, serve

#: What is compared: name in tables, field of :class:`Figures`.
METRICS = {
    "prefill": "prefill_s",
    "decode": "decode_step_s",
    "TTFT": "time_to_first_token_s",
    "TPOT": "time_per_output_token_s",
    "ITL p99": "inter_token_latency_p99_s",
    "throughput": "output_tokens_per_s",
    "KV capacity": "pool_requests",
    "cost": "cost_per_token",
}


@dataclass(frozen=True)
class Figures:
    """What a state delivers; ``cost_per_token`` is in GPU-seconds, or in dollars where prices were given."""

    prefill_s: float
    decode_step_s: float
    time_to_first_token_s: float
    time_per_output_token_s: float
    inter_token_latency_p99_s: float
    output_tokens_per_s: float
    pool_requests: float
    cost_per_token: float
    method: str


def served(state: State, method: str) -> Serving:
    """Serve a state by one of the two methods, or by the one that holds."""
    return serve(
        state.deployment, prompt_tokens=state.prompt_tokens, output_tokens=state.output_tokens,
        rate_per_s=state.rate_per_s, concurrency=state.concurrency, engine=state.engine,
        cached_tokens=state.cached_tokens, method=method,
    )  # fmt: skip


def how(serving: Serving) -> str:
    """Name the method without its reason."""
    return serving.method.partition(":")[0]


def alone_s(state: State) -> float:
    """Time one prompt alone in a loaded server, in the engine's chunks."""
    prompt, held = max(int(state.prompt_tokens), 1), int(state.cached_tokens)
    budget = state.budget if state.engine.enable_chunked_prefill or state.engine.micro_batch_tokens else prompt
    whole = state.deployment.chunked_prefill(prompt, token_budget=budget, cached_tokens=held, busy_s=LOADED_BUSY_S)
    return float(whole.time_s)


def step_s(state: State, batch: float) -> float:
    """Time a decode step at the mean context of an answer in a loaded server."""
    context = mean_context_tokens(state.prompt_tokens, state.output_tokens)
    return float(state.deployment.decode(context, batch=batch, busy_s=LOADED_BUSY_S).time_s)
