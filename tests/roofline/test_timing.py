"""Plan, rates and laws folded into seconds: each row against its law worked by hand."""

import math

import numpy as np
import pytest

from rooflinekit import Deployment, Efficiency, MissingFigureError
from rooflinekit.operators.forward import features
from rooflinekit.specs.step import Group

CARD = {
    "id": "card",
    "bandwidth_gb_per_s": 1000,
    "peak_dense_tflops": {"bf16": 100, "fp8": 200},
    "boost_mhz": 1500,
    "maximum_mhz": 1800,
    "last_level_cache_mib": 50,
}
LAWS = Efficiency(
    name="by hand",
    products={
        "bf16": {"compute": 0.8, "memory": 0.9, "launch_us": 4, "exponent": 2},
        "fp8": {
            "compute": 0.7,
            "memory": 0.8,
            "launch_us": 6,
            "exponent": 3,
            "quantisation_ps_per_element": 10,
            "inner_ns_per_element": 0.5,
        },
    },
    attention={
        "compute": 0.6,
        "memory": 0.7,
        "activation": 0.5,
        "launch_us": 9,
        "softmax_flops_per_score": 100,
        "tile_tokens": 1020,
    },
    norm={"memory": 0.5, "launch_us": 2},
    rotary={"memory": 0.4, "launch_us": 3},
    activation={"memory": 0.3, "launch_us": 1},
    cache_write={"memory": 0.6, "launch_us": 5},
)
F, B = 100e12, 1000e9
D = Deployment("qwen3-8b", CARD, efficiency=LAWS)
FP8 = D.with_(weights="fp8")
SCORES = 36 * 32 * 1000 * 1001 / 2


def rows(name, columns):
    """FLOPs and bytes of a product of Qwen3-8B at 1,000 tokens."""
    inner = {"qkv_proj": 4096, "gate_up_proj": 4096}[name]
    return 36 * 2 * 1000 * inner * columns, 36 * 2 * (inner * columns + 1000 * (inner + columns))


GATE_FLOPS, GATE_BYTES = rows("gate_up_proj", 24576)
GATE_FP8_BYTES = 36 * (4096 * 24576 + 2 * 1000 * (4096 + 24576))
# fmt: off
TABLE = [
    # estimate          operator          seconds by hand
    (D.prefill(1000),   "gate_up_proj",   36 * 4e-6 + math.hypot(GATE_FLOPS / (0.8 * F), GATE_BYTES / (0.9 * B))),
    (FP8.prefill(1000), "gate_up_proj",   36 * 6e-6 + ((GATE_FLOPS / (0.7 * 2 * F)) ** 3
                                                       + (GATE_FP8_BYTES / (0.8 * B)) ** 3) ** (1 / 3)
                                          + 36 * 1000 * 4096 * 10e-12 + 36 * 4096 * 0.5e-9),
    (D.prefill(1000),   "block_norm",     72 * (2e-6 + (2 * 4 * 1000 * 4096 + 2 * 4096) / (0.5 * B))),
    (D.prefill(1000),   "qk_norm_rotary", 36 * (3e-6 + (2 * 2 * 1000 * 5120 + 2 * 256) / (0.4 * B))),
    (D.prefill(1000),   "silu_mul",       36 * (1e-6 + 2 * 3 * 1000 * 12288 / (0.3 * B))),
    (D.prefill(1000),   "kv_write",       36 * (5e-6 + 4 * 1000 * 2048 / (0.6 * B))),
    (D.prefill(1000),   "embedding",      5e-6 + 4 * 1000 * 4096 / (0.6 * B)),
    (D.prefill(1000),   "sampling",       2e-6 + 2 * 151936 / (0.5 * B)),
    (D.prefill(1000),   "attention",      36 * 9e-6
                                          + math.hypot((4 * 128 * SCORES + 100 * SCORES) / (0.6 * F),
                                                       36 * 4096 * (1000 + 20) / (0.7 * B))
                                          + 36 * 2 * 1000 * 32 * 256 / (0.5 * B)),
    (D.decode(999, batch=8), "attention", 36 * 9e-6
                                          + math.hypot(8 * 36 * 32 * 1000 * (4 * 128 + 100) / (0.6 * F),
                                                       8 * 36 * 4096 * (1000 + 20) / (0.7 * B))
                                          + 8 * 36 * 2 * 32 * 256 / (0.5 * B)),
]
# fmt: on


