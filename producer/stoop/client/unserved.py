"""A warning for jobs in a lane that no live worker serves."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from stoop.client.models import live_models
from stoop.client.transport import Transport
from stoop.errors import StoopError
from stoop_schemas import names
from stoop_schemas.job import Job
from stoop_schemas.worker import WorkerRecord

__all__ = ["UnservedLanes"]

log = logging.getLogger(__name__)

_SECONDS: Final = 1.0


class UnservedLanes:
    """Reads the registry of workers when a lane is used for the first time, and logs a warning, once a lane. The job
    already waits in its lane, so a failure here raises no error.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._known: set[tuple[int, str]] = set()

    async def check(self, jobs: Sequence[Job]) -> None:
        """Check the lanes of jobs that have just been submitted."""
        lanes = {(names.partition(job.id), names.model_lane(job.lane, job.model)): job for job in jobs}
        for place, job in lanes.items():
            if place not in self._known:
                self._known.add(place)
                await self._check_lane(*place, job)

    async def _check_lane(self, partition: int, lane: str, job: Job) -> None:
        try:
            async with asyncio.timeout(_SECONDS):
                workers = await self._transport.workers(partition)
        except (StoopError, TimeoutError):
            return
        if any(lane in worker.lanes for worker in workers):
            return
        subject = f"the lane {lane}" if job.model is None else f"the model {job.model} (lane {lane})"
        log.warning("no live worker serves %s: its jobs wait until one does; %s", subject, _alive(workers))


def _alive(workers: Sequence[WorkerRecord]) -> str:
    if not workers:
        return "there is no live worker: start one with `stoop worker`"
    lanes = sorted({lane for worker in workers for lane in worker.lanes})
    models = [model.name for model in live_models(workers) if model.name]
    return f"live workers serve the models {', '.join(models) or 'without a name'}, in the lanes {', '.join(lanes)}"
