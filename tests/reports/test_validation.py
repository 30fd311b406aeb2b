# ruff: noqa: E501 - a row of a table is one line
"""What summaries, worst rows, reasons and the page say of predictions, on a frame made by hand."""

import math

import numpy as np
import pandas as pd
import pytest

from rooflinekit.reports import validation as of
from rooflinekit.reports.accuracy_plot import CLASSES, accuracy_figure, accuracy_png, points
from rooflinekit.reports.reasons import REASONS as RULES
from rooflinekit.reports.tables import render


def frame(name, ratios, **facts):
    """Make predictions that are so many times their measured seconds."""
    ratios = np.asarray(ratios, dtype=float)
    text = dict.fromkeys(("device", "engine", "model", "weights", "kv_cache", "op", "regime", "id"), "")
    known = {
        **text,
        "tier": "own",
        "phase": "decode",
        "mixture": False,
        "batch": 1.0,
        "tokens": np.nan,
        "context": 512.0,
        "bound": "memory",
        "log_std": 0.1,
    }
    numbers = {"measured_s": 1.0, "predicted_s": ratios, "floor_s": 0.5, "log_error": np.log(ratios)}
    return pd.DataFrame({"set": name, **known, **numbers, **facts}, index=range(len(ratios)))


STEPS = frame("h200-steps", [1.02, 0.99, 1.01, 0.96], device="h200-sxm", model=["a", "a", "b", "b"])


def test_figures_of_a_part():
    """Errors are predicted / measured - 1: median and 90th percentile of their size, bias with its sign."""
    (line,) = of.summary(STEPS)
    assert (line["set"], line["part"], line["rows"]) == ("h200-steps", "decode", 4)
    assert line["median"] == pytest.approx(0.015)
    assert line["p90"] == pytest.approx(np.quantile([0.02, 0.01, 0.01, 0.04], 0.9))
    assert line["bias"] == pytest.approx(0.0, abs=1e-12)
    assert line["inside"] == 1.0
    assert line["half_width"] == pytest.approx(math.exp(1.2815515655 * 0.1) - 1)


VERDICTS = [
    # ratios                 verdict
    ([1.02, 1.02, 1.02],     "reached"),
    ([1.05, 1.05, 1.05],     "missed: median by 2.0 points"),
    ([1.0, 1.0, 1.0, 1.1],   "missed: p90 by 1.0 points"),
    ([1.04, 1.04, 1.2],      "missed: median by 1.0 points, p90 by 10.8 points"),
]  # fmt: skip


@pytest.mark.parametrize(("ratios", "verdict"), VERDICTS)
def test_verdict_beside_the_target(ratios, verdict):
    """H200 decode steps are to reach 3% / 6%."""
    (line,) = of.summary(frame("h200-steps", ratios))
    assert (line["target"], line["verdict"]) == ("3% / 6%", verdict)


def test_totals_are_judged_one_by_one():
    """Of the GB10 trace every total is to be within 3%."""
    (line,) = of.summary(frame("gb10-trace", [1.0, 1.0, 1.031]))
    assert (line["part"], line["target"], line["verdict"]) == (
        "totals",
        "each within 3%",
        "missed: largest by 0.1 points",
    )


def test_every_target_names_a_set_and_part_that_exists():
    """A target of a set that nobody predicts would be reached by nobody's fault."""
    from rooflinekit.calibration.validate import SETS  # noqa: PLC0415 - the sets load every reference

    assert {name for target in of.TARGETS for name in target.sets} <= set(SETS)
    assert set(of.DEVICES_LEFT_OUT) <= set(SETS)


KERNELS = [
    # op           phase      regime     weights  cache  part
    ("product",   "decode",  "dram",    "bf16",  "",    "BF16 products"),
    ("product",   "prefill", "dram",    "fp8",   "",    "FP8 products"),
    ("product",   "decode",  "l2",      "bf16",  "",    None),
    ("product",   "decode",  "narrow",  "bf16",  "",    None),
    ("mixture",   "decode",  "dram",    "nvfp4", "",    "NVFP4 mixtures"),
    ("attention", "decode",  "dram",    "bf16",  "fp8", "decode attention, FP8 cache"),
    ("attention", "decode",  "compute", "bf16",  "bf16", None),
    ("attention", "prefill", "compute", "bf16",  "bf16", "prefill attention, BF16 cache"),
    ("attention", "prefill", "dram",    "bf16",  "bf16", None),
]  # fmt: skip


