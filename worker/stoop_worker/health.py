"""Decides whether a worker is alive, started and ready, for its probes and its ready file.

Liveness does not depend on Redis: loading takes minutes, so a worker keeps its model and waits during an outage.
"""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import structlog

__all__ = ["Health"]

log = structlog.get_logger(__name__)

_PERIOD_SECONDS = 1.0
_STUCK_SECONDS = 30.0


class _Engine(Protocol):
    @property
    def alive(self) -> bool: ...

    @property
    def running(self) -> asyncio.Event: ...

    @property
    def loading(self) -> object | None: ...


class _Outage(Protocol):
    @property
    def seconds(self) -> float: ...


class Health:
    """Answers each probe with the reason for failure, or None; any thread may call the probes.

    A worker that could not use Redis for a whole `lease` (seconds) is not ready, because other workers have its jobs
    by then. While it is ready, `ready_file` holds its name.
    """

    def __init__(
        self,
        engine: _Engine,
        outage: _Outage,
        *,
        lease: float,
        ready_file: Path | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._engine = engine
        self._outage = outage
        self._lease = lease
        self._ready_file = ready_file
        self._clock = clock
        self._loop_ran = clock()
        self._started = False
        self._worker: str | None = None
        self._file_is_there = False

    def not_alive(self) -> str | None:
        """Return the reason to restart the worker, or None."""
        if self._clock() - self._loop_ran > _STUCK_SECONDS:
            return f"the event loop has not turned for {_STUCK_SECONDS:g} s"
        return None if self._engine.alive else "the engine has ended"

    def not_started(self) -> str | None:
        """Return the reason that the worker has not started, or None."""
        if self._started:
            return None
        loading = self._engine.loading
        return "the model is being loaded" if loading is None else f"the model is being loaded: {loading}"

    def not_ready(self) -> str | None:
        """Return the reason that the worker claims no jobs, or None."""
        if not self._started:
            return self.not_started()
        if self._worker is None:
            return "the worker has not begun to claim, or has stopped"
        if not self._engine.running.is_set():
            return "the engine is being replaced"
        away = self._outage.seconds
        return f"Redis has not been available for {away:.0f} s" if away > self._lease else None

    def started(self) -> None:
        """Note that the model is loaded and has answered once."""
        self._started = True

    def claims_as(self, worker: str | None) -> None:
        """Note that the worker claims jobs under this name, or with None that it has stopped claiming."""
        self._worker = worker
        self._keep_file()

    async def run(self) -> None:
        """Record that the event loop runs, and keep the ready file up to date, until cancelled."""
        while True:
            self._loop_ran = self._clock()
            self._keep_file()
            await asyncio.sleep(_PERIOD_SECONDS)

    def _keep_file(self) -> None:
        wanted = self.not_ready() is None
        if self._ready_file is None or wanted == self._file_is_there:
            return
        self._file_is_there = wanted
        try:
            if wanted:
                self._ready_file.write_text(f"{self._worker}\n")
            else:
                self._ready_file.unlink(missing_ok=True)
        except OSError as error:
            log.error("the ready file cannot be kept", error=str(error))
