"""The shipped device files: sound by the linter, and the linter shown to find each mistake."""

import copy
from collections import Counter
from functools import cache
from pathlib import Path

import pytest
import yaml

from rooflinekit.specs.catalog import load_interconnects
from rooflinekit.specs.device import Datasheet, Device, Measured, Pcie, Peaks, ScaleUp
from rooflinekit.testing import lint

DATABASE = Path(__file__).parents[2] / "hardware_db"
PATHS = {
    path.stem: path
    for path in sorted(DATABASE.glob("*/*.yaml"))
    if path.parent.name not in ("generations", "engines", "interconnects")
}
SOURCES = yaml.safe_load((DATABASE / "sources.yaml").read_text(encoding="utf-8"))
#: Keys that the header of sources.yaml names as the origin of aliases, which have no source field of their own.
ALIAS_SOURCES = {"vllm-names", "aic-names", "gb10-smi"}


@cache
def content(name):
    """Return the file as a mapping."""
    return yaml.safe_load(PATHS[name].read_text(encoding="utf-8"))


@cache
def device(name):
    """Return the file as a device."""
    return Device.model_validate(content(name))


def broken(name, where, value):
    """Return a copy of the device with one value replaced, added or (None) taken out; `where` is a path of keys."""
    data = copy.deepcopy(content(name))
    *parents, last = where
    place = data
    for key in parents:
        place = place[key]
    if value is None:
        del place[last]
    else:
        place[last] = value
    return Device.model_validate(data)


@pytest.mark.parametrize("name", PATHS)
def test_every_shipped_device_passes_the_linter(name):
    """A file with a known kind of mistake is not shipped."""
    assert lint.lint_device(device(name), SOURCES, PATHS[name]) == ()


def test_the_database_holds_116_devices_of_seven_vendors():
    """No file is lost, and no two share an id."""
    count = Counter(path.parent.name for path in PATHS.values())
    assert count == {"nvidia": 63, "apple": 22, "amd": 14, "intel": 7, "google": 5, "aws": 4, "generic": 1}
    assert sum(count.values()) == len({device(name).id for name in PATHS}) == 116


def test_two_devices_are_only_announced():
    """Figures that no shipped product has are marked as such."""
    assert {name for name in PATHS if device(name).status == "announced"} == {"rubin-sxm", "mi455x"}


