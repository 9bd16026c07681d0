"""Begins the spans of gateways and clients, as OpenTelemetry does, but decides first which traces are not kept."""

import contextlib
import copy
from collections.abc import Iterator, Mapping
from contextvars import Token
from random import getrandbits
from typing import Any, cast

from opentelemetry.context import Context, attach, detach
from opentelemetry.trace import (
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    Tracer,
    TracerProvider,
    get_current_span,
    set_span_in_context,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from stoop_schemas.sampling import SamplingRule
from stoop_schemas.traceparent import traceparent_of
from stoop_schemas.tracing import mark_failed

__all__ = ["NewSpans", "current_span", "span_traceparent"]


class NewSpans:
    """Begins spans with a tracer of this provider.

    A tracer makes a span even for a trace that is not kept. Two of them took a quarter of the time of a gateway's
    whole request, so `choose` comes first and does without them.
    """

    def __init__(self, provider: TracerProvider, scope: str) -> None:
        self._tracer = provider.get_tracer(scope)
        # a provider that is turned off, and those of other makers, have no sampler
        self._rule = SamplingRule.of(getattr(self._tracer, "sampler", None))
        self._ids: Any = getattr(self._tracer, "id_generator", None)

    def choose(self, parent: str | None) -> str | Tracer:
        """Return the `traceparent` of a trace that is not kept, or the tracer that must begin the span.

        `parent` is the well-formed `traceparent` of the sender or of the current span; a new trace has none.
        """
        if parent is not None:
            return parent if self._rule.drops_sent(parent) else self._tracer
        if self._ids is None:
            return self._tracer
        drawn = getrandbits(192)  # ids of a trace and a span, quicker than two calls of the generator
        if self._rule.drops_new(drawn):
            digits = drawn.to_bytes(24).hex()
            return f"00-{digits[16:]}-{digits[:16]}-00"
        tracer: Any = copy.copy(self._tracer)
        tracer.id_generator = _ChosenTrace(drawn, self._ids)
        return cast(Tracer, tracer)

    @staticmethod
    def current() -> str | None:
        """Return the `traceparent` of the program's current span, None if there is none."""
        return span_traceparent(get_current_span())

    @staticmethod
    def dropping(traceparent: str) -> contextlib.AbstractContextManager[None]:
        """Make a trace that is not kept the current one, so that the spans of instrumented libraries are dropped too.

        `traceparent` is well-formed. Without this, each call of a library would begin a trace of its own.
        """
        return _Dropping(traceparent)


@contextlib.contextmanager
def current_span(
    tracer: Tracer, name: str, kind: SpanKind, carrier: Mapping[str, str], attributes: Mapping[str, Any]
) -> Iterator[Span]:
    """Begin a span and make it the current one; its parent is in the `carrier`, otherwise it is the current span.

    An exception marks the span as failed.
    """
    with tracer.start_as_current_span(
        name,
        TraceContextTextMapPropagator().extract(carrier) if carrier else None,
        kind,
        attributes,
        record_exception=False,
        set_status_on_exception=False,  # that status would have the exception's text
    ) as span:
        try:
            yield span
        except Exception as error:
            mark_failed(span, type(error).__qualname__)
            raise


def span_traceparent(span: Span) -> str | None:
    """Return the `traceparent` of a span; None if it has no context, as where traces are turned off."""
    context = span.get_span_context()
    return traceparent_of(context.trace_id, context.span_id, context.trace_flags) if context.is_valid else None


class _DroppedSpan(NonRecordingSpan):
    """The span of a trace that is not kept. It makes its context only if a library asks for that, because few do."""

    def __init__(self, traceparent: str) -> None:
        self.traceparent = traceparent

    def get_span_context(self) -> SpanContext:
        return SpanContext(int(self.traceparent[3:35], 16), int(self.traceparent[36:52], 16), is_remote=False)

    def __repr__(self) -> str:
        return f"NonRecordingSpan({self.get_span_context()!r})"


class _Dropping:
    """A class, because a generator's `with` takes a microsecond longer."""

    def __init__(self, traceparent: str) -> None:
        self._traceparent = traceparent
        self._token: Token[Context] | None = None

    def __enter__(self) -> None:
        current = get_current_span()
        # in a gateway, whose client sends the jobs of a dropped request, it is the current one already
        if type(current) is not _DroppedSpan or current.traceparent != self._traceparent:
            self._token = attach(set_span_in_context(_DroppedSpan(self._traceparent)))

    def __exit__(self, *_: object) -> None:
        if self._token is not None:
            detach(self._token)


class _ChosenTrace:
    """Gives the next span a trace with the chosen last 64 bits, because these decide; the rest is the generator's."""

    def __init__(self, chosen: int, ids: Any) -> None:
        self._chosen = chosen
        self._ids = ids

    def generate_trace_id(self) -> int:
        whole: int = self._ids.generate_trace_id()
        return whole >> 64 << 64 | self._chosen & (1 << 64) - 1

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ids, name)
