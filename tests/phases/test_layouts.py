"""Deployments over several devices: what is of one of them, what messages cost, which layouts fit."""

import math

import numpy as np
import pytest

import rooflinekit as rk

pytestmark = pytest.mark.filterwarnings("ignore::rooflinekit.errors.ContextLengthWarning")
GIB = 2.0**30
ONE = rk.Deployment("qwen3-8b", "h200-sxm")
TWO = ONE.with_(tensor_parallel=2)


def test_one_device_is_what_it_was():
    """Every degree of 1 is no layout: equal deployments, equal times to the last bit, no communication."""
    same = rk.Deployment(
        "qwen3-8b", "h200-sxm", tensor_parallel=1, pipeline_parallel=1, expert_parallel=1, data_parallel_attention=1
    )
    assert same == ONE
    assert same.decode(2048, batch=8).time_s == ONE.decode(2048, batch=8).time_s
    assert same.links is None
    assert ONE.decode(2048).parts["communication"] == 0.0
    assert repr(ONE) == "qwen3-8b on h200-sxm: bf16 weights, bf16 KV, h200-sxm/pytorch-2.11/bf16"


def test_the_layout_is_shown():
    """The one line names the devices and how they share the work; notes say what is assumed."""
    assert repr(TWO).startswith("qwen3-8b on 2 x h200-sxm (TP2): ")
    notes = "\n".join(TWO.with_(tensor_parallel=16, pipeline_parallel=2).notes)
    for said in ("of the busiest one", "NVLink 4, H200 SXM, 450 GB/s", "KV heads are copied", "one after another"):
        assert said in notes
    assert TWO != ONE
    assert TWO.with_(tensor_parallel=1) == ONE


# fmt: off
WEIGHTS = [
    # model, layout, GiB of one device
    ("llama-3.1-8b", {"tensor_parallel": 2}, (32 * (4096 * 3072 + 2048 * 4096 + 3 * 4096 * 7168 + 8192) + 4096
                                              + 2 * 4096 * 64128) * 2 / GIB),
    ("llama-3.1-8b", {"tensor_parallel": 2}, 7.479),
    # the first stage has the embedding, the last the output layer and the final norm
    ("llama-3.1-8b", {"pipeline_parallel": 2}, (16 * (4096 * 6144 + 4096 * 4096 + 3 * 4096 * 14336 + 8192) + 4096
                                                + 4096 * 128256) * 2 / GIB),
]
# fmt: on


@pytest.mark.parametrize(("model", "layout", "gib"), WEIGHTS)
def test_weights_of_a_device(model, layout, gib):
    """To the byte: what the fullest device holds."""
    assert rk.Deployment(model, "h100-sxm", **layout).weights_bytes / GIB == pytest.approx(gib, rel=1e-4)


def test_weights_of_two_ranks_as_a_server_reports_them():
    """Two R9700 under vLLM load 7.582 GiB of Llama-3.1-8B each, one 15.059: both 0.1 GiB over the parameters."""
    one, two = (rk.Deployment("llama-3.1-8b", "r9700", tensor_parallel=ranks).weights_bytes / GIB for ranks in (1, 2))
    assert 15.0586 - one == pytest.approx(7.5820 - two, abs=0.002)
    assert two == pytest.approx(7.5820, rel=0.015)


@pytest.mark.parametrize("model", ["llama-3.1-8b", "qwen3-0.6b", "deepseek-v3", "gemma-2-9b", "jamba-v0.1", "gpt2-xl"])
def test_stages_sum_to_the_model(model):
    """Layers, caches and weights of all stages are those of the model; a tied table is on the first and the last."""
    whole = rk.Deployment(model, "h200-sxm", memory_check=False)
    stages = whole.with_(pipeline_parallel=3).shares
    tied = whole.model.tied_embeddings * whole.model.hidden_size * whole.model.vocabulary * 2
    assert sum(share.layers for share in stages) == whole.model.layer_count
    assert sum(share.weights_bytes for share in stages) == pytest.approx(whole.weights_bytes + tied, rel=1e-12)
    assert sum(share.cache.held(5000) for share in stages) == pytest.approx(whole.kv_cache_bytes(5000), rel=1e-12)


