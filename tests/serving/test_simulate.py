"""Simulate: conservation laws, seeds, one lone request by hand, and memory that no number of requests changes."""

import math
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rooflinekit as rk
from rooflinekit.errors import InvalidInputError
from rooflinekit.serving import simulate as module
from rooflinekit.serving.arrivals import Closed, Lengths, Open, Request, Trace, Traffic
from rooflinekit.serving.engine import load_engine
from rooflinekit.serving.scheduler import Scheduler
from rooflinekit.serving.simulate import simulate

DENSE = rk.Deployment("llama-3.1-8b", "h100-sxm")
LOADED = float("inf")
NONE = {
    "step_host_s": 0, "sequence_host_s": 0, "prefill_step_host_s": 0, "eager_layer_s": 0, "mixture_layer_s": 0,
    "request_host_s": 0,
}  # fmt: skip
BARE = load_engine("vllm").with_(**NONE)
#: A pool of some 1,900 pages of 16 tokens.
SMALL = BARE.with_(gpu_memory_utilization=0.27, max_num_batched_tokens=1024)
ENGINES = {
    "vllm": load_engine("vllm"),
    "sglang": load_engine("sglang"),
    "sglang, polls": load_engine("sglang").with_(receive_interval_steps=10),
    "tensorrt-llm": load_engine("tensorrt-llm"),
    "tensorrt-llm, waits": load_engine("tensorrt-llm").with_(batch_wait_steps=20, batch_wait_s=0.01),
    "llama.cpp": load_engine("llama.cpp"),
    "pool exhausted": SMALL,
}


def mix(arrivals, requests=120, prompt=900, output=150):
    """Give requests of uniform lengths."""
    return Traffic(arrivals, Lengths.ranged(prompt, 0.5), Lengths.ranged(output, 0.5), requests)


# ---- conservation


@pytest.mark.parametrize("arrivals", [Closed(40), Open(12.0)], ids=["closed", "open"])
@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
def test_nothing_is_lost(engine, arrivals):
    """Requests end once, tokens and seconds add up whichever way they are counted."""
    traffic, ended = mix(arrivals), []
    served = simulate(DENSE, traffic, engine=engine, on_request=lambda *seen: ended.append(seen))
    sent = list(traffic.draw(0))
    assert served.requests == len(ended) == len(sent)
    assert served.prompt_tokens == sum(one.prompt_tokens for one in sent)
    assert served.output_tokens == sum(one.output_tokens for one in sent)
    assert all(0 < first <= whole and each > 0 for first, each, whole in ended)
    assert served.end_to_end_s.total == pytest.approx(sum(whole for _, _, whole in ended))
    # every gap between two tokens is one gap, and all of them are what answers take after their first tokens
    assert served.inter_token_latency_s.count == served.output_tokens - served.requests
    decoding_s = served.end_to_end_s.total - served.time_to_first_token_s.total
    assert served.inter_token_latency_s.total == pytest.approx(decoding_s, rel=1e-9)
    assert served.busy_s <= served.duration_s * (1 + 1e-12)
    assert 0 < served.mixed_share <= 1


@pytest.mark.parametrize("engine", ["vllm", "tensorrt-llm", "llama.cpp"])
def test_sequences_that_decode_are_those_seen(engine):
    """Little's law among decoding sequences, exactly, where no step leaves them standing."""
    served = simulate(DENSE, mix(Open(8.0)), engine=engine)
    each_s = served.end_to_end_s.mean - served.time_to_first_token_s.mean
    assert served.running_s / served.duration_s == pytest.approx(served.requests_per_s * each_s, rel=1e-9)


def test_littles_law_of_a_closed_client():
    """L = lambda W: 16 in flight, but for the end of the run, when fewer and fewer are."""
    served = simulate(DENSE, Traffic(Closed(16), Lengths(500), Lengths(20), requests=4000), engine=BARE)
    assert served.requests_per_s * served.end_to_end_s.mean == pytest.approx(16, rel=0.01)


def test_littles_law_of_open_arrivals(monkeypatch):
    """L = lambda W with L counted at every step of the run."""
    inside, now = 0.0, 0.0

    def counting(run, coming, *, step=module._Run._step):
        nonlocal inside, now
        before, scheduler = run.clock_s, run.scheduler
        jobs = [*scheduler.waiting, *scheduler.reading, *scheduler.decoding.values(), *run.on_the_way]
        ended = step(run, coming)
        # those that come during a step are inside from then on
        inside += sum(run.clock_s - max(before, job.arrived_s) for job in jobs)
        assert run.clock_s >= before >= now
        now = before
        return ended

    monkeypatch.setattr(module._Run, "_step", counting)
    served = simulate(DENSE, mix(Open(10.0), requests=400), engine=BARE)
    counted = inside / served.duration_s
    # a request that comes during a step is counted from the step's end on: half a step of each is missing
    late = served.requests_per_s * served.busy_s / served.steps / 2
    assert counted + late == pytest.approx(served.requests_per_s * served.end_to_end_s.mean, rel=0.01)


