"""StepTimer: what a simulator asks a million times is what the deployment says once."""

import pytest

import rooflinekit as rk
from rooflinekit.serving.step_timer import StepTimer

pytestmark = pytest.mark.filterwarnings("ignore::rooflinekit.errors.ContextLengthWarning")
LOADED = float("inf")

# Steps: (chunks of new, held, sampled), decoding sequences, their contexts.
# fmt: off
STEPS = [
    ([(1.0, 0.0, 1.0)],                           0,   []),
    ([(512.0, 0.0, 1.0)],                         3,   [1000, 1000, 1000]),
    ([(512.0, 0.0, 1.0), (100.0, 700.0, 0.0)],    2,   [50, 3000]),
    ([(2000.0, 48.0, 0.0)],                       0,   []),
    ([],                                          1,   [4000]),
    ([],                                          64,  [17 * i for i in range(64)]),
]
# fmt: on

# fmt: off
DEPLOYMENTS = [
    # model                  device       choices                                      parts into sums
    ("llama-3.1-8b",         "h100-sxm",  {},                                          True),
    ("llama-3.1-8b",         "h100-sxm",  {"weights": "fp8", "tensor_parallel": 2},    True),
    ("qwen3-8b",             "gb10",      {},                                          True),
    ("qwen3-30b-a3b",        "h200-sxm",  {},                                          True),
    ("llama-3.3-70b",        "b200-sxm",  {"tensor_parallel": 4, "kv_cache": "fp8"},   True),
    ("deepseek-v3",          "h200-sxm",  {"tensor_parallel": 8},                      False),
    ("qwen3.5-27b",          "h200-sxm",  {},                                          None),
]
# fmt: on


def timer_of(deployment):
    """Make a timer of small steps."""
    return StepTimer(deployment, most_tokens=2048, most_sequences=64, longest_tokens=5000)


@pytest.mark.parametrize(("model", "device", "choices", "parts"), DEPLOYMENTS)
def test_a_step_is_the_deployments_own(model, device, choices, parts):
    """Every step equals `Deployment.step` of a loaded device to 1e-9, parted into sums or not."""
    deployment = rk.Deployment(model, device, memory_check=False, **choices)
    timer = timer_of(deployment)
    assert parts is None or timer.parts is parts
    for chunks, count, contexts in STEPS:
        mean = sum(contexts) / count if count else 0.0
        groups = [rk.Group(new, held, 1, sampled) for new, held, sampled in chunks]
        whole = deployment.step(*groups, *([rk.Group(1, mean, count)] if count else []), busy_s=LOADED).time_s
        ours = timer.seconds(chunks, decoding=count, context_tokens=mean)
        assert ours == pytest.approx(whole, rel=1e-9), (chunks, count)


# fmt: off
MEANS = [
    # contexts                  tolerance
    ([2100, 2900, 3001, 4000],  1e-9),
    ([100, 900, 1001, 4000],    1e-3),  # some are shorter than a tile of the attention kernel, their mean is not
]
# fmt: on


@pytest.mark.parametrize(("contexts", "tolerance"), MEANS)
def test_the_mean_context_stands_for_all(contexts, tolerance):
    """Without windows a decode step of different contexts is that of their mean; a tile leaves a tenth of a percent."""
    deployment = rk.Deployment("llama-3.1-8b", "h100-sxm")
    each = deployment.step(*(rk.Group(1, context) for context in contexts), busy_s=LOADED).time_s
    ours = timer_of(deployment).seconds([], decoding=4, context_tokens=sum(contexts) / 4)
    assert ours == pytest.approx(each, rel=tolerance)


def test_contexts_between_whole_tokens_are_interpolated():
    """A mean of 1,000.5 lies half way; without windows that is exact."""
    deployment = rk.Deployment("llama-3.1-8b", "h100-sxm")
    timer = timer_of(deployment)
    below, mean, above = (timer.seconds([], decoding=8, context_tokens=at) for at in (1000.0, 1000.5, 1001.0))
    assert below < mean < above
    assert mean == pytest.approx(deployment.step(rk.Group(1, 1000.5, 8), busy_s=LOADED).time_s, rel=1e-9)
