"""Simulate: scheduler, pool and client, step by step, each step timed by the deployment's own laws. The judge."""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import ceil
from typing import TYPE_CHECKING

from rooflinekit import units
from rooflinekit.errors import InvalidInputError
from rooflinekit.phases.deployment import Deployment
from rooflinekit.serving.arrivals import Request, Trace, Traffic
from rooflinekit.serving.capacity import capacity, refuse_longer
from rooflinekit.serving.engine import EngineProfile
from rooflinekit.serving.host import Layers, basis_of, profile_for, served_by, with_host_s
from rooflinekit.serving.latency import METRICS
from rooflinekit.serving.scheduler import Chunk, Job, Rules, Scheduler
from rooflinekit.serving.step_timer import StepTimer
from rooflinekit.serving.tally import Tally

if TYPE_CHECKING:
    import pandas as pd

#: Sequences of a step where an engine has no limit of its own.
_MANY = 4096
#: Steps between two reports of progress.
_REPORT = 2000


@dataclass
class Served:
    """
    What the clients of a run saw.

    ``time_to_first_token_s``, ``time_per_output_token_s`` and ``end_to_end_s`` weigh requests alike,
    ``inter_token_latency_s`` gaps alike, as vLLM's client does. ``worst_gap_s`` is the longest gap of all.
    """

    basis: str
    time_to_first_token_s: Tally = field(default_factory=Tally)
    time_per_output_token_s: Tally = field(default_factory=Tally)
    inter_token_latency_s: Tally = field(default_factory=Tally)
    end_to_end_s: Tally = field(default_factory=Tally)
    duration_s: float = 0.0
    busy_s: float = 0.0
    steps: int = 0
    steps_with_prompts: int = 0
    prompt_tokens: float = 0.0
    output_tokens: float = 0.0
    running_s: float = 0.0
    preemptions: int = 0

    @property
    def requests(self) -> int:
        """Requests that ended."""
        return int(self.end_to_end_s.count)

    @property
    def requests_per_s(self) -> float:
        """Requests over the whole run."""
        return self.requests / self.duration_s

    @property
    def output_tokens_per_s(self) -> float:
        """Output tokens over the whole run."""
        return self.output_tokens / self.duration_s

    @property
    def utilisation(self) -> float:
        """Part of the run in which a step was at work."""
        return self.busy_s / self.duration_s

    @property
    def mean_running(self) -> float:
        """Mean number of decoding sequences of a step, over time."""
        return self.running_s / self.busy_s

    @property
    def mixed_share(self) -> float:
        """Share of the steps that carry tokens of a prompt."""
        return self.steps_with_prompts / self.steps

    @property
    def worst_gap_s(self) -> float:
        """Longest gap between two tokens of one answer."""
        return self.inter_token_latency_s.largest

    def table(self) -> "pd.DataFrame":
        """Give the latencies as a tidy DataFrame: one row a metric."""
        import pandas as pd  # noqa: PLC0415 - loads on first use

        rows = [(name, *_statistics(getattr(self, name))) for name in METRICS]
        return pd.DataFrame(rows, columns=["metric", "mean", "p50", "p90", "p99", "largest"])

    def __repr__(self) -> str:
        """Give one line."""
        first, each = self.time_to_first_token_s.mean, self.time_per_output_token_s.mean
        times = f"TTFT {units.duration(first)}, TPOT {units.duration(each)}"
        return f"{self.requests:,} requests: {times}, {self.requests_per_s:.3g} requests/s ({self.basis})"


def _statistics(tally: Tally) -> tuple[float, ...]:
    return (tally.mean, *(tally.percentile(percent) for percent in (50, 90, 99)), tally.largest)


