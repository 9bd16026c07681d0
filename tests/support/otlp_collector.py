"""A collector of traces in this process: OpenTelemetry's protocol over HTTP, as any real collector takes it."""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

__all__ = ["Collector", "Exported", "collecting"]


@dataclass(frozen=True)
class Exported:
    """A span as it arrived; ids are hex, times are Unix nanoseconds."""

    name: str
    service: str
    trace_id: str
    span_id: str
    parent_id: str
    kind: int
    start: int
    end: int
    failed: bool
    attributes: dict[str, Any]


@dataclass
class Collector:
    """All that has arrived, parsed and as bytes."""

    endpoint: str = ""
    spans: list[Exported] = field(default_factory=list)
    received: list[bytes] = field(default_factory=list)
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def take(self, body: bytes) -> None:
        request = ExportTraceServiceRequest()
        request.ParseFromString(body)
        with self._changed:
            self.received.append(body)
            for each in request.resource_spans:
                service = _values(each.resource.attributes)["service.name"]
                self.spans += [_exported(span, service) for scope in each.scope_spans for span in scope.spans]
            self._changed.notify_all()

    async def until(self, arrived: Callable[[list[Exported]], bool], seconds: float = 60.0) -> list[Exported]:
        """Wait until the spans are as wanted, and return them."""

        def wait() -> bool:
            with self._changed:
                return self._changed.wait_for(lambda: arrived(self.spans), seconds)

        assert await asyncio.to_thread(wait), [span.name for span in self.spans]
        return list(self.spans)


@contextlib.contextmanager
def collecting() -> Iterator[Collector]:
    """Collect on a port of this machine."""
    collector = Collector()

    class Requests(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            collector.take(body)
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Requests)
    server.daemon_threads = True
    serving = threading.Thread(target=server.serve_forever, args=(0.05,))
    serving.start()
    collector.endpoint = f"http://127.0.0.1:{server.server_port}"
    try:
        yield collector
    finally:
        server.shutdown()
        serving.join()
        server.server_close()


def _exported(span: Any, service: str) -> Exported:
    return Exported(
        name=span.name,
        service=service,
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        kind=span.kind,
        start=span.start_time_unix_nano,
        end=span.end_time_unix_nano,
        failed=span.status.code == 2,
        attributes=_values(span.attributes),
    )


def _values(attributes: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}
