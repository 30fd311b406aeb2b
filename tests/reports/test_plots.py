"""The figures show what the library computes: structure, values, and labels that do not cover each other."""

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from matplotlib import pyplot as plt
from matplotlib.text import Annotation, Text

import rooflinekit as rk
from rooflinekit import units
from rooflinekit.phases.batch import doubling_batch
from rooflinekit.reports.plots import batch_curve_figure, kv_cache_figure, prefill_figure, roofline_figure, save

PAIRS = [
    ("qwen3-8b", "gb10", {}),
    ("llama-3.1-8b", "h200-sxm", {}),
    ("qwen3-8b", "rtx-4090", {}),
    ("qwen3-8b", "apple-m4-max", {}),
    ("qwen3-8b", "t4", {}),
    ("llama-3.1-8b", "b300-sxm", {"weights": "fp8"}),
    ("gpt2", "rtx-4090", {}),
    ("gemma-3-27b", "mi300x", {}),
    ("deepseek-v3", "h200-sxm", {"memory_check": False}),
    ("qwen3-30b-a3b", "h200-sxm", {}),
    ("gpt-oss-120b", "h200-sxm", {}),
    ("qwen3-next-80b-a3b", "h200-sxm", {"memory_check": False}),
    ("nemotron-3-nano-30b-a3b", "h200-sxm", {}),
]
BATCHES = [1, 2, 4, 8, 16, 32, 64, 128]
PROMPTS = [16, 64, 256, 1024]


@pytest.fixture(autouse=True)
def _nothing_leaks():
    """Check that no figure is left behind in pyplot."""
    yield
    assert plt.get_fignums() == []


@pytest.fixture(scope="module")
def gb10():
    """Return the deployment of the trace."""
    return rk.Deployment("qwen3-8b", "gb10")


def legend_texts(figure):
    """Return what the legend says, unwrapped."""
    return [" ".join(text.get_text().split()) for text in figure.legends[0].get_texts()]


def annotations(figure):
    """Return every label placed inside the axes."""
    return [child for axes in figure.axes for child in axes.get_children() if isinstance(child, Annotation)]


def written(figure):
    """Map every visible text to the pixels of its words: titles, axis labels, ticks, labels of points, legend."""
    figure.draw_without_rendering()
    texts = [*figure.texts, *figure.legends[0].get_texts(), *([figure._suptitle] if figure._suptitle else [])]
    for axes in figure.axes:
        texts += [axes.xaxis.label, axes.yaxis.label, axes.title, axes._left_title, *annotations(figure)]
        low, high = axes.get_ylim()
        texts += [tick.label1 for tick in axes.yaxis.get_major_ticks() if low <= tick.get_loc() <= high]
    shown = {id(text): text for text in texts if text.get_text() and text.get_visible()}
    return {text: Text.get_window_extent(text) for text in shown.values()}  # an annotation's own holds its line too


def assert_legible(figure):
    """Check that no text covers another or leaves the figure."""
    boxes = written(figure)
    for (one, first), (other, second) in combinations(boxes.items(), 2):
        assert not first.padded(-0.5).overlaps(second.padded(-0.5)), (one.get_text(), other.get_text())
    for text, box in boxes.items():
        assert figure.bbox.x0 <= box.x0, text.get_text()
        assert box.x1 <= figure.bbox.x1 + 1, text.get_text()
        assert figure.bbox.y0 <= box.y0, text.get_text()
        assert box.y1 <= figure.bbox.y1 + 1, text.get_text()


def assert_clear(figure):
    """Check that labels cover no point and no roof, and that no line of one runs through another."""
    figure.draw_without_rendering()
    (axes,) = figure.axes
    boxes = {note: Text.get_window_extent(note) for note in annotations(figure)}
    roofs = [np.column_stack(line.get_data()) for line in axes.lines]
    at = axes.transData.transform(np.concatenate([*points(axes), *roofs]))
    for note, box in boxes.items():
        assert not box.count_contains(at), note.get_text()
        side = box.x0 if note.get_horizontalalignment() == "left" else box.x1
        line = np.linspace(axes.transData.transform(note.xy), (side, 0.5 * (box.y0 + box.y1)), 100)
        crossed = [other.get_text() for other in boxes if other is not note and boxes[other].count_contains(line)]
        assert crossed == [], note.get_text()


def points(axes):
    """Return the coordinates of each scatter."""
    return [collection.get_offsets() for collection in axes.collections]


# ---- roofline


