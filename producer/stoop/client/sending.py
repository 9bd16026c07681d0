"""The trace of a job from the client on: a span for its sending, whose context goes with the job.

It needs a program that traces with OpenTelemetry. In any other, nothing of OpenTelemetry is imported.
"""

import contextlib
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from stoop_schemas import names
from stoop_schemas.job import Job
from stoop_schemas.traceparent import is_traceparent, traceparent_of
from stoop_schemas.tracing import mark_failed

if TYPE_CHECKING:
    from opentelemetry.trace import Span

__all__ = ["sending"]


@contextlib.contextmanager
def sending(jobs: Sequence[Job]) -> Iterator[Sequence[Job]]:
    """Yield the jobs, each with the context of its own span, which lasts as long as the `with`.

    The span's parent is the job's `traceparent`, otherwise the program's current span. Without one the jobs stay as
    they are, and so they do where the program does not trace.
    """
    if not _traces():
        yield jobs
        return
    with contextlib.ExitStack() as spans:
        yield [_traced(job, spans.enter_context(_span(job))) for job in jobs]


def _traces() -> bool:
    """Return whether this program has set up traces; other libraries may have imported OpenTelemetry without that."""
    api = sys.modules.get("opentelemetry.trace")
    return api is not None and not isinstance(api.get_tracer_provider(), api.ProxyTracerProvider)


@contextlib.contextmanager
def _span(job: Job) -> Iterator["Span"]:
    from opentelemetry.trace import SpanKind, get_tracer
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    parent = None
    if is_traceparent(job.traceparent):
        parent = TraceContextTextMapPropagator().extract({"traceparent": str(job.traceparent)})
    lane = names.model_lane(job.lane, job.model)
    attributes = {
        "messaging.system": "redis",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": lane,
        "messaging.destination.partition.id": str(names.partition(job.id)),
        "messaging.message.id": job.id,
        "stoop.skill": job.skill,
    }
    with get_tracer("stoop.client").start_as_current_span(
        f"send {lane}",
        parent,
        SpanKind.PRODUCER,
        attributes,
        record_exception=False,
        set_status_on_exception=False,  # that status would have the exception's text
    ) as span:
        try:
            yield span
        except Exception as error:
            mark_failed(span, type(error).__qualname__)
            raise


def _traced(job: Job, span: "Span") -> Job:
    context = span.get_span_context()
    if not context.is_valid:
        return job
    traceparent = traceparent_of(context.trace_id, context.span_id, context.trace_flags)
    return msgspec.structs.replace(job, traceparent=traceparent)
