"""llama-bench: pp rows are prefills, tg rows are decode steps on what is in the cache, mixed rows are neither."""

import json
from pathlib import Path

import pytest

from rooflinekit.errors import InvalidInputError
from rooflinekit.measurements import read
from rooflinekit.measurements.formats.llama_names import weights_of

FILES = Path(__file__).parent / "files" / "llama_bench"
ROW = {"model_size": 4e9, "n_prompt": 512, "n_gen": 0, "avg_ns": 500_000_000, "avg_ts": 1024.0}


def picked(file):
    """List the means and single values of a file."""
    return [one for one in read(FILES / file).records if one.statistic != "std"]


# fmt: off
VALUES = [
    # file                                number  quantity               value           prompt  steps  depth
    ("sycl_qwen3.6-35b_q4km.json",             0, "weight_bytes",        21155768832,      None,  None,  None),
    ("sycl_qwen3.6-35b_q4km.json",             1, "prefill_time_s",      0.38381828,        512,  None,     0),
    ("sycl_qwen3.6-35b_q4km.json",             2, "decode_time_s",       1.26543926,       None,   128,     0),
    ("cuda_qwen2.5-7b_q4km.json",              1, "prefill_time_s",      0.07213564,        512,  None,     0),
    ("cuda_qwen2.5-7b_q4km.json",              2, "decode_time_s",       1.07676788,       None,   128,     0),
    ("cuda_qwen2.5-7b_q4km.jsonl",             0, "weight_bytes",        4677120000,       None,  None,  None),
    ("cuda_qwen2.5-7b_q4km.jsonl",             1, "prefill_time_s",      0.07049722,        512,  None,     0),
    ("cuda_qwen2.5-7b_q4km.jsonl",             2, "decode_time_s",       1.0680784,        None,   128,     0),
    ("rocm_gpt-oss-20b_depths.jsonl",          1, "prefill_time_s",      0.347823052,       512,  None,     0),
    ("rocm_gpt-oss-20b_depths.jsonl",          4, "decode_time_s",       2.658514885,      None,   128,  4096),
    ("rocm_llama3.2-1b_depths.jsonl",          3, "prefill_time_s",      1.205377535,       512,  None, 65536),
    ("rocm_llama3.2-1b_depths.jsonl",          4, "decode_time_s",       1.980926186,      None,   128, 65536),
    ("rocm_qwen3.6-35b_generation.jsonl",      2, "decode_time_s",       3.490099488,      None,   128, 65536),
    ("cuda_llama3.1-8b_f16.csv",               0, "weight_bytes",        16061055232,      None,  None,  None),
    ("cuda_llama3.1-8b_f16.csv",               1, "prefill_time_s",      2.878558047,       512,  None,     0),
    ("cuda_llama3.1-8b_f16.csv",               2, "decode_time_s",       37.637646806,     None,   128,     0),
    ("metal_qwen3.6-27b_q4ks.csv",             3, "prefill_time_s",      972.347175941,   65536,  None,     0),
    ("rocm_glm-4.7-flash_bf16.md",             0, "weight_bytes",        55.79 * 2**30,    None,  None,  None),
    ("rocm_glm-4.7-flash_bf16.md",             1, "prompt_tokens_per_s", 91.33,            2048,  None, 32768),
    ("rocm_glm-4.7-flash_bf16.md",             2, "output_tokens_per_s", 16.56,            None,    32, 32768),
    ("rocm_qwen3.5-122b_q5k.md",               1, "prompt_tokens_per_s", 276.15,           2048,  None, 32768),
    ("rocm_qwen3.5-122b_q5k.md",               2, "output_tokens_per_s", 17.73,            None,    32, 32768),
    ("two_runs_old_names.md",                  1, "prompt_tokens_per_s", 4703.28,           512,  None,     0),
    ("two_runs_old_names.md",                  2, "output_tokens_per_s", 105.10,           None,   128,     0),
    ("two_runs_old_names.md",                  3, "weight_bytes",        604.15 * 2**20,   None,  None,  None),
    ("two_runs_old_names.md",                  5, "prompt_tokens_per_s", 9000.0,            512,  None,     0),
]
FACTS = [
    # file model device weights kv version
    ("sycl_qwen3.6-35b_q4km.json", "Qwen3.6-35B-A3B-Q4_K_M.gguf", "Intel(R) Arc(TM) Pro B70 Graphics", "q4_k_m", "fp16",
     "b10700-bebc9350e"),
    ("rocm_gpt-oss-20b_depths.jsonl", "gpt-oss-20b-F16.gguf", "Radeon 8060S Graphics", None, "fp16", "b6865-1c1409e1"),
    ("cuda_llama3.1-8b_f16.csv", "meta-llama-3.1-8b-instruct.f16.gguf", "Orin", "f16", "fp16", "b7772-287a33017"),
    ("metal_qwen3.6-27b_q4ks.csv", "Qwen3.6-27B-Q4_K_S.gguf", "Apple M4 Pro", "q4_k_s", "q4_1", "b9010-d05fe1d7d"),
    ("rocm_glm-4.7-flash_bf16.md", "deepseek2 30B.A3B BF16", "AMD Radeon 8060S Graphics", "bf16", None,
     "b9187-0253fb21f"),
    ("two_runs_old_names.md", "qwen3 0.6B Q8_0", "AMD Radeon RX 7900 XTX", "q8_0", None, "b8000-5d6e7f8"),
]
NAMES = [
    ("llama 8B all F32",                   "fp32"),
    ("llama 7B mostly Q4_0",               "q4_0"),
    ("qwen2 7B Q2_K - Medium",             "q2_k"),
    ("qwen2 7B Q2_K - Small",              "q2_k_s"),
    ("llama 8B Q3_K - Large",              "q3_k_l"),
    ("gpt-oss 20B MXFP4 MoE",              "mxfp4_moe"),
    ("llama 8B IQ4_NL - 4.5 bpw",          "iq4_nl"),
    ("bitnet 2B TQ1_0 - 1.69 bpw ternary", "tq1_0"),
    ("llama 8B Q8_0 (guessed)",            "q8_0"),
    ("llama 8B IQ3_S mix - 3.66 bpw",      None),
    ("llama 8B unknown, may not work",     None),
    (None,                                 None),
]
# fmt: on


