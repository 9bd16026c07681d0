"""The queue as the worker sees it: a narrow port, and the values that cross it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from worker.jobs.outcome import Cancelled, Expired, Outcome

__all__ = ["Broker", "Delivery", "EventGroup", "Settlement"]


@dataclass(frozen=True, slots=True)
class Delivery:
    """One arrival of a job at this worker; it is settled exactly once.

    `job_id` is the id in the job or, where none can be read, the entry's own id. `attempt` is 1 for the first
    run. `next_seq` is the number of the next event. Times are Redis's, in Unix milliseconds. A delivery with a
    `verdict` is not to be run, but settled with it: the job was cancelled, or its deadline passed, in its lane.
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
    verdict: Cancelled | Expired | None = None


@dataclass(frozen=True, slots=True)
class EventGroup:
    """Events of one delivery, packed, in the order of their `seq`, the first being `first_seq`."""

    delivery: Delivery
    first_seq: int
    packed: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Settlement:
    """The end of one delivery: its outcome, the packed last event (`seq` is its number) and packed result.

    Event and result are not looked at when the job is to run again (`Retry`, `Released`).
    """

    delivery: Delivery
    outcome: Outcome
    seq: int
    event: bytes
    result: bytes


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

        The last lane has a minimum share: a quarter of the permits or, with fewer than 4, a turn every 4th take.
        """

    async def wait(self, timeout: float) -> None:
        """Return as soon as a job may be there that the last `take` did not see, or after `timeout` seconds."""

    async def extend(self) -> None:
        """Renew this worker's lease on all it has claimed."""

    async def append(self, groups: Sequence[EventGroup]) -> list[bool]:
        """Log and publish events; False for a delivery this worker no longer owns (nothing was written)."""

    async def settle(self, settlements: Sequence[Settlement]) -> list[bool]:
        """Store result, log and publish the last event, acknowledge, all at once; False where not the owner.

        `Retry` and `Released` put the job back instead; a `Dead` one is kept with its failure as well. A delivery
        is settled once: False for one that was settled before.
        """

    async def close(self) -> None:
        """Give the lease back and disconnect; idempotent."""
