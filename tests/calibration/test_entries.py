"""Shipped entries: what the references give, with evidence, physical, and one for each device, engine and format."""

from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from rooflinekit import Deployment, list_devices, load_device
from rooflinekit.calibration.engines import Key, by_entry, fit_own, fit_shared
from rooflinekit.calibration.entries import fit_h200, fit_kernels, kernel_start, select
from rooflinekit.calibration.fit import constant, shipped_fallbacks
from rooflinekit.calibration.passes import rate_observations
from rooflinekit.calibration.references import h200_llama_cpp, kernel_tables, rate_table
from rooflinekit.phases.resolve import resolve_laws
from rooflinekit.roofline.laws import Laws, choose
from rooflinekit.specs.catalog import load_engines, load_generation
from rooflinekit.specs.efficiency import ElementwiseLaw, MixtureLaw, ProductLaw

DATABASE = Path(__file__).parents[2] / "hardware_db"
OWN = [(device, entry) for device in map(load_device, list_devices()) for entry in device.efficiency]
GENERATIONS = [load_generation(path.stem) for path in sorted((DATABASE / "generations").glob("*.yaml"))]
SHIPPED = [*(entry for _, entry in OWN), *load_engines(), *GENERATIONS]


def named(name):
    """Find a shipped entry of a device."""
    return next(entry for _, entry in OWN if entry.name == name)


def agree(fits, shipped, tolerance=0.01):
    """Compare what fits found with the shipped constants; below 0.001 they are nought."""
    for one in fits:
        for name, value in one.constants.items():
            assert value == pytest.approx(constant(shipped, name), rel=tolerance, abs=1e-3), name


def rates_of(key, device):
    """Observe the public rates of an entry on devices whose names begin so."""
    table = rate_table()
    mine = table["excluded"].isna() & table["device"].fillna("").str.startswith(device)
    return by_entry(rate_observations(table[mine & table["engine"].str.startswith(key.engine)]))[key]


# ---- one device of each kind, fitted again


def test_the_products_of_an_h100_are_those_of_its_kernel_table():
    """Kernel tables of one device give its shipped products, BF16 and FP8."""
    rows = [one for one in kernel_tables() if one.device.id == "h100-sxm-80gb"]
    _, fits = fit_kernels(select(rows, op="product"), kernel_start(), own=True)
    assert {name.rsplit(".", 1)[0] for one in fits for name in one.constants} == {"products.bf16", "products.fp8"}
    agree(fits, named("h100-sxm-80gb/vllm-0.24/bf16"))


def test_the_h200_is_that_of_its_trace():
    """Kernels first, then the power limit on steps: every constant of the shipped entry."""
    (_, fits), _ = fit_h200()
    assert {"burst_ms", "sustained"} == set(fits[-1].constants)
    agree(fits, named("h200-sxm/pytorch-2.11/bf16"))


def test_llama_cpp_on_a_4090_is_that_of_its_rates():
    """Single-stream rates fit the entry that NVIDIA's cards share, then the card's own from it."""
    key = Key("llama.cpp", "NVIDIA", "q4_k")
    shared = next(one for one in load_engines() if (one.engine, one.family, one.format) == key)
    agree([fit_own(shared, rates_of(key, "rtx-4090"))], named("rtx-4090/llama.cpp/q4_k"))


def test_a_shared_entry_is_that_of_its_rates():
    """llama.cpp on Apple: all devices alike."""
    key = Key("llama.cpp", "Apple", "bf16")
    shared = next(one for one in load_engines() if (one.engine, one.family, one.format) == key)
    agree([fit_shared(key, rates_of(key, "apple-"))], shared)


