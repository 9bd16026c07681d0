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
    """One process, with its output in a log file."""

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
    def output(self) -> str:
        return self._log.read_text(errors="replace")

    @property
    def children(self) -> list[int]:
        tasks = Path(f"/proc/{self.pid}/task")
        return [int(pid) for task in tasks.iterdir() for pid in (task / "children").read_text().split()]

    def runs(self) -> bool:
        assert self._process.poll() is None, f"it ended: {self.output[-2000:]}"
        return True

    def end(self, how: signal.Signals) -> int:
        """Send a signal, and return the exit code."""
        self._process.send_signal(how)
        return self._process.wait(timeout=SECONDS)

    def stop(self) -> None:
        if self._process.poll() is None:
            self.end(signal.SIGKILL)


def until(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds, or fail."""
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, "the condition never held"
        time.sleep(0.02)


@contextlib.contextmanager
def gpu_worker(folder: Path, name: str, redis_url: str, **settings: object) -> Iterator[Process]:
    """Run our worker; enter when it claims jobs."""
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
    """Run Celery's own worker for the shop's tasks; enter when it is ready."""
    command = ["celery", "--app", "tests.celery.shop", "worker", "--pool", "solo", "--loglevel", "info"]
    command += ["--without-gossip", "--without-mingle", "--hostname", "cpu@test"]
    process = Process(folder, "stock", command, {"CELERY_BROKER_URL": redis_url, "CELERY_RESULT_BACKEND": redis_url})
    try:
        until(lambda: process.runs() and "ready." in process.output)
        yield process
    finally:
        process.stop()


def close(app: Celery) -> None:
    """Close every connection of an application."""
    gc.collect()  # a result that is collected later would connect again to unsubscribe
    app.backend.result_consumer.stop()
    app.backend.client.connection_pool.disconnect()
    app.close()
