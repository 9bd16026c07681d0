"""The values of texts seen before, so that a text that comes again takes no work."""

from collections import OrderedDict

from stoop_worker.engine.encoder import Ids, Values

__all__ = ["TextCache"]

_OVERHEAD = 256  # bytes of an entry's own objects, about
_ID_BYTES = 40  # an id in a tuple: its object and the reference to it


class TextCache:
    """Keeps the values of the texts that were used last, in about `limit` bytes; 0 keeps none."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held: OrderedDict[Ids, Values] = OrderedDict()
        self.bytes = 0

    def get(self, ids: Ids) -> Values | None:
        """Return the values of a text, which then counts as used last."""
        found = self._held.get(ids)
        if found is not None:
            self._held.move_to_end(ids)
        return found

    def put(self, ids: Ids, values: Values) -> None:
        """Keep the values of a text, and drop those that were not used for longest."""
        size = _size(ids, values)
        if size > self._limit or ids in self._held:
            return
        # a copy, because a row would keep the values of its whole step
        self._held[ids] = values.copy()
        self.bytes += size
        while self.bytes > self._limit:
            oldest = next(iter(self._held))
            self.bytes -= _size(oldest, self._held.pop(oldest))

    def check(self) -> None:
        """Assert that the count of bytes is right."""
        assert self.bytes == sum(_size(ids, values) for ids, values in self._held.items())


def _size(ids: Ids, values: Values) -> int:
    return _OVERHEAD + _ID_BYTES * len(ids) + values.nbytes
