"""One delivery, from its bytes to its settlement: the spine of the product, read top to bottom."""

import asyncio
import contextlib
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import structlog

from stoop_schemas import names
from stoop_schemas.codec import unpack_job
from stoop_schemas.failure import Failure, FailureCode, Rejected
from stoop_schemas.job import Job
from stoop_schemas.result import Result
from stoop_schemas.signature import SigningKeys
from stoop_schemas.state import State
from stoop_worker.engine.request import Aborted, Finished, Partial, Refused, Request, Sampling
from stoop_worker.errors import EngineCrashed, EngineFault, WorkerError
from stoop_worker.images import Picture, PixelLimits
from stoop_worker.jobs import outcome as outcomes
from stoop_worker.jobs.adapters import AdapterCache
from stoop_worker.jobs.broker import Delivery
from stoop_worker.jobs.end_line import log_end, waited_ms
from stoop_worker.jobs.outcome import Outcome, code_of
from stoop_worker.jobs.output_store import OutputStore
from stoop_worker.jobs.pipelines import Passage, Windows, transcribe
from stoop_worker.jobs.prepare import Images, WantedImage
from stoop_worker.jobs.publisher import Publisher
from stoop_worker.jobs.recordings import Recordings
from stoop_worker.jobs.relay import Relay
from stoop_worker.jobs.retry import after_failure
from stoop_worker.jobs.translate import (
    Timings,
    completed,
    cutting_of,
    ended,
    temperatures_of,
    to_event,
    to_request,
    to_segment_event,
    to_speech_request,
    transcribed,
)
from stoop_worker.jobs.unless import Unless
from stoop_worker.jobs.verdict import decided
from stoop_worker.metrics import Ending, Metrics

__all__ = ["Dialect", "Executor", "Spans"]

log = structlog.get_logger(__name__)

_End = tuple[Outcome, Result | None]
"""An outcome and its result; a job that only goes back has no result."""


class _WasAborted(Exception):
    """The engine ended the request because it was asked to abort it."""


class Dialect(Protocol):
    """Speaks with the senders of Celery messages."""

    def read(self, packed: bytes) -> Job:
        """Return the job that a message asks for; raises `Rejected`."""

    def ending(self, packed: bytes, result: Result) -> bytes:
        """Return the ending to store with the result for Celery, or b"" if no one is waiting for it."""

    def relay(self) -> None:
        """Start delivering an ending that has just been stored."""


class Spans(Protocol):
    """Records settled deliveries in traces."""

    def may_keep(self, delivery: Delivery) -> bool:
        """Return False if the delivery's trace is not kept; most are not, so this must cost next to nothing."""

    async def record(self, delivery: Delivery, ending: Ending, ran: float, read: Callable[[], Job | None]) -> None:
        """Record a settled delivery whose run took `ran` seconds; `read` parses its job."""


