"""What an engine runs inside neighbouring kernels costs no launch there."""

import pytest

import rooflinekit as rk
from rooflinekit.roofline.fusion import FUSIONS, fused
from rooflinekit.roofline.laws import Laws
from rooflinekit.specs.catalog import load_fusions
from rooflinekit.specs.efficiency import AttentionLaw, Efficiency, ElementwiseLaw, ProductLaw, ProductLaws

SMALL = ElementwiseLaw(memory=0.5, launch_us=3.0)
ATTENTION = AttentionLaw(compute=0.5, memory=0.9, activation=None, launch_us=8.0)
PRODUCTS = ProductLaws(
    bf16=ProductLaw(compute=0.8, memory=0.8, launch_us=4.0),
    fp8=ProductLaw(compute=0.6, memory=0.9, launch_us=5.4, quantisation_ps_per_element=1.1),
)
APART = Efficiency(
    name="card/vllm", engine="vllm", products=PRODUCTS, rotary=SMALL, cache_write=SMALL, attention=ATTENTION,
    attention_fp8=ATTENTION.model_copy(update={"memory": 0.3}),
)  # fmt: skip


def test_a_small_kernel_inside_another_keeps_its_bytes_and_loses_its_launch():
    """Rotary's rate stays; the cache write, not named, is launched as before."""
    laws = fused(Laws((APART,), ""), "fast", ["rotary"])
    assert laws.elementwise("rotary")[0] == ElementwiseLaw(memory=0.5, launch_us=0.0)
    assert laws.elementwise("cache_write")[0] == SMALL


def test_static_scales_leave_the_launch_of_the_product_alone():
    """No pass over the input, and the launch of a product without one: BF16's. BF16 itself is as it was."""
    laws = fused(Laws((APART,), ""), "fast", ["static_fp8_quantisation"])
    assert laws.product("fp8")[0] == ProductLaw(compute=0.6, memory=0.9, launch_us=4.0)
    assert laws.product("bf16")[0] == PRODUCTS.bf16


def test_an_fp8_cache_that_is_widened_inside_streams_as_any_other():
    """The variant of another engine is not taken; without the fusion it is."""
    assert Laws((APART,), "").attention("fp8")[0].memory == 0.3
    assert fused(Laws((APART,), ""), "fast", ["fp8_cache_widening"]).attention("fp8")[0].memory == 0.9


def test_an_engines_own_entry_stays_as_it_was_measured():
    """What was measured under the engine holds its fusions already."""
    laws = fused(Laws((APART, APART.model_copy(update={"engine": "fast-2"})), ""), "fast", list(FUSIONS))
    assert [entry.rotary.launch_us for entry in laws.chain] == [0.0, 3.0]
    assert [entry.name for entry in laws.chain] == ["card/vllm, fused as in fast", "card/vllm"]


@pytest.mark.parametrize("engine", ["tensorrt-llm", "tensorrt-llm-1.1"])
def test_tensorrt_llm_saves_the_launches_of_rotary_and_cache_write(engine):
    """Two launches a layer less than the device's laws say, and the embedding's, of the cache write's class."""
    assert {one.kernel for one in load_fusions(engine)} == set(FUSIONS)
    plain, inside = (
        rk.Deployment("llama-3.3-70b", "b200-sxm", engine=name, tensor_parallel=2).decode(context_tokens=2048)
        for name in (None, engine)
    )
    names = ("rotary", "kv_write", "embedding")
    launches = {row.name: row.launch_time_s for row in plain.operators if row.name in names}
    assert len(launches) == 3
    assert plain.time_s - inside.time_s == pytest.approx(sum(launches.values()), rel=1e-6)


@pytest.mark.parametrize("engine", [None, "", "vllm", "tensorrt", "sglang", "no-such-engine"])
def test_no_other_engine_fuses_anything(engine):
    """Nothing is taken from a name that only begins alike."""
    assert load_fusions(engine) == ()
