"""The formulas of work as functions of numbers: against sums done token by token, and against their limits."""

import itertools

import numpy as np
import pytest

from rooflinekit.operators.attention import attention_flops, attention_scores, query_output_elements, rows_read
from rooflinekit.operators.elementwise import activation_elements, copy_bytes, norm_elements, rotary_elements
from rooflinekit.operators.kv_cache import kv_cache_bytes
from rooflinekit.operators.matmul import matmul_activation_elements, matmul_flops, matmul_weight_bytes
from rooflinekit.operators.moe import distinct_experts

# fmt: off
TABLE = [
    # ours                                                published       tolerance  quantity
    pytest.param(matmul_flops(2048, 4096, 24576),         412e9,          2e-3, id="gate/up FLOPs, 2,048 rows"),
    pytest.param(matmul_flops(1, 4096, 24576),            0.2e9,          1e-2, id="gate/up FLOPs, one row"),
    pytest.param(matmul_weight_bytes(4096, 24576, 2),     201e6,          2e-3, id="gate/up weights"),
    pytest.param(36 * attention_flops(attention_scores(2048, 0), 32, 128, 128), 1.24e12, 3e-3, id="attention, 2,048"),
    pytest.param(2 * norm_elements(2048, 4096),           67e6,           2e-3, id="one fused add and norm"),
    pytest.param(2 * activation_elements(2048, 12288, gated=True), 151e6, 1e-3, id="one SiLU-mul"),
    pytest.param(36 * kv_cache_bytes(2048, 2048, 2),      302e6,          1e-3, id="KV cache at 2,048 tokens"),
    # exact identities
    pytest.param(matmul_flops(3, 5, 7),                   210,            0, id="2 m k n"),
    pytest.param(matmul_activation_elements(3, 5, 7),     36,             0, id="m (k + n)"),
    pytest.param(attention_scores(1, 0),                  1,              0, id="a token sees itself"),
    pytest.param(attention_scores(4, 0),                  10,             0, id="half the square and the diagonal"),
    pytest.param(attention_scores(4, 10),                 50,             0, id="4 x 10 held and the triangle of 4"),
    pytest.param(attention_flops(1, 1, 1, 1),             4,              0, id="two products of two operations"),
    pytest.param(attention_flops(10, 2, 3, 5),            320,            0, id="keys and values of unlike width"),
    pytest.param(rows_read(4, 10),                        14,             0, id="context and new rows"),
    pytest.param(query_output_elements(2, 3, 4, 5),       54,             0, id="queries and outputs"),
    pytest.param(norm_elements(1, 1),                     4,              0, id="two read, two written"),
    pytest.param(rotary_elements(1, 8, 2),                20,             0, id="in place: read and written"),
    pytest.param(activation_elements(1, 8, gated=True),   24,             0, id="gate, up and result"),
    pytest.param(activation_elements(1, 8, gated=False),  16,             0, id="input and result"),
    pytest.param(copy_bytes(2, 3, 2, 1),                  18,             0, id="read at 2 bytes, written at 1"),
    pytest.param(kv_cache_bytes(10, 100, 2, window=64),   1280,           0, id="a window caps the cache"),
]
# fmt: on


@pytest.mark.parametrize(("ours", "published", "tolerance"), TABLE)
def test_published_figures_and_identities(ours, published, tolerance):
    """The formulas give the figures that "Prefill vs. Decode" prints, and small cases counted on paper."""
    assert ours == pytest.approx(published, rel=tolerance, abs=0)


SPANS = [(new, held) for new in (1, 2, 3, 8, 17) for held in (0, 1, 5, 8, 30)]


@pytest.mark.parametrize(("new", "held"), SPANS)
@pytest.mark.parametrize("window", [None, 1, 2, 8, 20, 1000])
def test_scores_equal_the_sum_over_tokens(new, held, window):
    """The closed form is the sum of what each token sees, windowed or not."""
    seen = [held + i if window is None else min(held + i, window) for i in range(1, new + 1)]
    assert attention_scores(new, held, window) == sum(seen)


@pytest.mark.parametrize(("new", "held"), SPANS)
@pytest.mark.parametrize("window", [None, 1, 2, 8, 20, 1000])
def test_rows_equal_the_union_over_tokens(new, held, window):
    """Rows read are those that at least one new token sees, each once."""
    views = (range(0 if window is None else max(held + i - window, 0), held + i) for i in range(1, new + 1))
    assert rows_read(new, held, window) == len({row for view in views for row in view})


@pytest.mark.parametrize("window", [None, 7, 100])
def test_scores_of_chunks_sum_to_the_prompt(window):
    """Any cut of a prompt does the same arithmetic, exactly."""
    cuts = [0, 1, 64, 65, 500, 1000]
    chunks = [attention_scores(stop - start, start, window) for start, stop in itertools.pairwise(cuts)]
    assert sum(chunks) == attention_scores(1000, 0, window)


@pytest.mark.parametrize("window", [None, 100])
def test_formulas_take_arrays(window):
    """A vector of tokens gives the vector of results, the same numbers as one by one."""
    new, held = np.array([1.0, 50.0, 200.0]), np.array([[0.0], [99.0], [300.0]])
    for formula in (attention_scores, rows_read):
        single = [[formula(float(n), float(c), window) for n in new] for c in held[:, 0]]
        assert np.array_equal(formula(new, held, window), single)


EXPERTS = [
    # tokens  experts  per token  expected
    (0,       128,     8,         0.0),
    (1,       128,     8,         8.0),
    (2,       128,     8,         15.5),     # 8 + 8 x (1 - 8/128)
    (1,       8,       8,         8.0),      # every expert is active
    (1e9,     128,     8,         128.0),
]  # fmt: skip


@pytest.mark.parametrize(("tokens", "experts", "active", "expected"), EXPERTS)
def test_distinct_experts(tokens, experts, active, expected):
    """No token touches no expert, one its own, many all of them."""
    assert distinct_experts(tokens, experts, active) == pytest.approx(expected, rel=1e-12)


def test_distinct_experts_agree_with_drawing_them():
    """The expectation is what uniform routing gives, drawn 2,000 times."""
    draw = np.random.default_rng(0)
    seen = [len({e for _ in range(4) for e in draw.choice(16, 2, replace=False)}) for _ in range(2000)]
    assert distinct_experts(4, 16, 2) == pytest.approx(np.mean(seen), rel=0.02)
