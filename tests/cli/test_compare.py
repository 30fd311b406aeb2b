"""`rooflinekit compare`: passes with error, floor, MFU and MBU; kernels with operators, families, what is left."""

import csv
import io
import json
from pathlib import Path

import pytest

FILES = Path(__file__).parents[1] / "measurements/files"
EXAMPLES = Path(__file__).parents[2] / "examples/measurements"
PREFILL, BOTH = str(EXAMPLES / "gb10_prefill.txt"), str(EXAMPLES / "gb10_prefill_and_64_steps.txt")
TRACE = str(FILES / "torch_trace/h200_prefill.json")
BENCH = str(FILES / "llama_bench/cuda_qwen2.5-7b_q4km.json")
CONSOLE = str(FILES / "vllm/serve_4090.txt")
QWEN = ["--model", "qwen3-8b", "--device", "gb10", "--engine", "vllm-0.31"]
EYES = ["--format", "markdown"]
STEPS = ["compare", BOTH, *QWEN, "--prompt", "2048", "--steps", "64", "--minus", PREFILL]


def row(text, start):
    """Find the line of a Markdown table that begins so, as cells."""
    line = next(line for line in text.splitlines() if line.startswith(f"| {start}"))
    return line.strip("| ").split(" | ")


def test_passes(rooflinekit):
    """Measured, predicted, floor, error, MFU and MBU; device, weights and KV cache are the file's own."""
    result = rooflinekit(["compare", BENCH, "--model", "qwen2.5-7b", *EYES])
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith(
        "### qwen2.5-7b on rtx-4080: q4_k weights and q6_k, fp16 KV, rtx-4080/llama.cpp/q4_k\n"
    )
    heading = row(result.stdout, "quantity")
    assert heading[-7:] == ["measured", "predicted", "floor", "error", "mfu", "mbu", "reading"]
    step = dict(zip(heading, row(result.stdout, "decode_time_s"), strict=True))
    assert (step["measured"], step["reading"]) == ("8.41 ms", "mean of 128 steps")
    assert abs(float(step["error"].rstrip("%"))) < 10
    assert "not compared: 2 x spread of a measurement (std, percentile): no prediction of its own" in result.stdout


def test_mixed_rates_are_not_compared(rooflinekit):
    """What has no prediction is counted, with its reason; prompt and output tokens are never one rate."""
    result = rooflinekit(
        ["compare", CONSOLE, "--model", "llama-3.1-8b", "--device", "rtx-4090", "--engine", "vllm", *EYES]
    )
    assert "not compared: 1 x prompt and output tokens in one rate: it mixes the phases" in result.stdout
    assert "a decode step of 16.0 sequences (output rate x TPOT)" in result.stdout
    assert "total_tokens" not in result.stdout


def test_programs_get_full_precision(rooflinekit):
    """JSON and CSV hold the same rows; remarks go to stderr."""
    line = ["compare", BENCH, "--model", "qwen2.5-7b", "--format"]
    rows = json.loads(rooflinekit([*line, "json"]).stdout)
    assert rows[0]["measured_s"] == pytest.approx(512 / 7100.002165, rel=0.02)
    result = rooflinekit([*line, "csv"])
    again = list(csv.DictReader(io.StringIO(result.stdout)))
    assert [float(one["predicted_s"]) for one in again] == [one["predicted_s"] for one in rows]
    assert result.stderr.startswith("not compared: ")


def test_faster_than_the_floor_is_said(rooflinekit):
    """One token in 40 ms on a GB10, whose floor is 56.6: no machine did that."""
    text = b"eval time = 2560.00 ms / 64 runs ( 40.00 ms per token, 25.00 tokens per second)\n"
    result = rooflinekit(["compare", "-", *QWEN, "--weights", "bf16", "--prompt", "2048", *EYES], text)
    assert "FASTER THAN THE FLOOR, a measuring fault: mean of 64 steps" in result.stdout


def test_kernels_of_a_prefill(rooflinekit):
    """Listed, explained, rest; families with their parts of the ceilings; what is not listed, by model and by file."""
    text = rooflinekit(["compare", PREFILL, *QWEN, "--prompt", "2048", *EYES]).stdout
    assert row(text, "nvjet_sm121_tst_mma_192x144x64_...")[-1] == "prefill: qkv_proj, o_proj, down_proj"
    assert row(text, "all listed")[-1] == "100.0% of the time in kernels with an operator"
    assert "families, and their parts of the measured ceilings, 94.0 TFLOP/s and 241 GB/s" in text
    assert row(text, "product ") == [
        "product",
        "prefill",
        "333 ms",
        "85.8%",
        "85.3 TFLOP/s",
        "90.8%",
        "69.7 GB/s",
        "28.9%",
    ]
    assert "not listed: the model puts 29.5 ms there; the file's own shares leave out 5.5% (22.6 ms) of 411 ms" in text
    assert row(text, "prefill | lm_head")[:3] == ["prefill", "lm_head", "1"]
    assert "note: activation (prefill) at 104% of the measured ceiling" in text


