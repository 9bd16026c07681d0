"""The export of traces by OpenTelemetry, in the gateway and in the worker alike.

OpenTelemetry's own variables decide and configure. Unless they ask for traces, nothing of OpenTelemetry is imported.
"""

import contextlib
import os
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
    from opentelemetry.trace import Span

__all__ = ["INSTALL", "Export", "TracesUnavailable", "captures_content", "exporting", "mark_failed", "traces_wanted"]

INSTALL: Final = "pip install 'stoop[otel]'"
"""The command that installs the packages that `exporting` needs."""

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_CLOSE_SECONDS = 3.0


class TracesUnavailable(Exception):
    """The variables ask for traces that this installation cannot export; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Export:
    """OpenTelemetry's provider of tracers, and the sink into which all its spans go."""

    provider: "TracerProvider"
    sink: "SpanProcessor"


def traces_wanted(variables: Mapping[str, str]) -> bool:
    """Return whether the variables ask for traces: they name an endpoint or the exporter `otlp`."""
    if variables.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    exporter = variables.get("OTEL_TRACES_EXPORTER", "").strip().lower()
    return exporter != "none" and (exporter == "otlp" or any(variables.get(name) for name in _ENDPOINTS))


def captures_content(variables: Mapping[str, str]) -> bool:
    """Return whether spans should contain questions and answers."""
    return variables.get("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "").strip().lower() == "true"


def mark_failed(span: "Span", kind: str) -> None:
    """Give a span the status of a failure. Its `error.type` is `kind`: a code, or the type of an exception.

    An exception's text stays out of the span, because it may quote the caller.
    """
    from opentelemetry.trace import Status, StatusCode

    span.set_attribute("error.type", kind)
    span.set_status(Status(StatusCode.ERROR))


@contextlib.contextmanager
def exporting(name: str, **resource: str) -> Iterator[Export]:
    """Export spans inside the `with`, as the service `name` unless the variables name another.

    The exit sends the remaining spans, and gives up after 3 seconds. Raises `TracesUnavailable`.
    """
    export = _export({"service.name": name, **resource})
    try:
        yield export
    finally:
        closing = threading.Thread(target=export.provider.shutdown, daemon=True, name="traces")
        closing.start()
        closing.join(_CLOSE_SECONDS)


def _export(attributes: Mapping[str, str]) -> Export:
    protocol = next((value for name in _PROTOCOLS if (value := os.environ.get(name))), "http/protobuf")
    if protocol != "http/protobuf":
        raise TracesUnavailable(f"{_PROTOCOLS[1]} is {protocol}: set http/protobuf, and the collector's port for HTTP")
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import OTELResourceDetector, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        raise TracesUnavailable(f"OTEL_* variables ask for traces, but OpenTelemetry is missing: {INSTALL}") from None
    resource = Resource.create().merge(Resource(dict(attributes))).merge(OTELResourceDetector().detect())
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    sink = BatchSpanProcessor(OTLPSpanExporter())
    provider.add_span_processor(sink)
    return Export(provider, sink)
