"""Waiting for jobs without claiming any: blocking reads of the lanes on connections of their own."""

import asyncio
from collections.abc import Mapping, Sequence

from stoop_worker.errors import QueueFault, QueueUnavailable
from stoop_worker.jobs.backoff import Backoff
from stoop_worker.jobs.outage import RedisOutage
from stoop_worker.jobs.redis.claims import Part
from stoop_worker.jobs.redis.client import RedisClient

__all__ = ["Watch"]

_BLOCK_SECONDS = 5.0
# longer than any read blocks, so that only a dead connection runs into it
_TIMEOUT_SECONDS = 10.0
_LAST_SECONDS = 1.0


class Watch:
    """Remembers up to where each lane has been claimed, and reads from there.

    `lanes` are the streams of each part. One read watches them all, but on a Cluster, which keeps partitions apart:
    there each part has a connection of its own.
    """

    def __init__(self, url: str, lanes: Mapping[Part, Sequence[str]], outage: RedisOutage) -> None:
        self._outage = outage
        self._redis = RedisClient(url, timeout=_TIMEOUT_SECONDS)
        self._lanes = {part: tuple(streams) for part, streams in lanes.items()}
        together = [tuple(self._lanes)] if self._redis.is_one_server else [(part,) for part in self._lanes]
        self._reads: Sequence[tuple[Part, ...]] = together
        self._ends: dict[Part, Sequence[bytes]] = {part: [b"0-0"] * len(s) for part, s in self._lanes.items()}
        self._due: dict[int, float] = {}
        self._spoilt: dict[Part, frozenset[str]] = {}
        self._closed = asyncio.Event()
        self._left: set[asyncio.Task[bool]] = set()  # cancelled reads that may still block

    def update(
        self, part: Part, ends: Sequence[bytes], due_in: float | None, spoilt: frozenset[str] = frozenset()
    ) -> None:
        """Record a take's findings: the last claimed id of each lane, and when a delayed job is due (seconds from now).

        `spoilt` keys are not streams, and are not read.
        """
        self._ends[part], self._spoilt[part] = ends, spoilt
        self._due.pop(part.partition, None)
        if due_in is not None:
            self.expect(part.partition, due_in)

    def expect(self, partition: int, due_in: float) -> None:
        """Note that a delayed job is due in a number of seconds."""
        due = asyncio.get_running_loop().time() + due_in
        self._due[partition] = min(due, self._due.get(partition, due))

    async def wait(self, timeout: float) -> None:
        """Return at news in a lane, at a delayed job's time or after `timeout` seconds, whatever Redis does meanwhile.

        Entries claimed by a take whose reply was lost count as news, because `update` was not called for them.
        """
        loop, backoff = asyncio.get_running_loop(), Backoff()
        deadline = loop.time() + timeout
        while not self._closed.is_set() and (left := min([deadline, *self._due.values()]) - loop.time()) > 0:
            try:
                news = await self._news(min(left, _BLOCK_SECONDS))
                self._outage.succeeded("watching the lanes")
                if news:
                    return
                backoff.reset()
            except (QueueUnavailable, QueueFault) as error:
                if self._closed.is_set():
                    return
                self._outage.failed("watching the lanes", error)
                await asyncio.sleep(min(max(0.0, deadline - loop.time()), backoff.next()))

    async def close(self) -> None:
        """Disconnect; a wait in progress returns."""
        self._closed.set()
        await self._redis.close()
        if self._left:
            await asyncio.wait(self._left, timeout=_LAST_SECONDS)

    async def _news(self, seconds: float) -> bool:
        if len(self._reads) == 1:
            return await self._read(self._reads[0], seconds)
        reads = [asyncio.create_task(self._read(parts, seconds)) for parts in self._reads]
        try:
            done, _ = await asyncio.wait(reads, return_when=asyncio.FIRST_COMPLETED)
            return any(read.result() for read in done)
        finally:
            for read in reads:
                self._leave(read)

    def _leave(self, read: asyncio.Task[bool]) -> None:
        """Cancel a read without waiting for its end.

        On Python 3.11 redis-py loses the cancellation of a read that has just begun, so that it blocks for its time.
        """
        read.cancel()
        self._left.add(read)
        read.add_done_callback(self._ended)

    def _ended(self, read: asyncio.Task[bool]) -> None:
        self._left.discard(read)
        if not read.cancelled():
            read.exception()  # nobody else asks for it

    async def _read(self, parts: Sequence[Part], seconds: float) -> bool:
        milliseconds = max(1, round(1000 * seconds))  # 0 would be for ever
        known = [
            (stream, end)
            for part in parts
            for stream, end in zip(self._lanes[part], self._ends[part], strict=True)
            if stream not in self._spoilt.get(part, ())
        ]
        if not known:
            await asyncio.sleep(seconds)
            return False
        streams, ends = zip(*known, strict=True)
        return bool(await self._redis.call("XREAD", "COUNT", 1, "BLOCK", milliseconds, "STREAMS", *streams, *ends))