def test_memory_is_checked_on_every_device():
    """Mistake 21: the cache of latent attention is on every rank, so that eight do not hold eight times as much."""
    d = rk.Deployment("deepseek-v3", "h200-sxm", tensor_parallel=8)
    room = d.device.memory_bytes - d.weights_bytes
    fits = math.floor(room / d.kv_cache_bytes(8001))
    assert d.decode(8000, batch=fits).time_s > 0
    with pytest.raises(
        rk.DoesNotFitError, match=r"does not fit on 8 x h200-sxm \(TP8\), each with its part: weights 79"
    ):
        d.decode(8000, batch=fits + 1)
    pooled = 8 * d.device.memory_bytes - 8 * d.weights_bytes
    assert pooled > 7 * d.kv_cache_bytes(8001, sequences=fits + 1)  # what a pool of all memory would have let pass


def test_attention_groups_hold_their_own_sequences():
    """Nine sequences over eight groups: two on one device."""
    d = rk.Deployment("deepseek-v3", "h200-sxm", data_parallel_attention=8, expert_parallel=8)
    assert d.kv_cache_bytes(4000, sequences=9) == 2 * d.kv_cache_bytes(4000)
    assert d.kv_cache_bytes(4000, sequences=[8, 9]).tolist() == [d.kv_cache_bytes(4000), 2 * d.kv_cache_bytes(4000)]


def test_messages_have_a_latency():
    """Mistake 22: a decode step of one sequence sends 73 messages of 8 KiB; their bytes are 1% of what they take."""
    step = TWO.decode(2048)
    row = step.operator("all_reduce")
    assert row.launches == 73
    assert row.message_bytes == 73 * 8192
    assert row.time_s == pytest.approx(73 * (7.42e-6 + 8192 / (0.37 * 450e9)))
    assert row.message_bytes / 450e9 < 0.01 * row.time_s
    assert row.bound == "communication"


def test_parts_add_up():
    """Compute, memory, overhead and communication are the time; messages are in the table and the tree."""
    for step in (TWO.decode(2048, batch=8), TWO.prefill(4096)):
        assert sum(step.parts.values()) == pytest.approx(step.time_s, rel=1e-12)
        assert step.communication_share == pytest.approx(step.parts["communication"] / step.time_s)
        assert step.table()["message_bytes"].sum() == pytest.approx(step.message_bytes)
        assert "communication: messages between devices" in str(step.explain())


def test_a_sweep_equals_its_points():
    """Vectors of passes give what each gives alone, above and below the limit of the engines' kernel."""
    tokens = np.array([16.0, 512.0, 1024.0, 4096.0])
    swept = TWO.prefill(tokens)
    assert swept.time_s == pytest.approx([TWO.prefill(float(one)).time_s for one in tokens], rel=1e-12)
    assert swept.bound.shape == (4,)


LAYOUTS = [
    ("llama-3.1-70b", {"tensor_parallel": 16}),
    ("llama-3.1-70b", {"tensor_parallel": 8, "pipeline_parallel": 2}),
    ("deepseek-v3", {"tensor_parallel": 8, "expert_parallel": 8, "expert_imbalance": 1.5}),
    ("deepseek-v3", {"data_parallel_attention": 16, "expert_parallel": 16}),
    ("deepseek-v3", {"data_parallel_attention": 4, "tensor_parallel": 2, "expert_parallel": 4}),
]


@pytest.mark.parametrize(("model", "layout"), LAYOUTS)
def test_the_tree_reevaluates(model, layout):
    """Every printed expression gives its value."""
    d = rk.Deployment(model, "h200-sxm", **layout)
    for step in (d.decode(2048, batch=64), d.prefill(3000)):
        for term in step.explain().walk():
            if term.expression:
                assert eval(term.expression, {"min": min, "max": max}) == pytest.approx(term.value, rel=1e-6, abs=1e-15)  # noqa: S307 - our own


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_nothing_beats_the_floor_of_a_rank(ranks):
    """The floor is of one device's work: it falls with the ranks, and time stays above it."""
    d = ONE.with_(tensor_parallel=ranks)
    for step, whole in ((d.decode(4000, batch=16), ONE.decode(4000, batch=16)), (d.prefill(4000), ONE.prefill(4000))):
        caches = (ranks - 1) * ONE.device.datasheet.last_level_cache_mib * 2**20 / ONE.device.bytes_per_s
        assert whole.floor_s <= (ranks * step.floor_s + caches) * (1 + 1e-12)
        assert step.floor_s < whole.floor_s
        assert step.floor_s < step.time_s


