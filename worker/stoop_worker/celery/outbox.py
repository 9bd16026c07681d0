"""The notes that wait in Redis to be told to Celery: each is one living worker's, until it has been told."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from schemas import names
from worker.jobs.redis_client import RedisClient, Script

__all__ = ["Entry", "Notes"]


@dataclass(frozen=True, slots=True)
class Entry:
    """One note as it lies there; `taken_over` from a worker that died and may have told it, all or in part."""

    entry_id: str
    packed: bytes
    taken_over: bool


class Notes:
    """The notes of partition 0, where every Celery job lives, as one worker takes and drops them."""

    def __init__(self, redis: RedisClient, worker: str) -> None:
        self._redis = redis
        self._head = [names.stem(0), names.GROUP, worker]
        self._take = Script("head", "notes")
        self._drop = Script("head", "notes_done")
        self._held: set[str] = set()
        self._unanswered = False

    async def take(self, most: int) -> list[Entry]:
        """Take notes that nobody has, and those of dead workers; raises `QueueUnavailable`."""
        lost, self._unanswered = self._unanswered, True
        args = [*self._head, most, int(lost), *(self._held if lost else ())]
        rows = await self._redis.run(self._take, [names.celery_notes(0)], args)
        self._unanswered = False
        entries = [_to_entry(row) for row in rows]
        self._held.update(entry.entry_id for entry in entries)
        return entries

    async def drop(self, entry_ids: Iterable[str]) -> None:
        """Forget what has been told; raises `QueueUnavailable`, and may then be called again."""
        told = list(entry_ids)
        await self._redis.run(self._drop, [names.celery_notes(0)], [*self._head, *told])
        self._held.difference_update(told)


def _to_entry(row: Sequence[bytes | int]) -> Entry:
    entry_id, packed, taken_over = row
    assert isinstance(entry_id, bytes) and isinstance(packed, bytes), "the script gives an id and a note"
    return Entry(entry_id.decode(), packed, taken_over == 1)
