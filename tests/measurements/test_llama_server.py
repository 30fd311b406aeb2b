"""llama-server's timings: processed prompt tokens only, and one more output token than decode steps."""

from pathlib import Path

import pytest

from rooflinekit.errors import InvalidInputError
from rooflinekit.measurements import read

FILES = Path(__file__).parent / "files" / "llama_server"

# fmt: off
VALUES = [
    # file                     number  quantity          value     count  prompt  cached  output
    ("chat_with_cache_n.json",      0, "prefill_time_s", 1.378108,  None,    18,      0,   None),
    ("chat_with_cache_n.json",      1, "decode_time_s",  4.353352,    76,    18,   None,     77),
    ("docker_model_runner.json",    0, "prefill_time_s", 0.032349,  None,    28,      0,   None),
    ("docker_model_runner.json",    1, "decode_time_s",  0.469524,   100,    28,   None,    101),
    ("streamed_events.txt",         0, "prefill_time_s", 0.04,      None,  1012,   1000,   None),
    ("streamed_events.txt",         1, "decode_time_s",  0.6,       None,  1012,   None,     31),
    ("streamed_events.txt",         2, "acceptance_rate", 0.625,      40,  None,   None,   None),
    ("completions.jsonl",           0, "prefill_time_s", 0.2,       None,   512,      0,   None),
    ("completions.jsonl",           1, "decode_time_s",  0.63,        63,   512,   None,     64),
    ("completions.jsonl",           2, "prefill_time_s", 0.0095,    None,     1,   None,   None),
]
# fmt: on


@pytest.mark.parametrize(("file", "number", "quantity", "value", "count", "prompt", "cached", "output"), VALUES)
def test_values(*, file, number, quantity, value, count, prompt, cached, output):
    """Milliseconds become seconds; where tokens were drafted, the number of steps is not known."""
    found = read(FILES / file).records[number]
    assert (found.quantity, found.value) == (quantity, pytest.approx(value, rel=1e-12))
    assert (found.count, found.prompt_tokens, found.cached_tokens) == (count, prompt, cached)
    assert found.output_tokens == output


def test_facts():
    """A stream says model and build; of a path only the file is kept."""
    reading = read(FILES / "streamed_events.txt")
    found = reading.records[1]
    assert reading.format == "llama-server"
    assert (found.model, found.version, found.engine, found.batch) == ("m.gguf", "b6500-0123abcd", "llama.cpp", 1)
    assert "speculative" in found.includes
    assert sum(reading.skipped.values()) == 2  # a part with timings of its own, and one without


def test_an_unknown_prefix_is_said():
    """Without usage and cache_n, the prompt may have been longer than what was processed."""
    text = b'{"timings":{"prompt_n":12,"prompt_ms":40,"predicted_n":3,"predicted_ms":9}}'
    prefill, decode = read("x", content=text).records
    assert (prefill.prompt_tokens, decode.prompt_tokens) == (12, None)
    assert "whether a cached prefix came before" in prefill.includes


def test_timings_alone():
    """The object of timings may have been saved by itself, and several in a list."""
    text = b'[{"prompt_n":12,"prompt_ms":40,"predicted_n":3,"predicted_ms":9},{"prompt_ms":5,"prompt_n":1}]'
    assert [one.quantity for one in read("x", content=text).records] == [
        "prefill_time_s", "decode_time_s", "prefill_time_s",
    ]  # fmt: skip


# fmt: off
REFUSED = [
    # content message
    ('{"timings":{"prompt_n":0,"prompt_ms":0,"predicted_n":0}}', "without a record: 1 x prompt_n or prompt_ms of 0"),
    ('{"timings":{"prompt_n":-1,"prompt_ms":-1,"predicted_n":1,"predicted_ms":3}}', "nothing was processed"),
    ('{"timings":{"prompt_n":1,"prompt_ms":NaN,"predicted_n":9,"predicted_ms":Infinity}}', "nothing was generated"),
    ('{"timings":{"prompt_n":[1],"prompt_ms":2}}', r"line 1: `prompt_n` = \[1\]: expected a number"),
    ('{"timings":[{"prompt_n":1}]}', r"line 1: `timings` = .*: expected an object"),
    ('{"timings":{"cache_n":0,"prompt_n":18,"prompt_ms', "x, line 1: .*write it anew"),
    ('data: {"choices":[]}\n\ndata: {"timings":{"prompt_n":1', "line 3: an event that is no JSON"),
    ('data: {"timings":{"prompt_n":1}}\ndata: [1]', "line 2: an event that is no JSON object"),
]
# fmt: on


@pytest.mark.parametrize(("content", "message"), REFUSED)
def test_broken_or_empty_files_are_refused(content, message):
    """One clear error names line, field and value, or what was skipped."""
    with pytest.raises(InvalidInputError, match=message):
        read("x", content=content.encode())
