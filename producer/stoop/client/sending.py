"""The client's part of a job's trace: a span for sending the job, which carries the span's context. Only a program that
traces with OpenTelemetry has these spans. In any other, nothing of OpenTelemetry is imported.
"""

import contextlib
import functools
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from stoop_schemas import names
from stoop_schemas.job import Job
from stoop_schemas.traceparent import is_traceparent

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer, TracerProvider

    from stoop_schemas.new_spans import NewSpans

__all__ = ["sending"]


@contextlib.contextmanager
def sending(jobs: Sequence[Job]) -> Iterator[Sequence[Job]]:
    """Yield the jobs, each with the context of its own span, which lasts as long as the `with`.

    The span's parent is the job's `traceparent` if that is well-formed, otherwise the program's current span. The last
    job's span is the current one inside the `with`, even if its trace is not kept. In a program that does not trace,
    the jobs stay as they are.
    """
    begins = _begins()
    if begins is None or not jobs:
        yield jobs
        return
    chosen = [begins.choose(job.traceparent if is_traceparent(job.traceparent) else begins.current()) for job in jobs]
    dropped = [one for one in chosen if isinstance(one, str)]
    if len(dropped) == len(jobs):  # the usual case
        with begins.dropping(dropped[-1]):
            yield list(map(_carrying, jobs, dropped))
        return
    with contextlib.ExitStack() as spans:
        pairs = zip(jobs, chosen, strict=True)
        traced = [
            _carrying(job, one if isinstance(one, str) else spans.enter_context(_span(one, job))) for job, one in pairs
        ]
        if isinstance(chosen[-1], str):  # not sooner: a span that begins inside a dropped trace is dropped
            spans.enter_context(begins.dropping(chosen[-1]))
        yield traced


def _begins() -> "NewSpans | None":
    """Return the maker of this program's spans; None if it has not set up traces, even if a library imports them."""
    api = sys.modules.get("opentelemetry.trace")
    return None if api is None else _new_spans(api.get_tracer_provider())


@functools.lru_cache(maxsize=1)
def _new_spans(provider: "TracerProvider") -> "NewSpans | None":
    from opentelemetry.trace import ProxyTracerProvider

    from stoop_schemas.new_spans import NewSpans

    return None if isinstance(provider, ProxyTracerProvider) else NewSpans(provider, "stoop.client")


def _carrying(job: Job, traceparent: str | None) -> Job:
    if traceparent is None or traceparent is job.traceparent:
        return job
    return msgspec.structs.replace(job, traceparent=traceparent)


@contextlib.contextmanager
def _span(tracer: "Tracer", job: Job) -> Iterator[str | None]:
    """Make a span for the sending of the job; yield its context."""
    from opentelemetry.trace import SpanKind

    from stoop_schemas.new_spans import current_span, span_traceparent

    lane = names.model_lane(job.lane, job.model)
    carrier = {"traceparent": str(job.traceparent)} if is_traceparent(job.traceparent) else {}
    attributes = {
        "messaging.system": "redis",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": lane,
        "messaging.destination.partition.id": str(names.partition(job.id)),
        "messaging.message.id": job.id,
        "stoop.skill": job.skill,
    }
    with current_span(tracer, f"send {lane}", SpanKind.PRODUCER, carrier, attributes) as span:
        yield span_traceparent(span)
