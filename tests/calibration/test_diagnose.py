"""Diagnosis: a healthy run has no verdict, each cause is found on records made by hand, the arithmetic is shown."""

import numpy as np
import pytest

import rooflinekit as rk
from rooflinekit.calibration.causes import CAUSES
from rooflinekit.calibration.deviations import tell
from rooflinekit.calibration.injected import FAULTS, confusion
from rooflinekit.calibration.symptoms import read_cases
from rooflinekit.errors import InvalidInputError

CARD = rk.Deployment("qwen3-8b", "h200-sxm", memory_check=False)
GB10 = rk.Deployment("qwen3-8b", "gb10")
PACKED = rk.Deployment("llama-3.1-8b", "a100-sxm-80gb", weights="int4", memory_check=False)
PLAIN = PACKED.with_(weights="bf16")
PROMPT, OUTPUT = 1024.0, 256.0
MIDDLE = PROMPT + (OUTPUT - 1) / 2


def seconds(estimate):
    """Give the time of one pass."""
    return float(estimate.time_s)


def run(thought=CARD, sent=16, *, real=None, running=None, slow=1.0, products=1.0, added=0.0, share=None, cached=0.0):
    """Say by hand what a client sees: a prefill, steps alone, and steps that carry another request's prompt."""
    real, running = real or thought, running or sent
    prefill = products * seconds(thought.prefill(PROMPT, cached_tokens=cached)) * slow + added
    alone = seconds(real.decode(MIDDLE, batch=running)) * slow + added
    mixed = products * seconds(thought.step((PROMPT, 0, 1), (1, MIDDLE, max(running - 1, 1)))) * slow + added
    part = min((running - 1) / OUTPUT, 1.0) if share is None else share
    mean = alone + part * (mixed - alone)
    return {
        "time_to_first_token_s": prefill + mean / 2 * (sent > 1), "prefill_time_s": prefill,
        "time_per_output_token_s": mean, "inter_token_latency_s": max(mixed, mean),
        "output_tokens_per_s": running * OUTPUT / (prefill + OUTPUT * mean),
    }  # fmt: skip


def records(seen, sent=16):
    """Write it down as a client's file does."""
    how = {"inter_token_latency_s": "p99", "time_per_output_token_s": "mean", "time_to_first_token_s": "median"}
    facts = {"prompt_tokens": PROMPT, "output_tokens": OUTPUT, "concurrency": sent, "requests": 10.0 * sent}
    return [
        rk.Measurement(quantity=name, value=value, statistic=how.get(name, "single"), **facts)
        for name, value in seen.items()
    ]


def later(seen, wait):
    """Let requests wait before their prefill."""
    return {**seen, "time_to_first_token_s": seen["time_to_first_token_s"] + wait}


def both(thought=CARD, **fault):
    """See a machine at a load and at a lighter one."""
    return [*records(run(thought, 16, **fault), 16), *records(run(thought, 2, **fault), 2)]


ROOM = CARD.device.memory_bytes * 0.9 - CARD.weights_bytes
FIT = int(ROOM / CARD.kv_cache_bytes(MIDDLE))
HELD = run(sent=2 * FIT, running=FIT)
FULL = {
    **later(HELD, OUTPUT * HELD["time_per_output_token_s"]),
    "requests_running": FIT, "requests_waiting": FIT, "kv_cache_usage": 0.99, "preemptions": 7.0,
}  # fmt: skip
FLOOR = CARD.decode(MIDDLE, batch=16).floor_s
BELOW = {"time_per_output_token_s": FLOOR / 2, "output_tokens_per_s": 8000.0}

