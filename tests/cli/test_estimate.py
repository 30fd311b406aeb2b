"""`rooflinekit estimate`: the numbers of Python, in four formats."""

import csv
import io
import json

import pytest

import rooflinekit as rk

LINE = "estimate llama-3.1-8b h100-sxm --prompt 2048 --output 200 --batch 32"


@pytest.fixture(scope="module")
def deployment():
    """Give the same deployment in Python."""
    return rk.Deployment("llama-3.1-8b", "h100-sxm")


def test_json_holds_the_numbers_of_python(rooflinekit, deployment):
    """Every figure of the command is the very float of the library."""
    read = json.loads(rooflinekit(f"{LINE} --format json").stdout)
    request = deployment.request(2048, output_tokens=200, batch=32)
    step = deployment.decode(2048, batch=32)
    assert (read["model"], read["device"], read["basis"]) == ("llama-3.1-8b", "h100-sxm-80gb", step.basis)
    assert read["request"]["time_to_first_token_s"] == request.time_to_first_token_s
    assert read["request"]["time_per_output_token_s"] == request.time_per_output_token_s
    assert read["request"]["end_to_end_s"] == request.end_to_end_s
    assert read["request"]["decode_tokens_per_s"] == 32 / request.time_per_output_token_s
    assert read["memory"]["kv_cache_bytes"] == deployment.kv_cache_bytes(2247, sequences=32)
    for name, ours in (("prefill", request.prefill), ("decode", step)):
        figures = (
            "time_s",
            "floor_s",
            "bound",
            "flops",
            "bytes",
            "weight_bytes",
            "kv_bytes",
            "tokens_per_s",
            "intensity",
        )
        assert {key: read[name][key] for key in figures} == {key: getattr(ours, key) for key in figures}
        rows = {row["operator"]: row["time_s"] for row in read[name]["operators"]}
        assert rows == {row.name: row.time_s for row in ours.operators}


def test_table_as_a_whole(rooflinekit):
    """What an engineer reads first: both phases, the request, memory."""
    result = rooflinekit("estimate qwen3-8b gb10 --efficiency datasheet --output 65")
    assert result.stdout.split("\n")[:24] == [
        "qwen3-8b on gb10: bf16 weights, bf16 KV, datasheet roofline of gb10",
        "phase           time    floor  bound         FLOPs    bytes  weights  KV read  FLOP/byte",
        "----------------------------------------------------------------------------------------",
        "prefill       288 ms   238 ms  compute  29.7 TFLOP  38.5 GB  15.1 GB   302 MB        771",
        "decode step  56.6 ms  56.6 ms  memory   16.3 GFLOP  15.5 GB  15.1 GB   302 MB       1.06",
        "",
        "request: 2,048 tokens in, 65 out, batch 1; service time only",
        "quantity                    value",
        "---------------------------------",
        "time to first token        288 ms",
        "time per output token     56.6 ms",
        "end to end                 3.91 s",
        "decode tokens/s per user     17.7",
        "decode tokens/s              17.7",
        "output tokens/s              16.6",
        "",
        "memory of gb10 at the last token",
        "quantity         value",
        "----------------------",
        "KV per token   144 KiB",
        "KV cache       297 MiB",
        "weights       15.3 GiB",
        "memory         121 GiB",
        "headroom       105 GiB",
    ]


def test_operators_close_with_their_total(rooflinekit):
    """The rows of a phase sum to its time."""
    lines = [line.split() for line in rooflinekit(LINE).stdout.split("\n")]
    totals = [line for line in lines if line[:1] == ["total"]]
    assert len(totals) == 2
    assert all("100.0%" in line for line in totals)


def test_tables_fit_a_hundred_columns(rooflinekit):
    """No line of the table outgrows a terminal of 100 columns."""
    assert max(map(len, rooflinekit(LINE).stdout.split("\n"))) <= 100


