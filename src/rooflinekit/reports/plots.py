"""The figures, by name: each returns a matplotlib ``Figure`` that pyplot does not hold, so nothing has to be closed."""

from rooflinekit.reports.cache_plot import kv_cache_figure
from rooflinekit.reports.curve_plots import batch_curve_figure, prefill_figure
from rooflinekit.reports.drawing import save
from rooflinekit.reports.roofline_plot import roofline_figure
from rooflinekit.reports.serving_plots import budget_figure, levers_figure

__all__ = [
    "batch_curve_figure",
    "budget_figure",
    "kv_cache_figure",
    "levers_figure",
    "prefill_figure",
    "roofline_figure",
    "save",
]
