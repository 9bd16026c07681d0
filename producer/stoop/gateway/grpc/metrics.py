"""The metrics of gRPC, for Prometheus. A request within a stream is counted as a call of its own."""

from collections.abc import Callable
from functools import cache
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

__all__ = ["GrpcMetrics"]

_SECONDS: Final = (0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 900)


class GrpcMetrics:
    """Counts the calls of one gateway; `limited` counts a refusal together with those over HTTP."""

    def __init__(self, registry: CollectorRegistry, limited: Callable[[object], None]) -> None:
        self._limited = limited
        calls = Counter(
            "stoop_grpc_requests",
            "Ended calls and ended requests within streams, by gRPC status",
            ("method", "status"),
            registry=registry,
        )
        seconds = Histogram(
            "stoop_grpc_request_seconds",
            "Time from a call, or from a request within a stream, to the end of its answer",
            ("method",),
            buckets=_SECONDS,
            registry=registry,
        )
        self.streams = Gauge("stoop_grpc_streams", "Open streams of requests", registry=registry)
        # methods and statuses are few, and finding a metric by its labels takes longer than counting
        self._calls_of: Callable[..., Any] = cache(calls.labels)
        self._seconds_of: Callable[..., Any] = cache(seconds.labels)

    def ended(self, method: str, status: str, seconds: float, code: object) -> None:
        """Count a call that has ended; `code` is its error's code, or None."""
        self._calls_of(method, status).inc()
        self._seconds_of(method).observe(seconds)
        self._limited(code)
