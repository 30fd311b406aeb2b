"""Logs of vLLM servers, V0 to 0.28: sizes of one worker, tokens of one engine, windows and iterations."""

from pathlib import Path

import pytest

from rooflinekit.errors import InvalidInputError
from rooflinekit.measurements.reading import read

FILES = Path(__file__).parent / "files" / "vllm"
GIB = 2**30

# fmt: off
TABLE = [
    # file                    quantity            statistic  value
    ("log_v0.10.1.1.log",     "weight_bytes",     "single",  7.1217 * GIB),
    ("log_v0.10.1.1.log",     "load_time_s",      "min",     168.264821),
    ("log_v0.10.1.1.log",     "load_time_s",      "max",     168.306294),
    ("log_v0.10.1.1.log",     "kv_cache_bytes",   "single",  12.02 * GIB),
    ("log_v0.10.1.1.log",     "kv_cache_tokens",  "single",  450_192),
    ("log_v0.10.1.1.log",     "max_concurrency",  "single",  27.48),
    ("log_v0.10.1.1.log",     "graph_bytes",      "single",  0.65 * GIB),
    ("log_v0.12.0.log",       "weight_bytes",     "single",  14.9889 * GIB),
    ("log_v0.12.0.log",       "kv_cache_tokens",  "single",  56_800),
    ("log_v0.12.0.log",       "max_concurrency",  "single",  1.79),
    ("log_v0.12.0_mxfp4.log", "weight_bytes",     "single",  13.7025 * GIB),
    ("log_v0.12.0_mxfp4.log", "kv_cache_bytes",   "single",  21.09 * GIB),
    ("log_v0.12.0_mxfp4.log", "max_concurrency",  "single",  35.18),
    ("log_v0.12.0_mxfp4.log", "graph_bytes",      "single",  2.67 * GIB),
    ("log_v0.20-0.21.log",    "graph_bytes",      "single",  6.24 * GIB),
    ("log_v0.20-0.21.log",    "kv_cache_bytes",   "single",  5.16 * GIB),
    ("log_v0.28.0.log",       "kv_cache_tokens",  "single",  215_112),
    ("log_v0.28.0.log",       "max_concurrency",  "single",  1.64),
    ("log_v0_engine.log",     "weight_bytes",     "single",  14.9888 * GIB),
    ("log_v0_engine.log",     "kv_cache_bytes",   "single",  3.81 * GIB),
    ("log_v0_engine.log",     "peak_memory_bytes", "single", 17.06 * GIB),
    ("log_v0_engine.log",     "kv_cache_blocks",  "single",  1952),
    ("log_v0_engine.log",     "max_concurrency",  "single",  1.56),
]
FACTS = [
    # file                    model, version, weights, tensor parallelism                             a request
    ("log_v0.10.1.1.log",     ("Qwen2-7B-Instruct", "0.10.1.1", "bf16", 2),                           16_384),
    ("log_v0.12.0.log",       ("meta-llama/Meta-Llama-3.1-8B-Instruct", "0.12.0", "bf16", 1),         31_800),
    ("log_v0.12.0_mxfp4.log", ("openai/gpt-oss-20b", "0.12.0", None, 1),                              24_000),
    ("log_v0.28.0.log",       (None, None, None, None),                                               131_072),
    ("log_v0_engine.log",     (None, None, None, None),                                               20_000),
]
# fmt: on


def held(*lines):
    """Read the lines of a log."""
    return read("server.log", content="\n".join(lines).encode())


def values(reading, quantity):
    """Give the values of a quantity, in the file's order."""
    return [one.value for one in reading.records if one.quantity == quantity]


@pytest.mark.parametrize(("file", "quantity", "statistic", "value"), TABLE)
def test_each_figure_is_the_logs_own(file, quantity, statistic, value):
    """One record each, however many ranks print it; where they differ, the least and the most."""
    records = read(FILES / file).records
    found = [one.value for one in records if (one.quantity, one.statistic) == (quantity, statistic)]
    assert found == pytest.approx([value], rel=1e-12)


