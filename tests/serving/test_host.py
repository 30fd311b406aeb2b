"""Host times: the formula by hand, for every way in which an engine launches its kernels."""

import numpy as np
import pytest

import rooflinekit as rk
from rooflinekit.serving.engine import load_engine
from rooflinekit.serving.host import Layers, loaded_step_s, with_host_s

NONE = {
    "step_host_s": 0.0, "sequence_host_s": 0.0, "prefill_step_host_s": 0.0, "eager_layer_s": 0.0,
    "mixture_layer_s": 0.0, "request_host_s": 0.0,
}  # fmt: skip


def seconds(times, *, device=0.010, layers=(40, 10), sequences=8, prompts=1, tokens=1000):
    """Give a step of an engine with these times and no others."""
    profile = load_engine("vllm").with_(**{**NONE, **times})
    return with_host_s(profile, device, Layers(*layers), sequences=sequences, prompts=prompts, tokens=tokens)


PIECES, DECODE, BARE = ({"graphs": graphs, "eager_layer_s": 0.0005} for graphs in ("pieces", "decode", "none"))
# fmt: off
STEPS = [
    # engine's times                                step                           seconds
    ({},                                            {},                            0.010),
    ({"step_host_s": 0.002},                        {"prompts": 0},                0.012),
    ({"sequence_host_s": 0.0001},                   {"sequences": 30},             0.013),
    ({"prefill_step_host_s": 0.003},                {},                            0.013),
    ({"prefill_step_host_s": 0.003},                {"prompts": 3},                0.013),  # of a step, not a prompt
    ({"prefill_step_host_s": 0.003},                {"prompts": 0},                0.010),
    ({"mixture_layer_s": 0.0004},                   {"prompts": 0},                0.014),  # 10 layers of experts
    # 40 layers x 0.5 ms launched kernel by kernel: the slower of host and device
    (DECODE,                                        {},                            0.020),
    (DECODE,                                        {"device": 0.050},             0.050),
    (DECODE,                                        {"prompts": 0},                0.010),
    (DECODE,                                        {"tokens": 10},                0.020),
    (PIECES,                                        {"tokens": 513},               0.020),
    (PIECES,                                        {"tokens": 512},               0.010),  # captured up to 512 tokens
    ({**DECODE, "prefill_step_host_s": 0.003, "step_host_s": 0.001, "sequence_host_s": 0.0001,
      "mixture_layer_s": 0.0001},                   {},                            0.0258),  # 20 + 3 + 1 + 0.8 + 1 ms
]
# fmt: on


@pytest.mark.parametrize(("times", "step", "expected"), STEPS)
def test_a_step_with_its_host(times, step, expected):
    """The slower of device and launches, then what a step, a sequence, a prompt and a layer of experts add."""
    assert float(seconds(times, **step)) == pytest.approx(expected, rel=1e-12)


def test_arrays_are_their_points():
    """One call over several steps."""
    prompts, tokens = np.array([0.0, 1.0, 2.0]), np.array([8.0, 600.0, 20.0])
    times = {**PIECES, "prefill_step_host_s": 0.003}
    assert seconds(times, prompts=prompts, tokens=tokens) == pytest.approx([0.010, 0.023, 0.013])


# fmt: off
MODELS = [("llama-3.1-8b", 32, 0), ("qwen3-30b-a3b", 48, 48), ("deepseek-v3", 61, 58)]
# fmt: on


@pytest.mark.parametrize(("model", "layers", "experts"), MODELS)
def test_layers_of_models(model, layers, experts):
    """DeepSeek-V3 has three dense layers before those of experts."""
    assert Layers.of(rk.Deployment(model, "h100-sxm", memory_check=False))[:2] == (layers, experts)


# ---- steps of a loaded server

READER = rk.Deployment("qwen3-8b", "h100-sxm")
SLOW = load_engine("vllm").with_(
    **{**NONE, "step_host_s": 0.001, "sequence_host_s": 1e-4, "prefill_step_host_s": 0.010, "eager_layer_s": 0.001},
    graphs="decode",
)
# fmt: off
LOADED = [
    # chunks                  decoding                   host of it
    (None,                    rk.Group(1, 2048, 8),      0.001 + 8 * 1e-4),
    (rk.Group(8000, 0, 1),    None,                      0.001 + 1e-4 + 0.010),
    (rk.Group(8000, 0, 2),    rk.Group(1, 2048, 8),      0.001 + 10 * 1e-4 + 0.010),
]
# fmt: on


@pytest.mark.parametrize(("chunks", "decoding", "host_s"), LOADED)
def test_a_loaded_step_is_the_device_and_its_host(chunks, decoding, host_s):
    """A chunk that takes the device longer than 36 ms of launches waits for none of them."""
    device_s = READER.step(*(one for one in (chunks, decoding) if one is not None), busy_s=np.inf).time_s
    assert chunks is None or device_s > 36 * 0.001
    assert loaded_step_s(READER, SLOW, chunks=chunks, decoding=decoding) == pytest.approx(device_s + host_s)


def test_launches_that_last_longer_than_the_device():
    """16 tokens are launched kernel by kernel: 36 layers of a millisecond, and no device time on top."""
    assert loaded_step_s(READER, SLOW, chunks=rk.Group(16, 0, 1)) == pytest.approx(0.036 + 0.001 + 1e-4 + 0.010)


def test_a_servers_host_times_take_the_place_of_a_single_streams_pause():
    """The pause of 2 ms inside the device's 10 ms is taken off where a server is, not where a script runs alone."""
    one = {"sequences": 1, "prompts": 0, "tokens": 1}
    served, alone = (
        with_host_s(load_engine(name), 0.010, Layers(32, 0, 0.002), **one) for name in ("vllm", "vllm-offline")
    )
    assert (float(served), float(alone)) == pytest.approx((0.008, 0.010))
