"""The worker's side of the queue in memory."""

import asyncio
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stoop_schemas import names
from stoop_schemas.failure import Failure, FailureCode
from stoop_schemas.state import TERMINAL, State
from stoop_worker.errors import ConfigError
from stoop_worker.jobs import outcome as outcomes
from stoop_worker.jobs.broker import Delivery, EventGroup, Held, Isolation, Settlement
from stoop_worker.jobs.redis.claims import ClaimPlan, Claims, Part
from stoop_worker.jobs.redis.values import priority_of
from tests.support.memory_queue.store import MOST_CRASHES, DeadLetter, Entry, MemoryQueue, Record, queued_event

__all__ = ["MemoryBroker"]

SMALL_BATCH = 16
_SMALL, _ALONE = names.QUARANTINES
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")
_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_STATES = {
    outcomes.Completed: State.COMPLETED,
    outcomes.Failed: State.FAILED,
    outcomes.Dead: State.FAILED,
    outcomes.Cancelled: State.CANCELLED,
    outcomes.Expired: State.EXPIRED,
}


@dataclass(frozen=True, slots=True)
class _Lanes:
    """The lanes of one model, or those without a model."""

    model: str | None
    names: tuple[str, ...]

    @property
    def small(self) -> str:
        return names.quarantine_lane(_SMALL, self.model)

    @property
    def alone(self) -> str:
        return names.quarantine_lane(_ALONE, self.model)

    @property
    def every(self) -> tuple[str, ...]:
        return (*self.names, self.small, self.alone)


