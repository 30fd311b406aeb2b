"""``rooflinekit capacity``: the whole output, the figures of Python, and what a wrong line is told."""

import csv
import io
import json

import pytest

import rooflinekit as rk
from rooflinekit.serving import capacity


def lines(result):
    """Return the lines of a command that went well."""
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout.rstrip("\n").split("\n")


def test_capacity_as_a_whole(rooflinekit):
    """The terms of the pool, requests at lengths, and what would free how much."""
    line = "capacity llama-3.1-8b rtx-3090 --engine vllm-0.12 --utilization 0.95 --max-num-seqs 64 --tokens 2048,8192"
    assert lines(rooflinekit(line)) == [
        "llama-3.1-8b on rtx-3090 under vllm-0.10: bf16 weights, bf16 KV; one GPU",
        "term               memory  reason",
        "------------------------------------------------------------------------------------------------",
        "memory           23.6 GiB  what a framework sees of it",
        "left to others  -1.18 GiB  gpu_memory_utilization is 0.95",
        "weights         -15.0 GiB  of the model",
        "activations      -249 MiB  peak of a pass over 2,048 tokens, logits of 64 sequences: an estimate",
        "other            -290 MiB  workspaces of libraries and collectives: an estimate",
        "KV pool          6.92 GiB  3,541 blocks of 16 tokens",
        "the engine's log would print 56,656 tokens, 0.43 requests of 131,072 tokens",
        "a token takes 128 KiB",
        "settings: 2,048 tokens and 64 sequences a pass",
        "",
        "requests at a length",
        "tokens  requests  reserved memory  read memory",
        "----------------------------------------------",
        " 2,048      27.7          256 MiB      256 MiB",
        " 8,192      6.92         1.00 GiB     1.00 GiB",
        "",
        "what would free how much, in requests of 2,048 tokens",
        "change              more memory  more tokens  requests",
        "------------------------------------------------------",
        "K and V in fp8                0       56,672      55.3",
        "weights in fp8         6.50 GiB       53,248      53.7",
        "token budget 1,024      109 MiB          880      28.1",
    ]


def test_csv_and_json_hold_the_figures_of_python(rooflinekit):
    """One tidy table in base units, unrounded."""
    line = "capacity qwen3.5-27b h20-141gb --engine vllm-0.19 --tokens 32768 --format"
    held = capacity(rk.Deployment("qwen3.5-27b", "h20-141gb"), engine="vllm-0.19")
    rows = json.loads(rooflinekit(f"{line} json").stdout)
    found = {(row["part"], row["item"], row["quantity"]): row["value"] for row in rows}
    assert found["pool", "", "kv_cache_tokens"] == held.kv_tokens
    assert found["pool", "", "state_bytes"] == 48 * 3_207_168
    assert found["memory", "KV pool", "bytes"] == held.pool_bytes
    assert found["request", 32768, "requests"] == held.requests(32_768)
    assert len(list(csv.DictReader(io.StringIO(rooflinekit(f"{line} csv").stdout)))) == len(rows)


def test_a_hybrid_tells_both_parts_of_a_request(rooflinekit):
    """A constant and a slope, and the groups that share the blocks."""
    told = "\n".join(lines(rooflinekit("capacity qwen3.5-27b h20-141gb --engine vllm-0.19")))
    assert "a request takes 147 MiB whatever its length and 64.0 KiB a token" in told
    assert "blocks of 784 tokens, shared by 4 groups of layers" in told


def test_several_gpus_and_settings(rooflinekit):
    """The heading says how many GPUs and that the table is of one; the settings are those asked for."""
    told = lines(rooflinekit("capacity llama-3.3-70b h100-sxm --tensor-parallel 4 --budget 4096 --max-num-seqs 32"))
    assert told[0] == "llama-3.3-70b on 4 x h100-sxm-80gb under vllm-0.32: bf16 weights, bf16 KV; one GPU"
    assert "settings: 4,096 tokens and 32 sequences a pass" in told


def test_a_reserved_context_has_no_levers(rooflinekit):
    """Ollama takes its context and leaves the rest."""
    told = lines(rooflinekit("capacity llama-3.1-8b rtx-4090 --weights q4_k_m --engine ollama --tokens 2048"))
    assert told[-1].split() == ["2,048", "1.00", "256", "MiB", "256", "MiB"]


def test_lengths_that_nobody_asked_for_are_those_that_the_engine_takes(rooflinekit):
    """Of 2,048, 8,192 and 32,768 none exceeds the longest request; that one itself where it is shorter than all."""
    told = lines(rooflinekit("capacity llama-3.1-8b h100-sxm --max-model-len 8192"))
    at = told.index("requests at a length")
    assert [line.split()[0] for line in told[at + 3 : at + 5]] == ["2,048", "8,192"]
    assert told[at + 5] == ""
    short = lines(rooflinekit("capacity llama-3.1-8b h100-sxm --max-model-len 1024"))
    assert short[short.index("requests at a length") + 3].split()[0] == "1,024"


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("capacity llama-3.1-70b h100-sxm", "leaves no room for K and V on h100-sxm-80gb"),
        (
            "capacity llama-3.1-70b h100-sxm",
            "(--tensor-parallel), smaller weights (--weights) or a higher --utilization or",
        ),
        ("capacity llama-3.1-8b h100-sxm --tokens 0", "--tokens=0: expected a number, above 0"),
        ("capacity llama-3.1-8b h100-sxm --tokens 64,131073", "--tokens: a request of 131,073 tokens is longer than"),
        ("capacity llama-3.1-8b h100-sxm --max-model-len 512 --tokens 513", "longer than the 512 that vllm-0.32 takes"),
        ("capacity llama-3.1-8b h100-sxm --engine vlm", "--engine: vlm is no engine profile; did you mean vllm"),
        ("capacity llama-3.1-8b h100-sxm --utilization 1.5", "--utilization=1.5: "),
        (
            "capacity llama-3.1-8b h100-sxm --utilization 90",
            "--utilization=90.0: expected a part of the memory, above 0",
        ),
        ("capacity llama-3.1-8b h100-sxm --max-num-seqs 0", "--max-num-seqs=0: expected a whole number, 1 or more"),
        ("capacity llama-3.1-8b h100-sxm --tokens x", "--tokens: 'x' is no size"),
        ("capacity llama-3.1-8b h100-sxm --tensor-parallel 3", "does not divide"),
    ],
)
def test_wrong_lines_are_told_in_one(rooflinekit, line, told):
    """One line on stderr, status 2."""
    result = rooflinekit(line)
    assert (result.exit_code, result.stdout) == (2, "")
    assert told in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("form", ["table", "json"])
def test_a_length_above_the_models_own_is_told(rooflinekit, form):
    """Engines refuse such a setting unless told otherwise; the model's own length and less say nothing."""
    for length, told in {131_072: False, 999_999_999: True}.items():
        result = rooflinekit(f"capacity llama-3.1-8b h100-sxm --max-model-len {length} --format {form}")
        said = result.stdout if form == "table" else result.stderr
        assert result.exit_code == 0
        assert (f"note: --max-model-len {length:,} is above the 131,072 of llama-3.1-8b" in said) is told
