"""`rooflinekit read`: records, settings, what was skipped, and what the file does not say."""

import csv
import io
import json
from pathlib import Path

import pytest

FILES = Path(__file__).parents[1] / "measurements/files"
OLLAMA = FILES / "ollama/verbose_14b_q8.txt"


def test_records_for_eyes(rooflinekit):
    """Values with their units; below, the facts that the file says and those to give."""
    result = rooflinekit(["read", str(OLLAMA)])
    assert (result.exit_code, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert lines[0].endswith("verbose_14b_q8.txt: ollama")
    assert lines[1].split()[:4] == ["quantity", "value", "phase", "count"]
    row = next(line for line in lines if line.startswith("decode_time_s"))
    assert row.split()[:6] == ["decode_time_s", "27.2", "s", "decode", "1098", "1"]
    assert lines[-1] == (
        "not in the file: model, device, weights, tensor_parallel: give --model, --device, --weights, --tensor-parallel"
    )


def test_settings_and_what_was_skipped(rooflinekit):
    """A log's settings, and a console's rate that counts chunks."""
    log = rooflinekit(["read", str(FILES / "vllm/log_v0.12.0.log")]).stdout
    assert "settings: max_model_len=31800, gpu_memory_utilization=0.95, max_num_seqs=64" in log
    console = rooflinekit(["read", str(FILES / "vllm/serve_4090.txt")]).stdout
    assert "skipped: 1 x peak output rate: it counts streamed chunks, not tokens" in console


@pytest.mark.parametrize("form", ["json", "csv"])
def test_records_for_programs(rooflinekit, form):
    """Base units, unrounded, without columns that are empty throughout; remarks go to stderr."""
    result = rooflinekit(["read", str(OLLAMA), "--format", form])
    read = json.loads if form == "json" else lambda text: list(csv.DictReader(io.StringIO(text)))
    rows = read(result.stdout)
    assert [row["quantity"] for row in rows] == ["end_to_end_s", "load_time_s", "prefill_time_s", "decode_time_s"]
    assert float(rows[3]["value"]) == 27.159271675
    assert (rows[3]["unit"], float(rows[3]["count"])) == ("s", 1098)
    assert "model" not in rows[0]
    assert "not in the file: model, device" in result.stderr


def test_facts_that_are_given(rooflinekit):
    """They are in every record, and no longer asked for."""
    line = ["--model", "qwen2.5-14b", "--device", "l40s", "--weights", "q8_0", "--tensor-parallel", "1", "--batch", "1"]
    result = rooflinekit(["read", str(OLLAMA), *line, "--prompt", "11", "--format", "json"])
    assert result.stderr.splitlines() == [
        "model: qwen2.5-14b", "device: l40s", "engine: ollama", "weights: q8_0", "tensor_parallel: 1", "tool: ollama",
    ]  # fmt: skip
    for row in json.loads(result.stdout):
        assert (row["model"], row["batch"], row["prompt_tokens"]) == ("qwen2.5-14b", 1, 11)


def test_standard_input(rooflinekit):
    """A pipe is a file without a name."""
    result = rooflinekit(["read", "-"], OLLAMA.read_bytes())
    assert result.stdout.startswith("standard input: ollama\n")


def test_a_format_that_is_named(rooflinekit):
    """Where the content does not tell it."""
    text = b"eval time = 2226.40 ms / 127 runs"
    assert "llama-timings" in rooflinekit(["read", "-", "--format-of", "llama-timings"], text).stdout


def test_long_names_are_cut_for_eyes_alone(rooflinekit):
    """A kernel's template arguments are hundreds of letters."""
    line = ["read", str(FILES / "torch_trace/h200_prefill.json")]
    assert max(map(len, rooflinekit(line).stdout.splitlines())) < 160
    assert max(len(row["name"] or "") for row in json.loads(rooflinekit([*line, "--format", "json"]).stdout)) > 500


CUT = (FILES / "ollama/generate_1.json").read_bytes()[:-40]

# fmt: off
BAD = [
    (["nowhere.json"],                                      b"",              "nowhere.json"),
    (["-"],                                                 b"",              "standard input: is empty"),
    (["-"],                                                 b"hello\n",       "no known format: expected one of vllm"),
    (["-", "--format-of", "csv"],                           b"hello\n",       "--format-of='csv' is not known"),
    (["-"],                                                 CUT,              "the file is cut"),
    (["-", "--format", "xml"],                              OLLAMA.read_bytes(), "--format='xml' is not known"),
    (["-", "--batch", "many"],                              b"",              "'many' is no number"),
    (["-", "--tensor-parallel", "-1"],                      OLLAMA.read_bytes(), "--tensor-parallel=-1: expected"),
    ([],                                                    b"",              "Missing argument 'FILE'"),
]
# fmt: on


@pytest.mark.parametrize(("line", "content", "part"), BAD, ids=[part for *_, part in BAD])
def test_bad_input_is_one_line(rooflinekit, line, content, part):
    """Exit status 2, and what was found and expected."""
    result = rooflinekit(["read", *line], content)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("rooflinekit: error: ")
    assert part in result.stderr
    assert result.stderr.count("\n") == 1


BENCH = {
    "build_commit": "abc", "build_number": 4000, "gpu_info": "NVIDIA GeForce RTX 4090", "backends": "CUDA",
    "model_filename": "m.gguf", "model_type": "llama 8B Q4_K - Medium", "model_size": 4912898304,
    "n_prompt": 512, "n_gen": 0, "n_depth": 0, "avg_ns": 50000000, "stddev_ns": 100000, "samples_ns": [50000000],
}  # fmt: skip


def test_a_fact_that_the_file_says_is_not_asked_for(rooflinekit):
    """The size of the weights is of no device; the times are, and all of one."""
    lines = rooflinekit(["read", "-"], stdin=json.dumps([BENCH])).stdout.splitlines()
    assert "device: NVIDIA GeForce RTX 4090" in lines
    assert lines[-1] == "not in the file: tensor_parallel: give --tensor-parallel"


def test_a_time_below_nought_is_skipped_with_its_reason(rooflinekit):
    """It is not called 0, and the other values stay."""
    run = {
        "date": "20250101-0000", "endpoint_type": "vllm", "model_id": "Qwen/Qwen3-8B", "tokenizer_id": "Qwen/Qwen3-8B",
        "num_prompts": 10, "request_rate": 1.0, "burstiness": 1.0, "max_concurrency": None, "duration": 10.0,
        "completed": 10, "total_input_tokens": 1000, "total_output_tokens": 1000, "request_throughput": 1.0,
        "output_throughput": 100.0, "total_token_throughput": 200.0, "mean_ttft_ms": 20.0, "mean_tpot_ms": 0.0,
        "median_tpot_ms": -5.0, "p99_tpot_ms": 9.0,
    }  # fmt: skip
    lines = rooflinekit(["read", "-"], stdin=json.dumps(run)).stdout.splitlines()
    assert "skipped: 1 x time_per_output_token_s of -0.005: below 0, so no measured value" in lines
    assert "skipped: 1 x time_per_output_token_s of 0: nothing was measured" in lines
    assert sum(line.startswith("time_per_output_token_s ") for line in lines) == 1
