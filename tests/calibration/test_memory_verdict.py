"""Verdicts on startup logs: the cache by the engine's rule, from the settings alone, and what cannot be told."""

import pytest

import rooflinekit as rk
from rooflinekit.calibration.memory_verdict import diagnose_memory
from rooflinekit.errors import InvalidInputError

#: Llama-3.1-8B on an RTX 4090: 6.93 GiB at 131,072 bytes a token are 56,770 tokens, in whole pages of 16 56,768.
LOG = """\
(APIServer pid=1) INFO [utils.py:1] non-default args: {{'max_model_len': 31800, 'gpu_memory_utilization': 0.95}}
(EngineCore pid=1) INFO [gpu_model_runner.py:1] Model loading took 14.9889 GiB memory and 4.0 seconds
(EngineCore pid=1) INFO [gpu_worker.py:1] Available KV cache memory: {pool} GiB
(EngineCore pid=1) INFO [kv_cache_utils.py:1] GPU KV cache size: {tokens} tokens
(EngineCore pid=1) INFO [kv_cache_utils.py:1] Maximum concurrency for 31,800 tokens per request: {times}x
"""
CARD = rk.Deployment("llama-3.1-8b", "rtx-4090", engine="vllm", memory_check=False)


def diagnosed(deployment=CARD):
    """Diagnose the log as that of a deployment."""
    content = LOG.format(pool="6.93", tokens="56,800", times="1.79")
    facts = {"model": "llama-3.1-8b", "device": "rtx-4090", "kv_cache": deployment.precision.kv_cache}
    return diagnose_memory(rk.read("start.log", content=content.encode(), **facts), deployment)


def test_a_cache_as_it_should_be():
    """56,800 tokens of 56,768, 1.79 requests of 1.785: within the two digits of the log."""
    found = diagnosed()
    rule = {one.name: one for one in found.symptoms if one.basis.endswith("by the engine's rule")}
    assert found.healthy
    assert found.verdict == "nothing unusual: tokens in the KV cache 56,800 where 56,768 is expected"
    assert rule["kv_tokens"].basis == "6.93 GiB of a GPU at 128 KiB a token, by the engine's rule"
    assert (rule["kv_tokens"].expected, rule["concurrency"].expected) == (56_768, pytest.approx(1.7847, abs=1e-4))
    assert rule["kv_tokens"].deviations == pytest.approx((56_800 / 56_768 - 1) / 0.005)


def test_another_dtype_than_thought():
    """Half the tokens that an FP8 cache would hold: the log is of 16 bits."""
    found = diagnosed(deployment=CARD.with_(kv_cache="fp8"))
    assert found.verdict.startswith(
        "memory: tokens in the KV cache 56,800 where 113,536 is expected by the engine's rule"
    )
    assert "check model, KV dtype" in found.change
    assert not found.healthy


def test_memory_without_tokens():
    """What the memory holds is told where the log does not say it."""
    content = b"INFO [gpu_worker.py:1] Available KV cache memory: 6.93 GiB\n"
    reading = rk.read("start.log", content=content, model="llama-3.1-8b", device="rtx-4090")
    found = diagnose_memory(reading, CARD)
    assert found.verdict == (
        "cannot tell: 6.93 GiB of cache a GPU hold 56,768 tokens by the engine's rule, and the log prints none"
    )
    assert (found.symptoms, found.cause) == ((), None)


def test_no_memory_at_all():
    """Weights alone say nothing of the cache."""
    content = b"INFO [gpu_model_runner.py:1] Model loading took 14.9889 GiB memory and 4.0 seconds\n"
    reading = rk.read("start.log", content=content, model="llama-3.1-8b", device="rtx-4090")
    with pytest.raises(InvalidInputError, match="expected a startup log"):
        diagnose_memory(reading, CARD)