class MemoryBroker:
    """The `Broker` of one worker on a `MemoryQueue`."""

    def __init__(
        self,
        queue: MemoryQueue,
        worker: str = "worker-1",
        *,
        lanes: Sequence[str] = names.DEFAULT_LANES,
        models: Sequence[str | None] = (None,),
        result_ttl: float = 86_400.0,
        lane_result_ttls: Mapping[str, float] | None = None,
        tenant_limit: int | None = None,
    ) -> None:
        if not lanes or not all(_NAME.fullmatch(name) for name in (worker, *lanes)):
            raise ConfigError(f"{lanes} cannot name lanes")
        self._queue = queue
        self._worker = worker
        self._all = {model: _Lanes(model, tuple(names.model_lane(lane, model) for lane in lanes)) for model in models}
        self._result_ttl, self._lane_result_ttls = result_ttl, dict(lane_result_ttls or {})
        self._tenant_limit = tenant_limit
        self._takes = 0
        self._seen = -1
        self._closed_lanes: set[str] = set()
        self._claims = Claims(SMALL_BATCH)
        self._settled = asyncio.Event()
        self._closed = asyncio.Event()

    async def open(self) -> None:
        """Take the lease."""
        await self.extend()

    async def take(self, permits: int, *, reserved: int = 0) -> list[Delivery]:
        """Claim at most `permits` jobs; models take turns to be asked first."""
        self._takes += 1
        self._closed_lanes.clear()
        self._seen = self._queue.entries
        self._settled.clear()
        self._queue.promote_due()
        share = permits // 4 if permits >= 4 else min(permits, int(self._takes % 4 == 0))
        turn, every = self._takes % len(self._all), list(self._all.values())
        claimed: list[Delivery] = []
        for lanes in (*every[turn:], *every[:turn]):
            plan = self._claims.plan(Part(0, lanes.model), permits - len(claimed))
            most_behind = permits - reserved - sum(one.priority > 0 for one in claimed)
            if plan is not None:
                claimed += self._claims.accept(self._take_from(lanes, plan, (share, most_behind)), plan)
        return claimed

    def _take_from(self, lanes: "_Lanes", plan: ClaimPlan, behind: tuple[int, int]) -> list[Delivery]:
        early = self._fill_cancelled(plan.permits, lanes.model) if plan.occupancy != "small" else []
        if early:
            self._seen = -1
            return early
        apart = self._quarantined(lanes)
        if plan.occupancy == "small":
            found = self._fill(lanes.small, plan.permits, lanes.model)
        elif apart and plan.quarantine_first:
            self._queue.quarantine_workers[lanes.model].add(self._worker)
            found = self._fill_apart(lanes, apart, plan.permits) if plan.occupancy == "idle" else []
            self._claims.hold_back(None if plan.occupancy == "idle" else Part(0, lanes.model))
        else:
            found = self._fill_lanes(lanes, plan, apart, behind)
        if len(found) == plan.permits:
            self._seen = -1
        return found

    async def wait(self, timeout: float) -> None:
        """Wait for an entry that the last take did not see, for a delayed job or, if that must come first, an end."""
        deadline = self._queue.now() + 1000 * timeout
        while not self._closed.is_set():
            blocked = self._claims.blocked
            if not blocked and self._queue.entries > self._seen and self._has_unclaimed():
                return
            until = deadline if blocked else min([deadline, *(due for due, _ in self._queue.delayed.values())])
            self._queue.news.clear()
            events = (self._closed, self._settled if blocked else self._queue.news)
            done = await _first(events, max(0.0, (until - self._queue.now()) / 1000))
            if not done or blocked:
                return

    async def extend(self, record: bytes = b"") -> Held:
        """Renew the lease."""
        self._queue.live.add(self._worker)
        if record:
            self._queue.registry[self._worker] = record
        held = list(self._claims.held.values())
        ours = [one for one in held if self._owns(one)]
        cancelled = [one for one in ours if self._queue.jobs[one.job_id].cancel]
        return Held(tuple(one for one in held if one not in ours), tuple(cancelled))

    async def reclaim(self) -> int:
        """Put back the jobs of dead workers."""
        return self._queue.reclaim([lane for lanes in self._all.values() for lane in lanes.every])

    def now(self) -> int:
        """Return the queue's time."""
        return self._queue.now()

    async def append(self, groups: Sequence[EventGroup]) -> list[bool]:
        """Log and publish events of deliveries that this worker owns."""
        return [self._append(group) for group in groups]

    async def settle(self, settlements: Sequence[Settlement]) -> list[bool]:
        """End deliveries that this worker owns."""
        settled = [self._settle(settlement) for settlement in settlements]
        self._claims.drop(settlement.delivery.key for settlement in settlements)
        self._settled.set()
        return settled

    async def close(self) -> None:
        """Give up the lease."""
        self._closed.set()
        self._queue.live.discard(self._worker)
        self._queue.registry.pop(self._worker, None)

    def _quarantined(self, lanes: "_Lanes") -> str | None:
        queue = self._queue
        wanted = math.ceil(len(queue.lanes[lanes.small]) / SMALL_BATCH) + len(queue.lanes[lanes.alone])
        living = [
            name for name, record in queue.registry.items() if name in queue.live and _serves(record, lanes.model)
        ]
        most = max(1, math.ceil(len(living) / 2))
        if len((queue.quarantine_workers[lanes.model] & queue.live) - {self._worker}) >= min(wanted, most):
            return None
        return next((lane for lane in (lanes.small, lanes.alone) if queue.unclaimed[lane]), None)

    def _fill_apart(self, lanes: "_Lanes", lane: str, permits: int) -> list[Delivery]:
        return self._fill(lane, min(permits, SMALL_BATCH) if lane == lanes.small else 1, lanes.model)

    def _fill_lanes(
        self, lanes: "_Lanes", plan: ClaimPlan, apart: str | None, behind: tuple[int, int]
    ) -> list[Delivery]:
        self._queue.quarantine_workers[lanes.model].discard(self._worker)
        self._claims.hold_back(None)
        claimed: dict[str, list[Delivery]] = {lane: [] for lane in lanes.names}
        first, last, (share, most_behind) = lanes.names[0], lanes.names[-1], behind

        def room(lane: str) -> int:
            left = plan.permits - sum(map(len, claimed.values()))
            others = sum(len(found) for name, found in claimed.items() if name != first)
            return left if lane == first else max(0, min(left, most_behind - others))

        claimed[last] += self._fill_fairly(last, min(share, room(last)), lanes.model)
        for lane in lanes.names:
            claimed[lane] += self._fill_fairly(lane, room(lane), lanes.model)
        self._closed_lanes.update(lane for lane in lanes.names if room(first) and not room(lane))
        found = [delivery for deliveries in claimed.values() for delivery in deliveries]
        if apart and not found and plan.occupancy == "idle":
            self._queue.quarantine_workers[lanes.model].add(self._worker)
            return self._fill_apart(lanes, apart, plan.permits)
        return found

    def _fill_cancelled(self, room: int, model: str | None) -> list[Delivery]:
        """Claim jobs that were cancelled while they waited, in any lane."""
        queue, found = self._queue, []
        while queue.cancelled and len(found) < room:
            record = queue.jobs[queue.cancelled.pop(0)]
            if record.state is State.QUEUED and not names.quarantine_of(record.lane):
                queue.unclaimed[record.lane].remove(record.entry)
                found.append(self._claim(record.lane, queue.lanes[record.lane][record.entry], model))
        return [delivery for delivery in found if delivery]

    def _fill_fairly(self, lane: str, room: int, model: str | None) -> list[Delivery]:
        """Let the tenants of a lane, and the lane's own entries, take turns."""
        if lane in self._queue.paused:
            return []
        ring = self._queue.rings[lane]
        found: list[Delivery] = []
        if ring and "" not in ring:
            ring.append("")
        idle = 0
        while ring and room > len(found) and idle < len(ring):
            tenant = ring.pop(0)
            ring.append(tenant)
            part = names.tenant_lane(lane, tenant) if tenant else lane
            one = [] if tenant and self._at_limit(part) else self._fill(part, 1, model)
            idle = 0 if one else idle + 1
            found += one
        return found if ring else self._fill(lane, room, model)

    def _at_limit(self, part: str) -> bool:
        running = len(self._queue.lanes[part]) - len(self._queue.unclaimed[part])
        return self._tenant_limit is not None and running >= self._tenant_limit

    def _has_unclaimed(self) -> bool:
        shut = self._closed_lanes | self._queue.paused
        every = [lane for lanes in self._all.values() for lane in lanes.every if lane not in shut]
        parts = [names.tenant_lane(lane, tenant) for lane in every for tenant in self._queue.rings[lane]]
        waiting = [self._queue.cancelled, *(self._queue.unclaimed[lane] for lane in (*every, *parts))]
        return any(waiting)

    def _fill(self, lane: str, room: int, model: str | None) -> list[Delivery]:
        found: list[Delivery] = []
        while room > len(found) and (entries := list(self._queue.claimable(lane, room - len(found)))):
            found += [delivery for entry in entries if (delivery := self._claim(lane, entry, model))]
        return found

    def _claim(self, lane: str, entry: Entry, model: str | None) -> Delivery | None:
        queue, now = self._queue, self._queue.now()
        job_id, deadline = _read(entry)
        queued_at = int(entry.id.partition("-")[0])
        record = queue.jobs.setdefault(job_id, Record(State.QUEUED, lane, entry.id, queued_at))
        if record.state in TERMINAL or (record.lane, record.entry) != (lane, entry.id):
            del queue.lanes[lane][entry.id]
            return None
        record.model = model
        if record.digest and not record.worker and _logged(entry, record):
            queue.logs[job_id][0] = queued_event(job_id)
        record.state, record.worker, record.attempt, record.started_at = (
            State.RUNNING,
            self._worker,
            record.attempt + 1,
            now,
        )
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
            verdict=_verdict(record, expired=deadline is not None and deadline <= now),
            crashes=record.crashes,
            isolation=_isolation(lane),
            priority=priority_of(lane, self._all[model].names),
            logged=_logged(entry, record),
        )

    def _owns(self, delivery: Delivery) -> bool:
        record = self._queue.jobs.get(delivery.job_id)
        if record is None:
            # the queue was emptied: no other worker has the job
            record = Record(State.RUNNING, delivery.lane, delivery.entry_id, delivery.queued_at)
            record.worker, record.attempt = self._worker, delivery.attempt
            self._queue.jobs[delivery.job_id] = record
        held = (record.worker, record.attempt, record.entry, record.state)
        return held == (self._worker, delivery.attempt, delivery.entry_id, State.RUNNING)

    def _append(self, group: EventGroup) -> bool:
        if not self._owns(group.delivery):
            return False
        for seq, event in enumerate(group.packed, group.first_seq):
            self._queue.log_event(group.delivery.job_id, seq, event, logged=group.delivery.logged)
        return True

    def _settle(self, settlement: Settlement) -> bool:
        delivery, queue = settlement.delivery, self._queue
        if not self._owns(delivery):
            return False
        entry = queue.lanes[delivery.lane].pop(delivery.entry_id, None)
        record = queue.jobs[delivery.job_id]
        match settlement.outcome:
            case outcomes.Released() | outcomes.Retry() | outcomes.Crashed() if entry is None:
                return False
            case outcomes.Released():
                assert entry is not None
                record.attempt -= 1
                queue.requeue(delivery.job_id, entry)
            case outcomes.Crashed():
                assert entry is not None
                queue.crash(delivery.job_id, entry, spare=False)
            case outcomes.Retry(delay=delay):
                assert entry is not None
                record.state = State.DELAYED
                due = queue.now() + (0 if record.cancel else round(1000 * delay))
                queue.delayed[delivery.job_id] = (due, entry)
                queue.news.set()
            case outcome:
                if isinstance(outcome, outcomes.Dead):
                    fields = entry.fields if entry else {}
                    home = (record.home or record.lane).partition("/")[0]
                    known = (delivery.job_id, home, record.attempt, record.crashes)
                    queue.dead.append(DeadLetter(*known, fields, outcome.failure))
                self._finish(settlement)
        return True

    def _ttl_of(self, record: Record) -> float:
        home = (record.home or record.lane).partition("/")[0]
        lane = home.removeprefix(f"{record.model}:") if record.model else home
        return self._lane_result_ttls.get(lane, self._result_ttl)

    def _finish(self, settlement: Settlement) -> None:
        job_id, queue = settlement.delivery.job_id, self._queue
        queue.results[job_id] = (settlement.result, queue.now() + round(1000 * self._ttl_of(queue.jobs[job_id])))
        queue.log_event(job_id, settlement.seq, settlement.event, logged=settlement.delivery.logged)
        queue.jobs[job_id].state = _STATES[type(settlement.outcome)]
        queue.jobs[job_id].finished_at = queue.now()


