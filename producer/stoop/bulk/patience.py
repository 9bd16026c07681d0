"""Waits for an unreachable queue, and for jobs however long they take."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, TypeVar

from stoop.bulk.port import Client, Note, Stop
from stoop.errors import NotFound, QueueUnavailable, TimedOut, UploadFailed
from stoop_schemas.job import Job
from stoop_schemas.result import Result

__all__ = ["PAUSES", "Patience", "wait"]

_T = TypeVar("_T")

_LOOK_SECONDS: Final = 600.0
PAUSES: Final = (0.5, 1.0, 2.0, 4.0, *(8.0,) * 14)
"""Seconds between tries: two minutes together."""


@dataclass(slots=True)
class Patience:
    """Retries calls of an unreachable queue or store, after each of the `pauses` (seconds).

    It does not wait for one that never answered, because its address is probably wrong.
    """

    stop: Stop
    note: Note
    pauses: tuple[float, ...] = PAUSES
    _met: set[str] = field(default_factory=set)

    async def bear(self, of: str, call: Callable[[], Awaitable[_T]]) -> _T:
        """Call the queue or the store until the call succeeds, the pauses are used up or the run stops.

        Raises the call's last error.
        """
        for seconds in self.pauses:
            try:
                answer = await call()
            except (QueueUnavailable, UploadFailed) as error:
                if self.stop.asked or of not in self._met:
                    raise
                self.note(f"{error}; trying again")
                await self.stop.pause(seconds)
            else:
                self._met.add(of)
                return answer
        return await call()


async def wait(client: Client, job: Job) -> Result:
    """Wait for a job however long it takes; one that the queue has forgotten is submitted again.

    Raises `JobFailed`, `JobCancelled`, `JobExpired` or `QueueUnavailable`.
    """
    while True:
        try:
            return await client.result(job.id, _LOOK_SECONDS)
        except (TimedOut, NotFound):
            await client.submit_many([job])
