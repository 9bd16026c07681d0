"""A real worker whose engine hears tones: `python -m tests.support.speech_worker`; see `speech_child`."""

import contextlib
import signal
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from stoop.demo.child_server import ChildServer
from stoop_worker.config import read_config
from stoop_worker.logs import configure_logs
from stoop_worker.main import serve
from tests.support.worker_process import worker_process

__all__ = ["speech_worker"]


@contextlib.contextmanager
def speech_worker(folder: Path, environment: Mapping[str, str]) -> Iterator[ChildServer]:
    """Run a worker that hears tones, configured by these variables, inside the `with`."""
    worker = worker_process("tests.support.speech_worker", folder, environment, name="speech")
    worker.start()
    try:
        yield worker
    finally:
        worker.end(signal.SIGTERM)


if __name__ == "__main__":
    config = read_config({"model": "speech", "model_name": "speech"})
    configure_logs(config.log_level, config.log_format)
    serve(config, program=[sys.executable, "-m", "tests.support.speech_child"])