def _serves(record: bytes, model: str | None) -> bool:
    facts = json.loads(record)
    return bool(facts.get("serves_default", True) if model is None else facts.get("name") == model)


def _isolation(lane: str) -> Isolation:
    quarantine = names.quarantine_of(lane)
    return Isolation(quarantine[1]) if quarantine else Isolation.NONE


def _logged(entry: Entry, record: Record) -> bool:
    """Return whether a job's events are logged: if it streams, or if no client submitted it and it leaves this open."""
    try:
        job = json.loads(entry.fields.get("j", b""))
    except (ValueError, RecursionError):
        job = None
    stream = job.get("stream") if isinstance(job, dict) else True
    return stream is True or (stream is not False and not record.digest)


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


def _verdict(record: Record, *, expired: bool) -> outcomes.Cancelled | outcomes.Expired | outcomes.Dead | None:
    if record.cancel:
        return outcomes.Cancelled()
    if record.invalid:
        return outcomes.Dead(Failure.of(FailureCode.MALFORMED, f"its field {record.invalid} is invalid"))
    if expired:
        return outcomes.Expired()
    if record.counted_crashes < MOST_CRASHES:
        return None
    return outcomes.Dead(Failure.of(FailureCode.WORKER_LOST, f"its worker died under it {record.crashes} times"))


async def _first(events: Sequence[asyncio.Event], timeout: float) -> bool:
    """Wait until one of the events is set; False after the timeout."""
    waiting = [asyncio.ensure_future(event.wait()) for event in events]
    done, pending = await asyncio.wait(waiting, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    await asyncio.gather(*pending, return_exceptions=True)
    return bool(done)
