"""Submits any number of jobs through a window, and yields each with its outcome when it ends."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Coroutine, Iterable
from typing import Any

import msgspec

from stoop.client.outage import Retrying
from stoop.client.submission import Put, Submitter
from stoop.client.window import Window
from stoop.errors import IdempotencyConflict, InvalidJob, QueueUnavailable, StoopError
from stoop_schemas.job import Job
from stoop_schemas.result import Result

__all__ = ["Gathering", "Outcome"]

Outcome = Result | StoopError
"""A completed job's result, or the error of a job that did not complete."""

_Wait = Callable[[str], Awaitable[Result]]


class Gathering:
    """Submits jobs and waits for them, at most `window` at a time; used once.

    `put` submits jobs, all or none; `wait` returns the result for an id, or raises `StoopError`. Both are repeated
    while Redis is away, as long as `retrying` allows.
    """

    def __init__(self, put: Put, wait: _Wait, *, window: int, retrying: Retrying) -> None:
        self._submitter = Submitter(put, retrying)
        self._wait, self._retrying = wait, retrying
        self._window: Window[tuple[Job, Outcome]] = Window(window)

    async def outcomes(self, jobs: Iterable[Job] | AsyncIterable[Job]) -> AsyncGenerator[tuple[Job, Outcome], None]:
        """Yield each job with its outcome as soon as there is one.

        Raises the source's own errors, and `QueueUnavailable`. Closing the generator cancels all its tasks.
        """
        async with self._submitter, contextlib.aclosing(self._window.results(self._runs(jobs))) as outcomes:
            async for outcome in outcomes:
                yield outcome

    async def _runs(
        self, jobs: Iterable[Job] | AsyncIterable[Job]
    ) -> AsyncGenerator[Coroutine[Any, Any, tuple[Job, Outcome]], None]:
        async with contextlib.aclosing(_each(jobs)) as each:
            async for job in each:
                yield self._run(job)

    async def _run(self, job: Job) -> tuple[Job, Outcome]:
        try:
            job_id = await self._submitter.submit(job)
        except (InvalidJob, IdempotencyConflict) as refusal:
            return job, refusal
        if job_id != job.id:
            job = msgspec.structs.replace(job, id=job_id)
        try:
            return job, await self._retrying.run(lambda: self._wait(job_id))
        except QueueUnavailable:
            raise
        except StoopError as error:
            return job, error


async def _each(jobs: Iterable[Job] | AsyncIterable[Job]) -> AsyncGenerator[Job, None]:
    if isinstance(jobs, AsyncIterable):
        async for job in jobs:
            yield job
        return
    for job in jobs:
        yield job
        # let other tasks run even if the source is always ready
        await asyncio.sleep(0)
