"""Decode steps captured as CUDA graphs: one launch in place of hundreds. B rows."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["DecodeGraphs", "bucket_sizes"]

_Step = Callable[[int, bool], Tensor]


@dataclass(frozen=True, slots=True)
class _Captured:
    graph: torch.cuda.CUDAGraph
    values: Tensor


class DecodeGraphs:
    """A graph for some numbers of rows, with and without region heads; made when first asked for, or all by `capture`.

    `step(rows, regions)` runs so many rows, which must be padding while it is captured: `clear` makes them so.
    """

    def __init__(self, step: _Step, clear: Callable[[], None], most: int) -> None:
        self._step = step
        self._clear = clear
        self._sizes = bucket_sizes(most)
        self._captured: dict[tuple[int, bool], _Captured] = {}
        self._memory = torch.cuda.graph_pool_handle()

    def capture(self) -> None:
        """Capture what has not been, the largest first, so that the others fit into its memory."""
        for size in reversed(self._sizes):
            for regions in (True, False):
                self._find(size, regions=regions)

    def ready(self, rows: int, *, regions: bool) -> Callable[[], Tensor]:
        """Return what runs at least so many rows and gives their values, at the same place each time."""
        size = next(size for size in self._sizes if size >= rows)
        captured = self._find(size, regions=regions)

        def replay() -> Tensor:
            captured.graph.replay()
            return captured.values

        return replay

    def _find(self, size: int, *, regions: bool) -> _Captured:
        key = size, regions
        if key not in self._captured:
            self._captured[key] = self._capture(size, regions=regions)
        return self._captured[key]

    def _capture(self, size: int, *, regions: bool) -> _Captured:
        self._clear()
        # once outside: libraries and kernels make ready what may not be made inside a capture
        aside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            self._step(size, regions)
        torch.cuda.current_stream().wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._memory):
            values = self._step(size, regions)
        return _Captured(graph, values)


def bucket_sizes(most: int) -> list[int]:
    """Return the numbers of rows that are captured: fine where a row more costs most, and `most` itself."""
    return [size for size in (1, 2, 4, *range(8, 64, 8), *range(64, most, 32)) if size < most] + [most]
