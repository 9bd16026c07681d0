"""The queue as an operator sees it: a narrow port, and the values that cross it.

The texts of dead letters and of workers' records were written by others: escape them before a terminal shows them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

import msgspec

__all__ = [
    "DeadLetter",
    "HeldJob",
    "LaneStatus",
    "LivingWorker",
    "MemoryUse",
    "Operator",
    "QueueStatus",
    "Redriven",
    "TenantStatus",
]


@dataclass(frozen=True, slots=True)
class LaneStatus:
    """One lane now: the numbers of waiting and running jobs, and the age of the oldest waiting one in seconds.

    `served` is true if a live worker claims from the lane; otherwise its jobs wait until one does. `ended` counts the
    jobs of the lane that have ended since the queue was made.
    """

    lane: str
    waiting: int
    in_flight: int
    oldest_seconds: float | None
    paused: bool
    served: bool = True
    ended: int = 0


@dataclass(frozen=True, slots=True)
class QueueStatus:
    """One partition at `at` (Redis's time, Unix ms).

    `quarantined` jobs lost their worker and run again separately from others: `small` in small batches, `alone` by
    themselves; `<model>:small` and `<model>:alone` are those of a model's own lanes. `totals` count since the queue was
    made: endings by state, and `dead`, `retried`, `reclaimed`.
    """

    partition: int
    at: int
    lanes: tuple[LaneStatus, ...]
    delayed: int
    quarantined: Mapping[str, int]
    dead: int
    workers: int
    totals: Mapping[str, int] = field(default_factory=dict)

    @property
    def held(self) -> int:
        """Jobs that have not ended."""
        return sum(lane.waiting + lane.in_flight for lane in self.lanes) + self.delayed + sum(self.quarantined.values())


@dataclass(frozen=True, slots=True)
class LivingWorker:
    """One live worker, and its record (`host`, `pid`, `model`, `permits`, `in_flight`, …)."""

    worker: str
    partition: int
    facts: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TenantStatus:
    """The jobs that one tenant has in one lane, waiting and in flight together."""

    lane: str
    tenant: str
    jobs: int


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """The memory of the queue's server; `limit_bytes` is its maxmemory, 0 for none."""

    used_bytes: int
    limit_bytes: int


@dataclass(frozen=True, slots=True)
class HeldJob:
    """One job that waits in no lane.

    `place` is `delayed` for a job that waits for its next attempt at `due` (Unix ms), and otherwise a key of
    `QueueStatus.quarantined`.
    """

    job_id: str
    place: str
    due: int | None = None


# thousands are read at once, and a dataclass takes four times as long to make
class DeadLetter(msgspec.Struct, frozen=True):
    """One job that will not be tried again; `letter` names it, `at` (Unix ms) is when it was put there.

    `packed` is the entry's unchanged bytes, which may not be a job at all. `code` and `message` are those of its
    failure. Letters of older workers name no `tenant`.
    """

    letter: str
    job_id: str
    lane: str
    attempt: int
    crashes: int
    worker: str
    code: str
    message: str
    at: int
    packed: bytes
    tenant: str = ""


class Redriven(StrEnum):
    """The outcome of redriving one dead letter."""

    YES = "redriven"
    GONE = "gone"  # there is no such letter (any more)
    LIVES = "lives"  # its job was submitted again meanwhile, or has completed


class Operator(Protocol):
    """Reads and changes the queue; every call except `lanes` costs at most one page, however much the queue
    holds.

    Every method raises `QueueUnavailable` when the queue cannot be reached.
    """

    async def status(self, lanes: Sequence[str], partition: int = 0) -> QueueStatus:
        """Count the jobs of one partition."""

    async def lanes(self, partition: int = 0) -> list[str]:
        """Name every lane that a worker serves or that has a stream, including those that no worker serves. This reads
        every key, which takes a second for some millions, so do not poll it.
        """

    async def workers(self, partition: int = 0) -> list[LivingWorker]:
        """List the live workers, and remove the others from the registry."""

    async def letters(self, count: int, *, before: str | None = None, partition: int = 0) -> list[DeadLetter]:
        """Return at most `count` dead letters, newest first, of those older than the letter `before`."""

    async def failures(self, count: int, *, before: str | None = None, partition: int = 0) -> list[DeadLetter]:
        """Return dead letters as `letters` does, without their jobs: `packed` is empty, and the cost small."""

    async def tenants(self, lanes: Sequence[str], partition: int = 0) -> list[TenantStatus]:
        """List the tenants that have jobs in these lanes, at most a hundred of each lane."""

    async def memory(self) -> MemoryUse | None:
        """Return the memory that the queue's server uses; None if the server does not report it."""

    async def job(self, job_id: str) -> Mapping[str, str]:
        """Return the record of a job (`state`, `lane`, `attempt`, `worker`, `queued_at`, …); empty if unknown."""

    async def held(self, lanes: Sequence[str], count: int, partition: int = 0) -> list[HeldJob]:
        """List at most `count` jobs of each place outside the lanes; the models with a quarantine follow from these
        lanes.
        """

    async def packed(self, job_id: str) -> bytes:
        """Return the unchanged bytes of a waiting or running job; empty for a job that has ended."""

    async def find(self, letter_or_job: str, partition: int = 0) -> DeadLetter | None:
        """Return the dead letter of this name, or that of the job of this id."""

    async def redrive(self, letters: Sequence[DeadLetter], partition: int = 0) -> list[Redriven]:
        """Send letters back to their lanes: the same job id, with attempts counted from 0. At most a page of them."""

    async def purge(self, letters: Sequence[DeadLetter], partition: int = 0) -> int:
        """Delete letters for ever, and return how many were there."""

    async def pause(self, lane: str, partition: int = 0) -> bool:
        """Let no worker claim from the lane until `resume`; it still accepts jobs. False if it was paused already."""

    async def resume(self, lane: str, partition: int = 0) -> bool:
        """Let workers claim from the lane again. False if it was not paused."""

    async def close(self) -> None:
        """Disconnect; idempotent."""
