"""`rooflinekit diagnose`: verdict, arithmetic, causes, one change, one measurement, for each sample of two tools."""

import csv
import io
import json
import re
from pathlib import Path

import pytest

FILES = Path(__file__).parents[1] / "measurements/files"
OLLAMA = Path(__file__).parents[2] / "examples/measurements/ollama.json"
L40S = ["--model", "qwen2.5-14b", "--device", "l40s", "--weights", "q8_0"]
GPT, LLAMA_8B = "--device h200-sxm --tensor-parallel 2 --engine sglang", "--model llama-3.1-8b"
LLAVA = "--model llama-2-7b --weights q4_0 --device apple-m3-max"
LLAMA, MISTRAL = "--model llama-3.2-3b --weights q4_k_m", "--model mistral-7b-v0.3 --weights q4_0"
FP8 = "--model llama-3.1-405b --device h100-sxm --weights fp8 --tensor-parallel 8 --engine vllm"
UNUSUAL, MIXED = "nothing unusual", "cannot tell: prompt and output tokens are in one rate"
FAR, UNTOLD = "cannot tell: whole request 475 s where 142 s is expected, 3.3 times", "cannot tell: tokens or requests"
ANY = ""

#: Prefill and decode on workers of their own: 128 in flight, of which 7 decode; the others wait for their prefill.
SPLIT = "smaller batch than thought: 6.6 sequences run together, not 128; that explains 39% of what is off, so a second"
# fmt: off
#: File -> what ran where (the sample's conditions; any card where none is stated), and how the verdict begins.
SAMPLES = {
    "ollama/generate_1.json":            (f"{LLAMA} --device rtx-3090",                        ANY),
    "ollama/generate_2.json":            (f"{LLAMA} --device rtx-3090",                        ANY),
    "ollama/generate_3.json":            (f"{LLAMA_8B} --weights q4_k_m --device rtx-3090",    ANY),
    "ollama/generate_5.json":            (LLAVA,                                               "cold start: 2.18 s"),
    "ollama/generate_with_runtime.json": (LLAVA,                                               ANY),
    "ollama/chat_cached_prefix.json":    (f"{LLAMA} --device rtx-3090",                        "cold start: 270 ms"),
    "ollama/verbose_14b_q8.txt":         (" ".join(L40S),                                      "cold start: 2.57 s"),
    "ollama/verbose_cached_prefix.txt":  (f"{LLAMA} --device rtx-3090",                        "cold start: 270 ms"),
    "ollama/verbose_minutes.txt":        (f"{MISTRAL} --device gb10",                          ANY),
    "ollama/verbose_mistral.txt":        (f"{MISTRAL} --device gb10",                          ANY),
    "ollama/verbose_two_runs.txt":       (f"{MISTRAL} --device gb10",                          ANY),
    "vllm/serve_4090.txt":               (f"{LLAMA_8B} --device rtx-4090 --engine vllm",       UNUSUAL),
    "vllm/serve_a100.txt":               (f"{LLAMA_8B} --device a100-pcie-40gb --engine vllm", UNUSUAL),
    "vllm/serve_2024_16qps.json":        (FP8,                                                 "cannot tell: decode"),
    "vllm/serve_2024_1000qps.json":      (FP8,                                                 "queueing: "),
    "vllm/serve_2025_in2048_out128.json": (GPT,                                                SPLIT),
    "vllm/serve_2025_in128_out2048.json": (GPT,                                                "queueing: "),
    "vllm/latency_batch16.json":         (f"{FP8} --batch 16 --prompt 2048 --output 2048",     UNUSUAL),
    "vllm/latency_batch128.json":        (f"{FP8} --batch 128 --prompt 2048 --output 2048",    FAR),
    "vllm/throughput_16.json":           (f"{FP8} --batch 16 --prompt 128 --output 2048",      UNUSUAL),
    "vllm/throughput_128.json":          (FP8,                                                 MIXED),
    "vllm/throughput_wrapped.json":      (FP8,                                                 MIXED),
    "vllm/throughput_a100.json":         (f"{LLAMA_8B} --device a100-pcie-40gb",               MIXED),
    "vllm/throughput_5090.json":         (f"{LLAMA_8B} --device rtx-5090",                     MIXED),
    "vllm/log_v0.12.0.log":              ("--device rtx-4090 --prompt 203 --output 211",       UNUSUAL),
    "vllm/log_v0.12.0_mxfp4.log":        ("--device a100-pcie-40gb --prompt 203 --output 211", UNUSUAL),
    "vllm/log_v0.10.1.1.log":            ("--model qwen2-7b --device a100-pcie-80gb",          f"{UNUSUAL}: tokens"),
    "vllm/log_v0.20-0.21.log":           ("--model qwen3-32b --device h100-sxm",               "cannot tell: 5.16 GiB"),
    "vllm/log_v0.28.0.log":              ("--model qwen3-32b --device rtx-3090",               UNTOLD),
    "vllm/log_v0_engine.log":            (f"{LLAMA_8B} --device rtx-3090",                     f"{UNUSUAL}: longest"),
}
#: Refused with a line of their own: two models in a file, a run that failed.
REFUSED = {"ollama/streamed_two_answers.jsonl", "vllm/throughput_failed.json"}
# fmt: on


def test_every_sample_is_here():
    """No file of Ollama or vLLM is left out."""
    found = {f"{path.parent.name}/{path.name}" for tool in ("ollama", "vllm") for path in (FILES / tool).iterdir()}
    assert found == {*SAMPLES} | REFUSED


