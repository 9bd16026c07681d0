"""The queue as the worker sees it: a narrow port, and the values that cross it."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Protocol

from stoop_worker.jobs.outcome import Cancelled, Dead, Expired, Outcome

__all__ = ["Broker", "Delivery", "DeliveryKey", "EventGroup", "Held", "Isolation", "Settlement"]


class Isolation(StrEnum):
    """The deliveries that may run beside this one."""

    NONE = "none"  # any others
    SMALL = "small"  # only a few others like it: it was in an engine that crashed
    ALONE = "alone"  # nothing: it crashed in a small batch as well


class DeliveryKey(NamedTuple):
    """Distinguishes a delivery from every other, including earlier ones of the same job."""

    partition: int
    lane: str
    entry_id: str
    attempt: int


@dataclass(frozen=True, slots=True)
class Delivery:
    """One arrival of a job at this worker; it is settled exactly once.

    `job_id` is the id in the job or, if none can be read, the entry's own id. `attempt` is 1 for the first run.
    `crashes` counts the runs that ended with their worker's death; those do not count against the job's attempts.
    `next_seq` is the number of the next event. Times are Redis's, in Unix milliseconds. A delivery with a `verdict`
    must be settled with it and not run: the job was cancelled, its deadline passed, or it crashed a worker on its own.
    With `celery`, `packed` is a Celery message and not our own JSON. `priority` is its lane's place among the worker's
    lanes: 0 is the first lane and goes first at every stage. If it is not `logged`, its events are only published,
    because the job has no stream.
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
    priority: int = 0
    logged: bool = True

    @property
    def key(self) -> DeliveryKey:
        """The key that distinguishes this delivery from every other."""
        return DeliveryKey(self.partition, self.lane, self.entry_id, self.attempt)


@dataclass(frozen=True, slots=True)
class Held:
    """Jobs that this worker must stop running: lost to another worker, or cancelled.

    A `lost` job belongs to another worker or has ended: its events are refused, and settling it gives False. A
    `cancelled` job is still this worker's, which settles it as `Cancelled`.
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

    Event, result and `celery_ending` are ignored if the job will run again (`Retry`, `Released`, `Crashed`). The
    same step stores the ending for Celery, which stays until it is delivered.
    """

    delivery: Delivery
    outcome: Outcome
    seq: int
    event: bytes
    result: bytes
    celery_ending: bytes = b""


class Broker(Protocol):
    """Claims deliveries for one worker instance, and settles them.

    During a Redis outage `take` finds nothing and `wait` waits; `extend`, `append` and `settle` raise
    `QueueUnavailable`. The same call may be repeated, because nothing is written twice.
    """

    async def open(self) -> None:
        """Connect, make the groups, check that Redis cannot evict jobs, take the lease.

        Raises `ConfigError` if Redis is not fit for a queue or refuses this worker, `QueueUnavailable` if it does not
        answer for a long time.
        """

    async def take(self, permits: int, *, reserved: int = 0) -> list[Delivery]:
        """Claim at most `permits` waiting jobs, in the order of the lanes, without blocking.

        `reserved` of the permits are for the first lane alone. Once no other permit is free, `wait` ignores news in
        the other lanes.

        The last lane has a minimum share: a quarter of the permits or, with fewer than 4, a turn every 4th take. Within
        a lane tenants take turns. A paused lane gives no jobs.

        All claimed jobs that are not yet settled have the same `isolation`. When quarantined jobs wait and it is this
        worker's turn to run them, `take` finds nothing until all other jobs are settled. It then claims a small batch
        of them, or one alone, and finds nothing again until these are settled. `wait` waits for that, too.
        """

    async def wait(self, timeout: float) -> None:
        """Return as soon as there may be a job that the last `take` did not see, or after `timeout` seconds."""

    async def extend(self, record: bytes = b"") -> Held:
        """Renew this worker's lease on its claimed jobs, and return those that it must stop running.

        `record` is this worker's record for the registry of workers, a JSON object. Raises `ConfigError` if the queue
        is no longer fit for jobs, as in `open`.
        """

    async def reclaim(self) -> int:
        """Take the jobs of dead workers away from them, and return their number.

        A worker is dead when its lease has run out. The first time a job loses its worker, it is the next to be
        claimed from the place where it waited. After that it is a suspect, as after a crash of the engine (`Crashed`):
        it goes to the quarantine, or back to its lane with a verdict if it had run alone. Call this about three times
        per lease.
        """

    def now(self) -> int:
        """Return Redis's time in Unix ms, extrapolated from the last reading; deadlines refer to this clock."""

    async def append(self, groups: Sequence[EventGroup]) -> list[bool]:
        """Log and publish events; False for a delivery this worker no longer owns (nothing was written)."""

    async def settle(self, settlements: Sequence[Settlement]) -> list[bool]:
        """Store result, log and publish the last event, acknowledge, all at once; False where not the owner.

        `Retry`, `Released` and `Crashed` put the job back instead; a `Dead` job is also kept with its failure. A
        delivery is settled once: False if it was settled before. A job that was cancelled meanwhile keeps its answer
        if it has one; if it is put back, it is delivered again at once, with its verdict.
        """

    async def close(self) -> None:
        """Give the lease back and disconnect; idempotent."""
