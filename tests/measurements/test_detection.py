"""Detection: every file of every tool is told by what it holds, whatever it is called, and no reader loses a record."""

from pathlib import Path

import pytest

from rooflinekit.errors import InvalidInputError
from rooflinekit.measurements import detect, read
from rooflinekit.measurements.formats import FORMATS
from rooflinekit.measurements.source import Source

FILES = Path(__file__).parent / "files"
# fmt: off
#: File (values copied from a public one of the same kind, texts and paths left out) -> format, records; 0 is refused.
TABLE = {
    "aiperf/concurrency1.json":                                 ("aiperf",               54),
    "aiperf/concurrency2.json":                                 ("aiperf",               54),
    "aiperf/genai_perf.csv":                                    ("aiperf-csv",           39),
    "aiperf/requests.jsonl":                                    ("aiperf-requests",      12),
    "aiperf/summary.csv":                                       ("aiperf-csv",           59),
    "guidellm/v0.8.0.json":                                     ("guidellm",             82),
    "guidellm/v0.8.1.csv":                                      ("guidellm-csv",         92),
    "guidellm/v0.8.1.json":                                     ("guidellm",             82),
    "inference_perf/stage_0_lifecycle_metrics.json":            ("inference-perf",       90),
    "inference_perf/stage_0_prometheus_metrics.json":           ("inference-perf",       5),
    "llama_bench/cuda_llama3.1-8b_f16.csv":                     ("llama-bench",          5),
    "llama_bench/cuda_qwen2.5-7b_q4km.json":                    ("llama-bench",          5),
    "llama_bench/cuda_qwen2.5-7b_q4km.jsonl":                   ("llama-bench",          5),
    "llama_bench/cuda_qwen2.5-7b_q4km.sql":                     ("llama-bench-sql",      0),
    "llama_bench/metal_qwen3.6-27b_q4ks.csv":                   ("llama-bench",          7),
    "llama_bench/rocm_glm-4.7-flash_bf16.md":                   ("llama-bench-markdown", 5),
    "llama_bench/rocm_gpt-oss-20b_depths.jsonl":                ("llama-bench",          5),
    "llama_bench/rocm_llama3.2-1b_depths.jsonl":                ("llama-bench",          5),
    "llama_bench/rocm_qwen3.5-122b_q5k.md":                     ("llama-bench-markdown", 5),
    "llama_bench/rocm_qwen3.6-35b_generation.jsonl":            ("llama-bench",          5),
    "llama_bench/sycl_qwen3.6-35b_q4km.json":                   ("llama-bench",          5),
    "llama_bench/two_runs_old_names.md":                        ("llama-bench-markdown", 9),
    "llama_server/chat_with_cache_n.json":                      ("llama-server",         2),
    "llama_server/completions.jsonl":                           ("llama-server",         3),
    "llama_server/docker_model_runner.json":                    ("llama-server",         2),
    "llama_server/streamed_events.txt":                         ("llama-server",         3),
    "llama_timings/cli_common_perf_print.txt":                  ("llama-timings",        6),
    "llama_timings/cli_perf_context_print.txt":                 ("llama-timings",        4),
    "llama_timings/cli_print_timings.txt":                      ("llama-timings",        3),
    "llama_timings/cli_zero_prompt_time.txt":                   ("llama-timings",        1),
    "llama_timings/server_old_runs_are_tokens.txt":             ("llama-timings",        3),
    "llama_timings/server_prefix_on_each_line.txt":             ("llama-timings",        5),
    "llama_timings/server_prefix_on_first_line.txt":            ("llama-timings",        9),
    "metrics/llama_server.prom":                                ("prometheus",           6),
    "metrics/sglang_2024_name_label.prom":                      ("prometheus",           2),
    "metrics/sglang_overloaded.prom":                           ("prometheus",           14),
    "metrics/sglang_ranks.prom":                                ("prometheus",           3),
    "metrics/tgi.prom":                                         ("prometheus",           9),
    "metrics/tgi_names_on_vllm.prom":                           ("prometheus",           0),
    "metrics/vllm_2024.prom":                                   ("prometheus",           4),
    "metrics/vllm_after.prom":                                  ("prometheus",           17),
    "metrics/vllm_before.prom":                                 ("prometheus",           17),
    "metrics/vllm_cache_config_2024.prom":                      ("prometheus",           1),
    "metrics/vllm_cache_config_2025.prom":                      ("prometheus",           1),
    "metrics/vllm_cache_config_two.prom":                       ("prometheus",           2),
    "metrics/vllm_idle.prom":                                   ("prometheus",           0),
    "nsys/a100_decode.txt":                                     ("nsys-summary",         3),
    "nsys/kernels.json":                                        ("nsys-summary",         2),
    "nsys/llama3.1-8b_q4km_prefill.csv":                        ("nsys-summary",         4),
    "nsys/preamble_2026.txt":                                   ("nsys-summary",         2),
    "nsys/statistics_2020.txt":                                 ("nsys-summary",         2),
    "nsys/two_tables_trimmed.txt":                              ("nsys-summary",         4),
    "ollama/chat_cached_prefix.json":                           ("ollama",               4),
    "ollama/generate_1.json":                                   ("ollama",               4),
    "ollama/generate_2.json":                                   ("ollama",               4),
    "ollama/generate_3.json":                                   ("ollama",               4),
    "ollama/generate_5.json":                                   ("ollama",               4),
    "ollama/generate_with_runtime.json":                        ("ollama",               4),
    "ollama/streamed_two_answers.jsonl":                        ("ollama",               8),
    "ollama/verbose_14b_q8.txt":                                ("ollama",               4),
    "ollama/verbose_cached_prefix.txt":                         ("ollama",               4),
    "ollama/verbose_minutes.txt":                               ("ollama",               4),
    "ollama/verbose_mistral.txt":                               ("ollama",               4),
    "ollama/verbose_two_runs.txt":                              ("ollama",               7),
    "optimum_benchmark/benchmark_report.json":                  ("optimum-benchmark",    31),
    "optimum_benchmark/cuda_pytorch_llama_config.json":         ("optimum-benchmark",    0),
    "optimum_benchmark/llama70b_compile_config.json":           ("optimum-benchmark",    0),
    "sglang/one_batch.jsonl":                                   ("sglang-one-batch",     20),
    "sglang/one_batch.txt":                                     ("sglang-one-batch",     7),
    "sglang/one_batch_server.jsonl":                            ("sglang-one-batch",     10),
    "sglang/server.log":                                        ("sglang-log",           27),
    "sglang/serving.txt":                                       ("sglang-serving",       25),
    "sglang/serving_405b.jsonl":                                ("sglang-serving",       18),
    "sglang/serving_offline.jsonl":                             ("sglang-serving",       18),
    "sglang/serving_online.jsonl":                              ("sglang-serving",       27),
    "torch_trace/a100_simple_add.json":                         ("torch-trace",          13),
    "torch_trace/h200_decode-b1.json":                          ("torch-trace",          14),
    "torch_trace/h200_decode-b32.json":                         ("torch-trace",          13),
    "torch_trace/h200_prefill.json":                            ("torch-trace",          11),
    "torch_trace/h800_train.json":                              ("torch-trace",          13),
    "torch_trace/mi250_minitoy.json":                           ("torch-trace",          13),
    "vllm/latency_batch128.json":                               ("vllm-latency",         7),
    "vllm/latency_batch16.json":                                ("vllm-latency",         7),
    "vllm/log_v0.10.1.1.log":                                   ("vllm-log",             7),
    "vllm/log_v0.12.0.log":                                     ("vllm-log",             30),
    "vllm/log_v0.12.0_mxfp4.log":                               ("vllm-log",             30),
    "vllm/log_v0.20-0.21.log":                                  ("vllm-log",             2),
    "vllm/log_v0.28.0.log":                                     ("vllm-log",             2),
    "vllm/log_v0_engine.log":                                   ("vllm-log",             7),
    "vllm/serve_2024_1000qps.json":                             ("vllm-serve",           17),
    "vllm/serve_2024_16qps.json":                               ("vllm-serve",           17),
    "vllm/serve_2025_in128_out2048.json":                       ("vllm-serve",           17),
    "vllm/serve_2025_in2048_out128.json":                       ("vllm-serve",           17),
    "vllm/serve_4090.txt":                                      ("vllm-serve-text",      16),
    "vllm/serve_a100.txt":                                      ("vllm-serve-text",      16),
    "vllm/throughput_128.json":                                 ("vllm-throughput",      4),
    "vllm/throughput_16.json":                                  ("vllm-throughput",      4),
    "vllm/throughput_5090.json":                                ("vllm-throughput",      4),
    "vllm/throughput_a100.json":                                ("vllm-throughput",      4),
    "vllm/throughput_failed.json":                              ("vllm-throughput",      0),
    "vllm/throughput_wrapped.json":                             ("vllm-throughput",      4),
}
#: Formats whose files are made where they are tested.
MADE = {"nsys-sqlite", "curl-timing", "vllm-latency-text", "vllm-throughput-text"}
# fmt: on