# fmt: off
CASES = [
    # cause                                 what should have run, records
    ("queueing",                            CARD, records({**later(run(), 2.0), "requests_waiting": 12.0})),
    ("cache full",                          CARD, records(FULL, 2 * FIT)),
    ("prefix hits",                         CARD, both(cached=768.0)),
    ("chunk interference",                  CARD, records(run(share=0.5))),
    ("wrong peaks or power limit",          CARD, both(slow=2.5)),
    ("host-bound",                          CARD, both(added=0.02)),
    ("quantisation without a fast kernel",  PACKED, both(PACKED, real=PLAIN, products=1.7)),
    ("smaller batch than thought",          CARD, records({**run(running=4), "requests_running": 4.0})),
    ("measurement above the ceiling",       CARD, records({**run(), **BELOW})),
]
# fmt: on


def test_every_cause_has_its_case():
    """All that are told, on a record each; a cold start is one request's, a slow client one of a rate's."""
    others = {"cold start", "client slower than stated"}
    assert {name for name, *_ in CASES} | others == {one.name for one in CAUSES}
    assert {*FAULTS} == {name for name, *_ in CASES} | {"none"}


@pytest.mark.parametrize(("cause", "thought", "seen"), CASES, ids=[name for name, *_ in CASES])
def test_each_cause_is_found(cause, thought, seen):
    """It is ranked first and explains most of what is off; the change and the measurement are its own."""
    found = rk.diagnose(seen, thought)
    first = found.findings[0]
    assert first.cause == cause
    assert cause in found.verdict
    assert first.explains > 0.6
    assert (found.change, first.change) == (next(one.change for one in CAUSES if one.name == cause),) * 2


def test_healthy_runs_have_no_verdict():
    """As predicted, or as the article measured: nothing to change, nothing to measure."""
    article = [
        rk.Measurement(quantity=name, value=value, prompt_tokens=2048, output_tokens=65, batch=1)
        for name, value in (("prefill_time_s", 0.412), ("decode_step_s", 0.0744))
    ]
    for thought, seen in ((CARD, both()), (GB10, article)):
        found = rk.diagnose(seen, thought)
        assert (found.cause, found.change, found.measurement) == (None, "none needed", "none needed")
        assert found.verdict.startswith("nothing unusual")
        assert all(abs(one.deviations) < 1 for one in found.symptoms)


def test_a_cold_start_from_four_counters():
    """DeepSeek-R1 14B on an L40S: 2.6 s for 11 tokens that take 24 ms, and steps as they should be."""
    seen = {"prompt_tokens": 11, "output_tokens": 1099, "batch": 1}
    counters = [
        rk.Measurement(quantity="prefill_time_s", value=2.599748914, **seen),
        rk.Measurement(quantity="decode_time_s", value=27.159271675, count=1098, **seen),
    ]
    thought = rk.Deployment("qwen2.5-14b", "l40s", engine="llama.cpp", weights="q8_0")
    found = rk.diagnose(counters, thought)
    assert found.cause == "cold start"
    assert found.verdict.startswith("cold start: 2.5")
    prefill, step = found.symptoms
    assert (prefill.observed, step.observed) == (2.599748914, pytest.approx(27.159271675 / 1098))
    assert prefill.expected == pytest.approx(seconds(thought.prefill(11)))
    assert step.expected == pytest.approx(seconds(thought.decode(560)))
    assert prefill.floor == pytest.approx(thought.prefill(11).floor_s)
    assert prefill.basis == "prefill of 11 tokens: 15.1 GB, memory-bound"
    assert step.basis == "step of 1 sequence at 560 tokens: 15.0 GB, memory-bound"


def test_deviations_are_in_standard_deviations():
    """The logarithm of the ratio over noise and spread together: ln 2 over some 6% is more than ten."""
    twice = rk.Measurement(quantity="decode_step_s", value=0.1494, prompt_tokens=2048, output_tokens=2, batch=1)
    (symptom,) = rk.diagnose([twice], GB10).symptoms
    (case,) = read_cases([twice], GB10)
    assert symptom.deviations == pytest.approx(np.log(0.1494 / symptom.expected) / case.spread["step_s"])
    assert symptom.deviations > 10


