"""serve: which method answers and why, overload said as overload, and what is refused."""

import math

import pytest

import rooflinekit as rk
from rooflinekit.errors import InvalidInputError, SpecError
from rooflinekit.serving.arrivals import Closed, Lengths, Request, Trace, Traffic
from rooflinekit.serving.engine import load_engine
from rooflinekit.serving.simulate import simulate

DENSE = rk.Deployment("llama-3.1-8b", "h100-sxm")
FEW = load_engine("vllm").with_(max_num_seqs=16)
LOAD = {"prompt_tokens": 500, "output_tokens": 50}


def ask(**changes):
    """Ask for a small load."""
    return rk.serve(DENSE, **{**LOAD, **changes})


# ---- the method

SPREAD = Lengths(500, "lognormal", spread=0.5)
TRACE = Trace("trace", tuple(Request(0.05 * i, 400.0, 20.0) for i in range(40)))
# fmt: off
METHODS = [
    # what is asked                                                    method
    ({"rate_per_s": 2},                                                "closed form"),
    ({"concurrency": 8, "output_tokens": Lengths.ranged(50, 0.8)}, "closed form"),
    ({"concurrency": 8, "requests": 50}, "simulation: a closed client whose answers are all of one length"),
    ({"rate_per_s": 2, "prompt_tokens": Lengths.ranged(500, 0.8)},     "closed form"),
    ({"rate_per_s": 2, "method": "simulation", "requests": 50},        "simulation: asked for"),
    ({"rate_per_s": 2, "burstiness": 0.5, "requests": 50},             "simulation: arrivals in bursts"),
    ({"rate_per_s": 2, "burstiness": 3, "requests": 50}, "simulation: arrivals more even than Poisson's"),
    ({"rate_per_s": 2, "burstiness": math.inf, "requests": 50}, "simulation: arrivals like a clock's"),
    ({"rate_per_s": 2, "prompt_tokens": SPREAD, "requests": 50}, "simulation: log-normal lengths that come at a rate"),
    ({"concurrency": 8, "output_tokens": SPREAD, "requests": 50},      "closed form"),
    ({"concurrency": 17, "engine": FEW, "requests": 50},               "simulation: more requests than run at once"),
    ({"concurrency": 16, "engine": FEW, "output_tokens": Lengths.ranged(50, 0.8)}, "closed form"),
    ({"trace": TRACE, "prompt_tokens": None, "output_tokens": None},   "simulation: a trace"),
]
# fmt: on


@pytest.mark.parametrize(("asked", "method"), METHODS)
def test_the_method_and_its_reason(asked, method):
    """The closed form within its validity, the simulation with the reason beyond it."""
    found = ask(**asked)
    assert found.method == method
    assert method in repr(found)


def test_the_edge_in_utilisation():
    """Up to 80% of what the server could carry by the closed form, above it by the simulation, over 100% by neither."""
    most = ask(rate_per_s=1, engine=FEW).most_requests_per_s
    below, above, over = (ask(rate_per_s=part * most, engine=FEW, requests=200) for part in (0.79, 0.81, 1.01))
    assert below.method == "closed form"
    assert above.method == "simulation: above 80% of what the server could carry"
    assert (below.overloaded, above.overloaded, over.overloaded) == (False, False, True)
    assert below.utilisation == pytest.approx(0.79)


def test_a_pool_too_small_for_all():
    """What the pool holds bounds the closed form as the engine's own limit does."""
    small = load_engine("vllm").with_(gpu_memory_utilization=0.27, max_num_batched_tokens=1024)
    held = rk.serve(DENSE, prompt_tokens=3000, output_tokens=100, concurrency=1, engine=small).pool_requests
    more = math.floor(held) + 1
    found = rk.serve(DENSE, prompt_tokens=3000, output_tokens=100, concurrency=more, engine=small, requests=2 * more)
    assert found.method == "simulation: more requests than run at once"
    assert found.running <= held


# ---- overload


def test_overload_is_said_and_not_a_huge_number():
    """Infinite latencies, and the rate that it could carry."""
    found = ask(rate_per_s=1000, engine=FEW)
    assert found.overloaded
    assert repr(found).startswith(f"overloaded: at most {found.most_requests_per_s:.3g} requests/s")
    assert found.time_to_first_token_s.mean == found.end_to_end_s.p99 == found.worst_gap_s == math.inf
    assert found.output_tokens_per_s == pytest.approx(50 * found.most_requests_per_s)
    assert found.utilisation > 1


