# ruff: noqa: E501 - a row of a table is one line
"""A file of reference rows: what it may hold, what it refuses, and what each quantity is."""

import math

import pytest

import rooflinekit as rk
from rooflinekit.errors import InvalidInputError, SpecError
from rooflinekit.testing.comparison import compare, relative
from rooflinekit.testing.reference_file import QUANTITIES, Row, load_reference_file

D = rk.Deployment("qwen3-8b", "gb10")
PREFILL = {"prefill": {"prompt_tokens": 512, "cached_tokens": 128, "batch": 2, "busy_s": math.inf}}
REQUEST = {"request": {"prompt_tokens": 64, "output_tokens": 8, "batch": 4}}
CHUNKED = {"chunked_prefill": {"prompt_tokens": 5000, "token_budget": 2048}}
GROUPS = {"groups": [[512, 0, 1], [1, 2048, 32]]}

# fmt: off
TABLE = [
    # quantity                       step       what it is
    ("time_s",                       PREFILL,   lambda: D.prefill(512, cached_tokens=128, batch=2, busy_s=math.inf).time_s),
    ("floor_s",                      CHUNKED,   lambda: D.chunked_prefill(5000, token_budget=2048).floor_s),
    ("flops",                        GROUPS,    lambda: D.step((512, 0, 1), (1, 2048, 32)).flops),
    ("bytes",                        GROUPS,    lambda: D.step((512, 0, 1), (1, 2048, 32)).bytes),
    ("weight_bytes",                 CHUNKED,   lambda: D.chunked_prefill(5000, token_budget=2048).weight_bytes),
    ("kv_bytes",                     GROUPS,    lambda: D.step((512, 0, 1), (1, 2048, 32)).kv_bytes),
    ("bound",                        GROUPS,    lambda: D.step((512, 0, 1), (1, 2048, 32)).bound),
    ("time_to_first_token_s",        REQUEST,   lambda: D.prefill(64, batch=4).time_s),
    ("time_per_output_token_s",      REQUEST,   lambda: D.request(64, output_tokens=8, batch=4).decode.time_s / 7),
    ("end_to_end_s",                 REQUEST,   lambda: D.request(64, output_tokens=8, batch=4).end_to_end_s),
    ("kv_bytes_per_token",           None,      lambda: 147456.0),
    ("decode_ceiling_tokens_per_s",  None,      lambda: D.decode_ceiling_tokens_per_s),
    ("crossover_tokens",             None,      lambda: D.crossover().tokens),
]
# fmt: on


@pytest.mark.parametrize(("quantity", "step", "expected"), TABLE, ids=[row[0] for row in TABLE])
def test_each_quantity(quantity, step, expected):
    """A row asks the deployment what a user would ask it, and passes on exactly that."""
    value = expected()
    tolerance = None if quantity == "bound" else 0
    row = Row.model_validate({"id": "a", "step": step, "quantity": quantity, "measured": value, "tolerance": tolerance})
    found = compare(row, D)
    assert found.within
    assert found.predicted == pytest.approx(value, rel=1e-12) if tolerance == 0 else found.predicted == value


def test_every_quantity_is_tried():
    """The table above holds the whole table of quantities."""
    assert [row[0] for row in TABLE] == list(QUANTITIES)


@pytest.mark.parametrize(("factor", "within"), [(1.0299, True), (1.0301, False), (0.9701, True), (0.9699, False)])
def test_the_tolerance_is_relative_and_has_two_sides(factor, within):
    """3% is 3% of the value in the file, above and below."""
    value = D.decode(2048).time_s / factor
    step = {"decode": {"context_tokens": 2048}}
    row = Row.model_validate({"id": "a", "step": step, "quantity": "time_s", "measured": value, "tolerance": 0.03})
    assert compare(row, D).within is within
    assert compare(row, D).difference == pytest.approx(factor - 1)


