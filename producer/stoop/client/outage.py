"""Tolerates an outage of Redis or of the object store for a limited time."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from stoop.backoff import backoff
from stoop.errors import QueueUnavailable, StoopError, UploadFailed

__all__ = ["OUTAGE_SECONDS", "Outage", "Retrying"]

_T = TypeVar("_T")

OUTAGE_SECONDS: Final = 60.0
"""Seconds to wait for an unreachable Redis: enough for a restart or a failover to a replica."""

_FIRST_SECONDS: Final = 0.5
_LONGEST_SECONDS: Final = 8.0


class Outage:
    """Times an outage across repeated attempts, and tolerates it for `seconds`."""

    def __init__(self, seconds: float = OUTAGE_SECONDS) -> None:
        self._seconds = seconds
        self._since: float | None = None

    def check(self, error: StoopError) -> None:
        """Raise the error if the outage has lasted too long."""
        now = time.monotonic()
        if self._since is None:
            self._since = now
        if now - self._since >= self._seconds:
            raise error

    def end(self) -> None:
        """Reset the timer, because Redis has answered."""
        self._since = None


class Retrying:
    """Repeats calls while a server is away, for `seconds` in each outage, with growing pauses.

    `pause` waits for the seconds it is given; it may raise to end the call. `note` receives a line about each wait.
    With `needs_answer`, a server is waited for only once it has answered: before that, its address is probably wrong.
    """

    def __init__(
        self,
        seconds: float = OUTAGE_SECONDS,
        *,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
        note: Callable[[str], None] = lambda line: None,
        needs_answer: bool = False,
    ) -> None:
        self._seconds = seconds
        self._is_waited_for = not needs_answer
        self.pause = pause
        self.note = note

    async def run(self, call: Callable[[], Awaitable[_T]]) -> _T:
        """Return the call's result. Raise `QueueUnavailable` or `UploadFailed` if the server stays away."""
        outage, failures = Outage(self._seconds), 0
        while True:
            try:
                result = await call()
            except (QueueUnavailable, UploadFailed) as error:
                if not self._is_waited_for:
                    raise
                outage.check(error)
                self.note(f"{error}; trying again")
            else:
                self._is_waited_for = True
                return result
            await self.pause(backoff(failures, first=_FIRST_SECONDS, longest=_LONGEST_SECONDS))
            failures += 1
