"""The worker's lease: renewed only while the engine makes progress, so that a hung worker loses its jobs."""

import asyncio
import random
from collections.abc import Callable

import structlog

from stoop_worker.engine.request import EnginePort
from stoop_worker.errors import QueueUnavailable
from stoop_worker.jobs.broker import Broker, Delivery
from stoop_worker.jobs.outcome import Cancelled, Outcome, Released

__all__ = ["LeaseKeeper"]

log = structlog.get_logger(__name__)

_BEATS = 3


class LeaseKeeper:
    """Renews the lease three times per lease, and each time takes over the jobs of dead workers.

    After an outage it waits one lease before it takes over jobs, so that live workers can renew theirs first.

    `lease` and `hang` are in seconds. `record` returns this worker's record for the registry of workers. `break_off`
    ends the run of a delivery that was cancelled or now belongs to another worker.
    """

    def __init__(
        self,
        broker: Broker,
        engine: EnginePort,
        *,
        lease: float,
        hang: float,
        record: Callable[[], bytes],
        break_off: Callable[[Delivery, Outcome], None],
    ) -> None:
        self._broker = broker
        self._engine = engine
        self._period = lease / _BEATS
        self._most_idle_beats = hang / self._period
        self._record = record
        self._break_off = break_off
        self._beats_until_reclaim = 0
        self._progress = -1
        self._idle_beats = 0

    async def run(self) -> None:
        """Keep the lease until cancelled."""
        while True:
            if self._makes_progress():
                await self._beat()
            else:
                log.error("the engine makes no progress: the lease is left to run out", progress=self._progress)
            # spreads the calls of workers that started together
            await asyncio.sleep(self._period * random.uniform(0.8, 1.0))

    def _makes_progress(self) -> bool:
        progress = self._engine.progress
        self._idle_beats = self._idle_beats + 1 if progress == self._progress else 0
        self._progress = progress
        return self._idle_beats <= self._most_idle_beats

    async def _beat(self) -> None:
        try:
            held = await self._broker.extend(self._record())
            for delivery in held.cancelled:
                self._break_off(delivery, Cancelled())
            for delivery in held.lost:
                # the queue refuses this settlement, because another worker has the job; it only has to end the run
                self._break_off(delivery, Released())
            if self._beats_until_reclaim:
                self._beats_until_reclaim -= 1
            elif taken := await self._broker.reclaim():
                log.warning("jobs of dead workers were taken over", jobs=taken)
        except QueueUnavailable as error:
            self._beats_until_reclaim = _BEATS
            log.debug("the lease could not be renewed", error=str(error))
