"""Serves the queue's metrics over HTTP, until SIGTERM or Ctrl-C."""

import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app

from stoop.client.loop_thread import LoopThread
from stoop.config import ProducerConfig
from stoop.errors import ConfigError
from stoop.exporter.metrics import QueueCollector
from stoop.exporter.options import ExporterOptions
from stoop.exporter.reader import QueueReader
from stoop.operator.redis_operator import RedisOperator

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

__all__ = ["exporting", "run"]


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Silent(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: Prometheus comes every few seconds."""


def run(config: ProducerConfig, options: ExporterOptions) -> None:
    """Serve until a signal; raises `ConfigError`."""
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    with exporting(config, options) as address:
        print(f"stoop exporter listens on {address}", file=sys.stderr, flush=True)
        ended.wait()


@contextlib.contextmanager
def exporting(config: ProducerConfig, options: ExporterOptions) -> Iterator[str]:
    """Serve within the block and yield the address, such as `http://127.0.0.1:9091`; raises `ConfigError`."""
    operator = RedisOperator(config.redis_url.get_secret_value())
    reader = QueueReader(operator, options.partition_numbers, options.lane_names, tenants=options.tenants > 0)
    registry, loop = CollectorRegistry(), LoopThread("exporter")
    registry.register(QueueCollector(lambda: loop.wait(reader.read()), tenants=options.tenants))
    try:
        with _listening(options, _application(registry)) as server:
            thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
            thread.start()
            yield f"http://{options.host}:{server.server_port}"
            server.shutdown()
            thread.join()
    finally:
        loop.close(operator.close)


def _listening(options: ExporterOptions, application: Callable[..., Iterable[bytes]]) -> WSGIServer:
    try:
        return make_server(options.host, options.port, application, _Server, _Silent)
    except OSError as error:
        raise ConfigError(
            f"cannot listen on {options.host}:{options.port}: {error.strerror}; choose another --port"
        ) from None


def _application(registry: CollectorRegistry) -> Callable[..., Iterable[bytes]]:
    metrics = make_wsgi_app(registry)
    # Redis does not matter for the probe: a restart of this process would repair nothing
    pages = {"/healthz": ("200 OK", b"ok\n")}
    missing = ("404 Not Found", b"there is nothing here: try /metrics, /healthz\n")

    def answer(environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        if path == "/metrics":
            body: Iterable[bytes] = metrics(environ, start_response)
            return body
        status, text = pages.get(path, missing)
        start_response(status, [("Content-Type", "text/plain; charset=utf-8"), ("Content-Length", str(len(text)))])
        return [text]

    return answer
