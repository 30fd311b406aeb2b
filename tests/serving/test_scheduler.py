"""Scheduler: tiny cases worked out by hand for every kind of engine, and what must hold whatever comes."""

from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rooflinekit.serving.arrivals import Request
from rooflinekit.serving.scheduler import Job, Rules, Scheduler

PLENTY = 1e9
MIXED = Rules(2048.0, 256.0, "mixed", prefill_first=False, chunked=True, page_tokens=16, pages=PLENTY)
SERIAL = MIXED._replace(token_budget=4096.0, prefill="serial", prefill_first=True)
WHOLE = MIXED._replace(token_budget=8192.0, prefill="whole", chunked=False)
SLOTS = MIXED._replace(token_budget=512.0, most_sequences=4.0, page_tokens=1)


def drive(rules, requests, check=lambda _: None):
    """Run requests (step at which they come, prompt, output); return the scheduler, its steps and each one's tokens.

    A step is the chunks' tokens and the number of decoding sequences.
    """
    scheduler, steps, ended = Scheduler(rules), [], []
    coming = sorted((at, index, Request(0.0, prompt, output)) for index, (at, prompt, output) in enumerate(requests))
    for _ in range(10_000):
        while coming and (coming[0][0] <= len(steps) or not scheduler.busy):
            request = coming.pop(0)[2]
            scheduler.waiting.append(Job(request, 0.0, request.prompt_tokens))
        if not scheduler.busy:
            return scheduler, steps, ended
        chunks, decodes = scheduler.plan(float(len(steps)))
        if not chunks and not decodes:
            continue
        steps.append(([chunk.new for chunk in chunks], len(scheduler.decoding) if decodes else 0))
        ended += scheduler.decoded() if decodes else []
        for chunk in chunks:
            scheduler.read(chunk)
            if chunk.last:
                chunk.job.done += 1
                finished = chunk.job.done >= chunk.job.request.output_tokens
                if finished:
                    scheduler.release(chunk.job)
                    ended.append(chunk.job)
                else:
                    scheduler.start(chunk.job)
        scheduler.preempt(float(len(steps)))
        check(scheduler)
    pytest.fail("the scheduler never ends")
    return None


# fmt: off
CASES = {
    # name: (rules, requests: (step, prompt, output), steps: (chunks, decoding))
    "10,000 tokens under 2,048 are five passes": (
        MIXED, [(0, 10_000, 2)], [([2048], 0)] * 4 + [([1808], 0), ([], 1)]),
    "decode rides along and takes its token of the budget": (
        MIXED, [(0, 100, 5), (0, 3000, 2)], [([100, 1948], 0), ([1052], 1), ([], 2), ([], 1), ([], 1)]),
    "prompts that fit share a step": (
        MIXED, [(0, 1000, 1), (0, 1000, 1), (0, 100, 1)], [([1000, 1000, 48], 0), ([52], 0)]),
    "one token of output never decodes": (MIXED, [(0, 100, 1)], [([100], 0)]),
    "prefill first: decode stands still": (
        SERIAL, [(0, 1000, 3), (1, 5000, 2)], [([1000], 0), ([4096], 0), ([904], 0), ([], 2), ([], 1)]),
    "prefill first: packed": (SERIAL, [(0, 1000, 3), (0, 1000, 3)], [([1000, 1000], 0), ([], 2), ([], 2)]),
    "decode first: prompts wait for the batch": (
        SERIAL._replace(prefill_first=False), [(0, 1000, 3), (1, 500, 2)],
        [([1000], 0), ([], 1), ([], 1), ([500], 0), ([], 1)]),
    "packed whole: no prompt is cut": (WHOLE, [(0, 5000, 2), (0, 5000, 2)], [([5000], 0), ([5000], 1), ([], 1)]),
    "packed whole: as many as fit": (WHOLE, [(0, 2000, 2)] * 5, [([2000] * 4, 0), ([2000], 4), ([], 1)]),
    "packed whole: a long prompt goes alone": (WHOLE, [(0, 10_000, 1), (0, 10, 1)], [([10_000], 0), ([10], 0)]),
    "chunking off cuts no prompt": (
        MIXED._replace(chunked=False), [(0, 1500, 1), (0, 1500, 1)], [([1500], 0), ([1500], 0)]),
    "four slots": (SLOTS, [(0, 100, 2)] * 5, [([100] * 4, 0), ([], 4), ([100], 0), ([], 1)]),
    "micro batches of 512": (SLOTS, [(0, 1200, 1)], [([512], 0), ([512], 0), ([176], 0)]),
    "one sequence at a time": (
        MIXED._replace(most_sequences=1.0), [(0, 100, 2), (0, 50, 2)], [([100], 0), ([], 1), ([50], 0), ([], 1)]),
    # int(0.5 x 1,000) = 500 of 1,001 tokens are held: the last one is always computed
    "half a prompt is cached": (MIXED._replace(cached_share=0.5), [(0, 1001, 1)], [([501], 0)]),
    "a cached prompt computes its last token": (MIXED._replace(cached_share=1.0), [(0, 1001, 1)], [([1], 0)]),
    # int(0.75 x 4,999) = 3,749 held: 1,251 new tokens twice are less than 8,192
    "packing counts what is computed": (
        WHOLE._replace(cached_share=0.75, token_budget=3000.0), [(0, 5000, 1)] * 2, [([1251, 1251], 0)]),
    # 7 pages of 10: the second request waits until the first one is gone
    "pool exhausted": (
        MIXED._replace(pages=10), [(0, 100, 3), (0, 100, 1)], [([100], 0), ([], 1), ([], 1), ([100], 0)]),
    "nobody overtakes the one that waits for pages": (
        MIXED._replace(pages=10), [(0, 100, 2), (0, 100, 1), (0, 10, 1)], [([100], 0), ([], 1), ([100, 10], 0)]),
    "collects for two steps": (
        WHOLE._replace(batch_wait_steps=2), [(0, 100, 5), (1, 100, 2)],
        [([100], 0), ([], 1), ([], 1), ([100], 1), ([], 2)]),
    # at the third step 200 tokens wait and fill it; beside one that decodes 199 are left, so that one prompt goes
    "collects no longer than a step is full": (
        WHOLE._replace(batch_wait_steps=9, token_budget=200.0), [(0, 100, 4), (1, 100, 1), (2, 100, 1)],
        [([100], 0), ([], 1), ([100], 1), ([], 1), ([100], 0)]),
    "looks every third step": (
        MIXED._replace(receive_interval_steps=3), [(0, 100, 5), (1, 100, 2)],
        [([100], 0), ([], 1), ([], 1), ([100], 1), ([], 2)]),
    "looks no sooner because a prompt is being read": (
        MIXED._replace(receive_interval_steps=3, token_budget=50.0), [(0, 70, 2), (1, 20, 1)],
        [([50], 0), ([20], 0), ([], 1), ([20], 0)]),
    # pages of 4: 2 + 2 of 4 hold 8 tokens each; the third token needs a page more: the newest goes, with 7 + 3 tokens
    "preempted, and computed anew": (
        MIXED._replace(page_tokens=4, pages=4), [(0, 7, 6), (0, 7, 6)],
        [([7, 7], 0), ([], 2), ([], 2), ([], 1), ([], 1), ([], 1), ([10], 0), ([], 1), ([], 1)]),
}
# fmt: on


