"""Which entry a constant comes from."""

import pytest

from rooflinekit import Efficiency, NotCalibratedError
from rooflinekit.roofline.laws import Laws, choose, roofline_efficiency
from rooflinekit.specs.efficiency import Spread

PRODUCT = {"compute": 0.5, "memory": 0.5, "launch_us": 1}
ATTENTION = {"compute": 0.5, "memory": 0.5, "activation": 0.5, "launch_us": 1}


def entry(name, *dtypes, engine=None, weights="bf16", default=False, **laws):
    """Efficiency with product laws of these dtypes."""
    products = {dtype: {**PRODUCT, "launch_us": index} for index, dtype in enumerate(dtypes)}
    return Efficiency(name=name, engine=engine, format=weights, default=default, products=products, **laws)


UNIVERSAL, GENERATION = entry("universal", "bf16", "fp8"), entry("hopper", "bf16")

DTYPES = [
    # asked   from entry      law of
    ("bf16",  "own",          "bf16"),
    ("fp16",  "own",          "bf16"),  # the same rate and the same kernels
    ("tf32",  "own",          "bf16"),
    ("fp32",  "own",          "bf16"),
    ("fp8",   "universal",    "fp8"),  # the nearest entry that measured FP8, and not BF16 of the own one
    ("int8",  "universal",    "fp8"),
    ("fp4",   "universal",    "fp8"),
    ("int4",  "universal",    "fp8"),
    ("fp6",   "universal",    "fp8"),
]  # fmt: skip


@pytest.mark.parametrize(("dtype", "name", "like"), DTYPES)
def test_a_dtype_takes_its_own_law_or_that_of_the_nearest_measured(dtype, name, like):
    """The law of a dtype that nobody measured is that of its nearest kin, and the basis says whose."""
    laws = Laws((entry("own", "bf16"), GENERATION, UNIVERSAL), "own")
    assert laws.product(dtype)[1] == f"{name} products.{like}"


def test_a_constant_comes_from_the_first_entry_that_has_it():
    """Own entry, generation, universal, in that order, for each class apart."""
    own = entry("own", "bf16", norm={"memory": 0.9, "launch_us": 1})
    generation = entry("hopper", attention=ATTENTION, norm={"memory": 0.1, "launch_us": 1})
    universal = entry("universal", attention={**ATTENTION, "compute": 0.1}, rotary={"memory": 0.3, "launch_us": 1})
    laws = Laws((own, generation, universal), "own")
    assert laws.elementwise("norm")[0].memory == 0.9
    assert laws.attention() == (generation.attention, "hopper attention")
    assert laws.elementwise("rotary")[1] == "universal rotary"


@pytest.mark.parametrize(
    ("ask", "missing"),
    [
        (lambda laws: laws.product("fp8"), "fp8 products"),
        (lambda laws: laws.attention(), "attention"),
        (lambda laws: laws.elementwise("norm"), "norm"),
    ],
)
def test_a_law_that_no_entry_has_is_named(ask, missing):
    """The error says which law is missing and where it was looked for."""
    with pytest.raises(NotCalibratedError, match=f"^no constants for {missing} in own, hopper$"):
        ask(Laws((entry("own"), entry("hopper")), "own"))


def test_the_power_limit_comes_whole_from_one_entry():
    """Budget and sustained part belong together: half of the pair is none."""
    half = entry("half", burst_ms=5)
    whole = entry("whole", burst_ms=20, sustained=0.8)
    assert Laws((half,), "own").power_limit is None
    assert Laws((half, whole), "own").power_limit == (20, 0.8)


VLLM = entry("card/vllm/bf16", "bf16", engine="vllm-0.31")
LLAMA = entry("card/llama.cpp/bf16", "bf16", engine="llama.cpp-b6000", default=True)
INT4 = entry("card/vllm/int4", "bf16", engine="vllm-0.31", weights="int4")
# fmt: off
CHOICES = [
    # entries         engine        weights      leads                 tier
    ([VLLM, LLAMA],   None,         "bf16",      "card/llama.cpp/bf16", "own"),  # the default, not the first
    ([VLLM],          None,         "bf16",      "card/vllm/bf16",      "own"),  # the only one
    ([VLLM, LLAMA],   "vllm",       "bf16",      "card/vllm/bf16",      "own"),
    ([VLLM, LLAMA],   "vllm-0.31",  "bf16",      "card/vllm/bf16",      "own"),
    ([VLLM, LLAMA],   "vllm-0.3",   "bf16",      "card/vllm/bf16",      "other version on this device"),
    ([VLLM, LLAMA],   "vll",        "bf16",      "card/llama.cpp/bf16", "other engine on this device"),
    ([VLLM, INT4],    None,         "int4",      "card/vllm/int4",      "own"),
    ([VLLM, INT4],    "sglang",     "int4",      "card/vllm/int4",      "other engine on this device"),
    ([VLLM, LLAMA],   "vllm",       "fp8",       "card/vllm/bf16",      "other format on this device"),
    ([VLLM],          None,         "fp16",      "card/vllm/bf16",      "own"),
    ([INT4],          None,         "bf16",      "hopper",              "architecture generation"),
    ([],              None,         "bf16",      "hopper",              "architecture generation"),
]
# fmt: on


