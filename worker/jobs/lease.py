"""The worker's lease: renewed only while the engine makes progress, so that a hung worker loses its jobs."""

import asyncio

import structlog

from worker.engine.request import EnginePort
from worker.errors import EngineFault, QueueUnavailable
from worker.jobs.broker import Broker

__all__ = ["LeaseKeeper"]

log = structlog.get_logger(__name__)


class LeaseKeeper:
    """Extends the lease three times a lease; `lease` is in seconds."""

    def __init__(self, broker: Broker, engine: EnginePort, *, lease: float) -> None:
        self._broker = broker
        self._engine = engine
        self._period = lease / 3
        self._seen_steps = -1

    async def run(self) -> None:
        """Keep the lease for as long as the engine lives; raises `EngineFault` when it has ended."""
        while self._engine.alive:
            await self._beat()
            await asyncio.sleep(self._period)
        raise EngineFault("the engine has ended")

    async def _beat(self) -> None:
        steps = self._engine.steps
        if steps == self._seen_steps:
            log.error("the engine makes no progress: the lease is left to run out", steps=steps)
            return
        self._seen_steps = steps
        try:
            await self._broker.extend()
        except QueueUnavailable as error:
            log.warning("the lease could not be renewed", error=str(error))
