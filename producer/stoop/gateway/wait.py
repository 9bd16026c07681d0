"""A wait for an answer, which ends early when the caller leaves or the gateway closes."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

__all__ = ["CallerLeft", "Wait"]

_T = TypeVar("_T")

_UNWATCHED_SECONDS: Final = 0.2
"""Most answers come sooner, and only a task of its own can watch the connection."""


class CallerLeft(Exception):
    """The caller closed its connection before the answer."""


class Wait:
    """One request's wait for some work. `left` returns when the caller has left."""

    def __init__(self, left: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._left = left
        self._task: asyncio.Task[Any] | None = None
        self._error: Exception | None = None
        self._watching: asyncio.Task[None] | None = None

    async def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Return the work's result. If `end` is called first, cancel the work and raise the given error."""
        task = self._task = asyncio.current_task()
        assert task is not None
        timer = asyncio.get_running_loop().call_later(_UNWATCHED_SECONDS, self._watch)
        try:
            return await work
        except asyncio.CancelledError:
            # the server may have cancelled the task as well
            if self._error is None or task.cancelling() > 1:
                raise
            raise self._error from None
        finally:
            self._task = None
            if self._error is not None:
                task.uncancel()
            timer.cancel()
            if self._watching is not None:
                self._watching.cancel()

    def end(self, error: Exception) -> None:
        """Cancel the work, whose `run` then raises this error; does nothing once the work or the wait has ended."""
        if self._task is not None and self._error is None:
            self._error = error
            self._task.cancel()

    def _watch(self) -> None:
        self._watching = asyncio.create_task(self._leave())

    async def _leave(self) -> None:
        await self._left()
        self.end(CallerLeft())
