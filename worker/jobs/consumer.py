"""The claiming loop: takes no more deliveries than there are free permits, and starts each one's run."""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from functools import partial

import structlog

from worker.jobs.broker import Broker, Delivery
from worker.jobs.broker_claims import Place, place_of
from worker.jobs.executor import Executor
from worker.jobs.outcome import Cancelled, Outcome, Released
from worker.metrics import Metrics

__all__ = ["Consumer"]

log = structlog.get_logger(__name__)

_RELEASE_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class _Run:
    delivery: Delivery
    task: asyncio.Task[None]
    broken_off: "asyncio.Future[Outcome]"


class Consumer:
    """Claims and runs jobs, at most `permits` in flight, until it is told to drain.

    It claims only while `ready` is set: what this worker cannot run now, others may.
    """

    def __init__(
        self, broker: Broker, executor: Executor, *, permits: int, metrics: Metrics, ready: asyncio.Event
    ) -> None:
        self._broker = broker
        self._executor = executor
        self._permits = permits
        self._metrics = metrics
        self._ready = ready
        # a worker that lost its lease may have the same job twice, until the first run is broken off
        self._runs: dict[Place, _Run] = {}
        self._freed = asyncio.Event()
        self._draining = asyncio.Event()
        self._hurried = asyncio.Event()

    @property
    def in_flight(self) -> int:
        """How many jobs are claimed and not settled."""
        return len(self._runs)

    @property
    def deliveries(self) -> list[Delivery]:
        """What is claimed and not settled."""
        return [run.delivery for run in self._runs.values()]

    async def run(self) -> None:
        """Claim until told to drain; what is in flight then goes on."""
        while not self._draining.is_set():
            free = self._permits - len(self._runs)
            if not self._ready.is_set():
                await self._unless_draining(self._ready.wait())
            elif free == 0:
                self._freed.clear()
                await self._unless_draining(self._freed.wait())
            elif await self._claim(free) < free:
                await self._unless_draining(self._broker.wait(timeout=1.0))

    def drain(self) -> None:
        """Claim nothing new from now on."""
        self._draining.set()

    def hurry(self) -> None:
        """Claim nothing new, and give no more time to what is in flight."""
        self._draining.set()
        self._hurried.set()

    def cancel(self, job_id: str) -> None:
        """End a job's run within one step of the engine, as cancelled; does nothing if it is not in flight."""
        for run in list(self._runs.values()):
            if run.delivery.job_id == job_id:
                self.break_off(run.delivery, Cancelled())

    def break_off(self, delivery: Delivery, outcome: Outcome) -> None:
        """End one run within one step of the engine, with this outcome; does nothing if it is not in flight."""
        run = self._runs.get(place_of(delivery))
        if run is not None and not run.broken_off.done():
            run.broken_off.set_result(outcome)

    async def finish(self, grace: float) -> None:
        """Wait `grace` seconds for what is in flight, then release the rest to other workers."""
        if self._runs:
            await self._wait_for_all(grace)
        for run in list(self._runs.values()):
            self.break_off(run.delivery, Released())
        if self._runs:
            # who cannot release them, as Redis is away, leaves them to be taken over
            await asyncio.wait({run.task for run in self._runs.values()}, timeout=_RELEASE_SECONDS)

    async def _wait_for_all(self, grace: float) -> None:
        all_ended = asyncio.create_task(asyncio.wait({run.task for run in self._runs.values()}))
        hurried = asyncio.create_task(self._hurried.wait())
        await asyncio.wait({all_ended, hurried}, timeout=grace, return_when=asyncio.FIRST_COMPLETED)
        for task in (all_ended, hurried):
            task.cancel()
        await asyncio.gather(all_ended, hurried, return_exceptions=True)

    async def _claim(self, free: int) -> int:
        deliveries = await self._broker.take(free)
        for delivery in deliveries:
            broken_off = asyncio.get_running_loop().create_future()
            task = asyncio.create_task(self._executor.execute(delivery, broken_off), name=delivery.job_id)
            self._runs[place_of(delivery)] = _Run(delivery, task, broken_off)
            task.add_done_callback(partial(self._ended, delivery))
        self._metrics.in_flight(len(self._runs))
        return len(deliveries)

    def _ended(self, delivery: Delivery, task: asyncio.Task[None]) -> None:
        del self._runs[place_of(delivery)]
        self._metrics.in_flight(len(self._runs))
        self._freed.set()
        if not task.cancelled() and (error := task.exception()):
            log.error("a delivery could not be settled", job=delivery.job_id, exc_info=error)

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
