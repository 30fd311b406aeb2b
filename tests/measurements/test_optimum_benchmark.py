"""optimum-benchmark: the report alone, the report with its configuration, the configuration alone."""

from pathlib import Path

import pytest

from rooflinekit.errors import InvalidInputError
from rooflinekit.measurements.reading import read

FILES = Path(__file__).parent / "files" / "optimum_benchmark"


def value(file, quantity, **kept):
    """Give the value of the one record of a quantity that has the given fields."""
    found = [
        one.value
        for one in read(FILES / file).records
        if one.quantity == quantity and all(getattr(one, name) == expected for name, expected in kept.items())
    ]
    assert len(found) == 1, found
    return found[0]


REPORT = "benchmark_report.json"
MEAN = {"statistic": "mean"}
TENSORS = "PyTorch's tensors; summed over the GPUs used"
# fmt: off
VALUES = [
    # file   quantity             kept                                                expected
    (REPORT, "load_time_s",         MEAN,                                               20.028271484375),
    (REPORT, "prefill_time_s",      MEAN,                                               0.026584511947631832),
    (REPORT, "prefill_time_s",      {"statistic": "median"},                            0.026455135345458985),
    (REPORT, "decode_time_s",       MEAN,                                               1.6228145874023436),
    (REPORT, "decode_time_s",       {"statistic": "std"},                               0.020509756136783876),
    (REPORT, "decode_step_s",       {"statistic": "median"},                            0.025622528076171876),
    (REPORT, "output_tokens_per_s", {},                                                 38.821440532429996),
    (REPORT, "peak_memory_bytes",   {"name": "decode", "includes": TENSORS}, 16089.67424e6),
]
# fmt: on


@pytest.mark.parametrize(("file", "quantity", "kept", "expected"), VALUES)
def test_values(file, quantity, kept, expected):
    """Every sample's numbers come out in base units, under what they mean."""
    assert value(file, quantity, **kept) == pytest.approx(expected, rel=1e-12)


def whole(config):
    """Write benchmark.json: a configuration with its report."""
    held = [(FILES / name).read_text() for name in (f"{config}.json", REPORT)]
    return f'{{"config": {held[0]}, "report": {held[1]}}}'


def test_configuration_in_the_same_file():
    """Batch, lengths, dtype and GPU are said there; 64 new tokens take 63 decode steps."""
    reading = read("a", content=whole("cuda_pytorch_llama_config").encode())
    one = next(one for one in reading.records if one.quantity == "decode_time_s")
    assert (one.batch, one.prompt_tokens, one.output_tokens, one.count) == (1, 64, 64, 63)
    assert (one.model, one.weights, one.engine) == ("meta-llama/Llama-3.1-8B-Instruct", "bf16", "transformers")
    assert (one.device, one.tensor_parallel, one.version) == ("NVIDIA A100-SXM4-80GB", 1, "0.5.0")
    assert reading.lacks == ()


def test_several_gpus_are_no_tensor_parallelism():
    """device_ids 2 and 4 of the machine's five are used, layer after layer: the other one drives a display."""
    one = read("a", content=whole("llama70b_compile_config").encode()).records[0]
    assert (one.device, one.tensor_parallel) == ("NVIDIA A100-SXM4-80GB", None)


def test_report_alone_asks_for_the_batch():
    """Without the configuration nobody knows what was run."""
    assert {"batch", "prompt_tokens", "output_tokens"} <= set(read(FILES / REPORT).lacks)


def test_per_token_is_read_by_its_median():
    """3,510 = 64 x (1 + ... + 10) - 10 gaps of ten runs of 64 tokens: earlier runs are counted again."""
    reading = read(FILES / REPORT)
    assert [one.count for one in reading.records if one.quantity == "decode_step_s"] == [None]
    assert reading.skipped["per_token beside the median: earlier iterations are counted again"] == 1


CONFIG = (FILES / "cuda_pytorch_llama_config.json").read_text()
HELD = (FILES / REPORT).read_text()
# fmt: off
BROKEN = [
    # content                                       message
    (CONFIG, "1 x a configuration without a measurement: read benchmark_report.json"),
    (HELD[:900],                                    "JSON ends in the middle"),
    (HELD.replace('"unit": "s"', '"unit": "ms"'),   "`unit` = 'ms': expected s"),
    (HELD.replace('"MB"', '"MiB"'),                 "`unit` = 'MiB': expected one of MB, GB"),
    (HELD.replace("20.028271484375,", '"long",'),   "expected a number"),
]
# fmt: on


@pytest.mark.parametrize(("content", "message"), BROKEN)
def test_broken_files_are_refused(content, message):
    """One error names file, line, key and value."""
    with pytest.raises(InvalidInputError, match=message):
        read("a", content=content.encode())