def test_one_time_below_its_floor():
    """Field mistake 28: a step that no machine can do, beside a rate that is as it should be, is a measuring fault."""
    found = rk.diagnose(records({**run(), "time_per_output_token_s": FLOOR / 2}), CARD)
    assert found.cause == "measurement above the ceiling"
    assert "1.85 ms where 7.24 ms is expected, and 3.71 ms is the floor" in found.verdict
    assert found.change.startswith("look for the fault in the measurement")


def test_it_cannot_tell_two_causes_apart():
    """One prefill alone, five times too long: a cold start, the host or the card, and the next run is named."""
    found = rk.diagnose([rk.Measurement(quantity="prefill_time_s", value=2.1, prompt_tokens=2048, batch=1)], GB10)
    assert found.verdict.startswith("cannot tell which: ")
    assert found.cause is None
    assert found.measurement not in {"none needed", "none yet"}


def test_two_faults_are_said_as_two():
    """Prompts wait at a prefill server while few sequences run at the decode server: one cause is not enough."""
    seen = later(run(sent=128, running=4), 3.4)
    found = rk.diagnose(records(seen, 128), CARD)
    assert {one.cause for one in found.findings[:2]} == {"smaller batch than thought", "queueing"}
    assert found.verdict.startswith("smaller batch than thought: 4.0 sequences run together, not 128; that explains")
    assert found.verdict.endswith("so a second cause is likely: queueing?")


@pytest.mark.parametrize(
    ("quantity", "why"),
    [
        ("kv_cache_tokens", "nothing in it is a time"),
        ("total_tokens_per_s", "prompt and output tokens are in one rate"),
    ],
)
def test_it_cannot_tell_without_a_time(quantity, why):
    """Memory figures and rates that mix the phases show no phase; what to measure is said."""
    found = rk.diagnose([rk.Measurement(quantity=quantity, value=5000.0)], GB10)
    assert found.verdict.startswith("cannot tell: ")
    assert why in found.verdict
    assert (found.symptoms, found.findings) == ((), ())
    assert "time to first token" in found.measurement


def test_zeros_are_no_times():
    """A time, a rate or a p99 of 0 was not measured; a state of 0 was."""
    names = ("time_to_first_token_s", "inter_token_latency_s", "output_tokens_per_s", "requests_waiting")
    seen = dict.fromkeys(names, 0.0)
    (case,) = read_cases(records({**seen, "prefill_time_s": 0.03}), CARD)
    assert case.observed == {"prefill_s": 0.03, "waiting": 0.0}


def test_a_prompt_is_asked_for():
    """A time of a phase without the length of its prompt is bad input."""
    with pytest.raises(InvalidInputError, match=r"give prompt_tokens \(--prompt\)"):
        rk.diagnose([rk.Measurement(quantity="time_to_first_token_s", value=0.2)], GB10)


def test_a_fixed_batch_is_one_prefill():
    """Sixteen prompts that start together are read together, and then decode together; a whole run is a request."""
    facts = {"batch": 16, "prompt_tokens": 128, "output_tokens": 2048}
    whole = rk.Measurement(quantity="batch_latency_s", value=84.2, **facts)
    total = rk.Measurement(quantity="run_time_s", value=168.4, requests=32, **facts)
    thought = GB10.with_(memory_check=False)
    expected = seconds(thought.prefill(128, batch=16)) + 2047 * seconds(thought.decode(128 + 1023.5, batch=16))
    for one in (whole, total):
        (symptom,) = rk.diagnose([one], thought).symptoms
        assert (symptom.name, symptom.observed) == ("request_s", pytest.approx(84.2))
        assert symptom.expected == pytest.approx(expected)


def test_a_cached_prefix_that_is_known_is_no_fault():
    """32 of 45 tokens lay in the cache: what is expected is the prefill of 13."""
    one = rk.Measurement(quantity="prefill_time_s", value=0.08, prompt_tokens=45, cached_tokens=32, batch=1)
    (symptom,) = rk.diagnose([one], GB10).symptoms
    assert symptom.expected == pytest.approx(seconds(GB10.prefill(45, cached_tokens=32)))
    assert symptom.basis.startswith("prefill of 45 tokens after 32 cached: 15.3 GB, memory-bound")


