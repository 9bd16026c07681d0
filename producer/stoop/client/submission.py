"""Submits many jobs, each with its own id or its own refusal, and waits while a lane is full or the queue is
unreachable.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Final, NamedTuple, Self

from stoop.client.outage import Retrying
from stoop.errors import IdempotencyConflict, InvalidJob, QueueFull, StoopError
from stoop_schemas import names
from stoop_schemas.job import Job

__all__ = ["CHUNK", "Put", "Submitter", "submit_each"]

CHUNK: Final = 128
"""Most jobs that one call submits, all or none of them."""

_Room = tuple[str, int, str | None]
Put = Callable[[Sequence[Job]], Awaitable[list[str]]]
"""Submits jobs and returns their ids; all of them or none."""


async def submit_each(put: Put, jobs: Sequence[Job]) -> list[str | StoopError]:
    """Return the id or the refusal of each job, in their order; `put` takes all of its jobs or raises.

    Refusals are `InvalidJob`, `IdempotencyConflict` and `QueueFull`; any other error of `put` is raised. A job whose
    first reply was lost is not submitted twice.
    """
    full: dict[_Room, QueueFull] = {}
    replies: list[str | StoopError] = []
    for i in range(0, len(jobs), CHUNK):
        replies += await _submit(put, jobs[i : i + CHUNK], full)
    return replies


class _Waiting(NamedTuple):
    """A job that is not in its lane yet, and the future of its id."""

    job: Job
    job_id: asyncio.Future[str]


class Submitter:
    """Submits jobs in order, as many in one call as are waiting; use it in an `async with`.

    `put` takes all of its jobs or raises. While it raises `QueueUnavailable`, `retrying` repeats the call. If a lane is
    full, the jobs that fit are submitted, and the others once the queue expects room.
    """

    def __init__(self, put: Put, retrying: Retrying) -> None:
        self._put = put
        self._retrying = retrying
        self._waiting: asyncio.Queue[_Waiting] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._serve(), name="submitter")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._task is not None, "it was entered"
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def submit(self, job: Job) -> str:
        """Return the job's id once the job is in its lane.

        Raises `InvalidJob` or `IdempotencyConflict` for this job alone, and any other error of `put`.
        """
        waiting = _Waiting(job, asyncio.get_running_loop().create_future())
        self._waiting.put_nowait(waiting)
        return await waiting.job_id

    async def _serve(self) -> None:
        while True:
            batch = [await self._waiting.get()]
            while len(batch) < CHUNK and not self._waiting.empty():
                batch.append(self._waiting.get_nowait())
            while batch:
                batch = await self._submit_batch(batch)

    async def _submit_batch(self, batch: list[_Waiting]) -> list[_Waiting]:
        """Submit the batch. Return the jobs that found their lane full, once it is time to try them again."""
        # a cancelled caller no longer wants its job
        batch = [waiting for waiting in batch if not waiting.job_id.done()]
        try:
            replies = await submit_each(self._put_retrying, [waiting.job for waiting in batch])
            _settle(batch, replies)
            batch = [waiting for waiting, reply in zip(batch, replies, strict=True) if isinstance(reply, QueueFull)]
            if batch:
                seconds = min(reply.retry_after for reply in replies if isinstance(reply, QueueFull))
                self._retrying.note(f"the queue is full; retrying in {seconds:g} s")
                await self._retrying.pause(seconds)
        except Exception as error:  # raised where the jobs are awaited
            _settle(batch, [error] * len(batch))
            return []
        return batch

    async def _put_retrying(self, jobs: Sequence[Job]) -> list[str]:
        return await self._retrying.run(lambda: self._put(jobs))


def _settle(batch: Sequence[_Waiting], replies: Sequence[str | Exception]) -> None:
    """Give each job its id or its refusal, except the jobs whose lane is full."""
    for waiting, reply in zip(batch, replies, strict=True):
        if waiting.job_id.done() or isinstance(reply, QueueFull):
            continue
        if isinstance(reply, str):
            waiting.job_id.set_result(reply)
        else:
            waiting.job_id.set_exception(reply)


async def _submit(put: Put, jobs: Sequence[Job], full: dict[_Room, QueueFull]) -> list[str | StoopError]:
    """Halve a refused call until each refused job stands alone. A room in `full` is not asked again."""
    if all(_room(job) in full for job in jobs):
        return [full[_room(job)] for job in jobs]
    try:
        return list(await put(jobs))
    except (InvalidJob, IdempotencyConflict, QueueFull) as error:
        if len(jobs) == 1:
            if isinstance(error, QueueFull):
                full[_room(jobs[0])] = error
            return [error]
    half = len(jobs) // 2
    return [*await _submit(put, jobs[:half], full), *await _submit(put, jobs[half:], full)]


def _room(job: Job) -> _Room:
    """Return the key of the part of the queue that has its own bound."""
    return names.model_lane(job.lane, job.model), names.partition(job.id), job.tenant
