"""The producer's side of the queue on Redis: submits by script, reads keys, follows channels on one connection."""

import asyncio
import hashlib
import json
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

import msgspec

from stoop.errors import IdempotencyConflict, InvalidJob, QueueFull
from stoop.redis.calls import RedisCalls, Script
from stoop.redis.joint_submission import JointSubmission
from stoop.redis.subscriptions import Subscriptions
from stoop_schemas import names
from stoop_schemas.codec import pack
from stoop_schemas.event import QueuedEvent
from stoop_schemas.failure import Rejected
from stoop_schemas.job import Job, check
from stoop_schemas.signature import SigningKeys
from stoop_schemas.state import State
from stoop_schemas.worker import WorkerRecord, read_record

__all__ = ["DEFAULT_BOUND", "RedisTransport"]

DEFAULT_BOUND: Final = 1_000_000
"""Most jobs in a lane for which no bound is given; about 1 KB of Redis memory each."""

_CHUNK = 128
_COUNTED = 1000
_LAST_SEQ = (1 << 63) - 3  # an entry's id is a number of 64 bits
_COUNT = re.compile(rb"[0-9]{1,15}")  # other producers may write to a job's hash, so anything may be there
_FLAG_TTL = 30 * 86_400_000
"""Milliseconds for which a job that the queue does not know yet stays cancelled: it may wait that long in its lane."""


