"""Pools and link of a split server: queues by hand and against a simulation, workers against their deployments."""

import math
import random

import pytest

import rooflinekit as rk
from rooflinekit.serving.kv_link import Link, link_between
from rooflinekit.serving.pools import DecodeWorker, PrefillWorker, batch_server_s, queue_wait_s

D = rk.Deployment("qwen3-8b", "gb10")
ENGINE = rk.load_engine("vllm")

# fmt: off
WAITS = [
    # service  rate   wait
    (0.1,      5.0,   0.5 * 0.1 / (2 * 0.5)),
    (0.1,      9.0,   0.9 * 0.1 / (2 * 0.1)),
    (0.1,      0.0,   0.0),
    (0.1,      10.0,  math.inf),
    (0.1,      20.0,  math.inf),
]
# fmt: on


@pytest.mark.parametrize(("service", "rate", "wait"), WAITS)
def test_a_queue_of_equal_services(service, rate, wait):
    """Half of what the same load with exponential services waits."""
    assert queue_wait_s(service, rate) == pytest.approx(wait)


def simulated_s(alone, more, rate, count=50_000):
    """Play a server that takes all who wait together."""
    draws = random.Random(0)  # noqa: S311 - of a simulation
    now, arrivals = 0.0, []
    for _ in range(count):
        now += draws.expovariate(rate)
        arrivals.append(now)
    clock = total = first = 0
    while first < count:
        clock, last = max(clock, arrivals[first]), first
        while last < count and arrivals[last] <= max(clock, arrivals[first]):
            last += 1
        clock += alone + more * (last - first - 1)
        total += sum(clock - one for one in arrivals[first:last])
        first = last
    return total / count


@pytest.mark.parametrize(("alone", "more", "rate"), [(0.1, 0.02, 5), (0.1, 0.02, 20), (0.1, 0.05, 10), (0.1, 0.09, 8)])
def test_a_server_of_batches(alone, more, rate):
    """The closed form within 2% of a simulation of 50,000 requests."""
    assert batch_server_s(alone, more, rate) == pytest.approx(simulated_s(alone, more, rate), rel=0.02)


def test_ends_of_the_batch_server():
    """Alone a request takes its step; more work a second than a second holds never ends."""
    assert batch_server_s(0.1, 0.05, 1e-9) == pytest.approx(0.1)
    assert math.isinf(batch_server_s(0.1, 0.05, 20))


# fmt: off
SENDS = [
    # bytes   rate  link                            seconds
    (1e9,     0,    Link(10e9, 0.0, 0.0, ""),       0.1),
    (1e9,     0,    Link(10e9, 0.002, 0.0, ""),     0.102),
    (1e9,     0,    Link(10e9, 0.0, 0.9, ""),       0.01),
    (1e9,     5,    Link(10e9, 0.0, 0.0, ""),       0.1 + 0.05),  # half busy
    (1e9,     10,   Link(10e9, 0.0, 0.0, ""),       math.inf),
]
# fmt: on


@pytest.mark.parametrize(("size", "rate", "link", "seconds"), SENDS)
def test_sending_a_prompt(size, rate, link, seconds):
    """Latency, the queue for the wire, the wire less what overlaps."""
    assert link.transfer_s(size, rate) == pytest.approx(seconds)


def test_the_link_of_a_device():
    """Inside a node a GPU's own link one way at the rate that sends reach; two nodes take the network between them."""
    d = rk.Deployment("llama-3.1-8b", "h100-sxm")
    inside, given = (link_between(d, 8, bytes_per_s=rate, latency_s=None, overlap=0) for rate in (None, 1e9))
    beyond = link_between(d, 16, bytes_per_s=None, latency_s=None, overlap=0)
    assert "NVLink" in inside.name
    assert 0.5 * 450e9 < inside.bytes_per_s < 450e9
    assert beyond.bytes_per_s < inside.bytes_per_s / 4
    assert given == Link(1e9, 0.0, 0, "the given link")


@pytest.mark.parametrize(("prompt", "passes"), [(2000, 1), (10_000, 5)])
def test_a_prefill_worker(prompt, passes):
    """One prompt alone: its passes in a loaded server, and the engine's own work on each."""
    worker = PrefillWorker(D, ENGINE, prompt, 0)
    device = D.chunked_prefill(prompt, token_budget=2048, busy_s=math.inf).time_s
    assert worker.alone_s == pytest.approx(device + passes * ENGINE.prefill_step_host_s)
    assert worker.most_requests_per_s == pytest.approx(1 / worker.alone_s)
    rate = 0.5 * worker.most_requests_per_s
    assert worker.first_token_s(rate) == pytest.approx(ENGINE.request_host_s + 1.5 * worker.alone_s)
    assert math.isinf(worker.first_token_s(2 * rate))


def test_short_prompts_share_a_pass():
    """Four of 500 tokens fit into 2,048: a full pass carries more than four times what one alone takes the time for."""
    worker = PrefillWorker(D, ENGINE, 500, 0)
    four = D.step(rk.Group(500, 0, 4), busy_s=math.inf).time_s + ENGINE.prefill_step_host_s
    assert worker.packed == 4
    assert worker.most_requests_per_s == pytest.approx(4 / four)
    assert worker.most_requests_per_s > 1 / worker.alone_s
    assert worker.first_token_s(1e-9) == pytest.approx(ENGINE.request_host_s + worker.alone_s)


def test_an_engine_without_chunks_reads_the_whole():
    """One pass whatever the budget says."""
    whole = PrefillWorker(D, ENGINE.with_(enable_chunked_prefill=False), 10_000, 0)
    assert whole.alone_s == pytest.approx(
        D.prefill(10_000, busy_s=math.inf).time_s + ENGINE.prefill_step_host_s, rel=1e-9
    )


def test_a_decode_worker():
    """The batch that a sequence sees: itself, and what came while one decodes its 199 steps."""
    worker = DecodeWorker(D, ENGINE, 2048, 200)
    batch = worker.batch(1.0)
    assert batch == pytest.approx(1 + 1.0 * 199 * worker.step_s(batch), rel=1e-6)
    assert worker.step_s(batch) == pytest.approx(D.decode(2148, batch=batch, busy_s=math.inf).time_s)
    assert worker.batch(1e-9) == pytest.approx(1, abs=1e-6)
    full = worker.most_sequences
    assert worker.most_requests_per_s == pytest.approx(full / (199 * worker.step_s(full)))
    assert math.isinf(worker.batch(worker.most_requests_per_s))


def test_an_answer_of_one_token_needs_no_decode():
    """Its token came with the prefill."""
    assert math.isinf(DecodeWorker(D, ENGINE, 2048, 1).most_requests_per_s)