def test_the_busiest_window_of_a_log_counts():
    """A log ramps up and idles: the most that ran, waited and was used is the state."""
    facts = {"prompt_tokens": 200, "output_tokens": 200}
    states = [
        rk.Measurement(quantity=name, value=value, line=line, **facts)
        for line, row in enumerate([(1, 0, 0.01), (40, 3, 0.5), (2, 0, 0.02)], 1)
        for name, value in zip(("requests_running", "requests_waiting", "kv_cache_usage"), row, strict=True)
    ]
    (case,) = read_cases(states, CARD)
    assert case.observed == {"running": 40, "waiting": 3, "usage": 0.5}
    assert (case.batch, case.served) == (40, True)


def test_the_engines_own_pool_counts():
    """A startup log's tokens are how many sequences fit, whatever the settings were."""
    pool = rk.Measurement(quantity="kv_cache_tokens", value=115_150.0)
    (case,) = read_cases([*records(run()), pool], CARD)
    assert case.pool_sequences == pytest.approx(115_150 / MIDDLE)


def test_confusion_of_a_few():
    """Three runs a fault: the right cause first in four of five, and healthy runs without a verdict."""
    _judge(confusion(3), 3)


@pytest.mark.slow
def test_confusion():
    """200 runs a fault with 5% noise: first in 80%, among the first two in 95%, healthy without a verdict in 95%."""
    _judge(confusion(200), 200)


def _judge(found, count):
    faults = [name for name in FAULTS if name != "none"]
    first = np.array([found.loc[name, name] for name in faults]) / count
    among = np.array([found.loc[name, "in_first_two"] for name in faults]) / count
    assert first.mean() >= 0.8
    assert among.mean() >= 0.95
    assert first.min() >= 0.6
    assert found.loc["none", "none"] >= 0.95 * count


def served(prompt, **seen):
    """Give a run of many requests whose prompts are `prompt` tokens in the mean."""
    how = {"inter_token_latency_s": "p99", "time_to_first_token_s": "median", "time_per_output_token_s": "mean"}
    facts = {"prompt_tokens": prompt, "output_tokens": 64.0, "concurrency": 16.0, "requests": 160.0}
    return [rk.Measurement(quantity=name, value=value, statistic=how[name], **facts) for name, value in seen.items()]


@pytest.mark.parametrize(("prompt", "unusual"), [(203.0, True), (203.4, False)], ids=["equal lengths", "varied"])
def test_a_longer_prompt_may_be_in_the_longest_gap(prompt, unusual):
    """A mean that is no whole number is of prompts that differ: the p99 of the gaps may carry a longer one."""
    (case,) = read_cases(served(prompt, time_per_output_token_s=0.01), CARD)
    full = seconds(CARD.step((2048, 0, 1), (1, case.context_tokens, 15)))
    clean = {name: float(case.clean[name]) for name in ("ttft_s", "step_s")}
    found = rk.diagnose(
        served(prompt, time_to_first_token_s=clean["ttft_s"], time_per_output_token_s=clean["step_s"],
               inter_token_latency_s=0.9 * full), CARD,
    )  # fmt: skip
    (gap,) = [one for one in found.symptoms if one.name == "gap_p99_s"]
    assert gap.observed > 2 * gap.expected
    assert (gap.deviations > 3, not found.healthy) == (unusual, unusual)


def test_a_p99_at_the_edge_is_of_either_kind():
    """Of 16 sequences and answers of 800 tokens 1.9% of the steps carry a chunk: a p99 of a step alone is no fault."""
    facts = {"prompt_tokens": 2048.0, "output_tokens": 800.0, "concurrency": 16.0}
    (case,) = read_cases([rk.Measurement(quantity="decode_step_s", value=0.01, **facts)], CARD)
    alone, mixed = (float(case.clean[name]) for name in ("other_gap_s", "gap_p99_s"))
    assert mixed > 5 * alone
    for value in (0.93 * alone, mixed):
        tail = rk.Measurement(quantity="inter_token_latency_s", value=value, statistic="p99", **facts)
        found = rk.diagnose([tail], CARD)
        (symptom,) = found.symptoms
        assert found.healthy
        assert symptom.expected == pytest.approx(value, rel=0.1)


