"""A span for each request of the gateway, if OpenTelemetry's variables ask for traces."""

import contextlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import structlog
from starlette.types import Scope

from stoop_schemas.traceparent import traceparent_of
from stoop_schemas.tracing import TracesUnavailable, exporting, mark_failed, traces_wanted

if TYPE_CHECKING:
    from opentelemetry.trace import Span

__all__ = ["BegunSpan", "RequestSpans", "exporting_spans", "name_job"]

_log: Any = structlog.get_logger()

_QUIET: Final = frozenset({"/healthz", "/readyz", "/metrics"})
"""Paths that only probes and Prometheus ask for."""


@dataclass(frozen=True, slots=True)
class BegunSpan:
    """A span, and the header that makes others its children."""

    span: "Span"
    traceparent: str


class RequestSpans:
    """Begins a span for each request, as a child of the caller's; does nothing until `exporting_spans` runs."""

    def __init__(self) -> None:
        self.exported = False

    @contextlib.contextmanager
    def serving(self, scope: Scope) -> Iterator["Span | None"]:
        """Make the request's span the current one, so that the messages of its job belong to it."""
        if not self.exported or scope["path"] in _QUIET:
            yield None
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        attributes = {"http.request.method": scope["method"], "url.scheme": scope["scheme"]}
        with self.begin(scope["method"], headers, attributes) as begun:
            if begun is not None:
                scope.setdefault("state", {})["traceparent"] = begun.traceparent
            yield None if begun is None else begun.span

    @contextlib.contextmanager
    def begin(
        self, name: str, headers: Mapping[str, str], attributes: Mapping[str, str]
    ) -> Iterator["BegunSpan | None"]:
        """Make a new span the current one, as a child of the one in the header `traceparent`; None if none is made."""
        if not self.exported:
            yield None
            return
        from opentelemetry.trace import SpanKind, get_tracer
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        with get_tracer("stoop.gateway").start_as_current_span(
            name,
            TraceContextTextMapPropagator().extract(headers),
            SpanKind.SERVER,
            attributes,
            record_exception=False,
            set_status_on_exception=False,  # that status would have the exception's text
        ) as span:
            context = span.get_span_context()
            try:
                yield BegunSpan(span, traceparent_of(context.trace_id, context.span_id, context.trace_flags))
            except Exception as error:
                mark_failed(span, type(error).__qualname__)
                raise

    @staticmethod
    def end(span: "Span", method: str, status: int, facts: dict[str, object]) -> None:
        """Name the span by its route, never by its path, and add the facts of the access log."""
        route = facts.get("route")
        if route:
            span.update_name(f"{method} {route}")
            span.set_attribute("http.route", str(route))
        span.set_attribute("http.response.status_code", status)
        name_job(span, facts)
        if status >= 500:
            mark_failed(span, str(facts.get("code") or status))


def name_job(span: "Span", facts: Mapping[str, object]) -> None:
    """Add the job among the facts of the access log to the span."""
    for name in ("job", "skill", "lane"):
        if name in facts:
            span.set_attribute(f"stoop.{name}", str(facts[name]))


@contextlib.contextmanager
def exporting_spans(spans: RequestSpans) -> Iterator[None]:
    """Export the gateway's spans inside the `with`; without packages for that, log what to install."""
    with contextlib.ExitStack() as stack:
        if traces_wanted(os.environ):
            try:
                export = stack.enter_context(exporting("stoop-gateway"))
            except TracesUnavailable as error:
                _log.warning("no traces are exported", problem=str(error))
            else:
                from opentelemetry.trace import set_tracer_provider

                # the client's spans, too, go where this process exports its own
                set_tracer_provider(export.provider)
                spans.exported = True
        yield
