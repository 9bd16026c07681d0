"""The choice of the jobs that are traced. Most are not, and for these it takes less than a microsecond."""

import hashlib
import zlib
from typing import Final

import msgspec
from opentelemetry.sdk.trace.sampling import Decision, Sampler
from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, TraceFlags, set_span_in_context

from stoop_schemas.sampling import SamplingRule
from stoop_schemas.traceparent import is_traceparent
from stoop_worker.jobs.broker import Delivery

__all__ = ["SpanChoice"]

_SAMPLED: Final = TraceFlags(TraceFlags.SAMPLED)


class _Traced(msgspec.Struct):
    traceparent: str | None = None


class SpanChoice:
    """Asks OpenTelemetry's `sampler`, except where its answer is already known.

    A job without a `traceparent` has a trace whose ids follow from its own id, so all its attempts share it. A
    sampler that keeps a share of all traces looks at the last 64 bits of the trace id. Their upper half is a
    checksum of the job's id, which is quick to compute.
    """

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler
        self._decode = msgspec.json.Decoder(_Traced).decode
        self._rule = SamplingRule.of(sampler)
        self._most = (self._rule.bound - 1) >> 32

    def may_keep(self, delivery: Delivery) -> bool:
        """Return False if the delivery is not traced, True if `parent` must be asked."""
        if delivery.celery:
            return True
        traceparent = self.traceparent(delivery)
        if traceparent is None:
            return zlib.crc32(delivery.job_id.encode()) <= self._most
        return not self._rule.drops_sent(traceparent)

    def parent(self, delivery: Delivery, traceparent: str | None, name: str) -> SpanContext | None:
        """Return the parent of the delivery's span of this name, or None if the sampler does not keep it."""
        if traceparent is None:
            context, around = _own_context(delivery.job_id), None
        else:
            trace_id, span_id, flags = (int(part, 16) for part in traceparent.split("-")[1:])
            context = SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(flags))
            around = set_span_in_context(NonRecordingSpan(context))
        result = self._sampler.should_sample(around, context.trace_id, name, SpanKind.CONSUMER)
        return context if result.decision is Decision.RECORD_AND_SAMPLE else None

    def traceparent(self, delivery: Delivery) -> str | None:
        """Return the trace context of a job in our own format, without parsing the rest of it."""
        try:
            found = self._decode(delivery.packed).traceparent
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        return found if is_traceparent(found) else None


def _own_context(job_id: str) -> SpanContext:
    packed = job_id.encode()
    digest = hashlib.blake2b(packed, digest_size=24).digest()
    trace_id = digest[:8] + zlib.crc32(packed).to_bytes(4) + digest[8:12]
    span_id = int.from_bytes(digest[16:])
    return SpanContext(int.from_bytes(trace_id), span_id, is_remote=True, trace_flags=_SAMPLED)
