"""The spans of a delivery, made after its end from times that the worker has anyway.

Imported only if traces are exported, because it needs OpenTelemetry.
"""

import hashlib
from collections.abc import Callable
from typing import Final, Protocol

import msgspec
from opentelemetry.context import Context
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.trace import (
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    TraceFlags,
    set_span_in_context,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from stoop_schemas.job import Job
from stoop_schemas.result import Result
from stoop_schemas.traceparent import is_traceparent
from stoop_schemas.tracing import mark_failed
from stoop_worker.jobs import span_attributes as attributes
from stoop_worker.jobs.broker import Delivery
from stoop_worker.jobs.publisher import Identity
from stoop_worker.jobs.redis.history import LostAttempt
from stoop_worker.jobs.span_stages import stages_of
from stoop_worker.metrics import Ending

__all__ = ["JobSpans"]

_MS: Final = 1_000_000  # nanoseconds in a millisecond
_FAILED: Final = frozenset({"failed", "dead", "retry", "expired"})
# the next attempt records it, from the job's hash, as it does for a worker that died
_CRASHED: Final = "crashed"
_RELEASED: Final = "released"


class _Traced(msgspec.Struct):
    traceparent: str | None = None


class _History(Protocol):
    """Knows the attempts whose worker could not settle them."""

    async def lost_before(self, delivery: Delivery) -> list[LostAttempt]:
        """Return the lost attempts directly before this one, the latest first."""


class JobSpans:
    """Makes the spans of each delivery that this worker settled, in the trace of its job.

        queue      from the submission to the claim of the first attempt
        process    an attempt, from its claim to its end; also one whose worker died, from what Redis knows of it
          fetch, image, generate (with prefill and decode), settle

    A job without a `traceparent` has a trace whose ids follow from its own id, so all its attempts share it. With
    `content` spans have questions and answers.
    """

    def __init__(
        self, provider: TracerProvider, identity: Identity, history: _History, *, content: bool = False
    ) -> None:
        self._tracer = provider.get_tracer("stoop.worker")
        self._sampler = provider.sampler
        self._identity = identity
        self._history = history
        self._content = content

    async def record(self, delivery: Delivery, ending: Ending, ran: float, read: Callable[[], Job | None]) -> None:
        """Make the spans of a settled delivery. The run took `ran` seconds; `read` parses the job, if that is needed.

        Nothing is made for a delivery that this worker had lost: the attempt is then in its successor's spans.
        """
        if not ending.ours or ending.outcome == _CRASHED:
            return
        parent = self._context(delivery, read)
        if parent is None:
            return
        process = self._begin(f"process {ending.lane}", parent, delivery.claimed_at * _MS, SpanKind.CONSUMER)
        if not process.is_recording():
            return
        lost = [] if ending.outcome == _RELEASED else await self._history.lost_before(delivery)
        self._add_lost(delivery, ending.lane, parent, lost)
        self._add_queue(delivery, parent, lost)
        process.set_attributes(
            attributes.delivered(delivery, ending.lane, delivery.attempt, self._identity.worker)
            | {"stoop.outcome": ending.outcome}
        )
        _set_status(process, ending)
        answered = (delivery.claimed_at + round(1000 * ran)) * _MS
        ended = max(answered, delivery.queued_at * _MS + round(1000 * ending.seconds) * _MS)
        inside = set_span_in_context(process)
        if ending.result is not None:
            self._add_result(inside, delivery, ending.result, answered, read)
        self._begin(f"settle {ending.lane}", inside, answered, SpanKind.CLIENT).end(ended)
        process.end(ended)

    def _add_result(
        self, inside: Context, delivery: Delivery, result: Result, answered: int, read: Callable[[], Job | None]
    ) -> None:
        job = read() if result.output is not None else None
        if job is None:
            return
        generate = inside
        for stage in stages_of(result.metrics, delivery.claimed_at * _MS, answered):
            if stage.name != "generate":
                self._begin(stage.name, generate, stage.start).end(stage.end)
                continue
            model = self._identity.model
            span = self._begin(f"{attributes.operation(job.skill)} {model}", inside, stage.start)
            span.set_attributes(attributes.answered(job, result, model) | {"stoop.skill": job.skill})
            if self._content:
                span.set_attributes(attributes.content(job, result))
            generate = set_span_in_context(span)
            span.end(stage.end)

    def _add_lost(self, delivery: Delivery, lane: str, parent: Context, lost: list[LostAttempt]) -> None:
        for attempt in reversed(lost):
            span = self._begin(f"process {lane}", parent, attempt.claimed_at * _MS, SpanKind.CONSUMER)
            span.set_attributes(attributes.delivered(delivery, lane, attempt.attempt, attempt.worker))
            span.set_attribute("stoop.outcome", "lost")
            mark_failed(span, "worker_lost")
            span.end(attempt.lost_at * _MS)

    def _add_queue(self, delivery: Delivery, parent: Context, lost: list[LostAttempt]) -> None:
        first = lost[-1].attempt if lost else delivery.attempt
        claimed = lost[-1].claimed_at if lost else delivery.claimed_at
        if first == 1:
            self._begin("queue", parent, delivery.queued_at * _MS).end(max(delivery.queued_at, claimed) * _MS)

    def _begin(self, name: str, context: Context, start: int, kind: SpanKind = SpanKind.INTERNAL) -> Span:
        return self._tracer.start_span(name, context, kind=kind, start_time=start)

    def _context(self, delivery: Delivery, read: Callable[[], Job | None]) -> Context | None:
        """Return the parent of the delivery's spans, or None if the job has no context and its trace is not kept."""
        traceparent = _traceparent(delivery, read)
        if traceparent is not None:
            return TraceContextTextMapPropagator().extract({"traceparent": traceparent})
        digest = hashlib.blake2b(delivery.job_id.encode(), digest_size=24).digest()
        trace_id, span_id = int.from_bytes(digest[:16]), int.from_bytes(digest[16:])
        if self._sampler.should_sample(None, trace_id, "job").decision is not Decision.RECORD_AND_SAMPLE:
            return None
        flags = TraceFlags(TraceFlags.SAMPLED)
        return set_span_in_context(NonRecordingSpan(SpanContext(trace_id, span_id, is_remote=True, trace_flags=flags)))


def _traceparent(delivery: Delivery, read: Callable[[], Job | None]) -> str | None:
    """Return the job's trace context; a job of our own wire is not parsed whole for it."""
    if delivery.celery:
        job = read()
        found = None if job is None else job.traceparent
    elif b"traceparent" in delivery.packed:
        try:
            found = msgspec.json.decode(delivery.packed, type=_Traced).traceparent
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            found = None
    else:
        return None
    return found if is_traceparent(found) else None


def _set_status(span: Span, ending: Ending) -> None:
    if ending.outcome in _FAILED:
        mark_failed(span, ending.code or ending.outcome)