def test_differences_from_nought():
    """Nought is met by nought alone, and what is not finite by nothing finite."""
    assert relative(0.0, 0.0) == 0.0
    assert relative(1e-9, 0.0) == math.inf
    assert relative(math.inf, 5.0) == math.inf


STEP = "step: {decode: {context_tokens: 2048}}"
BAD = [
    # row                                                                            part of the line
    (f"{{id: a, {STEP}, quantity: time, measured: 1, tolerance: 0}}", "`quantity` = 'time': expected one of time_s, floor_s"),
    ("{id: a, quantity: time_s, measured: 1, tolerance: 0}", "'time_s' without a `step`: expected a `step` of prefill, decode"),
    (f"{{id: a, {STEP}, quantity: end_to_end_s, measured: 1, tolerance: 0}}", "'end_to_end_s' of `decode`: expected a `step` of request"),
    (f"{{id: a, {STEP}, quantity: crossover_tokens, measured: 1, tolerance: 0}}", "of `decode`: expected no `step`"),
    (f"{{id: a, {STEP}, quantity: time_s, tolerance: 0}}", "a: expected one of the keys `measured` and `predicted`, found none"),
    (f"{{id: a, {STEP}, quantity: time_s, measured: 1, predicted: 1, tolerance: 0}}", "`predicted`, found both"),
    (f"{{id: a, {STEP}, quantity: time_s, measured: 1}}", "a: missing key `tolerance`: add it"),
    (f"{{id: a, {STEP}, quantity: time_s, measured: 74e-3, tolerance: 0}}", "`measured` = '74e-3': expected a plain number"),
    (f"{{id: a, {STEP}, quantity: time_s, measured: -1, tolerance: 0}}", "`measured` = -1.0: expected a plain number, 0 or more"),
    (f"{{id: a, {STEP}, quantity: time_s, measured: yes, tolerance: 0}}", "`rows.0.measured` = True: expected a plain number"),
    (f"{{id: a, {STEP}, quantity: time_s, measured: .inf, tolerance: 0}}", "`rows.0.measured"),
    (f"{{id: a, {STEP}, quantity: bound, measured: 1}}", "`measured` = 1.0: expected compute, memory, communication or"),
    (f"{{id: a, {STEP}, quantity: bound, measured: memory, tolerance: 0}}", "and no `tolerance`"),
    ("{id: a, step: {}, quantity: time_s, measured: 1, tolerance: 0}", "expected one of prefill, decode, chunked_prefill, request, groups, found none"),
    ("{id: a, step: {groups: []}, quantity: time_s, measured: 1, tolerance: 0}", "`rows.0.step.groups` = []"),
    ("{id: a, step: {groups: [[1, 2]]}, quantity: time_s, measured: 1, tolerance: 0}", "missing key `rows.0.step.groups.0.2`"),
    (f"{{id: a, {STEP}, quantity: time_s, measured: 1, tolerance: 3%}}", "`rows.0.tolerance` = '3%': expected a plain number"),
    (f"{{id: '', {STEP}, quantity: time_s, measured: 1, tolerance: 0}}", "`rows.0.id` = ''"),
]  # fmt: skip


