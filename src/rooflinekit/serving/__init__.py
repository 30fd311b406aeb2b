"""What a server delivers: dated profiles of engines, and the requests that a GPU's memory holds at once."""

from rooflinekit.serving.capacity import Capacity, capacity
from rooflinekit.serving.engine import EngineProfile, list_engines, load_engine
from rooflinekit.serving.levers import Lever, levers
from rooflinekit.serving.workload import lint_workload

__all__ = [
    "Capacity",
    "EngineProfile",
    "Lever",
    "capacity",
    "levers",
    "lint_workload",
    "list_engines",
    "load_engine",
]
