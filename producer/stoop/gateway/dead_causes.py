"""The causes of dead letters: read once a second for all viewers, however many letters there are."""

import asyncio
import re
import time
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from stoop.operator.port import DeadLetter, Operator

__all__ = ["Cause", "CauseWatch", "Causes", "pattern_of"]

_MOST_GROUPED: Final = 10_000
_MESSAGE: Final = 200
_FRESH_SECONDS: Final = 1.0

_VARYING: Final = re.compile(
    r"(?P<address>\b(?:s3|https?|data):\S+)"
    r"|(?P<text>'[^']*'|\"[^\"]*\")"
    r"|(?P<id>\b(?=[0-9a-f-]*[0-9])[0-9a-f][0-9a-f-]{7,}\b)"
    r"|(?P<n>\d+(?:[.,]\d+)*)"
)
_ZEROS: Final = str.maketrans("12456789", "00000000")
"""The 3 stays, because it is part of s3://."""


class Cause(msgspec.Struct, frozen=True):
    """Dead letters of one code whose messages differ only in names and numbers; times are Unix ms."""

    code: str
    message: str
    count: int
    newest: int
    oldest: int


class Causes(msgspec.Struct, frozen=True):
    """The causes of the `seen` newest dead letters, the most frequent first; `total` counts all letters."""

    causes: list[Cause]
    seen: int
    total: int


class CauseWatch:
    """Groups the newest dead letters; one reading serves every caller for a second."""

    def __init__(self, operator: Operator, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._operator = operator
        self._clock = clock
        self._looking = asyncio.Lock()
        self._last: Causes | None = None
        self._until = 0.0

    async def look(self) -> Causes:
        """Return the current causes. Raises `QueueUnavailable`."""
        async with self._looking:
            if self._last is None or self._clock() >= self._until:
                self._last = await self._group()
                self._until = self._clock() + _FRESH_SECONDS
            return self._last

    def forget(self) -> None:
        """Read the letters again at the next call, because some were removed."""
        self._until = 0.0

    async def _group(self) -> Causes:
        letters = await self._operator.failures(_MOST_GROUPED)
        total = len(letters)
        if total == _MOST_GROUPED:
            total = (await self._operator.status(())).dead
        return Causes(_grouped(letters), len(letters), total)


def pattern_of(message: str) -> str:
    """Return the message without the parts that differ between jobs: addresses, quoted text, ids and numbers."""
    return _VARYING.sub(lambda found: f"‹{found.lastgroup}›", message)[:_MESSAGE]


def _grouped(letters: Sequence[DeadLetter]) -> list[Cause]:
    groups: dict[tuple[str, str], list[int]] = {}
    patterns: dict[str, str] = {}
    for letter in letters:
        # no digit is left in a pattern, so messages that differ in digits alone share one search
        zeros = letter.message.translate(_ZEROS)
        pattern = patterns.get(zeros)
        if pattern is None:
            pattern = patterns[zeros] = pattern_of(zeros)
        groups.setdefault((letter.code, pattern), []).append(letter.at)
    causes = [Cause(code, message, len(times), max(times), min(times)) for (code, message), times in groups.items()]
    return sorted(causes, key=lambda cause: (-cause.count, cause.code, cause.message))
