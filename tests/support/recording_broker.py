"""A broker that hands out the deliveries that a test puts in, and keeps every settlement that it receives."""

import asyncio
from collections import defaultdict
from collections.abc import Sequence

from stoop_worker.jobs.broker import Delivery, EventGroup, Held, Settlement

__all__ = ["RecordingBroker", "delivery"]


def delivery(job_id: str, packed: bytes = b"", **fields: object) -> Delivery:
    """A first delivery of a job, with these fields changed."""
    given = {"lane": "interactive", "entry_id": f"{job_id}-0", "partition": 0, "attempt": 1, "next_seq": 0}
    times = {"queued_at": 1000, "claimed_at": 1250}
    return Delivery(job_id=job_id, packed=packed, **{**given, **times, **fields})  # type: ignore[arg-type]


class RecordingBroker:
    """The `Broker` port over lists."""

    def __init__(self, deliveries: Sequence[Delivery] = ()) -> None:
        self.queue = list(deliveries)
        self.bursts: list[int] = []
        self.reserved: list[int] = []
        self.settlements: list[Settlement] = []
        self.extended = 0
        self.reclaimed = 0
        self.records: list[bytes] = []
        self.held = Held()
        self.time = 2000
        self.waiting = asyncio.Event()
        self._events: dict[str, list[bytes]] = defaultdict(list)
        self._disowned: set[str] = set()
        self._arrived = asyncio.Event()

    def put(self, *deliveries: Delivery) -> None:
        self.queue += deliveries
        self._arrived.set()

    def disown(self, job_id: str) -> None:
        self._disowned.add(job_id)

    def events(self, job_id: str) -> list[bytes]:
        return self._events[job_id]

    async def open(self) -> None:
        pass

    async def take(self, permits: int, *, reserved: int = 0) -> list[Delivery]:
        assert permits > 0
        self.reserved.append(reserved)
        self._arrived.clear()
        taken, self.queue = self.queue[:permits], self.queue[permits:]
        self.bursts.append(len(taken))
        return taken

    async def wait(self, timeout: float) -> None:
        self.waiting.set()
        await self._arrived.wait()

    async def extend(self, record: bytes = b"") -> Held:
        self.extended += 1
        self.records.append(record)
        return self.held

    async def reclaim(self) -> int:
        self.reclaimed += 1
        return 0

    def now(self) -> int:
        return self.time

    async def append(self, groups: Sequence[EventGroup]) -> list[bool]:
        for group in groups:
            self._events[group.delivery.job_id] += group.packed
        return [group.delivery.job_id not in self._disowned for group in groups]

    async def settle(self, settlements: Sequence[Settlement]) -> list[bool]:
        ours = [settlement.delivery.job_id not in self._disowned for settlement in settlements]
        for settlement, mine in zip(settlements, ours, strict=True):
            if mine:
                self.settlements.append(settlement)
                self._events[settlement.delivery.job_id].append(settlement.event)
        return ours

    async def close(self) -> None:
        pass
