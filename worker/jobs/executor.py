"""One delivery, from its bytes to its settlement: the spine of the product, read top to bottom."""

import asyncio
import time
from concurrent.futures import Executor as Pool
from dataclasses import dataclass
from typing import Protocol

import structlog

from schemas.codec import unpack_job
from schemas.failure import Failure, FailureCode, Rejected
from schemas.job import Job
from schemas.result import Result
from schemas.signature import SigningKeys
from schemas.state import State
from worker.engine.request import Aborted, Finished, Partial, Refused, Sampling
from worker.errors import WorkerError
from worker.images import CropGeometry, Crops, ImageLimits, cut, load
from worker.jobs import outcome as outcomes
from worker.jobs.broker import Delivery
from worker.jobs.outcome import Outcome, code_of
from worker.jobs.publisher import Publisher
from worker.jobs.relay import Relay
from worker.jobs.translate import Timings, completed, ended, to_event, to_request
from worker.metrics import Metrics

__all__ = ["Executor", "FetchPort", "Studio"]

log = structlog.get_logger(__name__)


class FetchPort(Protocol):
    """Brings the bytes of an image."""

    async def fetch(self, image_uri: str, tenant: str | None = None) -> bytes:
        """Return the encoded image for a job of this tenant; raises an `ImageError`."""


@dataclass(frozen=True, slots=True)
class Studio:
    """Turns encoded images into crops on a pool of threads, under the worker's limits."""

    pool: Pool
    limits: ImageLimits
    geometry: CropGeometry

    async def prepare(self, encoded: bytes) -> Crops:
        """Load and cut one image; raises `ImageTooLarge` or `ImageUndecodable`."""
        return await asyncio.get_running_loop().run_in_executor(self.pool, self._prepare, encoded)

    def _prepare(self, encoded: bytes) -> Crops:
        return cut(load(encoded, self.limits), self.geometry)


@dataclass(frozen=True, slots=True)
class Executor:
    """Runs deliveries; whatever happens to one, it is settled exactly once and the others go on.

    With `keys` only jobs that one of them has signed are read; anything else is a dead letter.
    """

    fetcher: FetchPort
    studio: Studio
    relay: Relay
    publisher: Publisher
    defaults: Sampling
    metrics: Metrics
    keys: SigningKeys | None = None

    async def execute(self, delivery: Delivery) -> None:
        """Take a delivery to its end. When cancelled (drain), it is released for another worker."""
        self.publisher.begin(delivery)
        try:
            outcome, result = await self._answer(delivery)
        except asyncio.CancelledError:
            await self.publisher.settle(delivery, outcomes.Released())
            log.info("job released", job=delivery.job_id)
            return
        ours = await self.publisher.settle(delivery, outcome, result)
        kind = type(outcome).__name__.lower()
        self.metrics.settled(result, kind, ours=ours)
        log.info(
            "job settled" if ours else "job was no longer ours",
            job=delivery.job_id,
            outcome=kind,
            code=result.failure.code.value if result.failure else None,
            attempt=delivery.attempt,
        )

    async def _answer(self, delivery: Delivery) -> tuple[Outcome, Result]:
        job: Job | None = None
        try:
            job = unpack_job(delivery.packed, self.keys)
            if delivery.verdict is not None:
                return _judged(job, delivery.verdict)
            return await self._run(delivery, job)
        except Rejected as error:
            return _failed(delivery, job, error.failure)
        except WorkerError as error:
            return _failed(delivery, job, Failure.of(code_of(error), str(error)))
        except Exception:
            log.exception("job met a defect", job=delivery.job_id)
            return _failed(delivery, job, Failure.of(FailureCode.INTERNAL, "a defect in the worker: see its log"))

    async def _run(self, delivery: Delivery, job: Job) -> tuple[Outcome, Result]:
        crops, timings = await self._image(delivery, job)
        request = to_request(job, crops, self.defaults)
        last = await self.relay.run(request, lambda output: self._say(delivery, job, output))
        match last:
            case Finished():
                return outcomes.Completed(), completed(job, last, timings)
            case Refused():
                raise Rejected(FailureCode(last.refusal.value), last.message)
            case Aborted():
                return outcomes.Cancelled(), ended(job.id, job, State.CANCELLED, None)

    async def _image(self, delivery: Delivery, job: Job) -> tuple[Crops | None, Timings]:
        queue_ms = float(max(0, delivery.claimed_at - delivery.queued_at))
        if job.image is None:
            return None, Timings(queue_ms)
        began = time.perf_counter()
        encoded = await self.fetcher.fetch(job.image, job.tenant)
        fetched = time.perf_counter()
        crops = await self.studio.prepare(encoded)
        ready = time.perf_counter()
        return crops, Timings(queue_ms, 1000 * (fetched - began), 1000 * (ready - fetched))

    def _say(self, delivery: Delivery, job: Job, output: Partial) -> None:
        if job.stream:
            self.publisher.say(delivery, lambda seq: to_event(output, seq=seq, attempt=delivery.attempt))


def _judged(job: Job, verdict: outcomes.Cancelled | outcomes.Expired) -> tuple[Outcome, Result]:
    """A job whose end was decided in its lane does not run."""
    return verdict, ended(
        job.id, job, State.EXPIRED if isinstance(verdict, outcomes.Expired) else State.CANCELLED, None
    )


def _failed(delivery: Delivery, job: Job | None, failure: Failure) -> tuple[Outcome, Result]:
    """A message that is no job is kept as a dead letter; a job that cannot run just fails."""
    outcome = outcomes.Failed(failure) if job else outcomes.Dead(failure)
    return outcome, ended(delivery.job_id, job, State.FAILED, failure)