@pytest.mark.parametrize(("file", "said", "length"), FACTS)
def test_records_say_what_the_log_says(file, said, length):
    """A quantized model's formats are not told by its dtype; concurrency is for requests of the printed length."""
    records = read(FILES / file).records
    facts = {(one.model, one.version, one.weights, one.tensor_parallel, one.engine) for one in records}
    assert facts == {(*said, "vllm")}
    assert [one.prompt_tokens for one in records if one.quantity == "max_concurrency"] == [length]


def test_settings_are_those_of_the_list():
    """Arguments and engine configuration under one name each; hosts and ports are not kept."""
    settings = read(FILES / "log_v0.10.1.1.log").settings
    assert settings == {
        "max_model_len": 16384, "tensor_parallel_size": 2, "gpu_memory_utilization": 0.25, "dtype": "bfloat16",
        "max_num_batched_tokens": 2048, "pipeline_parallel_size": 1, "enforce_eager": False, "kv_cache_dtype": "auto",
        "enable_prefix_caching": True, "enable_chunked_prefill": True, "attention_backend": "Flash Attention",
    }  # fmt: skip


def test_the_share_that_graphs_leave_is_a_setting():
    """0.62 acts like 0.5413 of older versions."""
    settings = read(FILES / "log_v0.20-0.21.log").settings
    assert settings == {"gpu_memory_utilization": 0.62, "gpu_memory_utilization_without_graphs": 0.5413}


ARGUMENTS = "INFO [utils.py:1] non-default args: "
SIZE = "INFO [kv_cache_utils.py:1] GPU KV cache size: 1,600 tokens"
# fmt: off
SECRETS = [
    # arguments                                                                          settings
    ("{'host': 'h', 'api_key': 'sk', 'model': '/home/me/m', 'max_num_seqs': 64}",          {"max_num_seqs": 64}),
    ("{'api_key': 'sk', 'max_num_seqs': 64, 'compilation_config': Config(level=3), 'enforce_eager': True}",
                                                                    {"max_num_seqs": 64, "enforce_eager": True}),
    ("{'api_key': ['sk'], 'max_num_seqs': 64, 'hf_token': 'sk', 'chat_te",                 {"max_num_seqs": 64}),
    ("{'max_num_seqs': __import__('os').getcwd()}",                                        {}),
]
# fmt: on


@pytest.mark.parametrize(("arguments", "settings"), SECRETS)
def test_arguments_are_read_by_name_and_never_run(arguments, settings):
    """Also where the line is cut or holds objects; keys, hosts and folders stay in the log."""
    reading = held(ARGUMENTS + arguments, SIZE)
    assert reading.settings == settings
    assert "sk" not in repr(reading.records)
    assert reading.records[0].model in {"m", None}


V0_PROFILE = (
    "INFO [worker.py:267] model weights take 14.99GiB; non_torch_memory takes 0.05GiB; PyTorch activation peak memory "
    "takes 0.22GiB; the rest of the memory reserved for KV Cache is 4.60GiB."
)
# fmt: off
LINES = [
    # line                                                                          quantity           value
    (V0_PROFILE,                                                                    "kv_cache_bytes",  4.60 * GIB),
    (V0_PROFILE,                                                                    "weight_bytes",    14.99 * GIB),
    ("INFO 03-25 [executor_base.py:108] # CUDA blocks: 2356, # CPU blocks: 2048",   "kv_cache_blocks", 2356),
    ("INFO 12-31 [executor_base.py:112] # rocm blocks: 6495, # CPU blocks: 2340",   "kv_cache_blocks", 6495),
    ("INFO [loggers.py:1] Engine 000: vllm cache_config_info with initialization after num_gpu_blocks is: 573",
                                                                                    "kv_cache_blocks", 573),
    ("INFO [worker.py:1] TPU KV cache size: 4,096 tokens",                          "kv_cache_tokens", 4096),
    ("\x1b[0;36m(EngineCore pid=1)\x1b[0;0m INFO [x.py:1] GPU KV cache size: 4,096 tokens", "kv_cache_tokens", 4096),
    ("[0;36m(EngineCore pid=1)[0;0m INFO [x.py:1] GPU KV cache size: 4,096 tokens", "kv_cache_tokens", 4096),
    ("web-1  | (EngineCore pid=1) INFO [x.py:1] CUDA graph pool memory: 1.28 GiB (actual), 1.26 GiB (estimated)",
                                                                                    "graph_bytes",     1.28 * GIB),
    ("INFO [gpu_worker.py:479] Initial free memory 90.5 GiB, reserved 49.0 GiB memory for KV Cache as specified by x",
                                                                                    "kv_cache_bytes",  49.0 * GIB),
]
# fmt: on