def simulate(
    deployment: Deployment,
    traffic: Traffic | Trace,
    *,
    engine: str | EngineProfile | None = None,
    seed: int = 0,
    cached_share: float = 0.0,
    progress: Callable[[int], None] | None = None,
    on_request: Callable[[float, float, float], None] | None = None,
) -> Served:
    """
    Simulate a server under requests.

    Parameters
    ----------
    deployment : Deployment
        What serves.
    traffic : Traffic or Trace
        Requests: open or closed arrivals with distributions of lengths, or a trace.
    engine : str or EngineProfile
        Whose scheduler, pool and host times.
    seed : int
        Of the draws: the same seed gives the same run.
    cached_share : float
        Part of each prompt that the prefix cache holds.
    progress : callable, optional
        Called now and then, and at the end, with the number of requests that ended.
    on_request : callable, optional
        Called for each request that ends with its time to first token, time per output token (not-a-number where it
        has one token) and end to end. [s]

    Returns
    -------
    served : Served

    Raises
    ------
    InvalidInputError
        The longest request is longer than the engine takes (``max_model_len``), or the pool does not hold it.
    DoesNotFitError
        The weights leave no pool.

    Notes
    -----
    Every step is timed by the deployment's plan and laws with an exhausted burst budget; the engine's host times are
    added. Admission needs the pages of the prompt; where decoding needs more than the pool has, the newest sequence is
    put back and computed anew, and counted. Memory is constant however many requests there are.

    Examples
    --------
    >>> import rooflinekit as rk
    >>> from rooflinekit.serving.arrivals import Closed, Lengths, Traffic
    >>> traffic = Traffic(Closed(8), Lengths(1000), Lengths(100), requests=80)
    >>> served = simulate(rk.Deployment("llama-3.1-8b", "h100-sxm"), traffic)
    >>> served.requests, served.preemptions, 4 < served.mean_running < 8
    (80, 0, True)
    """
    profile = profile_for(deployment, engine)
    run = _Run(served_by(deployment, profile), traffic, profile, cached_share, on_request)
    return run.play(traffic.draw(seed), progress)


class _Run:
    """One simulation: its clock, its scheduler and what has been seen so far."""

    def __init__(
        self,
        deployment: Deployment,
        traffic: Traffic | Trace,
        profile: EngineProfile,
        cached_share: float,
        on_request: Callable[[float, float, float], None] | None = None,
    ) -> None:
        self.profile, self.in_flight, self.on_request = profile, traffic.in_flight, on_request
        self.recorded = isinstance(traffic, Trace)
        self.rules = rules_of(deployment, profile, traffic.longest_tokens, cached_share)
        self.scheduler = Scheduler(self.rules)
        self.layers = Layers.of(deployment)
        self.timer = StepTimer(
            deployment,
            most_tokens=max(int(self.rules.token_budget), ceil(traffic.longest_tokens)) + 1,
            most_sequences=min(int(self.rules.most_sequences), traffic.requests),
            longest_tokens=ceil(traffic.longest_tokens) + 1,
        )
        self.served = Served(basis_of(deployment, profile))
        self.clock_s = self.last_token_s = 0.0
        self.on_the_way: deque[Job] = deque()
        self.started_s: list[float] = []
        self.told_steps = 0

    def play(self, requests: Iterator[Request], progress: Callable[[int], None] | None) -> Served:
        """Run until every request has its answer."""
        coming = self._send(next(requests, None), requests, self.in_flight or 0)
        began_s = self.clock_s = self._beginning(coming)
        while coming or self.on_the_way or self.scheduler.busy:
            if self.in_flight is None:
                while coming and coming.arrival_s <= self.clock_s:
                    coming = self._send(coming, requests, 1)
            self._take_in()
            ended = self._step(coming)
            if self.in_flight:
                coming = self._send(coming, requests, ended)
            if progress and self.served.steps >= self.told_steps + _REPORT:
                self.told_steps = self.served.steps
                progress(self.served.requests)
        if progress:
            progress(self.served.requests)
        self.served.duration_s = self.clock_s - began_s
        self.served.preemptions = self.scheduler.preemptions
        return self.served

    def _beginning(self, coming: Request | None) -> float:
        """Tell when a run begins: a trace's clock may be that of a calendar."""
        return coming.arrival_s if self.recorded and coming else 0.0

    def _send(self, request: Request | None, requests: Iterator[Request], count: int) -> Request | None:
        """Let the client send so many requests, and give the next one."""
        for _ in range(count):
            if request is None:
                break
            sent = self.clock_s if self.in_flight else request.arrival_s
            self.on_the_way.append(Job(request, sent, request.prompt_tokens))
            self.served.prompt_tokens += request.prompt_tokens
            request = next(requests, None)
        return request

    def _take_in(self) -> None:
        """Put requests into the queue that have come through the host: parsing, tokens, processes."""
        late = self.profile.request_host_s
        while self.on_the_way and self.on_the_way[0].arrived_s + late <= self.clock_s:
            self.scheduler.waiting.append(self.on_the_way.popleft())

    def _step(self, coming: Request | None) -> int:
        """Run one step, and return how many requests ended with it."""
        scheduler = self.scheduler
        more = coming is not None or bool(self.on_the_way) or bool(scheduler.decoding)
        chunks, decodes = scheduler.plan(self.clock_s, more_to_come=more)
        if not chunks and not decodes:
            self._rest(coming)
            return 0
        running = len(scheduler.decoding) if decodes else 0
        mean = scheduler.context_sum / running if running else 0.0
        prompts = [(chunk.new, chunk.job.held, float(chunk.last)) for chunk in chunks]
        device_s = self.timer.seconds(prompts, decoding=running, context_tokens=mean)
        seconds = self._with_host_s(device_s, running, chunks)
        self.clock_s += seconds
        self._count(seconds, running, len(chunks))
        ended = scheduler.decoded() if decodes else []
        for chunk in chunks:
            scheduler.read(chunk)
            if chunk.last and self._first_token(chunk.job):
                scheduler.release(chunk.job)
                ended.append(chunk.job)
        for job in ended:
            self._ended(job)
        scheduler.preempt(self.clock_s)
        return len(ended)

    def _with_host_s(self, device_s: float, running: int, chunks: list[Chunk]) -> float:
        tokens, prompts = running + sum(chunk.new for chunk in chunks), len(chunks)
        return float(
            with_host_s(
                self.profile, device_s, self.layers, sequences=running + prompts, prompts=prompts, tokens=tokens
            )
        )

    def _rest(self, coming: Request | None) -> None:
        """Wait for what comes next: a request through the host, or one from a client."""
        if self.scheduler.waiting:  # an idle scheduler looks again at once, however seldom a busy one looks
            return
        late, next_s = self.profile.request_host_s, self.clock_s
        if self.on_the_way:
            next_s = self.on_the_way[0].arrived_s + late
        elif coming is not None and self.in_flight is None:
            next_s = coming.arrival_s + late
        self.clock_s = max(self.clock_s, next_s)

    def _count(self, seconds: float, running: int, prompts: int) -> None:
        served = self.served
        served.steps += 1
        served.busy_s += seconds
        served.running_s += seconds * running
        served.steps_with_prompts += bool(prompts)
        if running:
            served.inter_token_latency_s.add(self.clock_s - self.last_token_s, running - len(self.started_s))
            for started_s in self.started_s:
                served.inter_token_latency_s.add(self.clock_s - started_s)
            self.started_s.clear()
            served.output_tokens += running
            self.last_token_s = self.clock_s
        elif not self.scheduler.decoding:
            self.last_token_s = self.clock_s

    def _first_token(self, job: Job) -> bool:
        """Note a token that a prefill gave; return whether it was the last of the answer."""
        job.done += 1.0
        self.served.output_tokens += 1.0
        if job.preempted:
            self.served.inter_token_latency_s.add(self.clock_s - job.last_s)
        else:
            job.first_s = self.clock_s
            self.served.time_to_first_token_s.add(self.clock_s - job.arrived_s)
        if job.done >= job.request.output_tokens:
            return True
        self.scheduler.start(job)
        if self.clock_s > self.last_token_s:  # others stood still meanwhile: its first gap is shorter than theirs
            self.started_s.append(self.clock_s)
        return False

    def _ended(self, job: Job) -> None:
        served, outputs = self.served, job.request.output_tokens
        whole, each = self.clock_s - job.arrived_s, float("nan")
        served.end_to_end_s.add(whole)
        if outputs > 1:
            each = (self.clock_s - job.first_s) / (outputs - 1.0)
            served.time_per_output_token_s.add(each)
        if self.on_request:
            self.on_request(job.first_s - job.arrived_s, each, whole)