@pytest.mark.parametrize(("row", "part"), BAD, ids=[part for _, part in BAD])
def test_bad_rows(tmp_path, row, part):
    """Each fault is one line that names the file and what is wrong with which key."""
    path = tmp_path / "bad.roofline.yaml"
    path.write_text(f"model: qwen3-8b\ndevice: gb10\nrows:\n- {row}\n")
    with pytest.raises(SpecError) as caught:
        load_reference_file(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert part in str(caught.value)
    assert "\n" not in str(caught.value)


def test_ids_differ(tmp_path):
    """Two tests of one name could not be told apart."""
    path = tmp_path / "bad.roofline.yaml"
    row = "{id: kv, quantity: kv_bytes_per_token, measured: 1, tolerance: 0}"
    path.write_text(f"model: qwen3-8b\ndevice: gb10\nrows:\n- {row}\n- {row}\n")
    with pytest.raises(SpecError, match="`rows` holds the id 'kv' twice"):
        load_reference_file(path)
    path.write_text("model: qwen3-8b\ndevice: gb10\nrows: []\n")
    with pytest.raises(SpecError, match=r"`rows` = \[\]"):
        load_reference_file(path)


def test_paths_start_at_the_file(tmp_path, monkeypatch):
    """A model and a device of one's own lie beside the file, wherever pytest is run from."""
    (tmp_path / "plans").mkdir()
    (tmp_path / "card.yaml").write_text("bandwidth_gb_per_s: 2000\n")
    (tmp_path / "plans" / "lump.yaml").write_text(
        "summary: {parameters: 8.0e+9, layers: 32, kv_heads: 8, head_dim: 128}\n"
    )
    path = tmp_path / "plans" / "lump.roofline.yaml"
    path.write_text(
        "model: lump.yaml\ndevice: ../card.yaml\n"
        "rows: [{id: a, quantity: decode_ceiling_tokens_per_s, measured: 125, tolerance: 0.001}]\n"
    )
    monkeypatch.chdir("/")
    whole, deployment = load_reference_file(path)
    assert compare(whole.rows[0], deployment).within


def test_inline_mappings_and_settings(tmp_path):
    """Model and device may be written out, and settings are those of Deployment."""
    path = tmp_path / "lump.roofline.yaml"
    path.write_text(
        "model: {summary: {parameters: 8.0e+9, layers: 32, kv_heads: 8, head_dim: 128}}\n"
        "device: {bandwidth_gb_per_s: 2000}\nsettings: {weights: fp8, routing_skew: 0}\n"
        "rows: [{id: a, quantity: decode_ceiling_tokens_per_s, measured: 250, tolerance: 0.001}]\n"
    )
    whole, deployment = load_reference_file(path)
    assert deployment.weights == "fp8"
    assert compare(whole.rows[0], deployment).within


def test_a_layout_and_its_link_are_read(tmp_path):
    """Every degree, the imbalance of experts and the link reach the deployment; half the weights are on each card."""
    path = tmp_path / "pair.roofline.yaml"
    path.write_text(
        "model: qwen3-30b-a3b\ndevice: h200-sxm\nsettings: {tensor_parallel: 2, pipeline_parallel: 2, "
        "expert_parallel: 4, data_parallel_attention: 2, expert_imbalance: 1.5, interconnect: {one_way_gb_per_s: 25}}\n"
        "rows: [{id: a, step: {decode: {context_tokens: 0}}, quantity: bound, predicted: communication}]\n"
    )
    _, deployment = load_reference_file(path)
    assert deployment.layout.layout == "DP2 TP2 PP2 EP4"
    assert deployment.layout.expert_imbalance == 1.5
    assert deployment.links.inside.one_way_gb_per_s == 25


def test_a_wrong_layout_is_told_in_one_line(tmp_path):
    """The file, the degree and what would work."""
    path = tmp_path / "odd.roofline.yaml"
    path.write_text(
        "model: qwen3-8b\ndevice: h200-sxm\nsettings: {tensor_parallel: 3}\n"
        "rows: [{id: a, quantity: kv_bytes_per_token, measured: 1, tolerance: 0}]\n"
    )
    with pytest.raises(SpecError, match=r"odd\.roofline\.yaml: TP3 of qwen3-8b: .*does not divide") as told:
        load_reference_file(path)
    assert "\n" not in str(told.value)


def test_the_name_says_what_it_is(tmp_path):
    """Another ending would not be collected, so it is refused here too."""
    with pytest.raises(InvalidInputError, match=r"plan\.yaml: expected a name that ends in \.roofline\.yaml"):
        load_reference_file(tmp_path / "plan.yaml")
