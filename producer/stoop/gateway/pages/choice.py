"""The dead letters that an operator means: named ones, those of a cause or a search, or all."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated

import msgspec

from stoop.gateway.dead_causes import pattern_of
from stoop.operator.port import DeadLetter

__all__ = ["Choice"]


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """The letters that a request means: those named, those that a filter finds, or `all`. With `dry_run` they are only
    counted.

    The filter is a cause (`code`, and `message` as in its group), or a `search`, or both.
    """

    letters: Annotated[list[str], msgspec.Meta(max_length=1000)] | None = None
    code: str | None = None
    message: str | None = None
    search: Annotated[str, msgspec.Meta(min_length=1, max_length=1000)] | None = None
    all: bool = False
    dry_run: bool = False

    @property
    def filters(self) -> bool:
        """Return whether the choice has a filter."""
        return any(each is not None for each in (self.code, self.message, self.search))

    def covered(self, letters: Iterable[DeadLetter]) -> Iterator[DeadLetter]:
        """Yield the letters that the filter finds: of the cause, and with every word of the search, in any case."""
        words = (self.search or "").casefold().split()
        for letter in letters:
            if self.code not in (None, letter.code):
                continue
            if self.message is not None and self.message != pattern_of(letter.message):
                continue
            if not words or _has(letter, words):
                yield letter


def _has(letter: DeadLetter, words: Sequence[str]) -> bool:
    fields = (letter.code, letter.message, letter.lane, letter.tenant, letter.job_id, letter.letter)
    text = "\n".join(fields).casefold()
    return all(word in text for word in words)
