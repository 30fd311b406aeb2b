"""AIPerf and genai-perf: summary (JSON, CSV) and single requests."""

from pathlib import Path

import pytest

from rooflinekit.errors import InvalidInputError
from rooflinekit.measurements.reading import read

FILES = Path(__file__).parent / "files" / "aiperf"


def value(file, quantity, **kept):
    """Give the value of the one record of a quantity that has the given fields."""
    found = [
        one.value
        for one in read(FILES / file).records
        if one.quantity == quantity and all(getattr(one, name) == expected for name, expected in kept.items())
    ]
    assert len(found) == 1, found
    return found[0]


MEAN, P50 = {"statistic": "mean"}, {"statistic": "median"}
# fmt: off
VALUES = [
    # file               quantity                        kept                    expected
    ("concurrency1.json", "time_to_first_token_s",        MEAN,                   0.030814987671875),
    ("concurrency1.json", "time_per_output_token_s",      MEAN,                   0.01819909533160138),
    ("concurrency1.json", "inter_chunk_latency_s",        {"statistic": "max"},   0.028467239),
    ("concurrency1.json", "end_to_end_s",                 {"statistic": "p99"},   3.9093341161199996),
    ("concurrency1.json", "output_tokens_per_s",          {},                     50.08213863971112),
    ("concurrency1.json", "output_tokens_per_s_per_user", MEAN,                   54.96763210350922),
    ("concurrency1.json", "output_tokens",                {"statistic": "total"}, 12799),
    ("concurrency1.json", "run_time_s",                   {},                     255.56017270100003),
    ("concurrency1.json", "requests_per_s",               {"concurrency": 1.0},   0.2504302580624667),
    ("concurrency1.json", "power_w",                      MEAN,                   129.8854497206704),
    ("concurrency2.json", "requests_completed",           {"concurrency": 2.0},   64),
    ("requests.jsonl",    "time_to_first_token_s",        {"line": 2},            0.031742934),
    ("requests.jsonl",    "time_per_output_token_s",      {"line": 3},            0.018233836944723617),
    ("requests.jsonl",    "end_to_end_s",                 {"line": 2},            3.6442601019999997),
    ("summary.csv",       "time_to_first_token_s",        P50,                    2.36932),
    ("summary.csv",       "time_per_output_token_s",      MEAN,                   0.02776),
    ("summary.csv",       "requests_failed",              {},                     11),
    ("summary.csv",       "prompt_tokens",                {"statistic": "total"}, 48950),
    ("summary.csv",       "power_w",                      {"statistic": "max"},   137.17),
    ("genai_perf.csv",    "end_to_end_s",                 MEAN,                   1.6523),
    ("genai_perf.csv",    "end_to_end_s",                 {"statistic": "p99"},   6.43116),
    ("genai_perf.csv",    "requests_per_s",               {"requests": 50.0},     1.2),
]
# fmt: on


@pytest.mark.parametrize(("file", "quantity", "kept", "expected"), VALUES)
def test_values(file, quantity, kept, expected):
    """Every sample's numbers come out in base units, under what they mean."""
    assert value(file, quantity, **kept) == pytest.approx(expected, rel=1e-12)


def test_conditions():
    """Model, load and lengths come from the file, the GPU from its telemetry; two endpoints show one GPU."""
    one = read(FILES / "concurrency1.json").records[0]
    facts = (one.model, one.device, one.prompt_tokens, one.output_tokens, one.requests, one.tool)
    assert facts == ("Qwen/Qwen3-0.6B", "NVIDIA RTX 6000 Ada Generation", 100.0, 199.984375, 64.0, "AIPerf")
    assert one.engine is None


def test_left_out_requests_are_counted():
    """One request of the warm-up, one that failed, one that was cancelled."""
    skipped = read(FILES / "requests.jsonl").skipped
    assert [skipped[f"a request {why}"] for why in ("of the warm-up", "that failed", "that was cancelled")] == [1, 1, 1]


