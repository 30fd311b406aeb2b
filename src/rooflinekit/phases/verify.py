"""Commands that measure on the machine itself what a deployment estimates, each with what it should print.

Flags are those of vLLM 0.32 and of llama.cpp's tools of 2026. Each command isolates one quantity: prompts of exact
length, no cached prefix, a whole prompt in one pass where the budget allows it, answers that do not end early.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, NamedTuple

from rooflinekit import units
from rooflinekit.errors import InvalidInputError, NotCalibratedError
from rooflinekit.phases.estimate import Estimate
from rooflinekit.roofline.laws import same_engine
from rooflinekit.specs.precision import PLAIN
from rooflinekit.specs.step import checked

if TYPE_CHECKING:
    from rooflinekit.phases.deployment import Deployment

_LEVEL = 0.8
#: Tokens of a pass: what vLLM takes at least for its default of sequences, and what it takes at most by default.
_LEAST_BUDGET, _MOST_BUDGET = 2048, 16384
#: Micro-batch given to llama.cpp: one pass for a prompt up to it.
_MICRO_BATCH = 2048
#: Repetitions, and waves of requests: the first of each warms up.
_REPEATS, _WAVES, _LEAST_REQUESTS = 10, 4, 8
#: What a server adds to a first token: it depends on the machine, and serving has figures of engines.
_HOST = "HTTP and the host's time (`rooflinekit serve` has it)"
_DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
#: Formats that vLLM makes of a checkpoint in 16 bits while it loads.
_MADE_AT_LOADING = {"fp8": "fp8"}


@dataclass(frozen=True)
class Command:
    """One command line, and what it should print."""

    command: str
    expects: str

    def __str__(self) -> str:
        """Give the command, and below it what to expect, part by part."""
        return "\n".join((f"$ {self.command}", *(f"    {part}" for part in self.expects.split("; "))))


class Commands(tuple[Command, ...]):
    """Commands in the order in which they are run; printed as lines for a shell."""

    __slots__ = ()

    def __str__(self) -> str:
        """Give all of them, an empty line between two."""
        return "\n\n".join(map(str, self))

    __repr__ = __str__


class _Work(NamedTuple):
    """What is measured: a deployment, sizes, and the name of the checkpoint."""

    deployment: "Deployment"
    prompt: int
    output: int
    batch: int
    model: str

    @property
    def budget(self) -> int:
        """Tokens of a pass that hold all prompts, as far as an engine takes so many."""
        return min(max(self.prompt * self.batch, _LEAST_BUDGET), _MOST_BUDGET)


def verify_commands(deployment: "Deployment", prompt_tokens: int, output_tokens: int, batch: int = 1) -> Commands:
    """
    List the commands of the deployment's engine that measure its prefill, decode step and request.

    Parameters
    ----------
    deployment : Deployment
        GGUF formats and ``engine="llama.cpp"`` give llama.cpp's tools, everything else vLLM's; other engines are asked
        over HTTP, by a server that is started as they say.
    prompt_tokens, output_tokens, batch : int
        Of each request, and how many run together.

    Returns
    -------
    commands : tuple of Command
        ``.command`` is a line for a shell, ``.expects`` what it should print: the range that holds it with a
        probability of 80%, or the value and "no interval" where no spread was measured.

    Examples
    --------
    >>> import rooflinekit as rk
    >>> for one in rk.Deployment("qwen3-8b", "gb10", weights="q4_k_m").verify_commands(512, 64)[:2]:
    ...     print(one.command)
    llama-bench -m MODEL.gguf -p 512 -n 0 -b 2048 -ub 2048 -r 10 -o md
    llama-bench -m MODEL.gguf -p 0 -n 64 -d 512 -b 2048 -ub 2048 -r 10 -o md
    """
    sizes = {"prompt_tokens": prompt_tokens, "output_tokens": output_tokens, "batch": batch}
    prompt, output, together = (int(checked(name, size, minimum=1, whole=True)) for name, size in sizes.items())  # type: ignore[arg-type]
    llama = _is_llama(deployment)
    work = _Work(deployment, prompt, output, together, "MODEL.gguf" if llama else _checkpoint(deployment))
    return Commands(_llama(work) if llama else _vllm(work) if _is_vllm(deployment) else _other(work))


# ---- which tools, which checkpoint


def _is_llama(deployment: "Deployment") -> bool:
    gguf = "(GGUF)" in deployment.precision.weights.scales
    return gguf if deployment.engine is None else same_engine(deployment.engine, "llama.cpp")


def _is_vllm(deployment: "Deployment") -> bool:
    mlx = "(MLX)" in deployment.precision.weights.scales
    return not mlx if deployment.engine is None else same_engine(deployment.engine, "vllm")


def _checkpoint(deployment: "Deployment") -> str:
    """Name the repository whose weights are as the deployment holds them, or a place to fill in."""
    ready = deployment.weights is None or deployment.weights in (*PLAIN, *_MADE_AT_LOADING)
    hub_ids = deployment.model.hub_ids
    return hub_ids[0] if ready and hub_ids else "MODEL"


# ---- vLLM


def _vllm(work: _Work) -> Iterator[Command]:
    """Yield two latencies whose difference is the decode steps, then a server and its clients."""
    engine = _engine_flags(work)
    held = f"{_told_checkpoint(work)}{_told_experts(work)}"
    first = f"vllm bench latency --model {work.model} --input-len {work.prompt}"
    rest = f"--batch-size {work.batch} --num-iters-warmup 3 --num-iters {_REPEATS}{engine}"
    request = work.deployment.request(work.prompt, output_tokens=work.output, batch=work.batch)
    prefill = f"avg_latency (the prefill): {_time(_prefill(work, work.budget))}{_passes(work)}{held}"
    yield Command(f"{first} --output-len 1 {rest} --output-json latency-1.json", prefill)
    steps = work.output - 1
    if steps:
        each = _time(request.decode, steps)
        whole = f"avg_latency less that of the run before, over {steps:,} (a decode step): {each}"
        yield Command(f"{first} --output-len {work.output} {rest} --output-json latency-{work.output}.json", whole)
    serve = f"vllm serve {work.model} --no-enable-prefix-caching{engine}"
    yield Command(serve, "a server on port 8000 for the commands below; leave it running")
    yield from _clients(work, 8000)


def _engine_flags(work: _Work) -> str:
    deployment = work.deployment
    weights, kv_cache = deployment.weights, deployment.kv_cache
    flags = {
        "--dtype": _DTYPES.get(weights or ""),
        "--quantization": _MADE_AT_LOADING.get(weights or ""),
        "--kv-cache-dtype": kv_cache if kv_cache == "fp8" else None,
        "--max-model-len": work.prompt + work.output,
        "--max-num-batched-tokens": work.budget,
        "--tensor-parallel-size": _several(deployment.tensor_parallel),
        "--pipeline-parallel-size": _several(deployment.pipeline_parallel),
        "--data-parallel-size": _several(deployment.data_parallel_attention),
        "--enable-expert-parallel": "" if deployment.expert_parallel > 1 else None,
    }
    return "".join(f" {flag} {value}".rstrip() for flag, value in flags.items() if value is not None)


def _several(degree: int) -> int | None:
    return degree if degree > 1 else None


def _told_checkpoint(work: _Work) -> str:
    if work.model != "MODEL":
        return ""
    deployment = work.deployment
    return f"; MODEL: your checkpoint of {deployment.model.name} with {deployment.precision.described}"


def _told_experts(work: _Work) -> str:
    """Say where the engine has no flag for the layout: it divides experts among all ranks of a stage or none."""
    layout = work.deployment.layout
    if layout.expert_parallel in (1, layout.stage_ranks):
        return ""
    return f"; vLLM divides whole experts among all {layout.stage_ranks} ranks, estimated is {layout.layout}"


def _prefill(work: _Work, budget: int) -> Estimate:
    """Estimate one prompt in passes of at most so many tokens; several prompts as one pass."""
    if work.batch > 1 or work.prompt <= budget:
        return work.deployment.prefill(work.prompt, batch=work.batch)
    return work.deployment.chunked_prefill(work.prompt, token_budget=budget)


def _passes(work: _Work) -> str:
    passes = ceil(work.prompt * work.batch / work.budget) if work.batch > 1 else 1
    return f"; estimated as one pass, the engine takes {passes}" if passes > 1 else ""


# ---- any server that speaks the OpenAI protocol


def _other(work: _Work) -> Iterator[Command]:
    """Yield the clients: how the server is started is the engine's own business."""
    layout = work.deployment.layout
    over = f" on {layout.devices} devices ({layout.layout})" if layout.devices > 1 else ""
    server = f"a server of {work.deployment.engine or 'the engine'}{over}"
    yield from _clients(work, 8000, f"; {server} listens on port 8000")


