"""Runs kernels beside others: a branch on a stream of its own, in a captured graph too.

Its kernels have a higher priority, so that a short branch is not kept waiting by a long one that fills the device. The
first kernel of a branch and the first one after it wait for two kernels, so they must not start early.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch

__all__ = ["branch", "join"]


@contextmanager
def branch(device: torch.device) -> Iterator[None]:
    """Launch on the branch's stream, behind what has been launched on the current one.

    Until the `join`, keep all tensors that the branch reads.
    """
    aside = _aside(device)
    aside.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(aside):
        yield


def join(device: torch.device) -> None:
    """Let later launches on the current stream wait for the branch."""
    torch.cuda.current_stream(device).wait_stream(_aside(device))


@cache
def _aside(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device, priority=-1)  # type: ignore[no-untyped-call]
