"""Runs one stage of a file's processing while the next stage works on earlier pieces."""

import os
from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from typing import Final, TypeVar

__all__ = ["ahead", "side_by_side"]

_Piece = TypeVar("_Piece")
_Made = TypeVar("_Made")

_MOST_THREADS: Final = 4
"""More of them would wait for the one thread that resamples."""


def _cores() -> int:
    """Count the cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


_THREADS: Final = min(_MOST_THREADS, _cores())


def ahead(pieces: Generator[_Piece, None, None]) -> Generator[_Piece, None, None]:
    """Yield the same pieces; a thread of its own makes the next one while the caller works on this one.

    An exception comes after the pieces before it. Close the iterator if you stop early: that waits for the thread.
    """
    ended: list[_Piece] = []  # marks the end, because no piece is this object

    def following() -> _Piece | list[_Piece]:
        return next(pieces, ended)

    with closing(pieces), ThreadPoolExecutor(1, thread_name_prefix="ahead") as thread:
        coming = thread.submit(following)
        while (piece := coming.result()) is not ended:
            coming = thread.submit(following)
            yield piece  # type: ignore[misc]  # it is not the list


def side_by_side(
    work: Callable[[_Piece], _Made], pieces: Generator[_Piece, None, None], threads: int = _THREADS
) -> Generator[_Made, None, None]:
    """Yield `work` of each piece, in order; threads work on as many pieces at once.

    The pieces themselves are made in the caller's thread. An exception comes after the pieces before it. Close the
    iterator if you stop early: that waits for the threads.
    """
    fault: Exception | None = None
    coming: deque[Future[_Made]] = deque()
    with closing(pieces), ThreadPoolExecutor(threads, thread_name_prefix="side-by-side") as pool:
        while fault is None:
            try:
                coming.append(pool.submit(work, next(pieces)))
            except StopIteration:
                break
            except Exception as error:  # raised below, after the pieces before it
                fault = error
            if len(coming) > threads:
                yield coming.popleft().result()
        while coming:
            yield coming.popleft().result()
    if fault is not None:
        raise fault
