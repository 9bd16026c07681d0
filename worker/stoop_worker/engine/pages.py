"""The page pool, which counts the holders of each page of KV memory. It knows page numbers, not tensors."""

from collections.abc import Iterable

__all__ = ["PagePool"]


class PagePool:
    """Pages with two counts each: sequences that use a page, and cache nodes that keep it.

    A page is free when both are 0, and idle when only the cache keeps it. Eviction frees idle pages.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._free = list(range(count - 1, -1, -1))
        self._uses = [0] * count
        self._keeps = [0] * count
        self._idle = 0
        self._used = 0

    @property
    def free(self) -> int:
        """The number of pages without a holder."""
        return len(self._free)

    @property
    def idle(self) -> int:
        """The number of pages that only the cache keeps."""
        return self._idle

    @property
    def used(self) -> int:
        """The number of pages that sequences use."""
        return self._used

    def in_use(self, page: int) -> bool:
        """Return whether a sequence uses the page."""
        return self._uses[page] > 0

    def allocate(self, count: int) -> list[int]:
        """Take free pages for a sequence; there must be enough of them."""
        assert count <= len(self._free), "allocated more pages than are free"
        first = len(self._free) - count
        pages = self._free[first:]
        del self._free[first:]
        pages.sort()  # neighbours in memory are read without a copy on a CPU
        for page in pages:
            self._uses[page] = 1
        self._used += count
        return pages

    def retain(self, pages: Iterable[int]) -> None:
        """Share pages that already have a holder with one more sequence."""
        uses, keeps = self._uses, self._keeps  # local, because a long prompt has very many pages
        for page in pages:
            if not uses[page]:
                assert keeps[page], "retained a free page"
                self._idle -= 1
                self._used += 1
            uses[page] += 1

    def release(self, pages: Iterable[int]) -> None:
        """Give back pages that a sequence allocated or retained."""
        uses, keeps = self._uses, self._keeps
        for page in pages:
            assert uses[page], "released a page that no sequence uses"
            uses[page] -= 1
            if not uses[page]:
                self._used -= 1
                if keeps[page]:
                    self._idle += 1
                else:
                    self._free.append(page)

    def keep(self, pages: Iterable[int]) -> None:
        """Keep pages for a cache node; they must already have a holder."""
        uses, keeps = self._uses, self._keeps
        for page in pages:
            assert uses[page] or keeps[page], "kept a free page"
            keeps[page] += 1

    def drop(self, pages: Iterable[int]) -> None:
        """Give back pages that a cache node kept."""
        uses, keeps = self._uses, self._keeps
        for page in pages:
            assert keeps[page], "dropped a page that no node keeps"
            keeps[page] -= 1
            if not keeps[page] and not uses[page]:
                self._idle -= 1
                self._free.append(page)

    def check(self) -> None:
        """Assert that free, idle and used pages, each counted separately, add up to all; this costs one sum."""
        assert self.free + self.idle + self.used == self.count, "a page is lost"
