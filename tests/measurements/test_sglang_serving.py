"""SGLang's bench_serving: several runs in a file, bare Infinity, the printed table, what a server says."""

from dataclasses import asdict
from pathlib import Path

import pytest

from rooflinekit.errors import InvalidInputError
from rooflinekit.measurements.reading import read

FILES = Path(__file__).parent / "files" / "sglang"


def value(file, quantity, **kept):
    """Give the value of the one record of a quantity that has the given fields."""
    found = [
        one.value
        for one in read(FILES / file).records
        if one.quantity == quantity and all(getattr(one, name) == expected for name, expected in kept.items())
    ]
    assert len(found) == 1, found
    return found[0]


MEDIAN, MEAN = {"statistic": "median"}, {"statistic": "mean"}
# fmt: off
VALUES = [
    # file                  quantity                  kept                        expected
    ("serving_online.jsonl",  "time_to_first_token_s", {**MEDIAN, "line": 1},      0.08574514742940664),
    ("serving_online.jsonl",  "inter_token_latency_s", {**MEDIAN, "line": 1},      0.013638956006616354),
    ("serving_online.jsonl",  "end_to_end_s",          {**MEAN, "line": 2},        149.03725147111146),
    ("serving_online.jsonl",  "output_tokens_per_s",   {"request_rate": 16.0},     4288.049348197696),
    ("serving_online.jsonl",  "run_time_s",            {"line": 3},                304.126221193932),
    ("serving_offline.jsonl", "output_tokens_per_s",   {"requests": 3000.0},       4520.698730654741),
    ("serving_offline.jsonl", "end_to_end_s",          {**MEDIAN, "line": 2},      48.729666985571384),
    ("serving_405b.jsonl",    "time_to_first_token_s", {"request_rate": 8.0},      123.71862683666404),
    ("serving_405b.jsonl",    "requests_completed",    {"request_rate": 1.0},      300),
    ("serving.txt",           "end_to_end_s",          MEAN,                       11.74639),
    ("serving.txt",           "inter_token_latency_s", {"statistic": "p95"},       13.75297),
    ("serving.txt",           "prompt_tokens_per_s",   {},                         137022.74),
    ("serving.txt",           "total_tokens_per_s",    {},                         137029.34),
    ("serving.txt",           "requests_running",      {"line": 2},                49.12),
    ("serving.txt",           "output_tokens_per_s",   {"concurrency": 512.0},     456.37),
]
# fmt: on


@pytest.mark.parametrize(("file", "quantity", "kept", "expected"), VALUES)
def test_values(file, quantity, kept, expected):
    """Every sample's numbers come out in base units, under what they mean."""
    assert value(file, quantity, **kept) == pytest.approx(expected, rel=1e-12)


def test_lengths_come_from_the_totals():
    """random_input_len is 1024 in both runs, and the prompts are half as long: 152,612 tokens of 300 requests."""
    first = read(FILES / "serving_online.jsonl").records[0]
    assert first.prompt_tokens == pytest.approx(152612 / 300)
    assert first.output_tokens == pytest.approx(160347 / 300)


def test_unlimited_rate_is_none():
    """A bare Infinity, which is no JSON, stands for no limit."""
    assert {one.request_rate for one in read(FILES / "serving_offline.jsonl").records} == {None}


def test_client_does_not_say_the_engine():
    """The December 2024 files say neither model nor engine nor GPU: they are asked for."""
    lacks = read(FILES / "serving_online.jsonl").lacks
    assert lacks == ("model", "device", "engine", "weights", "tensor_parallel")


RUN = '{"backend": "sglang", "completed": 2, "total_input_tokens": 20, "mean_e2e_latency_ms": 5.0%s}'