@pytest.mark.parametrize(("line", "quantity", "value"), LINES)
def test_lines_of_other_versions_are_read(line, quantity, value):
    """V0 of 2025, other devices, coloured logs, logs of containers."""
    assert values(read("server.log", content=line.encode(), format="vllm-log"), quantity) == pytest.approx([value])


def test_a_quantity_printed_twice_is_taken_from_the_exact_line():
    """V0 prints the weights with four decimals and again with two; the graphs' size likewise."""
    reading = held(
        "INFO [model_runner.py:1] Loading model weights took 14.9888 GB",
        "INFO [worker.py:1] model weights take 14.99GiB; the rest of the memory reserved for KV Cache is 4.60GiB.",
        "INFO [x.py:1] Graph capturing finished in 3 secs, took 0.62 GiB",
        "INFO [x.py:1] CUDA graph pool memory: 0.63 GiB (actual), 0.61 GiB (estimated)",
    )
    assert values(reading, "weight_bytes") == [14.9888 * GIB]
    assert values(reading, "graph_bytes") == [0.62 * GIB]


def test_workers_that_differ_give_the_least_and_the_most():
    """Ray prints one line for several workers and says how many; the smallest cache decides."""
    reading = held(
        "(RayWorkerWrapper pid=1, ip=192.0.2.1) INFO [w.py:1] Available KV cache memory: 12.02 GiB",
        "(RayWorkerWrapper pid=2, ip=192.0.2.2) INFO [w.py:1] Available KV cache memory: 11.50 GiB "
        "[repeated 3x across cluster]",
    )
    assert [(one.statistic, one.value, one.includes) for one in reading.records] == [
        ("min", 11.5 * GIB, "of 5 workers"),
        ("max", 12.02 * GIB, "of 5 workers"),
    ]
    assert "192.0.2" not in repr(reading)


def test_engines_of_a_data_parallel_server_are_counted_once_each():
    """A reprint adds nothing; the further engine is named."""
    line = "(EngineCore_DP{} pid={}) INFO [kv_cache_utils.py:1] GPU KV cache size: {} tokens"
    reading = held(line.format(0, 11, "1,226,636"), line.format(0, 11, "1,226,636"), line.format(1, 12, "1,224,353"))
    assert [(one.name, one.value) for one in reading.records] == [("", 1_226_636), ("DP1", 1_224_353)]


def test_a_server_started_twice_gives_the_records_of_both_starts():
    """Each with the facts of its own start."""
    start = "INFO [api_server.py:1] vLLM API server version {}"
    reading = held(start.format("0.9.0"), SIZE, start.format("0.9.1"), SIZE.replace("1,600", "3,200"))
    assert [(one.version, one.value) for one in reading.records] == [("0.9.0", 1600), ("0.9.1", 3200)]


LOADED = "INFO [model_runner.py:1] Loading model weights took {} GB"
CONCURRENCY = "INFO [executor.py:1] Maximum concurrency for {} tokens per request: {}x"


