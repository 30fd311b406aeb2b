"""One request on GB10: how long Qwen3-8B takes to read 2,048 tokens and to write 65, and where the time goes.

    python examples/one_request_on_gb10.py [--png request.png]

The trace of "Prefill vs. Decode" measured 412 ms for the prefill and 74.4 ms a decode step; neither was fitted.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import rooflinekit as rk
from rooflinekit import units
from rooflinekit.reports.plots import roofline_figure, save

PROMPT, OUTPUT = 2048, 65
MEASURED_S = {"prefill": 0.412, "decode": 0.0744}


def compared(name: str, estimate: rk.Estimate) -> str:
    """Put an estimate beside the article's measurement."""
    measured = MEASURED_S[name]
    off = estimate.time_s / measured - 1.0
    return f"{estimate!r}; the article measured {units.duration(measured)}: {off:+.1%}"


def shares(estimate: rk.Estimate) -> str:
    """List the operators by their share of the pass, the longest first."""
    rows = sorted(estimate.operators, key=lambda row: -row.time_s)
    return "\n".join(
        f"  {row.name:<16} {units.duration(row.time_s):>8} {row.time_s / estimate.time_s:>6.1%}  {row.bound}"
        for row in rows
    )


def main(argv: Sequence[str] | None = None) -> None:
    """Print the request, its parts and the tree behind the decode step."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--png", type=Path, help="where to draw both passes under the roofs (.png, .svg or .pdf)")
    arguments = parser.parse_args(argv)
    deployment = rk.Deployment("qwen3-8b", "gb10")
    prefill, decode = deployment.prefill(PROMPT), deployment.decode(PROMPT)
    print(compared("prefill", prefill), shares(prefill), sep="\n", end="\n\n")
    print(compared("decode", decode), shares(decode), sep="\n", end="\n\n")
    print(deployment.request(PROMPT, output_tokens=OUTPUT), end="\n\n")
    print(decode.explain())
    if arguments.png:
        save(roofline_figure(prefill, decode), arguments.png)


if __name__ == "__main__":
    main()
