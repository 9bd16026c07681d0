"""Submits the jobs of callers that come at the same time in one call of Redis."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from stoop.errors import ClientUnusable, IdempotencyConflict, InvalidJob, QueueFull
from stoop_schemas.job import Job

__all__ = ["JointSubmission"]

_Put = Callable[[Sequence[Job]], Awaitable[list[str]]]
_Grouped = Callable[[Sequence[Job]], Sequence[Sequence[int]]]


class _Waiting(NamedTuple):
    """A job that is not in its lane yet, and the future of its id."""

    job: Job
    job_id: asyncio.Future[str]


class JointSubmission:
    """Joins the single jobs of many tasks to calls of `put`, which takes all of its jobs or raises.

    A call has the jobs that came in one turn of the event loop, and so nobody waits for others. `grouped` returns the
    places of the jobs that may go together.
    """

    def __init__(self, put: _Put, grouped: _Grouped) -> None:
        self._put = put
        self._grouped = grouped
        self._waiting: list[_Waiting] = []
        self._calls: set[asyncio.Task[None]] = set()

    async def submit(self, job: Job) -> str:
        """Return the job's id once the job is in its lane. Raises what `put` raises for this job alone."""
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_soon(self._start)
        waiting = _Waiting(job, loop.create_future())
        self._waiting.append(waiting)
        return await waiting.job_id

    async def close(self) -> None:
        """End the calls; their callers get an error."""
        for call in self._calls:
            call.cancel()
        await asyncio.gather(*self._calls, return_exceptions=True)

    def _start(self) -> None:
        # a caller that was cancelled wants its job no more
        batch = [waiting for waiting in self._waiting if not waiting.job_id.done()]
        self._waiting = []
        for places in self._grouped([waiting.job for waiting in batch]):
            call = asyncio.create_task(self._submit([batch[i] for i in places]))
            self._calls.add(call)
            call.add_done_callback(self._calls.discard)

    async def _submit(self, batch: Sequence[_Waiting]) -> None:
        try:
            ids = await self._put([waiting.job for waiting in batch])
        except (InvalidJob, IdempotencyConflict, QueueFull) as error:
            if len(batch) == 1:
                _fail(batch, error)
            else:
                # none of them is in its lane, and only Redis knows which one was refused
                await asyncio.gather(*(self._submit([waiting]) for waiting in batch))
        except asyncio.CancelledError:
            _fail(batch, ClientUnusable("this client was closed before the job was submitted"))
            raise
        except Exception as error:  # raised where the jobs are awaited
            _fail(batch, error)
        else:
            for waiting, job_id in zip(batch, ids, strict=True):
                if not waiting.job_id.done():
                    waiting.job_id.set_result(job_id)


def _fail(batch: Sequence[_Waiting], error: Exception) -> None:
    for waiting in batch:
        if not waiting.job_id.done():
            waiting.job_id.set_exception(error)