def test_starts_that_were_pasted_one_below_the_other():
    """Without the line that opens a log: weights are loaded before the cache is sized, so that they begin a start."""
    first = (LOADED.format(14.5), "INFO GPU blocks: 1952, # CPU blocks: 2048", CONCURRENCY.format(20000, 1.56))
    reading = held(*first, LOADED.format(14.5), "INFO # GPU blocks: 1478", CONCURRENCY.format(29000, 0.82))
    assert values(reading, "weight_bytes") == [14.5 * GIB, 14.5 * GIB]
    assert values(reading, "kv_cache_blocks") == [1952, 1478]
    held_by = {(one.value, one.prompt_tokens) for one in reading.records if one.quantity == "max_concurrency"}
    assert held_by == {(1.56, 20000), (0.82, 29000)}


def test_a_second_engine_and_a_late_repeat_are_no_further_start():
    """Engines of one server load at their own pace, and Ray prints what workers repeat after a while."""
    sized = "(EngineCore_DP0 pid=1) INFO [kv_cache_utils.py:1] GPU KV cache size: 1,600 tokens"
    loads = "({} pid={}) INFO [m.py:1] Model loading took 2.00 GiB and 1.5 seconds{}"
    late = loads.format("RayWorkerWrapper", 3, " [repeated 3x across cluster]")
    reading = held(loads.format("EngineCore_DP0", 1, ""), sized, loads.format("EngineCore_DP1", 2, ""), late)
    assert [(one.name, one.includes) for one in reading.records if one.quantity == "weight_bytes"] == [
        ("", "of 5 workers"), ("DP1", ""),
    ]  # fmt: skip


# ---- windows and iterations

WINDOW = (
    "(APIServer pid=1) INFO 12-09 19:48:33 [loggers.py:236] Engine 000: Avg prompt throughput: {} tokens/s, Avg "
    "generation throughput: 185.4 tokens/s, Running: 4 reqs, Waiting: 0 reqs, GPU KV cache usage: 2.6%, "
    "Prefix cache hit rate: 53.6%, MM cache hit rate: 9.0%"
)
V0_WINDOW = (
    "INFO [metrics.py:488] Avg prompt throughput: 2.2 tokens/s, Avg generation throughput: 0.2 tokens/s, Running: 1 "
    "reqs, Swapped: 0 reqs, Pending: 3 reqs, GPU KV cache usage: 5.0%, CPU KV cache usage: 1.0%."
)


@pytest.mark.parametrize(("end", "kept"), [("hit rate: 53", 5), ("usage: 2.6", 4), ("Waiting: 0", 3), ("185.4", 1)])
def test_half_a_number_at_the_end_of_a_cut_log_is_not_read(end, kept):
    """A value counts with its unit only: ``usage: 2`` is not 2 %."""
    window = WINDOW.format("1.5")
    assert len(held(window[: window.index(end) + len(end)])) == kept


def test_windows_of_a_sample_are_read():
    """Four windows of six values each, beside six values of the start."""
    reading = read(FILES / "log_v0.12.0.log")
    assert values(reading, "output_tokens_per_s") == [9.0, 136.6, 185.4, 133.7]
    assert values(reading, "requests_running") == [1, 2, 4, 3]
    assert values(reading, "kv_cache_usage") == pytest.approx([0.002, 0.013, 0.026, 0.018])
    assert len(reading) == 30


def test_a_window_without_prompts_has_no_prompt_rate():
    """A rate of 0 is skipped, states of 0 are states."""
    reading = held(WINDOW.format("0.0"))
    assert values(reading, "prompt_tokens_per_s") == []
    assert reading.skipped["prompt_tokens_per_s of 0: no such token in the window"] == 1
    assert values(reading, "requests_waiting") == [0]
    assert values(reading, "prefix_cache_hit_rate") == pytest.approx([0.536])


def test_the_hit_rate_of_another_cache_is_counted_not_mixed_in():
    """A cache of images, and blocks that a connector brings, are not the GPU's prefix cache."""
    reading = held(WINDOW.format("9.0") + ", External prefix cache hit rate: 47.9%")
    assert values(reading, "prefix_cache_hit_rate") == pytest.approx([0.536])
    why = "cache hit rate: not of the prefix cache on the GPU"
    assert reading.skipped == {f"External prefix {why}": 1, f"MM {why}": 1}