@pytest.mark.parametrize("lengths", [(500, 50), (50, 200)])
def test_the_rate_that_it_could_carry(lengths):
    """A closed client that keeps all slots busy gets it, within 6%."""
    prompt, output = lengths
    most = rk.serve(DENSE, prompt_tokens=prompt, output_tokens=output, rate_per_s=0.1, engine=FEW).most_requests_per_s
    traffic = Traffic(Closed(17), Lengths(prompt), Lengths.ranged(output / 0.75, 0.5), requests=500)
    assert simulate(DENSE, traffic, engine=FEW).requests_per_s == pytest.approx(most, rel=0.06)


# ---- what adds up


@pytest.mark.parametrize("method", ["closed form", "simulation"])
def test_times_add_up(method):
    """End to end is the first token and 49 gaps; rates are requests and their tokens."""
    found = ask(rate_per_s=4, method=method, requests=500)
    whole = found.time_to_first_token_s.mean + 49 * found.time_per_output_token_s.mean
    assert found.end_to_end_s.mean == pytest.approx(whole, rel=1e-6)
    assert found.output_tokens_per_s == pytest.approx(50 * found.requests_per_s, rel=1e-6)
    first = found.time_to_first_token_s
    assert first.mean < first.p99
    assert method == "closed form" or first.p50 <= first.p90 <= first.p99
    assert found.worst_gap_s >= found.inter_token_latency_s.p50
    assert 0 < found.mixed_share < 1


def test_a_closed_form_of_a_closed_run_gives_no_percentiles():
    """The opening burst makes them: not-a-number rather than a guess."""
    first = ask(concurrency=8, method="closed form").time_to_first_token_s
    assert first.mean > 0
    assert all(map(math.isnan, first[1:]))


@pytest.mark.parametrize("method", ["closed form", "simulation"])
def test_cached_tokens_shorten_the_first_token(method):
    """A prefix hit moves the time to first token; decode reads the same context."""
    bare, hit = (
        rk.serve(
            DENSE, prompt_tokens=4000, output_tokens=50, concurrency=1, requests=4, cached_tokens=cached, method=method
        )
        for cached in (0, 3000)
    )
    assert hit.time_to_first_token_s.mean < 0.7 * bare.time_to_first_token_s.mean
    assert hit.time_per_output_token_s.mean == pytest.approx(bare.time_per_output_token_s.mean, rel=0.02)


def test_a_faster_rate_is_no_better():
    """Latencies rise with the rate, up to the edge of the closed form."""
    seen = [ask(rate_per_s=rate) for rate in (0.1, 1, 4, 8)]
    for metric in ("time_to_first_token_s", "time_per_output_token_s", "end_to_end_s"):
        means = [getattr(one, metric).mean for one in seen]
        assert means == sorted(means)


# ---- what is refused

ALONE = {"trace": TRACE, "prompt_tokens": None, "output_tokens": None}
LONG = Trace("long", (Request(0.0, 100.0, 10.0), Request(1.0, 131_000.0, 73.0)))
SHORT = load_engine("vllm").with_(max_model_len=512)
# fmt: off
REFUSED = [
    # what is asked                               what the line says
    ({},                                           r"one of rate_per_s= \(open\) and concurrency= \(closed\)"),
    ({"rate_per_s": 1, "concurrency": 2},          r"one of rate_per_s= \(open\) and concurrency= \(closed\)"),
    ({"rate_per_s": 1, "prompt_tokens": None},     r"give prompt_tokens, output_tokens"),
    ({"rate_per_s": 1, "trace": TRACE},            r"leave prompt_tokens, output_tokens, rate_per_s out"),
    ({**ALONE, "concurrency": 1},                  r"a trace says when its requests come.*: leave concurrency out"),
    ({**ALONE, "burstiness": 2, "requests": 3},    r"leave burstiness, requests out"),
    ({"concurrency": 1, "burstiness": 0.5},        r"burstiness=0.5: only open arrivals"),
    ({"rate_per_s": 0},                            r"rate_per_s=0: expected a number, above 0"),
    ({"rate_per_s": -1},                           r"rate_per_s=-1"),
    ({"concurrency": 0},                           r"concurrency=0: expected a number, 1 or more"),
    ({"rate_per_s": 1, "requests": 0},             r"requests=0: expected a number, 1 or more"),
    ({"rate_per_s": 1, "output_tokens": 0},        r"output_tokens=0: expected a number, 1 or more"),
    ({"rate_per_s": 1, "prompt_tokens": math.nan}, r"prompt_tokens=nan"),
    ({"rate_per_s": 1, "cached_tokens": 500},      r"cached_tokens=500: expected fewer than the prompt's 500"),
    ({"rate_per_s": 1, "cached_tokens": -1},       r"cached_tokens=-1"),
    ({"rate_per_s": 1, "method": "magic"},         r"method='magic': expected one of auto, closed form, sim"),
    ({**ALONE, "method": "closed form"},           r"needs rates and lengths, not a trace: simulate it"),
    ({"rate_per_s": 1, "seed": -1},                r"seed=-1: expected a number, 0 or more, whole"),
    ({"rate_per_s": 1, "prompt_tokens": 131_023},  r"131,073 tokens is longer than the 131,072 that vllm-0.32 takes"),
    ({"concurrency": 1, "prompt_tokens": Lengths.ranged(131_023, 0.5)}, r"a request of 131,073 tokens is longer"),
    ({**ALONE, "trace": LONG},                     r"a request of 131,073 tokens is longer than the 131,072"),
    ({"rate_per_s": 1, "engine": SHORT},           r"550 tokens is longer than the 512 that vllm-0.32 takes"),
]
# fmt: on


