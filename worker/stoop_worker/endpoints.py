"""The metrics port: metrics and probes, answered by threads of their own, so that a stuck worker answers too."""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from socketserver import ThreadingMixIn
from threading import Thread
from typing import TYPE_CHECKING, Any, Final, Protocol
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app

from stoop_worker.errors import ConfigError

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

__all__ = ["METRICS", "Probes", "serving"]

METRICS: Final = "/metrics"


class Probes(Protocol):
    """Answers each probe with the reason for failure, or None; called in any thread."""

    def not_alive(self) -> str | None:
        """Return the reason to restart the process, or None."""

    def not_ready(self) -> str | None:
        """Return the reason that no jobs are claimed, or None."""

    def not_started(self) -> str | None:
        """Return the reason that the process has not started, or None."""


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Silent(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: probes come every few seconds."""


@contextlib.contextmanager
def serving(port: int | None, registry: CollectorRegistry, health: Probes, *, host: str = "") -> Iterator[int | None]:
    """Answer on this port (0: any free one) and yield it; without one do nothing. An empty `host` means all addresses.

    Raises `ConfigError` if the port cannot be opened.
    """
    if port is None:
        yield None
        return
    try:
        server = make_server(host, port, _application(registry, health), _Server, _Silent)
    except OSError as error:
        raise ConfigError(f"--metrics-port (STOOP_METRICS_PORT): {host}:{port}: {error.strerror}") from error
    thread = Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _application(registry: CollectorRegistry, health: Probes) -> Callable[..., Iterable[bytes]]:
    metrics = make_wsgi_app(registry)
    probes = {"/healthz": health.not_alive, "/readyz": health.not_ready, "/startupz": health.not_started}

    def answer(environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        if path == METRICS:
            body: Iterable[bytes] = metrics(environ, start_response)
            return body
        if path not in probes:
            known = ", ".join((METRICS, *probes))
            return _plain(start_response, "404 Not Found", f"there is nothing here: try {known}")
        obstacle = probes[path]()
        if obstacle is None:
            return _plain(start_response, "200 OK", "ok")
        return _plain(start_response, "503 Service Unavailable", obstacle)

    return answer


def _plain(start_response: "StartResponse", status: str, text: str) -> Iterable[bytes]:
    body = f"{text}\n".encode()
    start_response(status, [("Content-Type", "text/plain; charset=utf-8"), ("Content-Length", str(len(body)))])
    return [body]
