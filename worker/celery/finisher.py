"""Tells Celery how jobs ended: a lone task's result by one write, whatever goes on from there through the clerk."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
import structlog
from redis.exceptions import RedisClusterException, RedisError

from schemas import celery as dialect
from worker.celery.clerk import Clerk, ClerkLost
from worker.celery.note import Note, Telling, meta, read_note
from worker.celery.notes import Entry, Notes
from worker.errors import QueueUnavailable
from worker.jobs.backoff import Backoff
from worker.jobs.redis_connect import Client, close, connect, read_url

__all__ = ["Finisher", "ResultStore"]

log = structlog.get_logger(__name__)

_AT_ONCE: Final = 64
_MOST_WAITING: Final = 1024
_TIMEOUT_SECONDS: Final = 10.0
_TRIES: Final = 5
_AGAIN_SECONDS: Final = 30.0
"""For so long a chord may belong to a worker that died when it had every part and had not sent what follows."""

_WRITE: Final = """
if redis.call('GET', KEYS[1]) == ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'EX', ARGV[2])
redis.call('PUBLISH', KEYS[1], ARGV[1])
return 1
"""


class ResultStore:
    """Celery's result backend on Redis, written in its documented form; results are kept for `ttl` seconds.

    A result that is there already is not published again.
    """

    def __init__(self, url: str, *, ttl: int) -> None:
        self._client: Client = connect(read_url(url), timeout=_TIMEOUT_SECONDS)
        self._ttl = ttl

    async def write(self, notes: Sequence[Note]) -> None:
        """Store and publish the results, in order; raises `QueueUnavailable`, and may then be called again."""
        pipe = self._client.pipeline(transaction=False)
        for note in notes:
            pipe.eval(_WRITE, 1, dialect.result_key(note.id), meta(note), self._ttl)
        try:
            await pipe.execute()
        except (RedisError, RedisClusterException, OSError) as error:
            raise QueueUnavailable(f"Celery's results: {type(error).__name__}") from error

    async def close(self) -> None:
        """Disconnect."""
        await close(self._client)


@dataclass(frozen=True, slots=True)
class _Held:
    entry: Entry
    note: Note


class Finisher:
    """Takes notes and tells them, until cancelled; after `period` seconds without a word it looks for what is left.

    A note is dropped only when it has been told, so a worker that dies in between leaves it to another, which says
    the same once more.
    """

    def __init__(self, notes: Notes, store: ResultStore, clerk: Clerk, *, period: float) -> None:
        self._notes = notes
        self._store = store
        self._clerk = clerk
        self._period = period
        self._woken = asyncio.Event()
        self._going_on: asyncio.Queue[_Held] = asyncio.Queue()
        self._later: set[asyncio.Task[None]] = set()
        self._open = 0  # taken and not dropped
        self._quiet = asyncio.Event()

    def wake(self) -> None:
        """Say that there is a note."""
        self._woken.set()
        self._quiet.clear()

    async def told_all(self) -> None:
        """Wait until all is told that was there."""
        await self._quiet.wait()

    async def run(self) -> None:
        """Tell what there is and what comes."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._take())
                group.create_task(self._go_on())
        finally:
            for task in self._later:
                task.cancel()
            await self._clerk.close()
            await self._store.close()

    async def _take(self) -> None:
        backoff = Backoff()
        while True:
            self._woken.clear()
            try:
                full = await self._take_some()
            except QueueUnavailable as error:
                log.warning("Celery is told later", error=str(error))
                await asyncio.sleep(backoff.next())
                continue
            backoff.tries = 0
            self._rest()
            if not full:
                await _wait(self._woken, self._period)

    async def _take_some(self) -> bool:
        """Return whether there may be more."""
        if self._going_on.qsize() >= _MOST_WAITING:
            return False
        entries = await self._notes.take(_AT_ONCE)
        self._open += len(entries)
        held = [one for entry in entries if (one := await self._read(entry))]
        alone = [one for one in held if one.note.alone]
        for one in held:
            if not one.note.alone:
                self._going_on.put_nowait(one)
        if alone:
            await self._write(alone)
        return len(entries) == _AT_ONCE

    async def _read(self, entry: Entry) -> _Held | None:
        try:
            return _Held(entry, read_note(entry.packed))
        except (msgspec.DecodeError, UnicodeDecodeError):
            log.error("a note for Celery cannot be read", entry=entry.entry_id)
            await self._drop([entry.entry_id])
            return None

    async def _write(self, held: Sequence[_Held]) -> None:
        """Write results, again and again while Redis is away; then drop their notes."""
        backoff = Backoff()
        while True:
            try:
                await self._store.write([one.note for one in held])
                break
            except QueueUnavailable as error:
                log.warning("Celery's results wait for Redis", error=str(error))
            await asyncio.sleep(backoff.next())
        await self._drop([one.entry.entry_id for one in held])

    async def _go_on(self) -> None:
        while True:
            batch = [await self._going_on.get()]
            while len(batch) < _AT_ONCE and not self._going_on.empty():
                batch.append(self._going_on.get_nowait())
            told = await self._through_clerk(batch)
            if untold := [one for one, done in zip(batch, told, strict=True) if not done]:
                log.error("what follows a task cannot be sent: its result is all that is told", jobs=len(untold))
                await self._write(untold)
            ended = []
            for one, done in zip(batch, told, strict=True):
                if done and one.entry.taken_over and one.note.request.get("chord"):
                    later = asyncio.create_task(self._count_later(one))
                    self._later.add(later)
                    later.add_done_callback(self._later.discard)
                elif done:
                    ended.append(one.entry.entry_id)
            if ended:
                await self._drop(ended)

    async def _count_later(self, one: _Held) -> None:
        """A chord whose last part is told may still be a dead worker's to continue: count the part, once, again."""
        await asyncio.sleep(_AGAIN_SECONDS)
        if await self._alone_through_clerk(one, Telling.COUNT):
            await self._drop([one.entry.entry_id])

    async def _drop(self, entry_ids: list[str]) -> None:
        backoff = Backoff()
        while True:
            try:
                await self._notes.drop(entry_ids)
                break
            except QueueUnavailable:
                await asyncio.sleep(backoff.next())
        self._open -= len(entry_ids)
        self._rest()

    def _rest(self) -> None:
        if self._open == 0 and not self._woken.is_set():
            self._quiet.set()

    async def _through_clerk(self, batch: Sequence[_Held]) -> list[bool]:
        """Return which of them are told: together or, if the clerk dies of that, one by one."""
        words = [(one.entry.packed, Telling.AGAIN if one.entry.taken_over else Telling.FIRST) for one in batch]
        try:
            return [_is_told(one, refused) for one, refused in zip(batch, await self._clerk.tell(words), strict=True)]
        except ClerkLost as error:
            log.warning("the process that has Celery ended", error=str(error))
        return [await self._alone_through_clerk(one, Telling.AGAIN) for one in batch]

    async def _alone_through_clerk(self, one: _Held, telling: Telling) -> bool:
        """Return whether it has been told; False if the clerk refuses it, or died of it again and again."""
        backoff = Backoff()
        for _ in range(_TRIES):
            try:
                [refused] = await self._clerk.tell([(one.entry.packed, telling)])
                return _is_told(one, refused)
            except ClerkLost as error:
                log.warning("the process that has Celery ended", error=str(error))
            await asyncio.sleep(backoff.next())
        return False


def _is_told(one: _Held, refused: str) -> bool:
    if refused:
        log.error("Celery refuses what follows a task", job=one.note.id, error=refused)
    return not refused


async def _wait(event: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return
