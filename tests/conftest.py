"""What every test shares: how hypothesis draws, our plugin, and a model small enough to be written."""

import pytest
from hypothesis import HealthCheck, settings

from rooflinekit.testing import plugin

# No deadline: shared machines stall. Derandomised: a change is judged by its own merits, not by the day's draw.
settings.register_profile(
    "suite", deadline=None, derandomize=True, max_examples=60, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("suite")


def pytest_addoption(pluginmanager):
    """Collect *.roofline.yaml files where rooflinekit is on the path but not installed: it has no entry point there."""
    if not pluginmanager.has_plugin("rooflinekit"):
        pluginmanager.register(plugin, "rooflinekit")


@pytest.fixture
def tiny_shapes():
    """Return the tensors of a tied model of one layer: a table of 4 x 8, feed-forward of 16."""
    layer = "model.layers.0."
    return {
        "model.embed_tokens.weight": (4, 8), "model.norm.weight": (8,),
        f"{layer}input_layernorm.weight": (8,), f"{layer}post_attention_layernorm.weight": (8,),
        f"{layer}self_attn.q_proj.weight": (8, 8), f"{layer}self_attn.k_proj.weight": (4, 8),
        f"{layer}self_attn.v_proj.weight": (4, 8), f"{layer}self_attn.o_proj.weight": (8, 8),
        f"{layer}mlp.gate_proj.weight": (16, 8), f"{layer}mlp.up_proj.weight": (16, 8),
        f"{layer}mlp.down_proj.weight": (8, 16),
    }  # fmt: skip
