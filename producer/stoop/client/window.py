"""Runs any number of coroutines through a window, and yields each result.

A coroutine is pulled from its source only when the window has room, and its room is free again once its result has been
taken. A slow consumer, a slow source or a full lane therefore holds back the rest, and the window bounds the memory.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Coroutine
from typing import Any, Generic, TypeVar

__all__ = ["Window"]

_T = TypeVar("_T")


class Window(Generic[_T]):
    """Runs coroutines as tasks, at most `size` at a time; used once."""

    def __init__(self, size: int) -> None:
        if size < 1:
            raise ValueError(f"window is {size}: it must be at least 1")
        self._room = asyncio.Semaphore(size)
        self._ended: asyncio.Queue[asyncio.Task[Any]] = asyncio.Queue()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._open = 0

    async def results(self, source: AsyncGenerator[Coroutine[Any, Any, _T], None]) -> AsyncGenerator[_T, None]:
        """Yield each coroutine's result as soon as there is one.

        Raises the first error of the source or of a coroutine. Closing the generator cancels all its tasks.
        """
        pulling = self._start(self._pull(source))
        exhausted = False
        try:
            while self._open or not exhausted:
                ended = await self._ended.get()
                if ended is pulling:
                    ended.result()
                    exhausted = True
                    continue
                self._open -= 1
                self._room.release()
                yield ended.result()
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _pull(self, source: AsyncGenerator[Coroutine[Any, Any, _T], None]) -> None:
        async with contextlib.aclosing(source):
            await self._room.acquire()
            async for coroutine in source:
                self._open += 1
                self._start(coroutine)
                await self._room.acquire()

    def _start(self, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._end)
        return task

    def _end(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # otherwise asyncio logs the error as never retrieved
        self._ended.put_nowait(task)