@pytest.mark.parametrize(("estimate", "operator", "by_hand"), TABLE)
def test_each_class_is_timed_by_its_law(estimate, operator, by_hand):
    """Launches, the joined pair, and what is paid apart: queries and outputs, and the quantising of an input."""
    assert estimate.operator(operator).time_s == pytest.approx(by_hand, rel=1e-12)


PACKED = LAWS.model_copy(
    update={
        "products": Efficiency(
            name="x",
            products={
                "bf16": {
                    "compute": 0.5,
                    "memory": 0.9,
                    "launch_us": 4,
                    "exponent": 2,
                    "unpack_flops_per_weight": 20,
                    "vector_flops_per_flop": 0.5,
                    "peak": "int8",
                }
            },
        ).products,
        "gap_us": 3.0,
        "step_us": 100.0,
    }
)
VECTOR = 50e12
INT4 = Deployment(
    "qwen3-8b",
    {**CARD, "peak_dense_tflops": {"bf16": 100, "int8": 300, "fp32": 50}},
    efficiency=PACKED,
    weights="int4",
)


def test_packed_weights_are_unpacked_on_the_vector_units_and_computed_at_the_peak_that_the_law_names():
    """Unpacking once a pass, the vector units' part for each FLOP, the rest at the integer peak; a pause a launch."""
    weights, flops = 36 * 4096 * 24576, GATE_FLOPS
    compute = flops / (0.5 * 300e12) + (weights * 20 + flops * 0.5) / VECTOR
    memory = (weights * (4 + 20 / 128) / 8 + 36 * 2 * 1000 * (4096 + 24576)) / (0.9 * B)
    gate = INT4.prefill(1000).operator("gate_up_proj")
    assert gate.compute_time_s == pytest.approx(compute, rel=1e-12)
    assert gate.time_s == pytest.approx(36 * 7e-6 + math.hypot(compute, memory), rel=1e-12)


def test_the_hosts_time_is_paid_once_a_pass():
    """Whatever the batch; without it the pass is that much shorter."""
    quiet = INT4.with_(efficiency=PACKED.model_copy(update={"step_us": None}))
    for batch in (1, 32):
        more = INT4.decode(100, batch=batch).time_s - quiet.decode(100, batch=batch).time_s
        assert more == pytest.approx(100e-6, rel=1e-6)


def test_a_plain_format_unpacks_nothing():
    """The same laws over 16-bit weights: the vector units take their part of the product and nothing else."""
    plain = INT4.with_(weights="bf16").decode(100).operator("gate_up_proj")
    flops = 36 * 2 * 4096 * 24576
    assert plain.compute_time_s == pytest.approx(flops / (0.5 * 300e12) + flops * 0.5 / VECTOR, rel=1e-12)


@pytest.mark.parametrize(("context", "rows"), [(0, 1020), (500, 1020), (1018, 1020), (1019, 1020), (5000, 5001)])
def test_a_sequence_shorter_than_a_tile_costs_a_tile(context, rows):
    """Kernels read K and V a tile at a time: the time of their stream is that of a tile, the bytes counted are not."""
    attention = D.decode(context).operator("attention")
    assert attention.kv_bytes == 36 * 4096 * (context + 1)
    assert attention.memory_time_s == pytest.approx(36 * 4096 * rows / (0.7 * B), rel=1e-12)


def test_the_parts_of_an_operator_are_its_time():
    """Compute and memory time joined, launches and serial extras added: nothing else is in a row."""
    for d in (D, FP8):
        for law, row in zip(d.timing.row_laws, d.prefill(1000).operators, strict=True):
            pair = (row.compute_time_s, row.memory_time_s)
            joined = (
                sum(pair)
                if law.exponent == 1
                else (pair[0] ** law.exponent + pair[1] ** law.exponent) ** (1 / law.exponent)
            )
            assert row.launch_time_s + row.serial_time_s + joined == pytest.approx(row.time_s, rel=1e-12)


