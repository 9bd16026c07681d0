"""Reads the figures of the queue, at most once a second however often they are asked for."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from stoop.errors import StoopError
from stoop.operator import MemoryUse, Operator, QueueStatus, TenantStatus

__all__ = ["PartitionReading", "QueueReader", "Reading"]

_FRESH_SECONDS = 1.0
_SEARCH_PERIOD = 600.0
_LIMIT_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class PartitionReading:
    """One partition: its counts, the permits of its workers, and the tenants of its lanes."""

    status: QueueStatus
    permits: int
    tenants: tuple[TenantStatus, ...] = ()


@dataclass(frozen=True, slots=True)
class Reading:
    """The whole queue; `seconds` is the time that reading it took."""

    partitions: tuple[PartitionReading, ...]
    memory: MemoryUse | None
    seconds: float


@dataclass(slots=True)
class QueueReader:
    """Reads the partitions; a reading serves all callers for a second.

    A lane that was seen once stays, so that its figures fall to zero instead of ending. Lanes that no worker serves are
    searched for every ten minutes, because a search looks at every key. A search adds none beyond `most_lanes`: every
    submission may name a new lane, and each lane costs series in Prometheus. A reading waits `search_seconds` for a
    search that it begins; where Redis holds many keys, the search ends later.
    """

    operator: Operator
    partitions: Sequence[int]
    lanes: Sequence[str]
    tenants: bool = False
    clock: Callable[[], float] = time.monotonic
    search_seconds: float = 3.0
    most_lanes: int = 200
    _lanes: dict[int, dict[str, None]] = field(default_factory=dict, init=False)
    _searches: dict[int, asyncio.Task[None]] = field(default_factory=dict, init=False)
    _searched: dict[int, float] = field(default_factory=dict, init=False)
    _reading: Reading | None = field(default=None, init=False)
    _read_at: float | None = field(default=None, init=False)
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    async def read(self) -> Reading | None:
        """Return the newest reading, or None if the queue cannot be read now."""
        async with self._lock:
            if self._read_at is None or self.clock() - self._read_at >= _FRESH_SECONDS:
                await self._search_for_lanes()
                self._reading = await self._read_or_none()
                self._read_at = self.clock()
            return self._reading

    async def _read_or_none(self) -> Reading | None:
        began = self.clock()
        try:
            async with asyncio.timeout(_LIMIT_SECONDS):
                partitions = await asyncio.gather(*map(self._partition, self.partitions))
                memory = await self.operator.memory()
        except (StoopError, TimeoutError):
            return None
        return Reading(tuple(partitions), memory, self.clock() - began)

    async def _partition(self, partition: int) -> PartitionReading:
        workers = await self.operator.workers(partition)
        served = [lane for one in workers for lane in _names(one.facts.get("lanes"))]
        lanes = self._lanes_of(partition)
        lanes.update(dict.fromkeys(served))
        return PartitionReading(
            await self.operator.status(list(lanes), partition),
            sum(_count(one.facts.get("permits")) for one in workers),
            tuple(await self.operator.tenants(list(lanes), partition)) if self.tenants else (),
        )

    async def _search_for_lanes(self) -> None:
        """Begin the searches that are due, and give them some time."""
        due = [partition for partition in self.partitions if self._is_due(partition)]
        for partition in due:
            self._searches[partition] = asyncio.create_task(self._search(partition))
        if due:
            await asyncio.wait([self._searches[partition] for partition in due], timeout=self.search_seconds)

    def _is_due(self, partition: int) -> bool:
        search, searched = self._searches.get(partition), self._searched.get(partition)
        if search is not None and not search.done():
            return False
        return searched is None or self.clock() - searched >= _SEARCH_PERIOD

    async def _search(self, partition: int) -> None:
        with contextlib.suppress(StoopError):  # the next reading tries again
            found, lanes = await self.operator.lanes(partition), self._lanes_of(partition)
            new = [lane for lane in found if lane not in lanes]
            lanes.update(dict.fromkeys(new[: max(0, self.most_lanes - len(lanes))]))
            self._searched[partition] = self.clock()

    def _lanes_of(self, partition: int) -> dict[str, None]:
        """Return the lanes that were seen so far, in their order."""
        return self._lanes.setdefault(partition, dict.fromkeys(self.lanes))


def _names(value: object) -> list[str]:
    """Return a worker's list of lanes, which anybody may have written."""
    return [name for name in value if isinstance(name, str)] if isinstance(value, list) else []


def _count(value: object) -> int:
    return value if isinstance(value, int) and value > 0 else 0