SHEET, PEAKS = ("datasheet",), ("datasheet", "peak_dense_tflops")
# fmt: off
BROKEN = [
    # device, where, value, what the linter says, the mistake
    ("h100-sxm-80gb", (*PEAKS, "bf16"), 1979, "bf16 1979 is not the 989.4", "sparse BF16"),
    ("h100-sxm-80gb", (*PEAKS, "bf16"), 1979, "is it the figure with sparsity", "sparse BF16, the hint"),
    ("rtx-4090", (*PEAKS, "bf16"), 330.3, "bf16 330.3 is not the 165.2", "FP16-accumulate rate as BF16"),
    ("rtx-a6000", (*PEAKS, "bf16"), 38.7, "bf16 38.7 is not the 154.8", "shader rate as BF16"),
    ("a10g", (*PEAKS, "bf16"), 125, "bf16 125 is not the 70.04", "figure of the A10"),
    ("b200-sxm", (*PEAKS, "bf16"), 1125, "bf16 1125 is not the 2249", "one die of two"),
    ("b300-sxm", (*PEAKS, "fp8"), 9000, "fp8 9000 is not the 4499", "sparse, on a figure with an exception"),
    ("h20", (*PEAKS, "bf16"), 296, "bf16 296 is not the 148", "sparse, on a capped card"),
    ("mi100", (*PEAKS, "bf16"), 184.6, "bf16 184.6 is not the 92.28", "BF16 copied from FP16"),
    ("gb300", (*PEAKS, "bf16"), 5000, "bf16 5000 needs a clock of 4124 MHz", "sparse, no clock in the file"),
    ("apple-m4-max", (*PEAKS, "fp16"), 130, "fp16 130 needs a clock of 12695 MHz", "an invented figure"),
    ("gb300", (*PEAKS, "fp8"), 10000, "fp8 10000 is 2 times", "sparse FP8 among dense siblings"),
    ("tpu-v7", (*PEAKS, "bf16"), 4614, "fp8 4614 is 0.5 times", "sparse BF16 among dense siblings"),
    ("trainium2", (*PEAKS, "fp8"), 2563, "fp8 2563 is 1.92 times", "4:1 sparse FP8"),
    ("gb300", (*PEAKS, "int8"), 5000, "int8 5000 is 30.3 times", "INT8 carried over from the B200"),
    ("h200-sxm", (*SHEET, "usable_memory_mib"), 150755, "is above the label of 141 GiB", "decimal MB as MiB"),
    ("h200-sxm", (*SHEET, "usable_memory_mib"), 120000, "is only 83% of 141 GiB", "usable memory of another card"),
    ("h100-sxm-80gb", (*SHEET, "memory_gib"), 85.9, "as decimal GB it would be 80.0 GiB", "label converted"),
    ("mi300x", (*SHEET, "bandwidth_gb_per_s"), 10300, "bandwidth_gb_per_s 10300 is outside 2800 to 5500", "doubled"),
    ("b200-sxm", (*SHEET, "bandwidth_gb_per_s"), 4100, "bandwidth_gb_per_s 4100 is outside", "bandwidth of one die"),
    ("l4", (*SHEET, "memory_gib"), 2400, "memory_gib 2400 is outside 4 to 64", "capacity out of range"),
    ("l4", (*SHEET, "memory_type"), "DDR9", "memory_type DDR9 is not one of", "unknown memory type"),
    ("h100-sxm-80gb", (*SHEET, "scale_up", "both_ways_gb_per_s"), 450, "is not twice 450", "one way as both ways"),
    ("h100-sxm-80gb", (*SHEET, "pcie", "one_way_gb_per_s"), 126, "is not the 63", "PCIe both ways as one way"),
    ("h100-sxm-80gb", (*SHEET, "maximum_mhz"), 1500, "maximum_mhz 1500 is below boost_mhz 1830", "clocks exchanged"),
    ("gb10", ("measured", 0, "value"), 301, "memory_read_gb_per_s 301 is above the 273", "cache effect"),
    ("h100-sxm-80gb", ("measured", 2, "value"), 1071, "gemm_bf16_tflops 1071 is above the 1070", "maximum clock"),
    ("h100-sxm-80gb", ("measured", -1, "value"), 64, "host_to_device_gb_per_s 64 is above the 63", "host link"),
    ("rtx-4090", ("measured", 1, "value"), 180, "gemm_bf16_tflops 180 is above", "above an accepted overclock"),
    ("rtx-4090", ("measured", 1, "ceiling"), True, "the ceiling gemm_bf16_tflops 175.1 is above", "impossible ceiling"),
    ("h100-sxm-80gb", ("measured", 1, "ceiling"), True, "memory_read_gb_per_s has 2 ceilings", "two ceilings"),
    ("gb10", ("measured", 3, "ceiling"), True, "decode_gemv_gb_per_s is marked as a ceiling", "not a ceiling"),
    ("l4", (*SHEET, "sources", "tdp_w"), None, "tdp_w has no source", "number without a source"),
    ("l4", (*SHEET, "sources", "peak_dense_tflops.fp8"), [], "fp8 has no source", "empty source"),
    ("l4", ("sources", "year"), None, "year has no source", "year without a source"),
    ("l4", (*SHEET, "tdp_w"), None, "sources names tdp_w, which the file does not hold", "source left behind"),
    ("l4", ("measured", 0, "source"), [], "measured gemm_fp16_tflops 87 has no source", "measurement without a source"),
    ("l4", (*SHEET, "sources", "tdp_w"), ["dbgup"], "source dbgup is not in sources.yaml", "misspelt key"),
    ("l4", ("id",), "l40", "the file is named l4.yaml, expected l40.yaml", "file copied, not renamed"),
    ("l4", ("vendor",), "AMD", "the file lies in nvidia, expected amd", "wrong vendor folder"),
]
# fmt: on


