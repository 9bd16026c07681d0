"""The worker's side of the queue in memory."""

import asyncio
import json
import re
from collections.abc import Sequence
from dataclasses import replace

from schemas import names
from schemas.state import TERMINAL, State
from tests.support.memory_queue.store import DeadLetter, Entry, MemoryQueue, Record, queued_event
from worker.errors import ConfigError
from worker.jobs import outcome as outcomes
from worker.jobs.broker import Delivery, EventGroup, Settlement

__all__ = ["MemoryBroker"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")
_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_STATES = {
    outcomes.Completed: State.COMPLETED,
    outcomes.Failed: State.FAILED,
    outcomes.Dead: State.FAILED,
    outcomes.Cancelled: State.CANCELLED,
    outcomes.Expired: State.EXPIRED,
}


class MemoryBroker:
    """The `Broker` of one worker on a `MemoryQueue`."""

    def __init__(
        self,
        queue: MemoryQueue,
        worker: str = "worker-1",
        *,
        lanes: Sequence[str] = names.DEFAULT_LANES,
        result_ttl: float = 86_400.0,
    ) -> None:
        if not lanes or not all(_NAME.fullmatch(name) for name in (worker, *lanes)):
            raise ConfigError(f"{lanes} cannot name lanes")
        self._queue = queue
        self._worker = worker
        self._lanes = tuple(lanes)
        self._result_ttl = result_ttl
        self._takes = 0
        self._closed = asyncio.Event()

    async def open(self) -> None:
        """Take the lease."""
        await self.extend()

    async def take(self, permits: int) -> list[Delivery]:
        """Claim at most `permits` jobs."""
        self._takes += 1
        self._queue.promote_due()
        share = permits // 4 if permits >= 4 else min(permits, int(self._takes % 4 == 0))
        claimed: dict[str, list[Delivery]] = {lane: [] for lane in self._lanes}
        self._fill(self._lanes[-1], claimed, share)
        for lane in self._lanes:
            self._fill(lane, claimed, permits - sum(map(len, claimed.values())))
        return [delivery for deliveries in claimed.values() for delivery in deliveries]

    async def wait(self, timeout: float) -> None:
        """Wait for an entry that nobody has claimed, or for a delayed job."""
        deadline = self._queue.now() + 1000 * timeout
        while not self._closed.is_set():
            if any(self._queue.unclaimed[lane] for lane in self._lanes):
                return
            until = min([deadline, *(due for due, _ in self._queue.delayed.values())])
            self._queue.news.clear()
            waiting = [asyncio.ensure_future(self._queue.news.wait()), asyncio.ensure_future(self._closed.wait())]
            left = max(0.0, (until - self._queue.now()) / 1000)
            done, pending = await asyncio.wait(waiting, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            for task in pending:
                task.cancel()
            await asyncio.gather(*pending, return_exceptions=True)
            if not done:
                return

    async def extend(self) -> None:
        """Renew the lease."""
        self._queue.live.add(self._worker)

    async def append(self, groups: Sequence[EventGroup]) -> list[bool]:
        """Log and publish events of what this worker owns."""
        return [self._append(group) for group in groups]

    async def settle(self, settlements: Sequence[Settlement]) -> list[bool]:
        """End what this worker owns."""
        return [self._settle(settlement) for settlement in settlements]

    async def close(self) -> None:
        """Give the lease back."""
        self._closed.set()
        self._queue.live.discard(self._worker)

    def _fill(self, lane: str, claimed: dict[str, list[Delivery]], room: int) -> None:
        while room > 0 and (entries := list(self._queue.claimable(lane, room))):
            deliveries = [delivery for entry in entries if (delivery := self._claim(lane, entry))]
            claimed[lane] += deliveries
            room -= len(deliveries)

    def _claim(self, lane: str, entry: Entry) -> Delivery | None:
        queue, now = self._queue, self._queue.now()
        job_id, deadline = _read(entry)
        queued_at = int(entry.id.partition("-")[0])
        record = queue.jobs.setdefault(job_id, Record(State.QUEUED, lane, entry.id, queued_at))
        if record.state in TERMINAL or (record.lane, record.entry) != (lane, entry.id):
            del queue.lanes[lane][entry.id]
            return None
        if record.digest and not record.worker:
            queue.logs[job_id][0] = queued_event(job_id)
        record.state, record.worker, record.attempt, record.started_at = (
            State.RUNNING,
            self._worker,
            record.attempt + 1,
            now,
        )
        expired = deadline is not None and deadline <= now
        return Delivery(
            job_id=job_id,
            packed=entry.fields.get("j", b""),
            lane=lane,
            entry_id=entry.id,
            partition=0,
            attempt=record.attempt,
            next_seq=record.seq,
            queued_at=record.queued_at,
            claimed_at=now,
            verdict=outcomes.Cancelled() if record.cancel else outcomes.Expired() if expired else None,
        )

    def _owns(self, delivery: Delivery) -> bool:
        record = self._queue.jobs.get(delivery.job_id)
        if record is None:
            # the queue was emptied: nobody else has the job
            record = Record(State.RUNNING, delivery.lane, delivery.entry_id, delivery.queued_at)
            record.worker, record.attempt = self._worker, delivery.attempt
            self._queue.jobs[delivery.job_id] = record
        held = (record.worker, record.attempt, record.entry, record.state)
        return held == (self._worker, delivery.attempt, delivery.entry_id, State.RUNNING)

    def _append(self, group: EventGroup) -> bool:
        if not self._owns(group.delivery):
            return False
        for seq, event in enumerate(group.packed, group.first_seq):
            self._queue.tell(group.delivery.job_id, seq, event)
        return True

    def _settle(self, settlement: Settlement) -> bool:
        delivery, queue = settlement.delivery, self._queue
        if not self._owns(delivery):
            return False
        entry = queue.lanes[delivery.lane].pop(delivery.entry_id, None)
        record = queue.jobs[delivery.job_id]
        match settlement.outcome:
            case outcomes.Released() | outcomes.Retry() if entry is None:
                return False
            case outcomes.Released():
                assert entry is not None
                record.state, record.attempt = State.QUEUED, record.attempt - 1
                record.entry = queue.put(delivery.lane, _with_id(entry, delivery.job_id).fields)
            case outcomes.Retry(delay=delay):
                assert entry is not None
                record.state = State.DELAYED
                queue.delayed[delivery.job_id] = (
                    queue.now() + round(1000 * delay),
                    _with_id(entry, delivery.job_id),
                )
                queue.news.set()
            case outcome:
                if isinstance(outcome, outcomes.Dead):
                    fields = entry.fields if entry else {}
                    queue.dead.append(DeadLetter(delivery.job_id, delivery.lane, fields, outcome.failure))
                self._finish(settlement)
        return True

    def _finish(self, settlement: Settlement) -> None:
        job_id, queue = settlement.delivery.job_id, self._queue
        queue.results[job_id] = (settlement.result, queue.now() + round(1000 * self._result_ttl))
        queue.tell(job_id, settlement.seq, settlement.event)
        queue.jobs[job_id].state = _STATES[type(settlement.outcome)]
        queue.jobs[job_id].finished_at = queue.now()


def _read(entry: Entry) -> tuple[str, float | None]:
    """Return the job's id (the entry's own if it has none that can be used) and its deadline."""
    try:
        job = json.loads(entry.fields.get("j", b""))
    except (ValueError, RecursionError):
        job = {}
    job = job if isinstance(job, dict) else {}
    given = entry.fields["id"].decode() if "id" in entry.fields else job.get("id")
    deadline = job.get("deadline")
    if not (isinstance(given, str) and _ID.fullmatch(given) and names.partition(given) == 0):
        given = entry.id
    return given, deadline if isinstance(deadline, int | float) else None


def _with_id(entry: Entry, job_id: str) -> Entry:
    return replace(entry, fields={**entry.fields, "id": job_id.encode()})
