"""vLLM's offline benchmarks: latency of a fixed batch, throughput of a whole run."""

import json
from pathlib import Path

import pytest

from rooflinekit.errors import InvalidInputError
from rooflinekit.measurements.reading import read

FILES = Path(__file__).parent / "files" / "vllm"

# fmt: off
TABLE = [
    # file                       quantity              statistic  value
    ("latency_batch128.json",    "batch_latency_s",    "mean",    474.87329929399993),
    ("latency_batch128.json",    "batch_latency_s",    "median",  474.87329929399993),
    ("latency_batch128.json",    "batch_latency_s",    "p99",     474.9046756835201),
    ("latency_batch16.json",     "batch_latency_s",    "mean",    84.22032822099982),
    ("latency_batch16.json",     "batch_latency_s",    "p10",     84.17817019779986),
    ("throughput_128.json",      "total_tokens_per_s", "single",  1297.4433362063426),
    ("throughput_128.json",      "run_time_s",         "single",  214.67450040199947),
    ("throughput_16.json",       "requests_per_s",     "single",  0.2110134337849382),
    ("throughput_16.json",       "requests_completed", "total",   16),
    ("throughput_wrapped.json",  "total_tokens_per_s", "single",  1424.503174121544),
    ("throughput_5090.json",     "run_time_s",         "single",  230.30906111001968),
    ("throughput_5090.json",     "requests_per_s",     "single",  4.341991562035397),
    ("throughput_a100.json",     "total_tokens_per_s", "single",  3771.8246502543934),
]
THROUGHPUT = {"elapsed_time": 2.0, "num_requests": 4, "total_num_tokens": 40, "requests_per_second": 2.0,
              "tokens_per_second": 20.0}
LATENCY = {"avg_latency": 2.0, "latencies": [1.5, 2.5], "percentiles": {"50": 2.0}}
# fmt: on


def held(data):
    """Read one object."""
    return read("run.json", content=json.dumps(data).encode())


@pytest.mark.parametrize(("file", "quantity", "statistic", "value"), TABLE)
def test_each_figure_is_the_files_own(file, quantity, statistic, value):
    """Seconds and rates are base units already."""
    records = read(FILES / file).records
    found = [one.value for one in records if (one.quantity, one.statistic) == (quantity, statistic)]
    assert found == [value]


def test_a_latency_asks_for_its_batch_and_lengths():
    """They are in the command only; two iterations were run, by vLLM itself."""
    reading = read(FILES / "latency_batch16.json")
    assert reading.lacks[-3:] == ("batch", "prompt_tokens", "output_tokens")
    assert {(one.count, one.engine) for one in reading.records} == {(2, "vllm")}
    assert read(FILES / "latency_batch16.json", batch=16, prompt_tokens=2048, output_tokens=2048).lacks[-1:] == (
        "tensor_parallel",
    )


def test_a_latency_of_a_newer_version_names_its_model():
    """The folders of a path are left out."""
    assert held(LATENCY | {"model_id": "/home/someone/models/m"}).records[0].model == "m"


def test_lengths_of_a_wrapper_are_taken_where_they_give_the_total():
    """128 requests of 128 + 2,048 tokens are 278,528; other numbers under these names are of something else."""
    reading = read(FILES / "throughput_wrapped.json")
    assert {(one.prompt_tokens, one.output_tokens, one.requests) for one in reading.records} == {(128, 2048, 128)}
    assert held(THROUGHPUT | {"input": 7, "output": 3}).records[0].prompt_tokens == 7
    assert held(THROUGHPUT | {"input": 8, "output": 3}).records[0].prompt_tokens is None


def test_several_objects_are_several_runs():
    """A runner may join results, as lines or as a list."""
    content = json.dumps([THROUGHPUT, THROUGHPUT | {"num_requests": 9}]).encode()
    assert {one.requests for one in read("runs.json", content=content).records} == {4, 9}


# fmt: off
BROKEN = [
    # content                                          text of the error
    ((FILES / "throughput_failed.json").read_text(),   "line 1: holds an error and no measured value: the run failed"),
    ('{"error": "Failed"}',                            "holds an error and no measured value: the run failed"),
    (json.dumps(THROUGHPUT | {"num_requests": 0}),     "without a record: 1 x a run without a request"),
    (json.dumps(THROUGHPUT | {"num_requests": None}),  "`num_requests` = None: expected a number"),
    (json.dumps(THROUGHPUT | {"elapsed_time": True}),  "`elapsed_time` = True: expected a number"),
    (json.dumps(THROUGHPUT)[:-20],                     "JSON ends in the middle: the file is cut"),
    (json.dumps(LATENCY)[:-20],                        "line 1: JSON ends in the middle: the file is cut"),
    (json.dumps(LATENCY | {"avg_latency": "2 s"}),     "`avg_latency` = '2 s': expected a number"),
    (json.dumps(LATENCY | {"avg_latency": float("inf")}), "`avg_latency` = inf: expected a number"),
    (json.dumps(LATENCY | {"latencies": [None]}),      r"`latencies` = \[None\]: expected a list of numbers"),
    (json.dumps(LATENCY | {"percentiles": {"p50": 2}}), "`p50` = 2: expected the percentiles 10, 25, 50"),
    (json.dumps(LATENCY | {"avg_latency": 0, "percentiles": {}}), "a latency of 0: nothing was measured"),
]
# fmt: on


