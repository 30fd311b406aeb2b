"""Commands that verify an estimate: of the right tool, complete, and with the range that the library itself gives."""

import re
import shlex
import shutil
import subprocess
from itertools import pairwise

import pytest

import rooflinekit as rk
from rooflinekit.errors import DoesNotFitError, InvalidInputError, MissingFigureError

SUMMARY = {"summary": {"parameters": 8_000_000_000, "layers": 32, "kv_heads": 8, "head_dim": 128}}


def commands(model="qwen3-8b", device="gb10", *, prompt=2048, output=200, batch=1, **choices):
    """List the commands of a deployment."""
    return rk.Deployment(model, device, **choices).verify_commands(prompt, output, batch)


def tools(found):
    """Name the program of each command."""
    words = [one.command.split() for one in found]
    return [" ".join(line[:3] if line[1] == "bench" else line[:2] if line[0] == "vllm" else line[:1]) for line in words]


def flags(command):
    """Give the flags of a command with their values."""
    words = [*shlex.split(command), "--end"]
    return {one: None if after.startswith("-") else after for one, after in pairwise(words)}


VLLM = ["vllm bench latency", "vllm bench latency", "vllm serve", "vllm bench serve", "curl"]
LLAMA = ["llama-bench", "llama-bench", "llama-server", "curl"]
# fmt: off
FITTING = [
    # choices                                                  programs
    ({},                                                       VLLM),
    ({"engine": "vllm-0.31"},                                  VLLM),
    ({"batch": 8},                                             VLLM[:-1]),
    ({"output": 1},                                            ["vllm bench latency", *VLLM[2:]]),
    ({"weights": "fp8"},                                       VLLM),
    ({"weights": "q4_k_m"},                                    LLAMA),
    ({"weights": "iq3_s"},                                     LLAMA),
    ({"engine": "llama.cpp"},                                  LLAMA),
    ({"engine": "llama.cpp-cuda", "batch": 8},                 ["llama-batched-bench"]),
    ({"engine": "sglang"},                                     VLLM[3:]),
    ({"weights": "mlx-4bit", "device": "apple-m4-max"},        VLLM[3:]),
]
# fmt: on


@pytest.mark.parametrize(("choices", "expected"), FITTING, ids=[str(choices) for choices, _ in FITTING])
def test_commands_fit_engine_and_format(choices, expected):
    """GGUF formats go to llama.cpp's tools, everything else to vLLM's; other engines are asked over HTTP alone."""
    assert tools(commands(**choices)) == expected


def test_two_latencies_whose_difference_is_the_step():
    """They differ in the output length and in nothing else but the file that they write."""
    first, second = (flags(one.command) for one in commands(batch=8)[:2])
    assert (first["--output-len"], second["--output-len"]) == ("1", "200")
    differing = {name for name in first if first[name] != second.get(name)}
    assert {name for name in differing if name.startswith("--")} == {"--output-len", "--output-json"}
    assert (first["--model"], first["--input-len"], first["--batch-size"]) == ("Qwen/Qwen3-8B", "2048", "8")
    assert (first["--max-num-batched-tokens"], first["--max-model-len"]) == ("16384", "2248")


def test_the_serving_benchmark_is_exact():
    """Exact lengths, no end of sequence, no cached prefix, as many at once as the estimate has."""
    server, client = (flags(one.command) for one in commands(batch=8)[2:4])
    assert "--no-enable-prefix-caching" in server
    assert server["--max-num-batched-tokens"] == "16384"
    wanted = {
        "--model": "Qwen/Qwen3-8B", "--dataset-name": "random",
        "--random-input-len": "2048", "--random-output-len": "200",
        "--random-range-ratio": "0", "--max-concurrency": "8", "--num-prompts": "32", "--request-rate": "inf",
        "--ignore-eos": None, "--seed": "0",
    }  # fmt: skip
    assert {name: client[name] for name in wanted} == wanted


def test_llama_bench_starts_at_the_depth_of_the_prompt():
    """The prompt is one micro-batch; the steps begin at the prompt's depth, at batch 1."""
    prefill, decode = (flags(one.command) for one in commands(weights="q4_k_m")[:2])
    assert (prefill["-p"], prefill["-n"], prefill["-ub"], prefill["-r"]) == ("2048", "0", "2048", "10")
    assert (decode["-p"], decode["-n"], decode["-d"]) == ("0", "200", "2048")


