"""SGLang's bench_one_batch, its text, and bench_one_batch_server."""

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


# fmt: off
VALUES = [
    # file                    quantity                 kept                                   expected
    ("one_batch.jsonl",        "prefill_time_s",        {"line": 1},                           3.7364211082458496),
    ("one_batch.jsonl",        "prefill_time_s",        {"line": 4},                           7.162742376327515),
    ("one_batch.jsonl",        "decode_step_s",         {"batch": 4.0},                        0.018887758255004883),
    ("one_batch.jsonl",        "decode_step_s",         {"batch": 8.0, "count": 1023.0},       0.023103952407836914),
    ("one_batch.jsonl",        "batch_latency_s",       {"line": 2, "output_tokens": 1024.0},  22.969415187835693),
    ("one_batch.jsonl",        "total_tokens_per_s",    {"line": 4},                           531.7426611486958),
    ("one_batch.txt",          "kv_cache_tokens",       {},                                    355636),
    ("one_batch.txt",          "prefill_time_s",        {"line": 9},                           3.58247),
    ("one_batch.txt",          "decode_step_s",         {"statistic": "median"},               0.01889),
    ("one_batch.txt",          "batch_latency_s",       {},                                    22.969),
    ("one_batch_server.jsonl", "batch_latency_s",       {"batch": 33.0},                       3998.5722),
    ("one_batch_server.jsonl", "time_to_first_token_s", {"batch": 38.0, "statistic": "max"},   535.1799),
    ("one_batch_server.jsonl", "output_tokens_per_s",   {"batch": 33.0, "phase": "decode"},    551.92),
    ("one_batch_server.jsonl", "total_tokens_per_s",    {"prompt_tokens": 8192.0, "line": 2},  241.91),
]
# fmt: on


@pytest.mark.parametrize(("file", "quantity", "kept", "expected"), VALUES)
def test_values(file, quantity, kept, expected):
    """Every sample's numbers come out in base units, under what they mean."""
    assert value(file, quantity, **kept) == pytest.approx(expected, rel=1e-12)


def test_warm_up_and_single_steps_are_left_out():
    """The warm-up's first step took 2.03 s: five of its lines are counted as skipped, and two single steps."""
    assert sorted(read(FILES / "one_batch.txt").skipped.values()) == [2, 5]


def test_text_does_not_say_the_batch():
    """Batch and prompt length are asked for; given, they stand on each record."""
    assert {"batch", "prompt_tokens"} <= set(read(FILES / "one_batch.txt").lacks)
    assert "batch" not in read(FILES / "one_batch.txt", batch=4).lacks


def test_newer_text_says_the_batch():
    """Since 2025 the lines of the steps carry it."""
    text = b"Prefill. latency: 0.46342 s, throughput:   9316.59 token/s\n"
    text += b"Decode 1. Batch size: 4, latency: 0.01225 s, throughput:    326.46 token/s\n"
    text += b"# Decode.  median latency: 0.01178 s, median throughput:    339.57 token/s\n"
    got = {one.quantity: (one.batch, one.value) for one in read("a", content=text).records}
    assert (got["prefill_time_s"], got["decode_step_s"]) == ((4.0, 0.46342), (4.0, 0.01178))


STEPS = """[2026-02-26 10:25:20 TP0] Reset
Prefill. latency: 0.40000 s, throughput:   10240.00 token/s
Decode 0. Batch size: 4, latency: 0.29000 s, throughput:     13.79 token/s
Decode.  median latency: {} s, median throughput:    400.00 token/s
"""


def test_what_stands_before_the_first_benchmark_line_is_the_warm_up():
    """The line that says so was not pasted; a second paste that begins with `Benchmark ...` is a run of its own."""
    text = STEPS.format("0.01400") + "Benchmark ...\n" + STEPS.format("0.01000") + "Benchmark ...\n"
    reading = read("a", content=(text + STEPS.format("0.01100")).encode())
    assert [one.value for one in reading.records if one.quantity == "decode_step_s"] == [0.01, 0.011]
    assert reading.skipped["a line of the warm-up"] == 3


def test_engine_is_said_only_without_a_server():
    """bench_one_batch runs SGLang itself; the server's may be any."""
    assert {one.engine for one in read(FILES / "one_batch.jsonl").records} == {"sglang"}
    assert {one.engine for one in read(FILES / "one_batch_server.jsonl").records} == {None}


def test_early_stops_and_caches_are_told():
    """Tokens really made replace the length asked for; a warmed cache is named."""
    row = b'{"run_name": "x", "batch_size": 2, "input_len": 8, "output_len": 9, "latency": 4.0, "last_ttft": 1.0,'
    row += b' "total_output_tokens": 10, "cache_hit_rate": 0.5, "acc_length": 2.4}'
    got = {one.quantity: one for one in read("a", content=row).records}
    assert got["batch_latency_s"].output_tokens == 5
    assert got["batch_latency_s"].includes.endswith("part of the prompt was cached")
    assert (got["prefix_cache_hit_rate"].value, got["accepted_tokens_per_step"].value) == (0.5, 2.4)


ROW = '{"run_name": "x", "batch_size": 4, "input_len": 8, "output_len": 1, "prefill_latency": 0.5}'
# fmt: off
BROKEN = [
    # content                                                  message
    (ROW + "\n" + ROW[:60],                                    "a, line 2: JSON ends in the middle"),
    (ROW.replace("4", "null"),                                 "`batch_size` = None: expected a number"),
    (ROW.replace("0.5", '"fast"'),                             "`prefill_latency` = 'fast': expected a number"),
    (ROW.replace("0.5", "0"),                                  "1 x prefill_time_s of 0 or less"),
    ("Prefill. latency: 1.2 s\nTotal. latency: 1,2 s",         "a, line 2: `latency` = '1,2': expected a number"),
]
# fmt: on


@pytest.mark.parametrize(("content", "message"), BROKEN)
def test_broken_files_are_refused(content, message):
    """One error names file, line, key and value."""
    with pytest.raises(InvalidInputError, match=message):
        read("a", content=content.encode())
