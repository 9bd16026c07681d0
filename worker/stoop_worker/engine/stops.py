"""Strings that end a text: found as soon as they are complete, and never released, not even in part."""

from collections.abc import Sequence

__all__ = ["StopStrings"]


class StopStrings:
    """Passes the text before the first stop string; `found` is True once that string has occurred."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = stops
        self._kept = ""  # the end of the text so far, while it may begin a stop string
        self.found = False

    def push(self, piece: str, following: str) -> str:
        """Take the next piece; return the text that can be released.

        `following` is text known to come next, even if incomplete: a stop string in it counts.
        """
        self._kept += piece
        cut = self._find(self._kept + following)
        if cut is not None:
            self.found = True
            given, self._kept = (self._kept + following)[:cut], ""
            return given
        held = max((_overlap(self._kept, stop) for stop in self._stops), default=0)
        given, self._kept = self._kept[: len(self._kept) - held], self._kept[len(self._kept) - held :]
        return given

    def flush(self) -> str:
        """Return the text still held back, after a text that no stop string ended."""
        given, self._kept = self._kept, ""
        return given

    def _find(self, text: str) -> int | None:
        return min((at for stop in self._stops if (at := text.find(stop)) >= 0), default=None)


def _overlap(text: str, stop: str) -> int:
    """Return how many characters at the end of a text are the beginning of a stop string."""
    return next((size for size in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:size])), 0)
