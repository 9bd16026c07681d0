"""The endings in Redis that wait for delivery to Celery. Each belongs to one living worker until delivered."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from stoop_schemas import names
from stoop_worker.jobs.redis.client import RedisClient, Script

__all__ = ["Entry", "Outbox"]


@dataclass(frozen=True, slots=True)
class Entry:
    """One packed ending. `taken_over` is true if its last worker died and may have delivered it, at least in part."""

    entry_id: str
    packed: bytes
    taken_over: bool


class Outbox:
    """One worker's view of the outbox in partition 0, where every Celery job lives."""

    def __init__(self, redis: RedisClient, worker: str) -> None:
        self._redis = redis
        self._prelude = [names.stem(0), names.GROUP, worker]
        self._take = Script("prelude", "outbox_take")
        self._drop = Script("prelude", "outbox_drop")
        self._held: set[str] = set()
        self._unanswered = False

    async def take(self, most: int) -> list[Entry]:
        """Take unclaimed endings, and those of dead workers; raises `QueueUnavailable`."""
        lost, self._unanswered = self._unanswered, True
        args = [*self._prelude, most, int(lost), *(self._held if lost else ())]
        rows = await self._redis.run(self._take, [names.celery_outbox(0)], args)
        self._unanswered = False
        entries = [_to_entry(row) for row in rows]
        self._held.update(entry.entry_id for entry in entries)
        return entries

    async def drop(self, entry_ids: Iterable[str]) -> None:
        """Remove delivered endings; raises `QueueUnavailable`, and may then be called again."""
        delivered = list(entry_ids)
        await self._redis.run(self._drop, [names.celery_outbox(0)], [*self._prelude, *delivered])
        self._held.difference_update(delivered)


def _to_entry(row: Sequence[bytes | int]) -> Entry:
    entry_id, packed, taken_over = row
    assert isinstance(entry_id, bytes) and isinstance(packed, bytes), "the script returns an id and an ending"
    return Entry(entry_id.decode(), packed, taken_over == 1)
