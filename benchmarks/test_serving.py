"""How fast the serving core is: ``pytest benchmarks/test_serving.py``. Figures are printed beside their targets.

Targets: a steady-state point under 5 ms, 10,000 points in one vectorised call under 5 s; the simulator at least 200
times faster than real time for an 8B model at 100 requests a second, and as much memory for many requests as for few.
"""

import time
import tracemalloc

import numpy as np
import pytest

import rooflinekit as rk
from rooflinekit.serving.arrivals import Closed, Lengths, Open, Traffic
from rooflinekit.serving.engine import load_engine
from rooflinekit.serving.loaded_steps import Load, Model
from rooflinekit.serving.simulate import rules_of, simulate
from rooflinekit.serving.steady_state import closed_form

POINTS = 10_000
MODEL, CARD = "llama-3.1-8b", "h100-sxm"
#: Prompt and answer of the 100 requests a second: a chat of short turns, and one that fills the card to 80%.
RUNS = [(100, 50), (200, 100)]


@pytest.fixture
def say(capsys):
    """Print past pytest's capture."""

    def line(text):
        with capsys.disabled():
            print(f"\n  {text}", end="")

    return line


def fastest_s(benchmark):
    """Shortest round; 0 where the benchmark is switched off."""
    return 0.0 if benchmark.disabled else benchmark.stats.stats.min


def loads(points):
    """Give half of the points at a rate and half in flight, of many lengths."""
    draw = np.random.default_rng(0)
    prompt, output = draw.integers(100, 8000, points), draw.integers(20, 1000, points)
    closed = np.arange(points) % 2 == 1
    concurrency = np.where(closed, draw.integers(1, 128, points), np.nan)
    rate = np.where(closed, np.nan, draw.uniform(0.1, 1.0, points))
    rounds = np.where(closed, 10 * concurrency, np.inf)
    columns = (prompt, output, concurrency, rate, rounds, np.zeros(points), output * 0.06)
    return Load(*(np.asarray(column, dtype=np.float64) for column in columns))


@pytest.fixture(scope="module")
def model():
    """Return what the closed form asks for seconds."""
    deployment, profile = rk.Deployment(MODEL, CARD), load_engine("vllm")
    return Model(deployment, profile, rules_of(deployment, profile, 16_384))


@pytest.mark.parametrize("index", [0, 1], ids=["open", "closed"])
def test_a_steady_state_point(benchmark, say, model, index):
    """One point of the closed form."""
    point = Load(*(column[[index]] for column in loads(2)))
    assert benchmark(closed_form, model, point).running[0] > 0
    say(f"one point of the closed form {1e3 * fastest_s(benchmark):.2f} ms (target: under 5)")


def test_a_whole_answer(benchmark, say):
    """`serve` with the rate that the server could carry, percentiles and checks."""
    deployment = rk.Deployment(MODEL, CARD)
    load = {"prompt_tokens": 2000, "output_tokens": 200, "rate_per_s": 4}
    assert benchmark(lambda: rk.serve(deployment, **load)).method == "closed form"
    say(f"serve by the closed form {1e3 * fastest_s(benchmark):.1f} ms")


def test_ten_thousand_points(benchmark, say, model):
    """One vectorised call."""
    points = loads(POINTS)
    found = benchmark.pedantic(closed_form, (model, points), rounds=3)
    assert found.running.shape == (POINTS,)
    say(f"{POINTS:,} points of the closed form {fastest_s(benchmark):.2f} s (target: under 5)")


@pytest.mark.parametrize(("prompt", "output"), RUNS)
def test_the_simulator_against_the_clock(benchmark, say, prompt, output):
    """Simulated seconds per second of wall, 100 requests a second for 200 seconds; tables are made on the way."""
    deployment = rk.Deployment(MODEL, CARD)
    traffic = Traffic(Open(100.0), Lengths(prompt), Lengths(output), requests=20_000)
    served = benchmark.pedantic(simulate, (deployment, traffic), rounds=3)
    assert served.requests == traffic.requests
    ratio = served.duration_s / max(fastest_s(benchmark), 1e-9)
    benchmark.extra_info["simulated seconds per second"] = ratio
    benchmark.extra_info["steps per second"] = served.steps / max(fastest_s(benchmark), 1e-9)
    say(f"{prompt} in, {output} out, 100 requests/s: {ratio:.0f} times real time (target: over 200)")


def test_memory_of_many_requests(say):
    """Peak of Python's memory for 1,000 requests and for 100 times as many."""
    deployment, peaks = rk.Deployment(MODEL, CARD), []
    for requests in (1000, 1000, 100_000):
        traffic = Traffic(Closed(256), Lengths(16), Lengths(2), requests)
        tracemalloc.start()
        simulate(deployment, traffic)
        peaks.append(tracemalloc.get_traced_memory()[1] / 1e6)
        tracemalloc.stop()
    say(f"peak {peaks[1]:.2f} MB for 1,000 requests, {peaks[2]:.2f} MB for 100,000")
    assert peaks[2] < peaks[1] + 3


def test_a_request_of_the_simulator(say):
    """Seconds of wall for 60,000 short requests: the end of a run is no slower than its beginning."""
    deployment, marks = rk.Deployment(MODEL, CARD), []
    traffic = Traffic(Closed(64), Lengths(16), Lengths(32), requests=60_000)
    simulate(deployment, traffic, progress=lambda done: marks.append((done, time.perf_counter())))
    halves = [min(marks, key=lambda mark: abs(mark[0] - part * traffic.requests)) for part in (0.1, 0.5, 0.9)]
    (first, begun), (middle, between), (last, over) = halves
    early, late = (between - begun) / (middle - first), (over - between) / (last - middle)
    say(f"{1e6 * early:.1f} us a request in the first half of a run, {1e6 * late:.1f} in the second")
