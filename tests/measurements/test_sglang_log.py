"""SGLang's server log: what the startup allocates, and the lines of batches."""

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


GIB = 2**30

# fmt: off
VALUES = [
    # file        quantity                    kept            expected
    ("server.log", "kv_cache_tokens",          {},             350257),
    ("server.log", "kv_cache_bytes",           {},             0.42 * GIB),
    ("server.log", "weight_bytes",             {},             28.79 * GIB),
    ("server.log", "load_time_s",              {},             23.18),
    ("server.log", "graph_bytes",              {},             0.80 * GIB),
    ("server.log", "prompt_tokens_computed",   {"batch": 2},   158),
    ("server.log", "prompt_tokens_per_s",      {},             559.53),
    ("server.log", "output_tokens_per_s",      {"batch": 32},  1635.11),
    ("server.log", "output_tokens_per_s",      {"batch": 8},   185.93),
    ("server.log", "output_tokens_per_s",      {"batch": 10},  8.44),
    ("server.log", "requests_waiting",         {"line": 8},    5),
    ("server.log", "kv_cache_usage",           {"line": 12},   0.49),
    ("server.log", "accepted_tokens_per_step", {},             2.4),
    ("server.log", "acceptance_rate",          {},             0.84),
]
# fmt: on


@pytest.mark.parametrize(("file", "quantity", "kept", "expected"), VALUES)
def test_values(file, quantity, kept, expected):
    """Every sample's numbers come out in base units, under what they mean."""
    assert value(file, quantity, **kept) == pytest.approx(expected, rel=1e-12)


def rates():
    """Give the records of decode lines."""
    return [one for one in read(FILES / "server.log").records if one.quantity == "output_tokens_per_s"]


def test_a_decode_line_after_a_prefill_mixes_both():
    """Only the line that follows a decode line of the same rank is of decode steps alone."""
    assert [(one.phase, one.context_tokens) for one in rates()] == [("mixed", 349), ("decode", 7856), ("decode", 68500)]


def test_ranks_that_say_alike_count_once():
    """Two ranks print the same four values: one record each, four skips; the line of the total is a fifth."""
    assert read(FILES / "server.log").skipped["said alike by another rank"] == 5


def test_arguments_are_kept_by_name_only():
    """Model without its folder, tensor parallelism and settings; no key, no address."""
    reading = read(FILES / "server.log")
    one = reading.records[0]
    assert (one.model, one.tensor_parallel, one.weights, one.engine) == ("Qwen3-8B", 2, None, "sglang")
    assert reading.settings["chunked_prefill_size"] == "8192"
    assert reading.settings["max_running_requests"] == "12"
    held = str([asdict(each) for each in reading.records]) + str(reading.settings)
    assert not [word for word in ("secret", "10.0.0.1", "/home") if word in held]


def test_zero_rates_and_cut_lines_are_skipped():
    """A rate of nought and a line that ends in the middle, as the last of a living log does, are counted."""
    skipped = read(FILES / "server.log").skipped
    assert skipped["output_tokens_per_s of 0 or less: nothing was measured"] == 1
    assert skipped["a batch line without its counts: cut, or two lines in one"] == 1


def test_one_size_of_keys_and_values():
    """MLA and newer versions print one size: 17.16 GB of 524,288 tokens is 576 bytes x 61 layers x 2^-30 a token."""
    text = b"\x1b[32m[2025-11-04 05:27:13 DP0 TP0 EP0] KV Cache is allocated. #tokens: 524288, KV size: 17.16 GB\x1b[0m"
    got = {one.quantity: one.value for one in read("a", content=text).records}
    assert got["kv_cache_bytes"] == pytest.approx(524288 * 576 * 61, rel=1e-3)


def test_hit_rate_of_older_versions():
    """It is printed in percent, over all since the start."""
    text = b"Prefill batch. #new-seq: 1, #new-token: 7, #cached-token: 0, cache hit rate: 25.00%, token usage: 0.00"
    got = {one.quantity: one.value for one in read("a", content=text).records}
    assert got["prefix_cache_hit_rate"] == 0.25


def test_garbled_number_is_refused():
    """Two lines written into one another are named with their line."""
    text = b"\nDecode batch. #running-req: 3, #token: 12[2026, token usage: 0.1"
    with pytest.raises(InvalidInputError, match=r"a, line 2: `#token` = .12.2026.: expected a number"):
        read("a", content=text)


def test_a_line_that_was_broken_by_a_terminal():
    """What the line still holds is read, and the value that went to the next line is said to be lost."""
    text = (
        b"[2026-05-24 03:51:51 TP0] Prefill batch, #new-seq: 1, #new-token: 64, #cached-token: 0, input throughput (tok"
    )
    reading = read("a", content=text + b"en/s\n): 21767.68\n")
    assert [one.quantity for one in reading.records] == ["prompt_tokens_computed"]
    assert reading.skipped == {"a batch line that is cut: its last value is lost": 1}
