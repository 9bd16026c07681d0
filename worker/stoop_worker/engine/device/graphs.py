"""Work on the device captured as CUDA graphs: one launch in place of hundreds."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Graphs"]


@dataclass(frozen=True, slots=True)
class _Captured:
    graph: torch.cuda.CUDAGraph
    values: Tensor


class Graphs:
    """Captured work by key. All share memory for what is made on the way, so they must run one after another.

    What one of them gives must be used, or copied, before another runs.
    """

    def __init__(self) -> None:
        self._captured: dict[Hashable, _Captured] = {}
        self._memory = torch.cuda.graph_pool_handle()

    def __contains__(self, key: Hashable) -> bool:
        return key in self._captured

    def capture(self, key: Hashable, work: Callable[[], Tensor]) -> None:
        """Capture work that reads its inputs at the same places whenever it runs; it runs twice for that.

        Capture the largest work first: the smaller then fits into its memory.
        """
        # once outside: libraries and kernels make ready what may not be made inside a capture
        aside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            work()
        torch.cuda.current_stream().wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._memory):
            values = work()
        self._captured[key] = _Captured(graph, values)

    def replay(self, key: Hashable) -> Tensor:
        """Run captured work; its values are at the same place each time, until it runs again."""
        captured = self._captured[key]
        captured.graph.replay()
        return captured.values