def test_server_info_is_taken_by_four_facts():
    """Model, precision, GPUs and version are kept; launch arguments are not."""
    info = (
        ', "server_info": {"model_path": "/home/me/Qwen3-8B", "tp_size": 4, "dtype": "bfloat16", "quantization": null,'
    )
    info += ' "kv_cache_dtype": "auto", "version": "0.5.5", "api_key": "secret", "launch": ["--api-key", "secret"]}'
    reading = read("a", content=(RUN % info).encode())
    one = reading.records[0]
    facts = (one.model, one.weights, one.tensor_parallel, one.version, one.engine, one.kv_cache)
    assert facts == ("Qwen3-8B", "bf16", 4, "0.5.5", "sglang", None)
    assert "secret" not in str([asdict(each) for each in reading.records])


def test_tpot_of_unstreamed_answers_is_left_out():
    """Without streaming TTFT is 0 and TPOT holds the prefill: neither is a record, and both are counted."""
    text = RUN % ', "mean_ttft_ms": 0.0, "median_ttft_ms": 0.0, "mean_tpot_ms": 4.76, "accept_length": null'
    reading = read("a", content=text.encode())
    assert {one.quantity for one in reading.records} == {"requests_completed", "prompt_tokens", "end_to_end_s"}
    assert sum(reading.skipped.values()) == 3


def test_nothing_has_no_spread():
    """A server behind a router streams nothing to the client: zeros, their spread too."""
    reading = read("a", content=(RUN % ', "mean_ttft_ms": 0.0, "std_ttft_ms": 0.0').encode())
    assert "time_to_first_token_s" not in {one.quantity for one in reading.records}
    assert reading.skipped["time_to_first_token_s of 0 or less: spread of 0: one value, or none"] == 1


def test_speculation_and_percentiles():
    """Keys of 2025 are read: percentiles, input rate, accept length."""
    more = ', "p99_tpot_ms": 6.0, "input_throughput": 9.5, "accept_length": 2.5, "max_concurrency": 16'
    reading = read("a", content=(RUN % more).encode())
    got = {(one.quantity, one.statistic): one.value for one in reading.records}
    assert got["time_per_output_token_s", "p99"] == pytest.approx(0.006)
    assert (got["prompt_tokens_per_s", "single"], got["accepted_tokens_per_step", "mean"]) == (9.5, 2.5)
    assert reading.records[0].concurrency == 16


def test_peaks():
    """Of 2025: most requests in flight, and a rate that counts chunks."""
    reading = read("a", content=(RUN % ', "max_concurrent_requests": 20, "max_output_tokens_per_s": 99.0').encode())
    got = {(one.quantity, one.statistic): one.value for one in reading.records}
    assert got["requests_running", "max"] == 20
    assert reading.skipped["peak output rate: it counts streamed chunks, not tokens"] == 1


def test_table_without_end_is_told():
    """A table that ends early may lack statistics, which is said."""
    text = (FILES / "serving.txt").read_text().rsplit("=====", 1)[0][:-60]
    assert "a result without its closing line: statistics may be missing" in read("a", content=text.encode()).skipped


# fmt: off
BROKEN = [
    # content                                                                   message
    (RUN.replace("2, ", '"two", ', 1) % "", "a, line 1: `completed` = 'two': expected a number"),
    (RUN.replace("2, ", "0, ", 1) % "", "1 x a run in which no request finished"),
    (RUN.replace("2, ", "null, ", 1) % "", "`completed` = None: expected a number"),
    ((FILES / "serving_405b.jsonl").read_text()[:100], "JSON ends in the middle"),
    (RUN % ', "p99_ttft_ms": [1]', "`p99_ttft_ms` = .1.: expected a number"),
    (RUN % ', "server_info": "x"', "`server_info` = 'x': expected an object"),
]
# fmt: on


@pytest.mark.parametrize(("content", "message"), BROKEN)
def test_broken_files_are_refused(content, message):
    """One error names file, line, key and value."""
    with pytest.raises(InvalidInputError, match=message):
        read("a", content=content.encode())
