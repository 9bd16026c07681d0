"""The claiming loop: claims no more deliveries than there are free permits, and starts a run for each."""

import asyncio
from dataclasses import dataclass
from functools import partial

import structlog

from stoop_worker.errors import QueueFault, WorkerError
from stoop_worker.jobs.broker import Broker, Delivery, DeliveryKey, Settlement
from stoop_worker.jobs.executor import Executor
from stoop_worker.jobs.outcome import Cancelled, Outcome, Released
from stoop_worker.jobs.unless import Unless
from stoop_worker.metrics import Metrics

__all__ = ["Consumer", "Permits"]

log = structlog.get_logger(__name__)

_RELEASE_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class _Run:
    delivery: Delivery
    task: asyncio.Task[None]
    broken_off: "asyncio.Future[Outcome]"


@dataclass(frozen=True, slots=True)
class Permits:
    """The number of jobs that may be in flight; `reserved` of them must come from the first lane."""

    count: int
    reserved: int = 0

    def __post_init__(self) -> None:
        assert 0 <= self.reserved < self.count, "every lane has a permit"


class Consumer:
    """Claims and runs jobs, at most `permits` in flight, until `drain` is called.

    `permits.reserved` of them are for the first lane alone, so that its jobs do not wait for others to end. It claims
    only while `ready` is set, because another worker may run the jobs that this one cannot run now.
    """

    def __init__(
        self, broker: Broker, executor: Executor, *, permits: Permits, metrics: Metrics, ready: asyncio.Event
    ) -> None:
        self._broker = broker
        self._executor = executor
        self._permits = permits
        self._metrics = metrics
        self._ready = ready
        # a worker that lost its lease may hold the same job twice until it stops the first run
        self._runs: dict[DeliveryKey, _Run] = {}
        self._first_lane_runs = 0
        self._freed = asyncio.Event()
        self._watching: asyncio.Task[None] | None = None
        self._draining = False
        self._drained: asyncio.Future[None] | None = None  # done once nothing more is claimed
        self._stopping_now = asyncio.Event()

    @property
    def in_flight(self) -> int:
        """The number of jobs claimed and not yet settled."""
        return len(self._runs)

    @property
    def deliveries(self) -> list[Delivery]:
        """The deliveries claimed and not yet settled."""
        return [run.delivery for run in self._runs.values()]

    async def run(self) -> None:
        """Claim until `drain` is called; jobs in flight keep running."""
        self._drained = asyncio.get_running_loop().create_future()
        try:
            while not self._draining:
                await self._claim_or_wait(self._drained)
        finally:
            await self._stop_watching()

    def drain(self) -> None:
        """Claim nothing new from now on."""
        self._draining = True
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    def stop_now(self) -> None:
        """Claim nothing new, and give jobs in flight no more time."""
        self.drain()
        self._stopping_now.set()

    def cancel(self, job_id: str) -> None:
        """End a job's run within one step of the engine, as cancelled; does nothing if it is not in flight."""
        for run in list(self._runs.values()):
            if run.delivery.job_id == job_id:
                self.break_off(run.delivery, Cancelled())

    def break_off(self, delivery: Delivery, outcome: Outcome) -> None:
        """End one run within one step of the engine, with this outcome; does nothing if it is not in flight."""
        run = self._runs.get(delivery.key)
        if run is not None and not run.broken_off.done():
            run.broken_off.set_result(outcome)

    async def finish(self, grace: float) -> None:
        """Wait `grace` seconds for the jobs in flight, then release the rest to other workers."""
        if self._runs:
            await self._wait_for_all(grace)
        for run in list(self._runs.values()):
            self.break_off(run.delivery, Released())
        if self._runs:
            await asyncio.wait({run.task for run in self._runs.values()}, timeout=_RELEASE_SECONDS)
        await self._give_back()

    async def _give_back(self) -> None:
        """Release the remaining jobs one by one if the publisher has ended; other workers take over the rest."""
        for delivery in self.deliveries:
            try:
                async with asyncio.timeout(_RELEASE_SECONDS):
                    await self._broker.settle([Settlement(delivery, Released(), seq=0, event=b"", result=b"")])
            except (WorkerError, TimeoutError) as error:
                log.warning("a job is left to be taken over", job=delivery.job_id, error=str(error))
                if not isinstance(error, QueueFault):
                    return

    async def _wait_for_all(self, grace: float) -> None:
        all_ended = asyncio.create_task(asyncio.wait({run.task for run in self._runs.values()}))
        stopping_now = asyncio.create_task(self._stopping_now.wait())
        await asyncio.wait({all_ended, stopping_now}, timeout=grace, return_when=asyncio.FIRST_COMPLETED)
        for task in (all_ended, stopping_now):
            task.cancel()
        await asyncio.gather(all_ended, stopping_now, return_exceptions=True)

    @property
    def _free(self) -> int:
        return self._permits.count - len(self._runs)

    @property
    def _free_and_reserved(self) -> int:
        """The number of free permits that are for the first lane alone."""
        return min(self._free, max(0, self._permits.reserved - self._first_lane_runs))

    async def _claim_or_wait(self, drained: "asyncio.Future[None]") -> None:
        self._freed.clear()
        free = self._free
        if not self._ready.is_set():
            with Unless(drained):
                await self._ready.wait()
        elif free == 0:
            with Unless(drained):
                await self._freed.wait()
        elif await self._claim(free) < free:
            with Unless(drained):
                await self._wait_for_work()

    async def _wait_for_work(self) -> None:
        """Wait for news or, if only the first lane may be claimed from, for the end of any run."""
        if self._free > self._free_and_reserved:
            await self._stop_watching()
            await self._broker.wait(timeout=1.0)
            return
        # kept while runs end, because cancelling it costs a connection
        self._watching = self._watching or asyncio.create_task(self._broker.wait(timeout=1.0))
        freed = asyncio.create_task(self._freed.wait())
        try:
            await asyncio.wait({self._watching, freed}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            freed.cancel()
        if self._watching.done():
            await self._stop_watching()

    async def _stop_watching(self) -> None:
        watching, self._watching = self._watching, None
        if watching is not None:
            watching.cancel()
            await asyncio.wait({watching})
            if not watching.cancelled():
                watching.result()

    async def _claim(self, free: int) -> int:
        deliveries = await self._broker.take(free, reserved=self._free_and_reserved)
        for delivery in deliveries:
            broken_off = asyncio.get_running_loop().create_future()
            task = asyncio.create_task(self._executor.execute(delivery, broken_off), name=delivery.job_id)
            self._runs[delivery.key] = _Run(delivery, task, broken_off)
            self._first_lane_runs += delivery.priority == 0
            task.add_done_callback(partial(self._ended, delivery))
        self._metrics.in_flight(len(self._runs))
        return len(deliveries)

    def _ended(self, delivery: Delivery, task: asyncio.Task[None]) -> None:
        del self._runs[delivery.key]
        self._first_lane_runs -= delivery.priority == 0
        self._metrics.in_flight(len(self._runs))
        self._freed.set()
        if not task.cancelled() and (error := task.exception()):
            log.error("a delivery could not be settled", job=delivery.job_id, exc_info=error)
