"""The plan: how operators merge into rows, and how their coefficients become work."""

import pytest

from rooflinekit.operators.cost import ONE, TOKENS, Feature, Operator, assemble


def operator(name, flops, times=1, part="", dtype="bf16"):
    """Operator with so many FLOPs a token and one launch."""
    return Operator(name, "product", dtype, {"launches": {ONE: 1.0}, "flops": {TOKENS: flops}}, times, part)


def test_identical_operators_add_their_launches_and_work():
    """Two layers of one shape are one row with the coefficients of both."""
    plan = assemble([operator("a", 3.0, 2), operator("a", 3.0, 5)])
    assert len(plan.rows) == 1
    assert plan.launches[0, plan.column(ONE)] == 7
    assert plan.flops[0, plan.column(TOKENS)] == 21


def test_operators_of_another_shape_or_dtype_stay_apart():
    """A different coefficient or dtype makes a row of its own, named after its part."""
    plan = assemble([operator("a", 3.0, part="x"), operator("a", 4.0, part="y"), operator("b", 3.0, part="x")])
    assert [row.name for row in plan.rows] == ["a[x]", "a[y]", "b"]
    assert len(assemble([operator("a", 3.0), operator("a", 3.0, part="z", dtype="fp8")]).rows) == 2


def test_bytes_are_the_sum_of_their_kinds():
    """Weights, activations and KV add up."""
    work = {"weight_bytes": {ONE: 5.0}, "activation_bytes": {TOKENS: 7.0}, "kv_bytes": {TOKENS: 11.0}}
    plan = assemble([Operator("a", "product", "bf16", work)])
    assert plan.bytes.tolist() == [[5.0, 18.0, 0.0]]  # sequences are always a feature


@pytest.mark.parametrize(
    ("feature", "said"),
    [
        (ONE, "pass"),
        (Feature("scores", window=4096), "scores[window 4,096]"),
        (Feature("experts", detail=(128.0, 8.0, 0.0)), "distinct experts[8 of 128 a token]"),
    ],
)
def test_features_say_what_they_are(feature, said):
    """A feature's name is what explain() prints."""
    assert str(feature) == said
