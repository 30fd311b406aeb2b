"""Served runs: healthy ones as a server with a host and a closed client's burst makes them have no verdict."""

import numpy as np
import pytest

import rooflinekit as rk
from rooflinekit.calibration.injected_served import SERVED_FAULTS, judged_served, served_confusion, served_runs
from rooflinekit.calibration.symptoms import read_cases, readings
from rooflinekit.serving.arrivals import Closed, Lengths, Open, Traffic
from rooflinekit.serving.simulate import simulate

CARD = rk.Deployment("qwen3-8b", "h200-sxm", memory_check=False)
CLOSED = {"concurrency": 16.0, "requests": 96.0, "prompt_tokens": 1024.0, "output_tokens": 128.0}
LATENCIES = ("time_to_first_token_s", "time_per_output_token_s", "inter_token_latency_s")


def records(seen, **facts):
    """Tell of a simulated run what a client's file tells, without noise."""
    facts = {**CLOSED, "engine": "vllm", "version": "0.32", **facts}
    told = [
        (name, how, getattr(seen, name).percentile(percent) if percent else getattr(seen, name).mean)
        for name in LATENCIES
        if getattr(seen, name).count
        for how, percent in {"mean": None, "median": 50, "p99": 99}.items()
    ]
    latencies = [rk.Measurement(quantity=name, statistic=how, value=value, **facts) for name, how, value in told]
    return [*latencies, rk.Measurement(quantity="output_tokens_per_s", value=seen.output_tokens_per_s, **facts)]


def closed(requests=96, seed=7, **settings):
    """Simulate 16 requests in flight, 1,024 tokens in and 128 out."""
    traffic = Traffic(Closed(16), Lengths(1024.0), Lengths(128.0), requests)
    return simulate(CARD, traffic, seed=seed, **settings)


def test_a_closed_run_without_fault():
    """Its first tokens are four times later than a prefill and half a step, and nothing is unusual."""
    seen = closed()
    found = rk.diagnose(records(seen), CARD)
    assert found.verdict.startswith("nothing unusual")
    bare = float(CARD.prefill(1024).time_s)
    assert seen.time_to_first_token_s.mean > 4 * bare
    (first,) = (one for one in found.symptoms if one.name == "ttft_s")
    assert first.expected == pytest.approx(seen.time_to_first_token_s.percentile(50), rel=0.02)
    assert "as vllm-0.32 serves 96 requests of a client with 16 in flight, all started together" in first.basis


def test_the_mean_is_compared_with_the_mean():
    """A file without medians: the burst that opens the run is in what is expected too."""
    seen = closed()
    kept = [one for one in records(seen) if one.statistic != "median"]
    expected = {one.name: one.expected for one in rk.diagnose(kept, CARD).symptoms}
    assert expected["ttft_s"] == pytest.approx(seen.time_to_first_token_s.mean, rel=0.02)
    assert expected["step_s"] == pytest.approx(seen.time_per_output_token_s.mean, rel=0.02)
    assert expected["tokens_per_s"] == pytest.approx(seen.output_tokens_per_s, rel=0.02)


def test_answers_of_one_token_have_no_step():
    """Sixteen prompts in flight and nothing to decode: their first tokens wait for each other, as is usual."""
    seen = simulate(CARD, Traffic(Closed(16), Lengths(1024.0), Lengths(1.0), 96), seed=7)
    assert rk.diagnose(records(seen, output_tokens=1.0), CARD).healthy


def test_long_answers_end_alone():
    """Log-normal answers of a closed client: the last ones run alone, which lowers the rate and is no fault."""
    lengths = (Lengths(mean, "lognormal", spread=0.8) for mean in (1024.0, 256.0))
    seen = simulate(CARD, Traffic(Closed(16), *lengths, 160), seed=11)
    facts = {"prompt_tokens": seen.prompt_tokens / 160, "output_tokens": seen.output_tokens / 160, "requests": 160.0}
    assert rk.diagnose(records(seen, **facts), CARD).healthy


@pytest.mark.parametrize("rate", [4.0, 10.0])
def test_an_open_run_without_fault(rate):
    """Requests that come at a rate: so many run together as the server makes of them."""
    seen = simulate(CARD, Traffic(Open(rate), Lengths(1024.0), Lengths(128.0), 200), seed=3)
    told = records(seen, concurrency=None, request_rate=rate, requests=200.0)
    assert rk.diagnose(told, CARD).healthy
    (case,) = read_cases(told, CARD)
    assert case.batch == pytest.approx(seen.mean_running, rel=0.3)