@pytest.mark.parametrize(("entries", "engine", "weights", "leads", "tier"), CHOICES)
def test_the_nearest_entry_leads(entries, engine, weights, leads, tier):
    """Engine and format of one's own first; an engine is matched by whole words."""
    laws = choose(entries, [GENERATION, UNIVERSAL], engine, weights)
    assert (laws.chain[0].name, laws.tier) == (leads, tier)
    assert laws.chain[-1] is UNIVERSAL


SHARED = (
    entry("llama.cpp/q4_k on X", "bf16", engine="llama.cpp", weights="q4_k", default=True),
    entry("llama.cpp/bf16 on X", "bf16", engine="llama.cpp"),
    entry("vllm/bf16 on X", engine="vllm", gap_us=2.0),
    entry("mlx/any on X", "bf16", engine="mlx", weights="any"),
)
# fmt: off
BY_ENGINE = [
    # entries         engine            weights       leads                   tier
    ([VLLM],          "llama.cpp",      "q4_k",       "llama.cpp/q4_k on X",  "this engine on other devices"),
    ([VLLM],          "llama.cpp-cuda", "q4_k",       "llama.cpp/q4_k on X",  "this engine on other devices"),
    ([VLLM, LLAMA],   "llama.cpp",      "bf16",       "card/llama.cpp/bf16",  "own"),
    ([VLLM, LLAMA],   "llama.cpp",      "q5_k",       "card/llama.cpp/bf16",  "other format on this device"),
    ([VLLM],          "llama.cpp",      "q5_k", "llama.cpp/q4_k on X", "this engine on other devices, other format"),
    ([VLLM],          "mlx",            "mlx-5bit",   "mlx/any on X",         "this engine on other devices"),
    ([VLLM, INT4],    "sglang",         "int4",       "card/vllm/int4",       "other engine on this device"),
    ([VLLM],          None,             "q4_k",       "llama.cpp/q4_k on X",  "this format on other devices"),
    ([VLLM],          None,             "int4",       "card/vllm/bf16",       "other format on this device"),
    ([VLLM],          "tgi",            "bf16",       "card/vllm/bf16",       "other engine on this device"),
    ([],              "tgi",            "bf16",       "hopper",               "architecture generation"),
]
# fmt: on


@pytest.mark.parametrize(("entries", "engine", "weights", "leads", "tier"), BY_ENGINE)
def test_an_engine_that_was_asked_for_comes_before_another_on_the_device(entries, engine, weights, leads, tier):
    """One chip under two engines is two truths: the engine elsewhere is nearer than another engine here."""
    laws = choose(entries, [GENERATION, UNIVERSAL], engine, weights, SHARED)
    assert (laws.chain[0].name, laws.tier) == (leads, tier)


def test_the_hosts_time_counts_only_where_its_engine_was_asked_for():
    """The pauses of vLLM join its kernels' entry when vLLM is named, and nobody else's."""
    pauses = [
        choose([VLLM], [UNIVERSAL], engine, "bf16", SHARED).gap_us for engine in ("vllm", "vllm-0.31", None, "tgi")
    ]
    assert pauses == [2.0, 2.0, 0.0, 0.0]


def test_the_basis_names_whose_host_it_is():
    """A version's kernels with the host's time of the engine at large are two entries, and both are named."""
    kernels = UNIVERSAL.model_copy(update={"name": "card/vllm-0.14/bf16", "engine": "vllm-0.14"})
    host = UNIVERSAL.model_copy(update={"name": "card/vllm/bf16", "engine": "vllm", "step_us": 1900.0})
    idle = host.model_copy(update={"step_us": 0.0})
    bases = [choose([kernels, one], [UNIVERSAL], "vllm-0.14", "bf16").basis for one in (host, idle)]
    assert bases == ["card/vllm-0.14/bf16, host of card/vllm/bf16", "card/vllm-0.14/bf16"]
    assert choose([kernels, host], [UNIVERSAL], None, "bf16").basis == "card/vllm-0.14/bf16"


def test_another_engines_constants_widen_the_spread_of_a_pass():
    """The spread of a pass is its entry's, and wider by the universal figure where the entry is another engine's."""
    wide = UNIVERSAL.model_copy(update={"spread": Spread(prefill=0.3, decode=0.3, other_engine=0.4)})
    near = VLLM.model_copy(update={"spread": Spread(decode=0.3)})
    own, other = (choose([near], [wide], engine, "bf16").spread("decode") for engine in ("vllm", "tgi"))
    assert (own, other) == (0.3, pytest.approx(0.5))
    assert choose([near], [wide], "tgi", "bf16").spread("product_decode") is None


def test_the_universal_entry_alone_is_named_so():
    """Without any entry nearer, the basis is the universal one: one word, no empty tier behind it."""
    assert choose([], [UNIVERSAL], None, "bf16").basis == "universal"


def test_the_roofline_is_every_fraction_one_and_no_launch():
    """The per-operator roofline is an efficiency like any other."""
    roofline = roofline_efficiency("datasheet roofline of x")
    laws = Laws((roofline,), "own")
    for dtype in ("bf16", "fp16", "fp8", "fp4", "int8", "fp32", "tf32", "fp6", "int4"):
        law, _ = laws.product(dtype)
        assert (law.compute, law.memory, law.launch_us, law.exponent) == (1, 1, 0, float("inf"))
    assert laws.attention()[0].activation is None
    assert {laws.elementwise(name)[0].memory for name in ("norm", "rotary", "activation", "cache_write")} == {1}
    assert laws.power_limit is None
