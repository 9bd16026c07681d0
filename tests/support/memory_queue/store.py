"""All that Redis would hold, in memory."""

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field

from stoop_schemas import names
from stoop_schemas.codec import pack
from stoop_schemas.event import QueuedEvent
from stoop_schemas.failure import Failure
from stoop_schemas.state import State

__all__ = ["MOST_CRASHES", "DeadLetter", "Entry", "MemoryQueue", "Reader", "Record", "queued_event"]

_BACKLOG = 256
MOST_CRASHES = 3


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a lane."""

    id: str
    fields: Mapping[str, bytes]


@dataclass(slots=True)
class Record:
    """The queue's record of one job, by the names of the hash's fields."""

    state: State
    lane: str
    entry: str
    queued_at: int
    seq: int = 0
    worker: str | None = None
    attempt: int = 0
    cancel: bool = False
    crashes: int = 0
    spared: bool = False
    home: str | None = None
    model: str | None = None
    digest: bytes | None = None
    started_at: int | None = None
    finished_at: int | None = None
    invalid: str | None = None

    @property
    def counted_crashes(self) -> int:
        """The number of crashes that count against the job."""
        return self.crashes - self.spared

    @property
    def place(self) -> str:
        """The lane it belongs to now: home, or a part of the quarantine."""
        apart = 0 < self.counted_crashes < MOST_CRASHES and not self.cancel
        return (
            names.quarantine_lane(names.QUARANTINES[self.counted_crashes - 1], self.model)
            if apart
            else self.home or self.lane
        )


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """An entry that is kept with its failure; `lane` is the job's home."""

    job_id: str
    lane: str
    attempt: int
    crashes: int
    fields: Mapping[str, bytes]
    failure: Failure


