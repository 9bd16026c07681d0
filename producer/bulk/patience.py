"""Waiting for a queue that goes away, and for jobs however long they take."""

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from producer.bulk.port import Client, Note, Stop
from producer.errors import QueueUnavailable, TimedOut, UploadFailed
from schemas.job import Job
from schemas.result import Result

__all__ = ["patiently", "wait"]

_T = TypeVar("_T")

_LOOK_SECONDS: Final = 600.0
_PAUSES: Final = (0.5, 1.0, 2.0, 4.0, *(8.0,) * 14)
"""Seconds between tries: two minutes together."""


async def patiently(call: Callable[[], Awaitable[_T]], stop: Stop, note: Note) -> _T:
    """Make the call again and again while the queue or the store is away, for two minutes or until the run stops."""
    for seconds in _PAUSES:
        try:
            return await call()
        except (QueueUnavailable, UploadFailed) as error:
            if stop.asked:
                raise
            note(f"{error}; trying again")
            await stop.pause(seconds)
    return await call()


async def wait(client: Client, job: Job) -> Result:
    """Wait for a job however long it takes; one that the queue has forgotten is put there again.

    Raises `JobFailed`, `JobCancelled`, `JobExpired` or `QueueUnavailable`.
    """
    while True:
        try:
            return await client.result(job.id, _LOOK_SECONDS)
        except TimedOut:
            await client.submit_many([job])
