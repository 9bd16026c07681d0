"""The readers of a channel, and the messages that each has not read yet."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Final

__all__ = ["UNKNOWN", "Channel", "Reader"]

_BACKLOG = 256

UNKNOWN: Final = object()
"""The count of a reader that has not looked for itself."""


@dataclass(slots=True, eq=False)
class Reader:
    """One subscriber's unread messages; None marks a place where messages may have been lost.

    `count` is the number of messages when the reader last had to check for itself, or unknown. `spoken` is True if a
    message came since the last check, and `quiet` counts the checks since then.
    """

    unread: deque[bytes | None] = field(default_factory=deque)
    count: object = UNKNOWN
    spoken: bool = False
    quiet: int = 0
    news: asyncio.Event = field(default_factory=asyncio.Event)
    ended: bool = False

    def put(self, packed: bytes | None) -> None:
        """Add a message; a reader that is too slow loses all that it has not read."""
        if len(self.unread) >= _BACKLOG:
            # it finds them in the log
            self.unread.clear()
            packed = None
        self.unread.append(packed)
        self.news.set()

    def check(self, count: object, most_quiet: int) -> None:
        """Record the count of messages; signal a possible loss if it changed in silence, or after a long silence."""
        if self.spoken:
            self.spoken, self.count, self.quiet = False, UNKNOWN, 0
            return
        self.quiet += 1
        if count is UNKNOWN or count != self.count or self.quiet >= most_quiet:
            self.count, self.quiet = count, 0
            self.put(None)

    def end(self) -> None:
        """End the iteration."""
        self.ended = True
        self.news.set()

    async def messages(self) -> AsyncIterator[bytes | None]:
        """Yield the messages as they arrive, until the reader is ended."""
        while not self.ended:
            if self.unread:
                yield self.unread.popleft()
                continue
            self.news.clear()
            await self.news.wait()


@dataclass(slots=True, eq=False)
class Channel:
    """The readers of one channel; `confirmed` is set while the subscription is active in Redis.

    The messages of the channel are counted under `counter`.
    """

    counter: str
    confirmed: asyncio.Event = field(default_factory=asyncio.Event)
    readers: set[Reader] = field(default_factory=set)
    refusal: Exception | None = None
