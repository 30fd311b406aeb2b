"""Scheduler: which prompt chunks and which decoding sequences go into the next step, by an engine's rules."""

from collections import deque
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import accumulate
from math import ceil
from typing import NamedTuple

from rooflinekit.serving.arrivals import Request


@dataclass(slots=True, eq=False)
class Job:
    """A request inside the server. ``held`` tokens of its prompt are in the cache, ``done`` tokens came out."""

    request: Request
    arrived_s: float
    prompt: float
    held: float = 0.0
    done: float = 0.0
    start: int = 0
    first_s: float = 0.0
    last_s: float = 0.0
    preempted: bool = False

    @property
    def left(self) -> float:
        """Prompt tokens still to read."""
        return self.prompt - self.held


class Rules(NamedTuple):
    """What an engine's profile says of scheduling, with the pool in pages."""

    token_budget: float
    most_sequences: float
    prefill: str
    prefill_first: bool
    chunked: bool
    page_tokens: int
    pages: float
    batch_wait_steps: int = 0
    batch_wait_s: float = 0.0
    receive_interval_steps: int = 1
    cached_share: float = 0.0
    reserves_answers: bool = False


class Chunk(NamedTuple):
    """Tokens of one prompt in a step."""

    job: Job
    new: float
    last: bool


@dataclass(slots=True)
class Scheduler:
    """
    Requests that wait, read their prompts and decode, and the pages of the pool that they hold.

    Decoding sequences are kept as sums (how many, their contexts, their pages) and a heap of the steps at which they
    end, so that a step costs the same however many there are.
    """

    rules: Rules
    waiting: deque[Job] = field(default_factory=deque)
    reading: list[Job] = field(default_factory=list)
    ends: list[tuple[int, int, Job]] = field(default_factory=list)
    decoding: dict[int, Job] = field(default_factory=dict)
    ticks: int = 0
    steps: int = 0
    context_sum: float = 0.0
    pages_used: int = 0
    crossings: list[int] = field(default_factory=list)
    preemptions: int = 0
    held_back: int = 0
    _tickets: int = 0

    def __post_init__(self) -> None:
        """Count decoding sequences by where in a page they stand."""
        self.crossings = [0] * self.rules.page_tokens

    # ---- what goes into a step

    def plan(self, now_s: float, *, more_to_come: bool = True) -> tuple[list[Chunk], bool]:
        """Choose the prompt chunks of the next step, and whether decoding sequences run in it."""
        rules = self.rules
        self.ticks += 1
        apart = rules.prefill == "serial"
        room = rules.token_budget - (0.0 if apart else float(len(self.decoding)))
        if apart and not rules.prefill_first and self.decoding and not self.reading:
            return [], True
        chunks = self._next_chunk(room)
        if self._lets_in(now_s, more_to_come=more_to_come):
            self._pack(chunks, room - sum(chunk.new for chunk in chunks))
        return chunks, bool(self.decoding) and not (apart and chunks)

    def _lets_in(self, now_s: float, *, more_to_come: bool) -> bool:
        """Tell whether waiting requests are looked at: some engines collect them for some steps first."""
        rules = self.rules
        if not self.waiting or self.ticks % rules.receive_interval_steps:
            return False
        if not self.decoding or not (rules.batch_wait_steps or rules.batch_wait_s):
            return True
        waited = now_s - self.waiting[0].arrived_s
        self.held_back += 1
        patient = self.held_back <= rules.batch_wait_steps or waited < rules.batch_wait_s
        if patient and more_to_come and not self._fills_a_step():
            return False
        self.held_back = 0
        return True

    def _fills_a_step(self) -> bool:
        """Tell whether the requests that wait fill the token budget; the first ones say so in a long queue."""
        return any(tokens >= self.rules.token_budget for tokens in accumulate(job.prompt for job in self.waiting))

    def _next_chunk(self, room: float) -> list[Chunk]:
        """Give the next chunk of the prompt that is being read, if one is."""
        return [self._chunk(job, room) for job in self.reading[:1] if room >= 1.0]

    def _pack(self, chunks: list[Chunk], room: float) -> None:
        """Admit waiting requests, and put their tokens into what is left of the step."""
        chunked = self.rules.chunked and self.rules.prefill != "whole"
        while self.waiting and room >= 1.0 and self._sequences < self.rules.most_sequences:
            job = self.waiting[0]
            if not chunked and chunks and job.prompt - self._cached(job) > room:
                break
            if not self._admit(job):
                break
            self.waiting.popleft()
            self.reading.append(job)
            chunk = self._chunk(job, room if chunked else max(room, job.left))
            chunks.append(chunk)
            room -= chunk.new

    @property
    def busy(self) -> bool:
        """Whether anything is left to do."""
        return bool(self.waiting or self.reading or self.decoding)

    @property
    def _sequences(self) -> int:
        return len(self.decoding) + len(self.reading)

    @staticmethod
    def _chunk(job: Job, room: float) -> Chunk:
        new = min(job.left, room)
        return Chunk(job, new, last=new == job.left)

    def _admit(self, job: Job) -> bool:
        """Give a request the pages of its prompt, or none where the pool has too few."""
        needed = self._pages_of(job, 0)
        if self.pages_used + needed > self.rules.pages and self._sequences:
            return False
        self.pages_used += needed
        job.held = self._cached(job)
        return True

    def _cached(self, job: Job) -> float:
        """Tokens of a prompt that the prefix cache holds: never all, and none of what is computed anew."""
        return 0.0 if job.preempted else float(int(self.rules.cached_share * (job.prompt - 1.0)))

    # ---- what a step leaves

    def decoded(self) -> list[Job]:
        """Give every decoding sequence its token, and return those that end with it."""
        self.steps += 1
        self.context_sum += len(self.decoding)
        self.pages_used += self.crossings[self.steps % self.rules.page_tokens]
        ended = []
        while self.ends and self.ends[0][0] <= self.steps:
            _, ticket, job = heappop(self.ends)
            if self.decoding.get(ticket) is job:
                ended.append(self._leave(self.decoding.pop(ticket)))
        return ended

    def read(self, chunk: Chunk) -> None:
        """Count a chunk as read."""
        chunk.job.held += chunk.new
        if chunk.last:
            self.reading.remove(chunk.job)

    def start(self, job: Job) -> None:
        """Let a request whose prompt is read decode what is left of its answer."""
        self._tickets += 1
        job.start = self.steps
        left = int(job.request.output_tokens - job.done)
        self.decoding[self._tickets] = job
        heappush(self.ends, (self.steps + left, self._tickets, job))
        self.context_sum += job.prompt
        self.crossings[self._residue(job)] += not self.rules.reserves_answers

    def _residue(self, job: Job) -> int:
        """Tell at which steps a sequence needs another page: when all that it wrote so far fills whole ones."""
        return int(job.start + 1.0 - job.prompt) % self.rules.page_tokens

    def _leave(self, job: Job) -> Job:
        grown = self.steps - job.start
        self.context_sum -= job.prompt + grown
        self.crossings[self._residue(job)] -= not self.rules.reserves_answers
        self.release(job, grown)
        return job

    def release(self, job: Job, grown: int = 0) -> None:
        """Give the pages of a request back: those of its prompt, and of what it wrote since."""
        self.pages_used -= self._pages_of(job, grown)

    def _pages_of(self, job: Job, grown: int) -> int:
        """Count the pages of a request: of its prompt and what it wrote since, or of all that it may come to."""
        whole = job.request.prompt_tokens + job.request.output_tokens
        tokens = whole if self.rules.reserves_answers else job.prompt + grown
        return ceil(tokens / self.rules.page_tokens)

    def preempt(self, now_s: float) -> None:
        """Put the newest decoding sequences back to the head of the queue until the rest fits.

        They start anew: prompt and answer so far are computed again, and give the next token.
        """
        while self.pages_used > self.rules.pages and len(self.decoding) > 1:
            job = self._leave(self.decoding.popitem()[1])
            job.done += float(self.steps - job.start)
            job.prompt = job.request.prompt_tokens + job.done
            job.held, job.last_s, job.preempted = 0.0, now_s, True
            self.waiting.appendleft(job)
            self.preemptions += 1