def test_roofline_names_both_roofs_with_their_figures(gb10):
    """Datasheet and measured ceilings are drawn at their values and named with them."""
    figure = roofline_figure(gb10.prefill(2048), gb10.decode(2048))
    said = legend_texts(figure)
    assert said[0] == "datasheet roof: 125 TFLOP/s (bf16), 273 GB/s, ridge at 458 FLOP/byte"
    assert said[1] == "measured roof: 94.0 TFLOP/s (bf16), 241 GB/s, ridge at 390 FLOP/byte"
    for line, flops_per_s, bytes_per_s in zip(figure.axes[0].lines, (125e12, 94e12), (273e9, 241e9), strict=True):
        x, y = line.get_data()
        assert y == pytest.approx(np.minimum(flops_per_s, x * bytes_per_s))


def test_roofline_axes_carry_units(gb10):
    """Both axes are logarithmic and say their unit."""
    (axes,) = roofline_figure(gb10.decode(2048)).axes
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    assert axes.get_xlabel() == "arithmetic intensity [FLOP/byte]"
    assert axes.get_ylabel() == "rate reached [FLOP/s]"


def test_roofline_has_one_point_for_each_operator_with_flops(gb10):
    """Points lie at (intensity, FLOPs over time); kernels without FLOPs are summed in the legend."""
    passes = (gb10.prefill(2048), gb10.decode(2048))
    figure = roofline_figure(*passes)
    for estimate, drawn, said in zip(passes, points(figure.axes[0]), legend_texts(figure)[-2:], strict=True):
        working = [row for row in estimate.operators if row.flops]
        expected = sorted((row.intensity, row.flops / row.time_s) for row in working)
        assert np.array(sorted(map(tuple, drawn))) == pytest.approx(np.array(expected))
        rest = sum(row.time_s for row in estimate.operators if not row.flops) / estimate.time_s
        assert f"not drawn: {rest:.1%} without FLOPs (" in said
        assert units.duration(estimate.time_s) in said


def test_point_area_is_proportional_to_the_share_of_time(gb10):
    """Twice the time, twice the area."""
    step = gb10.decode(2048)
    (collection,) = roofline_figure(step).axes[0].collections
    largest, second = sorted((row.time_s for row in step.operators if row.flops), reverse=True)[:2]
    assert collection.get_sizes()[0] / collection.get_sizes()[1] == pytest.approx(largest / second)


@pytest.mark.parametrize(("model", "device", "choices"), PAIRS)
def test_roofline_is_legible(model, device, choices):
    """Labels of the largest points cover neither each other nor anything else, on devices of every kind."""
    deployment = rk.Deployment(model, device, **choices)
    figure = roofline_figure(deployment.prefill(900), deployment.decode(900))
    assert len(annotations(figure)) >= 6
    assert_legible(figure)
    assert_clear(figure)


def test_labels_stay_apart_for_three_passes():
    """A third pass finds its place too."""
    deployment = rk.Deployment("qwen3-32b", "mi300x")
    request = deployment.request(100, output_tokens=50)
    figure = roofline_figure(deployment.prefill(512), deployment.decode(1024, batch=64), request.decode)
    assert_legible(figure)
    assert_clear(figure)


def test_long_names_are_wrapped_in_the_legend(gb10):
    """A pass with a name longer than the figure is wide keeps all its words."""
    name = "a chunk of the prompt beside decoding sequences, as a scheduler with a budget of 2,048 tokens mixes them"
    figure = roofline_figure(gb10.step((512, 0, 1), (1, 2048, 32), label=name))
    assert legend_texts(figure)[-1].startswith(name)
    assert_legible(figure)


def test_a_device_with_one_ceiling_shows_that_one():
    """Without a measured rate the measured roof is a slope that ends at the datasheet's, and says what is missing."""
    figure = roofline_figure(rk.Deployment("qwen3-8b", "rtx-4090").decode(2048))
    device = rk.load_device("rtx-4090")
    (read,) = [row for row in device.measured if row.ceiling]
    assert read.quantity == "memory_read_gb_per_s"
    assert legend_texts(figure)[1] == f"measured roof: {read.value:g} GB/s, no bf16 rate marked"
    x, y = figure.axes[0].lines[1].get_data()
    shown = np.isfinite(y)
    assert y[shown] == pytest.approx(x[shown] * read.value * units.GIGA)
    assert y[shown].max() <= device.flops_per_s["bf16"]


def test_a_device_without_ceilings_has_one_roof():
    """Nothing measured, nothing drawn."""
    figure = roofline_figure(rk.Deployment("qwen3-8b", "t4").decode(2048))
    assert [text.split(":")[0] for text in legend_texts(figure)][:2] == [
        "datasheet roof",
        "decode at 2,048 tokens of context",
    ]


