"""Follows one job in a task of its own, so that a response can end at any moment without losing its clean-up."""

import asyncio
import contextlib
from typing import Final

from stoop.client.job_client import JobClient
from stoop_schemas.event import Event, TerminalEvent

__all__ = ["Follower"]

_AHEAD: Final = 64
"""Most events kept for a slow reader. The rest wait in the job's log in Redis."""


class Follower:
    """The events of one job. With `cancels` the job is cancelled when the follower is closed before its end.

    The client works in a task of its own because the server cancels a response again at each `await` of its clean-up.
    """

    def __init__(
        self, client: JobClient, job_id: str, *, after: int = -1, timeout: float | None = None, cancels: bool = False
    ) -> None:
        self.job_id = job_id
        self._events: asyncio.Queue[Event | Exception] = asyncio.Queue(_AHEAD)
        self._task = asyncio.create_task(self._follow(client, after, timeout, cancels))

    async def next(self) -> Event:
        """Return the next event; there is none after the terminal one. Raises `StoopError` or `ApiError`."""
        event = await self._events.get()
        if isinstance(event, Exception):
            raise event
        return event

    def break_off(self, error: Exception) -> None:
        """Let the reader receive this error next, and nothing after it."""
        while not self._events.empty():
            self._events.get_nowait()
        self.close()
        self._events.put_nowait(error)

    def close(self) -> "asyncio.Task[None]":
        """Stop following; idempotent. Return the task, which ends when the clean-up has."""
        if not self._task.cancelling():  # a second cancel would interrupt the clean-up, and the job would go on
            self._task.cancel()
        return self._task

    async def _follow(self, client: JobClient, after: int, timeout: float | None, cancels: bool) -> None:
        try:
            events = client.stream(self.job_id, timeout, after=after, cancel_on_exit=cancels)
            async with contextlib.aclosing(events):
                async for event in events:
                    await self._events.put(event)
                    if isinstance(event, TerminalEvent):
                        return
        except Exception as error:  # a defect too: the reader would otherwise wait for ever
            if not self._task.cancelling():  # otherwise the reader has left, and a full queue would block the clean-up
                await self._events.put(error)
