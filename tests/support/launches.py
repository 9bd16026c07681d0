"""Lists the kernels that a step launches on a GPU, and counts the replays whose results differ."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from stoop_worker.kernels.hopper import CudaKernel

__all__ = ["differing_replays", "launches_of"]


def launches_of(step: Callable[[], Tensor]) -> list[CudaKernel]:
    """Return the kernels in CUDA C++ that a step launches, in order."""
    launches: list[CudaKernel] = []
    launch = CudaKernel.launch

    def noted(kernel: CudaKernel, *given: Any, early: bool = False) -> None:
        launches.append(kernel)
        launch(kernel, *given, early=early)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CudaKernel, "launch", noted)
        step()
    return launches


def differing_replays(
    step: Callable[[], Tensor], feed: Callable[[int], None], numbers: Sequence[int], replays: int
) -> int:
    """Return how many of a captured step's replays differ from the step without a graph, for the inputs in turn."""
    expected = []
    for number in numbers:
        feed(number)
        expected.append(step().clone())
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = step()
    differing = torch.zeros((), dtype=torch.int64, device="cuda")
    for replay in range(replays):
        at = replay % len(numbers)
        feed(numbers[at])
        graph.replay()
        differing += (found != expected[at]).any()
    return int(differing)
