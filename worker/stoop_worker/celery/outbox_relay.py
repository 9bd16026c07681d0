"""Delivers endings to Celery.

The result of a task that nothing follows is written directly; the other endings go through the sidecar.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
import structlog
from redis.exceptions import RedisClusterException, RedisError

from stoop_schemas import celery as dialect
from stoop_worker.celery.ending import Ending, Redelivery, read_ending, result_meta
from stoop_worker.celery.outbox import Entry, Outbox
from stoop_worker.celery.sidecar import Sidecar, SidecarLost
from stoop_worker.errors import QueueUnavailable
from stoop_worker.jobs.backoff import Backoff
from stoop_worker.jobs.outage import RedisOutage
from stoop_worker.jobs.redis.connect import Client, close, connect, read_url

__all__ = ["OutboxRelay", "ResultStore"]

log = structlog.get_logger(__name__)

_BATCH_SIZE: Final = 64
_MOST_WAITING: Final = 1024
_TIMEOUT_SECONDS: Final = 10.0
_TRIES: Final = 5
_RECOUNT_SECONDS: Final = 30.0
"""The wait before a chord's part is counted again.

A worker may have died after it counted the last part and before it sent the chord's body.
"""

_WRITE: Final = """
if redis.pcall('GET', KEYS[1]) == ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'EX', ARGV[2])
redis.call('PUBLISH', KEYS[1], ARGV[1])
return 1
"""


class ResultStore:
    """Writes to Celery's result backend on Redis, in its documented form; results are kept for `ttl` seconds.

    A result that is already stored is not published again. The backend may be another Redis than the queue's.
    """

    def __init__(self, url: str, *, ttl: int, outage: RedisOutage) -> None:
        self._outage = outage
        self._client: Client = connect(read_url(url), timeout=_TIMEOUT_SECONDS)
        self._ttl = ttl

    async def write(self, endings: Sequence[Ending]) -> None:
        """Store and publish the results, in order; raises `QueueUnavailable`, and may then be called again."""
        pipe = self._client.pipeline(transaction=False)
        for ending in endings:
            pipe.eval(_WRITE, 1, dialect.result_key(ending.id), result_meta(ending), self._ttl)
        with self._outage.noting("writing Celery's results"):
            try:
                await pipe.execute()
            except (RedisError, RedisClusterException, OSError) as error:
                raise QueueUnavailable(f"Celery's results: {type(error).__name__}") from error

    async def close(self) -> None:
        """Disconnect."""
        await close(self._client)


@dataclass(frozen=True, slots=True)
class _TakenEnding:
    entry: Entry
    ending: Ending


class OutboxRelay:
    """Takes endings from the outbox and delivers them, until cancelled.

    An ending is dropped only after its delivery. If a worker dies in between, another worker delivers the ending again.
    The relay looks for endings of dead workers after `period` seconds without a call of `wake`.
    """

    def __init__(
        self, outbox: Outbox, store: ResultStore, sidecar: Sidecar, *, period: float, outage: RedisOutage
    ) -> None:
        self._outage = outage
        self._outbox = outbox
        self._store = store
        self._sidecar = sidecar
        self._period = period
        self._woken = asyncio.Event()
        self._for_sidecar: asyncio.Queue[_TakenEnding] = asyncio.Queue()
        self._recounts: set[asyncio.Task[None]] = set()
        self._undelivered = 0  # taken and not dropped
        self._empty = asyncio.Event()

    def wake(self) -> None:
        """Look for endings now, because one has just been stored."""
        self._woken.set()
        self._empty.clear()

    async def wait_until_empty(self) -> None:
        """Wait until every ending that is in the outbox now has been delivered."""
        await self._empty.wait()

    async def run(self) -> None:
        """Deliver the stored endings, and those that follow."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._take())
                group.create_task(self._feed_sidecar())
        finally:
            for task in self._recounts:
                task.cancel()
            await self._sidecar.close()
            await self._store.close()

    async def _take(self) -> None:
        backoff = Backoff()
        while True:
            self._woken.clear()
            try:
                with self._outage.noting("delivering to Celery"):
                    full = await self._take_some()
            except QueueUnavailable as error:
                log.debug("endings for Celery wait for Redis", error=str(error))
                await asyncio.sleep(backoff.next())
                continue
            backoff.reset()
            self._mark_empty()
            if not full:
                await _wait(self._woken, self._period)

    async def _take_some(self) -> bool:
        """Take and sort one batch; return whether there may be more."""
        if self._for_sidecar.qsize() >= _MOST_WAITING:
            return False
        entries = await self._outbox.take(_BATCH_SIZE)
        self._undelivered += len(entries)
        held = [one for entry in entries if (one := await self._read(entry))]
        alone = [one for one in held if one.ending.alone]
        for one in held:
            if not one.ending.alone:
                self._for_sidecar.put_nowait(one)
        if alone:
            await self._write(alone)
        return len(entries) == _BATCH_SIZE

    async def _read(self, entry: Entry) -> _TakenEnding | None:
        try:
            return _TakenEnding(entry, read_ending(entry.packed))
        except (msgspec.DecodeError, UnicodeDecodeError):
            log.error("an ending for Celery cannot be read", entry=entry.entry_id)
            await self._drop([entry.entry_id])
            return None

    async def _write(self, held: Sequence[_TakenEnding]) -> None:
        """Write results, retrying while Redis is away; then drop their endings."""
        backoff = Backoff()
        while True:
            try:
                await self._store.write([one.ending for one in held])
                break
            except QueueUnavailable as error:
                log.debug("Celery's results wait for Redis", error=str(error))
            await asyncio.sleep(backoff.next())
        await self._drop([one.entry.entry_id for one in held])

    async def _feed_sidecar(self) -> None:
        while True:
            batch = [await self._for_sidecar.get()]
            while len(batch) < _BATCH_SIZE and not self._for_sidecar.empty():
                batch.append(self._for_sidecar.get_nowait())
            delivered = await self._deliver(batch)
            if failed := [one for one, done in zip(batch, delivered, strict=True) if not done]:
                log.error("tasks that follow a job cannot be sent; only the job's result is stored", jobs=len(failed))
                await self._write(failed)
            ended = []
            for one, done in zip(batch, delivered, strict=True):
                if done and one.entry.taken_over and one.ending.request.get("chord"):
                    recount = asyncio.create_task(self._count_later(one))
                    self._recounts.add(recount)
                    recount.add_done_callback(self._recounts.discard)
                elif done:
                    ended.append(one.entry.entry_id)
            if ended:
                await self._drop(ended)

    async def _count_later(self, one: _TakenEnding) -> None:
        """Count a chord's part again: the worker that died may have counted the last part but not sent the body."""
        await asyncio.sleep(_RECOUNT_SECONDS)
        if await self._deliver_one(one, Redelivery.COUNT):
            await self._drop([one.entry.entry_id])

    async def _drop(self, entry_ids: list[str]) -> None:
        backoff = Backoff()
        while True:
            try:
                await self._outbox.drop(entry_ids)
                break
            except QueueUnavailable:
                await asyncio.sleep(backoff.next())
        self._undelivered -= len(entry_ids)
        self._mark_empty()

    def _mark_empty(self) -> None:
        if self._undelivered == 0 and not self._woken.is_set():
            self._empty.set()

    async def _deliver(self, batch: Sequence[_TakenEnding]) -> list[bool]:
        """Deliver endings through the sidecar, one by one if it dies of the batch; return which were delivered."""
        endings = [(one.entry.packed, Redelivery.AGAIN if one.entry.taken_over else Redelivery.FIRST) for one in batch]
        try:
            refusals = await self._sidecar.deliver(endings)
            return [_is_delivered(one, refusal) for one, refusal in zip(batch, refusals, strict=True)]
        except SidecarLost as error:
            log.warning("the Celery sidecar ended", error=str(error))
        return [await self._deliver_one(one, Redelivery.AGAIN) for one in batch]

    async def _deliver_one(self, one: _TakenEnding, redelivery: Redelivery) -> bool:
        """Return whether the ending was delivered; False if the sidecar refuses it, or dies of it at every try."""
        backoff = Backoff()
        for _ in range(_TRIES):
            try:
                [refusal] = await self._sidecar.deliver([(one.entry.packed, redelivery)])
                return _is_delivered(one, refusal)
            except SidecarLost as error:
                log.warning("the Celery sidecar ended", error=str(error))
            await asyncio.sleep(backoff.next())
        return False


def _is_delivered(one: _TakenEnding, refusal: str) -> bool:
    if refusal:
        log.error("Celery refused an ending", job=one.ending.id, error=refusal)
    return not refusal


async def _wait(event: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return