def test_one_gpu_of_two_endpoints():
    """The CSV's second row of the same GPU is skipped, and a comma in its name is no column."""
    reading = read(FILES / "summary.csv")
    assert reading.skipped["a GPU that another endpoint shows as well"] == 1
    assert {one.device for one in reading.records} == {"NVIDIA RTX 6000, Ada"}


def test_time_slices_are_not_mixed_with_the_run():
    """Of a CSV with slices the overall block is read."""
    block = "Metric,avg,min\nRequest Latency (ms),%s,1.0\n\n"
    text = (
        "=== Overall Benchmark Metrics ===\n\n"
        + block % 45.0
        + "=== Time Slice 1 (0.00ms - 5.00ms) ===\n\n"
        + block % 9
    )
    reading = read("a", content=text.encode())
    assert [one.value for one in reading.records] == [0.045, 0.001]
    assert sum(reading.skipped.values()) == 1


SUMMARY = '{"schema_version": "1.4", "aiperf_version": "0.13.0", "request_latency": {"unit": "%s", "avg": %s}%s}'


def summary(unit="ms", mean="500.0", more=""):
    """Read a summary of one metric."""
    return read("a", content=(SUMMARY % (unit, mean, more)).encode())


@pytest.mark.parametrize(("unit", "expected"), [("ms", 0.5), ("us", 5e-4), ("sec", 500.0), ("ns", 5e-7)])
def test_unit_is_read(unit, expected):
    """The unit beside a value decides."""
    assert summary(unit).records[0].value == pytest.approx(expected)


def test_configuration_of_0_13():
    """Models and phases are lists there; the last phase is the one that was measured."""
    config = ', "input_config": {"models": {"items": [{"name": "/data/me/Llama-3.1-8B"}]}, "endpoint": {"urls": ["u"]},'
    config += ' "phases": [{"name": "warmup", "concurrency": 1}, {"name": "profiling", "concurrency": 32}]}'
    config += ', "warmup_metrics": {"request_latency": {"unit": "ms", "avg": 9.0}}, "was_cancelled": true'
    reading = summary(more=config)
    one = reading.records[0]
    assert (one.model, one.concurrency, one.version) == ("Llama-3.1-8B", 32, "0.13.0")
    assert reading.skipped == {"metrics of the warm-up": 1}
    assert reading.settings == {"was_cancelled": True}


def test_configuration_of_genai_perf():
    """Its load stands under the stimulus; it is told from AIPerf by what AIPerf alone writes."""
    text = '{"request_latency": {"unit": "ms", "avg": 2.0}, "input_config": {"model_names": ["gpt2"],'
    text += ' "perf_analyzer": {"stimulus": {"concurrency": 10}}, "endpoint": {"url": "u"}}}'
    one = read("a", content=text.encode()).records[0]
    assert (one.model, one.concurrency, one.tool) == ("gpt2", 10, "genai-perf")


# fmt: off
BROKEN = [
    # content                                                                message
    (SUMMARY % ("furlong", 1, ""), "`unit` = 'furlong': expected one of ns, us"),
    (SUMMARY % ("ms", '"slow"', ""),                                         "`avg` = 'slow': expected a number"),
    (SUMMARY % ("ms", 0, ""),                                                "1 x end_to_end_s of 0 or less"),
    (SUMMARY % ("ms", 1, ', "request_count": {"unit": "requests", "avg": 0}'),
     "1 x a run in which no request finished"),
    ((SUMMARY % ("ms", 1, ""))[:-5],                                         "JSON ends in the middle"),
    ("Metric,avg,min\nRequest Latency (ms),1.0,2.0\nTime to First Token (ms),1",
     "a, line 3: row of 2 cells under a header of 3"),
    ("Metric,avg,min\nRequest Latency (ms),1.0.0,2.0\n", "line 2: `avg` = '1.0.0': expected a number"),
    ("Metric,avg\nRequest Latency (ms),1\n\nMetric,Value\nRequest Count,0\n", "1 x a run in which no request finished"),
]
# fmt: on


@pytest.mark.parametrize(("content", "message"), BROKEN)
def test_broken_files_are_refused(content, message):
    """One error names file, line, key and value."""
    with pytest.raises(InvalidInputError, match=message):
        read("a", content=content.encode())