@pytest.mark.parametrize(("file", "number", "quantity", "value", "prompt", "steps", "depth"), VALUES)
def test_values(*, file, number, quantity, value, prompt, steps, depth):
    """Times are those of the whole test; the table in markdown has rates only."""
    found = picked(file)[number]
    assert (found.quantity, found.value) == (quantity, pytest.approx(value, rel=1e-12))
    assert (found.prompt_tokens, found.count, found.context_tokens) == (prompt, steps, depth)
    assert (found.batch, found.statistic) == ((None, "single") if quantity == "weight_bytes" else (1, "mean"))


@pytest.mark.parametrize(("file", "model", "device", "weights", "kv_cache", "version"), FACTS)
def test_facts(*, file, model, device, weights, kv_cache, version):
    """Of the model's path only the file is kept; F16 is not believed of a file of 5 bits a weight."""
    found = picked(file)[-1]
    assert (found.model, found.device, found.weights) == (model, device, weights)
    assert (found.kv_cache, found.version, found.engine) == (kv_cache, version, "llama.cpp")


@pytest.mark.parametrize(("printed", "name"), NAMES)
def test_names_of_weights(printed, name):
    """Names that llama.cpp prints are those of `weights=`, where it has one."""
    assert weights_of(printed) == name


# fmt: off
SPREADS = [
    # file                        quantity               std
    ("cuda_qwen2.5-7b_q4km.json", "prefill_time_s",      0.001453752),
    ("cuda_qwen2.5-7b_q4km.json", "decode_time_s",       0.009449585),
    ("cuda_llama3.1-8b_f16.csv",  "decode_time_s",       0.004352045),
    ("rocm_qwen3.5-122b_q5k.md",  "prompt_tokens_per_s", 4.08),
    ("two_runs_old_names.md",     "total_tokens_per_s",  3.25),
]
# fmt: on