def test_each_stage_has_a_cache_of_its_own():
    """What may lie in the caches of all stages is no compulsory traffic."""
    pipeline = ONE.with_(pipeline_parallel=4).decode(4000, batch=16)
    cache = ONE.device.datasheet.last_level_cache_mib * 2**20
    assert ONE.decode(4000, batch=16).floor_s - pipeline.floor_s == pytest.approx(3 * cache / ONE.device.bytes_per_s)


@pytest.mark.parametrize("factor", [2, 10, 100])
def test_a_slower_link_is_never_quicker(factor):
    """Time rises as the link slows down."""
    slow = TWO.with_(interconnect={"one_way_gb_per_s": 450 / factor})
    assert slow.decode(2048).time_s >= TWO.decode(2048).time_s
    assert slow.prefill(2048).time_s > TWO.prefill(2048).time_s


def test_time_never_falls_with_the_prompt():
    """Also where messages pass the limit of the engines' kernel: 8 MiB are 1,024 tokens."""
    seconds = TWO.prefill(np.arange(900.0, 1200.0)).time_s
    assert (np.diff(seconds) > 0).all()


# ---- links


def test_a_link_is_chosen_by_name_or_by_figures():
    """A name, single figures of the device's link, or of a named one."""
    assert TWO.with_(interconnect="pcie").links.inside.id == "pcie"
    changed = TWO.with_(interconnect={"one_way_gb_per_s": 25, "latency_us": 30, "fraction": 0.8}).links
    assert (changed.inside.one_way_gb_per_s, changed.own_kernel) == (25, False)
    assert {changed.inside.all_reduce.latency_us, changed.inside.send.latency_us} == {30}
    bridge = rk.Deployment("qwen3-8b", "rtx-3090", tensor_parallel=2, interconnect="nvlink-bridge")
    assert bridge.links.inside.one_way_gb_per_s == 56.25
    assert rk.Deployment("qwen3-8b", "rtx-3090", tensor_parallel=2).links.inside.id == "pcie-host"
    other = TWO.with_(interconnect={"name": "pcie", "one_way_gb_per_s": 4})
    assert (other.links.inside.id, other.links.inside.one_way_gb_per_s) == ("pcie", 4)
    assert other == TWO.with_(interconnect={"name": "pcie", "one_way_gb_per_s": 4})


@pytest.mark.parametrize(
    ("link", "error", "message"),
    [
        (
            "nvlnk-hopper",
            rk.UnknownNameError,
            r"^interconnect='nvlnk-hopper' is not in .*; did you mean nvlink-hopper\?$",
        ),
        ({"bandwidth": 3}, rk.SpecError, r"^interconnect: unknown key `bandwidth`"),
        ({"one_way_gb_per_s": -1}, rk.SpecError, r"^interconnect: `one_way_gb_per_s` = -1"),
        (7, rk.InvalidInputError, r"^interconnect=7: expected a name"),
        ({"name": "pcie", "own_kernel": True}, rk.InvalidInputError, r"^own_kernel: pcie knows no"),
    ],
)
def test_a_wrong_link_is_named(link, error, message):
    """Misspelt names, unknown figures, figures that cannot be."""
    with pytest.raises(error, match=message):
        TWO.with_(interconnect=link)


def test_devices_without_a_link_say_so():
    """Nothing is guessed for a device whose file has no link."""
    with pytest.raises(rk.MissingFigureError, match=r"^apple-m4-max has no pcie.one_way_gb_per_s.*pass interconnect="):
        rk.Deployment("qwen3-8b", "apple-m4-max", tensor_parallel=2)
    named = rk.Deployment("qwen3-8b", "apple-m4-max", tensor_parallel=2, interconnect={"one_way_gb_per_s": 5})
    assert named.decode(100).parts["communication"] > 0


def test_more_devices_than_any_link_joins():
    """Beyond the domain of a link something must join the nodes."""
    with pytest.raises(rk.MissingFigureError, match=r"^ethernet joins 8 devices and names no link beyond"):
        rk.Deployment("llama-3.1-70b", "gaudi3", tensor_parallel=16)
    joined = rk.Deployment("llama-3.1-70b", "gaudi3", tensor_parallel=16, interconnect={"between": "infiniband-ndr"})
    assert joined.decode(100).time_s > rk.Deployment("llama-3.1-70b", "gaudi3", tensor_parallel=8).decode(100).time_s


def test_engines_without_a_kernel_of_their_own():
    """llama.cpp has none, so that its small messages take the library's time."""
    assert not TWO.with_(engine="llama.cpp").links.own_kernel
    assert TWO.with_(engine="vllm-0.31").links.own_kernel


