"""What a server delivers: dated profiles of engines, and the requests that a GPU's memory holds at once."""

from rooflinekit.serving.budget import ledger
from rooflinekit.serving.capacity import Capacity, capacity
from rooflinekit.serving.embedding import embed
from rooflinekit.serving.engine import EngineProfile, list_engines, load_engine
from rooflinekit.serving.room import Lever, more_room
from rooflinekit.serving.workload import lint_workload

__all__ = [
    "Capacity",
    "EngineProfile",
    "Lever",
    "capacity",
    "embed",
    "ledger",
    "lint_workload",
    "list_engines",
    "load_engine",
    "more_room",
]
