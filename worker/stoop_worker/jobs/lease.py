"""The worker's lease: renewed only while the engine makes progress, so that a hung worker loses its jobs."""

import asyncio
import random
from collections.abc import Callable

import structlog

from worker.engine.request import EnginePort
from worker.errors import QueueUnavailable
from worker.jobs.broker import Broker, Delivery
from worker.jobs.outcome import Cancelled, Outcome, Released

__all__ = ["LeaseKeeper"]

log = structlog.get_logger(__name__)

_BEATS = 3


class LeaseKeeper:
    """Extends the lease three times a lease, and takes over from the dead as often; `lease` and `hang` are in seconds.

    After Redis was away it takes nothing over for a lease: the living could not renew theirs either.

    `tell` returns what the registry of workers shall say. `break_off` ends the run of a delivery that
    was cancelled or is another's by now.
    """

    def __init__(
        self,
        broker: Broker,
        engine: EnginePort,
        *,
        lease: float,
        hang: float,
        tell: Callable[[], bytes],
        break_off: Callable[[Delivery, Outcome], None],
    ) -> None:
        self._broker = broker
        self._engine = engine
        self._period = lease / _BEATS
        self._patience = hang / self._period  # in beats
        self._tell = tell
        self._break_off = break_off
        self._truce = 0  # in beats
        self._steps = -1
        self._still = 0

    async def run(self) -> None:
        """Keep the lease until cancelled."""
        while True:
            if self._makes_progress():
                await self._beat()
            else:
                log.error("the engine makes no progress: the lease is left to run out", steps=self._steps)
            # workers that were started together must not call together
            await asyncio.sleep(self._period * random.uniform(0.8, 1.0))

    def _makes_progress(self) -> bool:
        steps = self._engine.steps
        self._still = self._still + 1 if steps == self._steps else 0
        self._steps = steps
        return self._still <= self._patience

    async def _beat(self) -> None:
        try:
            held = await self._broker.extend(self._tell())
            for delivery in held.cancelled:
                self._break_off(delivery, Cancelled())
            for delivery in held.lost:
                # the queue refuses it, as it is another's; what counts is that the run ends
                self._break_off(delivery, Released())
            if self._truce:
                self._truce -= 1
            elif taken := await self._broker.reclaim():
                log.warning("jobs of dead workers were taken over", jobs=taken)
        except QueueUnavailable as error:
            self._truce = _BEATS
            log.warning("the lease could not be renewed", error=str(error))