@pytest.mark.parametrize(("rules", "requests", "expected"), CASES.values(), ids=CASES)
def test_steps_worked_out_by_hand(rules, requests, expected):
    """Chunks and decoding sequences of every step."""
    scheduler, steps, ended = drive(rules, requests)
    assert steps == expected
    assert len(ended) == len(requests)
    assert (scheduler.pages_used, scheduler.context_sum) == (0, 0)


def test_a_preemption_is_counted():
    """One of two goes back once, and its tokens are not lost."""
    scheduler, _, ended = drive(MIXED._replace(page_tokens=4, pages=4), [(0, 7, 6), (0, 7, 6)])
    assert scheduler.preemptions == 1
    assert [job.preempted for job in ended] == [False, True]


def test_waiting_by_the_clock():
    """Half a second is waited while others decode; an idle engine waits for nothing."""
    rules = WHOLE._replace(batch_wait_s=0.5)
    scheduler = Scheduler(rules)
    scheduler.waiting.append(Job(Request(0, 100, 9), 0.0, 100.0))
    chunks, _ = scheduler.plan(0.0)
    scheduler.read(chunks[0])
    scheduler.start(chunks[0].job)
    scheduler.waiting.append(Job(Request(1.0, 100, 9), 1.0, 100.0))
    assert [len(scheduler.plan(now)[0]) for now in (1.1, 1.4, 1.51)] == [0, 0, 1]


def test_two_equal_requests_are_two():
    """Requests of one moment and one length are told apart."""
    one, two = (Job(Request(0, 5, 5), 0.0, 5.0) for _ in range(2))
    assert one != two


# ---- whatever comes

REQUESTS = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 60), st.integers(1, 30)), min_size=1, max_size=12)
RULES = st.builds(
    Rules,
    token_budget=st.integers(8, 100).map(float),
    most_sequences=st.integers(1, 8).map(float),
    prefill=st.sampled_from(["mixed", "serial", "whole"]),
    prefill_first=st.booleans(),
    chunked=st.booleans(),
    page_tokens=st.sampled_from([1, 4, 16]),
    pages=st.integers(90, 200).map(float),
    batch_wait_steps=st.integers(0, 3),
    receive_interval_steps=st.integers(1, 4),
    cached_share=st.sampled_from([0.0, 0.5, 1.0]),
    reserves_answers=st.booleans(),
)


@given(rules=RULES, requests=REQUESTS)
def test_whatever_comes(rules, requests):
    """Every request ends once; sums are those of the sequences; the pool, the budget and the slots are kept."""

    def check(scheduler):
        held = [job.prompt + scheduler.steps - job.start for job in scheduler.decoding.values()]
        reading = [job.prompt for job in scheduler.reading]
        inside = (*scheduler.decoding.values(), *scheduler.reading)
        whole = [job.request.prompt_tokens + job.request.output_tokens for job in inside]
        assert scheduler.context_sum == sum(held)
        paged = whole if rules.reserves_answers else (*held, *reading)
        assert scheduler.pages_used == sum(ceil(tokens / rules.page_tokens) for tokens in paged)
        assert not (rules.reserves_answers and scheduler.preemptions)
        assert scheduler.pages_used <= rules.pages
        assert len(held) + len(reading) <= rules.most_sequences

    rules = rules._replace(pages=float(ceil(rules.pages / rules.page_tokens) + 1))
    scheduler, steps, ended = drive(rules, requests, check)
    assert len({id(job) for job in ended}) == len(ended) == len(requests)
    assert scheduler.pages_used == scheduler.context_sum == 0
    whole = rules.prefill == "whole" or not rules.chunked
    assert all(sum(chunks) <= rules.token_budget or (whole and len(chunks) == 1) for chunks, _ in steps)
    if not scheduler.preemptions:
        read = sum(prompt - int(rules.cached_share * (prompt - 1)) for _, prompt, _ in requests)
        assert sum(sum(chunks) for chunks, _ in steps) == read
        assert sum(decoding for _, decoding in steps) == sum(output - 1 for _, _, output in requests)
