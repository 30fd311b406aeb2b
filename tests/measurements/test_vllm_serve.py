"""vLLM's serving benchmark, as JSON and as console text: each figure is the file's own, in base units."""

import json
from pathlib import Path

import pytest

from rooflinekit.errors import InvalidInputError
from rooflinekit.measurements.reading import read

FILES = Path(__file__).parent / "files" / "vllm"
TTFT, TPOT, ITL = "time_to_first_token_s", "time_per_output_token_s", "inter_token_latency_s"

# fmt: off
TABLE = [
    # file                         quantity                statistic  value
    ("serve_2024_1000qps.json",    TTFT,                   "mean",    18.688458913764),
    ("serve_2024_1000qps.json",    TTFT,                   "median",  9.156044752499838),
    ("serve_2024_1000qps.json",    TPOT,                   "std",     0.020702666073196166),
    ("serve_2024_1000qps.json",    ITL,                    "p99",     0.33366579954999906),
    ("serve_2024_1000qps.json",    "output_tokens_per_s",  "single",  1247.7246135492594),
    ("serve_2024_1000qps.json",    "total_tokens_per_s",   "single",  3445.075944924082),
    ("serve_2024_1000qps.json",    "run_time_s",           "single",  97.93427065000014),
    ("serve_2024_16qps.json",      TTFT,                   "p99",     9.912536467760054),
    ("serve_2024_16qps.json",      TPOT,                   "median",  0.11245452213559825),
    ("serve_2024_16qps.json",      "requests_per_s",       "single",  9.933701079436696),
    ("serve_2025_in128_out2048.json", TTFT,                "median",  0.22745685300014884),
    ("serve_2025_in128_out2048.json", TPOT,                "mean",    0.010695648060772799),
    ("serve_2025_in128_out2048.json", "requests_completed", "total",  500),
    ("serve_2025_in2048_out128.json", ITL,                 "std",     0.007509721071024759),
    ("serve_2025_in2048_out128.json", "total_tokens_per_s", "single", 46104.13603793247),
    ("serve_4090.txt",             TTFT,                   "median",  0.0492),
    ("serve_4090.txt",             TPOT,                   "p99",     0.02795),
    ("serve_4090.txt",             "output_tokens_per_s",  "single",  787.62),
    ("serve_4090.txt",             "total_tokens_per_s",   "single",  1542.71),
    ("serve_4090.txt",             "requests_running",     "max",     39),
    ("serve_4090.txt",             "requests_failed",      "total",   0),
    ("serve_a100.txt",             ITL,                    "mean",    0.01595),
    ("serve_a100.txt",             "run_time_s",           "single",  190.55),
    ("serve_a100.txt",             "requests_per_s",       "single",  3.78),
]
CONDITIONS = [
    # file                           requests, prompt, output, concurrency, rate, model
    ("serve_2024_1000qps.json",      (1000, 215.196, 122.195, None, 1000.0, "meta-llama/Llama-3.1-405B-FP8")),
    ("serve_2024_16qps.json",        (1000, 215.196, 120.689, None, 16.0, "meta-llama/Llama-3.1-405B-FP8")),
    ("serve_2025_in128_out2048.json", (500, 127.992, 681.962, 128, None, "openai/gpt-oss-120b")),
    ("serve_2025_in2048_out128.json", (500, 2046.202, 67.168, 128, None, "openai/gpt-oss-120b")),
    ("serve_4090.txt",               (720, 145810 / 720, 152091 / 720, None, 4.0, None)),
    ("serve_a100.txt",               (720, 145810 / 720, 152171 / 720, None, 4.0, None)),
]
# fmt: on


def held(run, name="run.json"):
    """Read one run, or several, of the JSON form."""
    runs = run if isinstance(run, list) else [run]
    return read(name, content="\n".join(json.dumps(one) for one in runs).encode())