def test_the_pool_is_never_exceeded(monkeypatch):
    """After every step the pages in use are at most those of the pool, and what was put back is computed anew."""
    used = []

    def watched(scheduler, now_s, *, preempt=Scheduler.preempt):
        preempt(scheduler, now_s)
        used.append((scheduler.pages_used, scheduler.rules.pages))

    monkeypatch.setattr(Scheduler, "preempt", watched)
    served = simulate(DENSE, Traffic(Closed(60), Lengths(600), Lengths(400), requests=120), engine=SMALL)
    assert served.preemptions > 0
    assert max(pages for pages, _ in used) > 0.9 * used[0][1]
    assert all(pages <= pool for pages, pool in used)
    assert used[-1][0] == 0
    assert served.output_tokens == 120 * 400
    # the longest gap is that of a request that was put back: far above any step
    assert served.worst_gap_s > 20 * served.inter_token_latency_s.percentile(50)


@settings(max_examples=25)
@given(
    engine=st.sampled_from(sorted(ENGINES)),
    rows=st.lists(st.tuples(st.floats(0, 2), st.integers(1, 3000), st.integers(1, 60)), min_size=1, max_size=15),
)
def test_whatever_comes_is_answered(engine, rows):
    """A random trace: every request ends, no sooner than its own tokens allow."""
    trace = Trace("drawn", tuple(Request(at, float(new), float(out)) for at, new, out in sorted(rows)))
    served = simulate(DENSE, trace, engine=ENGINES[engine])
    assert served.requests == len(rows)
    assert served.output_tokens == sum(out for _, _, out in rows)
    assert served.time_to_first_token_s.mean > 0
    least = DENSE.step((1, 1, 1), busy_s=LOADED).time_s
    assert served.duration_s >= least * max(out for _, _, out in rows) * 0.999
    gaps = served.inter_token_latency_s
    assert gaps.count == served.output_tokens - served.requests
    assert gaps.total == pytest.approx(served.end_to_end_s.total - served.time_to_first_token_s.total, abs=1e-9)


# ---- by hand


def test_a_lone_request_is_the_estimate():
    """Prefill, then one step for each further token, as `Deployment.step` times them on a loaded device."""
    served = simulate(DENSE, Traffic(Closed(1), Lengths(1000), Lengths(50), requests=1), engine=BARE)
    first_s = DENSE.step((1000, 0, 1), busy_s=LOADED).time_s
    steps_s = sum(DENSE.step((1, 1000 + held, 1), busy_s=LOADED).time_s for held in range(49))
    assert served.time_to_first_token_s.mean == pytest.approx(first_s, rel=1e-9)
    assert served.end_to_end_s.mean == pytest.approx(first_s + steps_s, rel=1e-9)
    assert served.time_per_output_token_s.mean == pytest.approx(steps_s / 49, rel=1e-9)
    assert (served.steps, served.steps_with_prompts, served.mean_running) == (50, 1, pytest.approx(1, rel=0.2))


def test_a_lone_request_with_its_host():
    """10 ms of a request, 2 of every step, 3 of one with a prompt, 0.5 of a sequence."""
    host = BARE.with_(request_host_s=0.010, step_host_s=0.002, prefill_step_host_s=0.003, sequence_host_s=0.0005)
    traffic = Traffic(Closed(1), Lengths(100), Lengths(10), requests=1)
    bare, served = (simulate(DENSE, traffic, engine=engine) for engine in (BARE, host))
    added = served.time_to_first_token_s.mean - bare.time_to_first_token_s.mean
    assert added == pytest.approx(0.010 + 0.002 + 0.003 + 0.0005)
    assert served.time_per_output_token_s.mean - bare.time_per_output_token_s.mean == pytest.approx(0.0025)


def test_chunks_of_a_long_prompt():
    """10,000 tokens under 2,048: five passes, each with what was read before it in the cache."""
    engine = BARE.with_(max_num_batched_tokens=2048)
    served = simulate(DENSE, Traffic(Closed(1), Lengths(10_000), Lengths(1), requests=1), engine=engine)
    sizes = [2048] * 4 + [1808]
    chunks = [
        DENSE.step(rk.Group(new, 2048 * i, 1, float(i == 4)), busy_s=LOADED).time_s for i, new in enumerate(sizes)
    ]
    assert served.steps == 5
    assert served.time_to_first_token_s.mean == pytest.approx(sum(chunks), rel=1e-9)
    assert math.isnan(served.time_per_output_token_s.mean)


def test_a_cached_prefix_is_not_computed():
    """Three quarters of 2,001 tokens are held: 501 are read beside 1,500."""
    served = simulate(DENSE, Traffic(Closed(1), Lengths(2001), Lengths(1), requests=1), engine=BARE, cached_share=0.75)
    assert served.time_to_first_token_s.mean == pytest.approx(DENSE.step((501, 1500, 1), busy_s=LOADED).time_s)


