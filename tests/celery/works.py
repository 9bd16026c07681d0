"""Processes for tests of the dialect: our worker with a scripted engine, and a stock Celery worker."""

import contextlib
import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from celery import Celery

__all__ = ["ROOT", "SECONDS", "Process", "close", "gpu_worker", "stock_worker", "until"]

SECONDS = 60.0
ROOT = Path(__file__).parents[2]


class Process:
    """One process whose words are kept."""

    def __init__(self, folder: Path, name: str, command: list[str], variables: Mapping[str, str]) -> None:
        self._log = folder / f"{name}.log"
        path = os.pathsep.join([str(ROOT), *sys.path])
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", *command],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONPATH": path, **variables},
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def words(self) -> str:
        return self._log.read_text(errors="replace")

    @property
    def children(self) -> list[int]:
        tasks = Path(f"/proc/{self.pid}/task")
        return [int(pid) for task in tasks.iterdir() for pid in (task / "children").read_text().split()]

    def runs(self) -> bool:
        assert self._process.poll() is None, f"it ended: {self.words[-2000:]}"
        return True

    def end(self, how: signal.Signals) -> int:
        """Send a signal, and return the exit code."""
        self._process.send_signal(how)
        return self._process.wait(timeout=SECONDS)

    def stop(self) -> None:
        if self._process.poll() is None:
            self.end(signal.SIGKILL)


def until(what: Callable[[], bool]) -> None:
    """Wait until something is so, or fail."""
    deadline = time.monotonic() + SECONDS
    while not what():
        assert time.monotonic() < deadline, "it has not come"
        time.sleep(0.02)


@contextlib.contextmanager
def gpu_worker(folder: Path, name: str, redis_url: str, **settings: object) -> Iterator[Process]:
    """Our worker, from when it claims jobs."""
    ready = folder / f"{name}.ready"
    given = {"redis_url": redis_url, "lease_seconds": 2, "permits": 32, "ready_file": ready, **settings}
    variables = {f"STOOP_{key.upper()}": str(value) for key, value in given.items()}
    process = Process(folder, name, ["tests.support.scripted_worker"], variables)
    try:
        until(lambda: process.runs() and ready.exists())
        yield process
    finally:
        process.stop()


@contextlib.contextmanager
def stock_worker(folder: Path, redis_url: str) -> Iterator[Process]:
    """A worker of Celery's own for the tasks of the shop, from when it takes them."""
    command = ["celery", "--app", "tests.celery.shop", "worker", "--pool", "solo", "--loglevel", "info"]
    command += ["--without-gossip", "--without-mingle", "--hostname", "cpu@test"]
    process = Process(folder, "stock", command, {"CELERY_BROKER_URL": redis_url, "CELERY_RESULT_BACKEND": redis_url})
    try:
        until(lambda: process.runs() and "ready." in process.words)
        yield process
    finally:
        process.stop()


def close(app: Celery) -> None:
    """Let go of every connection that an application has."""
    gc.collect()  # a result that is forgotten later would connect once more, to say so
    app.backend.result_consumer.stop()
    app.backend.client.connection_pool.disconnect()
    app.close()