def run(**more):
    """Write a small run of the JSON form."""
    keys = {
        "model_id": "org/m", "tokenizer_id": "org/m", "num_prompts": 10, "request_rate": "inf", "max_concurrency": 4,
        "completed": 10, "total_input_tokens": 1000, "total_output_tokens": 500, "duration": 2.0, "mean_ttft_ms": 40.0,
    }  # fmt: skip
    return keys | more


def picked(reading, quantity, statistic=None):
    """Give the values of a quantity."""
    return [one.value for one in reading.records if one.quantity == quantity and statistic in {None, one.statistic}]


@pytest.mark.parametrize(("file", "quantity", "statistic", "value"), TABLE)
def test_each_figure_is_the_files_own(file, quantity, statistic, value):
    """Milliseconds become seconds, everything else stays as it is written."""
    assert picked(read(FILES / file), quantity, statistic) == pytest.approx([value], rel=1e-12)


@pytest.mark.parametrize(("file", "conditions"), CONDITIONS)
def test_each_record_says_what_it_was_measured_on(file, conditions):
    """Lengths are means over finished requests; the client does not say which engine it measured."""
    requests, prompt, output, concurrency, rate, model = conditions
    for one in read(FILES / file).records:
        assert (one.requests, one.concurrency, one.request_rate, one.model) == (requests, concurrency, rate, model)
        assert (one.prompt_tokens, one.output_tokens) == pytest.approx((prompt, output))
        assert one.tool == "vLLM"
        assert one.engine is one.tensor_parallel is one.version is None


def test_what_the_file_lacks_is_named():
    """The user is asked for the engine, the GPU, the weights and the parallelism."""
    assert read(FILES / "serve_2025_in128_out2048.json").lacks == ("device", "engine", "weights", "tensor_parallel")


def test_arrays_of_single_requests_become_no_records():
    """A detailed file gives as many records as its summary: 12 times, 4 of the run, 1 count."""
    assert len(read(FILES / "serve_2024_16qps.json")) == 17


def test_appended_runs_stay_apart():
    """With --append-result a .json holds an object a line."""
    reading = held([run(max_concurrency=1), run(max_concurrency=8, mean_ttft_ms=90.0)])
    ttft = [one for one in reading.records if one.quantity == TTFT]
    assert [(one.line, one.concurrency, one.value) for one in ttft] == [(1, 1, 0.04), (2, 8, 0.09)]


def test_percentiles_and_end_to_end_are_read_as_named():
    """The percentile is in the key, with a fraction where one was asked for."""
    reading = held(run(**{"p99.9_ttft_ms": 120.0, "p50_e2el_ms": 700.0}))
    assert picked(reading, TTFT, "p99.9") == pytest.approx([0.12])
    assert picked(reading, "end_to_end_s", "p50") == pytest.approx([0.7])


def test_times_that_are_none_of_a_server_are_counted():
    """Newer versions write how long a request waited in the client."""
    reading = held(run(mean_client_queue_time_ms=3.0, p99_client_queue_time_ms=9.0))
    assert reading.skipped == {"client_queue_time: no quantity of a server": 2}


@pytest.mark.parametrize("key", ["request_goodput", "request_goodput:"])
def test_requests_that_kept_their_limits(key):
    """Under both spellings of the key; null where no limits were given."""
    assert picked(held(run(**{key: 7.5})), "goodput_requests_per_s") == [7.5]
    assert picked(held(run(**{key: None})), "goodput_requests_per_s") == []


def test_gaps_of_a_speculating_server_are_between_chunks():
    """A chunk holds several tokens then, and the acceptance rate is a percentage."""
    reading = held(run(mean_itl_ms=50.97, spec_decode_acceptance_rate=47.16, spec_decode_acceptance_length=4.77))
    assert picked(reading, "inter_chunk_latency_s") == pytest.approx([0.05097])
    assert picked(reading, ITL) == []
    assert picked(reading, "acceptance_rate") == pytest.approx([0.4716])
    assert picked(reading, "accepted_tokens_per_step") == [4.77]