def test_far_off_within_a_wide_spread_is_not_called_usual():
    """405B on eight H100 of another engine's constants: 1.7 times off is no rarity there, 3.3 times is not usual."""
    thought = rk.Deployment(
        "llama-3.1-405b", "h100-sxm", weights="fp8", tensor_parallel=8, engine="vllm", memory_check=False
    )
    facts = {"batch": 128, "prompt_tokens": 2048, "output_tokens": 2048}
    expected = (
        rk.diagnose([rk.Measurement(quantity="batch_latency_s", value=100.0, **facts)], thought).symptoms[0].expected
    )
    for ratio, beginning in ((1.3, "nothing unusual"), (3.0, "cannot tell: whole request")):
        one = rk.Measurement(quantity="batch_latency_s", value=ratio * expected, **facts)
        assert rk.diagnose([one], thought).verdict.startswith(beginning)


def test_a_whole_batch_shows_no_cold_start():
    """Where only the whole was timed, the wait before a prefill is no candidate."""
    one = rk.Measurement(quantity="batch_latency_s", value=100.0, batch=16, prompt_tokens=2048, output_tokens=128)
    assert "cold start" not in {one.cause for one in rk.diagnose([one], GB10).findings}


def test_the_larger_of_two_faults_is_named_first():
    """A first token 200 times late and steps 3.4 times late: the wait is named, and a second cause behind it."""
    seen = {"prompt_tokens": 26, "output_tokens": 290, "batch": 1}
    step = seconds(GB10.decode(26 + 144.5))
    found = rk.diagnose([
        rk.Measurement(quantity="prefill_time_s", value=200 * seconds(GB10.prefill(26)), **seen),
        rk.Measurement(quantity="decode_step_s", value=1.5 * step, **seen),
    ], GB10)  # fmt: skip
    assert found.cause == "cold start"
    assert "so a second cause is likely" in found.verdict


# ---- what cannot be, and what follows


def test_nothing_is_above_the_ceiling_that_is_above_its_floor():
    """Steps at half of what is expected, and yet twice their floor: fast, and no fault of the measurement."""
    (case,) = read_cases(records(run()), CARD)
    seen = {**run(), "time_per_output_token_s": 0.75 * float(case.clean["step_s"])}
    assert seen["time_per_output_token_s"] > case.floors_s["step_s"]
    assert "measurement above the ceiling" not in {one.cause for one in rk.diagnose(records(seen), CARD).findings}


@pytest.mark.parametrize(("part", "listed"), [(0.9, True), (1.1, False)])
def test_it_is_listed_from_the_floor_on(part, listed):
    """A prefill at 90% of its floor cannot be; one at 110% can."""
    floor = CARD.prefill(PROMPT).floor_s
    found = rk.diagnose(records({**run(), "prefill_time_s": part * floor}), CARD)
    assert ("measurement above the ceiling" in {one.cause for one in found.findings}) is listed


@pytest.mark.parametrize("known", [{"cached_tokens": 768.0}, {"hit_rate": 0.76}])
def test_the_floor_of_a_cached_prefill_is_that_of_the_rest(known):
    """768 of 1,024 tokens lie in the cache, as the file or a scrape says: 256 are read."""
    facts = {"prompt_tokens": PROMPT, "batch": 1, "cached_tokens": known.get("cached_tokens")}
    told = [rk.Measurement(quantity="prefill_time_s", value=0.4, **facts)]
    if "hit_rate" in known:
        told.append(rk.Measurement(quantity="prefix_cache_hit_rate", value=known["hit_rate"]))
    (case,) = read_cases(told, CARD)
    held = known.get("cached_tokens", np.floor(0.76 * (PROMPT - 1)))
    assert case.floors_s["prefill_s"] == pytest.approx(CARD.prefill(PROMPT, cached_tokens=held).floor_s)
    assert case.floors_s["prefill_s"] < CARD.prefill(PROMPT).floor_s