@pytest.mark.parametrize("line", KERNELS)
def test_which_kernels_are_judged(line):
    """From memory and of real widths; attention's prefill where it computes."""
    *facts, part = line
    names = ("op", "phase", "regime", "weights", "kv_cache")
    one = frame("kernels-left-out", [1.1], **dict(zip(names, facts, strict=True)))
    assert [line["part"] for line in of.summary(one)] == ([part] if part else [])
    assert of.rows_of(one)[0]["part"] == (part or "not judged")


def test_engines_of_no_other_device_stand_apart():
    """They are shown on a line of their own, without the target."""
    tiers = ["engine", "engine", "no other device"]
    lines = of.summary(frame("streams-left-out", [1.0, 1.1, 2.0], tier=tiers))
    assert [(line["part"], line["rows"], line["target"]) for line in lines] == [
        ("decode, dense", 2, "12% / 30%"),
        ("decode, dense; engine on no other device", 1, ""),
    ]


def test_groups_come_with_the_worst_first():
    """Inside a part, by the median error."""
    lines = of.grouped(STEPS, "model")
    assert [(line["part"], line["model"], line["rows"]) for line in lines] == [("decode", "b", 2), ("decode", "a", 2)]


def test_unknown_facts_are_a_dash():
    """A trace of steps names no engine."""
    assert [line["engine"] for line in of.grouped(STEPS, "engine")] == ["-"]


def test_rows_say_whether_the_floor_is_violated():
    """A measurement below the floor is listed, with its times."""
    two = frame("h200-steps", [1.0, 1.0], floor_s=[0.9, 1.1])
    assert [row["floor"] for row in of.rows_of(two)] == ["kept", "violated"]
    assert [row["floor_s"] for row in of.below_floor(two)] == [1.1]
    assert of.summary(two)[0]["below_floor"] == 1


def test_worst_rows_by_ratio():
    """Half and twice weigh alike; rows of engines without another device are listed apart."""
    rows = frame("streams-left-out", [1.6, 0.5, 3.0, 1.0], tier=["engine", "engine", "no other device", "engine"])
    assert [row["predicted_s"] for row in of.worst(rows, 2)] == [0.5, 1.6]
    assert [row["predicted_s"] for row in of.worst(rows, 2, apart=True)] == [3.0]


REASONS = [
    # facts                                                                         ratio  part of the reason
    ({"set": "h200-steps"},                                                          1.04, "within 5%"),
    ({"engine": "vllm", "device": "b200-sxm", "id": "MR8-0196", "phase": "prefill"}, 0.3,  "fixed cost of about 10 ms"),
    ({"engine": "vllm", "model": "gemma-4-e4b"},                                     0.5,  "heads of 512"),
    ({"engine": "mistral.rs", "weights": "q4_k", "phase": "prefill"},                2.0,  "calls cuBLAS"),
    ({"engine": "mistral.rs", "weights": "bf16", "phase": "prefill"},                2.0,  "not explained"),
    ({"engine": "llama.cpp-cuda", "phase": "prefill", "id": "XJD-1", "tokens": 8192.0}, 2.0, "before flash attention"),
    ({"engine": "llama.cpp-cuda", "phase": "prefill", "device": "l40s"},             2.0,  "power limit"),
    ({"engine": "llama.cpp-cuda", "batch": 4.0},                                     2.0,  "batch 2-8"),
    ({"engine": "llama.cpp-cuda", "batch": 16.0},                                    2.0,  "not explained"),
    ({"op": "attention", "device": "a100-sxm-80gb"},                                 0.2,  "does not split the KV cache"),
    ({"op": "attention", "device": "h100-sxm-80gb", "kv_cache": "fp8"},              0.7,  "half rate on Hopper"),
    ({"op": "product", "device": "gb200", "weights": "bf16"},                        0.7,  "9-19%"),
    ({"op": "product", "device": "b200-sxm"},                                        0.7,  "another kernel"),
]  # fmt: skip


@pytest.mark.parametrize(("facts", "ratio", "why"), REASONS)
def test_reasons(facts, ratio, why):
    """The first rule that a row meets gives its reason."""
    (found,) = of.reasons(frame("streams-left-out", [ratio], **facts))
    assert why in found


def test_every_rule_can_be_asked():
    """Each condition is one of the columns of a frame."""
    for rule in RULES:
        assert len(STEPS.query(rule.where, engine="python")) <= len(STEPS)