@pytest.mark.parametrize(("asked", "line"), REFUSED)
def test_what_is_no_load(asked, line):
    """One line with key and value."""
    with pytest.raises(InvalidInputError, match=line) as caught:
        ask(**asked)
    assert "\n" not in str(caught.value)


def test_the_longest_request_that_is_taken():
    """As many tokens as the model has positions, prompt and answer together."""
    assert ask(concurrency=1, prompt_tokens=131_022, requests=1, method="closed form").pool_requests >= 1


def test_a_table_of_latencies():
    """A row a metric in seconds; what the closed form does not give is not-a-number, what has no end infinite."""
    found = ask(rate_per_s=2)
    table = found.table()
    assert table.columns.tolist() == ["metric", "mean", "p50", "p90", "p99"]
    assert table["metric"].tolist() == [
        "time_to_first_token_s", "time_per_output_token_s", "inter_token_latency_s", "end_to_end_s",
    ]  # fmt: skip
    assert table["mean"][0] == found.time_to_first_token_s.mean
    assert table["p99"][0] == found.time_to_first_token_s.p99
    assert math.isnan(table["p50"][3])
    assert ask(rate_per_s=1000).table()["mean"].tolist() == [math.inf] * 4


def test_an_engine_that_is_none():
    """The names of engines, and their settings, are checked."""
    with pytest.raises(rk.UnknownNameError, match="vlm"):
        ask(rate_per_s=1, engine="vlm")
    with pytest.raises(SpecError, match="max_num_seqs"):
        load_engine("vllm", max_num_seqs=-1)


# ---- whose scheduler, and what is no deployment

# fmt: off
PROFILES = [
    # engine of the deployment, asked for    profile             told of two engines
    (None,        {},                        "vllm",             False),
    ("llama.cpp", {},                        "llama.cpp",        False),
    ("sglang",    {},                        "sglang",           False),
    ("mlc",       {},                        "vllm",             True),
    ("llama.cpp", {"engine": "vllm"},        "vllm",             True),
]
# fmt: on


@pytest.mark.parametrize(("engine", "asked", "profile", "mixed"), PROFILES)
def test_the_scheduler_is_that_of_the_deployments_engine(engine, asked, profile, mixed):
    """One engine where there is a profile of it; of two, the basis says so."""
    found = rk.serve(rk.Deployment("llama-3.2-1b", "rtx-4090", engine=engine), rate_per_s=1, **LOAD, **asked)
    assert found.engine.engine == profile
    assert (f"its scheduler beside constants asked for {engine}" in found.basis) is mixed


# fmt: off
SEVERAL = [
    ({"rate_per_s": [1, 2]},                              "rate_per_s=[1, 2]: expected one number"),
    ({"rate_per_s": "2"},                                 "rate_per_s='2': expected one number"),
    ({"concurrency": [1, 2]},                             "concurrency=[1, 2]: expected one number"),
    ({"rate_per_s": 1, "burstiness": [1, 2]},             "burstiness=[1, 2]: expected one number"),
    ({"rate_per_s": 1, "requests": [1, 2]},               "requests=[1, 2]: expected one number"),
    ({"rate_per_s": 1, "cached_tokens": [1, 2]},          "cached_tokens=[1, 2]: expected one number"),
]
# fmt: on


@pytest.mark.parametrize(("asked", "told"), SEVERAL)
def test_several_loads_at_once_are_refused(asked, told):
    """One line, not a fault of Python's."""
    with pytest.raises(InvalidInputError) as caught:
        ask(**asked)
    assert str(caught.value).startswith(told)


def test_what_serves_is_a_deployment():
    """A name alone is none: one line that says what to write."""
    for call in (rk.serve, rk.cost):
        with pytest.raises(
            InvalidInputError, match=r"deployment='x': expected what serves, Deployment\(model, device\)"
        ):
            call("x", rate_per_s=1, **LOAD)
