"""Lends parts of a block of memory, from its beginning on, and finds the free parts that still hold memory."""

import mmap
from collections import deque
from collections.abc import Iterable, Iterator
from threading import Lock

__all__ = ["Extent", "Extents", "whole_pages"]

Extent = tuple[int, int]
"""A part: its first byte, and the byte after its last one."""


def whole_pages(length: int) -> int:
    """Round a number of bytes up to whole pages of memory."""
    return -(-length // mmap.PAGESIZE) * mmap.PAGESIZE


class Extents:
    """Lends parts of a block of `size` bytes, in whole pages; any thread may use it.

    It lends the first free part that is large enough. Parts in use therefore lie close together at the beginning, where
    the memory has usually been touched before.
    """

    def __init__(self, size: int) -> None:
        self._free: list[Extent] = [(0, size)] if size else []  # sorted
        self._touched = 0  # no later byte holds memory
        self._recent = 0  # no later byte was lent since the last `borrow_stale`
        # a finaliser may give back within any other method, so giving back takes no lock
        self._given_back: deque[Extent] = deque()
        self._lock = Lock()

    def borrow(self, length: int) -> Extent | None:
        """Return a free part with room for `length` bytes; None if there is none."""
        length = whole_pages(length)
        with self._lock:
            self._gather()
            for index, (start, end) in enumerate(self._free):
                if start + length <= end:
                    self._free[index : index + 1] = [(start + length, end)] if start + length < end else []
                    self._touched = max(self._touched, start + length)
                    self._recent = max(self._recent, start + length)
                    return start, start + length
        return None

    def give_back(self, extent: Extent) -> None:
        """Make a part free again."""
        self._given_back.append(extent)

    def keep_touched(self, extent: Extent) -> None:
        """Note that a borrowed part still holds memory."""
        with self._lock:
            self._touched = max(self._touched, extent[1])

    def borrow_idle(self) -> list[Extent]:
        """Return all free parts that may hold memory, so that the caller can release it."""
        with self._lock:
            return self._take_idle(0)

    def borrow_stale(self, kept: int) -> list[Extent]:
        """Return the free parts that lie after byte `kept` and after all bytes that were lent since the last call."""
        with self._lock:
            beyond, self._recent = max(kept, self._recent), 0
            return self._take_idle(beyond)

    def _take_idle(self, beyond: int) -> list[Extent]:
        self._gather()
        self._free = list(_cut(_cut(self._free, beyond), self._touched))
        idle = [extent for extent in self._free if beyond <= extent[0] < self._touched]
        self._free = [extent for extent in self._free if extent not in idle]
        if idle and idle[-1][1] == self._touched:
            self._touched = idle[-1][0]
        return idle

    def _gather(self) -> None:
        """Add the parts that were given back, and join neighbours."""
        while self._given_back:
            self._free.append(self._given_back.popleft())
        self._free.sort()
        joined: list[Extent] = []
        for start, end in self._free:
            if joined and joined[-1][1] == start:
                start = joined.pop()[0]
            joined.append((start, end))
        self._free = joined


def _cut(extents: Iterable[Extent], at: int) -> Iterator[Extent]:
    """Cut the extent that contains this place in two."""
    for start, end in extents:
        if start < at < end:
            yield from ((start, at), (at, end))
        else:
            yield start, end
