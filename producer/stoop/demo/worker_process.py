"""A worker as a child process, started as an operator would start it."""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from stoop.demo.child_server import ChildServer, EmbeddedServerError
from stoop.demo.embedded import EmbeddedRedis, EmbeddedS3
from stoop.errors import ConfigError

__all__ = [
    "BUNDLED",
    "EMBEDS",
    "HEARS",
    "LANE",
    "SEES",
    "bundled",
    "ended_early",
    "find_model",
    "kept_running",
    "running_worker",
]

_POLL_SECONDS = 0.25
_PAUSE_SECONDS = 5.0

SEES = "demo"
"""The short name of the bundled model that sees."""

HEARS = "demo-hearing"
"""The short name of the bundled Whisper."""

EMBEDS = "demo-embedding"
"""The short name of the bundled embedder."""

BUNDLED = {SEES: "demo_model", HEARS: "demo_hearing", EMBEDS: "demo_embedding"}
"""The folders of the bundled models."""

LANE = "demo"
"""The demo's own lane: on a shared Redis, no other worker takes its jobs, and its worker takes no others."""


def find_model(model: str | None) -> str:
    """Return the model to run: the requested one, or the folder of a bundled one, by default `SEES`."""
    name = SEES if model is None else model
    if name not in BUNDLED or Path(name).exists():
        return name
    folder = bundled(f"{BUNDLED[name]}/model")
    if not (folder / "config.json").is_file():
        raise ConfigError("the demo's models are missing: run from a clone, or give --model FOLDER")
    return str(folder)


def bundled(name: str) -> Path:
    """Return a folder that ships with the wheel or the clone, such as "demo_model/model"."""
    here = Path(__file__).resolve().parent
    return here / name if (here / name).exists() else here.parents[2] / "deploy" / name


@contextlib.contextmanager
def running_worker(
    folder: Path,
    model: str,
    redis: EmbeddedRedis,
    s3: EmbeddedS3,
    flags: Mapping[str, str] | None = None,
    start_seconds: float = 60.0,
) -> Iterator[ChildServer]:
    """Run a worker on this machine's CPU inside the `with`; `flags` adds options of `stoop worker`.

    Raises `EmbeddedServerError` with the end of the worker's log if it does not become ready.
    """
    ready = folder / "worker-is-ready"
    options = {
        "model": model,
        "device": "cpu",
        "threads": str(_threads()),
        "lanes": LANE,
        "ready-file": str(ready),
        "drain-seconds": "1",  # an interrupted demo does not wait for its jobs
        **(flags or {}),
    }
    worker = ChildServer(
        name="the worker",
        command=[
            sys.executable,
            *("-m", "stoop", "worker"),
            *(flag for name, value in options.items() for flag in (f"--{name}", value)),
        ],
        log=folder / "worker.log",
        environment={**os.environ, **s3.environment, "STOOP_REDIS_URL": redis.url, "STOOP_S3_ENDPOINT": s3.endpoint},
        answers=lambda pid: ready.exists(),
        start_seconds=start_seconds,
    )
    ready.unlink(missing_ok=True)  # a worker that was killed leaves it, and the new one would seem to be ready at once
    try:
        worker.start()
        yield worker
    finally:
        worker.end(signal.SIGTERM)


def ended_early(worker: ChildServer) -> EmbeddedServerError:
    """Return the error for a worker that ended unexpectedly, with the end of its log."""
    code = worker.process.returncode if worker.process else None
    return EmbeddedServerError(f"the worker ended with {code}: {worker.log_tail()}")


@contextlib.contextmanager
def kept_running(worker: ChildServer, note: Callable[[str], None]) -> Iterator[None]:
    """Start the worker again whenever it ends inside the `with`, and give `note` a line about it."""
    stopped = threading.Event()

    def watch() -> None:
        while not stopped.wait(_POLL_SECONDS):
            if worker.process is None or worker.process.poll() is None:
                continue
            note(f"{ended_early(worker)}; starting it again")
            try:
                worker.start()
            except EmbeddedServerError as error:
                note(str(error))
                stopped.wait(_PAUSE_SECONDS)

    watcher = threading.Thread(target=watch, name="worker-watcher")
    watcher.start()
    try:
        yield
    finally:
        stopped.set()
        watcher.join()


def _threads() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
