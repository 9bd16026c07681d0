"""A span for each request of the gateway, if OpenTelemetry's variables ask for traces."""

import contextlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import structlog
from starlette.types import Scope

from stoop_schemas.traceparent import is_traceparent
from stoop_schemas.tracing import TracesUnavailable, exporting, mark_failed, traces_wanted

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer, TracerProvider

    from stoop_schemas.new_spans import NewSpans

__all__ = ["BegunSpan", "RequestSpans", "exporting_spans", "name_job"]

_log: Any = structlog.get_logger()

_QUIET: Final = frozenset({"/healthz", "/readyz", "/metrics"})
"""Paths that only probes and Prometheus ask for."""


@dataclass(frozen=True, slots=True)
class BegunSpan:
    """The header that makes other spans children of a request's, and its span; a trace that is not kept has none."""

    traceparent: str | None
    span: "Span | None" = None


class RequestSpans:
    """Begins a span for each request, as a child of the caller's; does nothing until `exporting_spans` runs."""

    def __init__(self) -> None:
        self._begins: NewSpans | None = None

    def export_to(self, provider: "TracerProvider") -> None:
        """Begin spans of this provider from now on."""
        from stoop_schemas.new_spans import NewSpans

        self._begins = NewSpans(provider, "stoop.gateway")

    @contextlib.contextmanager
    def serving(self, scope: Scope, given: Mapping[bytes, bytes]) -> Iterator["Span | None"]:
        """Make the request's span the current one, so that the messages of its job belong to it.

        `given` are the request's headers. Without a span, the context of a trace that is not kept goes on
        and is the current one.
        """
        if self._begins is None or scope["path"] in _QUIET:
            yield None
            return
        parent = given.get(b"traceparent")
        chosen = self._begins.choose(None if parent is None else _sent(parent.decode("latin-1")))
        if isinstance(chosen, str):
            scope.setdefault("state", {})["traceparent"] = chosen
            with self._begins.dropping(chosen):
                yield None
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in given.items()}
        attributes = {"http.request.method": scope["method"], "url.scheme": scope["scheme"]}
        with _current(chosen, scope["method"], headers, attributes) as begun:
            scope.setdefault("state", {})["traceparent"] = begun.traceparent
            yield begun.span

    @contextlib.contextmanager
    def begin(self, name: str, headers: Mapping[str, str], attributes: Mapping[str, str]) -> Iterator[BegunSpan]:
        """Make a new span the current one, as a child of the one in the header `traceparent`."""
        if self._begins is None:
            yield BegunSpan(None)
            return
        chosen = self._begins.choose(_sent(headers.get("traceparent")))
        if isinstance(chosen, str):
            with self._begins.dropping(chosen):
                yield BegunSpan(chosen)
            return
        with _current(chosen, name, headers, attributes) as begun:
            yield begun

    @staticmethod
    def end(span: "Span", method: str, status: int, facts: dict[str, object]) -> None:
        """Name the span by its route, never by its path, and add the facts of the access log."""
        route = facts.get("route")
        found: dict[str, str | int] = {"http.response.status_code": status}
        if route:
            span.update_name(f"{method} {route}")
            found["http.route"] = str(route)
        span.set_attributes(found)
        name_job(span, facts)
        if status >= 500:
            mark_failed(span, str(facts.get("code") or status))


def _sent(traceparent: str | None) -> str | None:
    """Return the caller's context; a malformed one is ignored."""
    return traceparent if is_traceparent(traceparent) else None


@contextlib.contextmanager
def _current(
    tracer: "Tracer", name: str, headers: Mapping[str, str], attributes: Mapping[str, str]
) -> Iterator[BegunSpan]:
    from opentelemetry.trace import SpanKind

    from stoop_schemas.new_spans import current_span, span_traceparent

    with current_span(tracer, name, SpanKind.SERVER, headers, attributes) as span:
        yield BegunSpan(span_traceparent(span), span)


def name_job(span: "Span", facts: Mapping[str, object]) -> None:
    """Add the job among the facts of the access log to the span."""
    span.set_attributes({f"stoop.{name}": str(facts[name]) for name in ("job", "skill", "lane") if name in facts})


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
                spans.export_to(export.provider)
        yield