@pytest.mark.parametrize(
    "facts", [{}, {"engine": None, "version": None}, {"engine": "vllm", "version": "0.24.1"}, {"version": "nightly"}]
)
def test_the_engine_may_be_unnamed(facts):
    """Its version is the newest that is not newer, vLLM's where nobody says whose: as serve takes them."""
    assert rk.diagnose(records(closed(), **facts), CARD).healthy


@pytest.mark.parametrize("part", [0.0, 0.3, 0.6])
def test_a_faster_host_is_no_fault(part):
    """Host times are those of other machines: a run with a part of them, or none, is sound."""
    profile = rk.load_engine("vllm")
    times = {name: part * getattr(profile, name) for name in ("request_host_s", "prefill_step_host_s", "eager_layer_s")}
    seen = closed(engine=profile.with_(**times))
    assert seen.time_to_first_token_s.mean < 0.97 * closed().time_to_first_token_s.mean
    assert rk.diagnose(records(seen), CARD).healthy


def test_a_fault_is_found_behind_host_and_burst():
    """A fiftieth of a second more a step on the host, or a third of the requests in flight: each is named."""
    slow = rk.load_engine("vllm").with_(step_host_s=0.02)
    fewer = simulate(CARD, Traffic(Closed(5), Lengths(1024.0), Lengths(128.0), 96), seed=7)
    for seen, cause in ((closed(engine=slow), "host-bound"), (fewer, "smaller batch than thought")):
        assert rk.diagnose(records(seen), CARD).findings[0].cause == cause


def test_what_a_server_cannot_carry_is_not_called_usual():
    """More in flight than the cache holds, or more a second than the server takes: read by passes alone."""
    for facts in ({"concurrency": 4096.0}, {"concurrency": None, "request_rate": 500.0}):
        (case,) = read_cases(records(closed(), **facts), CARD)
        assert case.run is None


def test_without_arrivals_passes_are_read_first():
    """A window of a named engine: prefill and half a step are sound, and so are the host's times on top."""
    window = {"requests": None, "concurrency": 16.0}
    first, second, third = readings(records(closed(), **window), CARD)
    assert [one.run is None for (one,) in (first, second, third)] == [True, False, False]
    assert third[0].run.host_free
    assert not second[0].run.host_free


def test_one_request_has_no_server():
    """Four counters of one request are read by passes alone."""
    seen = rk.Measurement(quantity="prefill_time_s", value=0.4, batch=1, prompt_tokens=2048, engine="vllm")
    assert [one.run for cases in readings([seen], CARD) for one in cases] == [None]


def pool(tokens=None, usage=None):
    """Let requests wait for two seconds, and say of the pool what a log or a scrape says."""
    facts = {"concurrency": 16.0, "prompt_tokens": 1024.0, "output_tokens": 256.0}
    (case,) = read_cases([rk.Measurement(quantity="decode_step_s", value=0.01, **facts)], CARD)
    wait = float(case.clean["ttft_s"]) + 2.0
    told = [
        rk.Measurement(quantity="time_to_first_token_s", value=wait, statistic="median", **facts),
        rk.Measurement(
            quantity="time_per_output_token_s", value=float(case.clean["step_s"]), statistic="mean", **facts
        ),
        rk.Measurement(quantity="requests_waiting", value=6.0, **facts),
    ]
    if usage is not None:
        told.append(rk.Measurement(quantity="kv_cache_usage", value=usage, **facts))
    if tokens is not None:
        told.append(rk.Measurement(quantity="kv_cache_tokens", value=tokens))
    return rk.diagnose(told, CARD)


@pytest.mark.parametrize(
    ("seen", "listed"),
    [
        ({}, False),  # the settings give a pool of hundreds of thousands of tokens
        ({"usage": 0.2}, False),
        ({"usage": 0.98}, True),  # it is full, whatever the settings give
        (
            {"tokens": 30_000.0},
            True,
        ),  # 26 sequences fit: more than are in flight, but a fifteenth of the settings' pool
        ({"tokens": 1e7}, False),
    ],
)
def test_a_full_cache_is_listed_beside_a_queue(seen, listed):
    """Requests wait: for the cache where it is in full use, or smaller than the settings would make it."""
    names = [one.cause for one in pool(**seen).findings]
    assert "queueing" in names
    assert ("cache full" in names) is listed


