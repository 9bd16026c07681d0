"""The client interface that a bulk run needs, and its stop signal."""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from stoop_schemas.job import Job
from stoop_schemas.result import Result

__all__ = ["Client", "Stop", "Stopped"]


class Client(Protocol):
    """The part of `stoop.client.async_client.AsyncClient` that a bulk run uses."""

    async def prepare(
        self,
        skill: str,
        image: str | Path | bytes | None = None,
        *,
        settings: Mapping[str, Any] | None = None,
        **fields: Any,
    ) -> Job:
        """Build a job, uploading its image unless that is already an address."""

    async def submit_many(self, jobs: Sequence[Job]) -> list[str]:
        """Put the jobs into their lanes. A job that is already there is not added again."""

    async def result(self, job_id: str, timeout: float | None = None) -> Result:
        """Wait for the job's result. Raise the job's error if it did not complete."""

    async def forget(self, job_ids: Sequence[str]) -> None:
        """Remove the answers of jobs that have ended from the queue."""


class Stopped(Exception):
    """The run should end, so a row that has not been submitted remains for the next session."""


class Stop:
    """A request to start no more rows, with the first reason given."""

    def __init__(self) -> None:
        self.reason: str | None = None
        self.error: Exception | None = None
        self._asked = asyncio.Event()

    @property
    def asked(self) -> bool:
        """True once the run should end."""
        return self._asked.is_set()

    def ask(self, reason: str, error: Exception | None = None) -> None:
        """Request the end of the run. Only the first reason is kept."""
        if not self.asked:
            self.reason, self.error = reason, error
        self._asked.set()

    def check(self) -> None:
        """Raise `Stopped` if the run should end."""
        if self.asked:
            raise Stopped

    async def pause(self, seconds: float) -> None:
        """Wait for `seconds`. Raises `Stopped` as soon as the run should end."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._asked.wait()
        self.check()