def test_the_floor_is_at_the_highest_clock_and_spares_the_cache():
    """Peaks at the maximum clock; weights and K and V once, less what the last-level cache can hold."""
    prefill, step = D.prefill(2000), D.decode(1000)
    assert prefill.floor_s == pytest.approx(prefill.flops / (F * 1800 / 1500), rel=1e-12)
    assert step.floor_s == pytest.approx((step.weight_bytes + step.kv_bytes - 50 * 2**20) / B, rel=1e-12)


def test_the_floor_sums_over_dtypes():
    """FP8 products at the FP8 peak and attention at the BF16 peak, one after the other."""
    step = FP8.prefill(4000)
    sixteen = sum(row.flops for row in step.operators if row.dtype == "bf16")
    eight = step.flops - sixteen
    assert step.floor_s == pytest.approx((sixteen / F + eight / (2 * F)) / 1.2, rel=1e-12)


def test_total_and_rows_agree():
    """The inner call of sweeps is the sum of the rows, for many points at once."""
    x = features(D.plan.features, (Group(np.array([1.0, 50.0, 3000.0]), np.array([[0.0], [9000.0]]), 4),))
    assert np.allclose(D.timing.total_s(x), D.timing.rows_s(x).sum(axis=0), rtol=1e-13)


def test_a_missing_peak_stays_missing():
    """No peak of another dtype steps in; counts and memory times are there all the same."""
    d = D.with_(device={**CARD, "peak_dense_tflops": {"fp32": 60}})
    timing = d.timing
    x = features(timing.plan.features, (Group(1, 1000),))
    assert timing.missing == ("bf16",)
    assert np.isfinite(timing.memory_only_s(x)).all()
    assert d.floor.seconds(x)[0] == pytest.approx(D.floor.seconds(x)[0])
    with pytest.raises(
        MissingFigureError, match=r"^card has no datasheet peak for bf16 \(it has: fp32\): a time needs it"
    ):
        timing.require_peaks()


def test_two_missing_peaks_are_both_named():
    """FP8 products and BF16 attention on a device with neither."""
    d = FP8.with_(device={**CARD, "peak_dense_tflops": {}})
    with pytest.raises(MissingFigureError, match=r"no datasheet peak for bf16 and fp8 \(it has: none\)"):
        d.timing.require_peaks()


def test_the_bound_is_the_largest_part():
    """Compute for a long prompt, memory for a decode step, overhead for a model too small to fill its launches."""
    small = {"hidden_size": 64, "vocabulary": 100, "layers": [["full", "dense", 30]]}
    small["mixers"] = [{"name": "full", "heads": 2, "kv_heads": 2, "head_dim": 32}]
    small["feedforwards"] = [{"name": "dense", "intermediate_size": 64}]
    assert D.prefill(4000).bound == "compute"
    assert D.decode(1000).bound == "memory"
    assert D.with_(model=small).decode(10).bound == "overhead"
    assert D.decode(1000).operator("gate_up_proj").bound == "memory"
    assert D.prefill(4000).operator("gate_up_proj").bound == "compute"


def test_roofline_times_are_the_larger_of_two():
    """On datasheet peaks each operator takes its compute or its memory time, and no launch."""
    for row in D.with_(efficiency="datasheet").prefill(300).operators:
        assert row.time_s == max(row.compute_time_s, row.memory_time_s)
        assert row.memory_time_s == pytest.approx(row.bytes / B, rel=1e-15)
        assert row.launch_time_s == row.serial_time_s == 0


@pytest.mark.parametrize("name", ["qwen3-8b", "deepseek-v3", "gemma-2-9b"])
def test_a_sweep_in_which_little_moves_equals_its_points(name):
    """Rows that are the same at every point are timed once, which changes no point's time."""
    d = Deployment(name, "h200-sxm", memory_check=False)
    for context, batch in (
        ([5, 900, 70, 5], 3),
        (900, [1, 64, 2, 1]),
        ([5, 900, 70, 5], [1, 64, 2, 1]),
        ([9, 9, 9], 2),
    ):
        sweep = d.decode(context, batch=batch).time_s
        points = [d.decode(c, batch=b).time_s for c, b in np.broadcast(context, batch)]
        assert sweep == pytest.approx(points, rel=1e-13)
