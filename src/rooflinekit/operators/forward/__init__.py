"""A model's forward pass as a Plan, and a Step as its features: the only room of operators that knows specs."""

from rooflinekit.operators.forward.features import features
from rooflinekit.operators.forward.plan import plan

__all__ = ["features", "plan"]