def states(running, waiting, usage):
    """Write a scrape down: steps as they should be, first tokens of nine seconds."""
    facts = {"prompt_tokens": PROMPT, "output_tokens": OUTPUT}
    seen = {
        "time_to_first_token_s": 9.0, "time_per_output_token_s": run(sent=running)["time_per_output_token_s"],
        "requests_running": running, "requests_waiting": waiting, "kv_cache_usage": usage,
    }  # fmt: skip
    return [rk.Measurement(quantity=name, value=value, **facts) for name, value in seen.items()]


def test_a_full_cache_does_not_contradict_itself():
    """Twenty run and 44 wait at a usage of 99.5% where hundreds would fit: the pool is not what was thought."""
    found = rk.diagnose(states(20, 44, 0.995), CARD)
    assert found.cause == "cache full"
    assert found.verdict == (
        f"cache full: usage is 99.5% with 20 of 64 requests running, where about {_fitting():.0f} would fit: "
        "the pool is smaller or the requests are longer than thought"
    )


def _fitting():
    (case,) = read_cases(states(20, 44, 0.995), CARD)
    return case.pool_sequences


def test_what_follows_from_a_full_cache_is_no_second_cause():
    """Queueing explains the wait as well, and comes from the cache: neither tied with it nor behind it."""
    found = rk.diagnose(records(FULL, 2 * FIT), CARD)
    assert found.cause == "cache full"
    assert "queueing" not in found.verdict
    assert {"queueing", "smaller batch than thought"} <= {one.cause for one in found.findings}


# ---- what is no figure


def test_what_measured_nothing_is_said():
    """A time of 0 is not judged, and a run with one is not called sound as a whole."""
    facts = {"prompt_tokens": 2048, "output_tokens": 65, "batch": 1}
    told = [
        rk.Measurement(quantity="prefill_time_s", value=0.412, **facts),
        rk.Measurement(quantity="time_per_output_token_s", value=0.0, statistic="median", **facts),
    ]
    found = rk.diagnose(told, GB10)
    assert found.verdict.endswith(
        "not judged, since it measured nothing (0 or less): time_per_output_token_s (1 figure)"
    )
    assert [one.name for one in found.symptoms] == ["prefill_s"]
    assert (found.healthy, found.change) == (False, "none needed in the rest")


def test_an_absurd_figure_is_short():
    """A step of 1e305 seconds is told with an exponent."""
    one = rk.Measurement(quantity="decode_step_s", value=1e305, prompt_tokens=2048, output_tokens=2, batch=1)
    found = rk.diagnose([one], GB10)
    assert "1.00e+305 s" in tell(found.symptoms[0])
    assert len(found.verdict) < 300


def test_no_record_is_an_error():
    """An empty list says what is missing."""
    with pytest.raises(InvalidInputError, match="records: expected at least one measurement, none was given"):
        rk.diagnose([], GB10)


def test_a_prompt_after_a_deep_cache_is_as_usual():
    """llama-bench's depth: 512 tokens after 32,768 that the cache holds take what such a prefill takes."""
    deep = seconds(GB10.prefill(32768 + 512, cached_tokens=32768))
    seen = {"prefill_time_s": (deep, {"prompt_tokens": 512}), "decode_step_s": (seconds(GB10.decode(32768)), {})}
    listed = [
        rk.Measurement(quantity=name, value=value, batch=1, context_tokens=32768, **facts)
        for name, (value, facts) in seen.items()
    ]
    found = rk.diagnose(listed, GB10)
    assert found.cause is None
    assert found.verdict.startswith("nothing unusual")
    assert deep > 1.2 * seconds(GB10.prefill(512))
