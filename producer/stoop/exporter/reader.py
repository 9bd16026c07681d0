"""Reads the figures of the queue, at most once a second however often they are asked for."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from stoop.errors import StoopError
from stoop.operator import MemoryUse, Operator, QueueStatus, TenantStatus

__all__ = ["PartitionReading", "QueueReader", "Reading"]

_FRESH_SECONDS = 1.0
_SCAN_SECONDS = 600.0
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
    looked for every ten minutes, because that looks at every key.
    """

    operator: Operator
    partitions: Sequence[int]
    lanes: Sequence[str]
    tenants: bool = False
    clock: Callable[[], float] = time.monotonic
    _lanes: dict[int, dict[str, None]] = field(default_factory=dict, init=False)
    _scanned: dict[int, float] = field(default_factory=dict, init=False)
    _reading: Reading | None = field(default=None, init=False)
    _read_at: float | None = field(default=None, init=False)
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    async def read(self) -> Reading | None:
        """Return the newest reading, or None if the queue cannot be read now."""
        async with self._lock:
            if self._read_at is None or self.clock() - self._read_at >= _FRESH_SECONDS:
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
        lanes = self._lanes.setdefault(partition, dict.fromkeys(self.lanes))
        lanes.update(dict.fromkeys([*served, *await self._found(partition)]))
        return PartitionReading(
            await self.operator.status(list(lanes), partition),
            sum(_count(one.facts.get("permits")) for one in workers),
            tuple(await self.operator.tenants(list(lanes), partition)) if self.tenants else (),
        )

    async def _found(self, partition: int) -> Sequence[str]:
        scanned = self._scanned.get(partition)
        if scanned is not None and self.clock() - scanned < _SCAN_SECONDS:
            return ()
        found = await self.operator.lanes(partition)
        self._scanned[partition] = self.clock()
        return found


def _names(value: object) -> list[str]:
    """Return a worker's list of lanes, which anybody may have written."""
    return [name for name in value if isinstance(name, str)] if isinstance(value, list) else []


def _count(value: object) -> int:
    return value if isinstance(value, int) and value > 0 else 0