@pytest.mark.parametrize(("file", "quantity", "value"), SPREADS)
def test_standard_deviations(file, quantity, value):
    """The spread over the repetitions is a record of its own, beside the mean."""
    found = [one for one in read(FILES / file).records if (one.quantity, one.statistic) == (quantity, "std")]
    assert found[0].value == pytest.approx(value, rel=1e-12)


def test_a_single_repetition_has_no_spread():
    """A standard deviation of 0 says nothing, and is counted."""
    reading = read(FILES / "rocm_llama3.2-1b_depths.jsonl")
    assert reading.skipped == {"standard deviation of 0: a single repetition": 4}
    assert {one.statistic for one in reading.records} == {"single", "mean"}


def test_a_mixed_test_is_neither_phase():
    """Its rate mixes prompt and output."""
    mixed = ROW | {"n_gen": 128, "n_depth": 64, "avg_ts": 1280.0, "stddev_ts": 3.0}
    for found in (read("x", content=json.dumps(mixed).encode()).records[1], picked("two_runs_old_names.md")[4]):
        assert (found.quantity, found.phase, found.context_tokens) == ("total_tokens_per_s", "mixed", 64)
        assert (found.prompt_tokens, found.output_tokens, found.count) == (512, 128, None)


def test_settings_are_those_of_all_rows():
    """What differs from row to row stands with each record instead."""
    rows = [ROW | {"n_ubatch": size, "n_batch": 2048} for size in (128, 512)]
    reading = read("x", content=json.dumps(rows).encode())
    assert reading.settings == {"n_batch": 2048}
    assert [one.includes for one in reading.records[1:]] == [
        "no tokenising or sampling, n_ubatch 128", "no tokenising or sampling, n_ubatch 512",
    ]  # fmt: skip
    table = read(FILES / "two_runs_old_names.md")
    assert table.settings == {"backends": "Vulkan", "n_gpu_layers": "99"}
    assert table.records[-1].includes == "no tokenising or sampling, n_ubatch 512"


def test_layers_on_the_cpu_are_said():
    """A device's name would mislead where weights stay in the CPU's memory."""
    row = ROW | {"n_gpu_layers": 0, "n_cpu_moe": 12, "gpu_info": "", "cpu_info": "a CPU"}
    found = read("x", content=json.dumps(row).encode()).records[-1]
    assert (found.device, found.includes) == ("a CPU", "no tokenising or sampling, n_gpu_layers 0, n_cpu_moe 12")


def test_what_backends_print_before():
    """Standard error may stand before the table; lines keep their numbers."""
    before = b"ggml_cuda_init: found 1 CUDA devices:\n  Device 0: X, compute capability 8.9, VMM: yes\n"
    assert read("x", content=before + json.dumps([ROW]).encode()).records[-1].line == 3
    assert read("x", content=before + b"n_prompt,n_gen,avg_ns,avg_ts\n512,0,5e8,1024\n").records[-1].line == 4


def test_runs_one_after_another():
    """Tables of csv may be written one after another, with other columns in a newer build."""
    text = b'n_prompt,n_gen,avg_ns,avg_ts\n"512","0","5e8","1024"\n\n'
    text += b'n_prompt,n_gen,n_depth,avg_ns,avg_ts\n0,10,"1,024",1e9,10\n'
    assert [(one.line, one.value, one.context_tokens) for one in read("x", content=text).records] == [
        (2, 0.5, 0), (5, 1.0, 1024),
    ]  # fmt: skip


def test_a_table_in_a_page():
    """A fence, or what a script prints before each run, is no row; it is counted."""
    run = b"[invocation 1/2]\nn_prompt,n_gen,avg_ns,avg_ts\n512,0,5e8,1024\n"
    reading = read("x", content=b"```\n" + run + run + b"```\n")
    assert [(one.line, one.value) for one in reading.records] == [(4, 0.5), (7, 0.5)]
    assert reading.skipped == {"a line that is no row of the table": 2}