#: Of one worker, from 0.10.2 on; the wording of the first part and of the last has changed since.
BUDGET = (
    "(Worker_TP{0} pid=7{0}) INFO 11-02 10:00:09 [gpu_worker.py:391] Free memory on device (78.5/80.0 GiB) on startup. "
    "Desired GPU memory utilization is (0.9, 72.0 GiB). Actual usage {1}, 2.0 GiB for peak activation, {2}. "
    "Replace gpu_memory_utilization config with `--kv-cache-memory=5000` (1.0 GiB) to fit. Current kv cache memory {3}."
)
PARTS = [
    (
        "is 14.5 GiB for weight",
        "0.5 GiB for non-torch memory, and 0.75 GiB for CUDAGraph memory",
        "in use is 1024 bytes",
    ),
    ("is 14.5 GiB for weight", "0.5 GiB for non-torch memory, and 0.75 GiB for CUDAGraph memory", "in use is 55.0 GiB"),
    (
        "is 15.0 GiB for consumed memory (weights + non-torch)",
        "and 0.75 GiB for CUDAGraph memory",
        "in use is 55.0 GiB",
    ),
    ("is 14.5 GiB for weights", "0.5 GiB for non-torch memory, 0.75 GiB for NPU graph memory", "in use is 55.0 GiB"),
]


@pytest.mark.parametrize("parts", PARTS)
def test_the_worker_that_tells_how_its_memory_is_shared_out(parts):
    """Each part is a record of two workers, in bytes."""
    reading = held(BUDGET.format(0, *parts), BUDGET.format(1, *parts))
    gib = {(one.quantity, one.includes.removesuffix("of 2 workers")): one.value / GIB for one in reading.records}
    assert gib.pop(("kv_cache_bytes", "")) == (55.0 if "GiB" in parts[2] else 1024 / GIB)
    expected = {("memory_bytes", "all that the GPU has, "): 80.0, ("graph_bytes", ""): 0.75}
    expected["memory_bytes", "activations, at their peak, "] = 2.0
    if "consumed" in parts[0]:
        expected["memory_bytes", "weights, and what is not by PyTorch, "] = 15.0
    else:
        expected |= {("weight_bytes", ""): 14.5, ("memory_bytes", "not by PyTorch, "): 0.5}
    assert gib == expected


def test_what_that_worker_repeats_is_not_counted_twice():
    """The lines that it repeats say it first; an estimate is no repeat."""
    lines = (
        "INFO [x.py:1] Model loading took 14.25 GiB memory and 3.5 seconds",
        "INFO [x.py:1] Estimated CUDA graph memory: 0.9 GiB total",
        "INFO [x.py:1] Available KV cache memory: 54.75 GiB",
        "INFO [x.py:1] CUDA graph pool memory: 0.75 GiB (actual), 0.9 GiB (estimated)",
    )
    reading = held(*lines, BUDGET.format(0, *PARTS[1]))
    assert values(reading, "weight_bytes") == [14.25 * GIB]
    assert values(reading, "kv_cache_bytes") == [54.75 * GIB]
    assert values(reading, "graph_bytes") == pytest.approx([0.9 * GIB, 0.75 * GIB])


def test_a_window_of_v0_is_read():
    """Pending is waiting, and the cache in host memory is not the GPU's."""
    reading = held(V0_WINDOW, "INFO [metrics.py:504] Prefix cache hit rate: GPU: 25.00%, CPU: 0.00%")
    assert values(reading, "requests_waiting") == [3]
    assert values(reading, "kv_cache_usage") == [0.05]
    assert values(reading, "prefix_cache_hit_rate") == [0.25]


def test_an_iteration_that_encodes_images_says_so():
    """Since 2026 the line goes on: the cache's use, inputs of the vision encoder, whose time is in it."""
    line = "Iteration(7): 1 context requests, 64 context tokens, 0 generation requests, 0 generation tokens, iteration "
    line += "elapsed time: 20.00 ms, GPU KV cache usage: 3.0%, encoder inputs: {}, encoder output embeddings: 880"
    reading = held(line.format(4), line.format(0))
    assert [(one.value, one.includes) for one in reading.records] == [(0.02, "4 inputs of an encoder"), (0.02, "")]