def test_every_file_is_in_the_table():
    """And every format has one."""
    assert {f"{path.parent.name}/{path.name}" for path in FILES.glob("*/*")} == {*TABLE}
    assert {name for name, _ in TABLE.values()} | MADE == {one.name for one in FORMATS}


@pytest.mark.parametrize("file", TABLE)
def test_the_format_is_told_by_content(file):
    """Under another name, and from standard input, it is the same."""
    held = (FILES / file).read_bytes()
    name, records = TABLE[file]
    assert detect(Source("measured", held)).name == name
    if not records:
        with pytest.raises(InvalidInputError, match=r"^measured"):
            read("measured", content=held)
        return
    assert len(read("measured", content=held)) == len(read(FILES / file)) == records


@pytest.mark.parametrize("file", TABLE)
def test_its_values_are_tested(file):
    """Some test of values, worked out by hand from the file, names it."""
    tests = "".join(
        path.read_text(encoding="utf-8")
        for path in Path(__file__).parent.glob("test_*.py")
        if path.stem != Path(__file__).stem
    )
    assert Path(file).name in tests or Path(file).stem in tests


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('bench 1\n{"a": 1}\n', "x, line 2: is of no known format: JSON begins here, below other lines"),
        ('bench 1\n\n  {\n"a": 1}\n', "x, line 3: is of no known format: JSON begins here"),
        ('[\n {"a": {"b": 1}},\n {"a": 2}]', "x: is of no known format: expected one of vllm-serve"),
        ("no { here\n}", "x: is of no known format: expected one of vllm-serve"),
    ],
)
def test_json_between_a_scripts_lines_is_named(text, message):
    """It cannot be told from the head alone; the line where it begins says what to cut."""
    with pytest.raises(InvalidInputError, match=message):
        read("x", content=text.encode())


def test_every_reader_spells_an_engine_as_the_catalogue_does():
    """Records of a log and of the same server's metrics are of one engine."""
    read_ones = [name for name, (_, records) in TABLE.items() if records]
    named = {one.engine for name in read_ones for one in read(FILES / name).records if one.engine}
    assert {"vllm", "sglang", "llama.cpp", "ollama"} <= named
    assert {name for name in named if name != name.lower()} == set()


def test_output_of_another_tool_in_the_same_file_is_named():
    """It is not lost in silence: its format is the way to it, and then nothing is left to say."""
    lines = "Avg latency: 5.25 seconds", "Throughput: 5.5 requests/s, 2750.0 total tokens/s, 1375.0 output tokens/s"
    content = "\n".join(lines).encode()
    found = read("notes.md", content=content)
    why = "console text of vllm bench throughput in the same file: format='vllm-throughput-text' (--format-of) reads it"
    assert (found.format, found.skipped) == ("vllm-latency-text", {why: 1})
    other = read("notes.md", content=content, format="vllm-throughput-text")
    assert (len(other), other.skipped) == (3, {})
