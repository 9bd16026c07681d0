"""The metrics of HTTP, for Prometheus: requests by route and status, and how long their callers wait."""

import functools
from importlib.metadata import version
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

__all__ = ["HttpMetrics"]

_SECONDS: Final = (0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 900)
_UNKNOWN: Final = "unknown"
"""The label of every request that no route serves: its path is the caller's, and could be anything."""

_LIMITED: Final = frozenset({"rate_limit_exceeded", "queue_full"})


class HttpMetrics:
    """Counts the requests of one gateway. A route is its template, such as `/v1/jobs/{id}`, never a path."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "stoop_http_requests",
            "Requests that have ended; status 499: the caller closed the connection before the answer",
            ("route", "status"),
            registry=self.registry,
        )
        self._seconds = self._histogram("stoop_http_request_seconds", "Time from a request to the end of its answer")
        self._first_byte = self._histogram(
            "stoop_http_first_byte_seconds", "Time from a request to the status line of its response"
        )
        self._limited = Counter(
            "stoop_http_limited",
            "Requests refused because an API key was over its limit or a lane was full",
            ("kind",),
            registry=self.registry,
        )
        self._streams = Gauge("stoop_http_streams", "Open streams", registry=self.registry)
        about = Gauge("stoop_build_info", "1; the version is a label", ("process", "version"), registry=self.registry)
        about.labels("gateway", version("stoop")).set(1)
        for kind in _LIMITED:
            self._limited.labels(kind)
        # routes and statuses are few, and finding a metric by its labels takes longer than counting
        self._requests_of = functools.cache(self._requests.labels)
        self._seconds_of = functools.cache(self._seconds.labels)
        self._first_byte_of = functools.cache(self._first_byte.labels)

    def begun(self, route: object, seconds: float, *, streams: bool) -> None:
        """Count a status that was sent, `seconds` after its request."""
        self._first_byte_of(_label(route)).observe(seconds)
        if streams:
            self._streams.inc()

    def ended(self, route: object, status: int, seconds: float, *, code: object, streamed: bool) -> None:
        """Count a request that has ended. `code` is its error's code, or None."""
        self._requests_of(_label(route), str(status)).inc()
        self._seconds_of(_label(route)).observe(seconds)
        self.refused(code)
        if streamed:
            self._streams.dec()

    def refused(self, code: object) -> None:
        """Count a request whose error has this code, if limits refused it."""
        if code in _LIMITED:
            self._limited.labels(str(code)).inc()

    def _histogram(self, name: str, text: str) -> Histogram:
        return Histogram(name, text, ("route",), buckets=_SECONDS, registry=self.registry)


def _label(route: object) -> str:
    return str(route) if route else _UNKNOWN
