"""Ollama's counters: the count of output tokens holds the first token, their time does not."""

import re
from pathlib import Path

import pytest

from rooflinekit.errors import InvalidInputError
from rooflinekit.measurements import read

FILES = Path(__file__).parent / "files" / "ollama"


def record(file, quantity, which=0):
    """Pick a record of a file by its quantity."""
    return [one for one in read(FILES / file).records if one.quantity == quantity][which]


# fmt: off
VALUES = [
    # file                         quantity          which   value         count  prompt  output
    ("generate_1.json",            "end_to_end_s",   0, 10.706818083,       None,  26,   259),
    ("generate_1.json",            "load_time_s",    0, 6.338219291,        None, None,  None),
    ("generate_1.json",            "prefill_time_s", 0, 0.130079,           None,  26,  None),
    ("generate_1.json",            "decode_time_s",  0, 4.23271,             258,  26,   259),
    ("generate_2.json",            "prefill_time_s", 0, 0.325953,           None,  26,  None),
    ("generate_2.json",            "decode_time_s",  0, 4.709213,            289,  26,   290),
    ("generate_3.json",            "decode_time_s",  0, 0.269,                15,  28,    16),
    ("generate_5.json",            "prefill_time_s", 0, 2.195557,           None,   1,  None),
    ("generate_5.json",            "decode_time_s",  0, 0.736432,             43,   1,    44),
    ("generate_with_runtime.json", "decode_time_s",  0, 0.290096,             10,  42,    11),
    ("generate_with_runtime.json", "load_time_s",    0, 0.000185542,        None, None,  None),
    ("streamed_two_answers.jsonl", "decode_time_s",  0, 4.23271,             258,  26,   259),
    ("streamed_two_answers.jsonl", "decode_time_s",  1, 0.269,                15,  28,    16),
    ("chat_cached_prefix.json",    "prefill_time_s", 0, 0.276661,           None,  45,  None),
    ("verbose_14b_q8.txt",         "end_to_end_s",   0, 33.286239222,       None,  11,  1099),
    ("verbose_14b_q8.txt",         "prefill_time_s", 0, 2.599748914,        None,  11,  None),
    ("verbose_14b_q8.txt",         "decode_time_s",  0, 27.159271675,       1098,  11,  1099),
    ("verbose_minutes.txt",        "end_to_end_s",   0, 147.989997625,      None,  13,  1133),
    ("verbose_minutes.txt",        "load_time_s",    0, 0.559665542,        None, None,  None),
    ("verbose_minutes.txt",        "decode_time_s",  0, 127.682,            1132,  13,  1133),
    ("verbose_mistral.txt",        "load_time_s",    0, 0.001365523,        None, None,  None),
    ("verbose_mistral.txt",        "prefill_time_s", 0, 0.204563,           None,  11,  None),
    ("verbose_mistral.txt",        "decode_time_s",  0, 4.876787,            119,  11,   120),
    ("verbose_two_runs.txt",       "load_time_s",    0, 0.000452875,        None, None,  None),
    ("verbose_two_runs.txt",       "decode_time_s",  0, 4.876787,            119,  11,   120),
    ("verbose_two_runs.txt",       "end_to_end_s",   1, 3723.5,             None, None,   13),
    ("verbose_two_runs.txt",       "decode_time_s",  1, 127.682,              12, None,   13),
    ("verbose_cached_prefix.txt",  "decode_time_s",  0, 2.45468,             148,  45,   149),
]
# fmt: on


@pytest.mark.parametrize(("file", "quantity", "which", "value", "count", "prompt", "output"), VALUES)
def test_values(*, file, quantity, which, value, count, prompt, output):
    """Times are in seconds; a decode step is counted for every token but the first."""
    found = record(file, quantity, which)
    assert found.value == pytest.approx(value, rel=1e-12)
    assert (found.count, found.prompt_tokens, found.output_tokens) == (count, prompt, output)


def test_facts():
    """The model is in the JSON and not in the text; GPU and weights are in neither."""
    assert record("generate_3.json", "decode_time_s").model == "llama3.1:8b"
    assert record("verbose_mistral.txt", "decode_time_s").model is None
    reading = read(FILES / "generate_3.json")
    assert reading.format == "ollama"
    assert {one.engine for one in reading.records} == {"ollama"}
    assert {one.batch for one in reading.records} == {1, None}  # loading has no batch
    assert reading.lacks == ("device", "weights", "tensor_parallel")


