"""How fast a large trace is read: a Kineto trace of 300 MB in under 60 s and 500 MB; here of 100 MB, and its third."""

import random
import subprocess
import sys

import pytest

from rooflinekit.measurements import read
from rooflinekit.units import MEGA, MICRO

BYTES = 100 * MEGA
KERNELS = [
    f"void at::native::elementwise_kernel<{width}, at::native::CUDAFunctor_add<float>>(int)" for width in range(200)
]
HEAD = '{"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA H200"}], "traceEvents": [\n'
OPERATOR = (
    '{{"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 99, "tid": 99, "ts": {at:.3f}, "dur": 7.313, "args": '
    '{{"External id": {n}, "Ev Idx": {n}, "Input Dims": [[1, 4096], [1, 4096], []], "Concrete Inputs": ["", "1"]}}}}'
)
KERNEL = (
    '{{"ph": "X", "cat": "kernel", "name": "{name}", "pid": 0, "tid": 7, "ts": {at:.3f}, "dur": {dur:.3f}, "args": '
    '{{"External id": {n}, "device": 0, "stream": 7, "correlation": {n}, "shared memory": 0, "grid": [32, 1, 1], '
    '"block": [128, 1, 1], "est. achieved occupancy %": 2}}}}'
)
PEAK = """
import resource, sys, time
from rooflinekit.measurements import read
start = time.perf_counter()
read(sys.argv[1])
print(time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3)
"""


def write_trace(path, most_bytes=BYTES):
    """Write a trace of operators and kernels; give the kernels' count and microseconds."""
    draw, count, total = random.Random(1), 0, 0.0  # noqa: S311 - no secret
    with path.open("w", encoding="utf-8") as file:
        file.write(HEAD)
        while file.tell() < most_bytes:
            at, dur = 1e9 + 10.0 * count, round(draw.uniform(1, 12), 3)
            event = KERNEL.format(name=draw.choice(KERNELS), at=at, dur=dur, n=count)
            file.write(f"{OPERATOR.format(at=at, n=count)},\n{event},\n")
            count, total = count + 1, total + dur
        file.write(f"{OPERATOR.format(at=0.0, n=0)}]}}\n")
    return count, total


def test_a_large_trace(tmp_path):
    """Time and memory are printed; the sums are those that were written."""
    pytest.importorskip("ijson")
    path = tmp_path / "trace.json"
    count, microseconds = write_trace(path)
    command = [sys.executable, "-c", PEAK, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603 - our own interpreter
    seconds, megabytes = map(float, done.stdout.split())
    print(f"\ntrace of 100 MB: {seconds:.1f} s (target 20), peak {megabytes:.0f} MB (target 500)")
    sums = [one for one in read(path).records if one.quantity == "kernel_time_s"]
    assert sum(one.count for one in sums) == count
    assert sum(one.value for one in sums) == pytest.approx(microseconds * MICRO)