def _clients(work: _Work, port: int, held: str = "") -> Iterator[Command]:
    request = work.deployment.request(work.prompt, output_tokens=work.output, batch=work.batch)
    steps = work.output - 1
    each = _time(request.decode, steps) if steps else ""
    step = f"median_tpot_ms (a decode step): {each}{_hidden(request.decode, steps)}; " if steps else ""
    prefill = _prefill(work, work.budget)
    whole = f"{step}median_ttft_ms (the prefill): {_time(prefill)}, plus {_HOST}{_waves(work)}{held}"
    yield Command(_bench_serve(work, port), whole)
    if work.batch == 1:
        yield _curl(work, port, prefill, request.decode)


def _hidden(decode: Estimate, steps: int) -> str:
    """Say what a step takes where the server hides the host's time of a pass, which single streams show."""
    pause_s = decode.deployment.timing.laws.step_us * units.MICRO
    if not pause_s:
        return ""
    hidden = units.duration(decode.time_s / steps - pause_s)
    pause = units.duration(pause_s)
    return f", or {hidden} where the server hides the host's {pause} a step, as `rooflinekit serve` has it"


def _bench_serve(work: _Work, port: int) -> str:
    flags = {
        "--model": work.model,
        "--port": port,
        "--dataset-name": "random",
        "--random-input-len": work.prompt,
        "--random-output-len": work.output,
        "--random-range-ratio": 0,
        "--num-prompts": max(_WAVES * work.batch, _LEAST_REQUESTS),
        "--max-concurrency": work.batch,
        "--request-rate": "inf",
        "--ignore-eos": "",
        "--seed": 0,
        "--percentile-metrics": "ttft,tpot,itl,e2el",
    }
    return " ".join(("vllm bench serve", *(f"{flag} {value}".rstrip() for flag, value in flags.items())))