@dataclass(frozen=True, slots=True)
class Executor:
    """Runs deliveries; whatever happens to one, it is settled exactly once and the others go on.

        execute                     begins and settles; nothing gets past it
          _run_or_break_off         the run, unless another outcome comes first
            _answer                 exceptions become outcomes
              _run_in_time          the deadline
                _run                the adapter, and the image or the recording
                  _run_request      the engine; for a recording, _run_windows

    With `keys` only jobs that one of them has signed are read; anything else is a dead letter.
    `attempts` is the limit for jobs that do not set `max_attempts`. Without a `dialect` Celery messages are refused.
    `model` is what jobs call this worker's model; a job that names another one is refused. `adapters` fetches those
    that jobs name; without it the engine has them, or has none. A model of speech has `recordings`. Without `spans`
    nothing is traced, and without `outputs` every output stays in Redis.
    """

    images: Images
    relay: Relay
    publisher: Publisher
    defaults: Sampling
    metrics: Metrics
    attempts: int = 3
    keys: SigningKeys | None = None
    dialect: Dialect | None = None
    model: str | None = None
    adapters: AdapterCache | None = None
    recordings: Recordings | None = None
    spans: Spans | None = None
    outputs: OutputStore | None = None

    async def execute(self, delivery: Delivery, broken_off: "asyncio.Future[Outcome]") -> None:
        """Take a delivery to its end, or break its run off with the outcome that comes by `broken_off`."""
        structlog.contextvars.bind_contextvars(job=delivery.job_id)  # until the task ends
        began = asyncio.get_running_loop().time()
        self.publisher.begin(delivery)
        outcome, result = await self._run_or_break_off(delivery, broken_off)
        ran = asyncio.get_running_loop().time() - began
        celery_ending = self._celery_ending(delivery, outcome, result)
        stored = await self._stored(delivery, result, broken_off)
        ours = await self.publisher.settle(delivery, outcome, stored, celery_ending=celery_ending)
        if self.dialect and celery_ending and ours:
            self.dialect.relay()
        seconds = waited_ms(delivery) / 1000 + asyncio.get_running_loop().time() - began
        ending = Ending(delivery.lane.partition("/")[0], type(outcome).__name__.lower(), result, seconds, ours)
        self.metrics.settled(ending)
        log_end(delivery, ending)
        await self._trace(delivery, ending, ran)

    async def _stored(self, delivery: Delivery, result: Result | None, stop: "asyncio.Future[Any]") -> Result | None:
        """Return the result for Redis; its output is in the object store if the job and the worker allow that."""
        if self.outputs is None or result is None or b"store_output" not in delivery.packed or delivery.celery:
            return result
        job = self._read(delivery)  # not for Celery's jobs: readers of their results would not find it
        return await self.outputs.put(delivery, result, stop) if job is not None and job.store_output else result

    async def _trace(self, delivery: Delivery, ending: Ending, ran: float) -> None:
        try:
            if self.spans is not None and self.spans.may_keep(delivery):
                await self.spans.record(delivery, ending, ran, lambda: self._read(delivery))
        except Exception:  # the delivery is settled, and must not look as if its settlement had failed
            log.exception("a settled delivery could not be traced")

    async def _run_or_break_off(self, delivery: Delivery, broken_off: "asyncio.Future[Outcome]") -> _End:
        with Unless(broken_off):  # not in a task of its own, which would take two turns of the loop
            return await self._answer(delivery)
        outcome = broken_off.result()
        if isinstance(outcome, outcomes.Cancelled):
            return outcome, ended(delivery.job_id, self._read(delivery), State.CANCELLED, None)
        return outcome, None

    async def _answer(self, delivery: Delivery) -> _End:
        arrived = asyncio.get_running_loop().time()
        job: Job | None = None
        try:
            job = self._unpack(delivery)
            if delivery.verdict is not None:
                return delivery.verdict, decided(job, delivery.verdict)
            self._check_model(job)
            return await self._run_in_time(delivery, job, arrived)
        except Rejected as error:
            return self._fail(delivery, job, error.failure)
        except _WasAborted:
            return outcomes.Cancelled(), ended(delivery.job_id, job, State.CANCELLED, None)
        except EngineCrashed:
            return outcomes.Crashed(), None
        except EngineFault:
            return outcomes.Released(), None
        except WorkerError as error:
            return self._fail(delivery, job, Failure.of(code_of(error), str(error)))
        except Exception:
            log.exception("job met a defect")
            return self._fail(delivery, job, Failure.of(FailureCode.INTERNAL, "a defect in the worker: see its log"))

    async def _run_in_time(self, delivery: Delivery, job: Job, arrived: float) -> _End:
        try:
            async with asyncio.timeout_at(_deadline(delivery, job, arrived)) as limit:
                return await self._run(delivery, job)
        except TimeoutError:
            if not limit.expired():
                raise  # the timeout of an inner call
            return outcomes.Expired(), ended(delivery.job_id, job, State.EXPIRED, None)

    async def _run(self, delivery: Delivery, job: Job) -> _End:
        waited = waited_ms(delivery)
        if self.recordings is not None and job.audio is not None:
            return await self._run_windows(delivery, job, self.recordings, waited)
        pixels = PixelLimits(job.settings.min_pixels, job.settings.max_pixels)
        wanted = [WantedImage(image, job.tenant, delivery.priority, pixels) for image in job.images]
        submitted = asyncio.get_running_loop().time() - waited / 1000
        adapter = contextlib.nullcontext() if self.adapters is None else self.adapters.ready(job.settings.adapter)
        async with adapter, self.images.prepared_all(wanted, submitted) as ready:
            fetch_ms, image_ms = sum(each.fetch_ms for each in ready), sum(each.image_ms for each in ready)
            return await self._run_request(
                delivery, job, [each.image for each in ready], Timings(waited, fetch_ms, image_ms)
            )

    async def _run_request(self, delivery: Delivery, job: Job, media: Sequence[Picture], timings: Timings) -> _End:
        request = to_request(job, media, self.defaults, priority=delivery.priority)
        finished = await self._finish(request, lambda output: self._stream(delivery, job, output))
        return outcomes.Completed(), completed(job, finished, timings)

    async def _run_windows(self, delivery: Delivery, job: Job, recordings: Recordings, waited: int) -> _End:
        assert job.audio is not None, "the caller has looked"
        request = to_speech_request(job, priority=delivery.priority)

        def report(passage: Passage) -> None:
            if job.stream:
                self.publisher.add_event(
                    delivery, lambda seq: to_segment_event(job, passage, seq=seq, attempt=delivery.attempt)
                )

        wanted = WantedImage(job.audio, job.tenant, delivery.priority)
        async with recordings.prepared(wanted, cutting_of(job)) as ready:
            found = await transcribe(
                request,
                ready.parts,
                temperatures_of(job),
                run=lambda each: self._finish(each, lambda output: None),
                report=report,
                windows=Windows(recordings.windows, job.parallel),
            )
        return outcomes.Completed(), transcribed(job, found, Timings(waited, ready.fetch_ms, ready.audio_ms))

    async def _finish(self, request: Request, accept: Callable[[Partial], None]) -> Finished:
        """Run a request to its end; raises `Rejected` or `_WasAborted` for any other end."""
        last = await self.relay.run(request, accept)
        match last:
            case Finished():
                return last
            case Refused():
                raise Rejected(FailureCode(last.refusal.value), last.message)
            case Aborted():
                raise _WasAborted

    def _read(self, delivery: Delivery) -> Job | None:
        try:
            return self._unpack(delivery)
        except Rejected:
            return None

    def _unpack(self, delivery: Delivery) -> Job:
        job = self._read_message(delivery.packed) if delivery.celery else unpack_job(delivery.packed, self.keys)
        if job.id != delivery.job_id:
            # the entry was claimed under an id of its own, or under that of another job
            raise Rejected(FailureCode.MALFORMED, "the job's id is not the entry's, or is of another partition")
        return job

    def _check_model(self, job: Job) -> None:
        if job.model in (None, self.model):
            return
        served = f"serves {self.model}" if self.model else "has a model without a name"
        raise Rejected(
            FailureCode.UNSUPPORTED_MODEL,
            f"this worker {served}, and the job names {job.model}: put it into the lane"
            f" {names.model_lane(job.lane, job.model)}, or leave the model out",
        )

    def _read_message(self, packed: bytes) -> Job:
        if self.dialect is None:
            raise Rejected(FailureCode.MALFORMED, "this worker takes no Celery messages: see STOOP_CELERY")
        return self.dialect.read(packed)

    def _celery_ending(self, delivery: Delivery, outcome: Outcome, result: Result | None) -> bytes:
        runs_again = isinstance(outcome, outcomes.Retry | outcomes.Released | outcomes.Crashed)
        if self.dialect is None or not delivery.celery or result is None or runs_again:
            return b""
        return self.dialect.ending(delivery.packed, result)

    def _fail(self, delivery: Delivery, job: Job | None, failure: Failure) -> _End:
        """Make a message that is not a job a dead letter; run a job again if a later attempt may succeed."""
        if job is None:
            return outcomes.Dead(failure), ended(delivery.job_id, None, State.FAILED, failure)
        attempt, most = delivery.attempt - delivery.crashes, job.max_attempts or self.attempts
        outcome = after_failure(failure, attempt=attempt, most=most, chance=random.random())
        if isinstance(outcome, outcomes.Dead):
            failure = outcome.failure
        return outcome, ended(delivery.job_id, job, State.FAILED, failure)

    def _stream(self, delivery: Delivery, job: Job, output: Partial) -> None:
        if job.stream:
            self.publisher.add_event(delivery, lambda seq: to_event(output, seq=seq, attempt=delivery.attempt))


def _deadline(delivery: Delivery, job: Job, arrived: float) -> float | None:
    """Return the loop's time at which the job is too late: counted from Redis's time when it was claimed."""
    return None if job.deadline is None else arrived + (job.deadline - delivery.claimed_at) / 1000