# ---- cases of the field


def test_tensor_parallel_divides_the_weights_of_a_step():
    """B18: two chips of 288 GB/s reading 6.4 GB reach 90 tokens/s at best; 45 is what one of them could."""
    chip = {
        "bandwidth_gb_per_s": 288,
        "peak_dense_tflops": {"bf16": 74},
        "pcie": {"generation": 4, "lanes": 16, "one_way_gb_per_s": 31.5},
    }
    one = rk.Deployment("qwen2.5-7b", chip, weights="fp8-weight-only", memory_check=False)
    two = one.with_(tensor_parallel=2)
    assert two.decode_ceiling_tokens_per_s == pytest.approx(2 * one.decode_ceiling_tokens_per_s, rel=1e-3)
    assert two.decode(0).weight_bytes == pytest.approx(one.decode(0).weight_bytes / 2, rel=1e-3)
    assert two.timing.rates.bytes_per_s / 6.4e9 == pytest.approx(45)


def test_tensor_parallel_over_slow_pcie_makes_prefill_slower():
    """B23: 2 x RTX 3090, a 70B model at 4.5 bits: 1,046 tokens/s split by layers, 379 with tensor parallelism."""
    choices = {"weights": "int4-g32", "memory_check": False}
    split = rk.Deployment("llama-3.1-70b", "rtx-3090", pipeline_parallel=2, **choices).prefill(4096)
    divided = rk.Deployment(
        "llama-3.1-70b", "rtx-3090", tensor_parallel=2, interconnect={"one_way_gb_per_s": 3.94}, **choices
    ).prefill(4096)
    each = divided.message_bytes / 4096
    assert each == pytest.approx(2 * 80 * 8192 * 2, rel=0.01)  # 2.6 MB a token
    assert divided.time_s > 1.2 * split.time_s
    assert divided.parts["communication"] > 0.5 * divided.time_s
    assert divided.bound == "communication"
    free = divided.time_s - divided.parts["communication"]
    assert divided.time_s > 2 * free  # what a model without messages would have said


# ---- plans


def test_layouts_of_a_dense_model():
    """Every way to divide eight devices, the quickest decode first."""
    table = rk.plan_layouts("llama-3.1-70b", "h100-sxm", gpus=8, batch=16)
    assert set(table["layout"]) == {"TP8", "TP4 PP2", "TP2 PP4", "PP8"}
    assert (table["tensor_parallel"] * table["pipeline_parallel"] * table["data_parallel_attention"] == 8).all()
    assert table["fits"].all()
    assert table["decode_step_s"].is_monotonic_increasing
    row = table.set_index("layout").loc["TP8"]
    d = rk.Deployment("llama-3.1-70b", "h100-sxm", tensor_parallel=8)
    assert row["decode_step_s"] == d.decode(2048, batch=16).time_s
    assert row["decode_communication_share"] == d.decode(2048, batch=16).communication_share
    assert row["kv_room_bytes"] == d.device.memory_bytes - d.weights_bytes


def test_layouts_that_do_not_fit_say_why():
    """They come last: too large for the memory, or not to be divided so."""
    table = rk.plan_layouts("llama-3.1-70b", "h100-sxm", gpus=1)
    assert table["note"].str.contains("does not fit").all()
    assert not table["fits"].any()
    assert table["decode_step_s"].notna().all()
    odd = rk.plan_layouts("qwen3-8b", "h100-sxm", gpus=3).set_index("layout")
    assert odd.index.tolist() == ["PP3", "TP3"]
    assert "does not divide" in odd.loc["TP3", "note"]
    assert np.isnan(odd.loc["TP3", "decode_step_s"])


def test_layouts_of_a_mixture():
    """Attention in groups and experts in ranks beside tensor and pipeline."""
    table = rk.plan_layouts("qwen3-30b-a3b", "h100-sxm", gpus=4, context_tokens=8000, batch=32)
    assert {"TP4", "TP4 EP4", "DP4", "DP4 EP4", "DP2 TP2", "DP2 TP2 EP4", "PP4"} <= set(table["layout"])
    assert table["fits"].all()


def test_a_plan_needs_devices():
    """None and halves are no devices."""
    for gpus in (0, 1.5):
        with pytest.raises(rk.InvalidInputError, match=r"^gpus="):
            rk.plan_layouts("qwen3-8b", "h100-sxm", gpus=gpus)