def test_two_dtypes_have_a_roof_each():
    """FP8 products and BF16 attention lie under roofs of their own."""
    figure = roofline_figure(rk.Deployment("llama-3.1-8b", "b300-sxm", weights="fp8").prefill(2048))
    kinds = [text.split(":")[0] + text.split("(")[1][:4] for text in legend_texts(figure)[:4]]
    assert kinds == ["datasheet rooffp8)", "measured rooffp8)", "datasheet roofbf16", "measured roofbf16"]
    assert len({line.get_color() for line in figure.axes[0].lines}) == 2


def test_roofline_refuses_what_it_cannot_place(gb10):
    """Sweeps, two devices and no pass at all are errors that say so."""
    with pytest.raises(rk.InvalidInputError, match="one device: got estimates of none"):
        roofline_figure()
    with pytest.raises(rk.InvalidInputError, match="one device: got estimates of gb10, h200-sxm"):
        roofline_figure(gb10.decode(1), gb10.with_(device="h200-sxm").decode(1))
    with pytest.raises(rk.InvalidInputError, match="takes single points"):
        roofline_figure(gb10.decode([1, 2]))
    with pytest.raises(rk.InvalidInputError, match="takes single points"):
        roofline_figure(gb10.request(8, output_tokens=1).decode)


# ---- batch curve


def test_batch_curve_draws_the_table(gb10):
    """Three panels share their batches and show the columns of `batch_curve`."""
    figure = batch_curve_figure([gb10], 2048, BATCHES)
    table = gb10.batch_curve(2048, BATCHES)
    labels = ["step time [ms]", "rate of one user [token/s]", "rate of all users [token/s]"]
    assert [axes.get_ylabel() for axes in figure.axes] == labels
    assert {axes.get_xlabel() for axes in figure.axes} == {"batch [sequences]"}
    expected = (1e3 * table["step_s"], table["tokens_per_s_per_user"], table["tokens_per_s"])
    for axes, values in zip(figure.axes, expected, strict=True):
        assert axes.lines[0].get_xdata() == pytest.approx(BATCHES)
        assert axes.lines[0].get_ydata() == pytest.approx(values.to_numpy())


def test_the_bend_is_where_the_step_has_doubled(gb10):
    """The star lies at `doubling_batch`, at twice the time of one sequence, and the legend says both."""
    figure = batch_curve_figure([gb10], 2048, BATCHES)
    bend = doubling_batch(gb10, 2048)
    for axes, value in zip(figure.axes, (2e3 * gb10.decode(2048).time_s, None, None), strict=True):
        (star,) = [line for line in axes.lines if line.get_marker() == "*"]
        assert star.get_xdata() == pytest.approx([bend])
        if value:
            assert star.get_ydata() == pytest.approx([value])
    assert legend_texts(figure) == [
        f"gb10 ({gb10.timing.laws.basis}): bend at batch {bend:.0f}",
        "bend: the batch whose step takes twice as long as that of one sequence",
    ]


def test_a_bend_out_of_view_is_said_not_drawn(gb10):
    """The star is left out, its batch stays in the legend."""
    figure = batch_curve_figure([gb10], 2048, [1, 2, 4])
    assert all(line.get_marker() != "*" or not len(line.get_xdata()) for line in figure.axes[0].lines)
    assert legend_texts(figure)[0].endswith(", not in view")
    assert len(legend_texts(figure)) == 1


def test_points_beyond_the_memory_are_hollow():
    """Batches that do not fit are drawn, hollow, and the legend says why."""
    deployment = rk.Deployment("qwen3-8b", "rtx-4090")
    fits = deployment.batch_curve(2048, BATCHES)["fits"].to_numpy(bool)
    figure = batch_curve_figure([deployment], 2048, BATCHES)
    full, hollow = figure.axes[0].lines[1:3]
    assert full.get_xdata() == pytest.approx(np.array(BATCHES)[fits])
    assert hollow.get_xdata() == pytest.approx(np.array(BATCHES)[~fits])
    assert hollow.get_markerfacecolor() == "white"
    assert 0 < fits.sum() < len(fits)
    assert legend_texts(figure)[-1] == "hollow: weights and KV cache exceed the memory"


def test_batch_curves_of_several_deployments_are_legible(gb10):
    """Lines differ in colour and marker, and every text has room."""
    deployments = [gb10.with_(device=device) for device in ("gb10", "h200-sxm", "rtx-4090", "apple-m4-max", "t4")]
    figure = batch_curve_figure(deployments, 2048, BATCHES)
    assert len({line.get_color() for line in figure.axes[0].lines}) == 5
    assert_legible(figure)


