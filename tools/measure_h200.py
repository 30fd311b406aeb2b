"""Measure one NVIDIA GPU as src/rooflinekit/references/h200/MEASURED.md tells.

``python tools/measure_h200.py FOLDER PART [PART ...] [--seconds LIMIT]`` adds rows to the tables in FOLDER, which
exists. Parts: ``check``, ``reproduce``, ``small-empty``, ``small-sized-1024`` and so on, ``steps``, ``fixed``,
``fp8``, ``mixture``, ``moe-steps``; give each a process of its own. Needs PyTorch with CUDA and Triton.
The parts are in ``tools/h200``.
"""
# ruff: noqa: INP001, T201 - a script: no package, prints what it measures

import argparse
import functools
import time
from pathlib import Path

import torch
from h200.checks import check
from h200.fused import fixed, sized
from h200.mixture import measure_mixture
from h200.small import measure_empty, measure_small
from h200.steps import measure_fixed, measure_fp8, measure_moe_steps, measure_steps, reproduce
from h200.tables import Clock

PARTS = {
    "check": check,
    "reproduce": reproduce,
    "small-empty": measure_empty,
    **{
        f"small-{how.__name__}-{width}": functools.partial(measure_small, how, width)
        for how in (sized, fixed)
        for width in (1024, 2048, 4096, 8192)
    },
    "steps": measure_steps,
    "fixed": measure_fixed,
    "fp8": measure_fp8,
    "mixture": measure_mixture,
    "moe-steps": measure_moe_steps,
}


def main() -> None:
    """Run the parts that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("parts", nargs="+", choices=PARTS)
    parser.add_argument("--seconds", type=float, default=1e9, help="start no further row after so long")
    given = parser.parse_args()
    torch.set_grad_enabled(False)
    torch._dynamo.config.recompile_limit = 64  # noqa: SLF001 - no public name
    clock = Clock(given.seconds)
    for part in given.parts:
        start = time.monotonic()
        PARTS[part](given.folder, clock)
        print(part, f"took {time.monotonic() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