def test_kernels_of_the_steps(rooflinekit):
    """One table less the other: 87% of 241 GB/s, and the arithmetic of the counts."""
    text = rooflinekit([*STEPS, *EYES]).stdout
    assert row(text, "matrix-vector product")[:4] == ["matrix-vector product", "decode", "4.62 s", "97.6%"]
    assert row(text, "matrix-vector product")[-1] == "87.1%"
    assert row(text, "internal::gemvx")[2:4] == ["4,673", "73 x 64 + 1"]
    assert "two kernels share this cut name (2,304 and 36 launches): kept" in text


@pytest.mark.parametrize("form", ["json", "csv"])
def test_kernels_for_programs(rooflinekit, form):
    """Kernels, families and what is not listed in one tidy table."""
    result = rooflinekit([*STEPS, "--format", form])
    read = json.loads if form == "json" else lambda text: list(csv.DictReader(io.StringIO(text)))
    rows = read(result.stdout)
    assert {one["row"] for one in rows} == {"kernel", "family", "not listed"}
    family = next(one for one in rows if one["row"] == "family")
    assert float(family["of_memory"]) == pytest.approx(0.871, abs=1e-3)
    assert family["ceilings"] == "measured"


def test_a_trace_says_its_device(rooflinekit):
    """A profiler's trace names the GPU; the model is given."""
    text = rooflinekit(["compare", TRACE, "--model", "qwen3-8b", "--prompt", "2048"]).stdout
    assert "families, and their parts of the measured ceilings" in text


def test_a_table_of_several(rooflinekit):
    """A file with both tables of the article: one of them is named by its words."""
    line = ["compare", str(FILES / "nsys/two_tables_trimmed.txt"), *QWEN, "--prompt", "2048"]
    refused = rooflinekit(line)
    assert refused.exit_code == 2
    assert "--table takes one of these by its words: prefill only (2,048 tokens): summed" in refused.stderr
    found = rooflinekit([*line, "--table", "prefill only", *EYES]).stdout
    assert row(found, "all listed")[4] == "333 ms"


def test_several_files(rooflinekit, tmp_path):
    """Each row says which file it is of."""
    other = tmp_path / "again.json"
    other.write_bytes(Path(BENCH).read_bytes())
    text = rooflinekit(["compare", BENCH, str(other), "--model", "qwen2.5-7b", *EYES]).stdout
    assert row(text, "file")[0] == "file"
    assert sum(str(other) in line for line in text.splitlines()) == 2


ANSWER, TOTAL = str(FILES / "ollama/generate_3.json"), str(FILES / "vllm/throughput_16.json")
TWO = str(FILES / "llama_bench/two_runs_old_names.md")

# fmt: off
BAD = [
    ([CONSOLE],                                              "says no model and no device: give --model, --device"),
    ([CONSOLE, "--model", "qwen3-8b"],                       "says no device: give --device"),
    ([ANSWER, "--device", "gb10"],                           "which is not in the catalogue: give --model"),
    ([TWO, "--model", "qwen3-0.6b", "--device", "gb10"],     "(--kv-cache): --kv-cache='q8_0/fp16' is not known"),
    ([CONSOLE, "--model", "qwen3-8c", "--device", "gb10"],   "qwen3-8c is not in model_configs; did you mean"),
    ([CONSOLE, "--model", "qwen3-8b", "--device", "gb11"],   "gb11 is not in hardware_db"),
    ([CONSOLE, *QWEN, "--weights", "fp7"],                   "--weights='fp7' is not known"),
    ([PREFILL, *QWEN, "--prompt", "8", "--minus", "nowhere"], "--minus: nowhere: "),
    ([CONSOLE, *QWEN, "--efficiency", "best"],               "--efficiency='best' is not known"),
    ([CONSOLE, *QWEN, "--steps", "64"],                      "--steps is of summaries of kernels, and no file"),
    ([CONSOLE, *QWEN, "--minus", PREFILL],                   "--minus is of summaries of kernels"),
    ([CONSOLE, PREFILL, *QWEN],                              "summaries of kernels and other measurements"),
    ([PREFILL, *QWEN],                                       "--prompt says that a prefill is in it"),
    ([PREFILL, *QWEN, "--steps", "4"],                       "steps=4: --context or --prompt"),
    ([PREFILL, *QWEN, "--prompt", "2048", "--table", "decode"], "--table takes one of these by its words"),
    (["-", "-", *QWEN],                                      "`-` is named twice"),
    ([TOTAL, *QWEN],                                         "nothing to compare: not compared: 1 x prompt"),
    ([],                                                     "Missing argument 'FILE...'"),
]
# fmt: on


@pytest.mark.parametrize(("line", "part"), BAD, ids=[part for _, part in BAD])
def test_bad_input_is_one_line(rooflinekit, line, part):
    """Exit status 2; nothing that a file does not say is assumed."""
    result = rooflinekit(["compare", *line], b"")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("rooflinekit: error: ")
    assert part in result.stderr
    assert result.stderr.count("\n") == 1
