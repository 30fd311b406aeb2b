"""What the README says in figures is what the code gives."""

from pathlib import Path

import pytest

import rooflinekit as rk
from rooflinekit import units

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
GB10 = rk.Deployment("qwen3-8b", "gb10")

# fmt: off
TRACE = [
    # what                                      measured, s  estimate
    ("prefill of 2,048 tokens",                 0.412,       GB10.prefill(2048)),
    ("decode step at 2,048 tokens of context",  0.0744,      GB10.decode(2048)),
    ("prefill of 43 tokens",                    0.077,       GB10.prefill(43)),
]
# fmt: on


@pytest.mark.parametrize(("what", "measured_s", "estimate"), TRACE, ids=[one[0] for one in TRACE])
def test_the_table_of_the_trace(what, measured_s, estimate):
    """Measured, predicted and their difference, each totalled from the trace's kernel classes."""
    line = f"| {what} | {units.duration(measured_s)} | {units.duration(estimate.time_s)} "
    line += f"| {estimate.time_s / measured_s - 1:+.1%} |"
    assert line.replace("77.0 ms", "77 ms") in README


def test_the_residual_of_the_matrix_vector_kernels():
    """The trace's two kernel names hold 53.8 and 18.3 ms of a step; one constant serves both."""
    rows = {row.name: row.time_s for row in GB10.decode(2048).operators}
    first, second = ("gate_up_proj", "down_proj", "lm_head"), ("qkv_proj", "o_proj")
    off = [sum(rows[name] for name in names) / seconds - 1 for names, seconds in ((first, 0.0538), (second, 0.0183))]
    assert f"off by {off[0]:+.1%} and {off[1]:+.1%}" in README
