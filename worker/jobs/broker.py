"""The queue as the worker sees it: a narrow port, and the values that cross it."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from worker.jobs.outcome import Cancelled, Dead, Expired, Outcome

__all__ = ["Broker", "Delivery", "EventGroup", "Held", "Isolation", "Settlement"]


class Isolation(StrEnum):
    """What may run beside a delivery."""

    NONE = "none"  # whatever else there is
    SMALL = "small"  # only a few others like it: it was in an engine that crashed
    ALONE = "alone"  # nothing: it crashed in a small batch as well


@dataclass(frozen=True, slots=True)
class Delivery:
    """One arrival of a job at this worker; it is settled exactly once.

    `job_id` is the id in the job or, where none can be read, the entry's own id. `attempt` is 1 for the first
    run, `crashes` says how many runs ended with their worker's death; those do not count against the job's attempts.
    `next_seq` is the number of the next event. Times are Redis's, in Unix milliseconds. A delivery with a `verdict` is
    not to be run, but settled with it: the job was cancelled, its deadline passed, or it crashed a worker on its own.
    With `celery`, `packed` is a Celery message and not our own JSON.
    """

    job_id: str
    packed: bytes
    lane: str
    entry_id: str
    partition: int
    attempt: int
    next_seq: int
    queued_at: int
    claimed_at: int
    verdict: Cancelled | Expired | Dead | None = None
    crashes: int = 0
    isolation: Isolation = Isolation.NONE
    celery: bool = False


@dataclass(frozen=True, slots=True)
class Held:
    """What became of the claimed jobs since the last look; in both cases the run is to be broken off.

    `lost` ones belong to another worker by now, or have ended: nothing more can be told of them, and settling them
    gives False. `cancelled` ones are still this worker's, to be settled as `Cancelled`.
    """

    lost: tuple[Delivery, ...] = ()
    cancelled: tuple[Delivery, ...] = ()


@dataclass(frozen=True, slots=True)
class EventGroup:
    """Events of one delivery, packed, in the order of their `seq`, the first being `first_seq`."""

    delivery: Delivery
    first_seq: int
    packed: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Settlement:
    """The end of one delivery: its outcome, the packed last event (`seq` is its number) and packed result.

    Event, result and note are not looked at when the job is to run again (`Retry`, `Released`, `Crashed`). A `note` is
    what Celery is to be told of the end: it is kept in the same step, until that has been done.
    """

    delivery: Delivery
    outcome: Outcome
    seq: int
    event: bytes
    result: bytes
    note: bytes = b""


class Broker(Protocol):
    """Claims deliveries for one worker instance, and settles them.

    While Redis is away `take` finds nothing and `wait` waits; `extend`, `append` and `settle` raise
    `QueueUnavailable`, and the same call may be made again: what it had written is not written twice.
    """

    async def open(self) -> None:
        """Connect, make the groups, check that Redis cannot evict jobs, take the lease.

        Raises `ConfigError` if Redis is not fit for a queue or refuses this worker, `QueueUnavailable` if it does
        not answer for long.
        """

    async def take(self, permits: int) -> list[Delivery]:
        """Claim at most `permits` jobs that are there now, in the order of the lanes, without waiting.

        The last lane has a minimum share: a quarter of the permits or, with fewer than 4, a turn every 4th take. Within
        a lane tenants take turns. Nothing is claimed from a lane that is paused.

        All that is claimed and not settled has the same `isolation`: when quarantined jobs wait and it is this
        worker's turn to run them, `take` finds nothing until all else is settled, then at most a small batch of
        them, or one alone; and again nothing until these are settled. `wait` knows of it, and waits for that.
        """

    async def wait(self, timeout: float) -> None:
        """Return as soon as a job may be there that the last `take` did not see, or after `timeout` seconds."""

    async def extend(self, told: bytes = b"") -> Held:
        """Renew this worker's lease on all it has claimed, and say which of that is not to run on.

        `told` is a JSON object for the registry of workers: what this worker tells of itself.
        """

    async def reclaim(self) -> int:
        """Take the jobs of dead workers away from them, and return how many there were.

        A worker is dead when its lease has run out. The first time that happens to a job, it is the next to be claimed
        where it was. After that it is a suspect, as after a crash of the engine (`Crashed`): it goes to the quarantine,
        or back to its lane with a verdict if it had run alone. Call it about three times a lease.
        """

    def now(self) -> int:
        """Return Redis's time in Unix ms, as last read and counted on from there; deadlines are meant in it."""

    async def append(self, groups: Sequence[EventGroup]) -> list[bool]:
        """Log and publish events; False for a delivery this worker no longer owns (nothing was written)."""

    async def settle(self, settlements: Sequence[Settlement]) -> list[bool]:
        """Store result, log and publish the last event, acknowledge, all at once; False where not the owner.

        `Retry`, `Released` and `Crashed` put the job back instead; a `Dead` one is kept with its failure as well. A
        delivery is settled once: False for one that was settled before. A job that was cancelled meanwhile and has
        its answer is answered; one that is put back comes again at once, with its verdict.
        """

    async def close(self) -> None:
        """Give the lease back and disconnect; idempotent."""
