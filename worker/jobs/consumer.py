"""The claiming loop: takes no more deliveries than there are free permits, and starts each one's run."""

import asyncio
from collections.abc import Coroutine

import structlog

from worker.jobs.broker import Broker
from worker.jobs.executor import Executor
from worker.metrics import Metrics

__all__ = ["Consumer"]

log = structlog.get_logger(__name__)


class Consumer:
    """Claims and runs jobs, at most `permits` in flight, until it is told to drain."""

    def __init__(self, broker: Broker, executor: Executor, *, permits: int, metrics: Metrics) -> None:
        self._broker = broker
        self._executor = executor
        self._permits = permits
        self._metrics = metrics
        self._running: set[asyncio.Task[None]] = set()
        self._freed = asyncio.Event()
        self._draining = asyncio.Event()

    async def run(self) -> None:
        """Claim until told to drain; what is in flight then goes on."""
        while not self._draining.is_set():
            free = self._permits - len(self._running)
            if free == 0:
                self._freed.clear()
                await self._unless_draining(self._freed.wait())
            elif await self._claim(free) < free:
                await self._unless_draining(self._broker.wait(timeout=1.0))

    def drain(self) -> None:
        """Claim nothing new from now on."""
        self._draining.set()

    async def finish(self, grace: float) -> None:
        """Wait `grace` seconds for what is in flight, then release the rest to other workers."""
        if not self._running:
            return
        _, late = await asyncio.wait(self._running, timeout=grace)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)

    async def _claim(self, free: int) -> int:
        deliveries = await self._broker.take(free)
        for delivery in deliveries:
            task = asyncio.create_task(self._executor.execute(delivery), name=delivery.job_id)
            self._running.add(task)
            task.add_done_callback(self._ended)
        self._metrics.in_flight(len(self._running))
        return len(deliveries)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._metrics.in_flight(len(self._running))
        self._freed.set()
        if not task.cancelled() and (error := task.exception()):
            log.error("a delivery could not be settled", job=task.get_name(), exc_info=error)

    async def _unless_draining(self, waiting: Coroutine[object, object, object]) -> None:
        """Wait for one thing, or until told to drain."""
        wait = asyncio.create_task(waiting)
        drain = asyncio.create_task(self._draining.wait())
        done, pending = await asyncio.wait({wait, drain}, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
        if wait in done:
            wait.result()
