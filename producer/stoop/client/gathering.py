"""Any number of jobs through a window: some in flight, those that have ended given out as they end.

A job is pulled from its source only when there is room in the window, and the room is free again when its outcome has
been taken. So a slow consumer, a slow source and a full lane all hold back the rest, and the window bounds the memory.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Coroutine, Iterable
from typing import Any

import msgspec

from producer.errors import QueueFull, QueueUnavailable, StoopError
from producer.submission import CHUNK
from schemas.job import Job
from schemas.result import Result

__all__ = ["Gathering", "Outcome"]

Outcome = Result | StoopError
"""The result of a job that completed; of any other the error that tells why it did not."""

_Submit = Callable[[list[Job]], Awaitable[list[str | StoopError]]]
_Wait = Callable[[str], Awaitable[Result]]


class Gathering:
    """Submits jobs and waits for them, at most `window` at a time; used once.

    `submit` gives each job's id or refusal, `wait` the result of an id or a `StoopError`.
    """

    def __init__(self, submit: _Submit, wait: _Wait, *, window: int) -> None:
        if window < 1:
            raise ValueError(f"window is {window}: at least one job must be in flight")
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

        Raises what the source raises, and `QueueUnavailable`; whoever leaves leaves no task behind.
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
        """Submit, and return those for which there was no room, when it is time to try again."""
        refused: list[tuple[Job, QueueFull]] = []
        for job, told in zip(batch, await self._submit(batch), strict=True):
            if isinstance(told, str):
                self._start(self._follow(job if job.id == told else msgspec.structs.replace(job, id=told)))
            elif isinstance(told, QueueFull):
                refused.append((job, told))
            else:
                self._ended.put_nowait((job, told))
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
        # a source that is always ready must not keep the others waiting
        await asyncio.sleep(0)