def test_expectations_are_the_librarys_own():
    """The range is the 80% interval; that of a step is of the mean step of the request."""
    d = rk.Deployment("qwen3-8b", "gb10")
    prefill, decode, _, serve, _ = d.verify_commands(2048, 200)
    low, high = (f"{1000 * end:.0f} ms" for end in d.prefill(2048).interval(0.8))
    assert prefill.expects == f"avg_latency (the prefill): 418 ms, with 80% {low} to {high} (gb10/vllm-0.31/bf16)"
    request = d.request(2048, output_tokens=200)
    low, high = (f"{1000 * end / 199:.1f} ms" for end in request.decode.interval(0.8))
    step = f"{1000 * request.time_per_output_token_s:.1f} ms, with 80% {low} to {high} (gb10/vllm-0.31/bf16)"
    assert decode.expects == f"avg_latency less that of the run before, over 199 (a decode step): {step}"
    assert f"median_tpot_ms (a decode step): {step}" in serve.expects


def test_rates_of_llama_bench_rise():
    """Tokens a second: the slow end of the interval is the low rate."""
    d = rk.Deployment("llama-3.1-8b", "rtx-4090", weights="q4_k_m")
    _, decode, *_ = d.verify_commands(512, 64)
    value, low, high = (float(one) for one in re.findall(r"([\d.]+) t/s", decode.expects))
    assert low < value < high
    assert value == pytest.approx(64 / d.request(512, output_tokens=65).decode.time_s, rel=0.005)


def test_without_a_spread_there_is_no_interval():
    """A roofline is no prediction of what a benchmark prints, and says so."""
    first = commands(efficiency="datasheet")[0]
    assert re.search(r"\d ms, no interval \(datasheet roofline of gb10\)$", first.expects)


def test_a_checkpoint_that_has_no_name_is_left_to_fill_in():
    """A format that no repository of the catalogue holds, and a summary, are MODEL."""
    first, *_ = commands(weights="int4")
    assert "--model MODEL " in first.command
    assert first.expects.endswith("; MODEL: your checkpoint of Qwen3-8B with int4 weights")
    assert "--model MODEL " in commands(SUMMARY, "h200-sxm")[0].command
    assert "--model Qwen/Qwen3-8B " in commands(weights="fp8")[0].command


def test_formats_become_flags():
    """FP8 is made at loading, the cache has its own dtype, and nothing is said of what is the default."""
    found = flags(commands(weights="fp8", kv_cache="fp8")[0].command)
    assert (found["--quantization"], found["--kv-cache-dtype"]) == ("fp8", "fp8")
    assert flags(commands(weights="bf16")[0].command)["--dtype"] == "bfloat16"
    assert not {"--quantization", "--kv-cache-dtype", "--dtype"} & flags(commands()[0].command).keys()


# fmt: off
LAYOUTS = [
    # layout                                              flags of vLLM
    ({"tensor_parallel": 2},                              {"--tensor-parallel-size": "2"}),
    ({"pipeline_parallel": 4},                            {"--pipeline-parallel-size": "4"}),
    ({"tensor_parallel": 2, "pipeline_parallel": 2},      {"--tensor-parallel-size": "2",
                                                           "--pipeline-parallel-size": "2"}),
    ({"tensor_parallel": 4, "expert_parallel": 4},        {"--tensor-parallel-size": "4",
                                                           "--enable-expert-parallel": None}),
    ({"data_parallel_attention": 2, "expert_parallel": 2}, {"--data-parallel-size": "2",
                                                            "--enable-expert-parallel": None}),
    ({},                                                  {}),
]
# fmt: on


@pytest.mark.parametrize(("layout", "expected"), LAYOUTS, ids=[str(layout) for layout, _ in LAYOUTS])
def test_a_layout_becomes_flags_of_every_engine_that_starts(layout, expected):
    """Both latencies and the server run on as many devices as the estimate; the clients know nothing of it."""
    found = commands("qwen3-30b-a3b", "h200-sxm", **layout)
    known = {flag for _, flags_of in LAYOUTS for flag in flags_of}
    for one in found[:3]:
        assert {name: value for name, value in flags(one.command).items() if name in known} == expected
    assert not known & flags(found[3].command).keys()


