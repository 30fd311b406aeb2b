"""Traces of PyTorch's profiler: sums by kernel and busy time, read whole or as a stream, with the same result."""

import gzip
import importlib
import json
from pathlib import Path

import pytest

from rooflinekit.errors import InvalidInputError
from rooflinekit.measurements import read
from rooflinekit.measurements.formats import torch_trace

FILES = Path(__file__).parent / "files" / "torch_trace"
H200, H800, A100 = "NVIDIA H200", "NVIDIA H800", "NVIDIA A100-PG509-200"

# fmt: off
VALUES = [
    # file                   name starts with                            launches  microseconds  device
    ("a100_simple_add.json", "cudnn_ampere_scudnn_128x64_relu",                 1,     1035,     A100),
    ("a100_simple_add.json", "void at::native::elementwise_kernel<128, 2",      2,      323,     A100),
    ("a100_simple_add.json", "ampere_gcgemm_64x64_nt",                          1,      323,     A100),
    ("h800_train.json",      "void dpsk::ep::internode::dispatch",              1,     3320,     H800),
    ("h800_train.json",      "void cutlass::device_kernel<dpsk::grouped",       3,      521,     H800),
    ("h800_train.json",      "void cuda::per_token_cast_to_fp8_with",           5,      162,     H800),
    ("mi250_minitoy.json",   "Memcpy HtoD (Host -> Device)",                    2,       38.161, None),
    ("mi250_minitoy.json",   "Cijk_Alik_Bljk_SB",                               1,       17.6,   None),
    ("h200_prefill.json",    "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA",      5,     1217.872, H200),
    ("h200_prefill.json",    "triton_poi_fused_mul_silu_split_0",               1,      110.719, H200),
    ("h200_decode-b1.json",  "nvjet_sm90_tst_192x8_64x8_2x1_v_bz_TNT",          1,       49.567, H200),
    ("h200_decode-b1.json",  "nvjet_sm90_tst_64x8_64x16_4x1_v_bz_TNT",          2,       32.512, H200),
    ("h200_decode-b32.json", "cudnn_generated_fort_native_sdpa_sm80_flash",     2,      130.622, H200),
    ("h200_decode-b32.json", "nvjet_sm90_tst_192x32_64x7_2x1_v_bz_TNT",         1,       51.071, H200),
]
BUSY = [
    # file                   kernels  microseconds: sums are 2,452, 5,199, 98.24, 1,793.55, 171.78 and 307.48
    ("a100_simple_add.json",      12,  2423),
    ("h800_train.json",           20,  4380),
    ("mi250_minitoy.json",        12,    98.24),
    ("h200_prefill.json",         19,  1793.545),
    ("h200_decode-b1.json",       22,   171.713),
    ("h200_decode-b32.json",      26,   307.321),
]
# fmt: on


@pytest.fixture(params=["whole", "streamed"])
def way(request, monkeypatch):
    """Read small traces whole, or stream them like large ones."""
    if request.param == "streamed":
        pytest.importorskip("ijson")
        monkeypatch.setattr(torch_trace, "_SMALL_BYTES", 10)
        monkeypatch.setattr(torch_trace, "_CHUNK_BYTES", 300)  # the devices' list ends in another chunk
    return request.param


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize(("file", "name", "launches", "microseconds", "device"), VALUES)
def test_kernel_times(*, file, name, launches, microseconds, device):
    """A kernel's time is summed over its launches; the device is the one of that number."""
    found = next(one for one in read(FILES / file).records if one.name.startswith(name))
    assert (found.quantity, found.statistic, found.count) == ("kernel_time_s", "total", launches)
    assert (found.value, found.device) == (pytest.approx(microseconds * 1e-6), device)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize(("file", "kernels", "microseconds"), BUSY)
def test_busy_time(file, kernels, microseconds):
    """Overlapping kernels count once, copies not at all."""
    (found,) = (one for one in read(FILES / file).records if one.quantity == "gpu_busy_s")
    assert found.count == kernels
    assert found.value == pytest.approx(microseconds * 1e-6, rel=1e-5)


def trace(*events, **keys):
    """Write a trace."""
    return json.dumps({"schemaVersion": 1, **keys, "traceEvents": list(events)}).encode()


