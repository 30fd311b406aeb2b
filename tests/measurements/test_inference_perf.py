"""inference-perf: lifecycle metrics, and what Prometheus took from the server."""

import json
from pathlib import Path

import pytest

from rooflinekit.errors import InvalidInputError
from rooflinekit.measurements.reading import read

FILES = Path(__file__).parent / "files" / "inference_perf"


def value(file, quantity, **kept):
    """Give the value of the one record of a quantity that has the given fields."""
    found = [
        one.value
        for one in read(FILES / file).records
        if one.quantity == quantity and all(getattr(one, name) == expected for name, expected in kept.items())
    ]
    assert len(found) == 1, found
    return found[0]


CLIENT, SERVER = "stage_0_lifecycle_metrics.json", "stage_0_prometheus_metrics.json"
MEAN, P999 = {"statistic": "mean"}, {"statistic": "p99.9"}
# fmt: off
VALUES = [
    # file   quantity                  kept                    expected
    (CLIENT, "end_to_end_s",            MEAN,                   0.48322820343310013),
    (CLIENT, "time_to_first_token_s",   {"statistic": "median"}, 0.032918093027547),
    (CLIENT, "request_per_token_s",     MEAN,                   0.007822049129697705),
    (CLIENT, "inter_chunk_latency_s",   {"statistic": "p0.1"},  3.318468574434519e-06),
    (CLIENT, "time_to_first_token_s",   P999,                   0.042598067724495196),
    (CLIENT, "output_tokens_per_s",     {"request_rate": 1.0},  62.15363932698074),
    (CLIENT, "requests_completed",      {},                     60),
    (CLIENT, "prompt_tokens",           MEAN,                   200.68333333333334),
    (SERVER, "end_to_end_s",            MEAN,                   2.574876),
    (SERVER, "requests_per_s",          {},                     14.430483),
    (SERVER, "output_tokens_per_s",     {},                     787.517372),
]
# fmt: on


@pytest.mark.parametrize(("file", "quantity", "kept", "expected"), VALUES)
def test_values(file, quantity, kept, expected):
    """Every sample's numbers come out in base units, under what they mean."""
    assert value(file, quantity, **kept) == pytest.approx(expected, rel=1e-12)


PIECES = "time_per_output_token that request latency, first token and lengths contradict: pieces of tokens were counted"


def stage(each, **more):
    """Write a stage of requests that took 2.1 s: 0.1 s to the first token, 100 gaps of 20 ms."""
    latency = {"request_latency": 2.1, "time_to_first_token": 0.1, "time_per_output_token": each,
               "normalized_time_per_output_token": 2.1 / 101, "inter_token_latency": each}  # fmt: skip
    successes = {"count": 4, "latency": {name: {"mean": mean} for name, mean in latency.items()}}
    return json.dumps({"load_summary": {}, "successes": successes | {"output_len": {"mean": 101.0}} | more}).encode()


def test_three_times_per_token_are_three_quantities():
    """Latency over tokens, the same without the first token, and single gaps."""
    got = {one.quantity: one.value for one in read("a", content=stage(0.02)).records if one.statistic == "mean"}
    assert got["time_per_output_token_s"] == got["inter_token_latency_s"] == 0.02
    assert got["request_per_token_s"] == pytest.approx(2.1 / 101)


@pytest.mark.parametrize(("each", "pieces"), [(0.01, True), (0.0159, True), (0.0161, False), (0.03, False)])
def test_a_time_per_token_is_held_against_the_whole_request(each, pieces):
    """Twice the tokens, counted piece by piece, would be half the time: what remains is a gap between pieces."""
    reading = read("a", content=stage(each))
    quantities = {one.quantity for one in reading.records}
    assert ("time_per_output_token_s" not in quantities) is ("inter_chunk_latency_s" in quantities) is pieces
    assert reading.skipped == ({PIECES: 1} if pieces else {})


def test_a_sample_counts_pieces():
    """Its requests took 0.483 s for 62 tokens, 33 ms to the first: 7.4 ms a token, where it says 3.5 ms."""
    assert read(FILES / CLIENT).skipped == {PIECES: 1}


def test_tokens_as_the_server_counts_them():
    """Since 2026: the cached part is told in total, a report may hold the client's lengths beside it."""
    counted = {"prompt_tokens": {"total": 400.0, "cached": 80.0, "mean": 100.0}, "output_tokens": {"total": 404.0}}
    reading = read("a", content=stage(0.02, **counted, goodput_metrics={"goodput": 1.0}))
    assert {(one.prompt_tokens, one.output_tokens, one.cached_tokens) for one in reading.records} == {
        (100.0, 101.0, 20.0), (None, 101.0, 20.0), (100.0, None, 20.0),
    }  # fmt: skip
    assert reading.skipped == {"goodput_metrics: the limits are not in the report": 1}


def test_server_side_is_marked():
    """Histograms may hold other requests, percentiles are drawn within their buckets, and units are not said."""
    reading = read(FILES / SERVER)
    assert {one.includes for one in reading.records} == {
        "server's histograms in the time of the stage: other requests may be in it"
    }
    assert reading.skipped["percentiles drawn within a histogram's buckets"] == 2
    assert sum(reading.skipped.values()) == 8


def test_newer_names_of_the_lengths():
    """Since 2026 they are called prompt_tokens and output_tokens."""
    text = '{"load_summary": {"count": 1}, "successes": {"count": 1, "latency": {"request_latency": {"mean": 2.0}},'
    text += ' "prompt_tokens": {"mean": 100.0}, "output_tokens": {"total": 5}}, "failures": {"count": 3}}'
    got = {one.quantity: one for one in read("a", content=text.encode()).records}
    assert (got["end_to_end_s"].prompt_tokens, got["requests_failed"].value) == (100.0, 3)


STAGE = '{"load_summary": {}, "successes": {"count": 1, "latency": {"request_latency": {"mean": 2.0}}}}'
# fmt: off
BROKEN = [
    # content                                     message
    (STAGE.replace(": 1,", ": 0,"),               "1 x a stage in which no request succeeded"),
    (STAGE.replace("2.0", '"2 s"'),               "`mean` = '2 s': expected a number"),
    (STAGE.replace("2.0", "NaN").replace(": 1", ": 0"), "1 x a stage in which no request succeeded"),
    (STAGE[:-9],                                  "JSON ends in the middle"),
    (STAGE.replace('{"mean": 2.0}', "[2.0]"),     "`request_latency` = .2.0.: expected an object"),
]
# fmt: on


@pytest.mark.parametrize(("content", "message"), BROKEN)
def test_broken_files_are_refused(content, message):
    """One error names file, line, key and value."""
    with pytest.raises(InvalidInputError, match=message):
        read("a", content=content.encode())