@pytest.mark.parametrize(("limit", "burst"), [(None, True), (4, False)])
def test_a_burst_is_said_at_its_first_token(limit, burst):
    """Sent all at once and without a limit, requests wait for each other, and that is in TTFT."""
    (ttft,) = [one for one in held(run(max_concurrency=limit)).records if one.quantity == TTFT]
    assert ("queue of a burst" in ttft.includes) is burst


def test_failed_requests_are_recorded_and_said():
    """The statistics leave them out, so the reader is told."""
    reading = held(run(failed=3))
    assert picked(reading, "requests_failed") == [3]
    assert any(why.startswith("requests failed") for why in reading.skipped)


def test_parallelism_that_the_user_wrote_into_the_file_is_kept():
    """Pairs of --metadata are texts; only the one we know is read."""
    assert {one.tensor_parallel for one in held(run(tensor_parallel_size="8", note="x")).records} == {8}
    assert {one.tensor_parallel for one in held(run(tensor_parallel_size="auto")).records} == {None}


def test_noughts_and_numbers_that_are_not_finite_are_no_times():
    """A time of 0 is skipped with its reason, Infinity and null are as if the key were missing."""
    reading = held(run(mean_tpot_ms=0.0, std_tpot_ms=float("inf"), p99_tpot_ms=None, total_output_tokens=0))
    assert picked(reading, TPOT) == []
    assert reading.skipped == {"time_per_output_token_s of 0: nothing was measured": 1}
    assert reading.records[0].output_tokens is None


# fmt: off
COPY = [{"benchmark": {"name": "vLLM benchmark"}, "metric": {"benchmark_values": [1.0]}}]
BROKEN = [
    # content                                                   text of the error
    (json.dumps(run(completed=0)),                              "a run in which no request finished"),
    (json.dumps(run(completed=None)),                           "line 1: `completed` = None: expected a number"),
    (json.dumps(run(mean_ttft_ms="fast")),                      "line 1: `mean_ttft_ms` = 'fast': expected a number"),
    (json.dumps(run(mean_ttft_ms=[1])),                         r"`mean_ttft_ms` = \[1\]: expected a number"),
    (json.dumps(run(model_id=7)),                               r"`model_id` = 7: expected a text"),
    (json.dumps(run(), indent=1)[:-20],                         "JSON ends in the middle: the file is cut"),
    (json.dumps(run()) + "\n" + json.dumps(run(duration={})),   "line 2: `duration` = {}: expected a number"),
    (json.dumps(COPY),                                          "copy in PyTorch's benchmark format .* NAME.json"),
]
# fmt: on


@pytest.mark.parametrize(("content", "message"), BROKEN)
def test_a_broken_result_is_refused_with_its_place(content, message):
    """The error names the line, the key, the value and what was expected."""
    with pytest.raises(InvalidInputError, match=message):
        read("run.json", content=content.encode())


# ---- console text


def console(*lines, end=True):
    """Write a result as the console shows it."""
    head = ("==== Serving Benchmark Result ====", "Successful requests:      10", "Benchmark duration (s):    2.00")
    return "\n".join([*head, *lines, *(["=" * 50] if end else [])]).encode()


def test_text_gives_the_records_that_json_gives():
    """One result written in both forms is read as the same records, up to the text's two decimals."""
    text = console("Total input tokens: 1000", "Total generated tokens: 500", "Mean TTFT (ms):      40.00")
    ahead = b"Traffic request rate: inf\nMaximum request concurrency: 4\nNamespace(backend='vllm', model='org/m')\n"
    ours, theirs = read("a", content=ahead + text).records, held(run()).records
    for one, other in zip(ours, theirs, strict=True):
        assert (one.quantity, one.value, one.statistic) == (other.quantity, other.value, other.statistic)
        assert (one.model, one.concurrency, one.request_rate) == (other.model, other.concurrency, other.request_rate)
        assert (one.prompt_tokens, one.output_tokens) == (other.prompt_tokens, other.output_tokens)