def _waves(work: _Work) -> str:
    return f", where the {work.batch:,} prompts of a wave start together" if work.batch > 1 else ""


def _curl(work: _Work, port: int, prefill: Estimate, decode: Estimate) -> Command:
    """Time a streamed completion; its prompt is a list of token numbers, which has an exact length."""
    tokens = f'$(awk \'BEGIN{{for(i=0;i<{work.prompt};i++)printf "%s%d",(i?",":""),1000+i%20000}}\')'
    body = (
        f'{{\\"model\\": \\"{work.model}\\", \\"prompt\\": [{tokens}], \\"max_tokens\\": {work.output}, '
        f'\\"ignore_eos\\": true, \\"temperature\\": 0, \\"stream\\": true}}'
    )
    timings = "pretransfer %{time_pretransfer}s  first_byte %{time_starttransfer}s  time_total %{time_total}s\\n"
    line = f"curl -N -s -o /dev/null -w '{timings}' http://localhost:{port}/v1/completions"
    whole = prefill.time_s + decode.time_s
    expects = (
        f"first_byte less pretransfer (the prefill): {_time(prefill)}, plus HTTP",
        "far less where a server answers with headers first: then the commands above tell",
        f"time_total less pretransfer: {units.duration(whole)}, plus HTTP",
        "keep the second run, the first warms up",
    )
    return Command(f"{line} -H 'Content-Type: application/json' -d \"{body}\"", "; ".join(expects))


