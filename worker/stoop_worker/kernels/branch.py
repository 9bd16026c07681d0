"""Runs kernels concurrently with others, on a stream of their own (a branch), in captured graphs too.

Its kernels have a higher priority, so that a short branch does not wait for a long one that fills the device. The
first kernel of a branch and the first one after it wait for two kernels, so they must not start early.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch

__all__ = ["branch", "join"]


@contextmanager
def branch(device: torch.device) -> Iterator[None]:
    """Launch on the branch's stream, after everything launched on the current one so far.

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
