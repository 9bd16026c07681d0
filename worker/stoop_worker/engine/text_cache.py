"""The values of texts seen before, so that a repeated text costs no work."""

from collections import OrderedDict

from stoop_worker.engine.encoder import Text, Values

__all__ = ["TextCache"]

_OVERHEAD = 256  # bytes of an entry's own objects, about
_ID_BYTES = 40  # an id in a tuple: its object and the reference to it


class TextCache:
    """Keeps the values of the texts that were used last, in about `limit` bytes; 0 keeps none."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held: OrderedDict[Text, Values] = OrderedDict()
        self.bytes = 0

    def get(self, text: Text) -> Values | None:
        """Return the values of a text, and mark it as used last."""
        found = self._held.get(text)
        if found is not None:
            self._held.move_to_end(text)
        return found

    def put(self, text: Text, values: Values) -> None:
        """Keep the values of a text, and drop the least recently used ones."""
        size = _size(text, values)
        if size > self._limit or text in self._held:
            return
        # a copy, because a row would keep the values of its whole step
        self._held[text] = values.copy()
        self.bytes += size
        while self.bytes > self._limit:
            oldest = next(iter(self._held))
            self.bytes -= _size(oldest, self._held.pop(oldest))

    def check(self) -> None:
        """Assert that the count of bytes is right."""
        assert self.bytes == sum(_size(text, values) for text, values in self._held.items())


def _size(text: Text, values: Values) -> int:
    return _OVERHEAD + _ID_BYTES * len(text.ids) + values.nbytes