def test_lines_are_named_by_what_differs(gb10):
    """Devices, or models too, or the whole deployment."""
    other = rk.Deployment("llama-3.1-8b", "gb10")
    assert legend_texts(batch_curve_figure([gb10, other], 128, [1, 2]))[1].startswith("llama-3.1-8b on gb10 (")
    said = legend_texts(batch_curve_figure([gb10, gb10.with_(weights="fp8")], 128, [1, 2]))
    assert said[1].startswith("qwen3-8b on gb10: fp8 weights, bf16 KV")


def test_batch_curve_needs_one_to_seven_deployments(gb10):
    """No deployment and too many are errors."""
    for count in (0, 8):
        with pytest.raises(rk.InvalidInputError, match=f"{count} deployments: expected 1 to 7"):
            batch_curve_figure([gb10] * count, 128, [1, 2])


def test_the_bend_exists_where_compute_never_overtakes_memory(gb10):
    """A long context keeps a step memory-bound at any batch; its time doubles all the same."""
    assert gb10.compute_bound_batch(32_000) == np.inf
    bend = doubling_batch(gb10, 32_000)
    free = gb10.with_(memory_check=False)
    assert free.decode(32_000, batch=bend).time_s == pytest.approx(2 * free.decode(32_000).time_s)


# ---- prefill


@pytest.mark.parametrize("efficiency", ["calibrated", "measured", "datasheet"])
def test_prefill_marks_the_crossover_of_the_library(gb10, efficiency):
    """The vertical line, its label and the legend hold `crossover()`, with the peaks it was found under."""
    deployment = gb10.with_(efficiency=efficiency)
    found = deployment.crossover()
    figure = prefill_figure(deployment, PROMPTS)
    (axes,) = figure.axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("prompt [token]", "prefill time [ms]")
    (upright,) = [line for line in axes.lines if line.get_linestyle() == ":"]
    assert upright.get_xdata() == pytest.approx([found.tokens] * 2)
    assert [note.get_text() for note in annotations(figure)] == [f"crossover {found.tokens:,.0f}"]
    closed = f"{found.closed_form_tokens:,.0f} (circle) without activations; {found.peaks}"
    assert legend_texts(figure)[-1] == f"crossover at {found.tokens:,.0f} tokens; {closed}"


def test_prefill_lies_above_both_its_lines(gb10):
    """Floor and asymptote bound the curve from below and meet at the closed form of the crossover."""
    figure = prefill_figure(gb10, PROMPTS)
    curve, _, _, floor, slope = figure.axes[0].lines[:5]
    assert curve.get_ydata() == pytest.approx(1e3 * np.array(gb10.prefill(PROMPTS).time_s))
    low, each = floor.get_ydata()[0], slope.get_ydata()[0] / slope.get_xdata()[0]
    assert np.all(curve.get_ydata() > np.maximum(low, each * curve.get_xdata()))
    assert low / each == pytest.approx(gb10.crossover().closed_form_tokens)


def test_prefill_without_a_crossover_says_why():
    """A device that computes faster than any token's bytes arrive has no crossover: the reason stands in the legend."""
    device = {"bandwidth_gb_per_s": 10, "memory_gib": 100, "peak_dense_tflops": {"bf16": 1000}}
    figure = prefill_figure(rk.Deployment("qwen3-8b", device, efficiency="datasheet"), PROMPTS)
    assert annotations(figure) == []
    assert legend_texts(figure)[-1].startswith("no crossover: each token moves more bytes")


@pytest.mark.parametrize(("model", "device", "choices"), PAIRS)
def test_prefill_is_legible(model, device, choices):
    """Every text has room on devices of every kind."""
    assert_legible(prefill_figure(rk.Deployment(model, device, **choices), PROMPTS))


def test_prompts_beyond_the_memory_are_hollow():
    """A prompt whose K and V do not fit is drawn, hollow."""
    figure = prefill_figure(rk.Deployment("qwen3-8b", "t4"), [1024, 16384])
    assert figure.axes[0].lines[2].get_xdata() == pytest.approx([16384])
    assert "hollow: weights and KV cache exceed the memory" in legend_texts(figure)


def test_prefill_refuses_an_empty_prompt(gb10):
    """A length of zero is an error that names it."""
    with pytest.raises(rk.InvalidInputError, match="prompt_tokens"):
        prefill_figure(gb10, [0, 16])


# ---- saving


@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf", ".PNG"])
def test_save_writes_what_the_suffix_says(gb10, tmp_path, suffix):
    """Three formats, by suffix."""
    path = save(prefill_figure(gb10, PROMPTS), tmp_path / f"prefill{suffix}")
    assert path.stat().st_size > 5000