class RedisTransport:
    """The `Transport` on the Redis that a URL of `stoop_schemas.redis_url` names; connects at first use.

    `bounds` is the largest number of jobs in each lane, those in flight included; `tenant_bound` is the largest number
    for one tenant. An idempotency key is remembered for `idempotency_ttl` seconds. Every `silence` seconds one call
    checks all silent jobs for lost events; a subscriber is given None after the first check, and then when it missed
    events or has heard nothing for 15 s. With `keys` jobs are signed. Every method raises `QueueUnavailable` when Redis
    cannot be reached, after a few tries, and `NotAQueue` when it holds something else.
    """

    def __init__(
        self,
        url: str,
        *,
        bounds: Mapping[str, int] | None = None,
        tenant_bound: int | None = None,
        idempotency_ttl: float = 86_400.0,
        silence: float = 1.0,
        keys: SigningKeys | None = None,
    ) -> None:
        self._keys = keys
        self._bounds = dict(bounds or {})
        self._tenant_bound = DEFAULT_BOUND if tenant_bound is None else tenant_bound
        self._idempotency_ttl = round(1000 * idempotency_ttl)
        # every call may be repeated: submit puts a job once, cancel asks for what is asked already, the rest reads
        self._calls = RedisCalls(url)
        self._subscriptions = Subscriptions(
            self._calls.make_connection, self._calls.address, silence=silence, counts=self._counted
        )
        self._joint = JointSubmission(self._put, _chunks)
        self._submit = Script("stoop.redis", "submit")
        self._cancel = Script("stoop.redis", "cancel")
        self._forget = Script("stoop.redis", "forget")

    async def submit(self, jobs: Sequence[Job]) -> list[str]:
        """Put jobs into their lanes, 128 to a call, where a call puts all of its jobs or none; return their ids.

        A single job shares its call with those that other tasks submit just then, and is put or refused by itself.
        Raises `InvalidJob`, `QueueFull` or `IdempotencyConflict`. The same jobs may be submitted again after an
        error: none is put twice.
        """
        for job in jobs:
            _check(job)
        if len(jobs) == 1:
            return [await self._joint.submit(jobs[0])]
        ids = [""] * len(jobs)
        for chunk in _chunks(jobs):
            replies = await self._put([jobs[i] for i in chunk])
            for i, job_id in zip(chunk, replies, strict=True):
                ids[i] = job_id
        return ids

    async def result(self, job_id: str) -> bytes | None:
        """Read the result's key."""
        packed: bytes | None = await self._calls.call("GET", names.result(job_id))
        return packed

    async def state(self, job_id: str) -> str | None:
        """Read the state in the job's hash."""
        state: bytes | None = await self._calls.call("HGET", names.job(job_id), "state")
        return state.decode(errors="replace") if state else None

    async def next_seq(self, job_id: str) -> int | None:
        """Read the number of events in the job's hash."""
        seq: bytes | None = await self._calls.call("HGET", names.job(job_id), "seq")
        return int(seq) if seq and _COUNT.fullmatch(seq) else None

    async def log(self, job_id: str, after: int = -1) -> list[bytes]:
        """Read the job's log, where the event `seq` has the id `seq + 1`."""
        # the first event reaches the log when a worker claims the job, so ask in this order: no claim comes between
        after = min(max(after, -1), _LAST_SEQ)
        queued = after < 0 and await self.state(job_id) == State.QUEUED
        entries = await self._calls.call("XRANGE", names.log(job_id), f"{after + 2}-0", "+")
        # an entry without an event comes from another program
        return [fields[b"e"] for _, fields in entries if b"e" in fields] or ([_queued(job_id)] if queued else [])

    def subscribe(self, job_id: str) -> AbstractAsyncContextManager[AsyncIterator[bytes | None]]:
        """Follow the job's channel; all subscriptions share one connection."""
        return self._subscriptions.subscribe(names.events(job_id), names.job(job_id))

    async def cancel(self, job_id: str) -> str | None:
        """Flag the job's hash, and notify the workers if the job runs."""
        message = json.dumps({"verb": "cancel", "id": job_id})
        partition = names.partition(job_id)
        keys = [names.job(job_id), names.delayed(partition), names.bell(partition), names.cancelled(partition)]
        state = await self._calls.run(self._cancel, keys, [job_id, names.CONTROL, message, _FLAG_TTL])
        return state.decode(errors="replace") if state else None

    async def forget(self, job_ids: Sequence[str]) -> None:
        """Let the keys of the jobs expire now, 128 jobs to a call."""
        partitions: dict[int, list[str]] = {}
        for job_id in job_ids:
            partitions.setdefault(names.partition(job_id), []).append(job_id)
        for ids in partitions.values():
            for i in range(0, len(ids), _CHUNK):
                chunk = ids[i : i + _CHUNK]
                keys = [key for job_id in chunk for key in (names.job(job_id), names.result(job_id), names.log(job_id))]
                await self._calls.run(self._forget, keys, [])

    async def workers(self, partition: int = 0) -> list[WorkerRecord]:
        """Return the records of live workers."""
        return [record for record, alive in await self.registered(partition) if alive]

    async def registered(self, partition: int = 0) -> list[tuple[WorkerRecord, bool]]:
        """Read the registry and the live keys; it writes nothing, so read-only users may call it."""
        records: dict[bytes, bytes] = await self._calls.call("HGETALL", names.workers(partition))
        keys = [names.live(name.decode(errors="replace"), partition) for name in records]
        lives = await asyncio.gather(*(self._calls.call("EXISTS", key) for key in keys))
        return [(read_record(packed), bool(alive)) for packed, alive in zip(records.values(), lives, strict=True)]

    async def close(self) -> None:
        """Disconnect and end the subscriptions."""
        await self._joint.close()
        await self._subscriptions.close()
        await self._calls.close()

    async def _counted(self, jobs: Sequence[str]) -> list[object]:
        """Read the numbers of events in these jobs' hashes, 1,000 in a round trip; this needs read access alone."""
        counts: list[object] = []
        for i in range(0, len(jobs), _COUNTED):
            counts += await self._calls.read_each([("HGET", key, "seq") for key in jobs[i : i + _COUNTED]])
        return counts

    def _packed(self, job: Job) -> bytes:
        if self._keys is None:
            return pack(job)
        return self._keys.sign(pack(msgspec.structs.replace(job, signature=None)))

    async def _put(self, jobs: Sequence[Job]) -> list[str]:
        lane = _lane(jobs[0])
        partition = names.partition(jobs[0].id)
        keys = [names.lane(lane, partition), names.tenants(lane, partition), names.bell(partition)]
        keys.append(names.tenant_count(lane, partition))
        bound = self._bounds.get(lane, self._bounds.get(jobs[0].lane, DEFAULT_BOUND))
        args: list[Any] = [bound, self._idempotency_ttl, lane, self._tenant_bound]
        for job in jobs:
            keys.append(names.job(job.id))
            if job.idempotency_key is not None:
                keys.append(names.idempotency(job.idempotency_key, names.partition(job.id), job.tenant))
            if job.tenant is not None:
                keys.append(names.lane(names.tenant_lane(lane, job.tenant), partition))
            args += [job.id, _fingerprint(job), int(job.idempotency_key is not None)]
            args += [names.events(job.id), self._packed(job), _queued(job.id), job.tenant or ""]
        kind, *rest = await self._calls.run(self._submit, keys, args)
        if kind == b"full":
            raise QueueFull(rest[0] / 1000)
        if kind == b"conflict":
            raise IdempotencyConflict(rest[0].decode(), taken=rest[1].decode())
        return [job_id.decode() for job_id in rest]


def _check(job: Job) -> None:
    try:
        check(job)
    except Rejected as error:
        raise InvalidJob.of(error) from error


def _chunks(jobs: Sequence[Job]) -> list[list[int]]:
    """Group the places of jobs that go to one lane of one partition, at most 128 together."""
    lanes: dict[tuple[int, str], list[int]] = {}
    for i, job in enumerate(jobs):
        lanes.setdefault((names.partition(job.id), _lane(job)), []).append(i)
    return [places[i : i + _CHUNK] for places in lanes.values() for i in range(0, len(places), _CHUNK)]


def _lane(job: Job) -> str:
    return names.model_lane(job.lane, job.model)


def _fingerprint(job: Job) -> str:
    """Return a digest that differs for every other job. A repeat may differ in id, trace and `store_output`."""
    same = msgspec.structs.replace(job, id="", signature=None, traceparent=None, store_output=False)
    return hashlib.blake2b(pack(same), digest_size=16).hexdigest()


def _queued(job_id: str) -> bytes:
    return pack(QueuedEvent(id=job_id, seq=0))