@pytest.mark.parametrize("weights", ["bf16", "fp8"])
def test_a_card_without_kernel_tables_shows_its_memory_beside_the_pause(weights):
    """SGLang on an H20: with the memory's rate free a model left out is met; a pause alone leaves 18% and 29%."""
    key = Key("sglang", "NVIDIA", weights)
    rows = rates_of(key, "h20")
    errors = []
    for left_out in rows:
        rest = [one for one in rows if one is not left_out]
        entry = fit_own(fit_shared(key, rest).efficiency, rest).efficiency
        laws = Laws((entry, *shipped_fallbacks(left_out.device)), "own")
        errors += list(np.abs(np.log(left_out.predicted_s(laws) / left_out.seconds)))
    assert len(rows) == 3
    assert np.median(errors) < 0.08


@pytest.mark.parametrize("weights", ["bf16", "fp8"])
def test_the_memory_of_one_card_is_no_other_cards(weights):
    """The shared entry keeps the pause alone, and its covariance; the card's own keeps both."""
    shared = next(one for one in load_engines() if one.name == f"sglang/{weights} on NVIDIA")
    assert getattr(shared.products, weights) is None
    assert shared.covariance.constants == (("gap_us",),)
    assert shared.gap_us < 2.5
    assert constant(named(f"h20/sglang/{weights}"), f"products.{weights}.memory") < 0.4


@pytest.mark.parametrize(
    "device", sorted({one.device.id for one in kernel_tables() if "nvfp4" in set(one.facts["weights"])})
)
def test_a_launch_in_nvfp4_is_what_the_smallest_kernels_take(device):
    """Products whose weights are under 4 MB take 6.4 to 11 us in all, so a launch cannot be 1 or 2 us."""
    rows = select(
        [one for one in kernel_tables() if one.device.id == device], op="product", weights="nvfp4", regime="l2"
    )
    small = [one.take((one.facts["n"] * one.facts["k"] * 0.5625 < 4e6).to_numpy()) for one in rows]
    few = np.concatenate([one.seconds[(one.facts["new_tokens"] <= 64).to_numpy()] for one in small])
    launch = constant(named(f"{device}/vllm-0.24/bf16"), "products.fp4.launch_us")
    assert launch == pytest.approx(np.median(few) * 1e6, rel=0.25)


# ---- evidence


@pytest.mark.parametrize("entry", SHIPPED, ids=lambda entry: entry.name)
def test_every_fitted_constant_has_its_evidence(entry):
    """Source, points and residual of each constant that a fit set."""
    rows = {name: row for row in entry.evidence if row.points for name in row.constant.split(", ")}
    assert rows
    assert all(row.source for row in entry.evidence)
    for fields in entry.covariance.constants if entry.covariance else ():
        row = next((rows[field] for field in fields if field in rows), None)
        assert row is not None, fields
        assert row.residual is not None


@pytest.mark.parametrize("entry", SHIPPED, ids=lambda entry: entry.name)
def test_a_difference_from_a_direct_measurement_is_explained(entry):
    """A ceiling more than 10% off what was measured directly says why."""
    for row in entry.evidence:
        if row.direct is not None:
            ratio = constant(entry, row.constant) / row.direct
            assert abs(ratio - 1) < 0.105 or row.note, row.constant


@pytest.mark.parametrize("entry", SHIPPED, ids=lambda entry: entry.name)
def test_no_fraction_is_above_1(entry):
    """Nothing reaches more than its datasheet's peak."""
    found = list(fractions(entry.model_dump(exclude_none=True)))
    assert all(0 < value <= 1 for value in found)


def fractions(data):
    """Yield the fractions of a dump, at any depth."""
    for name, value in data.items():
        if isinstance(value, dict) and name not in ("covariance", "spread"):
            yield from fractions(value)
        elif name in ("compute", "memory", "activation", "sustained") and isinstance(value, float):
            yield value


