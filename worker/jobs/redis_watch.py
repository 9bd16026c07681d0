"""Waiting for jobs without claiming any: blocking reads of the lanes on connections of their own."""

import asyncio
from collections.abc import Mapping, Sequence

import structlog

from worker.errors import QueueUnavailable
from worker.jobs.backoff import Backoff
from worker.jobs.redis_client import RedisClient

__all__ = ["Watch"]

log = structlog.get_logger(__name__)

_BLOCK_SECONDS = 5.0
# longer than any read blocks, so that only a dead connection runs into it
_TIMEOUT_SECONDS = 10.0


class Watch:
    """Knows up to where each lane has been claimed, and reads on from there.

    `lanes` are the streams of each partition. One read watches them all, but on a Cluster, which keeps partitions
    apart: there each has a connection of its own.
    """

    def __init__(self, url: str, lanes: Mapping[int, Sequence[str]]) -> None:
        self._redis = RedisClient(url, timeout=_TIMEOUT_SECONDS)
        self._lanes = {partition: tuple(streams) for partition, streams in lanes.items()}
        together = [tuple(self._lanes)] if self._redis.is_one_server else [(partition,) for partition in self._lanes]
        self._reads: Sequence[tuple[int, ...]] = together
        self._ends: dict[int, Sequence[bytes]] = {p: [b"0-0"] * len(s) for p, s in self._lanes.items()}
        self._due: dict[int, float] = {}
        self._closed = asyncio.Event()

    def saw(self, partition: int, ends: Sequence[bytes], due_in: float | None) -> None:
        """Note what a take saw: the last claimed id of each lane, and when a delayed job is due (seconds from now)."""
        self._ends[partition] = ends
        self._due.pop(partition, None)
        if due_in is not None:
            self.expect(partition, due_in)

    def expect(self, partition: int, due_in: float) -> None:
        """Note that a delayed job is due in so many seconds."""
        due = asyncio.get_running_loop().time() + due_in
        self._due[partition] = min(due, self._due.get(partition, due))

    async def wait(self, timeout: float) -> None:
        """Return at news in a lane, at a delayed job's time or after `timeout` seconds, whatever Redis does meanwhile.

        What was claimed by a take whose reply was lost is news too: `saw` was not called for it.
        """
        loop, backoff = asyncio.get_running_loop(), Backoff()
        deadline = loop.time() + timeout
        while not self._closed.is_set() and (left := min([deadline, *self._due.values()]) - loop.time()) > 0:
            try:
                if await self._news(min(left, _BLOCK_SECONDS)):
                    return
                backoff = Backoff()
            except QueueUnavailable as error:
                if self._closed.is_set():
                    return
                log.warning("waiting for Redis", error=str(error))
                await asyncio.sleep(min(max(0.0, deadline - loop.time()), backoff.next()))

    async def close(self) -> None:
        """Disconnect; a wait that goes on returns."""
        self._closed.set()
        await self._redis.close()

    async def _news(self, seconds: float) -> bool:
        reads = [asyncio.create_task(self._read(partitions, seconds)) for partitions in self._reads]
        try:
            done, _ = await asyncio.wait(reads, return_when=asyncio.FIRST_COMPLETED)
            return any(read.result() for read in done)
        finally:
            for read in reads:
                read.cancel()
            await asyncio.gather(*reads, return_exceptions=True)

    async def _read(self, partitions: Sequence[int], seconds: float) -> bool:
        milliseconds = max(1, round(1000 * seconds))  # 0 would be for ever
        streams = [stream for partition in partitions for stream in self._lanes[partition]]
        ends = [end for partition in partitions for end in self._ends[partition]]
        command = ("XREAD", "COUNT", 1, "BLOCK", milliseconds, "STREAMS", *streams, *ends)
        return bool(await self._redis.call(*command))