def rules_of(deployment: Deployment, profile: EngineProfile, longest_tokens: float, cached_share: float = 0.0) -> Rules:
    """Read an engine's rules for a deployment: its profile's, and the pages that its pool holds."""
    refuse_longer(deployment, profile, longest_tokens)
    held = capacity(deployment, engine=profile)
    most = held.limits.max_num_seqs or _MANY
    page = held.pages.block_tokens
    fits = float(held.requests(longest_tokens))
    if fits < 1.0:
        message = (
            f"a request of {longest_tokens:,.0f} tokens does not fit in the pool of {held.kv_tokens:,}: "
            "shorter requests, a smaller kv_cache=, or more GPUs"
        )
        raise InvalidInputError(message)
    return Rules(
        token_budget=float(held.limits.max_num_batched_tokens),
        most_sequences=float(most),
        prefill=profile.prefill,
        prefill_first=profile.prefill_first,
        chunked=profile.enable_chunked_prefill,
        page_tokens=page,
        pages=fits * ceil(longest_tokens / page),
        batch_wait_steps=profile.batch_wait_steps,
        batch_wait_s=profile.batch_wait_s,
        receive_interval_steps=profile.receive_interval_steps,
        cached_share=cached_share,
        reserves_answers=profile.reserves_answers,
    )
