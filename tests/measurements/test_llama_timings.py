"""llama.cpp's timing lines: runs are decode steps, tokens are one more."""

from pathlib import Path

import pytest

from rooflinekit.errors import InvalidInputError
from rooflinekit.measurements import read

FILES = Path(__file__).parent / "files" / "llama_timings"

# fmt: off
VALUES = [
    # file                             line  quantity                    value    count  prompt  cached  output
    ("cli_perf_context_print.txt",        2, "load_time_s",              1.39788,  None,  None,   None,   None),
    ("cli_perf_context_print.txt",        3, "prefill_time_s",           0.08824,  None,     9,   None,   None),
    ("cli_perf_context_print.txt",        4, "decode_time_s",            2.2264,    127,     9,   None,    128),
    ("cli_perf_context_print.txt",        5, "end_to_end_s",             2.34364,  None,  None,   None,   None),
    ("cli_print_timings.txt",             1, "load_time_s",              0.90771,  None,  None,   None,   None),
    ("cli_print_timings.txt",             3, "prefill_time_s",           6.29468,  None,   271,   None,   None),
    ("cli_print_timings.txt",             4, "decode_time_s",          115.22219,   510,   271,   None,    511),
    ("cli_zero_prompt_time.txt",          1, "load_time_s",             14.78807,  None,  None,   None,   None),
    ("cli_common_perf_print.txt",         7, "prefill_time_s",           0.32896,  None,     5,   None,   None),
    ("cli_common_perf_print.txt",         8, "decode_time_s",            0.14678,    39,     5,   None,     40),
    ("cli_common_perf_print.txt",         9, "end_to_end_s",             0.48,     None,  None,   None,   None),
    ("server_prefix_on_each_line.txt",    1, "prefill_time_s",           0.83817,  None,    21,   None,   None),
    ("server_prefix_on_each_line.txt",    2, "decode_time_s",            3.08156,  None,  None,   None,    123),
    ("server_prefix_on_each_line.txt",    3, "end_to_end_s",             3.91973,  None,  None,   None,   None),
    ("server_prefix_on_each_line.txt",    5, "acceptance_rate",          0.97619,  None,  None,   None,   None),
    ("server_prefix_on_first_line.txt",   7, "prefill_time_s",          44.5286,   None,  9268,      0,   None),
    ("server_prefix_on_first_line.txt",   8, "decode_time_s",            1.41057,    60,  9268,   None,     61),
    ("server_prefix_on_first_line.txt",  12, "prefill_time_s",           1.66986,  None, 19302,  19017,   None),
    ("server_prefix_on_first_line.txt",  13, "decode_time_s",            8.37224,  None, 19302,   None,    336),
    ("server_prefix_on_first_line.txt",  15, "acceptance_rate",          0.57576,  None,  None,   None,   None),
    ("server_prefix_on_first_line.txt",  17, "prefill_time_s",           0.1,      None,     5,   None,   None),
    ("server_prefix_on_first_line.txt",  18, "decode_time_s",            0.5,        10,  None,   None,     11),
    ("server_old_runs_are_tokens.txt",    1, "prefill_time_s",          59.78401,  None, 19060,   None,   None),
    ("server_old_runs_are_tokens.txt",    2, "decode_time_s",          141.52825,  2271,  None,   None,   2272),
    ("server_old_runs_are_tokens.txt",    3, "end_to_end_s",           201.31226,  None,  None,   None,   None),
]
# fmt: on


@pytest.mark.parametrize(("file", "line", "quantity", "value", "count", "prompt", "cached", "output"), VALUES)
def test_values(*, file, line, quantity, value, count, prompt, cached, output):
    """A server's prompt is known where another line says its length; drafts hide the number of steps."""
    found = next(one for one in read(FILES / file).records if (one.line, one.quantity) == (line, quantity))
    assert found.value == pytest.approx(value, rel=1e-12)
    assert (found.count, found.prompt_tokens, found.cached_tokens) == (count, prompt, cached)
    assert found.output_tokens == output


@pytest.mark.parametrize("file", sorted(path.name for path in FILES.iterdir()))
def test_nothing_else_is_read(file):
    """Each record is in the table above, or is a rate that stands beside one."""
    listed = {(name, line) for name, line, *_ in VALUES} | {("cli_common_perf_print.txt", line) for line in (6, 10)}
    listed |= {("server_prefix_on_first_line.txt", line) for line in (9, 14)}
    assert {(file, one.line) for one in read(FILES / file).records} <= listed


