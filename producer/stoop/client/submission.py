"""Many jobs at once, each with its own id or its own refusal."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from stoop.client.outage import Outage
from stoop.errors import IdempotencyConflict, InvalidJob, QueueFull, QueueUnavailable, StoopError
from stoop_schemas import names
from stoop_schemas.job import Job

__all__ = ["CHUNK", "submit_each", "submit_patiently"]

CHUNK: Final = 128
"""Most jobs that are put by one call, all or none of them."""

_Room = tuple[str, int, str | None]
_Put = Callable[[Sequence[Job]], Awaitable[list[str]]]


_AGAIN_SECONDS: Final = 0.5


async def submit_each(put: _Put, jobs: Sequence[Job]) -> list[str | StoopError]:
    """Return the id or the refusal of each job, in their order; `put` takes all of its jobs or raises.

    Refusals are `InvalidJob`, `IdempotencyConflict` and `QueueFull`; raises whatever else `put` raises. A job that was
    put already, if only its reply was lost, is not put again.
    """
    full: dict[_Room, QueueFull] = {}
    replies: list[str | StoopError] = []
    for i in range(0, len(jobs), CHUNK):
        replies += await _submit(put, jobs[i : i + CHUNK], full)
    return replies


async def submit_patiently(put: _Put, jobs: Sequence[Job]) -> list[str | StoopError]:
    """Do what `submit_each` does, and ask again while Redis is away for a while."""
    outage = Outage()
    while True:
        try:
            return await submit_each(put, jobs)
        except QueueUnavailable as error:
            outage.check(error)
            await asyncio.sleep(_AGAIN_SECONDS)


async def _submit(put: _Put, jobs: Sequence[Job], full: dict[_Room, QueueFull]) -> list[str | StoopError]:
    """Halve what is refused until the jobs that are refused stand alone; `full` is what need not be asked again."""
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
    """Return the key of the part that has a bound of its own."""
    return names.model_lane(job.lane, job.model), names.partition(job.id), job.tenant
