"""Work on the device captured as CUDA graphs: one launch in place of hundreds."""

import gc
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Graphs"]


@dataclass(frozen=True, slots=True)
class _Captured:
    graph: torch.cuda.CUDAGraph
    values: Tensor


class Graphs:
    """Captured work by key. All graphs share memory for intermediate values, so they must run one after another.

    Use or copy the result of one graph before another runs.
    """

    def __init__(self) -> None:
        self._captured: dict[Hashable, _Captured] = {}
        self._memory = torch.cuda.graph_pool_handle()

    def __contains__(self, key: Hashable) -> bool:
        return key in self._captured

    def capture(self, key: Hashable, work: Callable[[], Tensor]) -> None:
        """Capture work that always reads its inputs at the same addresses; capturing runs it twice.

        Capture the largest work first, so that smaller work fits into its memory.
        """
        # run once outside: libraries and kernels do setup that a capture forbids
        aside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            work()
        torch.cuda.current_stream().wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        # other threads may copy weights meanwhile: an adapter can arrive while a graph is captured
        with _no_collection(), torch.cuda.graph(graph, pool=self._memory, capture_error_mode="thread_local"):
            values = work()
        self._captured[key] = _Captured(graph, values)

    def replay(self, key: Hashable) -> Tensor:
        """Run captured work; its result is at the same address each time, and lasts until it runs again."""
        captured = self._captured[key]
        captured.graph.replay()
        return captured.values


@contextmanager
def _no_collection() -> Iterator[None]:
    """Keep the garbage collector from freeing the graphs of a closed engine, which would spoil a capture."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
