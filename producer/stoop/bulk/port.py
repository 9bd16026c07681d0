"""The queue as a bulk run needs it, and the wish to end the run."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from schemas.job import Job
from schemas.result import Result

__all__ = ["Client", "Note", "Stop"]

Note = Callable[[str], None]
"""Tells the user one line."""


class Client(Protocol):
    """What a bulk run asks of `producer.client.AsyncClient`."""

    async def prepare(
        self,
        skill: str,
        image: str | Path | bytes | None = None,
        *,
        settings: Mapping[str, Any] | None = None,
        **fields: Any,
    ) -> Job:
        """Make a job, uploading its image if it is no address."""

    async def submit_many(self, jobs: Sequence[Job]) -> list[str]:
        """Put the jobs into their lanes; one that is there already is not put twice."""

    async def result(self, job_id: str, timeout: float | None = None) -> Result:
        """Wait for the job to complete, or raise what it ended with."""


class Stop:
    """The wish to begin nothing new, and the first reason for it."""

    def __init__(self) -> None:
        self.reason: str | None = None
        self.error: Exception | None = None
        self._asked = asyncio.Event()

    @property
    def asked(self) -> bool:
        """Whether the run is to end."""
        return self._asked.is_set()

    def ask(self, reason: str, error: Exception | None = None) -> None:
        """Ask for the end; the first reason stays."""
        if not self.asked:
            self.reason, self.error = reason, error
        self._asked.set()

    async def pause(self, seconds: float) -> None:
        """Wait that long, but no longer than until the run is to end."""
        try:
            async with asyncio.timeout(seconds):
                await self._asked.wait()
        except TimeoutError:
            return
