"""Runs any number of jobs through a window, and yields each outcome when its job ends.

A job is pulled from its source only when the window has room, and its room is free again once its outcome has been
taken. A slow consumer, a slow source or a full lane therefore holds back the rest, and the window bounds the memory.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Coroutine, Iterable
from typing import Any

import msgspec

from stoop.client.submission import CHUNK
from stoop.errors import QueueFull, QueueUnavailable, StoopError
from stoop_schemas.job import Job
from stoop_schemas.result import Result

__all__ = ["Gathering", "Outcome"]

Outcome = Result | StoopError
"""A completed job's result, or the error of a job that did not complete."""

_Submit = Callable[[list[Job]], Awaitable[list[str | StoopError]]]
_Wait = Callable[[str], Awaitable[Result]]


class Gathering:
    """Submits jobs and waits for them, at most `window` at a time; used once.

    `submit` returns an id or a refusal for each job; `wait` returns the result for an id, or raises `StoopError`.
    """

    def __init__(self, submit: _Submit, wait: _Wait, *, window: int) -> None:
        if window < 1:
            raise ValueError(f"window is {window}: it must be at least 1")
        self._submit, self._wait = submit, wait
        self._room = asyncio.Semaphore(window)
        self._pulled: asyncio.Queue[Job] = asyncio.Queue()
        # None: the source has ended; an exception: a task has failed
        self._ended: asyncio.Queue[tuple[Job, Outcome] | BaseException | None] = asyncio.Queue()
        self._tasks: set[asyncio.Task[None]] = set()
        self._open = 0
        self._exhausted = False

    async def outcomes(self, jobs: Iterable[Job] | AsyncIterable[Job]) -> AsyncGenerator[tuple[Job, Outcome], None]:
        """Yield each job with its outcome as soon as there is one.

        Raises the source's own errors, and `QueueUnavailable`. Closing the generator cancels all its tasks.
        """
        self._start(self._pull(_each(jobs)))
        self._start(self._submit_pulled())
        try:
            while self._open or not self._exhausted:
                ended = await self._ended.get()
                if isinstance(ended, BaseException):
                    raise ended
                if ended is not None:
                    self._open -= 1
                    self._room.release()
                    yield ended
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _pull(self, jobs: AsyncGenerator[Job, None]) -> None:
        async with contextlib.aclosing(jobs):
            await self._room.acquire()
            async for job in jobs:
                self._open += 1
                self._pulled.put_nowait(job)
                await self._room.acquire()
        self._exhausted = True
        self._ended.put_nowait(None)

    async def _submit_pulled(self) -> None:
        while True:
            batch = [await self._pulled.get()]
            while len(batch) < CHUNK and not self._pulled.empty():
                batch.append(self._pulled.get_nowait())
            while batch:
                batch = await self._submit_batch(batch)

    async def _submit_batch(self, batch: list[Job]) -> list[Job]:
        """Submit the batch. Return the jobs that found the queue full, once it is time to retry them."""
        refused: list[tuple[Job, QueueFull]] = []
        for job, reply in zip(batch, await self._submit(batch), strict=True):
            if isinstance(reply, str):
                self._start(self._follow(job if job.id == reply else msgspec.structs.replace(job, id=reply)))
            elif isinstance(reply, QueueFull):
                refused.append((job, reply))
            else:
                self._ended.put_nowait((job, reply))
        if refused:
            await asyncio.sleep(min(full.retry_after for _, full in refused))
        return [job for job, _ in refused]

    async def _follow(self, job: Job) -> None:
        outcome: Outcome
        try:
            outcome = await self._wait(job.id)
        except QueueUnavailable:
            raise
        except StoopError as error:
            outcome = error
        self._ended.put_nowait((job, outcome))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            self._ended.put_nowait(error)


async def _each(jobs: Iterable[Job] | AsyncIterable[Job]) -> AsyncGenerator[Job, None]:
    if isinstance(jobs, AsyncIterable):
        async for job in jobs:
            yield job
        return
    for job in jobs:
        yield job
        # let other tasks run even if the source is always ready
        await asyncio.sleep(0)
