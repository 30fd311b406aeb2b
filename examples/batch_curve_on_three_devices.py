"""A batch curve on three devices: what each sequence more costs a user and brings the server.

python examples/batch_curve_on_three_devices.py [--png batch.png]
"""

import argparse
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path

import rooflinekit as rk
from rooflinekit import units
from rooflinekit.phases.batch import doubling_batch
from rooflinekit.reports.plots import batch_curve_figure, save

MODEL, DEVICES = "qwen3-8b", ("gb10", "h200-sxm", "rtx-4090")
CONTEXT, BATCH = 2048, (1, 2, 4, 8, 16, 32, 64, 128)


def point(row: Mapping[Hashable, float]) -> str:
    """Say what one user and all users get at one batch."""
    each, together = (units.significant(row[name]) for name in ("tokens_per_s_per_user", "tokens_per_s"))
    return f"batch {row['batch']}: {each} tokens/s a user, {together} in total"


def answer(deployment: rk.Deployment) -> str:
    """Say what one user and all users get at both ends of the curve that the memory holds, and where it bends."""
    table = deployment.batch_curve(CONTEXT, BATCH)
    held = table[table["fits"].astype(bool)].to_dict("records")
    ends = "; ".join(map(point, (held[0], held[-1])))
    bend = doubling_batch(deployment, CONTEXT)
    return f"{deployment.device.id}: {ends}; the step has doubled at batch {bend:.0f} ({deployment.timing.laws.basis})"


def main(argv: Sequence[str] | None = None) -> None:
    """Print one line a device and, if asked, draw the curves."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--png", type=Path, help="where to draw (.png, .svg or .pdf)")
    arguments = parser.parse_args(argv)
    deployments = [rk.Deployment(MODEL, device) for device in DEVICES]
    print(f"{MODEL}, {CONTEXT:,} tokens of context")
    for deployment in deployments:
        print(answer(deployment))
    if arguments.png:
        save(batch_curve_figure(deployments, CONTEXT, BATCH), arguments.png)


if __name__ == "__main__":
    main()