@pytest.mark.parametrize("name", SAMPLES)
def test_every_sample_has_a_verdict(rooflinekit, name):
    """Verdict, then the arithmetic: what was observed, expected and from what; or why the file cannot tell."""
    given, verdict = SAMPLES[name]
    result = rooflinekit(["diagnose", str(FILES / name), *given.split(), "--format", "json"])
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["verdict"].startswith(verdict)
    assert found["change"]
    assert found["measurement"]
    if not found["verdict"].startswith((MIXED, UNTOLD, "cannot tell: 5.16 GiB")):
        assert found["symptoms"]
        assert all(one["basis"] for one in found["symptoms"])
        assert all(one["expected"] >= (one["floor"] or 0) for one in found["symptoms"])


def test_the_verdict_comes_first(rooflinekit):
    """Then symptoms, causes, the change and the measurement."""
    result = rooflinekit(["diagnose", str(OLLAMA), *L40S])
    assert (result.exit_code, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert lines[0] == "cold start: 2.57 s before a prefill of 24.4 ms: loading, warm-up or a first capture"
    assert lines[2].startswith("qwen2.5-14b on l40s: q8_0 weights, bf16 KV, llama.cpp/q8_0 on NVIDIA")
    assert re.split(r"\s{2,}", lines[3]) == ["symptom", "observed", "expected", "floor", "deviations", "basis"]
    assert re.split(r"\s{2,}", lines[5])[:3] == ["prefill", "2.60 s", "24.4 ms"]
    assert lines[-2:] == ["change: send the request twice and keep the second", "measure: the same request again"]


def test_markdown_keeps_lines_apart(rooflinekit):
    """The change and the measurement are paragraphs, not rows of a table."""
    text = rooflinekit(["diagnose", str(OLLAMA), *L40S, "--format", "markdown"]).stdout
    assert "\n\nchange: send the request twice and keep the second\n\nmeasure: the same request again\n" in text


def test_csv_is_one_table(rooflinekit):
    """Verdict, symptoms, causes and advice, a row each."""
    result = rooflinekit(["diagnose", str(OLLAMA), *L40S, "--format", "csv"])
    rows = list(csv.DictReader(io.StringIO(result.stdout)))
    assert [row["row"] for row in rows[:3]] == ["verdict", "symptom", "symptom"]
    assert [row["row"] for row in rows[-2:]] == ["change", "measurement"]
    assert float(rows[1]["observed"]) == 2.599748914


def test_two_scrapes(rooflinekit):
    """What a server did between them: counters are subtracted, its model and engine are in its labels."""
    files = [str(FILES / "metrics" / name) for name in ("vllm_after.prom", "vllm_before.prom")]
    given = ["--device", "h200-sxm", "--model", "qwen3-8b", "--prompt", "188", "--output", "250", "--format", "json"]
    between = rooflinekit(["diagnose", files[0], "--before", files[1], *given])
    assert between.exit_code == 0, between.stderr
    symptoms = {one["symptom"]: one for one in json.loads(between.stdout)["symptoms"]}
    assert (symptoms["requests running"]["observed"], symptoms["requests waiting"]["observed"]) == (11, 2)
    assert "decode step" in symptoms


def test_standard_input_and_several_files(rooflinekit):
    """A pipe beside a file, both about one machine."""
    result = rooflinekit(["diagnose", "-", str(OLLAMA), *L40S, "--format", "json"], OLLAMA.read_bytes())
    assert json.loads(result.stdout)["verdict"].startswith("cold start")


def test_the_budget_of_a_log(rooflinekit):
    """A log says how many tokens a pass takes; an option says otherwise."""
    line = [
        "diagnose",
        str(FILES / "vllm/log_v0.12.0.log"),
        "--device",
        "rtx-4090",
        "--prompt",
        "203",
        "--output",
        "211",
    ]
    assert rooflinekit(line).exit_code == rooflinekit([*line, "--token-budget", "512"]).exit_code == 0


SCRAPE, FAILED = str(FILES / "metrics/sglang_overloaded.prom"), str(FILES / "vllm/throughput_failed.json")
ANSWERS = str(FILES / "ollama/streamed_two_answers.jsonl")

# fmt: off
BAD = [
    ([str(OLLAMA)],                                        "says no device and model "),
    ([str(OLLAMA), "--model", "qwen2.5-14b"],              "says no device: give --device"),
    ([SCRAPE, "--device", "h200-sxm"],                     "no record says how long its prompt was: give"),
    ([ANSWERS, "--device", "gb10"],                        "holds runs of 2 deployments (model llama3.2, llama3.1:8b)"),
    ([FAILED, *L40S],                                      "the run failed"),
    ([str(OLLAMA), str(OLLAMA), "--before", str(OLLAMA), *L40S], "--before: expected one FILE"),
    ([str(OLLAMA), "--before", str(OLLAMA), *L40S],        "is no scrape"),
    ([str(OLLAMA), *L40S, "--token-budget", "some"],       "'some' is no number"),
    ([str(OLLAMA), *L40S, "--token-budget", "0"],         "--token-budget=0: expected a number, above 0"),
    ([str(OLLAMA), *L40S, "--prompt", "0"],               "--prompt=0: expected a number, above 0"),
    ([str(OLLAMA), *L40S, "--output", "nan"],             "--output=nan: expected a number"),
    ([str(OLLAMA), *L40S, "--tensor-parallel", "3"],      "does not divide among 3 ranks"),
    ([str(OLLAMA), *L40S, "--format", "xml"],              "--format='xml' is not known"),
    (["nowhere.json", *L40S],                              "nowhere.json"),
]
# fmt: on


@pytest.mark.parametrize(("line", "part"), BAD, ids=[part for _, part in BAD])
def test_bad_input_is_one_line(rooflinekit, line, part):
    """Exit status 2, and what to give."""
    result = rooflinekit(["diagnose", *line])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("rooflinekit: error: ")
    assert part in result.stderr
    assert result.stderr.count("\n") == 1