def test_what_a_log_says_of_the_run():
    """Build, model and weights come from the lines of the start; the type is not believed against the size."""
    server = read(FILES / "server_prefix_on_first_line.txt").records[0]
    assert (server.model, server.weights, server.version) == ("a-model-Q4_K_M.gguf", "q4_k_m", "b6500-0123abcd")
    client = read(FILES / "cli_common_perf_print.txt").records[0]
    assert (client.model, client.weights, client.device) == ("gpt-oss-20b-F16.gguf", None, "NVIDIA GeForce RTX 3090")


def test_rates_of_the_new_client():
    """llama-cli as a client of the server prints two rates and no count."""
    *_, prompt, output = read(FILES / "cli_common_perf_print.txt").records
    assert [(prompt.quantity, prompt.value), (output.quantity, output.value)] == [
        ("prompt_tokens_per_s", 513.8), ("output_tokens_per_s", 25.5),
    ]  # fmt: skip


def test_speculation_is_said():
    """With drafts, time over tokens is no time of a step."""
    records = read(FILES / "server_prefix_on_each_line.txt").records
    decode = next(one for one in records if one.quantity == "decode_time_s")
    length = next(one for one in records if one.quantity == "accepted_tokens_per_step")
    assert "speculative" in decode.includes
    assert length.value == 2.95


@pytest.mark.parametrize(
    "words", ["mean len =  2.92", "mean acceptance length =  2.92, acceptance rate per position = (0.8)"]
)
def test_the_mean_length_of_a_draft_under_both_names(words):
    """The words changed within 2026."""
    text = f"slot print_timing: id 1 | task 0 | draft acceptance = 0.5 (  10 accepted /    20 generated), {words}"
    got = {one.quantity: one.value for one in read("x", content=text.encode()).records}
    assert got == {"acceptance_rate": 0.5, "accepted_tokens_per_step": 2.92}


def test_zero_and_sampling_times_are_skipped():
    """Counters that are off print 0.00 ms."""
    assert any("prompt eval time of 0" in why for why in read(FILES / "cli_zero_prompt_time.txt").skipped)
    assert "sampling time: no time of the model" in read(FILES / "cli_print_timings.txt").skipped


def test_a_prompt_is_not_taken_from_the_request_before():
    """A second request whose prompt was cached has no prompt length."""
    text = (
        "prompt eval time = 10.00 ms / 9 tokens\neval time = 20.00 ms / 4 runs\n"
        "prompt eval time = 0.00 ms / 1 tokens\neval time = 30.00 ms / 6 runs\n"
    )
    decodes = [one for one in read("x", content=text.encode()).records if one.quantity == "decode_time_s"]
    assert [(one.prompt_tokens, one.count) for one in decodes] == [(9, 4), (None, 6)]


def test_a_log_is_told_by_its_other_lines():
    """Timing lines may come after the first 64 KiB of a server's log."""
    start = "srv  update_slots: all slots are idle\n" * 3000
    assert read("x", content=f"{start}eval time = 20.00 ms / 5 tokens".encode()).records[0].count == 4


# fmt: off
REFUSED = [
    # content message
    ("eval time = 12,5 ms / 4 runs", "line 1: `eval time` = '12,5': expected a number"),
    ("eval time = 0.00 ms / 1 runs", "without a record: 1 x eval time of 0"),
    ("eval time = 3.00 ms / 1 tokens", "without a record: 1 x eval time of a single token"),
    ("eval time = 3.00 ms", "without a record: 1 x eval time without a count"),
    ("eval time = nan ms / 5 runs", "without a record: 1 x eval time of 0"),
    ("llama_model_loader: loaded meta data", "without a record: it holds no measured value"),
    ("\neval time = 3.00 ms / 5 runs \xff", "is no utf-8 text .byte 0xff.: expected UTF-8"),
]
# fmt: on


@pytest.mark.parametrize(("content", "message"), REFUSED)
def test_broken_or_empty_files_are_refused(content, message):
    """One clear error names line, field and value, or what was skipped."""
    with pytest.raises(InvalidInputError, match=message):
        read("x", content=content.encode("latin-1"))