@pytest.mark.parametrize(("name", "where", "value", "sentence"), [pytest.param(*row[:4], id=row[4]) for row in BROKEN])
def test_a_broken_copy_is_found(name, where, value, sentence):
    """Each check fires on the mistake that its docstring names."""
    assert sentence in "\n".join(lint.lint_device(broken(name, where, value), SOURCES, PATHS[name]))


def test_each_check_is_shown_to_fire():
    """No check is dead: every one finds at least one of the broken copies."""
    copies = [broken(name, where, value) for name, where, value, *_ in BROKEN]
    assert [check.__name__ for check in lint.CHECKS if not any(any(check(one)) for one in copies)] == []


@pytest.mark.parametrize("row", lint.ACCEPTED, ids=lambda row: f"{row.device}-{row.check}-{row.fields[0]}")
def test_each_exception_is_needed(row, monkeypatch):
    """An exception whose figure follows the rule by now is taken out of the table."""
    monkeypatch.setattr(lint, "ACCEPTED", tuple(other for other in lint.ACCEPTED if other != row))
    found = "\n".join(lint.lint_device(device(row.device), SOURCES))
    held = [name for name in row.fields if name in lint.peaks(device(row.device)) or row.check == "measured"]
    assert all(name in found for name in held)


def test_the_formula_gives_the_printed_peaks():
    """Multiprocessors x clock x rate gives the dense figures that vendors print, to the last digit shown."""
    printed = {"a100-sxm-80gb": 311.9, "a40": 149.7, "h100-sxm-80gb": 989.4, "rtx-5090": 209.5, "mi355x": 2516.6}
    for name, peak in printed.items():
        sheet = device(name).datasheet
        rate = lint.RATES[lint.family(device(name))]["bf16"]
        assert sheet.multiprocessors * sheet.boost_mhz * 1e6 * rate / 1e12 == pytest.approx(peak, abs=0.05)


def test_the_ceilings_of_the_two_traced_devices():
    """GB10 keeps the two ceilings of the article, H200 those of the project's own trace."""
    roofs = {
        name: tuple(device(name).ceiling(q).value for q in ("memory_read_gb_per_s", "gemm_bf16_tflops"))
        for name in ("gb10", "h200-sxm")
    }
    assert roofs == {"gb10": (241, 94), "h200-sxm": (4375, 795)}


def in_order(keys, model):
    """Return whether the keys stand as the model declares its fields."""
    order = list(model.model_fields)
    return list(keys) == sorted(keys, key=order.index)


@pytest.mark.parametrize("name", PATHS)
def test_keys_stand_in_the_order_of_the_schema(name):
    """Two device files can be compared line by line."""
    data = content(name)
    sheet = data["datasheet"]
    assert in_order(data, Device)
    assert in_order(sheet, Datasheet)
    assert in_order(sheet.get("peak_dense_tflops", {}), Peaks)
    assert in_order(sheet.get("scale_up", {}), ScaleUp)
    assert in_order(sheet.get("pcie", {}), Pcie)
    assert all(in_order(row, Measured) for row in data.get("measured", []))


def test_every_source_is_described_and_used():
    """A source key has a title, a place and a kind, and no key is left over."""
    assert {tuple(row) for row in SOURCES.values()} <= {
        ("title", "where", "kind"),
        ("title", "where", "commit", "kind"),
    }
    used = {key for name in PATHS for key in lint.source_keys(device(name))}
    used |= {key for link in load_interconnects().values() for _, keys in link.sources for key in keys}
    assert used | ALIAS_SOURCES == set(SOURCES)


def test_generations_are_missing_only_where_there_is_no_chip():
    """Default efficiencies are chosen by generation, so every real device has one."""
    assert {name for name in PATHS if device(name).generation is None} == {"cpu-ddr5-5600-dual"}