def test_experts_that_vllm_would_divide_otherwise_are_said():
    """No flag of vLLM makes two groups of experts of four ranks."""
    d = rk.Deployment("qwen3-30b-a3b", "h200-sxm", tensor_parallel=4, expert_parallel=2)
    assert d.verify_commands(512, 8)[0].expects.endswith(
        "; vLLM divides whole experts among all 4 ranks, estimated is TP4 EP2"
    )


@pytest.mark.parametrize(
    ("layout", "bench", "server"),
    [
        ({"pipeline_parallel": 2}, "-sm layer -ts 1/1 -r 10", "-sm layer -ts 1,1 --port 8080"),
        ({"tensor_parallel": 4}, "-sm row -ts 1/1/1/1 -r 10", "-sm row -ts 1,1,1,1 --port 8080"),
    ],
)
def test_llama_cpp_splits_layers_or_rows(layout, bench, server):
    """llama-bench separates the parts with slashes, the server with commas."""
    first, second, started, _ = commands("llama-3.1-70b", "rtx-3090", weights="q4_k_m", memory_check=False, **layout)
    assert bench in first.command
    assert bench in second.command
    assert started.command.endswith(server)


def test_a_layout_that_llama_cpp_lacks_is_refused():
    """Layers and rows at once have no flag."""
    with pytest.raises(InvalidInputError, match=r"TP2 PP2: llama\.cpp divides layers"):
        commands("llama-3.1-70b", "rtx-3090", weights="q4_k_m", tensor_parallel=2, pipeline_parallel=2)


def test_another_engines_server_is_told_its_layout():
    """How it is started is its own business, on how many devices is ours."""
    first = commands("qwen3-8b", "h200-sxm", engine="sglang", tensor_parallel=2)[0]
    assert first.expects.endswith("; a server of sglang on 2 devices (TP2) listens on port 8000")


def test_more_than_a_pass_holds():
    """One long prompt is estimated in passes of the budget; several prompts as one pass, which is said."""
    d = rk.Deployment("llama-3.1-8b", "h200-sxm")
    long = d.verify_commands(40_000, 10)[0]
    assert flags(long.command)["--max-num-batched-tokens"] == "16384"
    chunked = d.chunked_prefill(40_000, token_budget=16_384).time_s
    assert f"{chunked:.2f} s, with" in long.expects
    assert d.verify_commands(8192, 10, 8)[0].expects.endswith("; estimated as one pass, the engine takes 4")


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs a shell")
def test_curl_sends_a_prompt_of_that_length():
    """The line is taken by a shell as it is, and its body is JSON with a prompt of so many tokens."""
    line = commands(prompt=5, output=3)[-1].command
    script = 'curl() { printf "%s\\n" "$@"; }\n' + line
    done = subprocess.run([shutil.which("bash"), "-c", script], capture_output=True, text=True, check=True)  # noqa: S603 - our own line
    *_, body = done.stdout.splitlines()
    assert '"prompt": [1000,1001,1002,1003,1004], "max_tokens": 3, ' in body
    assert '"model": "Qwen/Qwen3-8B"' in body
    assert "%{time_pretransfer}" in line
    assert "%{time_starttransfer}" in line


def test_printing():
    """Commands print as lines for a shell, what to expect below each."""
    found = commands(weights="q4_k_m", batch=2)
    (one,) = found
    assert str(found) == str(one) == repr(found)
    command, *expected = str(one).splitlines()
    assert command == f"$ {one.command}"
    assert "; ".join(line.removeprefix("    ") for line in expected) == one.expects


def test_bad_sizes():
    """Sizes are whole and positive, what does not fit is refused, and a time needs its peak."""
    with pytest.raises(InvalidInputError, match=r"batch=1\.5: expected a number, 1 or more, whole"):
        commands(batch=1.5)
    with pytest.raises(InvalidInputError, match="output_tokens=0"):
        commands(output=0)
    with pytest.raises(DoesNotFitError):
        commands("llama-3.1-70b", "rtx-4090")
    with pytest.raises(MissingFigureError):
        commands(device="cpu-ddr5-5600-dual")
