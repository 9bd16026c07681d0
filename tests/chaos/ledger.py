"""The jobs that the queue accepted and how they ended, in a file outside the queue under test.

One JSON line per record: `accepted` when the queue has taken a job, `ended` for every terminal event that a watcher
received, and for every result that was found after its event had been missed.
Each line is written before anybody acts on it, so the file alone decides the verdict.
"""

import asyncio
import json
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["Account", "Ending", "Ledger", "read"]


@dataclass(frozen=True, slots=True)
class Ending:
    """The end of a job at `at` (monotonic seconds): `published` if a watcher received it, else found later."""

    how: str
    at: float
    published: bool


@dataclass(slots=True)
class Account:
    """The contents of a ledger."""

    accepted: dict[str, float] = field(default_factory=dict)
    ended: dict[str, list[Ending]] = field(default_factory=lambda: defaultdict(list))

    def note(self, record: dict[str, Any]) -> None:
        if record["what"] == "accepted":
            self.accepted[record["id"]] = record["at"]
        else:
            self.ended[record["id"]].append(Ending(record["how"], record["at"], record["published"]))

    @property
    def open(self) -> list[str]:
        """Jobs without an end."""
        return [job_id for job_id in self.accepted if job_id not in self.ended]


class Ledger:
    """Writes the records, and lets the code that drives the faults wait for them."""

    def __init__(self, path: Path) -> None:
        self.account = Account()
        self._file = path.open("a", encoding="utf-8")
        self._changed = asyncio.Condition()

    async def accept(self, job_ids: Iterable[str]) -> None:
        await self._note([{"what": "accepted", "id": job_id} for job_id in job_ids])

    async def end(self, job_id: str, how: str, *, published: bool) -> None:
        await self._note([{"what": "ended", "id": job_id, "how": how, "published": published}])

    async def until_ended(self, count: int) -> None:
        """Wait until this many jobs have ended."""
        async with self._changed:
            await self._changed.wait_for(lambda: len(self.account.ended) >= count)

    async def until_these_ended(self, job_ids: Iterable[str]) -> None:
        """Wait for the ends of these jobs."""
        wanted = set(job_ids)
        async with self._changed:
            await self._changed.wait_for(lambda: wanted <= self.account.ended.keys())

    async def until_fewer_open(self, count: int) -> None:
        """Wait until fewer than this many accepted jobs are open."""
        async with self._changed:
            await self._changed.wait_for(lambda: len(self.account.accepted) - len(self.account.ended) < count)

    def close(self) -> None:
        self._file.close()

    async def _note(self, records: list[dict[str, Any]]) -> None:
        at = time.monotonic()
        async with self._changed:
            for record in records:
                self._file.write(json.dumps({**record, "at": at}) + "\n")
                self.account.note({**record, "at": at})
            self._file.flush()
            self._changed.notify_all()


def read(path: Path) -> Account:
    """Read a ledger back."""
    account = Account()
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            account.note(json.loads(line))
    return account