def test_labels_are_read_in_any_case_and_with_a_prefix():
    """Spelling changed with the versions, and containers put their name before each line."""
    text = console("bench-1  | TOTAL TOKEN Throughput (tok/s):   1,542.71", "bench-1  | p99.9 ttft (ms):   7.00")
    reading = read("log", content=b"\x1b[32mstart\x1b[0m\n" + text)
    assert picked(reading, "total_tokens_per_s") == [1542.71]
    assert picked(reading, TTFT, "p99.9") == pytest.approx([0.007])


def test_rates_that_some_versions_print():
    """Prompt tokens alone in 2024, requests within their limits where limits were given."""
    reading = read("log", content=console("Input token throughput (tok/s):  51.5", "Request goodput (req/s):  3.5"))
    assert picked(reading, "prompt_tokens_per_s") == [51.5]
    assert picked(reading, "goodput_requests_per_s") == [3.5]


def test_a_statistic_that_is_not_read_is_counted_with_its_name():
    """Forks and newer versions print more; a line without a number alone is no statistic."""
    lines = "Accuracy Rate (%):   80.0", "Position 0 (%):   70", "Position 1 (%):   60", "noted at: 12:30 by hand"
    skipped = read("log", content=console(*lines)).skipped
    why = "a line of the result that is not read"
    assert skipped == {f"Accuracy Rate: {why}": 1, f"Position: {why}": 2}


def test_several_results_in_one_log_stay_apart():
    """Each has its own line and its own limit of concurrency, with or without header and end."""
    first = console("Maximum request concurrency:   1", "Mean TTFT (ms):   10.00")
    second = console("Mean TTFT (ms):   20.00", end=False).split(b"\n", 1)[1]
    reading = read("log", content=first + b"\nnoise: 3\n" + second + b"\n" + second + b"\nnoise\n")
    ttft = [(one.line, one.concurrency, one.value) for one in reading.records if one.quantity == TTFT]
    assert ttft == [(1, 1, 0.01), (8, None, 0.02), (11, None, 0.02)]
    assert reading.skipped == {"a result without its closing line: statistics may be missing": 1}


def test_a_result_of_sglang_in_the_same_log_is_left_out():
    """Its text has the same header and other statistics."""
    other = console("Total generated tokens (retokenized):   499", "Mean TTFT (ms):   1.00")
    reading = read("log", content=console("Mean TTFT (ms):   2.00") + b"\n" + other, format="vllm-serve-text")
    assert picked(reading, TTFT) == [0.002]
    assert reading.skipped == {"a result of SGLang's benchmark: not of vLLM": 1}


# fmt: off
BROKEN_TEXT = [
    # content                                               text of the error
    (console("Mean TTFT (ms):    1..2"),                    "line 4: `Mean TTFT` = '1..2': expected a number"),
    (console("Mean TTFT (ms):    40.00", "Mean TPOT (ms):   2", end=False),
                                                            r"line 5: is cut in the middle of a result \(`Mean TPOT"),
    (console("Mean TPOT (ms):", end=False),                 "line 4: is cut in the middle of a result"),
    (console("Total input tokens:   1458", end=False),      r"line 4: is cut in the middle .* \(`Total input tokens"),
    (console().replace(b" 10", b" 0"),                      "a run in which no request finished"),
    (console("Mean TTFT (ms):    40.00").replace(b"Mean", b"\xff"), "is no utf-8 text .byte 0xff.: expected UTF-8"),
]
# fmt: on


@pytest.mark.parametrize(("content", "message"), BROKEN_TEXT)
def test_a_broken_text_is_refused_with_its_place(content, message):
    """Half a number at the end of a file is not taken for a number."""
    with pytest.raises(InvalidInputError, match=message):
        read("log", content=content)