@pytest.mark.parametrize(("content", "message"), BROKEN)
def test_a_broken_result_is_refused_with_its_reason(content, message):
    """The error names what is wrong and where."""
    with pytest.raises(InvalidInputError, match=message):
        read("run.json", content=content.encode())


def test_rates_of_nought_are_skipped():
    """A rate of 0 is no rate; the other values of the run stay."""
    reading = held(THROUGHPUT | {"tokens_per_second": 0})
    assert reading.skipped == {"total_tokens_per_s of 0: nothing was measured": 1}
    assert len(reading) == 3


# ---- console text

ARGUMENTS = (
    "Namespace(model='/home/me/m', input_len=32, output_len=128, batch_size=8, num_prompts=4, n=1, "
    "tensor_parallel_size=2)"
)
LATENCY_TEXT = "Avg latency: 0.5 seconds\n10% percentile latency: 0.4 seconds\n50% percentile latency: 0.45 seconds"
RATES = "Throughput: 2.00 requests/s, 1,000.50 total tokens/s, 600.25 output tokens/s"
TOTALS = "Total num prompt tokens:  800\nTotal num output tokens:  1200"


def console(*lines):
    """Read what a benchmark printed."""
    return read("run.txt", content="\n".join(lines).encode())


def test_a_latency_on_the_console():
    """The arguments, where they were pasted too, say batch, lengths, model and ranks."""
    reading = console(ARGUMENTS, "Profiling iterations: 100%|####| 30/30", LATENCY_TEXT)
    assert [(one.statistic, one.value) for one in reading.records] == [("mean", 0.5), ("p10", 0.4), ("median", 0.45)]
    assert {(one.batch, one.prompt_tokens, one.output_tokens, one.model) for one in reading.records} == {
        (8, 32, 128, "m")
    }
    assert (reading.format, reading.lacks) == ("vllm-latency-text", ("device", "weights"))
    assert console(LATENCY_TEXT).lacks[-3:] == ("batch", "prompt_tokens", "output_tokens")


def test_a_throughput_on_the_console():
    """Four requests: 800 prompt tokens are 200 each, 1,200 output tokens 300 each."""
    reading = console(ARGUMENTS, RATES, TOTALS)
    rates = {one.quantity: one.value for one in reading.records if one.statistic == "single"}
    assert rates == {"requests_per_s": 2.0, "total_tokens_per_s": 1000.5, "output_tokens_per_s": 600.25}
    one = reading.records[0]
    assert (one.prompt_tokens, one.output_tokens, one.requests, one.phase) == (200, 300, 4, "mixed")
    assert [(one.quantity, one.value) for one in reading.records if one.statistic == "total"] == [
        ("prompt_tokens", 800), ("output_tokens", 1200),
    ]  # fmt: skip


def test_two_rates_are_requests_and_all_tokens():
    """So until 2024; without the arguments nothing is said of the lengths."""
    reading = console("Throughput: 2.00 requests/s, 512.00 tokens/s", RATES)
    assert [(one.quantity, one.line) for one in reading.records] == [
        ("requests_per_s", 1), ("total_tokens_per_s", 1),
        ("requests_per_s", 2), ("total_tokens_per_s", 2), ("output_tokens_per_s", 2),
    ]  # fmt: skip
    assert reading.records[0].prompt_tokens is None


def test_the_log_around_a_console_result_is_named():
    """The engine runs in the same process: what its log says of memory is another format's."""
    reading = console("INFO [model_runner.py:1] Loading model weights took 14.9888 GB", LATENCY_TEXT)
    assert reading.skipped == {"log of a vLLM server in the same file: format='vllm-log' (--format-of) reads it": 1}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (RATES.replace("1,000.50", "1.0.0"), "run.txt, line 1: `total_tokens_per_s` = '1.0.0': expected a number"),
        (RATES.replace("2.00", "0.00").replace("1,000.50", "0.00").replace("600.25", "0.00"), "3 x|without a record"),
        ("Avg latency: 0.0 seconds", "without a record: 1 x a latency of 0: nothing was measured"),
        ("Avg latency: fast seconds", "line 1: `latency` = 'fast': expected a number"),
        ("Profiling iterations:  10%|# | 3/30", "console text of vllm bench latency without a record"),
    ],
)
def test_a_broken_console_text_is_refused(text, message):
    """A run that was stopped, a rate that is no number."""
    with pytest.raises(InvalidInputError, match=message):
        console(text)