def kernel(name="k", start=0.0, dur=1.0, cat="kernel", **keys):
    """Write an event of the GPU."""
    return {"ph": "X", "cat": cat, "name": name, "pid": 0, "tid": 7, "ts": start, "dur": dur, "args": {}, **keys}


@pytest.mark.usefixtures("way")
def test_several_gpus():
    """Sums and unions are by device, with the device's name."""
    devices = [{"id": 0, "name": "NVIDIA L4"}, {"id": 1, "name": "NVIDIA T4"}]
    second = kernel(start=5.0, dur=4.0, args={"device": 1})
    reading = read("t.json", content=trace(kernel(), second, deviceProperties=devices))
    found = {(one.quantity, one.device, one.includes): round(one.value * 1e6, 9) for one in reading.records}
    assert found == {
        ("kernel_time_s", "NVIDIA L4", "GPU 0: summed over streams"): 1.0,
        ("kernel_time_s", "NVIDIA T4", "GPU 1: summed over streams"): 4.0,
        ("gpu_busy_s", "NVIDIA L4", "GPU 0: kernels; no copies and fills"): 1.0,
        ("gpu_busy_s", "NVIDIA T4", "GPU 1: kernels; no copies and fills"): 4.0,
    }


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("packed", [False, True])
def test_bare_list_and_old_category(packed):
    """A list of events is a trace too, and very old ones say `Kernel`; gzip is unpacked."""
    held = json.dumps([kernel(cat="Kernel", start=1, dur=3)]).encode()
    reading = read("t.json", content=gzip.compress(held) if packed else held)
    assert [one.value for one in reading.records] == [pytest.approx(3e-6)] * 2


def test_collectives_say_that_they_wait():
    """NCCL's kernels last until the other ranks have come."""
    names = {"ncclDevKernel_AllReduce_Sum_bf16_RING_LL", "ncclKernel_Generic", "rcclDevKernel", "gemm"}
    reading = read("t.json", content=trace(*map(kernel, sorted(names))))
    waits = {one.name for one in reading.records if "with the wait for other GPUs" in one.includes}
    assert waits == names - {"gemm"}


@pytest.mark.usefixtures("way")
def test_what_is_skipped():
    """Events without a time, and kernels shorter than the clock tells, are counted."""
    lost = [kernel(dur=None), kernel(start=None), kernel(dur=-1.0), kernel("short", dur=0)]
    reading = read("t.json", content=trace(kernel(), *lost))
    assert reading.skipped == {
        "GPU event without a start or a duration": 3,
        "kernel of 0 microseconds: shorter than the trace's clock tells": 1,
    }


@pytest.mark.usefixtures("way")
def test_trace_of_the_host():
    """A trace without the GPU's events says how to profile."""
    event = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 1, "dur": 2}
    with pytest.raises(InvalidInputError, match=r"trace of 1 events, none of the GPU: profile with ProfilerActivity"):
        read("t.json", content=trace(event))


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (trace(kernel(dur="long")), r"t.json, event 1: `dur` = 'long': expected a number"),
        (trace(kernel(), kernel(start=True)), r"t.json, event 2: `ts` = True: expected a number"),
        (trace(kernel(), 7), r"t.json: event 2 is int: expected an object"),
        (trace(kernel(), kernel())[:-30], r"t.json.*the file is cut"),
    ],
)
def test_broken_traces(content, message):
    """The message names the event, the field and the value."""
    with pytest.raises(InvalidInputError, match=message):
        read("t.json", content=content)


def test_without_ijson(monkeypatch):
    """A trace that is not too large is held whole, a larger one names the package to install."""
    real = importlib.import_module

    def missing(name):
        if name == "ijson":
            raise ModuleNotFoundError(name)
        return real(name)

    monkeypatch.setattr(torch_trace.importlib, "import_module", missing)
    monkeypatch.setattr(torch_trace, "_SMALL_BYTES", 10)
    assert len(read(FILES / "h200_prefill.json")) > 1
    monkeypatch.setattr(torch_trace, "MOST_HELD_BYTES", 1000)
    with pytest.raises(InvalidInputError, match=r"`pip install \"rooflinekit\[traces\]\"` \(ijson\)"):
        read(FILES / "h200_prefill.json")