def test_csv_is_one_tidy_table(rooflinekit, deployment):
    """One header, one figure a row, unrounded."""
    rows = list(csv.DictReader(io.StringIO(rooflinekit(f"{LINE} --format csv").stdout)))
    found = {(row["part"], row["operator"], row["quantity"]): row["value"] for row in rows}
    step = deployment.decode(2048, batch=32)
    assert len(found) == len(rows)
    assert float(found["decode", "", "time_s"]) == step.time_s
    assert float(found["decode", "lm_head", "weight_bytes"]) == step.operator("lm_head").weight_bytes


def test_markdown_shows_the_tables(rooflinekit):
    """Notes stand apart from tables, so that they do not become rows."""
    text = rooflinekit("estimate qwen3-8b cpu-ddr5-5600-dual --format markdown").stdout
    assert "| phase | memory time | floor |" in text
    assert "\n\nnote: cpu-ddr5-5600-dual has no datasheet peak for bf16" in text


def test_a_device_without_an_arithmetic_peak_gives_counts_and_the_memory_bound(rooflinekit):
    """Counts are whole, times are null, the bound is said to be one of memory alone."""
    result = rooflinekit("estimate qwen3-8b cpu-ddr5-5600-dual --format json")
    read, ours = json.loads(result.stdout), rk.Deployment("qwen3-8b", "cpu-ddr5-5600-dual").prefill(2048)
    assert (result.exit_code, read["prefill"]["time_s"], read["prefill"]["flops"]) == (0, None, ours.flops)
    assert (read["decode"]["bound"], read["prefill"]["memory_time_s"]) == ("memory alone", ours.memory_time_s)
    assert read["request"].keys() == {"decode_tokens_per_s_per_user_at_most", "decode_tokens_per_s_at_most"}


def test_explain_prints_both_trees_and_sources(rooflinekit):
    """The decode step names its weights, its KV and its small kernels with their shares."""
    text = rooflinekit("estimate qwen3-8b gb10 --explain").stdout
    tree = str(rk.Deployment("qwen3-8b", "gb10").decode(2048).explain())
    assert tree in text
    assert "weight bytes = " in tree
    assert "KV bytes = 302.1 MB" in tree
    assert "% of the pass" in tree
    assert 'gb10 bandwidth = 273 GB/s: "Prefill vs. Decode' in text


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (
            "deepseek-v3",
            "distinct experts[8 of 256 a token] over 8 tokens = 57.42, between 8 (all tokens agree) and 57.42 (even",
        ),
        (
            "gpt-oss-120b",
            "distinct experts[4 of 128 a token] over 8 tokens = 28.71, between 4 (all tokens agree) and 28.71 (even",
        ),
        (
            "qwen3-next-80b-a3b",
            "distinct experts[10 of 512 a token] over 8 tokens = 74.74, between 10 (all tokens agree) and 74.74 (even",
        ),
        ("gemma-3-27b", "rows read[window 1,024] = 8,192: 1,024 for each of 8 sequences"),
        ("gpt-oss-120b", "rows read[window 128] = 1,024: 128 for each of 8 sequences"),
    ],
)
def test_explain_shows_distinct_experts_and_windows(rooflinekit, model, said):
    """The two counts that no shape gives are explained by name, with the arithmetic of the first."""
    text = rooflinekit(f"estimate {model} h200-sxm --batch 8 --no-memory-check --explain").stdout
    assert said in text
    assert "attention_expanded = 0" not in text


def test_routing_skew_reads_fewer_experts(rooflinekit):
    """Uneven routing touches fewer experts; the estimate says that it was asked for."""
    line = "estimate qwen3-30b-a3b h200-sxm --batch 8"
    even, skewed = (json.loads(rooflinekit(f"{line}{more} --format json").stdout) for more in ("", " --routing-skew 1"))
    assert skewed["decode"]["weight_bytes"] < even["decode"]["weight_bytes"]
    assert (even["routing_skew"], skewed["routing_skew"]) == (0.0, 1.0)
    assert "note: routing skew 1: " in rooflinekit(f"{line} --routing-skew 1").stdout
    assert "distinct experts[8 of 128 a token, skew 1]" in rooflinekit(f"{line} --routing-skew 1 --explain").stdout


