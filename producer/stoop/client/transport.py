"""The queue as a producer sees it: a narrow port, and the values that cross it."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from stoop_schemas.job import Job
from stoop_schemas.worker import WorkerRecord

__all__ = ["Transport"]


class Transport(Protocol):
    """Submits jobs, and reads their states, events and results."""

    async def submit(self, jobs: Sequence[Job]) -> list[str]:
        """Put jobs into their lanes, pipelined; return their ids (for an idempotency key seen before, the first job's).

        Raises `QueueFull` (with `retry_after`, seconds) or `IdempotencyConflict`.
        """

    async def result(self, job_id: str) -> bytes | None:
        """Return the packed result, or None if there is none (yet, or any more)."""

    async def state(self, job_id: str) -> str | None:
        """Return the job's state, or None if the queue does not know the job."""

    async def next_seq(self, job_id: str) -> int | None:
        """Return how many events the job has had, or None if the queue does not know the job (yet, or any more)."""

    async def cancel(self, job_id: str) -> str | None:
        """Request the cancellation of a job; return the state it was in, or None if the queue does not know it (yet).

        A waiting job never runs and a running one is stopped; a job that has ended stays as it is. May be repeated.
        """

    async def forget(self, job_ids: Sequence[str]) -> None:
        """Remove the results, events and states of the jobs that have ended; the other jobs stay. May be repeated."""

    async def log(self, job_id: str, after: int = -1) -> list[bytes]:
        """Return the packed events whose `seq` is greater than `after`, in order."""

    def subscribe(self, job_id: str) -> AbstractAsyncContextManager[AsyncIterator[bytes | None]]:
        """Yield packed events as they are published, from the moment the context is entered.

        Yields None after a lost connection, and from time to time in a silence. Events may have been missed then, so
        read the log.
        """

    async def workers(self, partition: int = 0) -> list[WorkerRecord]:
        """Return the records of a partition's live workers."""

    async def registered(self, partition: int = 0) -> list[tuple[WorkerRecord, bool]]:
        """Return the records of a partition's workers, and whether each is alive.

        One that is not let its lease run out: it crashed, or was cut off from the queue and may come back.
        """

    async def close(self) -> None:
        """Disconnect; idempotent."""
