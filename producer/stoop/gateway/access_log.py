"""The outermost layer of a request: its id, log line, metrics and span. It closes all that the request left open.

The log names routes, keys, jobs, codes and times. It has no path, query, body or header of a caller, because
all of these may hold content or secrets. For an unforeseen exception it has the place and the type.
"""

import time
import traceback
from collections.abc import Mapping
from typing import Any

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from stoop.gateway.admitted import request_id_of
from stoop.gateway.errors import ApiError
from stoop.gateway.metrics import HttpMetrics
from stoop.gateway.traces import RequestSpans

__all__ = ["AccessLog", "place_of"]

_log: Any = structlog.get_logger()


class AccessLog:
    """The outermost layer of the application."""

    def __init__(self, app: ASGIApp, metrics: HttpMetrics, spans: RequestSpans) -> None:
        self._app = app
        self._metrics = metrics
        self._spans = spans

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        # of a header that is repeated, the first counts
        given = dict(reversed(scope["headers"]))
        with self._spans.serving(scope, given) as span:
            request = _Request(scope, send, given, self._metrics)
            await request.serve(self._app, receive)
            if span is not None:
                self._spans.end(span, scope["method"], request.status, request.facts)


class _Request:
    def __init__(self, scope: Scope, send: Send, given: Mapping[bytes, bytes], metrics: HttpMetrics) -> None:
        self._metrics = metrics
        self._streams = False
        self._scope = scope
        self._send = send
        self._began = time.perf_counter()
        self.status = 0
        self._request_id = request_id_of(given.get(b"x-request-id", b"").decode("latin-1"))
        self.facts: dict[str, object] = {}
        self._closers: list[Any] = []
        scope.setdefault("state", {}).update(
            given=given,
            facts=self.facts,
            closers=self._closers,
            tokens=0,
            request_id=self._request_id,
            headers={"x-request-id": self._request_id},
        )

    async def serve(self, app: ASGIApp, receive: Receive) -> None:
        try:
            await app(self._scope, receive, self._sent)
        except Exception as error:
            _log.error("unforeseen", request=self._request_id, exception=place_of(error))
            if not self.status:
                await self._apologise()
        finally:
            for close in self._closers:
                close()
            self._log_request()
            self._count_request()

    @property
    def _elapsed(self) -> float:
        return time.perf_counter() - self._began

    async def _sent(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = dict(message["headers"])
            self._streams = headers.get(b"content-type", b"").startswith(b"text/event-stream")
            self._metrics.begun(self.facts.get("route"), self._elapsed, streams=self._streams)
            if b"x-request-id" not in headers:
                message["headers"] = [*message["headers"], (b"x-request-id", self._request_id.encode())]
        await self._send(message)

    async def _apologise(self) -> None:
        error = ApiError(500, "internal", f"the gateway failed; its log has the place under {self._request_id}")
        headers = [(b"content-type", b"application/json"), (b"x-request-id", self._request_id.encode())]
        headers += [(name.encode(), value.encode()) for name, value in error.headers.items()]
        await self._sent({"type": "http.response.start", "status": error.status, "headers": headers})
        await self._send({"type": "http.response.body", "body": error.body})

    def _log_request(self) -> None:
        milliseconds = round(1000 * self._elapsed, 1)
        method = self._scope["method"] if self.facts.get("route") else None
        _log.info("request", request=self._request_id, status=self.status, ms=milliseconds, method=method, **self.facts)

    def _count_request(self) -> None:
        facts = self.facts
        self._metrics.ended(
            facts.get("route"), self.status, self._elapsed, code=facts.get("code"), streamed=self._streams
        )


def place_of(error: BaseException) -> str:
    """Return the place and the type of an exception, without its text, which may hold content."""
    where = "".join(traceback.format_tb(error.__traceback__)).rstrip()
    return f"{where}\n{type(error).__module__}.{type(error).__qualname__}"
