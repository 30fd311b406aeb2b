"""GuideLLM: report as JSON and as CSV."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from rooflinekit.errors import InvalidInputError
from rooflinekit.measurements.reading import read

FILES = Path(__file__).parent / "files" / "guidellm"


def value(file, quantity, **kept):
    """Give the value of the one record of a quantity that has the given fields."""
    found = [
        one.value
        for one in read(FILES / file).records
        if one.quantity == quantity and all(getattr(one, name) == expected for name, expected in kept.items())
    ]
    assert len(found) == 1, found
    return found[0]


MEAN, P1 = {"statistic": "mean"}, {"statistic": "p1"}
# fmt: off
VALUES = [
    # file         quantity                kept                      expected
    ("v0.8.1.json", "end_to_end_s",          MEAN,                     0.16732958952585858),
    ("v0.8.1.json", "time_to_first_token_s", MEAN,                     0.04461300373077392),
    ("v0.8.1.json", "request_per_token_s",   MEAN,                     0.006930488679144117),
    ("v0.8.1.json", "inter_token_latency_s", {"statistic": "median"},  0.005259493122930112),
    ("v0.8.1.json", "end_to_end_s",          P1,                       0.1646099090576172),
    ("v0.8.1.json", "end_to_end_s",          {"statistic": "p99.9"},   0.17122912406921387),
    ("v0.8.1.json", "output_tokens_per_s",   {"concurrency": 2.0},     278.2442458176739),
    ("v0.8.1.json", "run_time_s",            {},                       0.5175309181213379),
    ("v0.8.0.json", "request_per_token_s",   MEAN,                     0.0024421364068984985),
    ("v0.8.0.json", "requests_completed",    {"request_rate": 2.0},    2),
    ("v0.8.0.json", "prompt_tokens",         MEAN,                     71.5),
    ("v0.8.1.csv",  "end_to_end_s",          MEAN,                     0.16732958952585858),
    ("v0.8.1.csv",  "inter_token_latency_s", MEAN,                     0.005292118459508039),
    ("v0.8.1.csv",  "end_to_end_s",          {"statistic": "p25"},     0.16505670547485352),
    ("v0.8.1.csv",  "end_to_end_s",          {"statistic": "p75"},     0.16912555694580078),
    ("v0.8.1.csv",  "total_tokens_per_s",    {"concurrency": 2.0},     498.5209404233324),
    ("v0.8.1.csv",  "requests_completed",    {"version": "0.8.1"},     6),
]
# fmt: on


@pytest.mark.parametrize(("file", "quantity", "kept", "expected"), VALUES)
def test_values(file, quantity, kept, expected):
    """Every sample's numbers come out in base units, under what they mean."""
    assert value(file, quantity, **kept) == pytest.approx(expected, rel=1e-12)


def test_both_forms_hold_the_same():
    """What stands in JSON and CSV of one run is the same, to the last digit."""
    held = [
        {(one.quantity, one.statistic): one.value for one in read(FILES / f"v0.8.1.{end}").records}
        for end in ("json", "csv")
    ]
    shared = held[0].keys() & held[1].keys()
    assert len(shared) > 60
    assert {key: held[0][key] for key in shared} == {key: held[1][key] for key in shared}


def test_percentiles_of_instantaneous_rates_are_left_out():
    """Five rates and states have a mean only: the percentiles between two events reach 759 requests/s here."""
    assert read(FILES / "v0.8.1.json").skipped == {"percentiles of rates between two events": 5}


def test_conditions():
    """Model, lengths and load are said; a backend's URL is not kept."""
    for file in ("v0.8.1.json", "v0.8.1.csv"):
        reading = read(FILES / file)
        one = reading.records[-1]
        assert (one.model, one.prompt_tokens, one.requests, one.engine) == ("mock-model", 19.0, 6.0, None)
        assert "http" not in str([asdict(each) for each in reading.records])


def report(count, total, args=""):
    """Write a report of one metric."""
    group = f'{{"mean": 4.0, "count": {count}, "percentiles": {{"p01": 1.0}}}}'
    metrics = f'{{"request_totals": {{"successful": {total}}}, "time_to_first_token_ms": {{"successful": {group}}}}}'
    strategy = '"scheduler": {"strategy": {"type_": "poisson", "rate": 3.5}}'
    one = f'{{"type_": "generative_benchmark", {strategy}, "metrics": {metrics}}}'
    return f'{{"metadata": {{"guidellm_version": "0.4.0"}}{args}, "benchmarks": [{one}, {one}]}}'.encode()


def test_older_shape_and_several_benchmarks():
    """Version 0.4 has its arguments beside the benchmarks; older ones the strategy under the scheduler."""
    reading = read("a", content=report(2, 2, ', "args": {"model": "org/m", "target": "http://host"}'))
    one = reading.records[1]
    assert (one.value, one.model, one.request_rate, one.version) == (0.004, "org/m", 3.5, "0.4.0")
    assert len(reading) == 6


def test_benchmarks_of_2025():
    """Until 0.3 a benchmark says strategy, model and totals itself, and its TPOT leaves the first token's time out."""
    spreads = {"time_per_output_token_ms": 9.9, "inter_token_latency_ms": 10.0, "output_token_count": 100.0}
    metrics = {name: {"successful": {"mean": mean, "count": 5}} for name, mean in spreads.items()}
    one = {
        "type_": "generative_benchmark", "args": {"strategy": {"type_": "concurrent", "streams": 8}},
        "worker": {"backend_model": "org/m"}, "metrics": metrics, "request_totals": {"successful": 5, "errored": 1},
    }  # fmt: skip
    reading = read("a", content=json.dumps({"benchmarks": [one]}).encode())
    got = {each.quantity: each for each in reading.records}
    assert (got["requests_completed"].value, got["requests_failed"].value) == (5, 1)
    gap = got["inter_token_latency_s"]
    assert (gap.value, gap.concurrency, gap.model, gap.requests) == (0.01, 8, "org/m", 5)
    assert "request_per_token_s" not in got
    assert [why for why in reading.skipped if why.startswith("time_per_output_token_ms until 0.3")]


# fmt: off
BROKEN = [
    # content                                                   message
    (report(0, 0),                                              "2 x a benchmark in which no request succeeded"),
    (report(2, 2)[:-40],                                        "JSON ends in the middle"),
    (report(2, 2).replace(b"4.0,", b'"x",'),                    "a, line 1: `mean` = 'x': expected a number"),
    (report(2, 2).replace(b'"benchmarks": [', b'"benchmarks": [3,'), "`benchmarks` = .*: expected a list of objects"),
    ((FILES / "v0.8.1.csv").read_bytes()[:-300], "line 4: row of .* cells under a header of .*: the file is cut"),
]
# fmt: on


@pytest.mark.parametrize(("content", "message"), BROKEN)
def test_broken_files_are_refused(content, message):
    """One error names file, line, key and value."""
    with pytest.raises(InvalidInputError, match=message):
        read("a", content=content)


def test_empty_groups_are_skipped():
    """A group whose count is 0 holds zeros: no record."""
    reading = read("a", content=report(0, 2))
    assert reading.skipped == {"time_to_first_token_ms: a group without requests": 2}
