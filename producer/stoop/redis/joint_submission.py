"""Submits jobs that callers bring at the same time in one call to Redis."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
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

    A call has the jobs that came in one iteration of the event loop, so no caller waits for others. `grouped` returns
    the places of the jobs that may go together.
    """

    def __init__(self, put: _Put, grouped: _Grouped) -> None:
        self._put = put
        self._grouped = grouped
        self._waiting: list[_Waiting] = []
        self._calls: set[asyncio.Task[None]] = set()
        self._closed = False

    async def submit(self, job: Job) -> str:
        """Return the job's id once the job is in its lane. Raises the error of `put` for this job alone."""
        if self._closed:
            raise _closed()
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_soon(self._start)
        waiting = _Waiting(job, loop.create_future())
        self._waiting.append(waiting)
        return await waiting.job_id

    async def close(self) -> None:
        """End the calls; their callers get an error, and so do later ones."""
        self._closed = True
        _fail(self._waiting, _closed())
        for call in self._calls:
            call.cancel()
        await asyncio.gather(*self._calls, return_exceptions=True)

    def _start(self) -> None:
        waiting, self._waiting = _still_waiting(self._waiting), []
        for places in self._grouped([each.job for each in waiting]):
            batch = [waiting[i] for i in places]
            call = asyncio.create_task(self._submit(batch))
            self._calls.add(call)
            call.add_done_callback(partial(self._ended, batch))

    def _ended(self, batch: Sequence[_Waiting], call: "asyncio.Task[None]") -> None:
        self._calls.discard(call)
        # only a cancelled call leaves callers behind; before its first step it could not even catch that
        _fail(batch, _closed())

    async def _submit(self, batch: Sequence[_Waiting]) -> None:
        batch = _still_waiting(batch)
        if not batch:
            return
        try:
            ids = await self._put([waiting.job for waiting in batch])
        except (InvalidJob, IdempotencyConflict, QueueFull) as error:
            if len(batch) == 1:
                _fail(batch, error)
            else:
                # none of them is in its lane, and only Redis knows which one was refused
                await asyncio.gather(*(self._submit([waiting]) for waiting in batch))
        except Exception as error:  # raised where the jobs are awaited
            _fail(batch, error)
        else:
            for waiting, job_id in zip(batch, ids, strict=True):
                if not waiting.job_id.done():
                    waiting.job_id.set_result(job_id)


def _still_waiting(batch: Sequence[_Waiting]) -> list[_Waiting]:
    """Leave out the jobs whose callers were cancelled: they want them no more."""
    return [waiting for waiting in batch if not waiting.job_id.done()]


def _fail(batch: Sequence[_Waiting], error: Exception) -> None:
    for waiting in _still_waiting(batch):
        waiting.job_id.set_exception(_copied(error))


def _copied(error: Exception) -> Exception:
    """Return a copy for one caller: each `raise` adds to the traceback of the object it raises."""
    # not copy.copy, which calls `__init__` with the message, and some errors take other arguments
    copied = type(error).__new__(type(error), *error.args)
    copied.__dict__.update(error.__dict__)
    copied.__cause__, copied.__context__ = error.__cause__, error.__context__
    copied.__suppress_context__ = error.__suppress_context__
    return copied.with_traceback(error.__traceback__)


def _closed() -> ClientUnusable:
    return ClientUnusable("this client was closed before the job was submitted")