def test_a_trace_may_have_the_clock_of_a_calendar():
    """Seconds since 1970: the run begins with its first request, and queues are the same."""
    rows = [Request(0.01 * i, 500.0, 20.0) for i in range(20)]
    late = [row._replace(arrival_s=row.arrival_s + 1.7e9) for row in rows]
    one, other = (simulate(DENSE, Trace("trace", tuple(r)), engine=BARE) for r in (rows, late))
    assert other.duration_s == pytest.approx(one.duration_s, rel=1e-5)
    assert other.time_to_first_token_s.mean == pytest.approx(one.time_to_first_token_s.mean, rel=1e-4)


def test_a_queue_forms():
    """Two requests of one moment under one slot: the second waits for the whole of the first."""
    rows = tuple(Request(0.0, 1000.0, 20.0) for _ in range(2))
    served = simulate(DENSE, Trace("two", rows), engine=BARE.with_(max_num_seqs=1))
    lone = simulate(DENSE, Trace("one", rows[:1]), engine=BARE.with_(max_num_seqs=1))
    whole, first = lone.end_to_end_s.mean, lone.time_to_first_token_s.mean
    assert served.time_to_first_token_s.largest == pytest.approx(whole + first, rel=1e-9)


def test_a_first_token_counts_from_the_arrival():
    """Mistake 27: who comes in the middle of another's prefill waits for its second half, then for its own."""
    alone_s = DENSE.step((8192, 0, 1), busy_s=LOADED).time_s
    rows = (Request(0.0, 8192.0, 1.0), Request(alone_s / 2, 8192.0, 1.0))
    served = simulate(DENSE, Trace("two", rows), engine=BARE)
    assert served.time_to_first_token_s.largest == pytest.approx(1.5 * alone_s, rel=1e-9)
    assert served.time_to_first_token_s.mean == pytest.approx(1.25 * alone_s, rel=1e-9)


def test_seldom_looks_delay_only_what_comes_while_others_run():
    """An idle engine takes a request at once, even where a busy one looks every tenth step."""
    rows = (Request(0.0, 1000.0, 2.0), Request(1000.0, 1000.0, 2.0))
    seen = [simulate(DENSE, Trace("two", rows), engine=SMALL.with_(receive_interval_steps=steps)) for steps in (1, 10)]
    assert seen[1].time_to_first_token_s.mean == pytest.approx(seen[0].time_to_first_token_s.mean, rel=1e-9)


def test_prefill_first_makes_others_stand_still():
    """A gap of SGLang holds the chunks of whole prompts; vLLM's longest one holds a chunk."""
    traffic = Traffic(Closed(8), Lengths(4000), Lengths(100), requests=40)
    mixed, first = (
        simulate(DENSE, traffic, engine=load_engine(name).with_(**NONE, max_num_batched_tokens=1024))
        for name in ("vllm", "sglang")
    )
    assert first.worst_gap_s > 4 * mixed.worst_gap_s


# ---- the run


def test_a_seed_is_a_run():
    """The same seed gives the same run to the last bit."""
    traffic = mix(Open(10.0))
    one, same, other = (simulate(DENSE, traffic, seed=seed) for seed in (1, 1, 2))
    assert one.table().equals(same.table())
    assert not one.table().equals(other.table())


def test_the_table_is_tidy():
    """A row a metric, in seconds, percentiles in order."""
    table = simulate(DENSE, mix(Closed(8), requests=40)).table().set_index("metric")
    assert list(table.columns) == ["mean", "p50", "p90", "p99", "largest"]
    assert all(row.p50 <= row.p90 <= row.p99 <= row.largest * 1.003 for row in table.itertuples())


def test_progress_is_told():
    """Every 2,000 of some 5,000 steps and at the end: 10 pairs of 500 tokens."""
    told = []
    simulate(DENSE, Traffic(Closed(2), Lengths(10), Lengths(500), requests=20), progress=told.append)
    assert told == [8, 16, 20]


def test_a_request_that_no_pool_holds():
    """One line with the length and the pool."""
    engine = BARE.with_(gpu_memory_utilization=0.24, max_num_batched_tokens=1024)
    with pytest.raises(
        InvalidInputError, match=r"a request of 90,100 tokens does not fit in the pool of [\d,]+: shorter"
    ):
        simulate(DENSE, Traffic(Closed(1), Lengths(90_000), Lengths(100), requests=1), engine=engine)


def peak_of(requests):
    """Peak memory of a run of short requests."""
    traffic = Traffic(Closed(256), Lengths(16), Lengths(2), requests)
    tracemalloc.start()
    served = simulate(DENSE, traffic, engine=BARE)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert served.requests == requests
    return peak


def test_memory_does_not_grow_with_the_run():
    """Six times the requests, the same peak."""
    peak_of(300)  # what is loaded and kept on first use
    assert peak_of(12_000) < 1.1 * peak_of(2000) + 3e5


@pytest.mark.slow
def test_a_million_requests_in_constant_memory():
    """As much as 10,000 take."""
    peak_of(300)
    assert peak_of(1_000_000) < 1.1 * peak_of(10_000) + 3e5