def test_addresses_of_other_hosts_are_left_out():
    """Devices of other hosts are printed with their address."""
    row = ROW | {"gpu_info": "RPC[192.0.2.7:50052], Orin"}
    assert read("x", content=json.dumps(row).encode()).records[-1].device == "RPC, Orin"


def test_a_mean_of_uneven_rates_is_believed():
    """One slow repetition moves the mean of rates far from tokens over mean time, and the spread tells so."""
    uneven = ROW | {"avg_ns": 2_800_000_000, "stddev_ns": 4_024_922_359, "avg_ts": 512 * 0.82}
    assert read("x", content=json.dumps(uneven).encode()).records[1].value == pytest.approx(2.8)


# fmt: off
HEADER = "build_commit,build_number,n_prompt,n_gen,avg_ns,stddev_ns,avg_ts,stddev_ts\n"
TABLE = "| model | size | params | backend | ngl | test | t/s |\n| --- | --: | --: | --- | --: | --: | --: |\n"
LINE = TABLE + "| llama 8B Q8_0 | 1 GiB | 1 B | CUDA | 99 | "
REFUSED = [
    # content message
    (HEADER + '"a","1","512","0","500000000","0","1024.0"\n', "x, line 2: 7 values under 8 names: .*-o jsonl"),
    (HEADER + '"a","1","512","0","500000000","0","10', "x, line 2: 7 values under 8 names"),
    (HEADER + '"a","1","512","0","500000000","0","140.34","7100.0"\n', "line 2: `avg_ts` = '140.34': expected"),
    (HEADER + '"a","1","many","0","500000000","0","1024","1"\n', "line 2: `n_prompt` = 'many': expected a number"),
    (HEADER + '"a","1","","0","500000000","0","1024","1"\n', "`n_prompt` = '': expected a number: files of"),
    (HEADER + '"a","1","512","0","0","0","0","0"\n', "without a record: 1 x a test of no tokens, or without"),
    ("build_commit,build_number,cpu_info\n1,2,3\n", "line 1: the header lacks n_gen, n_prompt"),
    (json.dumps([ROW])[:-3], "x, line 1: "),
    (json.dumps(ROW | {"avg_ns": [1]}), r"`avg_ns` = \[1\]: expected a number"),
    (json.dumps(ROW) + "\n" + json.dumps(ROW | {"avg_ts": 140.0}), "x, line 2: `avg_ts` = 140.0: expected about 1024"),
    (json.dumps(ROW) + "\n[1]", "x, line 2: holds int where a JSON object"),
    (LINE + "pp512", "line 3: 6 cells under 7 names"),
    (LINE + "xx512 | 5 ± 1 |", "line 3: `test` = 'xx512': expected pp512, tg128 or"),
    (LINE + "pp512 | 0.00 ± 0.00 |", "`t/s` = '0.00 ± 0.00': expected a rate"),
    (LINE + "pp512 | 5,1 ± 0.00 |", "line 3: `t/s` = '5,1': expected a number"),
    (TABLE, "without a record: it holds no measured value"),
]
# fmt: on


@pytest.mark.parametrize(("content", "message"), REFUSED)
def test_broken_files_are_refused(content, message):
    """One clear error names line, field and value; a shifted column is found by its width or its rate."""
    with pytest.raises(InvalidInputError, match=message):
        read("x", content=content.encode())


def test_sql_is_refused():
    """SQL would have to be executed: it is named, and the way out is told."""
    with pytest.raises(
        InvalidInputError, match="is llama-bench's SQL, and nothing in it is executed: run `llama-bench -o"
    ):
        read(FILES / "cuda_qwen2.5-7b_q4km.sql")


def test_text_in_another_encoding_is_refused():
    """A table that was saved in Latin-1 is refused by the byte."""
    text = LINE + "pp512 | 5 ± 1 |"
    with pytest.raises(InvalidInputError, match="byte 0xb1"):
        read("x", content=text.encode("latin-1"))