# ---- llama.cpp


def _llama(work: _Work) -> Iterator[Command]:
    """Yield llama-bench and a server for one stream, llama-batched-bench for several: llama-bench has no batch."""
    passes = f"-b {_MICRO_BATCH} -ub {_MICRO_BATCH}{_split(work, ',')}"
    after = work.deployment.request(work.prompt, output_tokens=work.output + 1, batch=work.batch)
    held = f"{work.model}: your GGUF file of {work.deployment.model.name}, {work.deployment.precision.described}"
    room = work.batch * (work.prompt + work.output)
    if work.batch > 1:
        sizes = f"-c {room} {passes} -npp {work.prompt} -ntg {work.output} -npl {work.batch}"
        steps = f"T_TG s ({work.output:,} steps of {work.batch} sequences): {_time(after.decode)}; {held}"
        yield Command(f"llama-batched-bench -m {work.model} {sizes}", steps)
        return
    bench, prefill = f"llama-bench -m {work.model}", _prefill(work, _MICRO_BATCH)
    more = f"-b {_MICRO_BATCH} -ub {_MICRO_BATCH}{_split(work, '/')} -r {_REPEATS} -o md"
    yield Command(f"{bench} -p {work.prompt} -n 0 {more}", f"pp{work.prompt}: {_rate(prefill, work.prompt)}; {held}")
    rate = _rate(after.decode, work.output)
    yield Command(f"{bench} -p 0 -n {work.output} -d {work.prompt} {more}", f"tg{work.output} @ d{work.prompt}: {rate}")
    serve = f"llama-server -m {work.model} -c {room} -np 1 {passes} --port 8080"
    yield Command(serve, "a server on port 8080 for the command below; leave it running")
    request = work.deployment.request(work.prompt, output_tokens=work.output)
    yield _curl(work, 8080, prefill, request.decode)


def _split(work: _Work, between: str) -> str:
    """Give the flags that divide a model among devices: its layers, or the rows of its products."""
    layout = work.deployment.layout
    if layout.devices == 1:
        return ""
    if layout.devices not in (layout.tensor_parallel, layout.pipeline_parallel):
        message = (
            f"{layout.layout}: llama.cpp divides layers (pipeline_parallel) or products (tensor_parallel), "
            "and nothing else: estimate one of the two"
        )
        raise InvalidInputError(message)
    mode = "row" if layout.tensor_parallel > 1 else "layer"
    return f" -sm {mode} -ts {between.join('1' * layout.devices)}"


# ---- what to expect


def _time(estimate: Estimate, passes: int = 1) -> str:
    """Say how long it takes, or one of its passes on average."""
    return _range(estimate, lambda seconds: units.duration(seconds / passes))


def _rate(estimate: Estimate, tokens: int) -> str:
    """Say how many tokens a second that is."""
    return _range(estimate, lambda seconds: f"{units.significant(tokens / seconds)} t/s", falling=True)


def _range(estimate: Estimate, shown: Callable[[float], str], *, falling: bool = False) -> str:
    """Give value and 80% interval, the lower end first; the value alone where no spread was measured."""
    try:
        ends = estimate.interval(_LEVEL)
    except NotCalibratedError:
        return f"{shown(estimate.time_s)}, no interval ({estimate.basis})"
    low, high = reversed(ends) if falling else ends
    return f"{shown(estimate.time_s)}, with 80% {shown(low)} to {shown(high)} ({estimate.basis})"
