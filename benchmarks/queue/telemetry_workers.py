"""The workers of `benchmarks.queue.telemetry_cost`, the collector of their traces, and the reader of their metrics."""

import contextlib
import os
import signal
import socket
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from stoop.demo.child_server import ChildServer

__all__ = [
    "SAME_HASHES",
    "Collector",
    "Worker",
    "collecting",
    "running_worker",
    "scraping",
    "traced_by",
]

SAME_HASHES = {"PYTHONHASHSEED": "0"}
"""Otherwise one process differs from the next by as much as traces of 1 % cost."""


@dataclass(slots=True)
class Worker:
    """One worker: its lane, whether it counts, and the share of its jobs that is traced."""

    lane: str
    name: str
    metrics: bool = True
    traced: float | None = None
    port: int | None = None
    pid: int = 0


@dataclass(slots=True)
class Collector:
    """Takes every span and keeps none; `received` is set by each export."""

    address: str
    received: threading.Event


def traced_by(collector: str, share: float | None, export_seconds: float) -> dict[str, str]:
    """Return the variables with which a process exports this share of traces, so often; None turns traces off."""
    if share is None:
        return {}
    return {
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector,
        "OTEL_TRACES_SAMPLER": "parentbased_traceidratio",
        "OTEL_TRACES_SAMPLER_ARG": str(share),
        "OTEL_BSP_SCHEDULE_DELAY": str(round(1000 * export_seconds)),
        "NO_PROXY": "127.0.0.1",
        "no_proxy": "127.0.0.1",
    }


@contextlib.contextmanager
def running_worker(worker: Worker, folder: Path, url: str, traced: Mapping[str, str]) -> Iterator[None]:
    """Run the worker inside the `with`."""
    ready = folder / f"{worker.lane}.ready"
    settings = {"redis_url": url, "ready_file": ready, "lanes": worker.lane, "log_level": "warning", "permits": 128}
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "STOOP_"))}
    if worker.metrics:
        worker.port = _free_port()
        settings["metrics_port"] = worker.port
    environment |= {**SAME_HASHES, **traced}
    server = ChildServer(
        name=f"the worker {worker.name}",
        command=[
            *(sys.executable, "-m", "benchmarks.queue.instant_worker"),
            *([] if worker.metrics else ["--without-metrics"]),
        ],
        log=folder / f"{worker.lane}.log",
        environment={**environment, **{f"STOOP_{name.upper()}": str(value) for name, value in settings.items()}},
        answers=lambda pid: ready.exists(),
        start_seconds=60,
    )
    server.start()
    assert server.process is not None
    worker.pid = server.process.pid
    try:
        yield
    finally:
        server.end(signal.SIGTERM)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@contextlib.contextmanager
def collecting() -> Iterator[Collector]:
    """Run a collector inside the `with`."""
    received = threading.Event()

    class Discard(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            received.set()
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Discard)
    with _thread(server.serve_forever):
        yield Collector(f"http://127.0.0.1:{server.server_address[1]}", received)
        server.shutdown()
    server.server_close()


@contextlib.contextmanager
def scraping(ports: Sequence[int]) -> Iterator[None]:
    """Read the metrics of these workers once a second, as Prometheus does."""
    ended = threading.Event()
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def scrape() -> None:
        while not ended.wait(1.0):
            for port in ports:
                with contextlib.suppress(OSError):
                    opener.open(f"http://127.0.0.1:{port}/metrics", timeout=10).read()

    with _thread(scrape):
        yield
        ended.set()


@contextlib.contextmanager
def _thread(target: Callable[[], None]) -> Iterator[None]:
    thread = threading.Thread(target=target, daemon=True)
    thread.start()
    yield
    thread.join()
