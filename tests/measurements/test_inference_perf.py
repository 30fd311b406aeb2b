"""inference-perf: lifecycle metrics, and what Prometheus took from the server."""

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
    (CLIENT, "time_per_output_token_s", MEAN,                   0.0034775777890777705),
    (CLIENT, "inter_token_latency_s",   {"statistic": "p0.1"},  3.318468574434519e-06),
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


def test_three_times_per_token_are_three_quantities():
    """Latency over tokens, the same without the first token, and single gaps: medians 7.5, 3.5 and 0.03 ms."""
    names = ("request_per_token_s", "time_per_output_token_s", "inter_token_latency_s")
    medians = [value(CLIENT, name, statistic="median") for name in names]
    assert medians == pytest.approx([0.00750475577790964, 0.0034682437246881946, 3.392953658476472e-05])


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
