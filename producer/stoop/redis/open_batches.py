"""The unfinished batches of a queue, so that any gateway of this queue can continue them, and no gateway of another
queue.
"""

import msgspec

from stoop.redis.calls import RedisCalls, Script
from stoop_schemas import names

__all__ = ["OpenBatches"]


class OpenBatches:
    """Every method raises `QueueUnavailable` when Redis cannot be reached."""

    def __init__(self, url: str) -> None:
        self._calls = RedisCalls(url)
        self._script = Script("stoop.redis", "open_batches")

    async def add(self, batch_id: str, tenant: str | None) -> None:
        """Count a batch among the unfinished ones."""
        await self._write(batch_id, msgspec.json.encode(tenant))

    async def remove(self, batch_id: str) -> None:
        """Take a batch out, if it is there."""
        await self._write(batch_id, b"")

    async def list(self) -> dict[str, str | None]:
        """Return the tenant of each unfinished batch, by the batch's id."""
        packed = msgspec.json.decode(await self._calls.call("GET", names.OPEN_BATCHES) or b"{}", type=dict[str, str])
        return {batch_id: msgspec.json.decode(tenant, type=str | None) for batch_id, tenant in packed.items()}

    async def close(self) -> None:
        """Disconnect; idempotent."""
        await self._calls.close()

    async def _write(self, batch_id: str, tenant: bytes) -> None:
        await self._calls.run(self._script, [names.OPEN_BATCHES], [batch_id, tenant])