def test_a_full_cache_is_named():
    """Ten of sixteen run, six wait, and the cache is in full use."""
    seen = closed(engine=rk.load_engine("vllm").with_(max_num_seqs=10))
    states = {"requests_running": 10.0, "requests_waiting": 6.0, "kv_cache_usage": 0.99}
    told = [rk.Measurement(quantity=name, value=value, **CLOSED) for name, value in states.items()]
    assert rk.diagnose([*records(seen), *told], CARD).cause == "cache full"


# ---- a hit, a limit, a rate


@pytest.mark.parametrize("share", [0.75, 0.85])
def test_hits_of_a_closed_client_are_found(share):
    """Most of each prompt lies in the cache: named alone, with its part."""
    traffic = Traffic(Closed(16), Lengths(3072.0), Lengths(128.0), 96)
    seen = simulate(CARD, traffic, seed=7, cached_share=share)
    found = rk.diagnose(records(seen, prompt_tokens=3072.0), CARD)
    assert found.cause == "prefix hits"
    assert "second cause" not in found.verdict
    assert found.findings[0].severity[0] == pytest.approx(share, abs=0.05)
    assert found.findings[0].explains > 0.9


def test_the_wait_behind_a_limit_is_no_second_cause():
    """Six of sixteen in flight run, as max_num_seqs says, and the others wait for them."""
    found = rk.diagnose(records(closed(engine=rk.load_engine("vllm").with_(max_num_seqs=6))), CARD)
    assert found.cause == "smaller batch than thought"
    assert "not 16: the others wait, as behind max_num_seqs" in found.verdict
    assert "queueing" not in found.verdict


@pytest.mark.parametrize(("part", "cause"), [(0.5, "client slower than stated"), (1.0, None)])
def test_a_client_that_sends_at_half_its_rate(part, cause):
    """A rate of 8/s is stated; requests over the duration of the run say at which they came."""
    traffic = Traffic(Open(8.0 * part), Lengths(1024.0), Lengths(128.0), 200)
    seen = simulate(CARD, traffic, seed=3)
    facts = {"concurrency": None, "request_rate": 8.0, "requests": 200.0}
    run_time = rk.Measurement(quantity="run_time_s", value=seen.duration_s, **{**CLOSED, **facts}, engine="vllm")
    found = rk.diagnose([*records(seen, **facts), run_time], CARD)
    assert found.cause == cause
    if cause:
        assert "of the 8/s stated" in found.verdict
        assert found.findings[0].severity[0] == pytest.approx(part, rel=0.15)


def test_simulated_runs_are_told_as_a_clients_file():
    """Two workloads where the fault may be the machine's; the engine is named, and how requests came."""
    for fault in SERVED_FAULTS:
        ((_, told),) = served_runs(fault, 1)
        workloads = {(one.concurrency, one.request_rate) for one in told}
        assert len(workloads) == (1 if fault in ("cache full", "smaller batch than thought") else 2)
        assert {(one.engine, one.version) for one in told} == {("vllm", "0.32")}
        assert all((one.concurrency is None) != (one.request_rate is None) for one in told)


def test_three_healthy_simulated_runs():
    """None has a verdict: a few of those that the slow test beside it draws."""
    assert [told for told, _ in judged_served("none", 3, seed=1)] == ["none"] * 3


@pytest.mark.slow
def test_healthy_simulated_runs():
    """At least 95% of 100 have no verdict."""
    assert [told for told, _ in judged_served("none", 100, seed=1)].count("none") >= 95


@pytest.mark.slow
def test_served_confusion():
    """50 runs a fault, as on the page: the right cause first in 90%, among the first two in 95%, each cause in 75%."""
    found = served_confusion(50)
    faults = [name for name in SERVED_FAULTS if name != "none"]
    first = np.array([found.loc[name, name] for name in faults]) / 50
    assert first.mean() >= 0.9
    assert first.min() >= 0.75
    assert (found.loc[faults, "in_first_two"] / 50).mean() >= 0.95
    assert found.loc["none", "none"] >= 48