@dataclass(slots=True, eq=False)
class MemoryQueue:
    """All that Redis would hold; `now` is its clock, in Unix milliseconds."""

    now: Callable[[], int] = lambda: time.time_ns() // 1_000_000
    lanes: dict[str, dict[str, Entry]] = field(default_factory=lambda: defaultdict(dict))
    unclaimed: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    jobs: dict[str, Record] = field(default_factory=dict)
    keys: dict[tuple[str | None, str | None], str] = field(default_factory=dict)
    logs: dict[str, dict[int, bytes]] = field(default_factory=lambda: defaultdict(dict))
    results: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    delayed: dict[str, tuple[int, Entry]] = field(default_factory=dict)
    dead: list[DeadLetter] = field(default_factory=list)
    live: set[str] = field(default_factory=set)
    paused: set[str] = field(default_factory=set)
    registry: dict[str, bytes] = field(default_factory=dict)
    rings: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    quarantine_workers: dict[str | None, set[str]] = field(default_factory=lambda: defaultdict(set))
    cancelled: list[str] = field(default_factory=list)
    readers: dict[str, set["Reader"]] = field(default_factory=lambda: defaultdict(set))
    news: asyncio.Event = field(default_factory=asyncio.Event)
    entries: int = 0

    def put(self, lane: str, fields: Mapping[str, bytes]) -> str:
        """Add one entry as a raw producer would; return its id."""
        self.entries += 1
        entry = Entry(f"{self.now()}-{self.entries}", dict(fields))
        self.lanes[lane][entry.id] = entry
        self.unclaimed[lane].append(entry.id)
        base, _, tenant = lane.partition("/")
        if tenant and tenant not in self.rings[base]:
            self.rings[base].append(tenant)
        self.news.set()
        return entry.id

    def known(self, job_id: str) -> Record | None:
        """Return a job's record; that of an ended one exists as long as its result."""
        if job_id in self.results and self.now() >= self.results[job_id][1]:
            self.forget(job_id)
        return self.jobs.get(job_id)

    def forget(self, job_id: str) -> None:
        """Forget one job."""
        for kept in (self.jobs, self.results, self.logs):
            kept.pop(job_id, None)

    def depth(self, lane: str) -> int:
        """Count the jobs of a lane, those of its tenants and those in flight included."""
        return sum(len(held) for name, held in self.lanes.items() if name.partition("/")[0] == lane)

    def requeue(self, job_id: str, entry: Entry) -> None:
        """Put a job into its current lane, as a new entry."""
        record = self.jobs[job_id]
        home = record.home or record.lane
        record.lane, record.home = record.place, home
        record.state, record.entry = State.QUEUED, self.put(record.lane, {**entry.fields, "id": job_id.encode()})
        if record.cancel:
            self.cancelled.append(job_id)

    def put_back(self, job_id: str, entry: Entry) -> None:
        """Put a claimed job back into its current lane; if it was there already, it keeps its place."""
        record = self.jobs[job_id]
        if record.place != record.lane:
            self.requeue(job_id, entry)
            return
        record.state, record.worker = State.QUEUED, None
        if record.cancel:
            self.cancelled.append(job_id)
        self.lanes[record.lane][entry.id] = entry
        waiting = [*self.unclaimed[record.lane], entry.id]
        self.unclaimed[record.lane] = sorted(waiting, key=lambda known: int(known.partition("-")[2]))
        self.entries += 1
        self.news.set()

    def crash(self, job_id: str, entry: Entry, *, spare: bool) -> None:
        """Put back a job whose worker died under it; with `spare` the first death does not count."""
        record = self.jobs[job_id]
        record.crashes += 1
        record.spared = record.spared or spare
        self.put_back(job_id, entry)

    def reclaim(self, lanes: Collection[str]) -> int:
        """Take the jobs of dead workers in these lanes away from them."""
        lost = [
            (job_id, entry)
            for job_id, record in self.jobs.items()
            if record.state is State.RUNNING and record.worker not in self.live
            if record.lane.partition("/")[0] in lanes
            if (entry := self.lanes[record.lane].pop(record.entry, None))
        ]
        for job_id, entry in lost:
            self.crash(job_id, entry, spare=True)
        return len(lost)

    def claimable(self, lane: str, most: int) -> Iterator[Entry]:
        """Claim at most `most` unclaimed entries, and yield them."""
        taken, self.unclaimed[lane] = self.unclaimed[lane][:most], self.unclaimed[lane][most:]
        yield from (self.lanes[lane][entry_id] for entry_id in taken)

    def log_event(self, job_id: str, seq: int, event: bytes, *, logged: bool) -> None:
        """Log one event, if the job has a log, and publish it, once."""
        if seq < self.jobs[job_id].seq:
            return
        if logged:
            self.logs[job_id][seq] = event
        self.jobs[job_id].seq = seq + 1
        self.publish(job_id, event)

    def publish(self, job_id: str, event: bytes) -> None:
        """Send an event to every current subscriber of the job."""
        for reader in self.readers[job_id]:
            reader.put(event)

    def promote_due(self) -> None:
        """Put delayed jobs whose time has come back into their lanes."""
        for job_id, (due, entry) in sorted(self.delayed.items(), key=lambda job: job[1][0]):
            if due <= self.now():
                del self.delayed[job_id]
                self.requeue(job_id, entry)

    def clear(self) -> None:
        """Forget everything, like a Redis that is emptied."""
        for kept in (self.lanes, self.unclaimed, self.jobs, self.keys, self.logs, self.results, self.delayed):
            kept.clear()
        self.rings.clear()
        self.paused.clear()
        self.quarantine_workers.clear()
        self.cancelled.clear()
        self.dead.clear()
        self.live.clear()


@dataclass(slots=True, eq=False)
class Reader:
    """The unread messages of one subscriber."""

    silence: float
    unread: asyncio.Queue[bytes | None] = field(default_factory=asyncio.Queue)
    ended: bool = False

    def put(self, packed: bytes | None) -> None:
        """Add one event; a reader that is too slow finds None in place of its unread events."""
        if self.unread.qsize() >= _BACKLOG:
            while not self.unread.empty():
                self.unread.get_nowait()
            packed = None
        self.unread.put_nowait(packed)

    def end(self) -> None:
        """End its iteration."""
        self.ended = True
        self.unread.put_nowait(None)

    async def messages(self) -> AsyncIterator[bytes | None]:
        """Yield events, and None after a silence."""
        while not self.ended:
            try:
                async with asyncio.timeout(self.silence):
                    packed = await self.unread.get()
            except TimeoutError:
                packed = None
            if not self.ended:
                yield packed


def queued_event(job_id: str) -> bytes:
    """Pack the first event of a job."""
    return pack(QueuedEvent(id=job_id, seq=0))
