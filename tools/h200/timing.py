"""How anything is timed: replays of a CUDA graph, over random numbers."""

import gc
import statistics
from collections.abc import Callable

import torch

BF16, FP8 = torch.bfloat16, torch.float8_e4m3fn
DEVICE = "cuda"


def noise(*shape: int, scale: float = 1.0, dtype: torch.dtype = BF16) -> torch.Tensor:
    """Return random normal numbers; never zeros, which run faster."""
    made = torch.empty(shape, dtype=BF16, device=DEVICE).normal_(0.0, scale)
    return made if dtype == BF16 else made.to(dtype)


def capture(work: Callable[[], object]) -> torch.cuda.CUDAGraph:
    """Call the work twice, then record it as a graph."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            work()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph


def replay(graph: torch.cuda.CUDAGraph, times: int, calls: int = 1) -> tuple[float, float, float]:
    """Return the median, best and worst time of one call, over replays without a pause. [s]"""
    for _ in range(2):
        graph.replay()
    events = [torch.cuda.Event(enable_timing=True) for _ in range(2 * times)]
    for start, end in zip(events[::2], events[1::2], strict=True):
        start.record()
        graph.replay()
        end.record()
    torch.cuda.synchronize()
    taken = [start.elapsed_time(end) / 1e3 / calls for start, end in zip(events[::2], events[1::2], strict=True)]
    return statistics.median(taken), min(taken), max(taken)


def timed(work: Callable[[], object], times: int, calls: int = 1) -> tuple[float, float, float]:
    """Capture the work and time its replays. [s]"""
    graph = capture(work)
    taken = replay(graph, times, calls)
    graph.reset()
    return taken


def clean() -> None:
    """Forget compiled functions and give memory back: the next model starts as the first did."""
    torch._dynamo.reset()  # noqa: SLF001 - the only way to start dynamic shapes afresh
    gc.collect()
    torch.cuda.empty_cache()