def test_operators_that_a_pass_does_not_run_are_not_shown(rooflinekit):
    """Latent attention has two forms; a table for eyes holds the one that is used."""
    text = rooflinekit("estimate deepseek-v3 h200-sxm --no-memory-check").stdout
    prompt, step = text.split("decode at 2,048 tokens")
    assert ("attention_expanded" in prompt, "attention_absorbed" in prompt) == (True, False)
    assert ("attention_expanded" in step, "attention_absorbed" in step) == (False, True)


def test_explain_as_json(rooflinekit):
    """The tree's terms are nested records."""
    read = json.loads(rooflinekit("estimate qwen3-8b gb10 --explain --format json").stdout)
    assert read["explain"]["decode step"]["value"] == rk.Deployment("qwen3-8b", "gb10").decode(2048).time_s


def test_chunks(rooflinekit):
    """A prompt in chunks is Python's chunked prefill."""
    read = json.loads(rooflinekit("estimate qwen3-8b gb10 --prompt 10000 --chunk 2048 --format json").stdout)
    ours = rk.Deployment("qwen3-8b", "gb10").chunked_prefill(10_000, token_budget=2048)
    assert (read["prefill"]["passes"], read["prefill"]["time_s"]) == (5, ours.time_s)
    assert read["request"]["time_to_first_token_s"] == ours.time_s


def test_choices_reach_the_deployment(rooflinekit):
    """Formats, cached prefix and busy time are those of the library's arguments."""
    line = "estimate qwen3-8b h200-sxm --weights fp8 --kv-cache fp8 --cached 1024 --busy inf --efficiency datasheet"
    read = json.loads(rooflinekit(f"{line} --format json").stdout)
    ours = rk.Deployment("qwen3-8b", "h200-sxm", weights="fp8", kv_cache="fp8", efficiency="datasheet")
    prefill = ours.prefill(2048, cached_tokens=1024, busy_s=float("inf"))
    assert (read["weights"], read["kv_cache"], read["compute"]) == ("fp8", "fp8", "fp8")
    assert (read["prefill"]["time_s"], read["workload"]["busy_s"]) == (prefill.time_s, "inf")


def test_a_single_output_token(rooflinekit):
    """Without a decode step there is no time per output token: a dash, and null."""
    assert (
        json.loads(rooflinekit("estimate qwen3-8b gb10 --output 1 --format json").stdout)["request"][
            "time_per_output_token_s"
        ]
        is None
    )


def test_what_does_not_fit_on_request(rooflinekit):
    """The memory check can be switched off; the headroom is then negative."""
    read = json.loads(rooflinekit("estimate llama-3.1-70b rtx-4090 --no-memory-check --format json").stdout)
    assert read["memory"]["headroom_bytes"] < 0


def test_yaml_from_standard_input(rooflinekit):
    """A device of one line is enough."""
    read = json.loads(rooflinekit("estimate qwen3-8b - --format json", "bandwidth_gb_per_s: 2000\n").stdout)
    assert (
        read["decode"]["memory_time_s"]
        == rk.Deployment("qwen3-8b", {"bandwidth_gb_per_s": 2000}).decode(2048).memory_time_s
    )


@pytest.mark.parametrize(
    ("engine", "meant"),
    [("vlm", "; did you mean vllm?"), ("SGLang", "; did you mean sglang?"), ("triton", ""), ("vllm-0.99", "")],
)
def test_an_engine_that_nobody_has_measured(rooflinekit, engine, meant):
    """It is taken, since a file may be of any engine; a note says whose constants stand in, and what may be meant."""
    told = rooflinekit(f"estimate qwen3-8b gb10 --engine {engine}").stdout.splitlines()
    (note,) = (line for line in told if line.startswith(f"note: no constants of engine '{engine}' for gb10: "))
    assert note.partition(" taken")[2] == meant
