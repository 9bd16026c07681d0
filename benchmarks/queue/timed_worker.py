"""A worker with an engine that takes a set time for each request: `python -m benchmarks.queue.timed_worker`."""

import contextlib
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from benchmarks.queue.timed_engine import Service
from stoop.demo.child_server import ChildServer
from stoop_worker.config import read_config
from stoop_worker.logs import configure_logs
from stoop_worker.main import serve

__all__ = ["timed_worker"]

_START_SECONDS = 300.0


@contextlib.contextmanager
def timed_worker(folder: Path, name: str, service: Service, environment: Mapping[str, str]) -> Iterator[ChildServer]:
    """Run a worker with these variables; yield it once it claims jobs."""
    ready = folder / f"{name}-is-ready"
    variables = {"STOOP_READY_FILE": str(ready), "STOOP_DRAIN_SECONDS": "1", "STOOP_LOG_LEVEL": "warning"}
    worker = ChildServer(
        name=name,
        command=[sys.executable, "-m", "benchmarks.queue.timed_worker"],
        log=folder / f"{name}.log",
        environment={**os.environ, **service.environment, **variables, **environment},
        answers=lambda pid: ready.exists(),
        start_seconds=_START_SECONDS,
    )
    try:
        worker.start()
        yield worker
    finally:
        worker.end(signal.SIGTERM)


if __name__ == "__main__":
    config = read_config({"model": "timed"})
    configure_logs(config.log_level, config.log_format)
    serve(config, program=[sys.executable, "-m", "benchmarks.queue.timed_engine"])