def test_coverage_says_what_is_wrong():
    """Groups of twelve rows and more: too narrow, too wide, or in range and yet far wider than the errors."""
    narrow = frame("h200-steps", np.exp(np.linspace(-1, 1, 20)), log_std=0.01)
    wide = frame("h200-steps", np.exp(np.linspace(-0.01, 0.01, 20)), log_std=1.0)
    right = frame("h200-steps", np.exp(np.linspace(-0.1, 0.1, 20)), log_std=0.08 / 1.2815)
    few = frame("h200-steps", [1.0] * 11)
    assert [line["verdict"] for line in of.coverage_groups([narrow, wide, right, few])] == [
        "too narrow",
        "too wide, half-width above 2 x median error",
        "in range",
    ]
    assert of.pooled_coverage([wide, narrow]) == pytest.approx(0.5)


def test_excluded_by_reason():
    """Rows that are left out are counted."""
    table = pd.DataFrame({"excluded": ["server", None, "server", "no model file"]})
    assert of.excluded(table) == [{"reason": "server", "rows": 2}, {"reason": "no model file", "rows": 1}]


def test_shares_for_eyes_stand_under_each_other():
    """Percentages of one column have one width, signed where a sign says something."""
    shown = of.for_eyes(
        [{"median": 0.015, "bias": -0.01}, {"median": 0.25, "bias": 0.0}, {"median": None, "bias": math.nan}]
    )
    assert [row["median"] for row in shown] == [" 1.5%", "25.0%", "    -"]
    assert [row["bias"] for row in shown] == ["-1.0%", "+0.0%", "    -"]


def test_csv_holds_plain_numbers():
    """Programs take shares as fractions."""
    text = render(of.summary(STEPS), "csv")
    assert text.split("\n")[0].startswith("set,part,rows,median,p90,bias,below_floor,inside,half_width,target,verdict")
    assert "%" not in text.split("\n")[1].replace("3% / 6%", "")


def test_the_page_needs_nothing_but_itself():
    """Tables, marked verdicts and the picture in one file; what comes from data is escaped."""
    text = of.html_page("a <title>", [("All", of.summary(STEPS)), ("none", [])], b"\x89PNG")
    assert "<h1>a &lt;title&gt;</h1>" in text
    assert '<td class="reached">reached</td>' in text
    assert '<td class="n">1.5%</td>' in text
    assert "data:image/png;base64,iVBORw==" in text
    assert "http" not in text
    assert "<p>none</p>" in text


def test_the_picture_has_every_pass_once():
    """Both axes in seconds, a colour a class of device, a measurement of two sets once, kernels nowhere."""
    rows = [
        frame("h200-steps", [1.0, 1.1], device="h200-sxm"),
        frame("gb10-llama.cpp", [1.2], device="gb10", id="LCS-0001"),
        frame(
            "streams-left-out",
            [1.3, 0.9],
            device=["gb10", "apple-m2-ultra"],
            id=["LCS-0001", "XJD-0700"],
            phase="prefill",
        ),
        frame("kernels-left-out", [5.0], device="h200-sxm"),
    ]
    drawn = points(rows)
    assert list(drawn["kind"]) == ["data centre GPU", "data centre GPU", "other: GB10, Arc, Gaudi", "Apple"]
    assert set(drawn["kind"]) <= set(CLASSES)
    upper, lower = accuracy_figure(rows).axes
    assert (upper.get_xscale(), upper.get_yscale(), lower.get_ylabel()) == ("log", "log", "measured / predicted")
    assert upper.get_xlim() == upper.get_ylim()


def test_runs_of_steps_are_drawn_as_one_step():
    """A decode run's seconds are divided by its steps; errors stay."""
    from rooflinekit.calibration.references import rate_table  # noqa: PLC0415 - reads the file

    table = rate_table()
    line = table[(table["reading"] == "decode_rate") & (table["output_tokens"] == 512)].iloc[0]
    (row,) = points([frame("streams-left-out", [2.0], device="rtx-3090", id=line["id"])]).to_dict("records")
    assert row["measured_s"] == pytest.approx(1 / 512)
    assert row["predicted_s"] == pytest.approx(2 / 512)


def test_no_picture_of_kernels():
    """Where no whole pass is among the frames there is nothing to draw."""
    assert accuracy_png([frame("kernels-left-out", [1.0])]) == b""
    assert accuracy_png([STEPS.assign(device="h200-sxm")]).startswith(b"\x89PNG")
