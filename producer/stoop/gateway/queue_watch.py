"""Reads the queue once a second for all viewers of the dashboard together, and not at all without viewers."""

import asyncio
import contextlib
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from stoop.errors import StoopError
from stoop.operator.port import Operator
from stoop_schemas.names import DEFAULT_LANES

__all__ = ["QueueView", "QueueWatch"]

_SECONDS: Final = 1.0
_LANES_SECONDS: Final = 300.0
"""The age, in seconds, up to which a list of lanes is used: making it reads every key."""


class QueueView(msgspec.Struct, frozen=True, kw_only=True):
    """The queue at `at` (Redis's time, Unix ms): lanes, workers, tenants, and other counts.

    `totals` count since the queue was made: endings by state, and `dead`, `retried`, `reclaimed`.
    """

    at: int
    lanes: list[dict[str, Any]]
    delayed: int
    quarantined: Mapping[str, int]
    dead: int
    totals: Mapping[str, int]
    workers: list[dict[str, Any]]
    tenants: list[dict[str, Any]]


class QueueWatch:
    """Reads the queue for any number of viewers."""

    def __init__(self, operator: Operator, lanes: Iterable[str]) -> None:
        self._operator = operator
        self._lanes = {*DEFAULT_LANES, *lanes}
        self._lanes_until = 0.0
        self._viewers = 0
        self._task: asyncio.Task[None] | None = None
        self._next: asyncio.Future[bytes] | None = None

    async def look(self) -> QueueView:
        """Read the queue now. Raises `QueueUnavailable`."""
        if time.monotonic() >= self._lanes_until:
            self._lanes.update(await self._operator.lanes())
            self._lanes_until = time.monotonic() + _LANES_SECONDS
        workers = await self._operator.workers()
        served = {lane for one in workers for lane in _names(one.facts.get("lanes"))}
        lanes = sorted(self._lanes | served, key=_order)
        status = await self._operator.status(lanes)
        return QueueView(
            at=status.at,
            lanes=[msgspec.to_builtins(lane) for lane in status.lanes],
            delayed=status.delayed,
            quarantined=status.quarantined,
            dead=status.dead,
            totals=status.totals,
            workers=[{**one.facts, "worker": one.worker} for one in workers],
            tenants=[msgspec.to_builtins(one) for one in await self._operator.tenants(lanes)],
        )

    @contextlib.contextmanager
    def viewing(self) -> Iterator[None]:
        """Keep reading the queue inside the `with`."""
        self._viewers += 1
        try:
            yield
        finally:
            self._viewers -= 1
            if self._viewers == 0:
                self.close()

    def coming(self) -> "asyncio.Future[bytes]":
        """Return the next reading as JSON, the same for every viewer.

        It is {"error": {"message"}} while Redis cannot be reached.
        """
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
        if self._task is None:
            self._task = asyncio.create_task(self._keep_looking())
        return self._next

    def close(self) -> None:
        """Stop reading until the next viewer; idempotent."""
        if self._task is not None:
            self._task.cancel()
        self._task = self._next = None

    async def _keep_looking(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            view = await self._encoded()
            coming, self._next = self._next, None
            if coming is not None:
                coming.set_result(view)
            await asyncio.sleep(max(0.0, began + _SECONDS - loop.time()))

    async def _encoded(self) -> bytes:
        with contextlib.suppress(StoopError):
            return msgspec.json.encode(await self.look())
        return b'{"error":{"message":"the queue cannot be reached"}}'


def _names(value: object) -> list[str]:
    return [name for name in value if isinstance(name, str)] if isinstance(value, list) else []


def _order(lane: str) -> tuple[bool, str]:
    return lane not in DEFAULT_LANES, lane.replace("interactive", "")
