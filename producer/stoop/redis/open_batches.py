"""The unfinished batches of a queue, so that any gateway of this queue can continue them, and no gateway of another
queue.
"""

import msgspec

from stoop.redis.calls import RedisCalls, Script
from stoop_schemas import names

__all__ = ["BatchPlace", "OpenBatches"]


class BatchPlace(msgspec.Struct, frozen=True):
    """The bucket that has a batch, and the tenant whose folder it is in."""

    bucket: str
    tenant: str | None


class OpenBatches:
    """Every method raises `QueueUnavailable` when Redis cannot be reached."""

    def __init__(self, url: str) -> None:
        self._calls = RedisCalls(url)
        self._script = Script("stoop.redis", "open_batches")

    async def add(self, batch_id: str, place: BatchPlace) -> None:
        """Count a batch among the unfinished ones."""
        await self._write(batch_id, msgspec.json.encode(place))

    async def remove(self, batch_id: str) -> None:
        """Take a batch out, if it is there."""
        await self._write(batch_id, b"")

    async def list(self) -> dict[str, BatchPlace]:
        """Return where each unfinished batch is stored, by the batch's id."""
        packed = msgspec.json.decode(await self._calls.call("GET", names.OPEN_BATCHES) or b"{}", type=dict[str, str])
        return {batch_id: msgspec.json.decode(place, type=BatchPlace) for batch_id, place in packed.items()}

    async def close(self) -> None:
        """Disconnect; idempotent."""
        await self._calls.close()

    async def _write(self, batch_id: str, place: bytes) -> None:
        await self._calls.run(self._script, [names.OPEN_BATCHES], [batch_id, place])
