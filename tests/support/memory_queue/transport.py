"""The producer's side of the queue in memory."""

import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Collection, Mapping, Sequence

import msgspec

from stoop.errors import IdempotencyConflict, InvalidJob, QueueFull
from stoop_schemas import names
from stoop_schemas.codec import pack
from stoop_schemas.failure import Rejected
from stoop_schemas.job import Job, check
from stoop_schemas.state import TERMINAL, State
from stoop_schemas.worker import WorkerRecord, read_record
from tests.support.memory_queue.store import MemoryQueue, Reader, Record, queued_event

__all__ = ["MemoryTransport"]


class MemoryTransport:
    """The `Transport` on a `MemoryQueue`."""

    def __init__(
        self,
        queue: MemoryQueue,
        *,
        bounds: Mapping[str, int] | None = None,
        tenant_bound: int | None = None,
        silence: float = 1.5,
    ) -> None:
        self._queue = queue
        self._tenant_bound = tenant_bound
        self._silence = silence
        self._bounds = dict(bounds or {})

    async def submit(self, jobs: Sequence[Job]) -> list[str]:
        """Put jobs into their lanes: all of them, or none."""
        fresh: dict[str, Job] = {}
        ids = [self._place(job, fresh) for job in jobs]
        self._check_room(fresh.values())
        for job in fresh.values():
            self._put(job)
        return ids

    async def result(self, job_id: str) -> bytes | None:
        """Return the result while it is kept."""
        self._queue.known(job_id)
        return self._queue.results.get(job_id, (None, 0))[0]

    async def state(self, job_id: str) -> str | None:
        """Return the job's state."""
        record = self._queue.known(job_id)
        return record.state.value if record else None

    async def next_seq(self, job_id: str) -> int | None:
        """Return how many events the job has had."""
        record = self._queue.jobs.get(job_id)
        return record.seq if record else None

    async def cancel(self, job_id: str) -> str | None:
        """Flag the job; one that waits is the next to be settled."""
        record = self._queue.known(job_id)
        if record is None or record.state in TERMINAL:
            return record.state.value if record else None
        record.cancel = True
        if job_id in self._queue.delayed:
            self._queue.delayed[job_id] = (0, self._queue.delayed[job_id][1])
            self._queue.news.set()
        elif record.state is State.QUEUED:
            self._queue.cancelled.append(job_id)
            self._queue.entries += 1
            self._queue.news.set()
        return record.state.value

    async def forget(self, job_ids: Sequence[str]) -> None:
        """Forget the jobs that have ended."""
        for job_id in job_ids:
            record = self._queue.known(job_id)
            if record is not None and record.state in TERMINAL:
                self._queue.forget(job_id)

    async def log(self, job_id: str, after: int = -1) -> list[bytes]:
        """Return the events after one."""
        logged = [event for seq, event in sorted(self._queue.logs[job_id].items()) if seq > after]
        if logged or after >= 0 or await self.state(job_id) != State.QUEUED:
            return logged
        return [queued_event(job_id)]

    @contextlib.asynccontextmanager
    async def subscribe(self, job_id: str) -> AsyncIterator[AsyncIterator[bytes | None]]:
        """Follow the job."""
        reader = Reader(self._silence)
        self._queue.readers[job_id].add(reader)
        try:
            yield reader.messages()
        finally:
            self._queue.readers[job_id].discard(reader)

    async def workers(self, partition: int = 0) -> list[WorkerRecord]:
        """Return the records of the live workers."""
        return [record for record, alive in await self.registered(partition) if alive]

    async def registered(self, partition: int = 0) -> list[tuple[WorkerRecord, bool]]:
        """Return all records, and whether each worker lives."""
        return [(read_record(record), name in self._queue.live) for name, record in self._queue.registry.items()]

    async def close(self) -> None:
        """End every subscription."""
        for readers in self._queue.readers.values():
            for reader in readers:
                reader.end()

    def _place(self, job: Job, fresh: dict[str, Job]) -> str:
        try:
            check(job)
        except Rejected as error:
            raise InvalidJob(error.failure) from error
        keyed = {_key(other): other.id for other in fresh.values() if other.idempotency_key}
        under_key = keyed.get(_key(job)) or self._under_key(job)
        known = under_key or job.id
        digest = fresh.get(known) and _digest(fresh[known])
        if record := self._queue.known(known):
            digest = record.digest or b"?"
        if digest and digest != _digest(job):
            raise IdempotencyConflict(known, taken="key" if under_key and known != job.id else "id")
        if not digest:
            fresh[job.id] = job
        return known

    def _under_key(self, job: Job) -> str | None:
        """Return the job that was submitted under the same key; one that the queue has forgotten frees its key."""
        job_id = self._queue.keys.get(_key(job))
        return job_id if job_id and self._queue.known(job_id) else None

    def _check_room(self, fresh: Collection[Job]) -> None:
        for lane, base in {_lane(job): job.lane for job in fresh}.items():
            bound = self._bounds.get(lane, self._bounds.get(base))
            if bound is not None and self._queue.depth(lane) + sum(_lane(job) == lane for job in fresh) > bound:
                raise QueueFull(retry_after=1.0)
        parts = Counter(_part(job) for job in fresh if job.tenant)
        for part, wanted in parts.items():
            if self._tenant_bound is not None and len(self._queue.lanes[part]) + wanted > self._tenant_bound:
                raise QueueFull(retry_after=1.0)

    def _put(self, job: Job) -> None:
        part = _part(job)
        entry_id = self._queue.put(part, {"j": pack(job)})
        self._queue.jobs[job.id] = Record(State.QUEUED, part, entry_id, self._queue.now(), seq=1, digest=_digest(job))
        if job.idempotency_key:
            self._queue.keys[_key(job)] = job.id
        self._queue.publish(job.id, queued_event(job.id))


def _part(job: Job) -> str:
    return names.tenant_lane(_lane(job), job.tenant) if job.tenant else _lane(job)


def _lane(job: Job) -> str:
    return names.model_lane(job.lane, job.model)


def _digest(job: Job) -> bytes:
    return pack(msgspec.structs.replace(job, id=""))


def _key(job: Job) -> tuple[str | None, str | None]:
    """Return the name under which an idempotency key is stored: each tenant has keys of its own."""
    return job.tenant, job.idempotency_key