SPECULATION = (
    "SpecDecoding metrics: Mean acceptance length: 1.74, Accepted throughput: 2.00 tokens/s, Drafted throughput: 3.00 "
    "tokens/s, Per-position acceptance rate: 0.738, Avg Draft acceptance rate: 73.8%"
)


@pytest.mark.parametrize(
    ("line", "rate", "length"),
    [
        (SPECULATION, 0.738, [1.74]),
        ("SpecDecoding metrics: Draft acceptance rate: 60.0%, Accepted: 6 tokens, Drafted: 10 tokens", 0.6, []),
        ("Speculative metrics: Draft acceptance rate: 0.603, System efficiency: 0.5", 0.603, []),
    ],
)  # fmt: skip
def test_acceptance_is_a_share_in_every_version(line, rate, length):
    """V1 prints a percentage, V0 a fraction."""
    reading = held(SIZE, line)
    assert values(reading, "acceptance_rate") == pytest.approx([rate])
    assert values(reading, "accepted_tokens_per_step") == length


ITERATION = (
    "(EngineCore{} pid=9) INFO [core.py:359] Iteration(2): {} context requests, {} context tokens, {} generation "
    "requests, {} generation tokens, iteration elapsed time: {} ms"
)
# fmt: off
ITERATIONS = [
    # engine  prompts, their tokens, sequences, their tokens, ms   phase      batch  prompt  includes
    (("",     9, 65535, 1, 1, "4695.50"),                          "mixed",   1,     65535,  "9 prompts share"),
    (("_DP1", 1, 6471, 15, 15, "561.97"),                          "mixed",   15,    6471,   ""),
    (("",     0, 0, 8, 8, "12.40"),                                "decode",  8,     None,   ""),
    (("",     1, 2048, 0, 0, "80.00"),                             "prefill", 1,     2048,   ""),
    (("",     0, 0, 4, 16, "20.00"),                               "decode",  4,     None,   "16 tokens for 4"),
]
# fmt: on


@pytest.mark.parametrize(("line", "phase", "batch", "prompt", "includes"), ITERATIONS)
def test_an_iteration_is_one_step(line, phase, batch, prompt, includes):
    """Its phase follows from what ran in it; prompt tokens are those of all its prompts."""
    (step,) = held(ITERATION.format(*line)).records
    assert (step.quantity, step.value) == ("step_time_s", pytest.approx(float(line[-1]) / 1000))
    assert (step.phase, step.batch, step.prompt_tokens, step.count) == (phase, batch, prompt, 1)
    assert step.includes.startswith(includes)
    assert bool(step.includes) is bool(includes)
    assert step.name == ("DP1" if line[0] else "")


# fmt: off
SERVER, GRAPHS = "INFO vLLM API server version 0.9.1", "INFO Graph capturing finished in 2 secs, took -0.74 GiB"
BROKEN = [
    # lines                                                         text of the error
    ((ITERATION.format("", 0, 0, 0, 0, "3.00"),),                   "an iteration of no time or without a request"),
    ((ITERATION.format("", 1, 5, 0, 0, "3.00")[:-20],),             "a line that is cut, or of a form that is not"),
    ((SERVER, "INFO GPU KV cache size: 450,19"),                    "a line that is cut, or of a form"),
    (("INFO Model loading took 0.0000 GiB and 1",),                 "weight_bytes of 0 or less: nothing was measured"),
    ((SERVER, GRAPHS),                                              "graph_bytes of 0 or less"),
    ((SERVER,),                                                     "log of a vLLM server without a record"),
]
# fmt: on


@pytest.mark.parametrize(("lines", "message"), BROKEN)
def test_a_log_without_a_value_says_why(lines, message):
    """Cut lines and sizes of 0 are skipped with their reason; nothing else is left here."""
    with pytest.raises(InvalidInputError, match=message):
        held(*lines)
