"""Runs one stage of a file's processing while the next stage works on the previous piece."""

from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TypeVar

__all__ = ["ahead"]

_Piece = TypeVar("_Piece")


def ahead(pieces: Generator[_Piece, None, None]) -> Generator[_Piece, None, None]:
    """Yield the same pieces; a thread of its own makes the next one while the caller works on this one.

    An exception comes after the pieces before it. Close the iterator if you stop early: that waits for the thread.
    """
    ended: list[_Piece] = []  # an object that is no piece

    def following() -> _Piece | list[_Piece]:
        return next(pieces, ended)

    with closing(pieces), ThreadPoolExecutor(1, thread_name_prefix="ahead") as thread:
        coming = thread.submit(following)
        while (piece := coming.result()) is not ended:
            coming = thread.submit(following)
            yield piece  # type: ignore[misc]  # it is not the list