@pytest.mark.parametrize("value", [1.0001, 1.5, 0.0, -0.5])
def test_a_file_cannot_hold_a_fraction_above_1(value):
    """Nor one that is nought: an entry is refused where it is read."""
    for build in (
        lambda: ProductLaw(compute=value, memory=0.9, launch_us=1),
        lambda: MixtureLaw(compute=0.9, memory=value, launch_us=1),
        lambda: ElementwiseLaw(memory=value, launch_us=1),
    ):
        with pytest.raises(ValidationError, match=r"less than or equal to 1|greater than 0"):
            build()


# ---- one entry for each device, engine and format


def test_keys_are_device_engine_and_format():
    """No device has two entries of one engine and format, and an entry's name says its device and format."""
    keys = [(device.id, entry.engine, entry.format) for device, entry in OWN]
    assert len(set(keys)) == len(keys)
    for device, entry in OWN:
        assert entry.name.startswith(f"{device.id}/")
        assert entry.engine
        assert entry.name == f"{device.id}/{entry.engine}/{entry.format}"


# fmt: off
KEYED = [
    # device     engine           weights   leads
    ("gb10",     "vllm-0.31",     "bf16",   "gb10/vllm-0.31/bf16"),
    ("gb10",     "llama.cpp",     "q4_k",   "gb10/llama.cpp/q4_k"),
    ("gb10",     "llama.cpp",     "q8_0",   "gb10/llama.cpp/q8_0"),
    ("gb10",     "mistral.rs",    "q8_0",   "gb10/mistral.rs/q8_0"),
    ("h200-sxm", "pytorch-2.11",  "bf16",   "h200-sxm/pytorch-2.11/bf16"),
    ("h200-sxm", "llama.cpp",     "bf16",   "h200-sxm/llama.cpp/bf16"),
    ("h200-sxm", "llama.cpp",     "q4_k",   "h200-sxm/llama.cpp/q4_k"),
    ("h200-sxm", None,            "bf16",   "h200-sxm/pytorch-2.11/bf16"),
]
# fmt: on


@pytest.mark.parametrize(("device", "engine", "weights", "leads"), KEYED)
def test_an_engine_and_format_have_their_own_entry(device, engine, weights, leads):
    """What was measured under one engine and format leads there, and nowhere else."""
    laws = resolve_laws(load_device(device), engine, weights, "calibrated")
    assert laws.chain[0].name == leads
    assert laws.tier == "own"


def test_two_engines_on_one_card_are_two_times():
    """On one H200 and on one GB10 the engines differ by more than the error of either."""
    for device, one, other, apart in (
        ("h200-sxm", ("pytorch-2.11", "bf16"), ("llama.cpp", "bf16"), 1.05),
        ("gb10", ("llama.cpp", "q8_0"), ("mistral.rs", "q8_0"), 1.02),
    ):
        times = [
            Deployment("qwen3-8b", device, engine=engine, weights=weights).prefill(2048).time_s
            for engine, weights in (one, other)
        ]
        assert max(times) / min(times) > apart


def test_one_entry_for_all_engines_would_miss():
    """llama.cpp's own rows are met by its entry, and missed by PyTorch's on the same card."""
    (rows,) = [one for one in h200_llama_cpp() if one.facts["weights"].iloc[0] == "bf16"]
    own, other = (
        np.median(
            np.abs(np.log(rows.predicted_s(resolve_laws(rows.device, engine, "bf16", "calibrated")) / rows.seconds))
        )
        for engine in ("llama.cpp", "pytorch-2.11")
    )
    assert own < 0.13
    assert other > 2 * own


def test_a_choice_never_crosses_engines_in_silence():
    """Where another engine's constants are used, the tier says so."""
    card = load_device("gb10")
    fallbacks = [load_generation("blackwell-rtx"), load_generation("universal")]
    for engine in ("llama.cpp", "vllm", "sglang", "mistral.rs"):
        laws = choose(card.efficiency, fallbacks, engine, "bf16")
        same = str(laws.chain[0].engine).split("-", maxsplit=1)[0] == engine
        assert same or "other engine" in laws.tier