def test_save_refuses_an_unknown_suffix(gb10, tmp_path):
    """One error that names the file and the choices; nothing is written."""
    figure = prefill_figure(gb10, PROMPTS)
    for name, found in (("a.xls", "'.xls'"), ("a", "''")):
        with pytest.raises(
            rk.InvalidInputError, match=rf"cannot draw {found}: expected a name ending in .png, .svg, .pdf"
        ):
            save(figure, tmp_path / name)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(rk.InvalidInputError, match="there is no folder"):
        save(figure, Path("nowhere") / "a.png")


def test_a_device_without_an_arithmetic_peak_is_a_clear_error():
    """Figures need times: the missing peak is named."""
    bare = rk.Deployment("qwen3-8b", {"bandwidth_gb_per_s": 90, "memory_gib": 64})
    for draw in (
        lambda: roofline_figure(bare.decode(128)),
        lambda: batch_curve_figure([bare], 128, [1, 2]),
        lambda: prefill_figure(bare, PROMPTS),
    ):
        with pytest.raises(rk.MissingFigureError, match="no datasheet peak for bf16"):
            draw()


# ---- what a sequence holds

FAMILIES = (
    *("llama-3.1-70b", "qwen3-8b", "gemma-3-27b", "deepseek-v3", "gpt-oss-120b", "qwen3-next-80b-a3b"),
    *("nemotron-3-nano-30b-a3b", "mamba-codestral-7b"),
)
LENGTHS = [256, 1024, 8192, 131_072]


def test_cache_lines_hold_what_sequences_hold():
    """Each line is the KV cache and the states of its model, at each length."""
    (axes,) = kv_cache_figure(FAMILIES, LENGTHS).axes
    for line, name in zip(axes.lines, FAMILIES, strict=True):
        ours = rk.Deployment(name, "h200-sxm", memory_check=False)
        assert line.get_xdata() == pytest.approx(LENGTHS)
        assert line.get_ydata() == pytest.approx([ours.kv_cache_bytes(tokens) for tokens in LENGTHS])


def test_cache_axes_carry_units():
    """Both axes are logarithmic, ticks count in binary prefixes."""
    figure = kv_cache_figure(FAMILIES, LENGTHS)
    (axes,) = figure.axes
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    assert axes.get_ylabel() == "KV cache and states of one sequence [byte]"
    assert "1.00 GiB" in [tick.label1.get_text() for tick in axes.yaxis.get_major_ticks()]


def test_no_two_cache_lines_look_alike():
    """Colour and dashes together tell them apart, and each name has the colour of its line."""
    (axes,) = kv_cache_figure(rk.list_models()[:14], LENGTHS).axes
    looks = [(line.get_color(), str(line._unscaled_dash_pattern)) for line in axes.lines]
    assert len(set(looks)) == 14
    assert {note.get_color() for note in annotations(axes.figure)} == {colour for colour, _ in looks}


@pytest.mark.parametrize("models", [FAMILIES, ("qwen3-8b",), ("deepseek-v3", "deepseek-r1", "deepseek-v2.5", "glm-5")])
def test_cache_names_are_legible(models):
    """Names at the ends of lines keep apart, in the order of the lines, also where lines lie on each other."""
    figure = kv_cache_figure(models, LENGTHS)
    figure.draw_without_rendering()
    boxes = [Text.get_window_extent(note) for note in annotations(figure)]
    assert len(boxes) == len(models)
    for one, other in combinations(boxes, 2):
        assert not one.padded(-0.5).overlaps(other.padded(-0.5))
    for box in boxes:
        assert figure.bbox.x0 <= box.x0 < box.x1 <= figure.bbox.x1 + 1
        assert figure.bbox.y0 <= box.y0 < box.y1 <= figure.bbox.y1 + 1
    ends = [note.xy[1] for note in annotations(figure)]
    assert ends == sorted(ends)
    assert [box.y0 for box in boxes] == sorted(box.y0 for box in boxes)


@pytest.mark.parametrize("models", [(), ["qwen3-8b"] * 15])
def test_cache_lines_are_few(models):
    """None, or more than their labels have room, is an error."""
    with pytest.raises(rk.InvalidInputError, match="models: expected 1 to 14"):
        kv_cache_figure(models, LENGTHS)


def test_cache_needs_lengths_above_zero():
    """A logarithmic axis has no zero."""
    with pytest.raises(rk.InvalidInputError, match="tokens"):
        kv_cache_figure(["qwen3-8b"], [0, 1024])