@pytest.mark.parametrize("file", ["chat_cached_prefix.json", "verbose_cached_prefix.txt"])
def test_a_cached_prefix_is_counted_and_not_timed(file):
    """Newer versions say how much of the prompt was cached, and the record says what its time holds."""
    found = record(file, "prefill_time_s")
    assert (found.prompt_tokens, found.cached_tokens) == (45, 32)
    assert "cached prefix" in found.includes


def test_parts_of_a_stream_are_counted():
    """Only the last message of an answer has counters."""
    reading = read(FILES / "streamed_two_answers.jsonl")
    assert sum(reading.skipped.values()) == 3
    assert [one.line for one in reading.records] == [3, 3, 3, 3, 5, 5, 5, 5]


# fmt: off
SKIPPED = [
    # content reason
    ('{"done":true,"total_duration":9,"prompt_eval_duration":5,"eval_count":2,"eval_duration":7}', "prompt evaluation"),
    ('{"done":true,"total_duration":9,"prompt_eval_count":2,"prompt_eval_duration":0}', "prompt evaluation"),
    ('{"done":true,"total_duration":9,"eval_count":1,"eval_duration":7}', "single token"),
    ('{"done":true,"total_duration":9,"eval_count":null,"eval_duration":7}', "^evaluation"),
    ('{"done":true,"total_duration":9,"prompt_eval_count":5,"prompt_eval_cached_count":5,"prompt_eval_duration":3}',
     "cached whole"),
    ('{"done":true,"total_duration":9}{"embeddings":[],"total_duration":7}', "embedding"),
    ('{"done":true,"total_duration":9}{"error":"x"}', "error"),
    ('{"done":true,"total_duration":9,"eval_count":5,"eval_duration":Infinity}', "^evaluation"),
]
# fmt: on


@pytest.mark.parametrize(("content", "reason"), SKIPPED)
def test_what_is_missing_or_zero_is_no_measurement(content, reason):
    """Ollama leaves zeros out: what is missing becomes no record, and is counted."""
    reading = read("x", content=content.encode())
    assert any(re.search(reason, why) for why in reading.skipped)
    assert all(one.value > 0 for one in reading.records)


# fmt: off
REFUSED = [
    ("eval count: 9 token(s)\neval duration: 2m", "`eval duration` = '2m': expected a duration"),  # cut from 2m7.682s
    # content message
    ('{"model":"a","created_at":"b","response":"","done":false}', "without a record: 1 x a message without"),
    ('{"model":"a","total_duration":5,"eval_co', r"x, line 1: JSON ends in the middle|no JSON"),
    ('{"total_duration":5,\n"eval_count":"many","eval_duration":7}', "`eval_count` = 'many': expected a number"),
    ('{"eval_count":1,"eval_duration":7,"total_duration":true}', "`total_duration` = True: expected a number"),
    ("total duration: 5.0\n", "line 1: `total duration` = '5.0': expected a dur"),
    ("total duration: 5s\neval count: 1.2.3 token(s)", "line 2: `eval count` = '1.2.3': expected a num"),
    ("total duration: 5 parsecs", "`total duration` = '5': expected a duration"),
]
# fmt: on


@pytest.mark.parametrize(("content", "message"), REFUSED)
def test_broken_files_are_refused(content, message):
    """One clear error names line, field and value."""
    with pytest.raises(InvalidInputError, match=message):
        read("x", content=content.encode())


def test_thousands_separators_and_colours():
    """Counts may be written 1,133, and lines may be coloured."""
    text = "total duration: 5s\n\x1b[0;36meval count: 1,133 token(s)\x1b[0m\neval duration: 2s"
    assert read("x", content=text.encode()).records[-1].count == 1132


def test_a_byte_order_mark():
    """PowerShell writes one, in UTF-16 even."""
    content = (FILES / "generate_1.json").read_text().encode("utf-16")
    assert read("x", content=content).records[-1].count == 258


@pytest.mark.parametrize("mark", ["> ", "- ", "* **", "| ", "    "])
def test_a_block_in_a_page(mark):
    """Quoted, listed or indented: 9 tokens after the first in 2 s."""
    text = f"{mark}total duration: 5s\n{mark}eval count: 10 token(s)\n{mark}eval duration: 2s\n"
    decode = read("x", content=text.encode()).records[-1]
    assert (decode.quantity, decode.value, decode.count) == ("decode_time_s", 2.0, 9)
