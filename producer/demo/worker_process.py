"""One worker as a child process, as an operator would start it."""

import contextlib
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from producer.child_server import ChildServer, EmbeddedServerError
from producer.embedded import EmbeddedRedis, EmbeddedS3
from producer.errors import ConfigError

__all__ = ["LANE", "find_model", "last_words", "running_worker"]

LANE = "demo"
"""The demo's own lane: on a Redis that others use too, nobody else's worker takes its jobs, nor it theirs."""


def find_model(model: str | None) -> str:
    """Return the model to run: the one asked for, or the folder that comes with the clone or the wheel."""
    if model is not None:
        return model
    here = Path(__file__).resolve().parent
    for folder in (here / "model", here.parents[1] / "deploy" / "demo" / "model"):
        if (folder / "config.json").is_file():
            return str(folder)
    raise ConfigError("the demo's model is not here: run from a clone, or give --model FOLDER")


@contextlib.contextmanager
def running_worker(
    folder: Path, model: str, redis: EmbeddedRedis, s3: EmbeddedS3, flags: Mapping[str, str] | None = None
) -> Iterator[ChildServer]:
    """Run a worker on this machine's CPU until the end of the `with`, with more `flags` of `stoop worker` if given.

    Raises `EmbeddedServerError` with its last words when it does not get ready.
    """
    ready = folder / "worker-is-ready"
    options = {
        "model": model,
        "device": "cpu",
        "threads": str(_threads()),
        "lanes": LANE,
        "ready-file": str(ready),
        "drain-seconds": "1",  # who breaks the demo off does not wait for its jobs
        **(flags or {}),
    }
    worker = ChildServer(
        name="the worker",
        command=[
            sys.executable,
            *("-m", "producer", "worker"),
            *(word for name, value in options.items() for word in (f"--{name}", value)),
        ],
        log=folder / "worker.log",
        environment={**os.environ, **s3.environment, "STOOP_REDIS_URL": redis.url, "STOOP_S3_ENDPOINT": s3.endpoint},
        answers=lambda pid: ready.exists(),
        start_seconds=60.0,
    )
    try:
        worker.start()
        yield worker
    finally:
        worker.end(signal.SIGTERM)


def last_words(worker: ChildServer) -> EmbeddedServerError:
    """Return the error that tells how a worker ended that should not have."""
    code = worker.process.returncode if worker.process else None
    return EmbeddedServerError(f"the worker ended with {code}: {worker.last_words()}")


def _threads() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
