"""Makes spans that have already ended; a tracer's spans, which may be in progress, take several times as long."""

from typing import Any, Final

from opentelemetry.attributes import BoundedAttributes
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from stoop_schemas.tracing import Export

__all__ = ["ERROR_TYPE", "FinishedSpans"]

ERROR_TYPE: Final = "error.type"
"""The attribute of a failed span: a failure's code."""

_UNSET: Final = Status(StatusCode.UNSET)
_ERROR: Final = Status(StatusCode.ERROR)


class FinishedSpans:
    """Makes spans of traces that are kept, and exports them. Attributes keep to the limits of OTEL_* variables."""

    def __init__(self, export: Export, scope: str) -> None:
        self._new_id = export.provider.id_generator.generate_span_id
        self._resource = export.provider.resource
        self._scope = InstrumentationScope(scope)
        self._pass_on = export.sink.on_end
        self._limits = SpanLimits()

    def under(self, parent: SpanContext) -> SpanContext:
        """Return the context of a new span with this parent."""
        flags = TraceFlags(parent.trace_flags | TraceFlags.SAMPLED)
        return SpanContext(parent.trace_id, self._new_id(), is_remote=False, trace_flags=flags)

    def add(
        self,
        name: str,
        parent: SpanContext,
        times: tuple[int, int],
        *,
        kind: SpanKind = SpanKind.INTERNAL,
        attributes: dict[str, Any] | None = None,
        context: SpanContext | None = None,
    ) -> None:
        """Export a span from and to these times (Unix ns). One with the attribute `error.type` has failed.

        A span that has children was given its `context` by `under`.
        """
        span = ReadableSpan(
            name,
            context or self.under(parent),
            parent,
            self._resource,
            self._limited(attributes),
            kind=kind,
            status=_ERROR if attributes and ERROR_TYPE in attributes else _UNSET,
            start_time=times[0],
            end_time=times[1],
            instrumentation_scope=self._scope,
        )
        self._pass_on(span)

    def _limited(self, attributes: dict[str, Any] | None) -> Any:
        most, longest = self._limits.max_span_attributes, self._limits.max_span_attribute_length
        if attributes is None or (longest is None and (most is None or len(attributes) <= most)):
            return attributes
        return BoundedAttributes(most, attributes, immutable=True, max_value_len=longest)
